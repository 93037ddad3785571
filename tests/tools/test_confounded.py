"""A pilot whose doses followed the context is flagged, and its curve is fitted honestly or not at all."""

from dataclasses import replace

import numpy as np
import pytest

from safedial import Dial, InvalidInput, calibrate, identity, power
from safedial.rounds.log_file import Log
from safedial.tools.dose_fit import Data, allowed_exponents, choose_adjusted, choose_curve
from tests.tools.test_calibrate import pilot


def clinic(rows, seed=0, *, rule=True, slope=1.0):
    """Drug levels proportional to dose/clearance (slope 1). Doctors dose by weight and kidney, or a coin does."""
    rng = np.random.default_rng(seed)
    age, weight = rng.uniform(20, 90, rows), np.clip(rng.normal(75, 15, rows), 40, 130)
    creatinine = np.exp(rng.normal(np.log(0.95), 0.35, rows))
    kidney = np.clip((140 - age) * weight / (72 * creatinine), 10, 180)
    clearance = 0.05 * kidney * np.exp(0.3 * rng.standard_normal(rows)) + 0.3
    guided = 30 * weight * np.clip(kidney / 100, 0.3, 1.5) * np.exp(0.15 * rng.standard_normal(rows))
    dose = guided if rule else rng.uniform(250, 4000, rows)
    action = np.clip(np.round(dose / 250) * 250, 250, 4000) / 4000
    level = 10.0 * action**slope / clearance * np.exp(0.15 * rng.standard_normal(rows))
    raw = np.column_stack([age, weight, creatinine])
    context = np.column_stack([(raw - raw.mean(axis=0)) / raw.std(axis=0) / 2, np.ones(rows)])
    return Log(
        names=("age", "weight", "creatinine", "intercept"),
        context=context,
        action=action,
        reward=level,
        cost=level,
        round=np.arange(1.0, rows + 1.0),
        advised=np.full(rows, np.nan),
        baseline_cost=np.zeros(rows),
    )


def data(log):
    return Data(log.context, log.action, log.cost)


def test_the_plain_fit_of_a_confounded_pilot_excludes_the_true_curve_and_the_adjusted_one_holds_it(count):
    plain, adjusted = [], []
    for seed in range(count(6, 40)):
        rows = data(clinic(400, seed))
        for chosen, held in (
            (choose_curve(rows, noise="proportional", name="power", resamples=10), plain),
            (choose_adjusted(rows, noise="proportional")[0], adjusted),
        ):
            held.append(bool(np.all((chosen.low <= chosen.grid + 1e-9) & (chosen.grid <= chosen.high + 1e-9))))
    assert np.mean(plain) <= 0.2
    assert np.mean(adjusted) >= 0.75


