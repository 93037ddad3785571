"""`safedial reproduce`: the paper's results, ours beside the paper's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

reproduce = typer.Typer(no_args_is_help=True, help="Reproduce the paper's results, ours beside the paper's.")


@reproduce.callback()
def group() -> None:
    """Reproduce the paper's results, ours beside the paper's."""


@reproduce.command()
def table1(
    dim: Annotated[int, typer.Option(help="Dimension of the contexts; the paper has 5 and 10.")] = 5,
    seeds: Annotated[int, typer.Option(help="How many seeds; the paper has 5.")] = 5,
    rounds: Annotated[int, typer.Option(help="Rounds for each seed; the paper has 10000.")] = 10_000,
    out: Annotated[Path, typer.Option(help="Where to write.")] = Path("results"),
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Table 1: how often the realized cost exceeds the threshold, HP-UCB beside the expected-cost baseline."""
    from safedial.cli.output import print_json, progress_bar
    from safedial.experiments.table1 import write_table1
    from safedial.plots import draw_table1

    with progress_bar(f"Table 1, {seeds} seeds", 2 * rounds) as advance:
        rows, paths = write_table1(out, dim=dim, seeds=seeds, rounds=rounds, progress=advance)
    paths.append(draw_table1(out))
    if json:
        print_json({"rows": rows, "files": [str(path) for path in paths]})
        return
    _print_rows(rows, dim, seeds, rounds)
    typer.echo("\nWritten:")
    for path in paths:
        typer.echo(f"  {path}")


def _print_rows(rows: list[dict[str, Any]], dim: int, seeds: int, rounds: int) -> None:
    from safedial.cli.output import new_table, print_table

    table = new_table(
        f"How often the realized cost exceeds τ (d = {dim}, {seeds} seeds × {rounds} rounds)",
        "τ",
        "HP-UCB",
        "paper",
        "On-Exp.",
        "95 % CI",
        "paper",
        "paper's CI",
    )
    half = len(rows) // 2
    for safe, expected in zip(rows[:half], rows[half:], strict=True):
        table.add_row(
            f"{safe['threshold']:.1f}",
            f"{safe['violation_rate']:.4f}",
            f"{safe['paper_rate']:.4f}",
            f"{expected['violation_rate']:.4f}",
            f"{expected['ci_low']:.4f}–{expected['ci_high']:.4f}",
            f"{expected['paper_rate']:.4f}",
            f"{expected['paper_ci_low']:.4f}–{expected['paper_ci_high']:.4f}",
        )
    print_table(table)
    agree = sum(row["overlaps_paper"] for row in rows)
    typer.echo(f"{agree} of {len(rows)} intervals overlap the paper's. HP-UCB promises at most 0.02 a round.")
