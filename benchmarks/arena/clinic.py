"""Two clinical simulators in the arena. The dial turns a multiple of the protocol's dose: 1 is twice that dose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.arena.arena_world import ArenaWorld, Array, Outcome, nothing
from benchmarks.worlds import insulin
from safedial.model.brackets import additive, relative
from safedial.simulation import dose_response

HIGHEST = 2.0
"""The largest multiple of the protocol's dose."""
ENOUGH, ONE_DOSE = 400.0, 1450.0
"""mg·h/l of vancomycin that are wanted, and mg a day for everybody."""
CLIPPED = 3.0
"""Standardised features end here."""


def standardised(columns: Sequence[tuple[Array, float, float]]) -> Array:
    """An intercept, and (values − centre)/scale of each column, within ± `CLIPPED`."""
    rows = [np.clip((values - centre) / scale, -CLIPPED, CLIPPED) for values, centre, scale in columns]
    return np.stack([np.ones_like(rows[0]), *rows], axis=-1)


def bound(features: int) -> float:
    """The largest norm of `standardised` rows."""
    return float(np.sqrt(1.0 + features * CLIPPED**2))


class Rounds:
    """Rounds known in advance, arrays (rounds, seeds): the place in them, and what is known before each."""

    def __init__(self, context: Array, stated: dict[str, Array], *, baseline: Array | None = None) -> None:
        self.contexts, self.place, seeds = context, 0, context.shape[1]
        self._baseline, self._stated = baseline, stated
        self.protocol = np.full(seeds, 1.0 / HIGHEST)
        self.baseline = nothing(seeds)
        self.show()

    def show(self) -> None:
        now = min(self.place, len(self.contexts) - 1)
        self.context = self.contexts[now]
        self.stated: dict[str, Any] = {name: values[now] for name, values in self._stated.items()}
        if self._baseline is not None:
            self.baseline = self._baseline[now]

    def next(self) -> None:
        self.place += 1
        self.show()


class Ward(Rounds):
    """Vancomycin: daily doses, troughs and exposures."""

    def __init__(self, seeds: list[int], rounds: int) -> None:
        each = [dose_response.draw_patients(np.random.default_rng([seed, 5]), rounds)._asdict() for seed in seeds]
        self.patients = {name: np.stack([one[name] for one in each], axis=-1) for name in each[0]}
        everyone = dose_response.Patients(**self.patients)
        self.doses = dose_response.protocol_dose(everyone)
        columns = ((np.log(self.doses), 7.6, 0.3), (np.log(everyone.weight), 4.3, 0.2))
        context = standardised((*columns, (np.log(everyone.creatinine_clearance), 4.4, 0.4)))
        super().__init__(context, {"one_dose": np.minimum(ONE_DOSE / HIGHEST / self.doses, 1.0)})

    def act(self, setting: Array) -> Outcome:
        now: Any = dose_response.Patients(**{name: each[..., self.place, :] for name, each in self.patients.items()})
        dose = HIGHEST * setting * self.doses[self.place]
        trough, enough = dose_response.measured_trough(now, dose), dose_response.exposure(now, dose) >= ENOUGH
        self.next()
        return Outcome(enough.astype(float), trough, enough.astype(float))


class Table(Rounds):
    """Meal insulin: boluses, the lowest glucose after them and the time in range."""

    def __init__(self, seeds: list[int], rounds: int) -> None:
        each = [served(seed, rounds) for seed in seeds]
        glucose, counted, factor, doses = (
            np.stack(part, axis=-1) for part in zip(*(one[0] for one in each), strict=True)
        )
        self.responses = np.stack([one[1] for one in each], axis=1)
        columns = ((np.log(doses), 1.8, 0.5), (glucose, 140.0, 35.0), (np.log(counted), 4.0, 0.4))
        context = standardised((*columns, (np.log(factor), 3.0, 0.4)))
        slopes = HIGHEST * doses / FALL
        stated = {"least_fall": 4.0 * slopes, "steepest_fall": 1.2 * factor * slopes}
        super().__init__(context, stated, baseline=fallen(glucose))

    def act(self, setting: Array) -> Outcome:
        place = np.clip(setting, 0.0, 1.0) * (GRID - 1)
        below = np.minimum(place.astype(int), GRID - 2)
        seed, now = np.arange(len(place)), self.responses[self.place]
        low, high = now[seed, below], now[seed, below + 1]
        lowest, in_range = (low + (place - below)[:, None] * (high - low)).T
        self.next()
        return Outcome(in_range, fallen(lowest), in_range)


GRID = 33
"""Settings at which each meal is simulated, once for all policies; between them its outcomes are interpolated."""


@lru_cache(maxsize=64)
def served(seed: int, rounds: int) -> tuple[tuple[Array, ...], Array]:
    """The meals of a seed, (glucose, counted, correction factor, protocol's dose), and their responses: lowest glucose
    and time in range, (rounds, settings, 2).
    """
    meals = insulin.draw_meals(np.random.default_rng([seed, 6]), rounds)
    doses = meals.protocol_dose
    whom, settings = np.repeat(np.arange(rounds), GRID), np.tile(np.linspace(0.0, HIGHEST, GRID), rounds)
    every = insulin.Meals(meals.patients.take(whom), *(each[whom] for each in meals[1:]))
    eaten = every.eat(settings * doses[whom])
    responses = np.stack([eaten.lowest, eaten.time_in_range], axis=-1).reshape(rounds, GRID, 2)
    return (meals.glucose, meals.counted, meals.patients.parameters["correction_factor"], doses), responses


FALL = 230.0
"""mg/dl from 300 to 70: a cost of 1."""


def fallen(glucose: Array) -> Array:
    """How far glucose lies below 300 mg/dl; 1 is 70 mg/dl."""
    return (300.0 - glucose) / FALL


def ward(risk: float) -> ArenaWorld:
    return ArenaWorld(
        name="vancomycin",
        dim=4,
        threshold=20.0,
        begin=Ward,
        growth=relative(0.7, 1.4, floor=0.5),
        start_scale=0.25,
        start=0.25 / HIGHEST,
        context_bound=bound(3),
        unit="share with an AUC of 400 or more",
        stated={"one_dose": 0.5},
    )


def table(risk: float) -> ArenaWorld:
    return ArenaWorld(
        name="insulin",
        dim=5,
        threshold=1.0,
        begin=Table,
        growth=additive("least_fall", "steepest_fall"),
        start_scale=0.25,
        start=0.25 / HIGHEST,
        context_bound=bound(4),
        unit="share of six hours in range",
        stated={"least_fall": 0.25, "steepest_fall": 2.0},
    )
