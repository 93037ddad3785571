"""One self-contained HTML page: the paper's claims point by point, ours beside the paper's, and why they differ.

It is made from the written data alone and says what is not there yet. Pictures are inline; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from safedial.errors import require
from safedial.io import write_text
from safedial.report.extensions import battery, closed_loop, conformal
from safedial.report.html import document
from safedial.report.nonlinear import nonlinear
from safedial.report.paper import epsilon, synthetic, table1
from safedial.report.toolkit import toolkit

SECTIONS: dict[str, Callable[[Path], str]] = {
    "table1.csv": table1,
    "synthetic.csv": synthetic,
    "epsilon.csv": epsilon,
    "conformal.csv": conformal,
    "nonlinear.csv": nonlinear,
    "toolkit_shares.csv": toolkit,
    "battery.csv": battery,
    "closed_loop.csv": closed_loop,
}
"""File that must be there → the section made from it."""


def write_report(folder: str | Path) -> Path:
    """`report.html` in `folder`, from whatever results are there."""
    place = Path(folder)
    parts = [section(place) for file, section in SECTIONS.items() if (place / file).exists()]
    require(parts, "out", str(folder), "holds no results yet", "run safedial reproduce table1 first")
    absent = [file.removesuffix(".csv").removesuffix("_shares") for file in SECTIONS if not (place / file).exists()]
    if absent:
        parts.append(f"<p><small>Not run yet: {', '.join(absent)} (safedial reproduce all).</small></p>")
    body = "\n".join(
        [
            "<h1>Safety by Design, reproduced</h1>",
            "<p>Ours beside the figures of Dragazis and Pacchiano, <em>Safety by Design: Realized-Cost Constraints for "
            "Contextual Bandits with Continuous Actions</em>. Which settings are the paper's and which are inferred: "
            "docs/reproduction.md.</p>",
            *parts,
        ]
    )
    return write_text(place / "report.html", document("Safety by Design, reproduced", body))
