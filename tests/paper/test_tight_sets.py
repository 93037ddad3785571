"""The tighter radii and margins keep their guarantees: coverage for all rounds at once, violations within the risk.

Level: every statistical assertion here fails with probability below 1e-6 if the theorem holds. Seeds are fixed.
"""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import LinearWorld, make_policy, simulate
from safedial.simulation.proof import guarantee_holds
from safedial.simulation.results import summary
from safedial.simulation.world import quantile
from tests.conftest import make_spec

pytestmark = pytest.mark.slow

LEVEL = 1e-6
RISK = 0.1


def never_more_often(misses, runs, risk):
    return binomtest(int(misses), runs, risk, alternative="greater").pvalue > LEVEL


@pytest.mark.parametrize("contexts", ["iid", "adversarial"])
@pytest.mark.parametrize(("radius", "ridge", "noise"), [
    ("self-normalised", 4.0, "gaussian"),
    ("self-normalised", 0.2, "rademacher"),
    ("noise-adaptive", 1.0, "gaussian"),
    ("noise-adaptive", 0.2, "truncated"),
])  # fmt: skip
def test_the_bound_holds_for_all_rounds_at_once(radius, ridge, noise, contexts, count):
    seeds, rounds = count(400, 2000), count(300, 2000)
    spec = make_spec(estimation_risk=RISK, ridge=ridge, cost_noise=0.5, reward_noise=0.5)
    missed, close = np.zeros(seeds, bool), np.zeros(seeds, bool)

    def watch(round):
        cost = np.vecdot(round.context, round.truth.cost_coef)[0]
        bounds, seen = round.bound.numbers, round.bound.memo
        missed[:] |= cost > bounds["cost_upper"][0] + 1e-12
        close[:] |= cost - seen.cost[0] > 0.6 * (bounds["cost_radius"] * seen.width)[0]

    world = LinearWorld(dim=3, noise=noise, contexts=contexts)
    simulate(make_policy("hp_probe", radius=radius), world, spec, rounds=rounds, seeds=seeds, observe=watch)
    assert never_more_often(missed.sum(), seeds, RISK)
    assert close.any(), "a radius of 0.6 times the size would pass too: this test would see nothing"


@pytest.mark.parametrize("noise", ["uniform", "rademacher"])
def test_the_learned_variance_is_never_below_the_true_one(noise, count):
    """The risk of both, δ′ of the confidence set and δ_q of the variance, is 0.1 + 0.1."""
    seeds, rounds = count(200, 1000), 600
    ends = {"noise_low": -1.0, "noise_high": 1.0} if noise == "uniform" else {"noise_low": -0.5, "noise_high": 0.5}
    spec = make_spec(estimation_risk=RISK, margin="bounded", margin_risk=RISK, cost_noise=0.5, reward_noise=0.5, **ends)
    missed, learned = np.zeros(seeds, bool), np.zeros(seeds, bool)

    def watch(round):
        noise_bound = np.broadcast_to(round.bound.memo.noise, (1, seeds))[0]
        missed[:] |= noise_bound < 0.25 - 1e-12
        learned[:] |= np.isfinite(noise_bound)

    world = LinearWorld(dim=2, noise=noise)
    simulate(make_policy("hp_probe"), world, spec, rounds=rounds, seeds=seeds, observe=watch)
    assert learned.all()
    assert never_more_often(missed.sum(), seeds, 2 * RISK)


def margins(noise):
    """Every margin whose assumption the family satisfies."""
    ends = [float(quantile(noise, end)) * 0.3 for end in (0.0, 1.0)]
    found = {"subgaussian": {}}
    if noise == "gaussian":
        found["gaussian"] = {"margin": "gaussian"}
    if math.isfinite(ends[1]):
        bounded = {"margin": "bounded", "noise_low": ends[0], "noise_high": ends[1]}
        found |= {"bounded": bounded, "bounded, variance learned": bounded | {"margin_risk": 0.01}}
    return found


