"""`python -m benchmarks.shield_picture --out docs`: draws `shield.png`, the picture of docs/shield.md.

Left, two rounds: what each was given, its true curve, which nobody knows, and the bracket's bound, which crosses the
threshold at the setting that the round tolerates at least. Right, the latest 39 rounds by such a tolerated scale, and
the largest scale at which at most one of them would have exceeded (δ = .05, n = 39, m = 2).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from safedial import growth
from safedial.model.costs import Cost
from safedial.tools.pages import COLOURS, new_figure, save, title

LIMIT = Cost(threshold=20.0, growth=growth.relative(0.7, 1.4, floor=0.5))
KEPT, EXCEEDED = COLOURS["hp_ucb"], COLOURS["on_expectation"]


def one_round(panel: Any, given: float, power: float, tolerated: float, colour: str) -> None:
    """A round that would have reached 20 mg/l at `tolerated`, with an elasticity that only this script knows."""
    doses = np.linspace(0.15, 1.5, 400)
    cost = 20.0 * (given / tolerated) ** power
    panel.plot(doses, 20.0 * (doses / tolerated) ** power, ":", color=colour, linewidth=1.2)
    panel.plot(doses, LIMIT.growth.bound(cost, given, doses, threshold=20.0), color=colour, linewidth=1.4)
    panel.plot(given, cost, "o", color=colour, markersize=5)
    least = float(LIMIT.tolerated(cost, given))
    panel.plot([least, least], [0.0, 20.0], "--", color=colour, linewidth=0.8)
    panel.plot(least, 20.0, "s", color=colour, markersize=4)


def rounds(panel: Any) -> None:
    one_round(panel, 0.5, 1.0, 1.15, KEPT)
    one_round(panel, 0.9, 1.0, 0.65, EXCEEDED)
    panel.axhline(20.0, color="black", linewidth=0.8)
    panel.set(xlim=(0.2, 1.35), ylim=(0.0, 32.0), xlabel="dose, as a multiple of the protocol's", ylabel="trough, mg/l")
    style: dict[str, Any] = {
        "textcoords": "offset points",
        "fontsize": 7,
        "bbox": {"fc": "white", "ec": "none", "pad": 0.5},
    }
    panel.annotate("given:\nkept", (0.5, 8.7), xytext=(-26, 4), color=KEPT, **style)
    panel.annotate("tolerated\nat least", (0.905, 2.0), xytext=(3, 0), color=KEPT, **style)
    panel.annotate("tolerated\nat least", (0.565, 2.0), xytext=(-36, 0), color=EXCEEDED, **style)
    panel.annotate("given:\nexceeded", (0.9, 27.7), xytext=(-42, 3), color=EXCEEDED, **style)
    panel.annotate("threshold", (1.35, 20.0), xytext=(-36, -9), **style)
    title(panel, "Two rounds: true curve (dotted), bound (solid)")


def count(panel: Any) -> None:
    scales = np.random.default_rng(3).lognormal(0.35, 0.25, 39)
    allowed = float(np.sort(scales)[1])
    place, kept = np.arange(1, 40), scales >= allowed
    panel.plot(place[kept], scales[kept], "s", color=KEPT, markersize=3.5)
    panel.plot(place[~kept], scales[~kept], "s", color=EXCEEDED, markersize=3.5)
    panel.axhline(allowed, color="black", linewidth=1.0)
    panel.annotate(
        f"play {allowed:.2f} times the protocol's dose:\n{np.count_nonzero(~kept)} of 39 would have exceeded",
        (1.0, 0.25),
        fontsize=7,
    )
    panel.set(xlabel="the latest 39 rounds", ylabel="tolerated at least, × protocol", ylim=(0.0, 2.6))
    title(panel, "The count: at most one of 39 may exceed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    figure, (left, right) = new_figure(columns=2, height=2.7)
    rounds(left)
    count(right)
    print(save(figure, parser.parse_args().out / "shield.png"))


if __name__ == "__main__":
    main()
