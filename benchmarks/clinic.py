"""`python -m benchmarks.clinic [vancomycin] [insulin]`: HP-Shield on two clinical simulators, beside other ways.

600 rounds, δ = .05, one agent for each stream of patients or meals; every way to dose gets the same patients. HP-Shield
starts at a quarter of the protocol's dose. "exceeded" is the share of rounds with a trough above 20 mg/l, or a glucose
below 70 mg/dl in the second to sixth hour; "benefit" is the share with an exposure of at least 400 mg·h/l, or the share
of six hours between 70 and 180 mg/dl. ± is the standard error over streams.

HP-Probe and HP-Conformal turn a multiple of the protocol's dose, from 0 to 2. HP-Probe is given constants of its own
patients in advance; HP-Conformal starts at the same quarter. The last lines say what could be reached at all: the
protocol, or a log-linear rule, at the multiple that exceeds in exactly 5 % of a large sample.

Vancomycin takes a minute, insulin three on a free core, most of it for the meals.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.worlds import insulin
from safedial import Agent, Dial, Features, SafetySpec, growth, make_policy
from safedial.simulation import dose_response

Array = NDArray[np.float64]

ROUNDS, RISK, START = 600, 0.05, 0.25
HIGHEST = 2.0
"""The largest multiple of the protocol's dose that peers may give."""


class Clinic(NamedTuple):
    """Patients in their order: raw contexts (rounds, streams, features) and the protocol's doses (rounds, streams).

    `treat(round, doses)` gives costs and benefits of doses (ways, streams). Peers bound `share(cost)`, which may be 1
    and has a known baseline.
    """

    name: str
    dial: Dial
    features: Features
    spec: SafetySpec
    options: dict[str, Any]
    context: Array
    protocol: Array
    treat: Callable[[int, Array], tuple[Array, Any]]
    share: Callable[[Array], Array]
    baseline: Array

    @property
    def streams(self) -> int:
        return self.protocol.shape[1]

    def exceeded(self, cost: Array) -> NDArray[np.bool_]:
        return cost < self.spec.threshold if self.options.get("direction") == "below" else cost > self.spec.threshold


def ward(streams: int, seed: int = 5) -> Clinic:
    """Vancomycin: the daily dose in mg, its trough and its exposure."""
    everyone = dose_response.draw_patients(np.random.default_rng(seed), ROUNDS * streams)
    grid = {name: each.reshape(*each.shape[:-1], ROUNDS, streams) for name, each in everyone._asdict().items()}
    protocol = dose_response.protocol_dose(everyone).reshape(ROUNDS, streams)
    columns = [protocol, *(np.log(part) for part in (protocol, grid["weight"], grid["creatinine_clearance"]))]

    def treat(step: int, doses: Array) -> tuple[Array, Any]:
        now = dose_response.Patients(**{name: each[..., step, :] for name, each in grid.items()})
        return dose_response.measured_trough(now, doses), dose_response.exposure(now, doses) >= 400.0

    names = ("rule", "log_rule", "log_weight", "log_clearance")
    return Clinic(
        "Vancomycin",
        Dial(high=4000, unit="mg"),
        Features(names=names, center=(2000, 7.6, 4.3, 4.4), scale=(600, 0.3, 0.2, 0.4)),
        SafetySpec(threshold=20, violation_risk=RISK, guarantee="bracket"),
        {"base": "rule", "growth": growth.relative(0.7, 1.4, floor=0.5)},
        np.stack(columns, axis=-1),
        protocol,
        treat,
        lambda trough: trough / 20.0,
        np.zeros((ROUNDS, streams)),
    )


