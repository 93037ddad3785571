"""`safedial reproduce`: a command for each experiment, all of them, and the report."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_group

from safedial.cli.inputs import Device, Json, plain

if TYPE_CHECKING:
    from safedial.experiments.experiment import Experiment, Result

Seeds = Annotated[int, typer.Option(help="How many seeds, a count: each experiment has its share; the paper uses 5.")]
Rounds = Annotated[int, typer.Option(help="Rounds for each seed; the paper uses 10000.")]
EngineName = Annotated[str, typer.Option(help="Where an experiment has the choice: numpy, jax or auto.")]
Out = Annotated[Path, typer.Option(help="The output folder.")]

HELP_OF_ALL = "Run all experiments and write the report; non-linear worlds use fewer rounds."


class ExperimentGroup(TyperGroup):
    """Creates its commands on first use, so that `safedial --help` imports no experiment."""

    def list_commands(self, ctx: Any) -> list[str]:
        self._make_commands()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self._make_commands()
        return super().get_command(ctx, cmd_name)

    def _make_commands(self) -> None:
        if not self.commands:
            from safedial.experiments import EXPERIMENTS

            self.commands = get_group(make_commands(EXPERIMENTS)).commands


reproduce = typer.Typer(cls=ExperimentGroup, no_args_is_help=True)


def make_commands(experiments: Sequence[Experiment]) -> typer.Typer:
    """A command for each experiment, `report` and `all`."""
    from safedial.experiments.experiment import Result, by_command, run_and_draw
    from safedial.experiments.report import write_report

    made = typer.Typer(no_args_is_help=True)
    for name, group in by_command(experiments).items():
        made.command(name)(make_command(group))

    @made.command()
    def report(out: Out = Path("results"), json: Json = False) -> None:
        """Write one self-contained HTML page from the results in the folder."""
        _show(Result({}, [write_report(out, experiments)]), json)

    @made.command(name="all", help=HELP_OF_ALL)
    def everything(
        seeds: Seeds = 5,
        rounds: Rounds = 10_000,
        *,
        engine: EngineName = "numpy",
        device: Device = None,
        out: Out = Path("results"),
        json: Json = False,
    ) -> None:
        from safedial.cli.output import progress_bar
        from safedial.errors import is_whole, require

        rule, way_out = "must be a count >= 1 here", "run one experiment to say which seeds"
        require(is_whole(seeds), "--seeds", seeds, rule, way_out)
        files: list[Path] = []
        for group in by_command(experiments).values():
            reason = group[0].why_skipped()
            if reason:
                typer.echo(reason, err=True)
                continue
            options = group[0].options_in_all(seeds, rounds)
            options |= _chosen(group[0].run, {"engine": engine, "device": device})
            files += run_and_draw(group, out, options, bar=progress_bar).files
        _show(Result({}, [*files, write_report(out, experiments)]), json)

    return made


def make_command(group: Sequence[Experiment]) -> Callable[..., None]:
    """A command that runs these experiments and prints their tables, with the options of the first one's `run`."""
    from safedial.experiments.experiment import run_and_draw

    def command(out: Path, json: bool, **options: Any) -> None:
        from safedial.cli.output import print_table, progress_bar

        result = run_and_draw(group, out, options, bar=progress_bar)
        for part in [] if json else [part for each in group for part in each.table(out)]:
            typer.echo(part) if isinstance(part, str) else print_table(*part)
        _show(result, json)

    command.__doc__ = group[0].run.__doc__
    vars(command)["__signature__"] = inspect.Signature([*_options(group[0].run), *_OUT_AND_JSON])
    return command


def _chosen(run: Callable[..., Any], how: dict[str, Any]) -> dict[str, Any]:
    """Engine and device for an experiment of simulations; a replay has other engines of the same option."""
    from safedial.experiments.experiment import EngineName

    hints = get_type_hints(run, include_extras=True)
    simulated = hints.get("engine") == EngineName
    return {name: value for name, value in how.items() if simulated and name in hints and value is not None}


def _options(run: Callable[..., Any]) -> list[inspect.Parameter]:
    """The keyword-only parameters of `run`, except the bar, in the form Typer expects."""
    from safedial.seeds import Seeds as AnySeeds

    hints, options = get_type_hints(run, include_extras=True), []
    for parameter in inspect.signature(run).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name != "bar":
            kind, words = get_args(hints[parameter.name])
            if kind == AnySeeds:
                kind, parameter = str, parameter.replace(default=str(parameter.default))
            options.append(parameter.replace(annotation=Annotated[kind, plain(words)]))
    return options


_OUT_AND_JSON = [
    inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=Path("results"), annotation=Out),
    inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json),
]


def _show(result: Result, json: bool) -> None:
    from safedial.cli.output import print_json, print_written

    if json:
        print_json({**result.content, "files": [str(path) for path in result.files]})
    else:
        typer.echo()
        print_written(result.files)
