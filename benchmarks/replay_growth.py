"""`python -m benchmarks.replay_growth --out docs`: µs a round against d, by engine, and against the block size.

Writes `replay_growth.json`, then draws `replay_growth.png` from it. A few minutes on two cores. Each number is the best
of a few passes, since one busy core stalls every threaded product.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay_speed import bench_replay, drawn_rounds, fastest_run
from safedial.simulation.replay import best_block
from safedial.tools.pages import new_figure, save

ROUNDS = {64: 16384, 128: 16384, 256: 8192, 512: 8192, 1024: 4096, 2048: 3072}
BLOCKS = {128: (32, 64, 96, 128), 512: (32, 64, 96, 128, 192, 256), 2048: (64, 128, 192, 256, 384, 512)}

ENGINES = {
    "reference": ("fresh Cholesky", "#D55E00", "s"),
    "rank_one": ("rank one", "#0072B2", "o"),
    "blocked": ("blocked", "#009E73", "v"),
}
FITTED = 512
"""Slopes are fitted from this dimension on, where the matrix, not Python, takes most of the time."""


def fastest(reports: list[dict]) -> dict:
    """One report with the least time and the highest rate that any pass saw."""
    best = dict(reports[0])
    for name in best:
        if name.endswith("_us_per_round"):
            best[name] = min(report[name] for report in reports)
        if name.endswith("gflops"):
            best[name] = max(report[name] for report in reports)
    return best


def block_times(dim: int, *, rounds: int, blocks: tuple[int, ...]) -> dict[int, float]:
    """Microseconds per round of `blocked` for each block size, interleaved, the best of three."""
    given = drawn_rounds(dim, rounds, "float64")
    times = {block: float("inf") for block in blocks}
    for _ in range(3):
        for block in blocks:
            outcome = fastest_run("blocked", given, "float64", {"block": block}, repeats=1)
            times[block] = min(times[block], outcome.seconds / rounds * 1e6)
    return times


def slope(dims: Any, times: Any) -> float:
    """The exponent p of t ∝ dᵖ, by least squares in logarithms.

    >>> slope([100, 200, 400], [1.0, 4.0, 16.0])
    2.0
    """
    return round(float(np.polyfit(np.log(dims), np.log(times), 1)[0]), 6)


def draw_growth(data: Path, path: Path) -> Path:
    """The picture of the written data: microseconds per round against the dimension, by engine, with fitted slopes."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    parser.add_argument("--passes", type=int, default=3, help="the best of so many passes over all sizes")
    options = parser.parse_args()
    passes = []
    for _ in range(options.passes):
        passes.append([bench_replay(dim, rounds=rounds) for dim, rounds in ROUNDS.items()])
        for row in passes[-1]:
            print(
                {name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()},
                flush=True,
            )
    growth = [fastest(list(reports)) for reports in zip(*passes, strict=True)]
    blocks = []
    for dim, sizes in BLOCKS.items():
        times = block_times(dim, rounds=ROUNDS[dim], blocks=sizes)
        blocks.append({"dim": dim, "model": best_block(dim), "us_per_round": times})
        print(dim, "model:", best_block(dim), {size: round(time, 1) for size, time in times.items()}, flush=True)
    data = options.out / "replay_growth.json"
    content = {"python": platform.python_version(), "passes": options.passes, "growth": growth, "blocks": blocks}
    data.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(draw_growth(data, options.out / "replay_growth.png"))


if __name__ == "__main__":
    main()
