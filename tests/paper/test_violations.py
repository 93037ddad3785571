"""Realized costs exceed τ in at most a share δ + δ′ of the rounds, for every policy that guarantees it.

On the confidence event each round violates with probability at most δ given the past, so over the n rounds of a run
the number of violations is dominated by a binomial(n, δ); pooling independent seeds, by binomial(n·seeds, δ + δ′) for
the purposes of this one-sided check. Level 1e-6 for each case; seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import LinearWorld, hill, make_policy, power, simulate
from safedial.model.dose import Dose
from safedial.simulation.world import SUB_GAUSSIAN
from tests.conftest import make_spec

pytestmark = pytest.mark.slow

LEVEL = 1e-6
GUARANTEED = ["hp_ucb", "hp_probe", "epsilon_greedy", "thompson", "clairvoyant", "fixed"]


def check(run, risk):
    total = int(run.violations.sum())
    assert binomtest(total, run.violations.size * run.rounds, risk, alternative="greater").pvalue > LEVEL, total


@pytest.mark.parametrize("contexts", ["iid", "adversarial"])
@pytest.mark.parametrize("noise", SUB_GAUSSIAN)
@pytest.mark.parametrize("name", GUARANTEED)
def test_violations_stay_within_the_risk(name, noise, contexts, count):
    spec = make_spec(violation_risk=0.03, estimation_risk=0.02, threshold=[0.2, 2.0], cost_noise=0.3, reward_noise=0.3)
    world = LinearWorld(dim=3, noise=noise, contexts=contexts)
    check(simulate(make_policy(name), world, spec, rounds=count(400, 4000), seeds=count(60, 500)), 0.05)


@pytest.mark.parametrize("changes", [
    {"cost_sensor_noise": 0.1},
    {"cost_sensor_noise": 0.1, "threshold_on": "true"},
    {"cost_sensor_noise": 0.1, "sensor_dependent": True},
    {"guarantee": "joint"},
    {"ridge": 0.05},
    {"ridge": 20.0},
])  # fmt: skip
@pytest.mark.parametrize("name", ["hp_ucb", "hp_probe"])
def test_violations_stay_within_the_risk_in_every_form_of_the_model(name, changes, count):
    spec = make_spec(violation_risk=0.03, estimation_risk=0.02, cost_noise=0.3, reward_noise=0.3, **changes)
    check(simulate(make_policy(name), LinearWorld(dim=3), spec, rounds=count(400, 4000), seeds=count(60, 500)), 0.05)


def test_with_a_baseline_cost_and_curved_doses_the_guarantee_holds(count):
    spec = make_spec(violation_risk=0.03, estimation_risk=0.02, cost_noise=0.3, reward_noise=0.3)
    world = LinearWorld(dim=3, baseline_cost=0.2)
    run = simulate(
        make_policy("hp_probe"), world, spec, rounds=count(400, 4000), seeds=60, dose=Dose(hill(0.4, 2.0), power(1.5))
    )
    check(run, 0.05)


def test_a_joint_guarantee_is_joint(count):
    spec = make_spec(violation_risk=0.1, estimation_risk=0.02, guarantee="joint", cost_noise=0.3, reward_noise=0.3)
    run = simulate(make_policy("hp_probe"), LinearWorld(dim=3), spec, rounds=1000, seeds=count(200, 2000))
    ever = int((run.violations > 0).sum())
    assert binomtest(ever, run.violations.size, 0.12, alternative="greater").pvalue > LEVEL


def test_the_expected_cost_baseline_breaks_what_it_does_not_guarantee():
    """The check above can fail: for the baseline it does."""
    spec = make_spec(violation_risk=0.03, estimation_risk=0.02)
    run = simulate(make_policy("on_expectation"), LinearWorld(dim=3), spec, rounds=400, seeds=60)
    total = int(run.violations.sum())
    assert binomtest(total, run.violations.size * run.rounds, 0.05, alternative="greater").pvalue < LEVEL


def test_the_papers_headline_figures(count):
    spec = make_spec(threshold=[0.1, 1.0])
    world, seeds = LinearWorld(dim=5), count(20, 100)
    expected = simulate(make_policy("on_expectation", radius="paper"), world, spec, rounds=10_000, seeds=seeds)
    safe = simulate(make_policy("hp_ucb", radius="paper"), world, spec, rounds=10_000, seeds=seeds)
    rates = expected.violations.mean(axis=1) / 10_000
    assert 0.23 <= rates[0] <= 0.25
    assert 0.12 <= rates[1] <= 0.14
    assert np.all(safe.violations.mean(axis=1) / 10_000 >= 0.0001)
    assert np.all(safe.violations.mean(axis=1) / 10_000 <= 0.0004)
