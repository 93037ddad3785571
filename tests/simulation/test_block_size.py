"""The block size follows the model: it grows like the root of the dimension, within its limits."""

import pytest

from safedial.simulation.replay import LARGEST, SMALLEST, STEP, best_block


def test_blocks_grow_like_the_root_of_the_dimension():
    sizes = [best_block(dim) for dim in (1, 64, 256, 1024, 4096, 16384, 10**7)]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (SMALLEST, LARGEST)
    assert all(size % STEP == 0 for size in sizes)
    assert best_block(16384) / best_block(1024) == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("dim", [256, 1024, 4096])
def test_no_other_block_is_cheaper_in_the_model(dim):
    def cost(block, rate=1e11, move=7e-10):
        return 4 * dim * block / rate + move * dim**2 / block

    least = min(cost(block) for block in range(1, 2000))
    assert cost(best_block(dim)) <= 1.05 * least
