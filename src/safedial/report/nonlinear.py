"""Algorithm 2 in worlds that are not linear."""

from __future__ import annotations

from pathlib import Path

from safedial.experiments.nonlinear import finals
from safedial.io import read_rows
from safedial.report.html import footer, html_table, image, provenance


def nonlinear(folder: Path) -> str:
    rows = finals(read_rows(folder / "nonlinear.csv"))
    lines = [
        [
            row["world"],
            row["series"],
            f"{row['reward_share']:.1%}",
            f"{row['violation_rate']:.3%}",
            f"{row['risk']:.0%}",
            "yes" if row["promise_holds"] else "no",
        ]
        for row in rows
    ]
    return "\n".join(
        [
            "<h2>Algorithm 2: rewards and costs that are not linear</h2>",
            f"<p>The paper proves Theorem 3 and shows no experiment. {rows[0]['seeds']:.0f} seed(s) of {rows[0]['rounds']:.0f} rounds, τ = 0.5. "
            "Each non-linear policy learns in the world's own class; the linear learners do not know that the world is not linear, "
            "so nothing is promised for them: where they look better, they break the risk, and where they keep it, they earn less "
            "(docs/nonlinear.md). Theorem 3's bound lies above what can be lost at all in this many rounds.</p>",
            image(folder / "nonlinear.png", "Regret in five worlds that are not linear, and reward against violations"),
            html_table(["world", "policy", "reward share", "violations", "risk", "promise holds"], lines),
            footer(provenance(folder, "nonlinear")),
        ]
    )
