"""The paper's Table 1: how often each policy lets the realized cost exceed τ.

The paper prints the world, λ = 1, 10⁴ rounds and 5 seeds; it does not print the noise, the risks or the bounds. Unit
noise, δ = δ′ = 0.01 and S = L = 1 reproduce it (docs/reproduction.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from safedial.io import Advance, Bar, no_bar, read_rows
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.paper.experiment import (
    DeviceName,
    Engine,
    EngineName,
    Experiment,
    Found,
    Rounds,
    Seeds,
    Table,
    as_html,
    cells,
)
from safedial.policies import make_policy
from safedial.simulation.linear_world import LinearWorld
from safedial.stats import Seeds as AnySeeds
from safedial.stats import as_seeds, violation_interval
from safedial.tools.pages import COLOURS, MARKERS, claim, columns, image, new_figure, read_provenance, save

UNIT: dict[str, Any] = dict.fromkeys(CONSTANTS, 1.0)
"""Unit noise, S = L = 1."""

THRESHOLDS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
POLICIES = ("hp_ucb", "on_expectation")

PAPER = {
    "hp_ucb": [(0.0002, 0.0001, 0.0002)] * 10,
    "on_expectation": [
        (0.2392, 0.2354, 0.2430),
        (0.2313, 0.2272, 0.2355),
        (0.2224, 0.2179, 0.2269),
        (0.2126, 0.2077, 0.2176),
        (0.2016, 0.1964, 0.2067),
        (0.1890, 0.1834, 0.1946),
        (0.1763, 0.1705, 0.1821),
        (0.1621, 0.1563, 0.1678),
        (0.1472, 0.1419, 0.1525),
        (0.1324, 0.1274, 0.1374),
    ],
}
"""Rate and 95 % interval by threshold, from Dragazis and Pacchiano, "Safety by Design", Table 1."""

PAPER_ROUNDING = 1e-4
DRAWN = ("threshold", "violation_rate", "ci_low", "ci_high", "paper_rate")


def table1_spec() -> SafetySpec:
    """The inferred settings of the paper's synthetic experiments, all thresholds at once."""
    return SafetySpec(threshold=THRESHOLDS, violation_risk=0.01, estimation_risk=0.01, **UNIT, ridge=1.0)


def table1(
    *,
    dim: int = 5,
    seeds: AnySeeds = 5,
    rounds: int = 10_000,
    progress: Advance | None = None,
    engine: Engine | None = None,
) -> list[dict[str, Any]]:
    """The rows of the table, our rates beside the paper's."""
    rows: list[dict[str, Any]] = []
    spec, engine, which = table1_spec(), engine or Engine(), as_seeds(seeds)
    options: Any = {"rounds": rounds, "seeds": which, "points": 1, "progress": progress}
    for name in POLICIES:
        policy = make_policy(name, radius="paper")
        run = engine.play(policy, LinearWorld(dim=dim), spec, **options)
        for index, threshold in enumerate(THRESHOLDS):
            low, high = violation_interval(run.violations[index], rounds)
            paper_rate, paper_low, paper_high = PAPER[name][index]
            overlaps = low <= paper_high + PAPER_ROUNDING and paper_low - PAPER_ROUNDING <= high
            row = {"threshold": threshold, "policy": name, "dim": dim, "seeds": len(which)}
            row |= {"violation_rate": float(run.violations[index].mean() / rounds), "ci_low": low, "ci_high": high}
            row |= {"paper_rate": paper_rate, "paper_ci_low": paper_low, "paper_ci_high": paper_high}
            rows.append(row | {"overlaps_paper": overlaps})
    return rows


def run(
    folder: Path,
    *,
    dim: Annotated[int, "Dimension of the contexts; the paper uses 5 and 10."] = 5,
    seeds: Seeds = 5,
    rounds: Rounds = 10_000,
    engine: EngineName = "numpy",
    device: DeviceName = None,
    bar: Bar = no_bar,
) -> Found:
    """Reproduce Table 1: how often the realized cost exceeds the threshold, for HP-UCB and the expected-cost baseline."""
    chosen, which = Engine(engine, device), as_seeds(seeds)
    with bar(f"Table 1, {len(which)} seeds", len(POLICIES) * rounds) as advance:
        rows = table1(dim=dim, seeds=which, rounds=rounds, progress=advance, engine=chosen)
    settings = {"dim": dim, "seeds": which, "rounds": rounds, "radius": "paper", **table1_spec().to_dict()}
    return Found({"table1": rows}, settings | chosen.settings, {"rows": rows})


