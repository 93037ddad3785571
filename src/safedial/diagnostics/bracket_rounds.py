"""What the checks of a bracket promise use: a log, played through an Agent with the applied settings and the outcomes.

The Agent's own watch gives the evidence (`decision.learners.shield_watch`); its decisions know the protocol's setting
and the start. Settings are in the dial's units, or values of the dose curve, as the bracket reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.agent import Agent
from safedial.core import monitor
from safedial.core.dose import Dose
from safedial.core.spec import SafetySpec
from safedial.core.tolerated import Cost
from safedial.decision.learners.shield_options import costs_at, costs_of, raw_features
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
        costs, outcome, over, bracket: by name, "cost" if there is one: its limit, what was measured (NaN: not known),
            whether it exceeded, and the bracket's two numbers in each round (n, 2).
        setting, effect: as applied, in the dial's units, and as the bracket reads it.
        protocol, start: the setting that is scaled, and the declared start. proposal: None if the base is no proposal.
        covered: whether all costs are known, at a setting of at most the advised one.
        evidence: after each round, that rounds are not exchangeable or break the bracket.
        unseen: rounds of a study without an outcome, which are not among the rows.
    """

    risk: float
    costs: dict[str, Cost]
    outcome: dict[str, Array]
    over: dict[str, NDArray[np.bool_]]
    bracket: dict[str, Array]
    number: Array
    names: tuple[str, ...]
    context: Array
    setting: Array
    effect: Array
    protocol: Array
    start: Array
    proposal: Array | None
    known: NDArray[np.bool_]
    covered: NDArray[np.bool_]
    evidence: Array
    unseen: int

    def __len__(self) -> int:
        return int(self.known.sum())

    @property
    def exceeded(self) -> NDArray[np.bool_]:
        return np.any(list(self.over.values()), axis=0)

    @property
    def at_start(self) -> NDArray[np.bool_]:
        return self.known & (self.setting <= self.start * SAME)

    @property
    def missing(self) -> int:
        """Rounds without a known outcome, of the log and of the study."""
        return len(self.known) - len(self) + self.unseen

    @property
    def start_evidence(self) -> Array:
        """After each round, that the start exceeds more often than δ: what is shown of it, and 0 elsewhere."""
        state, path = monitor.init(), np.empty(len(self.known))
        for index, shown in enumerate((self.exceeded & self.at_start).tolist()):
            state = monitor.update(state, shown, self.risk)
            path[index] = monitor.evidence(state)
        return path


def log_columns(spec: SafetySpec, options: Mapping[str, Any]) -> list[str]:
    """The columns of numbers that a log has: `cost`, or `cost_NAME` for each of several, and proposals as the base."""
    costs = ["cost"] if spec.costs is None else [f"cost_{name}" for name in spec.costs]
    return [*costs, *(["proposal"] if options.get("base") == "proposal" else [])]


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
    costs, columns = costs_of(rules), _columns(log, log_columns(spec, rule.options))
    outcome = dict(zip(costs, columns.values(), strict=False))
    known = np.all([np.isfinite(values) for values in outcome.values()], axis=0)
    require(known.any(), "log", f"{len(log)} rows", "has no round with a known outcome", "report outcomes first")
    shares = rules.dial.low + log.action * (rules.dial.high - rules.dial.low)
    setting = np.array([float(f"{value:.12g}") for value in shares])
    proposal = columns.get("proposal")
    agent, told = Agent(log.dim, spec, **parts), np.ones((3, len(log)))
    bracket = {name: np.zeros((len(log), 2)) for name in costs}
    for index, vector in enumerate(log.context):
        for name, cost in costs_at(rules, costs, vector).items():
            bracket[name][index] = [cost.growth.parameters.get(end, 0.0) for end in ("low", "high")]
        raw = raw_features(rules, vector) if features else vector
        asked = None if proposal is None else float(proposal[index])
        decision = agent.decide(raw, proposal=asked, allow_extrapolation=True)
        if known[index]:
            several = {name: float(values[index]) for name, values in outcome.items()}
            given = several if spec.costs else several["cost"]
            agent.update(decision, action=float(setting[index]), reward=0.0, cost=given)
        told[:, index] = decision.prediction.protocol, decision.prediction.start, agent.evidence
    return BracketRounds(
        risk=float(spec.violation_risk),
        costs=costs,
        outcome=outcome,
        over={name: np.asarray(cost.exceeded(outcome[name])) for name, cost in costs.items()},
        bracket=bracket,
        number=log.round,
        names=log.names,
        context=log.context,
        setting=setting,
        effect=setting if dose.cost.name == "identity" else np.asarray(dose.cost.effect(log.action), dtype=float),
        protocol=told[0],
        start=told[1],
        proposal=proposal,
        known=known,
        covered=known & ~(log.action > log.advised),
        evidence=told[2],
        unseen=len(log.unseen),
    )


def _columns(log: Log, needed: list[str]) -> dict[str, Array]:
    """The needed columns of a log, in order."""
    columns = {"cost": log.cost, **log.extra}
    absent = [name for name in needed if name not in columns]
    require(not absent, "log", absent, "lacks these columns of numbers", "they are the costs, and the base if proposed")
    return {name: columns[name] for name in needed}
