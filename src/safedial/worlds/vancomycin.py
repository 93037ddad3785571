"""Vancomycin on a ward: trough and exposure after two doses a day, by a published population model.

Two compartments (Thomson, Staatz, Tobin, Gall and Lovering, J Antimicrob Chemother 2009;63:1050-7), with creatinine
clearance by Cockcroft and Gault. Half of the daily dose runs in over one hour, every twelve hours. The trough is
measured just before the fifth dose; the exposure is the area under the curve over a day, daily dose / clearance.

Each function works on a batch: every argument is a number or an array, one element for a patient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

INFUSION, INTERVAL, BEFORE_FIFTH = 1.0, 12.0, 48.0
"""Hours: how long a dose runs in, how far doses lie apart, when the trough is measured."""

SPREAD = {"clearance": 0.27, "central": 0.15, "peripheral": 1.30, "exchange": 0.49}
"""Between patients: coefficients of variation of log-normal factors."""
RELATIVE_ERROR, ABSOLUTE_ERROR = 0.15, 1.6
"""Of a measured concentration: as a share of it, and in mg/l."""


class Patients(NamedTuple):
    """What a clinician sees (age in years, weight in kg, creatinine in mg/dl, sex, clearance of creatinine in ml/min),
    and what nobody sees: clearances in l/h, volumes in l, and the two errors of the assay.
    """

    age: Array
    weight: Array
    female: NDArray[np.bool_]
    creatinine: Array
    creatinine_clearance: Array
    clearance: Array
    central: Array
    peripheral: Array
    exchange: Array
    errors: Array


def draw_patients(rng: np.random.Generator, size: int) -> Patients:
    """Adults on a ward.

    >>> patients = draw_patients(np.random.default_rng(1), 1000)
    >>> bool(patients.weight.min() >= 40.0)
    True
    """
    female = rng.random(size) < 0.5
    age = np.clip(rng.normal(62.0, 16.0, size), 18.0, 95.0)
    weight = np.clip(rng.normal(np.where(female, 70.0, 84.0), 16.0), 40.0, 150.0)
    creatinine = 0.85 * np.exp(0.25 * rng.normal(size=size))
    filtered = cockcroft_gault(age, weight, creatinine, female)
    factor = {name: np.exp(np.sqrt(np.log1p(cv * cv)) * rng.normal(size=size)) for name, cv in SPREAD.items()}
    return Patients(
        age,
        weight,
        female,
        creatinine,
        filtered,
        clearance=np.maximum(2.99 * (1.0 + 0.0154 * (filtered - 66.0)), 0.1) * factor["clearance"],
        central=0.675 * weight * factor["central"],
        peripheral=0.732 * weight * factor["peripheral"],
        exchange=2.28 * factor["exchange"],
        errors=rng.normal(size=(2, size)),
    )


def cockcroft_gault(age: Any, weight: Any, creatinine: Any, female: Any) -> Array:
    """Creatinine clearance in ml/min; at most 150."""
    return np.minimum((140.0 - age) * weight * np.where(female, 0.85, 1.0) / (72.0 * creatinine), 150.0)


def protocol_dose(patients: Patients) -> Array:
    """A common rule, mg a day: 30 mg/kg, less where the kidneys are weak."""
    return 30.0 * patients.weight * np.minimum(1.0, patients.creatinine_clearance / 90.0)


def exposure(patients: Patients, daily_dose: Any) -> Array:
    """The area under the curve over 24 hours at steady state, mg·h/l."""
    return daily_dose / patients.clearance


def concentration(patients: Patients, daily_dose: Any, hours: float) -> Array:
    """mg/l in the central compartment, by superposition of the infusions that began before `hours`."""
    fast, slow, weights = _exponentials(patients)
    rate = 0.5 * daily_dose / INFUSION / patients.central
    total = np.zeros(np.broadcast_shapes(np.shape(daily_dose), patients.clearance.shape))
    for begin in np.arange(0.0, hours, INTERVAL):
        running = min(INFUSION, hours - begin)
        since = hours - begin - running
        for speed, weight in zip((fast, slow), weights, strict=True):
            total += rate * weight / speed * -np.expm1(-speed * running) * np.exp(-speed * since)
    return total


def measured_trough(patients: Patients, daily_dose: Any) -> Array:
    """What the laboratory reports before the fifth dose; never below 0."""
    relative, absolute = patients.errors
    true = concentration(patients, daily_dose, BEFORE_FIFTH)
    return np.maximum(true * (1.0 + RELATIVE_ERROR * relative) + ABSOLUTE_ERROR * absolute, 0.0)


def _exponentials(patients: Patients) -> tuple[Array, Array, tuple[Array, Array]]:
    """The two rates of decay, 1/h, and the share of each after a dose into the central compartment."""
    out, there = patients.clearance / patients.central, patients.exchange / patients.central
    back = patients.exchange / patients.peripheral
    total = out + there + back
    fast = 0.5 * (total + np.sqrt(total * total - 4.0 * out * back))
    slow = out * back / fast
    return fast, slow, ((fast - back) / (fast - slow), (back - slow) / (fast - slow))
