"""`python benchmarks/replay_growth.py --out docs`: µs a round against d, by engine, and against the block size.

Writes `replay_growth.json`, then draws `replay_growth.png` from it. A few minutes on two cores. Each number is the best
of a few passes, since one busy core stalls every threaded product.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

from safedial.bench.replay_speed import bench_replay, block_times
from safedial.plots.replay_picture import draw_growth
from safedial.replay_engines.block_size import best_block

ROUNDS = {64: 16384, 128: 16384, 256: 8192, 512: 8192, 1024: 4096, 2048: 3072}
BLOCKS = {128: (32, 64, 96, 128), 512: (32, 64, 96, 128, 192, 256), 2048: (64, 128, 192, 256, 384, 512)}


def fastest(reports: list[dict]) -> dict:
    """One report with the least time and the highest rate that any pass saw."""
    best = dict(reports[0])
    for name in best:
        if name.endswith("_us_per_round"):
            best[name] = min(report[name] for report in reports)
        if name.endswith("gflops"):
            best[name] = max(report[name] for report in reports)
    return best


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
        times = block_times(dim, rounds=ROUNDS[dim], blocks=list(sizes))
        blocks.append({"dim": dim, "model": best_block(dim), "us_per_round": times})
        print(dim, "model:", best_block(dim), {size: round(time, 1) for size, time in times.items()}, flush=True)
    data = options.out / "replay_growth.json"
    content = {"python": platform.python_version(), "passes": options.passes, "growth": growth, "blocks": blocks}
    data.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(draw_growth(data, options.out / "replay_growth.png"))


if __name__ == "__main__":
    main()
