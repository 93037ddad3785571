"""`python -m benchmarks`: speed on this machine beside the bare arithmetic, and how often checks catch a fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli import main
from safedial.cli.output import Json

bench = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


ENGINES = {
    "floor": "memory's limit",
    "mabwiser": "MABWiser's LinUCB",
    "naive": "plain loop",
    "numpy": "numpy",
    "jax": "jax",
    "jax_counter": "jax, counter draws",
}
"""What each figure of `simulate` is of, as the table shows it."""


@bench.command()
def tables() -> None:
    """Print a short table of each: start-up, simulations, sweeps, decisions, replays, a study; several minutes."""
    from benchmarks.tables import print_tables

    print_tables()


@bench.command()
def online(
    dim: Annotated[int, typer.Option(help="Dimension of the contexts.")] = 26,
    policy: Annotated[str, typer.Option(help="hp_probe or hp_conformal.")] = "hp_probe",
    rounds: Annotated[int, typer.Option(help="hp_conformal: rounds before the first timed decision.")] = 100_000,
    json: Json = False,
) -> None:
    """Time Agent.ask and Agent.tell, in microseconds."""
    from benchmarks.online_speed import bench_conformal, bench_online
    from safedial.cli.output import print_pairs
    from safedial.errors import require

    benches: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
        "hp_probe": ("Agent, microseconds (bare: the same arithmetic alone)", lambda: bench_online(dim)),
        "hp_conformal": (
            "Agent after many rounds, microseconds",
            lambda: bench_conformal(dim, rounds=rounds),
        ),
    }
    require(policy in benches, "--policy", policy, "must be hp_probe or hp_conformal")
    title, run = benches[policy]
    print_pairs(title, run(), json)


@bench.command()
def versions(
    before: Annotated[Path, typer.Option(help="The folder of another version, as git worktree makes it.")],
    case: Annotated[list[str] | None, typer.Option(help="One of the cases; may be repeated [all].")] = None,
    turns: Annotated[int, typer.Option(help="How often the two take turns.")] = 5,
) -> None:
    """Time agents and simulations of this version beside another one, in turns."""
    from benchmarks.versions import bench_versions

    bench_versions(before, names=case, turns=turns)


@bench.command()
def replay(
    dim: Annotated[int, typer.Option(help="Dimension of the contexts.")] = 512,
    rounds: Annotated[int, typer.Option(help="Rounds to replay; slow engines are timed on the first few.")] = 4096,
    *,
    engine: Annotated[str, typer.Option(help="all (reference, rank_one, blocked), one of them, or jax.")] = "all",
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64",
    device: Annotated[str | None, typer.Option(help="For jax: cpu or gpu.")] = None,
    json: Json = False,
) -> None:
    """Time the replay engines, in microseconds per round, beside a matrix product."""
    from benchmarks.replay_speed import bench_replay
    from safedial.cli.output import print_pairs

    report = bench_replay(dim, rounds=rounds, engine=engine, dtype=dtype, device=device)
    print_pairs("Replay, hp_ucb (GFLOP/s of blocked count 4d² per round)", report, json)


@bench.command()
def simulate(
    dim: Annotated[list[int] | None, typer.Option(help="Dimensions of the contexts; may be repeated [10, 26].")] = None,
    seeds: Annotated[list[int] | None, typer.Option(help="Numbers of seeds; may be repeated [1, 10, 500].")] = None,
    *,
    device: Annotated[str | None, typer.Option(help="For jax: cpu or gpu.")] = None,
    dtype: Annotated[str, typer.Option(help="For jax: float64 or float32.")] = "float64",
    seconds: Annotated[float, typer.Option(help="Seconds for each figure.")] = 1.0,
    json: Json = False,
) -> None:
    """Time the engines of simulate, in rounds per second, beside a plain loop and what the memory allows."""
    from benchmarks.simulation_speed import DIMS, SEEDS, bench_simulation
    from safedial.cli.output import print_json, print_table

    sizes = tuple(dim or DIMS), tuple(seeds or SEEDS)
    rows = bench_simulation(*sizes, device=device, dtype=dtype, seconds=seconds)
    if json:
        print_json(rows)
        return
    heads, lines = ("d", "seeds", "engine", "rounds per second", "compile seconds"), []
    for row in rows:
        for name, words in ENGINES.items():
            if name in row:
                compiling = row.get(f"{name}_compile_seconds")
                taken = "" if compiling is None else f"{compiling:.2f}"
                lines.append((f"{row['dim']}", f"{row['seeds']:,}", words, _rate(row[name]), taken))
    print_table("Simulated rounds per second", heads, lines)
    missing = [words for name, words in ENGINES.items() if name.startswith(("mabwiser", "jax")) and name not in rows[0]]
    if device != "gpu" and missing:
        typer.echo(f"Left out, because not installed: {', '.join(missing)} (make peers; the extra jax).")


@bench.command()
def checks(
    runs: Annotated[int, typer.Option(help="Logs of each world.")] = 100,
    json: Json = False,
) -> None:
    """Measure how often each check of a log catches a broken assumption, and how often clean logs raise a flag."""
    from benchmarks.checks_power import BREAKS, bench_checks
    from safedial.cli.output import print_json, print_table, progress_bar

    with progress_bar(f"checks, {runs} logs of each world", len(BREAKS)) as advance:
        report = bench_checks(runs, progress=advance)
    if json:
        print_json(report)
        return
    caught = report["caught"].items()
    rows = ((world, row["check"], f"{row['rounds']}", f"{row['caught']:.2f}") for world, row in caught)
    print_table(f"{runs} logs of each world", ("what is broken", "check", "rounds", "caught"), rows)
    rates = ", ".join(f"{name} {rate:g}" for name, rate in report["false_flags_by_check"].items())
    typer.echo(
        f"Clean logs with any flag: {report['false_flags']:g} (guaranteed: at most {report['level']:g}); {rates}."
    )


@bench.command()
def monitor(
    runs: Annotated[int, typer.Option(help="Runs of each world.")] = 2000,
    rounds: Annotated[int, typer.Option(help="Rounds in each run.")] = 2000,
    risk: Annotated[float, typer.Option(help="The guaranteed risk per round.")] = 0.05,
    level: Annotated[float, typer.Option(help="Chance of a false alarm, over all time.")] = 0.01,
    *,
    peers: Annotated[bool, typer.Option("--peers", help="Our alarms beside MAPIE's, after a change.")] = False,
    json: Json = False,
) -> None:
    """Measure the monitor's false alarms at the guaranteed rate, and how soon it catches three times that rate."""
    from benchmarks.monitor_power import bench_monitor
    from safedial.cli.output import print_pairs

    if peers:
        _monitor_peers(runs=runs, rounds=rounds, risk=risk, level=level, json=json)
        return

    report = bench_monitor(runs=runs, rounds=rounds, risk=risk, level=level)
    print_pairs("The monitor: false alarms, and rounds until the alarm at three times the risk", report, json)


