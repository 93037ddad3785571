import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binomtest

from safedial.bounds import monitor


def test_the_evidence_is_a_martingale_at_the_guaranteed_rate():
    risk = np.array([0.001, 0.05, 0.5])
    before = monitor.init((3,))
    hit, miss = monitor.update(before, np.ones(3), risk), monitor.update(before, np.zeros(3), risk)
    expected = risk * monitor.evidence(hit) + (1 - risk) * monitor.evidence(miss)
    np.testing.assert_allclose(expected, 1.0, atol=1e-14)


def test_false_alarms_stay_at_their_level_at_any_time(count):
    runs, rounds, risk = count(2000, 20_000), 2000, 0.05
    rng = np.random.default_rng(1)
    state, alarmed = monitor.init((runs,)), np.zeros(runs, bool)
    for _ in range(rounds):
        state = monitor.update(state, rng.random(runs) < risk, risk)
        alarmed |= monitor.alarm(state, 0.05)
    # False-alarm level of this test: 1e-6.
    assert binomtest(int(alarmed.sum()), runs, 0.05, alternative="greater").pvalue > 1e-6
    np.testing.assert_array_equal(state.rounds, rounds)


def test_a_rate_three_times_the_guarantee_is_caught_soon():
    runs, risk = 500, 0.05
    rng = np.random.default_rng(2)
    state, caught = monitor.init((runs,)), np.full(runs, 10_000)
    for number in range(1, 1001):
        state = monitor.update(state, rng.random(runs) < 3 * risk, risk)
        caught = np.where((caught > 1000) & monitor.alarm(state, 0.01), number, caught)
    assert np.median(caught) <= 500


def test_overwhelming_evidence_does_not_overflow():
    state = monitor.init()
    for _ in range(2000):
        state = monitor.update(state, violated=True, risk=1e-6)
    assert np.isfinite(monitor.evidence(state))
    assert state.violations == 2000


def test_jax_gives_the_same_evidence():
    here, there = monitor.init((2,)), monitor.init((2,), xp=jnp)
    for violated in ([True, False], [False, False], [True, True]):
        here = monitor.update(here, np.array(violated), 0.1)
        there = monitor.update(there, jnp.array(violated), 0.1)
    assert np.asarray(monitor.evidence(there)) == pytest.approx(monitor.evidence(here))
