"""`safedial reproduce`: the paper's results, ours beside the paper's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.battery import Cache, Weights, embed_texts
from safedial.cli.reproduce_tables import print_battery, print_closed_loop, print_nonlinear, print_table1
from safedial.cli.toolkit import run_toolkit, toolkit
from safedial.errors import MissingExtra

reproduce = typer.Typer(no_args_is_help=True, help="Reproduce the paper's results, ours beside the paper's.")
reproduce.command()(toolkit)

Seeds = Annotated[int, typer.Option(help="How many seeds; the paper has 5.")]
Rounds = Annotated[int, typer.Option(help="Rounds for each seed; the paper has 10000.")]
Out = Annotated[Path, typer.Option(help="Where to write.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@reproduce.command()
def table1(
    dim: Annotated[int, typer.Option(help="Dimension of the contexts; the paper has 5 and 10.")] = 5,
    seeds: Seeds = 5,
    rounds: Rounds = 10_000,
    out: Out = Path("results"),
    json: Json = False,
) -> None:
    """Table 1: how often the realized cost exceeds the threshold, HP-UCB beside the expected-cost baseline."""
    rows, paths = _table1(dim, seeds, rounds, out)
    if json:
        from safedial.cli.output import print_json

        print_json({"rows": rows, "files": [str(path) for path in paths]})
        return
    print_table1(rows, dim, seeds, rounds)
    _written(paths)


@reproduce.command()
def synthetic(seeds: Seeds = 5, rounds: Rounds = 10_000, out: Out = Path("results"), json: Json = False) -> None:
    """Figure "synthetic": cumulative regret for d = 5 and 10, every policy, Theorem 2, and a sweep over ε."""
    _finish(_synthetic(seeds, rounds, out), json)


@reproduce.command()
def conformal(seeds: Seeds = 5, rounds: Rounds = 10_000, out: Out = Path("results"), json: Json = False) -> None:
    """Reward against violations in six worlds: what each promise costs, and where it does not hold."""
    _finish(_conformal(seeds, rounds, out), json)


@reproduce.command()
def nonlinear(
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    rounds: Annotated[int, typer.Option(help="Rounds for each seed; time grows as their cube.")] = 5000,
    out: Out = Path("results"),
    json: Json = False,
) -> None:
    """Algorithm 2 in finite, kernel, logistic and dose-toxicity worlds, beside linear learners and Theorem 3."""
    rows, paths = _nonlinear(seeds, rounds, out)
    if json:
        from safedial.cli.output import print_json

        print_json({"rows": rows, "files": [str(path) for path in paths]})
        return
    print_nonlinear(rows, seeds, rounds)
    _written(paths)


@reproduce.command(name="closed-loop")
def closed_loop(
    rounds: Annotated[int, typer.Option(help="Rounds for each seed: discharge steps of 120 s.")] = 1500,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    out: Out = Path("results"),
    json: Json = False,
) -> None:
    """A simulated battery that answers the chosen current: certificates, violations, residuals (extra: battery)."""
    rows, paths = _closed_loop(seeds, rounds, out)
    if json:
        from safedial.cli.output import print_json

        print_json({"rows": rows, "files": [str(path) for path in paths]})
        return
    print_closed_loop(rows, seeds, rounds)
    _written(paths)


@reproduce.command()
def battery(
    source: Annotated[str, typer.Option(help="b, rw26, rw, rw9_12 (parquet), b_mat or rw_mat (NASA's files).")] = "b",
    embedder: Annotated[
        str,
        typer.Option(help="precomputed (Gemma vectors in the data folder), numeric, gemma3-270m, minilm, gemma-2b."),
    ] = "precomputed",
    weights: Weights = None,
    cache: Cache = None,
    threshold: Annotated[list[float] | None, typer.Option(help="May be given several times [0.1 and 0.2].")] = None,
    split: Annotated[str, typer.Option(help="Fit on the first half of each battery, or of the calendar.")] = "battery",
    floor: Annotated[float, typer.Option(help="Whiten axes down to this share of the largest variance.")] = 0.3,
    seeds: Annotated[int, typer.Option(help="How many seeds of the noise.")] = 3,
    engine: Annotated[str, typer.Option(help="The replay engine: blocked, jax, rank_one or reference.")] = "blocked",
    data: Annotated[Path | None, typer.Option(help="Where the battery data lie; default: SAFEDIAL_DATA.")] = None,
    out: Out = Path("results"),
    json: Json = False,
) -> None:
    """The battery experiment: current as dose, voltage change as reward, temperature rise as cost."""
    model = {"source": source, "embedder": embedder, "weights": weights, "cache": cache}
    chosen = {"split": split, "floor": floor, "thresholds": threshold or [0.1, 0.2], "seeds": seeds, "engine": engine}
    paths = _battery(out, data, **model, **chosen)
    if not json:
        print_battery(out)
    _finish(paths, json)


@reproduce.command()
def report(out: Out = Path("results"), json: Json = False) -> None:
    """One self-contained HTML page from the results that are there."""
    from safedial.report import write_report

    _finish([write_report(out)], json)


@reproduce.command(name="all")
def everything(seeds: Seeds = 5, rounds: Rounds = 10_000, out: Out = Path("results"), json: Json = False) -> None:
    """Everything there is, and the report; the closed loop, the non-linear worlds and the toolkit with fewer rounds."""
    from safedial.report import write_report

    paths = [*_table1(5, seeds, rounds, out)[1], *_synthetic(seeds, rounds, out), *_conformal(seeds, rounds, out)]
    if os.environ.get("SAFEDIAL_DATA"):
        chosen = {
            "split": "battery",
            "floor": 0.3,
            "thresholds": [0.1, 0.2],
            "seeds": min(seeds, 3),
            "engine": "blocked",
        }
        paths += _battery(out, None, **chosen)
    else:
        typer.echo(
            "The battery experiment is skipped: no data folder is named (SAFEDIAL_DATA; docs/battery.md).", err=True
        )
    paths += _nonlinear(min(seeds, 2), min(rounds, 1000), out)[1]
    paths += run_toolkit(min(seeds, 2), min(rounds, 2000), out)[1]
    try:
        paths += _closed_loop(min(seeds, 3), min(max(3 * rounds // 20, 1), 1500), out)[1]
    except MissingExtra as error:
        typer.echo(f"The battery in the loop is skipped: {error}", err=True)
    _finish([*paths, write_report(out)], json)


def _table1(dim: int, seeds: int, rounds: int, out: Path) -> tuple[list[dict[str, Any]], list[Path]]:
    from safedial.cli.output import progress_bar
    from safedial.experiments.table1 import write_table1
    from safedial.plots import draw_table1

    with progress_bar(f"Table 1, {seeds} seeds", 2 * rounds) as advance:
        rows, paths = write_table1(out, dim=dim, seeds=seeds, rounds=rounds, progress=advance)
    return rows, [*paths, draw_table1(out)]


def _synthetic(seeds: int, rounds: int, out: Path) -> list[Path]:
    from safedial.cli.output import progress_bar
    from safedial.experiments.epsilon import EPSILONS, READINGS, write_epsilon
    from safedial.experiments.synthetic import DIMS, SERIES, write_synthetic
    from safedial.plots import draw_epsilon, draw_synthetic

    with progress_bar(f"Regret curves, {seeds} seeds", len(DIMS) * len(SERIES) * rounds) as advance:
        paths = write_synthetic(out, seeds=seeds, rounds=rounds, progress=advance)
    with progress_bar(f"ε-greedy, {seeds} seeds", len(DIMS) * len(EPSILONS) * len(READINGS) * rounds) as advance:
        paths += write_epsilon(out, seeds=seeds, rounds=rounds, progress=advance)
    return [*paths, *draw_synthetic(out), draw_epsilon(out)]


def _conformal(seeds: int, rounds: int, out: Path) -> list[Path]:
    from safedial.cli.output import progress_bar
    from safedial.experiments.conformal import SERIES, WORLDS, write_conformal
    from safedial.plots import draw_conformal

    with progress_bar(f"Six worlds, {seeds} seeds", len(WORLDS) * len(SERIES) * rounds) as advance:
        paths = write_conformal(out, seeds=seeds, rounds=rounds, progress=advance)
    return [*paths, draw_conformal(out)]


def _nonlinear(seeds: int, rounds: int, out: Path) -> tuple[list[dict[str, Any]], list[Path]]:
    from safedial.cli.output import progress_bar
    from safedial.experiments.nonlinear import PLACES, SERIES, finals, write_nonlinear
    from safedial.plots import draw_nonlinear

    with progress_bar(f"Five worlds that are not linear, {seeds} seeds", len(PLACES) * len(SERIES) * rounds) as advance:
        rows, paths = write_nonlinear(out, seeds=seeds, rounds=rounds, progress=advance)
    return finals(rows), [*paths, draw_nonlinear(out)]


def _closed_loop(seeds: int, rounds: int, out: Path) -> tuple[list[dict[str, Any]], list[Path]]:
    from safedial.cli.output import progress_bar
    from safedial.experiments.closed_loop import SERIES, write_closed_loop
    from safedial.plots import draw_closed_loop

    with progress_bar(f"A battery in the loop, {seeds} seeds", len(SERIES) * seeds * rounds) as advance:
        rows, paths = write_closed_loop(out, seeds=seeds, rounds=rounds, progress=advance)
    return rows, [*paths, draw_closed_loop(out)]


def _battery(
    out: Path,
    data: Path | None,
    *,
    source: str = "b",
    embedder: str = "precomputed",
    weights: Path | None = None,
    cache: Path | None = None,
    **chosen: Any,
) -> list[Path]:
    from safedial.cli.output import progress_bar
    from safedial.datasets.battery.embedders import EMBEDDERS
    from safedial.experiments.battery import SERIES, check_settings, write_battery
    from safedial.experiments.battery_logged import write_logged
    from safedial.io import output_folder
    from safedial.plots import draw_battery

    check_settings(source, embedder, **chosen)
    output_folder(out)
    model = {"source": source, "embedder": embedder, "weights": weights, "cache": cache}
    if embedder in EMBEDDERS:
        embed_texts(data, **model)
    with progress_bar(f"Battery, {chosen['seeds']} seed(s) of the noise", len(SERIES) * chosen["seeds"]) as advance:
        _, paths = write_battery(out, data=data, progress=advance, **model, **chosen)
    return [*paths, draw_battery(out), *write_logged(out, data=data)]


def _finish(paths: list[Path], json: bool) -> None:
    if json:
        from safedial.cli.output import print_json

        print_json({"files": [str(path) for path in paths]})
    else:
        _written(paths)


def _written(paths: list[Path]) -> None:
    typer.echo("\nWritten:")
    for path in paths:
        typer.echo(f"  {path}")
