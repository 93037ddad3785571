"""The interval of an evaluation covers the truth, on logs that another policy made."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from safedial import SafetySpec, evaluate
from safedial.rounds.log_file import Log
from safedial.tools.evaluation import rate_interval
from tests.conftest import FULL

LOGS = 100 if FULL else 6
FALSE_ALARM = 1e-3
TRUTH = np.array([0.5, 0.4, 0.3])
SPEC = SafetySpec(threshold=0.4, total_risk=0.2, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1)


def logged(seed, rounds=200):
    """A log at doses that somebody chose at random, and its contexts."""
    rng = np.random.default_rng(seed)
    context = np.abs(rng.standard_normal((rounds, 3)))
    context /= np.maximum(1.0, np.linalg.norm(context, axis=1, keepdims=True))
    dose = rng.uniform(0.05, 0.6, rounds)
    reward, cost = dose * (context @ TRUTH + 0.3 * rng.standard_normal((2, rounds)))
    nothing = np.zeros(rounds)
    parts = {"reward": reward, "cost": cost, "round": np.arange(1.0, rounds + 1), "advised": nothing * np.nan}
    return Log(names=("a", "b", "c"), context=context, action=dose, baseline_cost=nothing, **parts)


@pytest.mark.parametrize("policy", ["on_expectation", "hp_student"])
def test_the_rate_on_another_policys_log_covers_the_truth(policy):
    """Given the past, a round at the dose a exceeds with probability P(a(⟨x,μ⟩ + ξ) > τ), ξ Gaussian, whoever chose the
    logged dose: the mean of these is the truth. With 95 % covered, fewer than `least` of the logs would be with
    probability below FALSE_ALARM; of 100 logs at least 95 are.
    """
    covered = []
    for seed in range(LOGS):
        log = logged(seed)
        found = evaluate(log, policy, spec=SPEC, start_action=0.1)
        dose = found.policies[0].scores.applied
        truth = np.mean(norm.sf((SPEC.threshold / np.maximum(dose, 1e-9) - log.context @ TRUTH) / 0.3))
        row = found.table()[1]
        covered.append(row["low"] <= truth <= row["high"])
    least = binom.ppf(FALSE_ALARM, LOGS, 0.95)
    assert sum(covered) >= (95 if LOGS == 100 else least)


def test_an_interval_by_blocks_is_wider_where_excesses_come_together():
    scattered, together = np.zeros((2, 1000), dtype=bool)
    scattered[::20], together[:50] = True, True
    assert np.diff(rate_interval(together)) > 2 * np.diff(rate_interval(scattered))
    low, high = rate_interval(np.zeros(200, dtype=bool))
    assert low == 0.0 < high < 0.03
