"""A rebuild gives the inverse of the accumulated Σ, in place; where Σ is singular it changes nothing."""

import tracemalloc

import numpy as np
import pytest

from safedial.policies.estimates import Sums


def symmetric(lower):
    return np.tril(lower) + np.tril(lower, -1).T


def taught(dim, samples=10):
    rng = np.random.default_rng(dim)
    made = Sums(dim, 0.5)
    for _ in range(samples):
        context = rng.standard_normal(dim)
        context /= np.linalg.norm(context)
        made.add(context, 1.0, 0.1, 0.2, 1.0)
    return made


@pytest.mark.parametrize("dim", [1, 2, 255, 256, 257])
def test_a_rebuild_inverts_what_was_accumulated(dim):
    made = taught(dim)
    gram = made.gram.copy()
    made.rebuild()
    np.testing.assert_allclose(symmetric(made.inverse) @ symmetric(gram), np.eye(dim), atol=1e-12)
    np.testing.assert_array_equal(made.gram, gram)
    assert made.inverse.flags.f_contiguous


def test_a_singular_gram_leaves_the_inverse_as_it_was():
    made = taught(5)
    made.gram[3, 3] = -1.0
    before = np.tril(made.inverse).copy()
    made.rebuild()
    np.testing.assert_array_equal(np.tril(made.inverse), before)


def test_a_rebuild_holds_no_third_matrix():
    made = taught(768, samples=1)
    tracemalloc.start()
    try:
        made.rebuild()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * made.gram.nbytes
