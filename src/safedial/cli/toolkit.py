"""`safedial reproduce toolkit`: what the tighter radii and margins earn, and what a broken assumption costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def toolkit(
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 5,
    rounds: Annotated[
        int, typer.Option(help="Rounds for each seed; the learned quantile runs ten times as long.")
    ] = 10_000,
    out: Annotated[Path, typer.Option(help="Where to write.")] = Path("results"),
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Radii and margins: reward, an overstated noise constant, the learned quantile, broken assumptions."""
    from safedial.cli.output import print_json

    rows, paths = run_toolkit(seeds, rounds, out)
    if json:
        print_json({**rows, "files": [str(path) for path in paths]})
        return
    _print(rows, seeds, rounds)
    typer.echo("\nWritten:")
    for path in paths:
        typer.echo(f"  {path}")


def run_toolkit(seeds: int, rounds: int, out: Path) -> tuple[dict[str, list[dict[str, Any]]], list[Path]]:
    """All parts, and the picture."""
    from safedial.cli.output import progress_bar
    from safedial.experiments.radii_margins import total_rounds, write_toolkit
    from safedial.plots import draw_toolkit

    with progress_bar(f"Radii and margins, {seeds} seeds", total_rounds(rounds)) as advance:
        rows, paths = write_toolkit(out, seeds=seeds, rounds=rounds, progress=advance)
    return rows, [*paths, draw_toolkit(out)]


def _print(rows: dict[str, list[dict[str, Any]]], seeds: int, rounds: int) -> None:
    from safedial.cli.output import new_table, print_table

    title = f"Reward, share of the clairvoyant's (d = 10, {seeds} seeds × {rounds} rounds)"
    table = new_table(title, "radius, margin", "share", "over τ", "promised")
    for row in rows["shares"]:
        rate, promised = f"{row['violation_rate']:.5f}", f"{row['promised_risk']:g}"
        table.add_row(row["series"], f"{row['reward_share']:.4f}", rate, promised)
    print_table(table)
    for row in rows["overstated"]:
        typer.echo(f"{row['radius']}: told κ × {row['factor']:g} in the radius alone, it loses {row['loss']:.1%}.")
    table = new_table("The learned quantile over the sub-Gaussian margin (d = 5)", "rounds", *_risks(rows))
    for number in sorted({row["rounds"] for row in rows["quantile"]}):
        line = [f"{row['over_subgaussian']:.3f}" for row in rows["quantile"] if row["rounds"] == number]
        table.add_row(str(number), *line)
    print_table(table)
    margins = list(dict.fromkeys(row["margin"] for row in rows["broken"]))
    table = new_table("Full doses over τ at δ = 0.01 (!: the margin's assumption is broken)", "noise", *margins)
    for noise in dict.fromkeys(row["noise"] for row in rows["broken"]):
        mine = [row for row in rows["broken"] if row["noise"] == noise]
        table.add_row(noise, *(f"{row['full_dose_violation_rate']:.4f}{'' if row['holds'] else ' !'}" for row in mine))
    print_table(table)


def _risks(rows: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [f"δ = {risk:g}" for risk in dict.fromkeys(row["risk"] for row in rows["quantile"])]