@bench.command()
def study(
    dim: Annotated[int, typer.Option(help="Dimension of the contexts.")] = 16,
    events: Annotated[int, typer.Option(help="Events in the log that is verified and replayed.")] = 100_000,
    *,
    decisions: Annotated[int, typer.Option(help="Decisions under load.")] = 5_000,
    threads: Annotated[int, typer.Option(help="Concurrent callers.")] = 16,
    storage: Annotated[str | None, typer.Option(help="A store's URL. Default: SQLite in a temporary folder.")] = None,
    json: Json = False,
) -> None:
    """Time a study: decisions per second, and how fast its log is verified and replayed."""
    from benchmarks.study_speed import bench_load, bench_log
    from safedial.cli.output import print_pairs, progress_bar

    report = bench_load(storage, dim=dim, decisions=decisions, threads=threads)
    with progress_bar("filling a log", events // 2) as advance:
        report |= bench_log(storage, dim=dim, events=events, progress=advance)
    print_pairs("A study, every answer after its commit", report, json)


@bench.command()
def nonlinear(
    functions: Annotated[int, typer.Option(help="Functions of the finite class.")] = 10_000,
    points: Annotated[int, typer.Option(help="Rounds before the kernel class's decision.")] = 2000,
    rounds: Annotated[int, typer.Option(help="Rounds in the finite class's simulation.")] = 4000,
    json: Json = False,
) -> None:
    """Time the finite and the kernel class, beside a scikit-learn Gaussian process refitted in each round."""
    from benchmarks.nonlinear_speed import bench_nonlinear
    from safedial.cli.output import print_pairs

    report = bench_nonlinear(functions=functions, rounds=rounds, points=points)
    print_pairs("Function classes (ratio: scikit-learn's time over ours)", report, json)


def _rate(value: float) -> str:
    """A rate with three digits."""
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if short < 1e6 else f"{short / 1e6:,.{2 if short < 1e7 else 1 if short < 1e8 else 0}f} M"


def _monitor_peers(*, runs: int, rounds: int, risk: float, level: float, json: bool) -> None:
    from benchmarks.monitor_peers import compare_monitors
    from safedial.cli.output import print_json, print_table

    change = 3 * rounds // 10
    report = compare_monitors(runs=runs, rounds=rounds, change=change, risk=risk, level=level)
    finite = {
        name: {key: value if value < float("inf") else None for key, value in row.items()}
        for name, row in report["alarms"].items()
    }
    if json:
        print_json(report | {"alarms": finite})
        return
    lines = (
        (name, f"{row['false_alarms']:.3f}", f"{row['caught']:.2f}", "–" if wait is None else f"{wait:.0f}")
        for name, row in finite.items()
        for wait in [row["median_rounds"]]
    )
    title = (
        f"Alarms at level {level:g}; from round {change} on {report['rate_after']:g} of the rounds exceed, not {risk:g}"
    )
    print_table(title, ("alarm", "false alarms", "caught", "median rounds"), lines)
    for name, why in report["left_out"].items():
        typer.echo(f"left out: {name}: {why}")


if __name__ == "__main__":
    main(bench)
