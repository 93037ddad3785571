"""Who plays in the arena: our policies as agents, and rules that learn nothing. Peers are in `peer`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from benchmarks.arena.arena_world import ArenaWorld, Array, Outcome, Stream
from safedial.model.dial import Features
from safedial.model.spec import SafetySpec
from safedial.policies import make_policy
from safedial.rounds.agent import Agent

PILOT_ROUNDS, PILOT_SEED = 300, 10_007
"""A pilot of this many rounds, at random shares of the protocol, gives certified policies their constants."""


class Player(Protocol):
    """Settings of a round, (seeds,), and what came of them."""

    alarms: Array

    def decide(self, stream: Stream) -> Array: ...
    def tell(self, outcome: Outcome) -> None: ...
    def close(self) -> None: ...


class Rule:
    """A rule that learns nothing: a multiple of the protocol's setting, or one amount for everybody."""

    def __init__(self, seeds: int, multiple: float, one_dose: bool = False) -> None:
        self.multiple, self.one_dose, self.alarms = multiple, one_dose, np.zeros(seeds)

    def decide(self, stream: Stream) -> Array:
        usual = stream.stated["one_dose"] if self.one_dose else stream.protocol
        return np.minimum(self.multiple * usual, 1.0)

    def tell(self, outcome: Outcome) -> None:
        """It learns nothing."""

    def close(self) -> None:
        """It holds nothing."""


class Agents:
    """One of our agents for each seed; one that stops, because rounds contradict its assumptions, is counted in
    `alarms` and resumed at once, to see what follows. Where no sign of a reward is to be learned, the setting itself is
    told as the reward, because as much as is safe is wanted; and no cost falls below its baseline where that is known.
    """

    def __init__(self, seeds: int, make: Callable[[], Agent], world: ArenaWorld, *, shield: bool) -> None:
        self.agents, self.world, self.shield = [make() for _ in range(seeds)], world, shield
        self.alarms = np.zeros(seeds)

    def decide(self, stream: Stream) -> Array:
        rows = stream.context
        told: list[dict[str, Any]] = [{}] * len(self.agents)
        if self.shield:
            stated = [stream.protocol, *(stream.stated[name] for name in self.world.stated)]
            rows = np.column_stack([*stated, rows])
        elif np.any(stream.baseline):
            told = [{"baseline_cost": float(each)} for each in stream.baseline]
        asked = zip(self.agents, rows, told, strict=True)
        self.decisions = [agent.ask(row, **given) for agent, row, given in asked]
        return np.array([decision.action for decision in self.decisions])

    def tell(self, outcome: Outcome) -> None:
        results = zip(self.agents, self.decisions, outcome.reward, outcome.cost, strict=True)
        for number, (agent, decision, reward, cost) in enumerate(results):
            told = float(reward), float(cost)
            if not self.world.signed:
                told = decision.action, float(cost if self.shield else max(cost, decision.baseline_cost))
            agent.tell(decision, reward=told[0], cost=told[1])
            if agent.stop_reason:
                self.alarms[number] += 1
                agent.resume()

    def close(self) -> None:
        """They hold nothing but memory."""


def pilot_constants(world: ArenaWorld) -> dict[str, Any]:
    """κ, S and L of certified policies: those that the world states, or least squares of C/g beyond the baseline on
    contexts, over a pilot at random shares of the protocol. Nothing is proved from estimates.
    """
    if world.constants is not None:
        return dict(world.constants)
    rng, stream, seen = np.random.default_rng(PILOT_SEED), world.begin([PILOT_SEED], PILOT_ROUNDS), []
    for _ in range(PILOT_ROUNDS):
        context, baseline = stream.context[0], stream.baseline[0]
        setting = np.minimum(stream.protocol * rng.uniform(0.5, 1.0), 1.0)
        found = stream.act(setting)
        reward, cost = (found.reward[0], found.cost[0]) if world.signed else (setting[0], max(found.cost[0], baseline))
        seen.append((*context, reward / setting[0], (cost - baseline) / setting[0]))
    rows = np.array(seen)
    context, outcomes = rows[:, :-2], rows[:, -2:]
    coef = np.linalg.lstsq(context, outcomes, rcond=None)[0]
    reward_noise, cost_noise = np.maximum(np.std(outcomes - context @ coef, axis=0), 1e-3)
    size = float(np.linalg.norm(coef, axis=0).max())
    noise = {"reward_noise": float(reward_noise), "cost_noise": float(cost_noise)}
    return {**noise, "coefficient_bound": size, "context_bound": world.context_bound}


