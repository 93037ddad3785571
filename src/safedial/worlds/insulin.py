"""Meal insulin: glucose after one meal and one bolus, in the UVA/Padova model of type-1 diabetes.

The equations are those of Dalla Man, Rizza and Cobelli (IEEE Trans Biomed Eng 2007;54:1740-9) with the
subcutaneous insulin of Kovatchev and colleagues (J Diabetes Sci Technol 2009;3:44-55). The 30 virtual patients in
`tables/type1_patients.csv` have the parameters that the package `simglucose` (J. Xie, MIT licence) distributes in
`vpatient_params.csv` and `Quest.csv`; values unchanged.

Each function works on a batch: every argument is a number or an array, one element for a meal.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    """The ten adolescents and ten adults; with `children` also the ten children.

    >>> patients = load_patients()
    >>> len(patients.names), patients.names[10]
    (20, 'adult#001')
    """
    text = (files("safedial.worlds") / "tables" / "type1_patients.csv").read_text()
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


def glucose_after(
    patients: Patients, start: Array, carbohydrate: Array, bolus: Array, *, minutes: int, steps: int = 2
) -> Array:
    """Subcutaneous glucose in mg/dl at every minute after a meal, the start included: (minutes + 1, meals).

    Args:
        patients: who eats, one for each meal.
        start: the state before the meal (`Patients.rest` or `at_glucose`).
        carbohydrate: grams, eaten at 5 g a minute from minute 0 on.
        bolus: units of insulin, injected within the first minute, on top of the basal rate.
        minutes: how long to follow.
        steps: Runge-Kutta steps of order four in a minute.
    """
    require(minutes >= 1, "minutes", minutes, "must be at least 1")
    own = patients.parameters
    state, left, eaten = start.copy(), np.asarray(carbohydrate, dtype=np.float64), np.zeros(start.shape[1:])
    held = start[0] + start[1]
    trace = np.empty((minutes + 1, *start.shape[1:]))
    trace[0] = state[12] / own["Vg"]
    for minute in range(minutes):
        eating = np.minimum(EATING, left)
        left, eaten = left - eating, eaten + eating
        rate = own["u2ss"] + (bolus if minute == 0 else 0.0) * 6000.0 / own["BW"]
        state = _advance(own, state, eating, rate, held + 1000.0 * eaten, steps=steps)
        trace[minute + 1] = state[12] / own["Vg"]
    return trace


def eat(patients: Patients, start: Array, carbohydrate: Array, bolus: Array, *, minutes: int = 360) -> Meal:
    """The lowest glucose after a meal, and the share of the time that it lies between 70 and 180 mg/dl."""
    trace = glucose_after(patients, start, carbohydrate, bolus, minutes=minutes)
    return Meal(trace.min(axis=0), ((trace >= 70.0) & (trace <= 180.0))[1:].mean(axis=0))


def _advance(own: dict[str, Array], state: Array, eating: Array, insulin: Array, meal: Array, *, steps: int) -> Array:
    """One minute with constant inputs, by the classical Runge-Kutta method."""
    size = 1.0 / steps
    for _ in range(steps):
        first = _slope(own, state, eating, insulin, meal)
        second = _slope(own, state + 0.5 * size * first, eating, insulin, meal)
        third = _slope(own, state + 0.5 * size * second, eating, insulin, meal)
        fourth = _slope(own, state + size * third, eating, insulin, meal)
        state = state + size / 6.0 * (first + 2.0 * (second + third) + fourth)
    return state


def _slope(own: dict[str, Array], state: Array, eating: Array, insulin: Array, meal: Array) -> Array:
    """The model's derivative; `meal` is D, all that the stomach has held of this meal, in mg."""
    solid, liquid, gut, plasma, tissue, blood, action, delay_1, delay_2, liver, depot_1, depot_2, sensor = state
    change = np.empty_like(state)
    emptying = _emptying(own, solid + liquid, meal)
    change[0] = 1000.0 * eating - own["kmax"] * solid
    change[1] = own["kmax"] * solid - emptying * liquid
    change[2] = emptying * liquid - own["kabs"] * gut
    appearing = own["f"] * own["kabs"] * gut / own["BW"]
    made = np.maximum(own["kp1"] - own["kp2"] * plasma - own["kp3"] * delay_2, 0.0)
    excreted = own["ke1"] * np.maximum(plasma - own["ke2"], 0.0)
    exchanged = own["k1"] * plasma - own["k2"] * tissue
    used = (own["Vm0"] + own["Vmx"] * action) * tissue / (own["Km0"] + tissue)
    level = blood / own["Vi"]
    change[3] = made + appearing - own["Fsnc"] - excreted - exchanged
    change[4] = exchanged - used
    absorbed = own["ka1"] * depot_1 + own["ka2"] * depot_2
    change[5] = own["m1"] * liver + absorbed - (own["m2"] + own["m4"]) * blood
    change[6] = own["p2u"] * (level - own["Ib"] - action)
    change[7] = own["ki"] * (level - delay_1)
    change[8] = own["ki"] * (delay_1 - delay_2)
    change[9] = own["m2"] * blood - (own["m1"] + own["m30"]) * liver
    change[10] = insulin - (own["ka1"] + own["kd"]) * depot_1
    change[11] = own["kd"] * depot_1 - own["ka2"] * depot_2
    change[12] = own["ksc"] * (plasma - sensor)
    # The package stops an amount that has fallen below zero; plasma glucose gets there after a vast overdose only.
    for amount in (3, 4):
        change[amount] = np.where(state[amount] >= 0.0, change[amount], 0.0)
    return change


def _emptying(own: dict[str, Array], held: Array, meal: Array) -> Array:
    """How fast the stomach empties, 1/min: fastest when full or nearly empty."""
    size = np.where(meal > 0.0, meal, 1.0)
    rising = np.tanh(2.5 / (size * (1.0 - own["b"])) * (held - own["b"] * size))
    falling = np.tanh(2.5 / (size * own["d"]) * (held - own["d"] * size))
    rate = own["kmin"] + 0.5 * (own["kmax"] - own["kmin"]) * (rising - falling + 2.0)
    return np.where(meal > 0.0, rate, own["kmax"])