def table(streams: int, seed: int = 6) -> Clinic:
    """Meal insulin: the bolus in units, the lowest glucose and the time in range."""
    meals = insulin.draw_meals(np.random.default_rng(seed), ROUNDS * streams)
    own, protocol = meals.patients.parameters, meals.protocol_dose
    columns = (protocol, 1.2 * own["correction_factor"], np.log(protocol), meals.glucose, np.log(meals.counted))
    columns = [each.reshape(ROUNDS, streams) for each in (*columns, np.log(own["correction_factor"]))]

    def treat(step: int, doses: Array) -> tuple[Array, Array]:
        whom = np.tile(np.arange(step * streams, (step + 1) * streams), len(doses))
        now = insulin.Meals(meals.patients.take(whom), *(each[whom] for each in meals[1:]))
        eaten = now.eat(doses.ravel())
        return eaten.lowest.reshape(doses.shape), eaten.time_in_range.reshape(doses.shape)

    names = ("rule", "steepest", "log_rule", "glucose", "log_carbohydrate", "log_factor")
    return Clinic(
        "Meal insulin",
        Dial(high=30, unit="U"),
        Features(names=names, center=(7, 25, 1.8, 140, 4, 3), scale=(4, 10, 0.5, 35, 0.4, 0.4)),
        SafetySpec(threshold=70, violation_risk=RISK, guarantee="bracket"),
        {"base": "rule", "growth": growth.additive(4, "steepest"), "direction": "below"},
        np.stack(columns, axis=-1),
        protocol.reshape(ROUNDS, streams),
        treat,
        lambda lowest: (300.0 - lowest) / 230.0,
        ((300.0 - meals.glucose) / 230.0).reshape(ROUNDS, streams),
    )


class Way:
    """One way to dose: HP-Shield. `lost` is the share of outcomes that are missing for reasons that are vouched for."""

    def __init__(self, clinic: Clinic, *, learned: bool, lost: float = 0.0, seed: int = 0) -> None:
        policy = make_policy("hp_shield", start_scale=START, learned=learned, **clinic.options)
        self.clinic, self.lost, self.rng = clinic, lost, np.random.default_rng(seed)
        dimension = len(clinic.features.names)
        self.agents = [
            Agent(dimension, clinic.spec, policy=policy, dial=clinic.dial, features=clinic.features)
            for _ in range(clinic.streams)
        ]

    def doses(self, step: int) -> Array:
        self.decisions = [agent.ask(row) for agent, row in zip(self.agents, self.clinic.context[step], strict=True)]
        return np.array([decision.action for decision in self.decisions])

    def tell(self, step: int, cost: Array) -> None:
        for agent, decision, each in zip(self.agents, self.decisions, cost, strict=True):
            if self.rng.random() < self.lost:
                agent.tell(decision, applied_action=0, reward=0.0, cost=0.0, unrelated=True)
            else:
                agent.tell(decision, reward=0.0, cost=float(each))


class Peer(Way):
    """HP-Probe or HP-Conformal, which turn a multiple of the protocol's dose."""

    def __init__(self, clinic: Clinic, spec: SafetySpec, context: Array, **options: Any) -> None:
        self.clinic, self.context = clinic, context
        self.agents = [
            Agent(context.shape[-1], spec, dial=Dial(high=HIGHEST), **options) for _ in range(clinic.streams)
        ]

    def doses(self, step: int) -> Array:
        asked = zip(self.agents, self.context[step], self.clinic.baseline[step], strict=True)
        self.decisions = [agent.ask(row, baseline_cost=float(base)) for agent, row, base in asked]
        multiples = np.array([decision.action for decision in self.decisions])
        return np.minimum(multiples * self.clinic.protocol[step], self.clinic.dial.high)

    def tell(self, step: int, cost: Array) -> None:
        shares = np.maximum(self.clinic.share(cost), self.clinic.baseline[step])
        for agent, decision, each in zip(self.agents, self.decisions, shares, strict=True):
            agent.tell(decision, reward=decision.action, cost=float(each))
            if agent.stop_reason:  # broken assumptions: here it goes on regardless
                agent.resume()


class Rule:
    """The clinician's rule, or a share of it."""

    def __init__(self, clinic: Clinic, share: float) -> None:
        self.protocol, self.share = clinic.protocol, share

    def doses(self, step: int) -> Array:
        return self.share * self.protocol[step]

    def tell(self, step: int, cost: Array) -> None:
        """It learns nothing."""


