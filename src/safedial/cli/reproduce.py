"""`safedial reproduce`: a command for each experiment, all of them, and the report. `safedial eluder`: how hard a
function class is to learn, and Theorem 3's bound. `safedial battery`: download NASA's data, list and embed it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_group

from safedial.cli.output import (
    Device,
    Json,
    plain,
    print_json,
    print_pairs,
    print_table,
    print_written,
    progress_bar,
    shown,
)
from safedial.errors import InvalidInput, is_whole, require

if TYPE_CHECKING:
    from safedial.paper.experiment import Experiment, Result

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
            from safedial.paper.experiments import EXPERIMENTS

            self.commands = get_group(make_commands(EXPERIMENTS)).commands


reproduce = typer.Typer(cls=ExperimentGroup, no_args_is_help=True)


def make_commands(experiments: Sequence[Experiment]) -> typer.Typer:
    """A command for each experiment, `report` and `all`."""
    from safedial.paper.experiment import Result, by_command, run_and_draw
    from safedial.paper.experiments import write_report

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
    from safedial.paper.experiment import run_and_draw

    def command(out: Path, json: bool, **options: Any) -> None:
        result = run_and_draw(group, out, options, bar=progress_bar)
        for part in [] if json else [part for each in group for part in each.table(out)]:
            typer.echo(part) if isinstance(part, str) else print_table(*part)
        _show(result, json)

    command.__doc__ = group[0].run.__doc__
    vars(command)["__signature__"] = inspect.Signature([*_options(group[0].run), *_OUT_AND_JSON])
    return command


def _chosen(run: Callable[..., Any], how: dict[str, Any]) -> dict[str, Any]:
    """Engine and device for an experiment of simulations; a replay has other engines of the same option."""
    from safedial.paper.experiment import EngineName

    hints = get_type_hints(run, include_extras=True)
    simulated = hints.get("engine") == EngineName
    return {name: value for name, value in how.items() if simulated and name in hints and value is not None}


def _options(run: Callable[..., Any]) -> list[inspect.Parameter]:
    """The keyword-only parameters of `run`, except the bar, in the form Typer expects."""
    from safedial.stats import Seeds as AnySeeds

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
    if json:
        print_json({**result.content, "files": [str(path) for path in result.files]})
    else:
        typer.echo()
        print_written(result.files)


# --- `safedial eluder`: how hard a function class is to learn, and Theorem 3's bound

CLASSES = ("finite", "linear", "kernel")


def eluder(
    kind: Annotated[str, typer.Option("--class", help="finite, linear or kernel.")],
    *,
    epsilon: Annotated[float, typer.Option(help="The scale: differences up to this do not count.")] = 0.1,
    dim: Annotated[int, typer.Option(help="linear, kernel: dimension of the contexts.")] = 2,
    functions: Annotated[int, typer.Option(help="finite: functions with values uniform on [-1, 1].")] = 8,
    contexts: Annotated[int, typer.Option(help="finite, kernel: number of context points.")] = 12,
    values: Annotated[
        Path | None, typer.Option(help="finite: your own CSV, one function per line, one context per column.")
    ] = None,
    method: Annotated[str, typer.Option(help="finite: auto, exact or greedy (a lower bound).")] = "auto",
    kernel: Annotated[str, typer.Option(help="kernel: rbf:0.5, matern52:1+polynomial:2, ...")] = "rbf:0.5",
    norm: Annotated[float, typer.Option(help="kernel: bound on the functions' norm.")] = 2.0,
    coefficient_bound: Annotated[float, typer.Option(help="linear: bound on the coefficients' norm.")] = 1.0,
    context_bound: Annotated[float, typer.Option(help="linear, kernel: bound on the contexts' norm.")] = 1.0,
    seed: Annotated[int, typer.Option(help="finite, kernel: random seed.")] = 0,
    rounds: Annotated[int | None, typer.Option(help="Theorem 3's bound at 10, 100, ... up to this.")] = None,
    threshold: Annotated[float, typer.Option(help="Theorem 3: the cost threshold.")] = 0.5,
    reward_noise: Annotated[float, typer.Option(help="Theorem 3: sub-Gaussian constant of the reward.")] = 1.0,
    cost_noise: Annotated[float, typer.Option(help="Theorem 3: sub-Gaussian constant of the cost.")] = 1.0,
    estimation_risk: Annotated[float, typer.Option(help="Theorem 3: chance that the bound fails.")] = 0.01,
    ridge: Annotated[float, typer.Option(help="Theorem 3, linear and kernel: regularisation.")] = 1.0,
    json: Json = False,
) -> None:
    """Compute the eluder dimension of a class (exact, or marked as a bound) and Theorem 3's regret bound."""
    from safedial.model.spec import SafetySpec
    from safedial.paper.regret import finite_case, kernel_case, linear_case, report, theorem3_curve

    require(kind in CLASSES, "--class", kind, "must be one of " + ", ".join(CLASSES))
    require(rounds is None or rounds >= 10, "--rounds", rounds, "must be >= 10")
    for name, value in (("--dim", dim), ("--functions", functions), ("--contexts", contexts)):
        require(value >= 1, name, value, "must be >= 1")
    gram = _gram(kernel, dim, contexts, context_bound, seed) if kind == "kernel" else None
    spec = SafetySpec(
        threshold=threshold,
        violation_risk=0.01,
        estimation_risk=estimation_risk / 2.0,
        reward_noise=reward_noise,
        cost_noise=cost_noise,
        coefficient_bound=norm if kind == "kernel" else coefficient_bound,
        context_bound=context_bound if gram is None else float(gram.diagonal().max()) ** 0.5,
        ridge=ridge,
    )
    with progress_bar(f"eluder dimension, {kind} class", 100 * len(str(rounds or 1))) as advance:
        if kind == "finite":
            table = _table(values, functions, contexts, seed)
            about = {"functions": table.shape[0], "contexts": table.shape[1]}
            case = finite_case(table, spec, method=method, progress=advance)
        elif gram is None:
            about = {"dim": dim, "coefficient_bound": coefficient_bound, "context_bound": context_bound}
            case = linear_case(dim, spec)
        else:
            about = {"dim": dim, "contexts": contexts, "kernel": kernel, "norm": norm}
            case = kernel_case(gram, spec)
        content = {"class": kind, **about, **report(case, epsilon)}
        content["theorem3"] = theorem3_curve(case, spec, rounds) if rounds else None
    if json:
        print_json(content)
    else:
        _print(content, estimation_risk)


