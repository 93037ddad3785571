"""Microseconds per round against the dimension, by engine, with fitted slopes; drawn only from written data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from safedial.plots.style import new_figure, save

ENGINES = {
    "reference": ("fresh Cholesky", "#D55E00", "s"),
    "rank_one": ("rank one", "#0072B2", "o"),
    "blocked": ("blocked", "#009E73", "v"),
}
FITTED = 512
"""Slopes are fitted from this dimension on, where the matrix, not Python, takes most of the time."""


def slope(dims: Any, times: Any) -> float:
    """The exponent p of t ∝ dᵖ, by least squares in logarithms.

    >>> slope([100, 200, 400], [1.0, 4.0, 16.0])
    2.0
    """
    return round(float(np.polyfit(np.log(dims), np.log(times), 1)[0]), 6)


def draw_growth(data: Path, path: Path) -> Path:
    """The picture of `benchmarks/replay_growth.py`'s data, a JSON file with a list of `bench_replay` reports."""
    rows = json.loads(data.read_text(encoding="utf-8"))["growth"]
    dims = np.array([row["dim"] for row in rows], dtype=float)
    figure, (axes,) = new_figure(height=2.8)
    for name, (label, colour, marker) in ENGINES.items():
        times = np.array([row[f"{name}_us_per_round"] for row in rows])
        late = dims >= FITTED
        power = slope(dims[late], times[late])
        axes.loglog(
            dims, times, color=colour, marker=marker, markersize=4, linewidth=1, label=f"{label}, $d^{{{power:.1f}}}$"
        )
    floor = 4e-3 * dims**2 / np.array([row["gemm_gflops"] for row in rows])
    axes.loglog(dims, floor, color="#999999", linestyle=":", linewidth=1, label="4d² at the GEMM rate")
    axes.set(xlabel="dimension d", ylabel="µs per round")
    axes.set_xticks(dims, [f"{dim:.0f}" for dim in dims], minor=False)
    axes.minorticks_off()
    axes.legend(fontsize=6, frameon=False)
    return save(figure, path)
