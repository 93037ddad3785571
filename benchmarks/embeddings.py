"""`python -m benchmarks.embeddings DATA [COUNT]`: Gemma 3 270M as run here, beside the precomputed vectors of DATA.

Needs the text extra. For COUNT texts of each file, spread evenly: the largest difference, and the smallest cosine
before and after centring with the file's own mean. The files hold float16, whose rounding alone is up to 0.016 at 50.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from safedial.paper.battery_data import load_steps
from safedial.paper.embedders import PRECOMPUTED, context_texts, find_targets, open_embedder, precomputed


def cosines(one, other):
    return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


def main(data: Path, count: int) -> None:
    embedder = open_embedder("gemma3-270m")
    embedder.embed(["the model is loaded now"])
    print(f"gemma3-270m, {count} texts of each file")
    for source in ("rw26", "b"):
        steps = load_steps(data, source)
        stored, targets = precomputed(data / PRECOMPUTED[source], steps, find_targets(steps))
        chosen = np.linspace(0, len(stored) - 1, count).round().astype(int)
        kept = type(targets)(targets.rows[chosen], targets.history[chosen])
        texts, started = context_texts(steps, kept), time.perf_counter()
        parts = [embedder.embed(texts[start : start + 16]) for start in range(0, count, 16)]
        rate = count / (time.perf_counter() - started)
        ours, theirs, mean = np.concatenate(parts).astype(float), stored[chosen], stored.mean(axis=0)
        apart, largest = np.abs(ours - theirs).max(), np.abs(theirs).max()
        plain, centred = cosines(ours, theirs).min(), cosines(ours - mean, theirs - mean).min()
        print(
            f"  {source:5} largest difference {apart:.4f} (largest value {largest:.1f}); smallest cosine {plain:.8f},"
        )
        print(f"        centred {centred:.6f}; {rate:.2f} texts a second")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 32)
