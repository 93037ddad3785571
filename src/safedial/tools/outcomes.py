"""What a round would have given at another setting.

**Exact** (an exact dose curve). With C = b₀ + g(s)(c + ξ), the same round at the setting a would have cost
b₀ + (C − b₀)·g(a)/g(s), and earned R·g_r(a)/g_r(s). A round at intensity 0 says nothing about any other setting.

**Bounded** (a growth bracket, or costs of 0 or 1, which do not scale with the dose). With B the bracket's bound
(model/brackets.py), what the round would have cost at a is at most B(C, s → a), so it *may* have exceeded where that is
above τ. And a cost of at most τ at a would have been at most B(τ, a → s) at s, so it *must* have exceeded where C is
above that. The reward is not known.

Where a policy advises what was advised then, the round went as the log says, whoever changed the setting afterwards.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.errors import require
from safedial.model.brackets import spread
from safedial.model.costs import Cost, as_stated, limits, tolerated_setting
from safedial.model.namespace import Array
from safedial.rounds.rules import Rules
from safedial.tools.past_rounds import SETTING, Rounds

SAME = 1e-12
"""Settings that differ by less, as shares of the dial, are the same."""

MONOTONE = spread(2.0, 1.0)
"""A bracket that only says that costs do not fall when the setting rises."""


class Scores(NamedTuple):
    """Each round at a policy's settings, n rows: `over`: it exceeded, or with bounds it must have; `may`: it may have,
    or nothing is known; `reward`: NaN where not known; `applied`: the setting; `known`: all costs are known, with
    bounds at the log's setting, or none may have exceeded; `costs`: of each cost its value at this setting, NaN where
    not known, with its own `over` and `may`.
    """

    over: NDArray[np.bool_]
    may: NDArray[np.bool_]
    reward: Array
    applied: Array
    known: NDArray[np.bool_]
    costs: dict[str, tuple[Array, NDArray[np.bool_], NDArray[np.bool_]]]


def _with_growth(cost: Cost) -> Cost:
    """A cost with its bracket or, where it has none, with one that says no more than that it does not fall."""
    if cost.growth is not None:
        return cost
    return Cost(threshold=cost.threshold, growth=MONOTONE, on=cost.on, unit=cost.unit)


class Outcomes:
    """The counterfactual outcomes of a log under a policy's rules."""

    def __init__(self, rules: Rules, rounds: Rounds) -> None:
        spec = rules.spec
        way_out = "simulate such a world instead"
        require(
            spec.noise_scale is None, "noise_scale", "stated", "is not for replays: R/g depends on the dose", way_out
        )
        self.rules, self.rounds, self.dial = rules, rounds, rules.dial
        parts, policy = rules.parts or {}, rules.policy
        self.curves = {name: (parts[name] if parts else rules).dose.cost for name in rounds.costs}
        self.given = np.all([self.effect(name, rounds.setting) > 0.0 for name in self.curves], axis=0)
        stated = limits(spec, growth=policy.options.get("growth"), direction=policy.direction)
        self.needs_reward = policy.exact_dose and not policy.zero_one
        self.events = self.needs_reward and any(self._are_events(name, cost) for name, cost in stated.items())
        self.exact = self.needs_reward and not self.events
        self.costs = {name: _with_growth(cost) for name, cost in stated.items()}
        self.logged = np.where(np.isfinite(rounds.advised), rounds.advised, rounds.setting)
        self.at_log = {name: self.measure(name, rounds.setting) for name in self.curves}
        self.reward_at_log = rules.dose.reward.effect(self.dial.action(rounds.setting))
        measured = np.array([np.isfinite(values) for values in rounds.costs.values()])
        self.known = measured.all(axis=0) & np.isfinite(rounds.setting)
        self.reported = measured.any(axis=0) & np.isfinite(rounds.setting)
        self.scales = self.given & ~rounds.throttled
        self.usable = self.known & self.scales

    def _are_events(self, name: str, cost: Cost) -> bool:
        """Whether a cost is an event, 0 or 1 in every round with a dose: that does not scale with the dose."""
        told = self.rounds.costs[name][self.given & np.isfinite(self.rounds.costs[name])]
        return set(np.unique(told)) == {0.0, 1.0} and 0.0 <= cost.threshold < 1.0

    def effect(self, name: str, setting: Any) -> Any:
        """The intensity of a setting, of one cost."""
        return self.curves[name].effect(self.dial.action(setting))

    def measure(self, name: str, setting: Any) -> Any:
        """A setting as the model of a cost reads it: its intensity, or, for a bracket without a curve, itself."""
        plain = not self.exact and self.curves[name].name == "identity"
        return setting if plain else self.effect(name, setting)

    def is_logged(self, advised: Any, index: Any = slice(None)) -> Any:
        """Whether this is what was advised then."""
        return abs(advised - self.logged[index]) <= SAME * (self.dial.high - self.dial.low)

    def told(self, index: int, advised: float) -> tuple[float, float, Any] | None:
        """(applied, reward, cost) of a round that was advised this, for the policy to learn from; None: not known. Of
        several costs, NaN where one is not known.
        """
        rounds, same = self.rounds, self.is_logged(advised, index)
        reward, baseline = float(rounds.reward[index]), float(rounds.baseline[index])
        costs = {name: float(values[index]) for name, values in rounds.costs.items()}
        if self.exact and not same:
            action = self.dial.action(advised)
            effects = {name: float(curve.effect(action)) for name, curve in self.curves.items()}
            if not any(effects.values()):
                costs, reward = dict.fromkeys(costs, baseline), 0.0
            elif not (self.reported[index] and self.scales[index]):
                return None
            else:
                costs = {
                    name: baseline + (cost - baseline) * (effects[name] / float(self.at_log[name][index]))
                    for name, cost in costs.items()
                }
                reward *= float(self.rules.dose.reward.effect(action)) / float(self.reward_at_log[index])
            applied = advised
        elif not self.reported[index] or rounds.throttled[index]:
            return None
        else:
            applied = float(rounds.setting[index])
        if self.needs_reward and not math.isfinite(reward):
            return None
        reward = reward if math.isfinite(reward) else 0.0
        return (applied, reward, as_stated(self.rules.spec, costs))

    def at(self, advised: Array) -> Scores:
        """All rounds at these settings."""
        rounds, same = self.rounds, self.is_logged(advised)
        found = {}
        for name, cost in self.costs.items():
            there, must, can = (self._exact if self.exact else self._bounded)(name, cost, advised)
            excess = np.asarray(cost.excess(rounds.scored(name)))
            error = cost.growth.error if cost.on == "true" else 0.0
            over, may = np.where(same, excess > error, must), np.where(same, ~(excess <= -error), can)
            found[name] = np.where(same, rounds.scored(name), there), over, may | over
        reward = np.where(same, rounds.reward, math.nan)
        if self.exact:
            gain = self.rules.dose.reward.effect(self.dial.action(advised))
            scaled = rounds.reward * gain / np.where(self.usable, self.reward_at_log, math.nan)
            reward = np.where(same, rounds.reward, np.where(gain > 0.0, scaled, 0.0))
        over, may = (np.any([each[place] for each in found.values()], axis=0) for place in (1, 2))
        whole = np.where(same, np.isfinite([rounds.scored(name) for name in self.costs]).all(axis=0), self.usable)
        return Scores(over, may, reward, np.where(same, rounds.scored(SETTING), advised), whole | ~may, found)

    def _exact(self, name: str, cost: Cost, advised: Array) -> tuple[Any, Any, Any]:
        rounds, effect = self.rounds, self.effect(name, advised)
        rate = (rounds.costs[name] - rounds.baseline) / np.where(self.scales, self.at_log[name], math.nan)
        found = rounds.baseline + np.where(effect > 0.0, rate * effect, 0.0)
        return found, found > cost.threshold, ~(found <= cost.threshold)

    def _bounded(self, name: str, cost: Cost, advised: Array) -> tuple[Any, Any, Any]:
        sign = 1.0 if cost.direction == "above" else -1.0
        told = sign * np.where(self.scales, self.rounds.costs[name], math.nan)
        here, there, limit = self.at_log[name], self.measure(name, advised), sign * cost.threshold
        growth = cost.growth.at(self.features)
        upper = growth.bound(told, here, there, threshold=limit, on=cost.on)
        needed = growth.bound(limit, there, here)  # without a threshold no fall is assumed
        return math.nan, told > needed, ~(upper <= limit)

    @property
    def features(self) -> dict[str, Array]:
        """Raw contexts by name."""
        return dict(zip(self.rounds.names, self.rounds.context.T, strict=True))

    def hindsight(self) -> tuple[Array, Array]:
        """(the largest setting that keeps every threshold, as measured by the first cost's model; what it earns), if
        each round's outcome were known beforehand; with bounds, what is surely tolerated. NaN where not known.
        """
        rounds, action = self.rounds, np.ones(len(self.rounds))
        if not self.exact:
            first = next(iter(self.curves))
            most = self.measure(first, np.full(len(rounds), self.dial.high))
            found = tolerated_setting(self.costs, rounds.costs, self.at_log[first], self.features)
            return np.where(self.usable, np.clip(found, 0.0, most), math.nan), np.full(len(rounds), math.nan)
        for name, cost in self.costs.items():
            room = cost.threshold - rounds.baseline
            rate = (rounds.costs[name] - rounds.baseline) / np.where(self.usable, self.at_log[name], math.nan)
            most = float(self.curves[name].effect(1.0))
            reach = np.where(rate > 0.0, np.maximum(room, 0.0) / np.where(rate > 0.0, rate, 1.0), math.inf)
            reach = np.where(room < 0.0, 0.0, np.minimum(reach, most))
            action = np.minimum(action, np.where(np.isfinite(rate), self.curves[name].action(reach), math.nan))
        if self.dial.levels is not None:
            ends = np.unique([0.0, *self.dial.action(np.array(self.dial.levels))])
            floored = ends[np.maximum(np.searchsorted(ends, action + SAME, side="right") - 1, 0)]
            action = np.where(np.isfinite(action), floored, math.nan)
        rate = rounds.reward / np.where(self.usable, self.reward_at_log, math.nan)
        return action, np.where(rate > 0.0, rate * self.rules.dose.reward.effect(action), 0.0 * rate)