def draw(folder: Path, guaranteed: float = 0.02) -> list[Path]:
    """`table1.png` from `table1.csv`: violation rate against τ, ours and the paper's, and the guarantee."""
    rows = read_rows(folder / "table1.csv")
    figure, (axes,) = new_figure()
    for policy, legend in (("hp_ucb", "paper"), ("on_expectation", None)):
        held = columns((row for row in rows if row["policy"] == policy), DRAWN)
        threshold, rate, low, high, paper = map(np.array, held)
        look = {"color": COLOURS[policy], "marker": MARKERS[policy], "label": make_policy(policy).label}
        axes.errorbar(threshold, rate, yerr=[rate - low, high - rate], markersize=3.5, linewidth=1, capsize=2, **look)
        axes.plot(threshold, paper, "x", markersize=5, color="black", zorder=3, label=legend)
    axes.axhline(guaranteed, color="grey", linestyle="--", linewidth=1)
    guarantee = f"HP-UCB guarantees at most {guaranteed:.0%}"
    axes.text(1.0, guaranteed * 1.12, guarantee, ha="right", va="bottom", fontsize=7, color="0.3")
    axes.set(yscale="log", ylim=(3e-5, 1.0), xlabel="threshold τ (units of cost)", ylabel="rounds with cost > τ")
    axes.set_yticks([1e-4, 1e-3, 1e-2, 1e-1, 1.0], ["0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(0.0, 0.46))
    return [save(figure, folder / "table1.png")]


def table(folder: Path) -> list[Table | str]:
    """The rates beside the paper's, and how many intervals overlap the paper's."""
    rows, settings = read_rows(folder / "table1.csv"), read_provenance(folder, "table1")["settings"]
    half = len(rows) // 2
    beside = (
        "{violation_rate:.4f}",
        "{ci_low:.4f}–{ci_high:.4f}",
        "{paper_rate:.4f}",
        "{paper_ci_low:.4f}–{paper_ci_high:.4f}",
    )
    lines = [
        cells(safe, ("{threshold:.1f}", "{violation_rate:.4f}", "{paper_rate:.4f}")) + cells(expected, beside)
        for safe, expected in zip(rows[:half], rows[half:], strict=True)
    ]
    size = f"d = {settings['dim']}, {len(settings['seeds'])} seeds × {settings['rounds']} rounds"
    heads = ["τ", "HP-UCB", "(paper)", "On-Exp.", "95 % CI", "(paper)", "(paper's CI)"]
    agree = [sum(row["overlaps_paper"] for row in part) for part in (rows[:half], rows[half:])]
    return [
        Table(f"How often the realized cost exceeds τ ({size})", heads, lines),
        f"Intervals that overlap the paper's (to its 4 digits): On-Expectation {agree[1]} of {half}, "
        f"HP-UCB {agree[0]} of {half} (one event at all τ, {rows[0]['ci_low']:.5f}–{rows[0]['ci_high']:.5f}).\n"
        "HP-UCB guarantees at most 0.02 per round.",
    ]


def section(folder: Path) -> list[str]:
    rows = read_rows(folder / "table1.csv")
    safe, expected = ([row for row in rows if row["policy"] == name] for name in ("hp_ucb", "on_expectation"))
    agree = sum(row["overlaps_paper"] for row in expected)
    rates = [row["violation_rate"] for row in expected]
    lower = sum(row["violation_rate"] < row["paper_rate"] for row in expected)
    told = read_provenance(folder, "table1")
    return [
        "<h2>Table 1: how often the realized cost exceeds the threshold</h2>",
        image(folder / "table1.png", "Violation rate against the threshold, ours and the paper's"),
        *as_html(table(folder)[:1]),
        claim(
            "HP-UCB violates in 0.02 % of the rounds.",
            f"Ours: {safe[0]['violation_rate']:.3%} ({safe[0]['ci_low']:.3%} to {safe[0]['ci_high']:.3%}), the same at "
            "every τ: with z = τ/B the event z(c + ξ) &gt; τ does not depend on τ while z &lt; 1. It guarantees at most "
            "2 %; the sub-Gaussian margin and the confidence radius are both conservative for Gaussian noise.",
        ),
        claim(
            "The expected-cost baseline violates in between 12 % and 23 % of the rounds.",
            f"Ours: {min(rates):.1%} to {max(rates):.1%}. {agree} of {len(expected)} intervals overlap the paper's; "
            f"{lower} of {len(expected)} of our rates lie below the paper's. The paper does not say which dimension the "
            f"table is for; ours is d = {int(expected[0]['dim'])} (docs/reproduction.md compares 5 and 10).",
        ),
        claim(
            "The total running time is below two minutes for all thresholds (on an Apple M3).",
            f"Ours: {told['seconds']:.1f} s on {told['machine']['cores']} cores for {int(safe[0]['seeds'])} seeds. All "
            "thresholds share one estimate, since R/g and C/g do not depend on the dose, and no matrix is factored.",
        ),
    ]


EXPERIMENT = Experiment(name="table1", run=run, draw=draw, table=table, section=section)
