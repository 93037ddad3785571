"""Rounds to replay: contexts of several kinds, and outcomes that make decisions differ from round to round."""

from __future__ import annotations

import numpy as np

KINDS = ("random", "ill_conditioned", "duplicated")
"""Ill-conditioned: the matrix of contexts has condition number near 1e8."""


def make_rounds(kind, count, dim, *, seed=0, noise=0.05):
    """(contexts, rewards, costs): norms at most 1; the reward's sign varies, so that some rounds are refused."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((count, dim))
    if kind == "ill_conditioned":
        contexts = contexts * np.logspace(0, -8, dim)
    if kind == "duplicated":
        contexts = contexts[rng.integers(0, max(1, count // 8), count)]
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True) * (1.0 + 1e-9)
    truth = rng.standard_normal((2, dim)) / np.sqrt(dim)
    rewards, costs = truth @ contexts.T + noise * rng.standard_normal((2, count))
    return contexts, rewards, costs


def assert_clear_of_the_switch(outcome, margin=1e-9):
    """No decision hangs on rounding: the reward index is far from 0, or exactly 0 since nothing is learned yet."""
    index = np.abs(outcome.reward_index)
    assert index[index > 0.0].min(initial=1.0) > margin
