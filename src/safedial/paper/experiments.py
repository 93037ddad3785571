"""The paper's experiments. A new one is a file here and a line in `EXPERIMENTS`.

The report is one self-contained HTML page: the paper's claims point by point, our results beside them, and why they
differ. It is made only from the written data and lists what is missing. Pictures are inline; the page loads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from safedial.errors import require
from safedial.io import write_text
from safedial.paper import algorithm2, battery_experiment, epsilon, synthetic, table1, theorems
from safedial.paper.experiment import Experiment
from safedial.tools.pages import document, footer, read_provenance

EXPERIMENTS: list[Experiment] = [
    table1.EXPERIMENT,
    synthetic.EXPERIMENT,
    theorems.EXPERIMENT,
    epsilon.EXPERIMENT,
    algorithm2.EXPERIMENT,
    battery_experiment.EXPERIMENT,
]
"""In the order of the report."""


# --- One self-contained HTML page


def write_report(folder: str | Path, experiments: Sequence[Experiment] = EXPERIMENTS) -> Path:
    """Write `report.html` in `folder`, from the results in it."""
    place = Path(folder)
    parts = []
    for each in experiments:
        if each.has_run(place):
            parts += [*each.section(place), footer(read_provenance(place, each.name))]
    require(parts, "out", str(folder), "holds no results yet", "run safedial reproduce table1 first")
    absent = [each.name for each in experiments if not each.has_run(place)]
    if absent:
        parts.append(f"<p><small>Not run yet: {', '.join(absent)} (safedial reproduce all).</small></p>")
    body = [
        "<h1>Safety by Design, reproduced</h1>",
        "<p>Our results beside those of Dragazis and Pacchiano, <em>Safety by Design: Realized-Cost Constraints for "
        "Contextual Bandits with Continuous Actions</em>. Which settings are the paper's and which are inferred: "
        "docs/reproduction.md.</p>",
        *parts,
    ]
    return write_text(place / "report.html", document("Safety by Design, reproduced", body))
