"""What the checks of a conformal spec use: a log, read round by round as HP-Conformal would learn from it.

    y_t = (C_t − b₀)/g_c(α_t)      p_t: the rank of a calibration round's score among the earlier ones of its group

Refits happen when the policy's would, so p-values and evidence equal those of an `Agent` that decided these rounds and
received every outcome at once. A round without a dose has no known outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core import exchangeability
from safedial.core.dose import Dose
from safedial.core.promise import PROMISES
from safedial.core.spec import SafetySpec
from safedial.decision.learners.conformal_options import REACH
from safedial.errors import require
from safedial.policies import Policy, make_policy
from safedial.policies.conformal.memory import FIRST_FIT, Rounds
from safedial.policies.hp_conformal import cost_bound
from safedial.rounds_io import Log

Array = NDArray[np.float64]

LEAST = 2 * FIRST_FIT
"""The fewest rounds with a dose that can be checked: with fewer there is no score to rank."""

LEARNING = ("group", "groups", "window", "lag")
"""The options of `hp_conformal` that say how it learns; the others say which dose it gives."""


@dataclass(frozen=True, kw_only=True)
class WalkedRounds:
    """A log's rounds, in order; n rows.

    Attributes:
        number: the rounds' numbers in the log. context: (n, d).
        intensity: g_c(action). outcome: y_t, +∞ where there was no dose. fitted: its prediction before the outcome.
        bounded: whether the round had a bound before its outcome; else its dose is the start's.
        exceeded: whether its cost was above τ. covered: whether the applied action was at most the advised one.
        ranked, chance: by round with a p-value: its row, and the p-value.
        evidence: after each of them, that the assumptions of the promise do not hold.
    """

    spec: SafetySpec
    number: Array
    names: tuple[str, ...]
    context: Array
    intensity: Array
    outcome: Array
    fitted: Array
    bounded: NDArray[np.bool_]
    exceeded: NDArray[np.bool_]
    covered: NDArray[np.bool_]
    ranked: Any
    chance: Array
    evidence: Array

    def __len__(self) -> int:
        return int(np.isfinite(self.outcome).sum())


@dataclass(frozen=True, kw_only=True)
class ConformalRounds(WalkedRounds):
    """The p-values are of calibration rounds, the evidence is that rounds are not exchangeable; `rounds` is all that
    was learned, refitted at the end.
    """

    rounds: Rounds


def walk_log(log: Log, spec: SafetySpec, dose: Dose, policy: Any = None) -> ConformalRounds:
    """Learn from a log round by round. Of `policy`, or a spec file's table, only the options for learning matter."""
    harm, gain = (np.asarray(curve.effect(log.action), dtype=float) for curve in (dose.cost, dose.reward))
    dosed = harm > 0.0
    rule = f"rounds with a dose are too few: at least {LEAST} are needed"
    require(int(dosed.sum()) >= LEAST, "log", int(dosed.sum()), rule)
    measured = log.cost - log.baseline_cost
    with np.errstate(over="ignore"):
        outcome = np.where(dosed, measured / np.where(dosed, harm, 1.0), np.inf)
        reward = np.where(gain > 0.0, log.reward / np.where(gain > 0.0, gain, 1.0), 0.0)
    require(np.all(np.isfinite(outcome[dosed]) & np.isfinite(reward[dosed])), "log", "outcomes", "over g: not finite")
    rule = make_policy("hp_conformal", **_options(policy, log), reach=REACH)
    rounds: Rounds = rule.init(log.dim, ridge=spec.ridge)
    fitted, bounded, bets = np.zeros(len(log)), np.zeros(len(log), dtype=bool), []
    for index, context in enumerate(log.context):
        if rounds.count >= rounds.next_fit:
            bets.append(rounds.chances())
            rounds.refit()
        seen = rule.predict(rounds, context)
        fitted[index], bounded[index] = seen.cost, cost_bound(seen, spec) < np.inf
        number = rounds.append(context, 0.0, np.inf)
        if dosed[index]:
            told = {"measured": float(measured[index]), "intensity": float(harm[index])}
            rounds.fill(number, float(reward[index]), float(outcome[index]), **told)
    bets.append(rounds.chances())
    rounds.refit()
    ranked, chance = (np.concatenate(parts) for parts in zip(*bets, strict=True))
    told = np.isfinite(chance)
    return ConformalRounds(
        spec=spec,
        number=log.round,
        names=log.names,
        context=log.context,
        intensity=harm,
        outcome=outcome,
        fitted=fitted,
        bounded=bounded,
        exceeded=log.cost > spec.threshold,
        covered=dosed & ~(log.action > log.advised),
        ranked=ranked[told].astype(np.int64),
        chance=chance[told],
        evidence=evidence_path(chance[told]),
        rounds=rounds,
    )


def evidence_path(chances: Array) -> Array:
    """The evidence of core/exchangeability.py after each p-value; each column is a separate process."""
    capital, path = exchangeability.init(chances.shape[1:]), np.empty(chances.shape)
    for index, chance in enumerate(chances):
        capital = exchangeability.update(capital, chance)
        path[index] = exchangeability.evidence(capital)
    return path


def _options(policy: Policy | Mapping[str, Any] | None, log: Log) -> dict[str, Any]:
    """The policy's options for learning. A group given by a feature's name becomes that feature's column."""
    given = {"name": policy.name, **policy.options} if isinstance(policy, Policy) else dict(policy or {})
    name = given.get("name", "hp_conformal")
    fits = PROMISES[make_policy(name).promise].exchangeable
    require(fits, "policy", name, "does not give a conformal promise", "name hp_conformal")
    options = {option: given[option] for option in LEARNING if option in given}
    if isinstance(options.get("group"), str):
        group = options["group"]
        require(group in log.names, "group", group, "must be one of the context's columns", ", ".join(log.names))
        options["group"] = log.names.index(group)
    return options
