"""The picture of `safedial choose`: the share of an all-knowing policy's reward up to each round, by policy."""

from __future__ import annotations

from pathlib import Path

from safedial.io import read_rows
from safedial.plots.plan_picture import SHADES
from safedial.plots.style import columns, legend_below, new_figure, save, title


def draw_ranking(folder: str | Path) -> Path:
    """`choose.png` from `choose_curves.csv`: expected shares with their 95 % intervals."""
    curves = read_rows(Path(folder) / "choose_curves.csv")
    figure, (panel,) = new_figure(height=2.6)
    names = list(dict.fromkeys(row["policy"] for row in curves))
    for number, name in enumerate(names):
        colour, dashes = SHADES[(number + 1) % len(SHADES)], ("-", "--", ":")[number // len(SHADES)]
        rows = [row for row in curves if row["policy"] == name]
        rounds, share, low, high = columns(rows, ("round", "share", "share_low", "share_high"))
        panel.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.plot(rounds, share, color=colour, linewidth=1.1, linestyle=dashes, label=name)
    panel.set_ylim(0.0, 1.02)
    panel.set_xlabel("round")
    title(panel, "share of an all-knowing policy's reward, so far")
    legend_below(figure, *panel.get_legend_handles_labels(), ncols=2, fontsize=6.5)
    return save(figure, Path(folder) / "choose.png")