CASES = [
    (noise, name, changes)
    for noise in ("gaussian", "uniform", "rademacher", "truncated")
    for name, changes in margins(noise).items()
]


def test_every_margin_is_tried_with_every_family_that_satisfies_it():
    assert len(CASES) == 2 + 3 + 3 + 3


@pytest.mark.parametrize("contexts", ["iid", "adversarial"])
@pytest.mark.parametrize(("noise", "name", "changes"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_violations_stay_within_the_stated_risk(noise, name, changes, contexts, count):
    spec = make_spec(
        violation_risk=0.1, estimation_risk=0.02, threshold=[0.2, 2.0], cost_noise=0.3, reward_noise=0.3, **changes
    )
    world = LinearWorld(dim=3, noise=noise, contexts=contexts)
    policy = make_policy("hp_probe", radius="self-normalised")
    assert guarantee_holds(policy, world, spec)
    run = simulate(policy, world, spec, rounds=count(500, 4000), seeds=count(20, 200))
    assert never_more_often(run.violations.sum(), run.violations.size * run.rounds, spec.guaranteed_risk)
    assert summary(run)["guaranteed_risk"] == pytest.approx(spec.guaranteed_risk)


@pytest.mark.parametrize(("noise", "changes"), [
    ("rademacher", {"margin": "gaussian", "violation_risk": 0.3}),
    ("uniform", {"margin": "bounded", "noise_low": -0.2, "noise_high": 0.2, "violation_risk": 0.05}),
])  # fmt: skip
def test_where_the_assumption_is_broken_nothing_is_guaranteed_and_the_check_can_fail(noise, changes):
    spec = make_spec(
        **(
            {
                "threshold": 0.1,
                "coefficient_bound": 0.1,
                "estimation_risk": 0.02,
                "cost_noise": 0.3,
                "reward_noise": 0.3,
            }
            | changes
        )
    )
    world, policy = LinearWorld(dim=2, noise=noise), make_policy("clairvoyant")
    assert not world.keeps_noise(spec)
    assert not guarantee_holds(make_policy("hp_probe"), world, spec)
    run = simulate(make_policy("hp_probe"), world, spec, rounds=6000, seeds=6)
    assert summary(run)["guaranteed_risk"] is None
    late = run.full_dose_violations.sum() / run.full_dose_rounds.sum()
    assert late > spec.guaranteed_risk
    assert simulate(policy, world, spec, rounds=10, seeds=1).regret.sum() == 0.0


def test_the_best_radius_earns_most_of_what_the_clairvoyant_does():
    """d = 10, unit noise, τ = 0.5, δ = δ′ = 0.01, 10⁴ rounds: ≥ 85 %, and ≥ 100 % where the noise is Gaussian."""
    policy = make_policy("hp_probe", radius="self-normalised")
    shares = {}
    for margin in ("subgaussian", "gaussian"):
        run = simulate(policy, LinearWorld(dim=10), make_spec(ridge=10.0, margin=margin), rounds=10_000, seeds=5)
        shares[margin] = run.reward.sum() / run.clairvoyant_reward.sum()
    assert shares["subgaussian"] >= 0.85
    assert shares["gaussian"] >= 1.0


def test_self_normalised_earns_seventy_per_cent_of_the_exact_clairvoyant_in_a_short_study():
    """d = 5, noise 0.3, T = 500, δ + δ′ = 0.06; `mixture` with the ridge d·κ²/S² = 0.45 earns 0.67."""
    spec = make_spec(violation_risk=0.054, estimation_risk=0.006, cost_noise=0.3, reward_noise=0.3)
    policy = make_policy("hp_probe", radius="self-normalised", probe=0.001)
    run = simulate(policy, LinearWorld(dim=5), spec, rounds=500, seeds=100, points=1)
    assert run.reward.sum() >= 0.70 * run.exact_clairvoyant_reward.sum()
