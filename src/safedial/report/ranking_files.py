"""`safedial choose --out`: tables, a picture and the first policy's spec file."""

from __future__ import annotations

from pathlib import Path

from safedial.choosing import Ranking
from safedial.choosing.questions import MEANING
from safedial.io import output_folder, read_rows, write_json, write_rows
from safedial.plots.plan_picture import SHADES
from safedial.plots.style import band, columns, legend_below, new_figure, save, title
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
    """The comment above a spec file: the promise, its assumptions, which of them only a pilot supports, and what to add."""
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


def draw_ranking(folder: str | Path) -> Path:
    """`choose.png` from `choose_curves.csv`: expected shares with their 95 % intervals."""
    curves = read_rows(Path(folder) / "choose_curves.csv")
    figure, (panel,) = new_figure(height=2.6)
    names = list(dict.fromkeys(row["policy"] for row in curves))
    for number, name in enumerate(names):
        colour, dashes = SHADES[(number + 1) % len(SHADES)], ("-", "--", ":")[number // len(SHADES)]
        rows = [row for row in curves if row["policy"] == name]
        rounds, *shares = columns(rows, ("round", "share", "share_low", "share_high"))
        band(panel, rounds, shares, colour=colour, look={"linewidth": 1.1, "linestyle": dashes, "label": name})
    panel.set_ylim(0.0, 1.02)
    panel.set_xlabel("round")
    title(panel, "share of an all-knowing policy's reward, so far")
    legend_below(figure, *panel.get_legend_handles_labels(), ncols=2, fontsize=6.5)
    return save(figure, Path(folder) / "choose.png")
