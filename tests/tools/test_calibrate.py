"""The right curve is found, the constants are of the right size, and what cannot be fitted is said."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import curve_fit

from safedial import InvalidInput, hill, identity, logistic, power, tabulated
from safedial.rounds.log_file import Log
from safedial.tools.calibration import calibrate, fits
from safedial.tools.dose_fit import Data, choose_curve, covariance, families, fit_curve

GRID = np.linspace(0.05, 1.0, 20)
STEP = tabulated([0, 0.2, 0.4, 0.6, 0.8, 1], [0, 0.4, 0.42, 0.44, 0.46, 1])
TRUE = {
    "identity": identity(),
    "power": power(2.0),
    "emax": hill(0.3),
    "hill": hill(0.4, 3.0),
    "logistic": logistic(0.6, 12.0),
    "spline": STEP,
}


def pilot(curve, *, rows=300, seed=0, kappa=0.2, doses=None, constant=False, dim=2):
    """Random contexts and doses, reward and cost by the same curve."""
    rng = np.random.default_rng(seed)
    context = np.column_stack([rng.uniform(-0.7, 0.7, (rows, dim - 1)), np.full(rows, 0.7)])
    action = rng.uniform(0.02, 1.0, rows) if doses is None else rng.choice(doses, rows)
    outcomes = []
    for coef in (np.full(dim, 0.6), np.full(dim, 0.9)):
        noise = kappa * rng.standard_normal(rows)
        intensity = np.asarray(curve.effect(action), dtype=float)
        outcomes.append(intensity * (context @ coef) + (noise if constant else intensity * noise))
    return Log(
        names=tuple(f"x{index}" for index in range(dim)),
        context=context,
        action=action,
        reward=outcomes[0],
        cost=outcomes[1],
        round=np.arange(1.0, rows + 1.0),
        advised=np.full(rows, np.nan),
        baseline_cost=np.zeros(rows),
    )


@pytest.mark.parametrize("name", TRUE)
def test_the_true_curve_is_found(name):
    found = calibrate(pilot(TRUE[name]), outcomes=("cost",), resamples=20)
    curve = found.dose.cost
    np.testing.assert_allclose(curve.effect(GRID), TRUE[name].effect(GRID), atol=0.07)
    if name in ("identity", "power", "emax", "spline"):
        assert found.curves["cost"].fit.family == name


def test_a_fit_agrees_with_scipys_least_squares():
    log = pilot(hill(0.4, 2.0), constant=True, kappa=0.05, dim=1)
    ours = fit_curve(families(log.action)["hill"], Data(log.context, log.action, log.cost), "constant")

    def model(action, height, ed50, slope):
        return height * (1 + ed50**slope) * action**slope / (ed50**slope + action**slope)

    theirs, _ = curve_fit(model, log.action, log.cost, p0=(0.5, 0.4, 2.0))
    assert ours.curve.parameters["ed50"] == pytest.approx(theirs[1], rel=0.01)
    assert ours.curve.parameters["slope"] == pytest.approx(theirs[2], rel=0.01)
    assert 0.7 * ours.coef[0] == pytest.approx(theirs[0], rel=0.01)


def test_the_error_of_the_coefficients_is_that_of_least_squares():
    log = pilot(identity())
    data = Data(log.context, log.action, log.cost)
    fit = fit_curve(families(log.action)["identity"], data, "proportional")
    expected = fit.deviation**2 * np.linalg.inv(log.context.T @ log.context)
    np.testing.assert_allclose(covariance(fit, data, "proportional"), expected, rtol=1e-6)


def test_bands_hold_the_true_curve_and_shrink_with_data(count):
    """Pointwise 90 % bands: over 20 doses and some logs the true curve lies inside in at least three quarters."""
    inside, errors = [], {}
    for rows in (100, 800):
        chosen = []
        for seed in range(count(4, 40)):
            log = pilot(hill(0.3), rows=rows, seed=seed)
            data = Data(log.context, log.action, log.cost)
            chosen.append(choose_curve(data, noise="proportional", name="emax", resamples=40))
        true = hill(0.3).effect(chosen[0].grid)
        inside += [float(np.mean((each.low - 1e-9 <= true) & (true <= each.high + 1e-9))) for each in chosen]
        errors[rows] = np.mean([each.error for each in chosen])
    assert np.mean(inside) >= 0.75
    assert errors[800] < 0.6 * errors[100]


def test_curves_that_do_as_well_count_as_uncertainty():
    """A straight pilot: identity leaves the bootstrap nothing to vary, but the data do not prove it."""
    data = Data(*(getattr(log := pilot(identity(), rows=150), name) for name in ("context", "action", "cost")))
    chosen = choose_curve(data, noise="proportional", resamples=5)
    assert chosen.fit.family == "identity"
    assert chosen.rivals
    assert 0.0 < chosen.error < 1.0
    for name in chosen.rivals:
        rival = fit_curve(families(log.action)[name], data, "proportional").curve.effect(chosen.grid)
        assert np.all((chosen.low - 1e-12 <= rival) & (rival <= chosen.high + 1e-12))
    alone = choose_curve(data, noise="proportional", name="identity", resamples=5)
    assert (alone.error, alone.rivals) == (0.0, ())
    found = calibrate(log, outcomes=("cost",), curve="identity", resamples=2)
    assert "its error is unknown" in found.words("cost")


def test_constants_lie_above_the_truth_and_not_far():
    found = calibrate(pilot(hill(0.3), rows=400), resamples=10)
    values = {name: proposal.value for name, proposal in found.proposals.items()}
    assert 0.2 <= values["cost_noise"] <= 0.32
    assert np.hypot(0.9, 0.9) <= values["coefficient_bound"] <= 1.8
    assert 0.9 <= values["context_bound"] <= 1.3
    assert all(len(proposal.reason) > 30 for proposal in found.proposals.values())


def test_a_heavy_tail_raises_the_proposed_noise():
    log = pilot(identity())
    cost = log.cost.copy()
    cost[7] += 2.0 * log.action[7]
    assert "largest one" in calibrate(replace(log, cost=cost), resamples=2).proposals["cost_noise"].reason


def test_published_means_need_no_context_and_no_reward():
    doses = [0.1, 0.25, 0.5, 0.75, 1.0]
    log = replace(pilot(hill(0.3), doses=doses, constant=True, kappa=0.02), names=(), context=np.empty((300, 0)))
    found = calibrate(log, outcomes=("cost",), noise="constant", resamples=10)
    assert found.dim == 1
    assert found.proposals["cost_sensor_noise"].value == found.proposals["cost_noise"].value
    assert "no reward" in found.proposals["reward_noise"].reason
    file = found.spec_file(threshold=0.5, total_risk=0.05)
    assert file.spec.violation_risk == 0.045
    assert file.agent().ask([1.0]).action >= 0.0


def test_doses_that_were_never_given_are_said():
    log = pilot(hill(0.3), doses=[0.1, 0.2, 0.3, 0.4])
    found = calibrate(log, outcomes=("cost",), resamples=5)
    assert "never given" in found.words("cost")
    assert "spline" not in found.curves["cost"].table


def test_few_levels_allow_few_free_numbers():
    assert list(families(np.array([0.5, 1.0, 0.0]))) == ["identity", "power", "emax", "spline"]
    assert "hill" in families(np.array([0.25, 0.5, 1.0]))
    assert list(families(np.array([0.3, 0.5]))) == ["identity", "power", "emax"]


def test_progress_counts_every_fit():
    told, log = [], pilot(identity(), rows=60)
    calibrate(log, outcomes=("cost",), resamples=7, progress=told.append)
    assert sum(told) == fits(log, outcomes=1, resamples=7)


@pytest.mark.parametrize(
    ("log", "options", "named"),
    [
        (pilot(identity(), doses=[0.5]), {}, "only dose level.*cannot be fitted"),
        (pilot(identity(), doses=[0.0]), {}, "too few"),
        (pilot(identity(), rows=15), {}, "too few"),
        (pilot(identity(), doses=[0.5, 1.0]), {"curve": "hill"}, "2 dose levels"),
        (pilot(identity()), {"curve": "cubic"}, "cubic"),
        (pilot(identity()), {"noise": "loud"}, "noise"),
        (pilot(identity()), {"caution": 0.5}, "caution"),
        (pilot(identity()), {"resamples": 1}, "resamples"),
    ],
)
def test_what_cannot_be_fitted_is_said(log, options, named):
    with pytest.raises(InvalidInput, match=named):
        calibrate(log, **options)


def test_a_risk_that_is_none_is_named_as_it_was_given():
    found = calibrate(pilot(identity()), outcomes=("cost",), curve="identity", resamples=2)
    with pytest.raises(InvalidInput, match="total_risk = 2"):
        found.spec_file(threshold=0.5, total_risk=2.0)


def test_rows_that_are_left_out_are_counted_with_the_reason():
    log = pilot(identity())
    action = np.where(np.arange(300) < 7, 0.0, log.action)
    found = calibrate(replace(log, action=action, learned=290), outcomes=("cost",), curve="identity", resamples=5)
    assert found.left_out.startswith("Left out: 17 of 300 rows (7 with a dose of 0 or")
    assert "10 after the first outcome" in found.left_out
    assert found.left_out in found.notes()[""]
    assert not calibrate(log, outcomes=("cost",), curve="identity", resamples=5).left_out
