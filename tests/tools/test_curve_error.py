"""An uncertain curve folded into the bound: the inequalities, and violations under the worst curve that it covers."""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, InvalidInput
from safedial.bounds.confidence import RADII
from safedial.bounds.estimate import Prediction
from safedial.tools.calibration import fold_curve_error
from tests.conftest import make_spec

SPEC = make_spec(violation_risk=0.045, estimation_risk=0.005, cost_noise=0.3, reward_noise=0.3)
ROUNDS, DIM, ERROR = 300, 3, 0.08


@pytest.mark.parametrize("radius", ["mixture", "paper"])
@pytest.mark.parametrize("changes", [{}, {"ridge": 0.1}, {"coefficient_bound": 3.0, "context_bound": 0.5}])
def test_the_folded_radius_covers_the_shift_in_every_round(changes, radius):
    spec = make_spec(violation_risk=0.045, estimation_risk=0.005, cost_noise=0.3, reward_noise=0.3, **changes)
    folded = fold_curve_error(spec, error=ERROR, dim=DIM, rounds=ROUNDS, radius=radius)
    for count in (0, 1, 30, ROUNDS):
        largest = DIM * np.log1p(count * spec.context_bound**2 / (DIM * spec.ridge))
        for volume in np.linspace(0.0, largest, 7):
            seen = Prediction(0.0, 0.0, 0.0, 1.0, volume, float(count), DIM)
            plain = RADII["mixture"]((1 + ERROR) * spec.cost_noise, seen, spec)
            shift = ERROR * spec.coefficient_bound * spec.context_bound * np.sqrt(count)
            assert RADII[radius](folded.cost_noise, seen, folded) >= plain + shift - 1e-12


def test_a_shifted_mean_moves_the_estimate_by_no_more_than_said():
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((200, DIM))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    gram = rows.T @ rows + np.eye(DIM)
    for _ in range(50):
        coef = rng.standard_normal(DIM)
        coef /= np.linalg.norm(coef)
        off = ERROR * rng.choice([-1.0, 1.0], 200) * (rows @ coef)
        moved = np.linalg.solve(gram, rows.T @ off)
        assert np.sqrt(moved @ gram @ moved) <= ERROR * np.sqrt(200)


def test_violations_stay_within_the_risk_under_a_curve_that_is_wrong_by_so_much(count):
    """h = (1 ± ρ)g, high at high doses and low at low ones, where doses are learned from. Level 1e-6; seeds fixed."""
    folded = fold_curve_error(SPEC, error=ERROR, dim=DIM, rounds=ROUNDS)
    over, total = 0, 0
    for seed in range(count(6, 60)):
        rng, agent = np.random.default_rng(seed), Agent(DIM, folded)
        coef = rng.standard_normal((2, DIM))
        coef /= np.linalg.norm(coef, axis=1, keepdims=True)
        for _ in range(ROUNDS):
            context = rng.standard_normal(DIM)
            context /= np.linalg.norm(context) * (1 + 1e-12)
            decision = agent.ask(context)
            true = decision.action * (1 + ERROR if decision.action > 0.1 else 1 - ERROR)
            reward, cost = true * (coef @ context + 0.3 * rng.standard_normal(2))
            over += cost > SPEC.threshold
            total += 1
            agent.tell(decision, reward=reward, cost=cost)
    assert binomtest(int(over), total, 0.05, alternative="greater").pvalue > 1e-6


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"error": 1.2}, "error"),
        ({"rounds": 0}, "rounds"),
        ({"radius": "self-normalised"}, "no proof for an uncertain curve"),
        ({"radius": "noise-adaptive"}, "no proof for an uncertain curve"),
        ({"radius": "paper", "dim": 1}, "dim = 1"),
        ({"spec": make_spec(guarantee="joint")}, "certified"),
        ({"spec": make_spec(cost_sensor_noise=0.1)}, "sensor"),
        ({"spec": make_spec(noise_scale={"scale": "power_scale", "exponent": 2.0})}, "noise_scale"),
    ],
)
def test_what_cannot_be_folded_is_said(options, named):
    given = {"spec": SPEC, "error": 0.1, "dim": 3, "rounds": 10} | options
    with pytest.raises(InvalidInput, match=named):
        fold_curve_error(given.pop("spec"), **given)