def peers(clinic: Clinic) -> dict[str, Peer]:
    """Their contexts are scaled into the unit ball; HP-Probe's constants, for the whole dial, come from 20 rounds at
    the protocol's dose.
    """
    features: Any = clinic.features
    rows = (clinic.context - features.center) / features.scale
    rows = np.concatenate([np.ones((*rows.shape[:-1], 1)), rows], axis=-1)
    rows /= np.linalg.norm(rows, axis=-1).max()
    steps = range(0, ROUNDS, ROUNDS // 20)
    cost = np.concatenate([clinic.treat(step, clinic.protocol[step][None])[0][0] for step in steps])
    beyond = HIGHEST * np.maximum(clinic.share(cost) - np.concatenate([clinic.baseline[step] for step in steps]), 0.0)
    seen = np.concatenate([rows[step] for step in steps])
    coef = np.linalg.lstsq(seen, beyond, rcond=None)[0]
    constants: dict[str, Any] = {
        "cost_noise": float(np.std(beyond - seen @ coef)),
        "coefficient_bound": float(np.linalg.norm(coef)),
    }
    constants |= {"violation_risk": 0.9 * RISK, "estimation_risk": 0.1 * RISK}
    certified = SafetySpec(threshold=1, reward_noise=0.01, context_bound=1, **constants)
    conformal = SafetySpec(threshold=1, violation_risk=RISK, guarantee="conformal")
    return {
        "HP-Probe": Peer(clinic, certified, rows),
        "HP-Conformal": Peer(clinic, conformal, rows, start_action=START),
    }


def play(clinic: Clinic) -> None:
    ways: dict[str, Any] = {
        f"HP-Shield, {'learned' if learned else 'protocol'} base{', 10 % missing' if lost else ''}": Way(
            clinic, learned=learned, lost=lost
        )
        for lost in (0.0, 0.1)
        for learned in (False, True)
    }
    ways |= peers(clinic) | {"the clinician's rule": Rule(clinic, 1.0), "the rule x 0.8": Rule(clinic, 0.8)}
    excess, benefit = np.empty((2, ROUNDS, len(ways), clinic.streams))
    began = time.monotonic()
    for step in range(ROUNDS):
        cost, benefit[step] = clinic.treat(step, np.array([way.doses(step) for way in ways.values()]))
        excess[step] = clinic.exceeded(cost)
        for way, each in zip(ways.values(), cost, strict=True):
            way.tell(step, each)
        if step % 50 == 49:
            print(f"{clinic.name}: round {step + 1}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(f"\n{clinic.name}, {clinic.streams} streams")
    print(f"  {'':39}  exceeded, %    benefit over all    rounds 40-80   last 200   exceeded in the last 200, %")
    for place, name in enumerate(ways):
        over, good = excess[:, place].mean(axis=0), benefit[:, place].mean(axis=0)
        error = [float(np.std(each, ddof=1) / np.sqrt(clinic.streams)) for each in (over, good)]
        early, late = benefit[40:80, place].mean(), benefit[400:, place].mean()
        print(
            f"  {name:39}  {100 * over.mean():4.1f} ± {100 * error[0]:.1f}     {good.mean():.3f} ± {error[1]:.3f}"
            f"       {early:.3f}          {late:.3f}      {100 * excess[400:, place].mean():.1f}"
        )


def ward_limits(size: int = 200_000) -> None:
    """A round's tolerated dose is known exactly here, so a rule's best multiple is the 5 % quantile of dose / rule."""
    patients = dose_response.draw_patients(np.random.default_rng(7), size)
    relative, absolute = patients.errors
    unit = dose_response.concentration(patients, 1.0, dose_response.BEFORE_FIFTH)
    slope = unit * np.maximum(1.0 + dose_response.RELATIVE_ERROR * relative, 1e-9)
    tolerated = (20.0 - dose_response.ABSOLUTE_ERROR * absolute) / slope
    rows = np.stack([np.ones(size), np.log(patients.weight), np.log(patients.creatinine_clearance)], axis=-1)
    fitted = np.exp(rows @ np.linalg.lstsq(rows, np.log(tolerated), rcond=None)[0])
    rules = {"protocol": dose_response.protocol_dose(patients), "log-linear in weight and clearance": fitted}
    print("  Limits: reached by a rule at the multiple that exceeds in 5 %")
    for name, dose in rules.items():
        best = np.quantile(tolerated / dose, RISK) * dose
        print(f"  {name:39}  {np.mean(dose_response.exposure(patients, best) >= 400.0):.3f}")


def table_limits(size: int = 1000) -> None:
    meals = insulin.draw_meals(np.random.default_rng(8), size)
    print("  Limits: the protocol's dose times one number for all")
    for share in (0.5, 0.6, 0.7, 0.8, 0.9):
        eaten = meals.eat(share * meals.protocol_dose)
        low = 100 * float(np.mean(eaten.lowest < 70.0))
        print(f"  {share:<39}  {low:.1f} %        {eaten.time_in_range.mean():.3f}", flush=True)


if __name__ == "__main__":
    asked = sys.argv[1:] or ["vancomycin", "insulin"]
    if "vancomycin" in asked:
        play(ward(streams=40))
        ward_limits()
    if "insulin" in asked:
        play(table(streams=20))
        table_limits()
