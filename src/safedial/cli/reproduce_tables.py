"""What `safedial reproduce` prints: the results as tables, ours beside the paper's where it has any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer


def print_table1(rows: list[dict[str, Any]], dim: int, seeds: int, rounds: int) -> None:
    from safedial.cli.output import new_table, print_table

    table = new_table(
        f"How often the realized cost exceeds τ (d = {dim}, {seeds} seeds × {rounds} rounds)",
        "τ",
        "HP-UCB",
        "(paper)",
        "On-Exp.",
        "95 % CI",
        "(paper)",
        "(paper's CI)",
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
    agree = [sum(row["overlaps_paper"] for row in part) for part in (rows[:half], rows[half:])]
    typer.echo(
        f"Intervals that touch the paper's (to its 4 digits): On-Expectation {agree[1]} of {half}, "
        f"HP-UCB {agree[0]} of {half} (one event at all τ, {rows[0]['ci_low']:.5f}–{rows[0]['ci_high']:.5f}).\n"
        "HP-UCB promises at most 0.02 a round."
    )


def print_nonlinear(rows: list[dict[str, Any]], seeds: int, rounds: int) -> None:
    from safedial.cli.output import new_table, print_table

    title = f"Share of the clairvoyant's reward ({seeds} seeds × {rounds} rounds)"
    table = new_table(title, "world", "policy", "reward", "over τ", "risk", "promise")
    for row in rows:
        holds = "holds" if row["promise_holds"] else "–"
        share, rate = f"{row['reward_share']:.3f}", f"{row['violation_rate']:.4f}"
        table.add_row(row["world"], row["series"], share, rate, f"{row['risk']:g}", holds)
    print_table(table)


def print_closed_loop(rows: list[dict[str, Any]], seeds: int, rounds: int) -> None:
    from safedial.cli.output import new_table, print_table

    title = f"A battery in the loop ({seeds} seeds × {rounds} rounds)"
    table = new_table(title, "agent", "over τ", "reward", "hottest", "alarm at")
    for row in rows:
        rate = "–" if row["violation_rate"] is None else f"{row['violation_rate']:.4f}"
        alarms = "/".join("–" if number is None else f"{number:.0f}" for number in row["alarm_rounds"])
        table.add_row(row["series"], rate, f"{row['mean_reward']:.3f}", f"{row['largest_true_cost']:.2f}", alarms)
    print_table(table)
    typer.echo(
        f"Promised: over τ in at most {rows[0]['promised_risk']:g} of the rounds; counted where a promise was given.\n"
        "Costs are in units of 10 °C above ambient, τ = 0.3. docs/battery.md says which assumptions fail here."
    )


def print_battery(out: Path) -> None:
    from safedial.cli.output import new_table, print_table
    from safedial.io import read_rows

    rows = read_rows(out / "battery.csv")
    last = {(row["series"], row["threshold"]): row for row in rows}
    thresholds = list(dict.fromkeys(row["threshold"] for row in rows))
    one = rows[-1]
    title = f"NASA's batteries: {one['source']}, {one['embedder']}, d = {one['dim']:.0f}"
    table = new_table(title, "policy", *(word for value in thresholds for word in (f"regret, τ={value:g}", "above τ")))
    for series in dict.fromkeys(row["series"] for row in rows):
        cells = [last[series, value] for value in thresholds]
        table.add_row(
            series, *(text for row in cells for text in (f"{row['regret']:.1f}", f"{row['violation_rate']:.3%}"))
        )
    print_table(table)
    limits = " and ".join(f"{last[one['series'], value]['threshold_celsius']:.2f} °C" for value in thresholds)
    typer.echo(
        f"{one['round']:.0f} rounds. Promised by all but On-Expectation: cost above τ in at most "
        f"{one['promised_risk']:.0%} of them.\n"
        f"τ is {limits} of temperature rise in a step. The truth is a linear fit to the data;\n"
        "docs/battery.md says what that can show."
    )
