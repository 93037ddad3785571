"""A simulated battery: NASA's electrochemistry simulator responds to the chosen current with heat that carries over.

One round is a discharge step of `step_seconds`. The dial α in [0, 1] sets the step's current, α·`largest_current`.

    reward   price · energy delivered (units of `ENERGY` J) + meter noise      price in [−½, 1], known before the step
    cost     temperature above ambient at the step's end (units of `HEAT` °C) + sensor noise
    context  (1, price, state of charge, voltage, temperature above ambient, last load)/√6, each within [−1, 1]

The temperature at the end of a step is the one to limit: it moves towards its steady state and does not overshoot,
so the highest of a step is at one of its ends. Near the end of discharge the cell is exchanged for a full one, with its
own resistance, capacity and ambient temperature, which no feature shows: a new episode.

No linear model is exact here. Joule heat grows as the square of the current; heat from the last step is still there
(`carry_over` says how much, from the cooling constant alone); cells differ; and the context depends on earlier advice.

The simulator is `progpy`'s BatteryElectroChemEOD (Daigle and Kulkarni 2013), in Euler steps of `TICK` s; its noise is
off, all randomness is keyed by (seed, stream) here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TICK = 5.0
"""Seconds; the ohmic drop settles with a constant of 6 s, and 1-second steps differ by 0.04 °C at most."""

COOLING = 100.0
"""Seconds: the simulator's constant of cooling towards the ambient temperature."""

HEAT = 10.0
"""°C in one unit of cost."""

ENERGY = 2000.0
"""J in one unit of reward: about what the largest current delivers in 120 s, with room."""

CHARGE = 7600.0
"""C: the capacity that the state-of-charge estimate assumes for every cell."""

FEATURES = ("intercept", "price", "charge", "voltage", "warmth", "last_load")
STREAMS = ("cell", "price", "reward_sensor", "cost_sensor")


class Step(NamedTuple):
    """The result of one step. `true_cost` is the cost without sensor error; `cell` counts exchanged cells."""

    reward: float
    cost: float
    true_cost: float
    energy: float
    voltage: float
    cell: int


@dataclass(frozen=True, kw_only=True)
class BatteryWorld:
    """The cells, the load and the sensors.

    Args:
        step_seconds: the length of a round; a whole number of ticks of 5 s.
        largest_current: A, the current at the dial's end; from 0.1 to 8.
        ambient: °C, the range that each cell's ambient temperature is drawn from.
        resistance: the range of each cell's ohmic resistance, relative to the simulator's own.
        capacity: the range of each cell's capacity, relative to the simulator's own.
        temperature_noise: °C, the standard deviation of the thermometer's Gaussian error.
        energy_noise: J, that of the energy meter.
    """

    step_seconds: float = 120.0
    largest_current: float = 4.0
    ambient: tuple[float, float] = (10.0, 35.0)
    resistance: tuple[float, float] = (0.9, 1.2)
    capacity: tuple[float, float] = (0.9, 1.0)
    temperature_noise: float = 0.1
    energy_noise: float = 20.0

    @property
    def dim(self) -> int:
        return len(FEATURES)

    def start(self, seed: int) -> Battery:
        """A full cell, with all randomness from `seed`."""
        return Battery(self, seed)


class Battery:
    """A cell that is being discharged. `context` is known before a step; `step` runs it."""

    def __init__(self, world: BatteryWorld, seed: int) -> None:
        from progpy.models import BatteryElectroChemEOD  # here: it takes seconds, and most of the arena does without

        self.world, self.cell = world, 0
        self._make: Any = BatteryElectroChemEOD
        self._rngs = {name: np.random.default_rng([seed, number]) for number, name in enumerate(STREAMS)}
        self._insert()
        self._price = self._draw_price()

    @property
    def context(self) -> Array:
        """The features, normalised: ‖x‖ ≤ 1."""
        features = (1.0, self._price, self._charge, self._voltage - 3.5, self._warmth, self._load)
        return np.clip(features, -1.0, 1.0) * (1.0 - 1e-12) / math.sqrt(len(FEATURES))

    @property
    def carry_over(self) -> float:
        """The cost that this step would have without any current, from the thermometer and the cooling constant."""
        return self._warmth * math.exp(-self.world.step_seconds / COOLING)

    def step(self, action: float) -> Step:
        """Discharge at `action` in [0, 1] of the largest current; if the cell is exhausted, the load is cut."""
        current = action * self.world.largest_current
        energy, drawn = self._discharge(current)
        true_cost = (_number(self._state["tb"]) - self._ambient) / HEAT
        cost = true_cost + self._error("cost_sensor", self.world.temperature_noise / HEAT)
        reward = self._price * energy / ENERGY + self._error("reward_sensor", self.world.energy_noise / ENERGY)
        self._charge -= drawn / CHARGE
        self._warmth, self._load = cost, action
        done = Step(reward, cost, true_cost, energy, self._voltage, self.cell)
        if self._spent or self._voltage < self._low or self._charge < 0.05:
            self._insert()
        self._price = self._draw_price()
        return done

    def _discharge(self, current: float) -> tuple[float, float]:
        """(J delivered, C drawn) in one step."""
        model, energy, drawn = self._model, 0.0, 0.0
        for _ in range(round(self.world.step_seconds / TICK)):
            after = self._after(current)
            if current and (self._voltage < self._cut or not self._inside(after)):
                current, self._spent = 0.0, True
                after = self._after(current)
            self._state = after
            if current:
                self._voltage = _number(model.output(after)["v"])
                energy += self._voltage * current * TICK
                drawn += current * TICK
        self._voltage = _number(model.output(self._state)["v"])
        return energy, drawn

    def _after(self, current: float) -> Any:
        """The cell's state a tick later."""
        return self._model.next_state(self._state, self._model.InputContainer({"i": current}), TICK)

    def _inside(self, state: Any) -> bool:
        """Whether both electrodes can still give and take ions; otherwise the equations break down."""
        return all(0.0 < _number(state[name]) < self._surface for name in ("qnS", "qpS"))

    def _insert(self) -> None:
        """A full cell at its ambient temperature."""
        world, draw = self.world, self._rngs["cell"].uniform
        self._ambient = 273.15 + draw(*world.ambient)
        defaults = self._make.default_parameters
        start = {"Vo": 0.0, "Vsn": 0.0, "Vsp": 0.0, "tb": self._ambient}
        parts = {"Ro": defaults["Ro"] * draw(*world.resistance), "qMobile": defaults["qMobile"] * draw(*world.capacity)}
        self._model = model = self._make(x0=start, **parts)
        self._cut = float(model.parameters["VEOD"])
        self._surface = float(model.parameters["qSMax"])
        self._low = self._cut + 2.0 * float(model.parameters["VDropoff"])
        self._state = model.initialize()
        self._voltage = _number(model.output(self._state)["v"])
        self._charge, self._warmth, self._load, self._spent = 1.0, 0.0, 0.0, False
        self.cell += 1

    def _draw_price(self) -> float:
        return float(self._rngs["price"].uniform(-0.5, 1.0))

    def _error(self, stream: str, scale: float) -> float:
        return scale * float(self._rngs[stream].standard_normal())


def _number(value: Any) -> float:
    """The simulator returns arrays of one number, or the number itself."""
    return float(np.ravel(value)[0])