def _table(values: Path | None, functions: int, contexts: int, seed: int) -> Any:
    """The user's matrix, or one drawn uniformly from [-1, 1]."""
    import numpy as np

    if values is None:
        return np.random.default_rng(seed).uniform(-1.0, 1.0, (functions, contexts))
    require(values.is_file(), "--values", str(values), "is not a file", "give a CSV with one function per line")
    try:
        return np.loadtxt(values, delimiter=",", ndmin=2)
    except (ValueError, UserWarning) as error:
        raise InvalidInput(
            f"--values = {str(values)!r}: must hold only numbers, the same count on each line ({error})"
        ) from error


def _gram(kernel: str, dim: int, contexts: int, context_bound: float, seed: int) -> Any:
    """The kernel matrix of contexts drawn uniformly from the ball of radius `context_bound`."""
    import numpy as np

    from safedial.policies.classes.kernel import parse_kernel

    rng = np.random.default_rng(seed)
    points = rng.standard_normal((contexts, dim))
    points *= context_bound * (rng.random(contexts) ** (1.0 / dim) / np.linalg.norm(points, axis=1))[:, None]
    return parse_kernel(kernel)(points, points)


def _print(content: dict[str, Any], estimation_risk: float) -> None:
    """Two tables: the dimension, and Theorem 3's curve."""
    hidden = ("theorem3", "sequence", "pairs", "dimension", "kind", "class")
    if content["lower_method"] == content["upper_method"]:
        hidden += ("lower_bound", "lower_method", "upper_bound", "upper_method")
    pairs = {"dimension": f"{content['dimension']} ({content['kind']})"}
    pairs |= {name: value for name, value in content.items() if name not in hidden and value is not None}
    if content["sequence"]:
        more = " ..." if len(content["sequence"]) > 12 else ""
        pairs["sequence"] = " ".join(str(context) for context in content["sequence"][:12]) + more
    print_pairs(f"Eluder dimension, {content['class']} class", pairs)
    if content["theorem3"] is None:
        return
    heads = ("rounds", "dimension at 1/T", "radius, reward", "cost", "bound", "trivial")
    names = ("reward_radius", "cost_radius", "bound", "trivial_bound")
    rows = (
        (shown(row["rounds"]), f"{row['dimension']} ({row['kind']})", *(shown(row[name]) for name in names))
        for row in content["theorem3"]
    )
    print_table("Theorem 3: regret at most", heads, rows)
    typer.echo(
        f"Holds with probability {1.0 - estimation_risk:g} if mean reward and mean cost lie in this class "
        "and the noise constants are right."
    )


