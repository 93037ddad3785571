"""Tighter radii and other noise margins: what they earn, and what a broken assumption costs."""

from __future__ import annotations

from pathlib import Path

from safedial.io import read_rows
from safedial.report.html import footer, html_table, image, provenance


def toolkit(folder: Path) -> str:
    shares, lost, broken = (read_rows(folder / f"toolkit_{part}.csv") for part in ("shares", "overstated", "broken"))
    settings = provenance(folder, "toolkit")["settings"]
    lines = [
        [row["series"], f"{row['reward_share']:.1%}", f"{row['violation_rate']:.3%}", f"{row['promised_risk']:.0%}"]
        for row in shares
    ]
    told = "; ".join(f"{row['radius']} {row['loss']:.0%}" for row in lost)
    over = [
        f"{row['margin']} under {row['noise']} noise ({row['full_dose_violation_rate']:.1%} of full doses)"
        for row in broken
        if not row["holds"] and row["ci_low"] > row["promised_risk"]
    ]
    worst = "; ".join(over) or "none in these rounds"
    return "\n".join(
        [
            "<h2>The same promise with less caution: radii and noise margins</h2>",
            f"<p>HP-Probe at d = 10, unit noise, τ = 0.5, δ = δ′ = 0.01; {len(settings['seeds'])} seed(s) of {settings['rounds']:.0f} rounds; "
            "reward as a share of the sub-Gaussian clairvoyant's. Each margin but the sub-Gaussian one rests on an assumption of its own "
            f"(docs/choosing.md). Told a κ five times too large in the radius alone, the reward lost is: {told}. "
            f"Where a margin's assumption is broken nothing is promised; above the risk it would have promised: {worst}.</p>",
            image(
                folder / "toolkit.png",
                "Reward by radius and margin, an overstated κ, the learned quantile, broken assumptions",
            ),
            html_table(["radius, margin", "reward share", "violations", "risk"], lines),
            footer(provenance(folder, "toolkit")),
        ]
    )
