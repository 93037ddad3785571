"""Confidence sets cover for all rounds at once; the good event; what follows from it on every trace.

Level: every statistical assertion here fails with probability below 1e-6 if the theorem holds. Seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import LinearWorld, make_policy, simulate
from safedial.bounds.confidence import RADII
from tests.conftest import make_spec

LEVEL = 1e-6
RISK = 0.1


class Coverage:
    """Follows one simulation and records, for each radius and seed, whether a set ever missed."""

    def __init__(self, dim, seeds, spec):
        self.spec = spec
        self.gram = np.zeros((1, seeds, dim, dim)) + spec.ridge * np.eye(dim)
        radii = [name for name in RADII if not (name == "paper" and dim == 1)]
        self.missed = {(radius, side): np.zeros(seeds, bool) for radius in radii for side in ("reward", "cost")}
        self.shrunk = np.zeros(seeds, bool)

    def __call__(self, round):
        truths = {"reward": round.truth.reward_coef, "cost": round.truth.cost_coef}
        coefs = {"reward": round.state.sums.reward_coef, "cost": round.state.sums.cost_coef}
        for side, truth in truths.items():
            error = coefs[side] - truth
            distance = np.sqrt(np.einsum("ksi,ksij,ksj->ks", error, self.gram, error))[0]
            for radius, rule in RADII.items():
                if (radius, side) in self.missed:
                    size = rule(getattr(self.spec, f"{side}_noise"), round.bound.memo, self.spec)[0]
                    self.missed[radius, side] |= distance > size
                    if radius == "mixture" and side == "cost":
                        self.shrunk |= distance > 0.6 * size
        played = round.given.intensity > 0
        self.gram += np.where(played, 1.0, 0.0)[..., None, None] * np.einsum(
            "ksi,ksj->ksij", round.context, round.context
        )


@pytest.mark.slow
@pytest.mark.parametrize("contexts", ["iid", "adversarial"])
@pytest.mark.parametrize(
    ("dim", "ridge", "noise"), [(1, 1.0, "gaussian"), (3, 0.3, "gaussian"), (5, 1.0, "rademacher")]
)
def test_each_radius_covers_for_all_rounds_at_once(dim, ridge, noise, contexts, count):
    seeds, rounds = count(1000, 4000), count(500, 2000)
    spec = make_spec(estimation_risk=RISK, ridge=ridge, cost_noise=0.5)
    watch = Coverage(dim, seeds, spec)
    world = LinearWorld(dim=dim, noise=noise, contexts=contexts)
    simulate(make_policy("hp_ucb"), world, spec, rounds=rounds, seeds=seeds, observe=watch)
    for (radius, side), missed in watch.missed.items():
        misses = int(missed.sum())
        assert binomtest(misses, seeds, RISK, alternative="greater").pvalue > LEVEL, (radius, side, misses)
        both = int((watch.missed[radius, "reward"] | watch.missed[radius, "cost"]).sum())
        assert binomtest(both, seeds, 2 * RISK, alternative="greater").pvalue > LEVEL, "the good event"
    assert watch.shrunk.any(), "a radius of 0.6 times the size would pass too: this test would see nothing"


def test_a_radius_that_is_too_small_is_caught():
    """The test above can fail: at a third of the radius it does."""
    seeds, spec = 300, make_spec(estimation_risk=RISK)
    missed = np.zeros(seeds, bool)
    gram = np.zeros((1, seeds, 2, 2)) + np.eye(2)

    def watch(round):
        nonlocal gram
        error = round.state.sums.cost_coef - round.truth.cost_coef
        distance = np.sqrt(np.einsum("ksi,ksij,ksj->ks", error, gram, error))[0]
        missed[:] |= distance > RADII["mixture"](1.0, round.bound.memo, spec)[0] / 3
        gram = gram + np.where(round.given.intensity > 0, 1.0, 0.0)[..., None, None] * np.einsum(
            "ksi,ksj->ksij", round.context, round.context
        )

    simulate(make_policy("hp_ucb"), LinearWorld(dim=2), spec, rounds=400, seeds=seeds, observe=watch)
    assert binomtest(int(missed.sum()), seeds, RISK, alternative="greater").pvalue < LEVEL
