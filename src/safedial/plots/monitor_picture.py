"""The picture of a watched log: evidence over time, and violations beside what is allowed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from safedial.diagnostics.marginal_watch import ExchangeabilityWatch
from safedial.diagnostics.promise_watch import Watch
from safedial.plots.style import COLOURS, new_figure, save, title

LARGEST = 1e12


def draw_monitor(watch: Watch | ExchangeabilityWatch, path: Path) -> Path:
    """Two panels of one log, as PNG."""
    marginal = isinstance(watch, ExchangeabilityWatch)
    figure, (above, below) = new_figure(columns=2, height=2.5)
    start = watch.counted[0] - 1.0
    rounds = np.concatenate([[start], watch.rounds])
    above.step(
        rounds, np.minimum(np.concatenate([[1.0], watch.evidence]), LARGEST), where="post", color=COLOURS["hp_ucb"]
    )
    above.axhline(1.0 / watch.level, color="grey", linestyle="--", linewidth=1)
    above.text(start, 1.3 / watch.level, f"alarm at {1.0 / watch.level:g}", fontsize=7, color="0.3", va="bottom")
    above.set_yscale("log")
    low, high = above.get_ylim()
    above.set_ylim(min(low, 0.3), max(high, 8.0 / watch.level))
    title(
        above,
        f"evidence that {watch.against}"
        if isinstance(watch, ExchangeabilityWatch)
        else "evidence that the promise is broken",
    )
    rounds = np.concatenate([[start], watch.counted])
    broken, allowed = (np.cumsum(np.concatenate([[0.0], each])) for each in (watch.violated, watch.allowed))
    below.step(rounds, broken, where="post", color=COLOURS["on_expectation"])
    below.plot(rounds, allowed, color="grey", linestyle="--", linewidth=1)
    word = "promised on average " if marginal else "allowed "
    below.text(rounds[-1], allowed[-1], word, fontsize=7, color="0.3", ha="right", va="bottom")
    title(below, "costs above the threshold, in all")
    for panel in (above, below):
        panel.set_xlabel("round")
        if watch.alarm_round is not None:
            panel.axvline(watch.alarm_round, color=COLOURS["on_expectation"], linestyle=":", linewidth=1)
    if watch.alarm_round is not None:
        above.text(watch.alarm_round, 0.35, f" alarm, round {watch.alarm_round}", fontsize=7, color="#D55E00")
    return save(figure, path)
