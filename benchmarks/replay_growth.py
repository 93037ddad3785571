"""`python benchmarks/replay_growth.py --out docs`: µs a round against d, by engine, and against the block size.

Writes `replay_growth.json`, then draws `replay_growth.png` from it. A few minutes on two cores; run it on a quiet
machine, since a busy core stalls every threaded product.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

from safedial.bench.replay import bench_replay, block_times
from safedial.plots.replay import draw_growth
from safedial.replay.block_size import best_block

ROUNDS = {64: 16384, 128: 16384, 256: 8192, 512: 8192, 1024: 4096, 2048: 3072}
BLOCKS = {128: (32, 64, 96, 128), 512: (32, 64, 96, 128, 192, 256), 2048: (64, 128, 192, 256, 384, 512)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    folder = parser.parse_args().out
    growth = []
    for dim, rounds in ROUNDS.items():
        growth.append(bench_replay(dim, rounds=rounds))
        print({name: round(value, 1) if isinstance(value, float) else value for name, value in growth[-1].items()})
    blocks = []
    for dim, sizes in BLOCKS.items():
        times = block_times(dim, rounds=ROUNDS[dim], blocks=list(sizes))
        blocks.append({"dim": dim, "model": best_block(dim), "us_per_round": times})
        print(dim, "model:", best_block(dim), {size: round(time, 1) for size, time in times.items()})
    data = folder / "replay_growth.json"
    content = {"python": platform.python_version(), "processor": platform.machine(), "growth": growth, "blocks": blocks}
    data.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(draw_growth(data, folder / "replay_growth.png"))


if __name__ == "__main__":
    main()
