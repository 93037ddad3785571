"""How many rounds to put in a block: the cost model that docs/replay.md derives and confirms.

A round of a block of B costs, with R the machine's GEMM rate and M the seconds it takes to move one element of Σ⁻¹
through the two d×d products,

    t(B) = c + 3d²/R + 4dB/R + M·d²/B

The first two terms do not depend on B. The third is the block's own work (G, the triangular solve); the fourth is Σ⁻¹
itself, read by one product and updated by the other once per block. The sum is least at

    B = √(MR/4 · d)

MR, the flops that a machine does while it moves one element, is near 70 on the machines we measured; under the root it
matters little, and the minimum is flat.
"""

from __future__ import annotations

BALANCE = 70.0
"""M·R of the model: flops for each element moved."""

SMALLEST, LARGEST, STEP = 32, 1024, 32


def best_block(dim: int) -> int:
    """The model's block for contexts of this dimension, a multiple of 32.

    >>> [best_block(dim) for dim in (10, 512, 2048)]
    [32, 96, 192]
    """
    ideal = (BALANCE / 4.0 * dim) ** 0.5
    return min(max(STEP * round(ideal / STEP), SMALLEST), LARGEST)
