"""What the checks of a bracket promise use: a log, played through an Agent with the applied settings and the outcomes.

The Agent's own watch gives the evidence (`decision.learners.shield_watch`), and its questions give the protocol's
setting, the start and the slopes of each round. Settings are in the dial's units, or values of the dose curve where one
is stated, as the bracket reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.agent import Agent
from safedial.core import monitor
from safedial.core.dose import Dose
from safedial.core.spec import SafetySpec
from safedial.core.tolerated import Cost
from safedial.decision.learners.shield_options import costs_of, growth_at, raw_features, read_question
from safedial.decision.rounds import Asked
from safedial.decision.rules import named_policy
from safedial.decision.units import Dial, Features
from safedial.decision.validation import make_rules
from safedial.errors import require
from safedial.policies import Policy
from safedial.rounds_io import Log

Array = NDArray[np.float64]

SAME = 1.0 + 1e-9
"""A setting that was a share of the dial differs from a stated one by rounding."""


@dataclass(frozen=True, kw_only=True)
class BracketRounds:
    """A log's rounds, in order; n rows.

    Attributes:
        costs: by name, "cost" if there is one. outcome: what was measured of each, NaN where not known.
        bracket: by cost, the bracket's two numbers in each round (n, 2).
        setting, effect: as applied, in the dial's units, and as the bracket reads it.
        protocol, start: the setting that is scaled, and the declared start. proposal: None if the base is no proposal.
        exceeded: whether any cost was on the wrong side of its threshold. covered: known, and at most what was advised.
        known: whether all costs are.
        evidence, start_evidence: after each round, that rounds are not exchangeable or break the bracket, and that the
            start exceeds more often than δ.
        unseen: rounds of a study without an outcome, which are not among the rows.
    """

    spec: SafetySpec
    costs: dict[str, Cost]
    number: Array
    names: tuple[str, ...]
    context: Array
    outcome: dict[str, Array]
    bracket: dict[str, Array]
    setting: Array
    effect: Array
    protocol: Array
    start: Array
    proposal: Array | None
    exceeded: NDArray[np.bool_]
    covered: NDArray[np.bool_]
    known: NDArray[np.bool_]
    evidence: Array
    start_evidence: Array
    unseen: int

    def __len__(self) -> int:
        return int(self.known.sum())

    @property
    def at_start(self) -> NDArray[np.bool_]:
        return self.setting <= self.start * SAME

    @property
    def missing(self) -> int:
        """Rounds without a known outcome, of the log and of the study."""
        return int((~self.known).sum()) + self.unseen

    @property
    def risk(self) -> float:
        return float(self.spec.violation_risk)


def walk_bracket_log(
    log: Log,
    spec: SafetySpec,
    dose: Dose,
    *,
    policy: Policy | Mapping[str, Any] | None,
    dial: Dial | None = None,
    features: Features | None = None,
) -> BracketRounds:
    """Play a log through an Agent. `policy`: the policy, or a spec file's table; `features`: as they made the log."""
    require(policy is not None, "policy", policy, "is missing: it states bracket, base and start", "name hp_shield")
    rule = policy if isinstance(policy, Policy) else named_policy(policy or {})
    parts: Any = {"policy": rule, "dose": dose, "dial": dial, "features": features}
    rules = make_rules(dim=log.dim, spec=spec, **parts)
    costs = costs_of(rules)
    outcome = _measured(log, costs)
    known = np.all([np.isfinite(values) for values in outcome.values()], axis=0)
    require(known.any(), "log", f"{len(log)} rows", "has no round with a known outcome", "report outcomes first")
    needs = rule.options["base"] == "proposal"
    way_out = "add a column `proposal`, the setting that was proposed in each round"
    require(
        not needs or "proposal" in log.extra, "log", "proposal", "is this policy's base, and not in the log", way_out
    )
    proposals = log.extra["proposal"] if needs else None
    shares = rules.dial.low + log.action * (rules.dial.high - rules.dial.low)
    setting = np.array([float(f"{value:.12g}") for value in shares])
    agent, evidence = Agent(log.dim, spec, **parts), np.ones(len(log))
    told, bracket = np.empty((2, len(log))), {name: np.zeros((len(log), 2)) for name in costs}
    for index, vector in enumerate(log.context):
        proposal = None if proposals is None else float(proposals[index])
        stated: Any = read_question(rules, Asked(vector, 0.0), proposal).stated
        told[:, index] = stated.protocol, stated.start
        for name, limit in costs.items():
            parameters = growth_at(rules, limit.growth, vector).parameters
            bracket[name][index] = parameters.get("low", 0.0), parameters.get("high", 0.0)
        raw = raw_features(rules, vector) if features else vector
        decision = agent.decide(raw, proposal=proposal, allow_extrapolation=True)
        if known[index]:
            cost: Any = {name: float(values[index]) for name, values in outcome.items()}
            agent.update(decision, action=float(setting[index]), reward=0.0, cost=cost.get("cost", cost))
        evidence[index] = agent.evidence
    protocol, start = told
    exceeded = np.any([cost.exceeded(outcome[name]) for name, cost in costs.items()], axis=0)
    curve = rules.dose.cost
    return BracketRounds(
        spec=spec,
        costs=costs,
        number=log.round,
        names=log.names,
        context=log.context,
        outcome=outcome,
        bracket=bracket,
        setting=setting,
        effect=setting if curve.name == "identity" else np.asarray(curve.effect(log.action), dtype=float),
        protocol=protocol,
        start=start,
        proposal=proposals,
        exceeded=exceeded,
        covered=known & ~(log.action > log.advised),
        known=known,
        evidence=evidence,
        start_evidence=_start_evidence(exceeded & (setting <= start * SAME), float(spec.violation_risk)),
        unseen=len(log.unseen),
    )


def log_columns(spec: SafetySpec, policy: Mapping[str, Any] | None) -> list[str]:
    """The columns of numbers that a log of this promise has: its costs, and proposals if they are the base."""
    return [
        *cost_columns(spec.costs or ("cost",)).values(),
        *(["proposal"] if dict(policy or {}).get("base") == "proposal" else []),
    ]


def cost_columns(names: Iterable[str]) -> dict[str, str]:
    """The column of each cost in a log: `cost` if there is one, `cost_NAME` for each of several."""
    return {name: "cost" if name == "cost" else f"cost_{name}" for name in names}


def _measured(log: Log, costs: Mapping[str, Cost]) -> dict[str, Array]:
    columns = {"cost": log.cost, **log.extra}
    absent = [column for column in cost_columns(costs).values() if column not in columns]
    require(not absent, "log", absent, "lacks these costs of the spec", "give a column for each")
    return {name: columns[column] for name, column in cost_columns(costs).items()}


def _start_evidence(shown: Any, risk: float) -> Array:
    """The monitor's evidence that the start exceeds more often than δ: what is shown of it, and 0 elsewhere."""
    state, path = monitor.init(), np.empty(len(shown))
    for index, each in enumerate(shown.tolist()):
        state = monitor.update(state, each, risk)
        path[index] = monitor.evidence(state)
    return path