@pytest.mark.parametrize("slope", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("rule", [True, False])
def test_the_allowed_powers_hold_the_true_one(slope, rule, count):
    """Nominally 95 %; at least 80 % here, for the doses' rule is not exactly what the adjustment takes it to be."""
    runs = count(25, 200)
    ranges = [
        allowed_exponents(identity(), data(clinic(300, seed, rule=rule, slope=slope))).range for seed in range(runs)
    ]
    assert np.mean([low <= slope <= high for low, high in ranges]) >= 0.8


def test_a_confounded_pilot_is_flagged_in_the_result_the_reasons_and_the_words():
    found = calibrate(clinic(400), resamples=5, dial=Dial(high=4000, unit="mg"))
    assert found.confounding.flagged
    assert "FLAG: In 400 rounds" in found.notes()[""]
    assert "guided the doses" in found.words("cost")
    assert found.dose.cost.name == "identity"
    assert found.allowed["cost"].range[0] <= 1.0 <= found.allowed["cost"].range[1]


def test_where_a_coin_gave_the_doses_nothing_is_flagged_and_confounding_is_still_named():
    found = calibrate(clinic(200, rule=False), outcomes=("cost",), curve="power", resamples=5)
    assert not found.confounding.flagged
    assert found.allowed == {}
    assert "both guided the doses and changed the outcomes (confounding)" in found.notes()[""]
    assert "as stated" in found.words("cost")


def test_doses_that_were_advised_are_not_taken_for_a_pilot():
    log = clinic(200)
    found = calibrate(replace(log, advised=log.action), outcomes=("cost",), curve="power", resamples=2)
    assert not found.confounding.flagged
    assert found.confounding.found == "Advice is on record for every round."


def test_a_stated_curve_is_kept_and_held_against_the_adjusted_data():
    log = clinic(400, 1)
    fine = calibrate(log, outcomes=("cost",), curve="identity", resamples=2)
    assert fine.dose.cost.name == "identity"
    assert fine.problem == ""
    assert "powers of this curve from" in fine.words("cost")
    assert fine.curves["cost"].error > 0.0
    assert np.any(fine.curves["cost"].low < fine.curves["cost"].grid)
    steep = calibrate(clinic(400, 1, slope=3.0), outcomes=("cost",), curve="identity", resamples=2)
    assert "and this curve itself does not" in steep.words("cost")


def test_a_power_that_is_not_one_is_found_in_spite_of_the_rule():
    chosen, allowed = choose_adjusted(data(clinic(2000, slope=0.5)), noise="proportional")
    assert chosen.fit.curve.name == "power"
    assert 0.3 < chosen.fit.curve.parameters["exponent"] < 0.7
    assert allowed.range[0] <= allowed.best <= allowed.range[1]


def test_doses_by_a_strict_rule_leave_no_curve_to_learn():
    """The dose is a function of the context: the data allow every power, so no spec file is made."""
    rng = np.random.default_rng(0)
    log = clinic(200)
    weight = log.context[:, 1]
    log = replace(log, action=np.clip(0.5 + 0.3 * weight, 0.05, 1.0))
    log = replace(log, cost=log.action * np.exp(0.2 * rng.standard_normal(200)))
    found = calibrate(log, outcomes=("cost",), resamples=2)
    assert found.allowed["cost"].range[1] > 2.0
    assert "give some doses at random" in found.problem
    with pytest.raises(InvalidInput, match="learned too little"):
        found.spec_file(threshold=1.0, total_risk=0.05)


def zeros(rows=150, positive=4):
    log = pilot(identity(), rows=rows)
    return replace(log, cost=np.where(np.arange(rows) < positive, log.cost + 1.0, 0.0))


def test_costs_that_are_nearly_all_equal_teach_nothing():
    found = calibrate(zeros(), outcomes=("cost",), resamples=5)
    assert found.problem.startswith("146 of 150 costs are 0, at several doses")
    assert "Report the measured quantity" in found.problem
    with pytest.raises(InvalidInput, match="146 of 150"):
        found.spec_file(threshold=1.0, total_risk=0.05)


def test_published_means_that_repeat_at_each_dose_are_no_ties():
    log = pilot(identity(), rows=40, doses=[0.5, 1.0])
    log = replace(log, cost=log.action, names=(), context=np.empty((40, 0)))
    assert calibrate(log, outcomes=("cost",), noise="constant", curve="identity", resamples=2).problem == ""


def test_a_curve_that_may_be_off_by_its_own_height_is_not_written_unless_it_is_stated():
    loud = pilot(identity(), rows=30, kappa=5.0, constant=True)
    found = calibrate(loud, outcomes=("cost",), noise="constant", resamples=20)
    assert found.curves["cost"].error >= 1.0
    assert "give more rows at different doses" in found.problem
    assert calibrate(loud, outcomes=("cost",), noise="constant", curve="emax", resamples=5).problem == ""


def test_a_fitted_curve_is_written_with_four_digits():
    found = calibrate(pilot(power(0.5)), outcomes=("cost",), curve="power", resamples=2)
    exponent = found.dose.cost.parameters["exponent"]
    assert exponent == float(f"{found.curves['cost'].fit.curve.parameters['exponent']:.4g}")
    assert f"exponent {exponent:g}" in found.words("cost")
    close = pilot(identity(), doses=[0.5, 0.50001, 1.0])
    spline = calibrate(close, outcomes=("cost",), curve="spline", resamples=2)
    assert spline.dose.cost.parameters == spline.curves["cost"].fit.curve.parameters


def test_doses_that_were_never_given_are_said_in_the_dials_units():
    found = calibrate(
        pilot(identity(), doses=[0.0625, 0.25, 0.5]), outcomes=("cost",), resamples=2, dial=Dial(high=4000, unit="mg")
    )
    assert "outside 250 mg to 2000 mg" in found.words("cost")
    assert found.spec_file(threshold=1.0, total_risk=0.05).dial.unit == "mg"
