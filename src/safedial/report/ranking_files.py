"""`safedial choose --out`: tables, a picture and the first policy's spec file."""

from __future__ import annotations

from pathlib import Path

from safedial.choosing import Ranking
from safedial.choosing.questions import MEANING
from safedial.io import output_folder, write_json, write_rows
from safedial.plots.ranking_picture import draw_ranking
from safedial.specfile import save_spec

UNITS = """\
Your dial and your features are not stated yet: settings are shares of the dial, contexts plain numbers. Add, say:
  [dial]
  high = 20
  unit = "mg"
"""
FEATURES = """\
  [features]                 (instead of [world]; contexts are then given by name)
  names = ["age", "weight"]
  center = [50, 70]
  scale = [30, 40]
"""


def _head(found: Ranking) -> str:
    """The comment above a spec file: the promise, what it rests on, what only a pilot speaks for, and what to add."""
    first = found.best
    rests = "; ".join(MEANING[name] for name in first.rests)
    lines = [f"Proposed by safedial choose. {found.words()[0]}", f"It promises {first.promises}, if: {rests}."]
    return "\n".join([*lines, *found.taken(), UNITS + ("" if found.spec_file().features else FEATURES)])


def write_ranking(folder: str | Path, found: Ranking) -> list[Path]:
    """Write choose.json, and if a policy is offered choose.csv, choose_curves.csv, choose.png and spec.toml."""
    into = output_folder(folder)
    paths = [write_json(into / "choose.json", found.to_dict())]
    if found.offers:
        rows = [row | {"rests_on": "; ".join(row["rests_on"])} for row in found.table]
        paths.append(write_rows(into / "choose.csv", rows))
        paths.append(save_spec(found.spec_file(), into / "spec.toml", notes={"": _head(found)}))
    if found.curves:
        paths.append(write_rows(into / "choose_curves.csv", found.curves))
        paths.append(draw_ranking(into))
    return paths
