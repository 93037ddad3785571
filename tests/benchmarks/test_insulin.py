"""Meal insulin: the equations against another program, and what a meal and a bolus do."""

import numpy as np
import pytest

from benchmarks.worlds.insulin import draw_meals, glucose_after, load_patients

# Glucose (mg/dl) at 60, 120, ... 360 minutes after 60 g and 8 units, by the class T1DPatient of the package simglucose
# (its repository of 2024), with dopri5 at a relative tolerance of 1e-10.
THEIRS = {
    "adult#001": (184.08581402773763, 176.74391202600037, 152.28238384210132, 152.15233301309468, 140.8990251417023,
                  121.38425578838681),
    "adolescent#001": (152.89208385141467, 126.16777254189118, 102.4771614708016, 94.95538161230888, 90.19222446031438,
                       88.58686239695116),
    "adolescent#005": (205.66320002122555, 191.1651234643528, 124.9717223115636, 84.70816913474887, 69.2463257682623,
                       67.98681593242571),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_traces_agree_with_simglucose(name):
    everyone = load_patients(children=True)
    assert len(everyone.names) == 30
    one = everyone.take(np.array([everyone.names.index(name)]))
    trace = glucose_after(one, one.rest, np.array([60.0]), np.array([8.0]), minutes=360)
    assert trace[60::60, 0] == pytest.approx(THEIRS[name], rel=1e-6)


def test_more_insulin_never_raises_the_lowest_glucose():
    meals = draw_meals(np.random.default_rng(4), 40)
    lowest = [meals.eat(share * meals.protocol_dose, minutes=240).lowest for share in (0.0, 0.5, 1.0, 2.0)]
    assert np.all(np.diff(lowest, axis=0) <= 1e-9)