# --- `safedial battery`

battery = typer.Typer(no_args_is_help=True)

Data = Annotated[Path | None, typer.Option(help="The folder that holds the data. Default: SAFEDIAL_DATA.")]
Weights = Annotated[
    Path | None, typer.Option(help="A folder with a model of the same architecture. Default: the published weights.")
]
Cache = Annotated[
    Path | None, typer.Option(help="Where to keep the vectors. Default: SAFEDIAL_CACHE, or ~/.cache/safedial.")
]


@battery.command()
def fetch(
    data: Data = None,
    url: Annotated[str | None, typer.Option(help="Another archive. Default: NASA's RW9 to RW12, 425 MB.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The SHA-256 that the archive must have.")] = None,
    json: Json = False,
) -> None:
    """Download NASA's archive and unpack its .mat files. After an interruption, run it again to continue."""
    from safedial.io import late_bar
    from safedial.paper.battery_fetch import ARCHIVE, fetch_archive

    with late_bar(progress_bar, lambda total: f"download, {total / 1e6:,.0f} MB") as progress:
        done = fetch_archive(data, url or ARCHIVE, sha256=sha256, progress=progress)
    if json:
        print_json(done._asdict())
        return
    typer.echo(("Fetched" if done.downloaded else "There already") + f": {done.url}\nSHA-256 {done.sha256}")
    for name, facts in done.files.items():
        typer.echo(f"  {name}  {facts['bytes']:,} bytes  SHA-256 {facts['sha256']}")


@battery.command()
def embed(
    *,
    data: Data = None,
    source: Annotated[str, typer.Option(help="b, rw26, rw, rw9_12 (parquet), b_mat or rw_mat (NASA's files).")] = "b",
    embedder: Annotated[str, typer.Option(help="gemma3-270m, minilm or gemma-2b.")] = "gemma3-270m",
    weights: Weights = None,
    cache: Cache = None,
    batch_size: Annotated[int, typer.Option(help="Texts in one batch.")] = 16,
    limit: Annotated[int | None, typer.Option(help="Embed at most this many texts now.")] = None,
    json: Json = False,
) -> None:
    """Embed a source's texts with a language model, into a cache. After an interruption, run it again to continue."""
    from safedial.paper.battery_experiment import embed_source

    chosen = {"weights": weights, "cache": cache, "batch_size": batch_size, "limit": limit}
    done = embed_source(data, source, embedder, bar=progress_bar, **chosen)
    left = done.texts - done.before - done.computed
    if json:
        print_json({**done._asdict(), "folder": str(done.folder), "left": left})
        return
    typer.echo(f"{done.computed:,} texts embedded now, {done.before:,} before, {left:,} left; kept in {done.folder}")


@battery.command()
def info(data: Data = None, json: Json = False) -> None:
    """List the sources in a folder: rows of each battery and kind, time span, what to cite."""
    from safedial.paper.battery_data import summarize

    content = summarize(data)
    if json:
        print_json(content)
        return
    for name, facts in content["sources"].items():
        labels = ", ".join(dict.fromkeys(row["source"] for row in facts["batteries"]))
        columns = ("charge", "discharge", "rest", "hours")
        rows = (
            (row["battery"], *(f"{row[column]:,}" for column in columns), row["first"] or "", row["last"] or "")
            for row in facts["batteries"]
        )
        print_table(f"{name}: {facts['rows']:,} rows of {labels}", ("battery", *columns, "from", "to"), rows)
    for name, error in content["unreadable"].items():
        typer.echo(f"{name} cannot be used: {error}")
    if not content["sources"]:
        typer.echo(f"No battery data in {content['folder']}. `safedial battery fetch --data DIR` downloads NASA's.")
    for words in content["citations"]:
        typer.echo(f"Cite: {words}")
