"""What the paper claims, point by point, ours beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from safedial.io import read_rows
from safedial.report.html import claim, footer, html_table, image, provenance


def table1(folder: Path) -> str:
    rows = read_rows(folder / "table1.csv")
    safe, expected = ([row for row in rows if row["policy"] == name] for name in ("hp_ucb", "on_expectation"))
    lines = [
        [
            f"{left['threshold']:.1f}",
            f"{left['violation_rate']:.5f}",
            f"{left['paper_rate']:.4f}",
            f"{right['violation_rate']:.4f}",
            f"{right['ci_low']:.4f} to {right['ci_high']:.4f}",
            f"{right['paper_rate']:.4f}",
            f"{right['paper_ci_low']:.4f} to {right['paper_ci_high']:.4f}",
        ]
        for left, right in zip(safe, expected, strict=True)
    ]
    agree = sum(row["overlaps_paper"] for row in expected)
    rates = [row["violation_rate"] for row in expected]
    lower = sum(row["violation_rate"] < row["paper_rate"] for row in expected)
    told = provenance(folder, "table1")
    heads = ["τ", "HP-UCB", "paper", "On-Expectation", "95 % interval", "paper", "paper's interval"]
    return "\n".join(
        [
            "<h2>Table 1: how often the realized cost exceeds the threshold</h2>",
            image(folder / "table1.png", "Violation rate against the threshold, ours and the paper's"),
            html_table(heads, lines),
            claim(
                "HP-UCB violates in 0.02 % of the rounds.",
                f"Ours: {safe[0]['violation_rate']:.3%} ({safe[0]['ci_low']:.3%} to {safe[0]['ci_high']:.3%}), the same at "
                "every τ: with z = τ/B the event z(c + ξ) &gt; τ does not depend on τ while z &lt; 1. It promises at most "
                "2 %; the sub-Gaussian margin and the confidence radius are both conservative for Gaussian noise.",
            ),
            claim(
                "The expected-cost baseline violates in between 12 % and 23 % of the rounds.",
                f"Ours: {min(rates):.1%} to {max(rates):.1%}. {agree} of {len(expected)} intervals touch the paper's; "
                f"{lower} of {len(expected)} of our rates lie below the paper's. The paper does not say which dimension the "
                f"table is for; ours is d = {int(expected[0]['dim'])} (docs/reproduction.md compares 5 and 10).",
            ),
            claim(
                "The total running time is below two minutes for all thresholds (on an Apple M3).",
                f"Ours: {told['seconds']:.1f} s on {told['machine']['cores']} cores for {int(safe[0]['seeds'])} seeds. All "
                "thresholds share one estimate, since R/g and C/g do not depend on the dose, and no matrix is factored.",
            ),
            footer(told),
        ]
    )


def synthetic(folder: Path) -> str:
    rows = read_rows(folder / "synthetic.csv")
    last = {(row["dim"], row["series"]): row for row in rows}
    dims = sorted({dim for dim, _ in last})
    columns = (
        ("regret", "regret", ".0f"),
        ("reward share", "final_reward_share", ".0%"),
        ("violations", "violation_rate", ".3%"),
    )
    lines = [
        [series, *(f"{last[dim, series][name]:{form}}" for dim in dims for _, name, form in columns)]
        for series in dict.fromkeys(row["series"] for row in rows)
    ]
    heads = [f"{words}, d = {dim:g}" for dim in dims for words, _, _ in columns]
    ours = [row for row in rows if row["series"] == "HP-UCB"]
    holds = all(row["regret_high"] <= row["theorem_2"] for row in ours)
    ratio = min((row["theorem_2"] / row["regret"] for row in ours if row["regret"] > 0), default=math.inf)
    order = " and ".join(f"{_slope(rows, dim):.2f} (d = {dim:g})" for dim in dims)
    gain = last[dims[-1], "HP-UCB"]["regret"] / last[dims[-1], "HP-Probe"]["regret"]
    return "\n".join(
        [
            "<h2>Figure “synthetic”: cumulative constrained regret</h2>",
            image(folder / "synthetic.png", "HP-UCB and ε-greedy, d = 5 and d = 10"),
            "<p>The same with every policy of this project, on logarithmic axes (linear between −1 and 1):</p>",
            image(folder / "synthetic_all.png", "All policies, with the bound of Theorem 2"),
            html_table(["policy", *heads], lines),
            "<p><small>Reward share: of the clairvoyant's, who knows θ* and μ* but keeps the sub-Gaussian noise margin. Who "
            "earns more has negative regret: HP-Conformal learns the noise's own quantile (a promise for exchangeable rounds); "
            "On-Expectation keeps no margin and breaks the promise.</small></p>",
            claim(
                "Regret is Õ(d√T) (Theorem 2).",
                f"Theorem 2 with its constants written out is {'never exceeded' if holds else 'EXCEEDED'}; it is at least "
                f"{ratio:.0f} times the measured regret. The slope of HP-UCB's regret in log-log axes over the last half "
                f"of the rounds is {order}; √T has 0.5, and a learner still in its first phase has up to 1.",
            ),
            claim(
                "Optimism in reward is how the algorithm explores.",
                "In this model it need not: R/g has the same noise at any dose, so HP-Probe learns the same from "
                f"micro-doses and has {gain:.1f} times less regret at d = {dims[-1]:g} under the same promise.",
            ),
            footer(provenance(folder, "synthetic")),
        ]
    )


def epsilon(folder: Path) -> str:
    rows, times = read_rows(folder / "epsilon.csv"), read_rows(folder / "epsilon_time.csv")
    regret = {(row["dim"], row["learn_from"], row["epsilon"]): row["regret"] for row in rows}
    took = {(row["dim"], row["learn_from"], row["epsilon"]): row["us_per_round"] for row in times}
    dims, timed = sorted({key[0] for key in regret}), sorted({key[0] for key in took})
    lines = [
        [
            f"{reading}, ε = {epsilon:g}",
            *(f"{regret[dim, reading, epsilon]:.0f}" for dim in dims),
            *(f"{took[dim, reading, epsilon]:.0f}" for dim in timed),
        ]
        for reading in ("all", "exploring")
        for epsilon in sorted({key[2] for key in regret})
    ]
    heads = [*(f"regret, d = {dim:g}" for dim in dims), *(f"µs a round, d = {dim:g}" for dim in timed)]
    wide = timed[-1]
    full = took[wide, "all", 0.0]
    ratios = "; ".join(
        f"d = {dim:g}: {regret[dim, 'all', 0.5] / regret[dim, 'all', 0.0]:.2f} times HP-UCB's when it learns from all "
        f"rounds, {regret[dim, 'exploring', 0.5] / regret[dim, 'all', 0.0]:.2f} times when from exploring rounds"
        for dim in dims
    )
    return "\n".join(
        [
            "<h2>ε-greedy</h2>",
            image(folder / "epsilon.png", "Regret and time a round against ε"),
            html_table(["learns from", *heads], lines),
            claim(
                "ε = 0.5 achieves comparable regret.",
                f"Ours, at ε = 0.5 (ε = 0, learning from all rounds, is HP-UCB): {ratios}. Where HP-UCB has hardly left the "
                "first-round dose every ε looks alike; where learning pays, exploring with that dose costs its share.",
            ),
            claim(
                "ε-greedy has a lower computational cost, especially in higher dimensions.",
                f"If every decision factors Σ anew: at d = {wide:g}, ε = 0.5 is {full / took[wide, 'all', 0.5]:.1f} times "
                f"faster than HP-UCB when it learns from all rounds, {full / took[wide, 'exploring', 0.5]:.1f} times when "
                "from exploring rounds. With rank-one updates, as in this project, a decision needs no factor and there "
                "is nothing to save.",
            ),
            footer(provenance(folder, "epsilon")),
        ]
    )


def _slope(rows: list[dict[str, Any]], dim: float) -> float:
    curve = [row for row in rows if row["dim"] == dim and row["series"] == "HP-UCB"]
    half, end = curve[max(len(curve) // 2 - 1, 0)], curve[-1]
    if half["round"] == end["round"] or min(half["regret"], end["regret"]) <= 0:
        return math.nan
    return math.log(end["regret"] / half["regret"]) / math.log(end["round"] / half["round"])
