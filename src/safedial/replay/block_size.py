"""How many rounds make a block: the cost model of docs/replay.md."""

from __future__ import annotations

SMALLEST, LARGEST = 32, 512


def best_block(dim: int) -> int:
    return max(SMALLEST, min(LARGEST, 32 * round(2.83 * dim**0.5 / 32)))
