"""Meal insulin: glucose after one meal and one bolus, in the UVA/Padova model of type-1 diabetes.

The equations are those of Dalla Man, Rizza and Cobelli (IEEE Trans Biomed Eng 2007;54:1740-9) with the
subcutaneous insulin of Kovatchev and colleagues (J Diabetes Sci Technol 2009;3:44-55). The 30 virtual patients in
`tables/type1_patients.csv` have the parameters that the package `simglucose` distributes in `vpatient_params.csv` and
`Quest.csv`, values unchanged: Copyright (c) 2017 Jinyu Xie, MIT licence, `tables/LICENSE.simglucose`.

Each function works on a batch: every argument is a number or an array, one element for a meal.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

from safedial.errors import require

Array = NDArray[np.float64]

STATES = (
    *("stomach_solid", "stomach_liquid", "gut", "plasma_glucose", "tissue_glucose", "plasma_insulin"),
    *("insulin_action", "delayed_insulin_1", "delayed_insulin_2", "liver_insulin", "depot_1", "depot_2"),
    "sensor_glucose",
)
"""Amounts of glucose in mg (stomach and gut) or mg/kg, of insulin in pmol/kg, delayed insulin in pmol/l."""

EATING = 5.0
"""Grams of carbohydrate eaten in a minute."""
ACTING = 60
"""Minutes until a bolus acts. The lowest glucose is taken from then on: what it was before says nothing of a bolus."""
FINE, FINE_MINUTES = 8, 30
"""Steps in each of the first minutes; later ones are steps themselves."""


class Patients(NamedTuple):
    """Virtual patients: `parameters[name]` and `rest`, their state before a meal, hold one value for each."""

    names: tuple[str, ...]
    parameters: dict[str, Array]
    rest: Array

    def take(self, index: NDArray[np.int64]) -> Patients:
        """The patients with these numbers, with repeats."""
        names = tuple(self.names[each] for each in np.ravel(index))
        return Patients(names, {name: each[index] for name, each in self.parameters.items()}, self.rest[:, index])


class Meals(NamedTuple):
    """Meals about to be eaten: who eats, glucose before it (mg/dl), carbohydrate (g) as eaten and as counted."""

    patients: Patients
    glucose: Array
    carbohydrate: Array
    counted: Array

    @property
    def protocol_dose(self) -> Array:
        """The usual bolus, from what the patient counted."""
        return protocol_dose(self.patients, self.counted, self.glucose)

    def eat(self, bolus: Array, *, minutes: int = 360) -> Meal:
        """What these meals do with these boluses."""
        return eat(self.patients, at_glucose(self.patients, self.glucose), self.carbohydrate, bolus, minutes=minutes)


class Meal(NamedTuple):
    """What a meal did: glucose in mg/dl."""

    lowest: Array
    time_in_range: Array


def load_patients(*, children: bool = False) -> Patients:
    """The ten adolescents and ten adults; with `children` also the ten children."""
    text = (Path(__file__).parent / "tables" / "type1_patients.csv").read_text()
    rows = [row for row in csv.DictReader(text.splitlines()) if children or not row["name"].startswith("child")]
    columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0] if name != "name"}
    rest = np.array([columns.pop(name) for name in STATES])
    return Patients(tuple(row["name"] for row in rows), columns, rest)


def draw_meals(rng: np.random.Generator, size: int, *, patients: Patients | None = None) -> Meals:
    """Meals of 30 to 90 g, each of a patient drawn anew, at a glucose of 140 ± 35 mg/dl.

    Patients miscount carbohydrate by a factor with a logarithmic sd of 0.3, and their insulin acts more or less from
    meal to meal (0.2, on Vmx). With these the usual bolus ends below 70 mg/dl after about every tenth meal.
    """
    whom = load_patients() if patients is None else patients
    chosen = whom.take(rng.integers(len(whom.names), size=size))
    chosen.parameters["Vmx"] = chosen.parameters["Vmx"] * np.exp(0.2 * rng.normal(size=size))
    carbohydrate = rng.uniform(30.0, 90.0, size)
    glucose = np.clip(rng.normal(140.0, 35.0, size), 75.0, 260.0)
    return Meals(chosen, glucose, carbohydrate, carbohydrate * np.exp(0.3 * rng.normal(size=size)))


def at_glucose(patients: Patients, glucose: Array | float) -> Array:
    """The state of a patient at rest whose glucose (mg/dl) is not the usual one: all glucose is scaled alike."""
    state = patients.rest.copy()
    usual = state[3] / patients.parameters["Vg"]
    for name in ("plasma_glucose", "tissue_glucose", "sensor_glucose"):
        state[STATES.index(name)] *= glucose / usual
    return state


def protocol_dose(patients: Patients, carbohydrate: Array, glucose: Array, *, target: float = 140.0) -> Array:
    """The usual bolus in units: carbohydrate over the carbohydrate ratio, plus a correction above 150 mg/dl.

    A target of 140 mg/dl and the limit of 150 are those of the basal-bolus controller in `simglucose`.
    """
    own = patients.parameters
    correction = np.where(glucose > 150.0, (glucose - target) / own["correction_factor"], 0.0)
    return carbohydrate / own["carb_ratio"] + correction


def glucose_after(patients: Patients, start: Array, carbohydrate: Array, bolus: Array, *, minutes: int) -> Array:
    """Subcutaneous glucose in mg/dl at every minute after a meal, the start included: (minutes + 1, meals).

    Insulin and solid food obey linear equations, which are solved exactly; the rest is integrated by Runge-Kutta steps
    of order four, small ones while the stomach is filled and begins to empty. Relative errors are a few in a million.

    Args:
        patients: who eats, one for each meal.
        start: the state before the meal (`Patients.rest` or `at_glucose`).
        carbohydrate: grams, eaten at 5 g a minute from minute 0 on.
        bolus: units of insulin, injected within the first minute, on top of the basal rate.
        minutes: how long to follow.
    """
    require(minutes >= 1, "minutes", minutes, "must be at least 1")
    own, left, eaten = patients.parameters, np.asarray(carbohydrate, dtype=np.float64), np.zeros(start.shape[1:])
    body = _Body(own, start, np.asarray(bolus) * 6000.0 / own["BW"])
    held, trace = start[0] + start[1], np.empty((minutes + 1, *start.shape[1:]))
    trace[0] = start[12] / own["Vg"]
    for minute in range(minutes):
        eating = np.minimum(EATING, left)
        left, eaten = left - eating, eaten + eating
        body.live(minute, 1000.0 * eating, held + 1000.0 * eaten)
        trace[minute + 1] = body.state[4] / own["Vg"]
    return trace


def eat(patients: Patients, start: Array, carbohydrate: Array, bolus: Array, *, minutes: int = 360) -> Meal:
    """The lowest glucose from an hour after a meal on, and the share of all the time between 70 and 180 mg/dl."""
    require(minutes > ACTING, "minutes", minutes, f"must be above {ACTING}, when a bolus begins to act")
    trace = glucose_after(patients, start, carbohydrate, bolus, minutes=minutes)
    return Meal(trace[ACTING:].min(axis=0), ((trace >= 70.0) & (trace <= 180.0))[1:].mean(axis=0))


class _Body:
    """Patients at one moment. `state` holds liquid food, food in the gut, plasma, tissue and sensor glucose; `insulin`
    the seven amounts of insulin and a constant 1, (meals, 8, 1).
    """

    def __init__(self, own: dict[str, Array], start: Array, bolus: Array) -> None:
        self.own, self.solid, self.state = own, start[0], start[[1, 2, 3, 4, 12]]
        self.insulin = np.concatenate([start[5:12], np.ones((1, len(bolus)))]).T[..., None]
        basal = _insulin_matrix(own, own["u2ss"])
        self.first, self.later = (
            _insulin_matrix(own, own["u2ss"] + bolus),
            {n: expm(basal / (2 * n)) for n in (FINE, 1)},
        )
        self.appears = own["f"] * own["kabs"] / own["BW"]

    def live(self, minute: int, eating: Array, meal: Array) -> None:
        """One minute with constant inputs in mg; `meal` is D, all that the stomach has held of this meal."""
        own, steps = self.own, FINE if minute < FINE_MINUTES else 1
        half = expm(self.first / (2 * steps)) if minute == 0 else self.later[steps]
        food = _Food(own, meal)
        full, kept = eating / own["kmax"], np.exp(-own["kmax"] / (2 * steps))
        for _ in range(steps):
            moments = [self._inputs()]
            for _ in range(2):
                self.insulin, self.solid = half @ self.insulin, full + (self.solid - full) * kept
                moments.append(self._inputs())
            self._step(food, moments, 1.0 / steps)

    def _inputs(self) -> tuple[Array, Array, Array]:
        """Solid food, the fastest use of glucose in tissue, and what the liver makes without glucose."""
        own, (action, delayed) = self.own, (self.insulin[:, 1, 0], self.insulin[:, 3, 0])
        return self.solid, own["Vm0"] + own["Vmx"] * action, own["kp1"] - own["kp3"] * delayed

    def _step(self, food: _Food, moments: list[tuple[Array, Array, Array]], size: float) -> None:
        """The classical Runge-Kutta method, with inputs known at the beginning, the middle and the end."""
        begin, middle, end = moments
        first = self._slope(self.state, food, *begin)
        second = self._slope(self.state + 0.5 * size * first, food, *middle)
        third = self._slope(self.state + 0.5 * size * second, food, *middle)
        fourth = self._slope(self.state + size * third, food, *end)
        self.state = self.state + size / 6.0 * (first + 2.0 * (second + third) + fourth)

    def _slope(self, state: Array, food: _Food, solid: Array, fastest: Array, made: Array) -> Array:
        own, (liquid, gut, plasma, tissue, sensor), change = self.own, state, np.empty_like(state)
        leaving = food.emptying(solid + liquid) * liquid
        change[0] = own["kmax"] * solid - leaving
        change[1] = leaving - own["kabs"] * gut
        exchanged = own["k1"] * plasma - own["k2"] * tissue
        made = np.maximum(made - own["kp2"] * plasma, 0.0)
        excreted = own["ke1"] * np.maximum(plasma - own["ke2"], 0.0)
        change[2] = made + self.appears * gut - own["Fsnc"] - excreted - exchanged
        change[3] = exchanged - fastest * tissue / (own["Km0"] + tissue)
        change[4] = own["ksc"] * (plasma - sensor)
        # The package stops an amount that has fallen below zero; plasma glucose gets there after a vast overdose only.
        if state[2:4].min() < 0.0:
            change[2:4] = np.where(state[2:4] >= 0.0, change[2:4], 0.0)
        return change


class _Food:
    """How fast the stomach empties, 1/min, with this much food: fastest when full or nearly empty."""

    def __init__(self, own: dict[str, Array], meal: Array) -> None:
        size = np.where(meal > 0.0, meal, 1.0)
        self.steep = np.stack([2.5 / (size * (1.0 - own["b"])), 2.5 / (size * own["d"])])
        self.shift = np.stack([2.5 * own["b"] / (1.0 - own["b"]), np.full_like(size, 2.5)])
        fasting = meal <= 0.0
        self.half = np.where(fasting, 0.0, 0.5 * (own["kmax"] - own["kmin"]))
        self.least = np.where(fasting, own["kmax"], own["kmin"]) + 2.0 * self.half

    def emptying(self, held: Array) -> Array:
        rising, falling = np.tanh(self.steep * held - self.shift)
        return self.least + self.half * (rising - falling)


def _insulin_matrix(own: dict[str, Array], injected: Array) -> Array:
    """M of (insulin, 1)' = M(insulin, 1): plasma, action, two delays, liver, two depots; `injected` in pmol/kg/min."""
    matrix = np.zeros((len(injected), 8, 8))
    rows = {
        0: {0: -(own["m2"] + own["m4"]), 4: own["m1"], 5: own["ka1"], 6: own["ka2"]},
        1: {0: own["p2u"] / own["Vi"], 1: -own["p2u"], 7: -own["p2u"] * own["Ib"]},
        2: {0: own["ki"] / own["Vi"], 2: -own["ki"]},
        3: {2: own["ki"], 3: -own["ki"]},
        4: {0: own["m2"], 4: -(own["m1"] + own["m30"])},
        5: {5: -(own["ka1"] + own["kd"]), 7: injected},
        6: {5: own["kd"], 6: -own["ka2"]},
    }
    for row, entries in rows.items():
        for column, value in entries.items():
            matrix[:, row, column] = value
    return matrix