def certified(world: ArenaWorld, risk: float, options: Mapping[str, Any]) -> Callable[[], Agent]:
    constants = pilot_constants(world)
    risks = {} if "violation_risk" in constants else {"total_risk": risk}
    spec = SafetySpec(threshold=world.threshold, **risks, **constants)
    return _proportional(world, spec, options)


def conformal(world: ArenaWorld, risk: float, options: Mapping[str, Any]) -> Callable[[], Agent]:
    spec = SafetySpec(threshold=world.threshold, violation_risk=risk, guarantee="conformal")
    return _proportional(world, spec, options, world.start)


def student(world: ArenaWorld, risk: float, options: Mapping[str, Any]) -> Callable[[], Agent]:
    spec = SafetySpec(threshold=world.threshold, violation_risk=risk, guarantee="student")
    return _proportional(world, spec, options, world.start)


def _proportional(
    world: ArenaWorld, spec: SafetySpec, options: Mapping[str, Any], start: float | None = None
) -> Callable[[], Agent]:
    given = dict(options)
    policy = make_policy(given.pop("name"), **given)
    ends = (-float("inf"), float("inf"))
    given = {"policy": policy, "dose": world.dose, "baseline_range": ends, "fallback_action": world.start}
    return lambda: Agent(world.dim, spec, start_action=start, **given)


def shield(world: ArenaWorld, risk: float, options: Mapping[str, Any]) -> Callable[[], Agent]:
    """HP-Shield's base is the protocol; the sign of the reward is learned where it matters."""
    names = ("protocol", *world.stated, *(f"x{number}" for number in range(world.dim)))
    scale = (1.0, *world.stated.values(), *[1.0] * world.dim)
    given = {"growth": world.growth, "start_scale": world.start_scale, **options}
    given |= {"chooser": "sign"} if world.signed else {}
    given.pop("name")
    policy = make_policy("hp_shield", base="protocol", **given)
    spec = SafetySpec(threshold=world.threshold, violation_risk=risk, guarantee="bracket")
    features = Features(names=names, scale=scale)
    return lambda: Agent(len(names), spec, policy=policy, features=features)


OURS: dict[str, tuple[Callable[..., Callable[[], Agent]], dict[str, Any]]] = {
    "HP-Shield": (shield, {"name": "hp_shield"}),
    "HP-Shield, learned": (shield, {"name": "hp_shield", "learned": True}),
    "HP-Shield, adaptive": (shield, {"name": "hp_shield", "learned": True, "adapt": 0.05}),
    "HP-Probe": (certified, {"name": "hp_probe"}),
    "HP-UCB": (certified, {"name": "hp_ucb"}),
    "HP-Conformal": (conformal, {"name": "hp_conformal"}),
    "HP-Student": (student, {"name": "hp_student"}),
}
"""Our policies: how an agent is made from what a world states, and the policy's options."""

PRINTED = {"HP-UCB, as printed": (certified, {"name": "hp_ucb", "radius": "paper"})}
"""The paper's Algorithm 1 to the letter, for the paper's preset."""

UNGUARANTEED: dict[str, tuple[Callable[..., Callable[[], Agent]], dict[str, Any]]] = {
    "expected cost (on_expectation)": (certified, {"name": "on_expectation"}),
}
"""A bandit of this package that bounds the expected cost alone."""

MULTIPLES = (0.5, 0.8, 1.0, 1.25)
RULES = {f"the usual rule × {multiple:g}": (multiple, False) for multiple in MULTIPLES}
RULES |= {"one dose for all": (1.0, True)}


def make_player(name: str, world: ArenaWorld, seeds: list[int], risk: float) -> Player:
    """One of `OURS`, `UNGUARANTEED` or `RULES`."""
    if name in RULES:
        return Rule(len(seeds), *RULES[name])
    make, options = (OURS | PRINTED | UNGUARANTEED)[name]
    return Agents(len(seeds), make(world, risk, options), world, shield=make is shield)
