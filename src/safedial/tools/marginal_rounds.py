"""What the checks of a bracket guarantee use: a log, played through an Agent with the applied settings and the
outcomes.

The Agent's own watch gives the evidence (`policies.shield`); its decisions know the protocol's setting
and the start. Settings are in the dial's units, or values of the dose curve, as the bracket reads them.

What the checks of a conformal spec use: a log, read round by round as HP-Conformal would learn from it.

    y_t = (C_t − b₀)/g_c(α_t)      p_t: the rank of a calibration round's score among the earlier ones of its group

Refits happen when the policy's would, so p-values and evidence equal those of an `Agent` that decided these rounds and
received every outcome at once. A round without a dose has no known outcome.

What the checks of a student spec use: the p-value of each cost before it is learned. If the noise is i.i.d. Gaussian
and contexts do not follow it, the pivots T_t = (y_t − ⟨x_t,μ̂⟩)/(s√(1+w²)), each with the fit before its round, are
independent, and so are the p-values P(t_ν > T_t), which are uniform, given all contexts (bounds/t_laws.py). Bets on
small ones are the evidence of an `Agent` that decided these rounds and received every outcome at once. Excesses of the
threshold are a count: they depend on the doses, and a full dose is often safer. For the anytime guarantee, whose
contexts may react, the evidence counts y_t above its bound (bounds/monitor.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from safedial.bounds import monitor, ranks, triangle
from safedial.bounds.conforming import Ties
from safedial.bounds.t_laws import Mixture, chance_above, cost_upper, epoch_share
from safedial.errors import require
from safedial.model.costs import Cost
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies import Policy, make_policy
from safedial.policies.conformal import FIRST_FIT, REACH
from safedial.policies.policy import KNOWN, LOST, Asked, Task, Told
from safedial.rounds.agent import Agent
from safedial.rounds.log_file import Log
from safedial.rounds.rules import named_policy
from safedial.rounds.validation import make_rules

WATCHED = ("base", "growth", "start_scale", "direction")
"""The options that the watch and the bracket rest on; the others say what is given below the cap."""

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
        return _excess_path(self.exceeded & self.at_start, np.ones(len(self.known), dtype=bool), self.risk)


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
    given = policy if isinstance(policy, Policy) else named_policy(policy or {})
    require(GUARANTEES[given.guarantee].bracketed, "policy", given.name, "gives no bracket guarantee", "name hp_shield")
    rule = make_policy(given.name, **{name: given.options[name] for name in WATCHED})
    parts: Any = {"policy": rule, "dose": dose, "dial": dial, "features": features}
    rules = make_rules(dim=log.dim, spec=spec, **parts)
    bound: Any = rules.policy
    costs, columns = bound.costs, _columns(log, log_columns(spec, rule.options))
    outcome = dict(zip(costs, columns.values(), strict=False))
    known = np.all([np.isfinite(values) for values in outcome.values()], axis=0)
    require(known.any(), "log", f"{len(log)} rows", "has no round with a known outcome", "report outcomes first")
    shares = rules.dial.low + log.action * (rules.dial.high - rules.dial.low)
    setting = np.array([float(f"{value:.12g}") for value in shares])
    proposal = columns.get("proposal")
    agent, told = Agent(log.dim, spec, **parts), np.ones((3, len(log)))
    bracket = {name: np.zeros((len(log), 2)) for name in costs}
    for index, vector in enumerate(log.context):
        for name, cost in bound.costs_at(vector).items():
            bracket[name][index] = [cost.growth.parameters.get(end, 0.0) for end in ("low", "high")]
        raw = bound.questions.raw_features(vector) if features else vector
        asked = None if proposal is None else float(proposal[index])
        decision = agent.decide(raw, proposal=asked, allow_extrapolation=True)
        if known[index]:
            several = {name: float(values[index]) for name, values in outcome.items()}
            told_cost = several if spec.costs else several["cost"]
            agent.update(decision, action=float(setting[index]), reward=0.0, cost=told_cost)
        told[:, index] = decision.numbers["protocol"], decision.numbers["start"], agent.evidence
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


# --- What the checks of a conformal spec use

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
        evidence: after each of them, that the assumptions of the guarantee do not hold.

    A subclass says what its p-values are of, how a low one reads, and what the page of its checks shows.
    """

    ranked_by: ClassVar[str] = ""
    read_as: ClassVar[str] = ""
    drawn: ClassVar[str] = ""

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

    @property
    def condition(self) -> str:
        """What the guarantee holds over, and what it rests on."""
        return ""


@dataclass(frozen=True, kw_only=True)
class ConformalRounds(WalkedRounds):
    """The p-values are of calibration rounds, the evidence is that rounds are not exchangeable. `ties` are by group;
    `signed`: rounds are grouped by the sign of the predicted reward too.
    """

    ranked_by = "ranks of calibration rounds (dashed: even)"
    read_as = "share of earlier scores at least as high"
    drawn = "Evidence over time, ranks, costs by dose"

    ties: list[Ties]
    signed: bool

    @property
    def condition(self) -> str:
        whole = "" if self.signed else " and over all rounds, not among those expected to benefit"
        return f"on average over calibration rounds{whole}, if rounds are exchangeable and the dose curve is exact"


def _shared(log: Log, spec: SafetySpec, intensity: Array, outcome: Array) -> dict[str, Any]:
    """The fields that follow from the log alone."""
    covered = (intensity > 0.0) & ~(log.action > log.advised)
    told = {"spec": spec, "number": log.round, "names": log.names, "context": log.context, "intensity": intensity}
    return told | {"outcome": outcome, "exceeded": log.cost > spec.threshold, "covered": covered}


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
    given = _options(policy, log) | {"reach": REACH, "start_dose": 1.0}
    rule: Any = make_policy("hp_conformal", **given)
    rule = rule.on(Task(dim=log.dim, spec=spec, dose=dose))
    state = rule.init()
    fitted, bounded, bets = np.zeros(len(log)), np.zeros(len(log), dtype=bool), []
    for index, context in enumerate(log.context):
        bets.append(_refit(rule, state))
        asked = Asked(context, float(np.linalg.norm(context)), index + 1.0)
        bound = rule.bound(state, asked)
        fitted[index], bounded[index] = bound.numbers["cost"], bound.ready
        rule.open(state, asked, bound, harm[index])
        fate, weight = (KNOWN, 1.0) if dosed[index] else (LOST, 0.0)
        told = Told(fate, reward[index], outcome[index], weight, measured[index], 0.0, 0.0, harm[index], context)
        rule.tell(state, index, told)
        if not dosed[index]:  # a log does not say why, so such a round is neither ranked nor ranked among
            state.bets.leave_out(index)
    state.next_fit = state.count
    bets.append(_refit(rule, state))
    ranked, chance = (np.concatenate(parts) for parts in zip(*bets, strict=True))
    told = np.isfinite(chance) & np.isfinite(outcome[ranked])
    return ConformalRounds(
        **_shared(log, spec, harm, outcome),
        fitted=fitted,
        bounded=bounded,
        ranked=ranked[told],
        chance=chance[told],
        evidence=evidence_path(chance[told]),
        ties=rule.ties(state),
        signed=rule.signed,
    )


def _refit(rule: Any, state: Any) -> tuple[Any, Array]:
    """Let the policy refit if it is due. Returns the rounds that it bets on before, and their p-values."""
    first, last = state.bets.next, state.count - rule.lag
    if not state.fitted or state.count < state.next_fit or last <= first:
        rule.begin(state, None)
        return np.empty(0, dtype=np.int64), np.empty(0)
    chances = state.bets.chances(first, last)
    rule.begin(state, None)
    return np.arange(first, last), chances


def evidence_path(chances: Array) -> Array:
    """The evidence of bounds/ranks.py after each p-value; each column is a separate process."""
    capital, path = ranks.init(chances.shape[1:]), np.empty(chances.shape)
    for index, chance in enumerate(chances):
        capital = ranks.update(capital, chance)
        path[index] = ranks.evidence(capital)
    return path


def _options(policy: Policy | Mapping[str, Any] | None, log: Log) -> dict[str, Any]:
    """The policy's options for learning. A group given by a feature's name becomes that feature's column."""
    given = {"name": policy.name, **policy.options} if isinstance(policy, Policy) else dict(policy or {})
    name = given.get("name", "hp_conformal")
    fits = GUARANTEES[make_policy(name).guarantee].exchangeable
    require(fits, "policy", name, "does not give a conformal guarantee", "name hp_conformal")
    options = {option: given[option] for option in LEARNING if option in given}
    if isinstance(options.get("group"), str):
        group = options["group"]
        require(group in log.names, "group", group, "must be one of the context's columns", ", ".join(log.names))
        options["group"] = log.names.index(group)
    return options


# --- A log's rounds as HP-Student learns them: the p-value of each cost before it is learned

SPARE = 8
"""The fewest rounds with a dose beyond the dimension that can be checked."""


@dataclass(frozen=True, kw_only=True)
class StudentRounds(WalkedRounds):
    """The evidence is that the noise is not Gaussian and of one size, or, for the `anytime` guarantee, that its bound
    is exceeded too often.
    """

    ranked_by = "p-values of costs (dashed: even)"
    read_as = "chance of a cost at least as high"
    drawn = "Evidence over time, p-values, costs by dose"

    anytime: bool

    @property
    def condition(self) -> str:
        contexts = "" if self.anytime else ", contexts do not follow past costs"
        return f"if noise is Gaussian and of one size, the mean is linear{contexts}, and the dose curve is exact"


def walk_student_log(
    log: Log, spec: SafetySpec, dose: Dose, policy: Policy | Mapping[str, Any] | None = None
) -> StudentRounds:
    """Learn from a log round by round; `policy`, or a spec file's table, says which guarantee is meant."""
    rule = _policy(policy)
    rule.on(Task(dim=log.dim, spec=spec, dose=dose))  # refuses what has no proof
    harm = np.asarray(dose.cost.effect(log.action), dtype=float)
    dosed = harm > 0.0
    words = f"rounds with a dose are too few: at least {log.dim + SPARE} are needed at dimension {log.dim}"
    require(int(dosed.sum()) >= log.dim + SPARE, "log", int(dosed.sum()), words)
    with np.errstate(over="ignore"):
        outcome = np.where(dosed, (log.cost - log.baseline_cost) / np.where(dosed, harm, 1.0), np.inf)
    require(np.all(np.isfinite(outcome[dosed])), "log", "costs", "over g: not finite")
    fitted, chance, upper = _walk(log.context, outcome, spec, rule)
    ranked = np.flatnonzero(np.isfinite(chance))
    words = "has no round with a bound: contexts must have full rank"
    require(ranked.size, "log", f"{len(log)} rows", words, "leave out columns that others determine")
    anytime = rule.options["guarantee"] == "anytime"
    return StudentRounds(
        **_shared(log, spec, harm, outcome),
        anytime=anytime,
        fitted=fitted,
        bounded=upper < np.inf,
        ranked=ranked,
        chance=chance[ranked],
        evidence=_excess_path((outcome > upper)[ranked], (upper < np.inf)[ranked], spec.violation_risk)
        if anytime
        else evidence_path(chance[ranked]),
    )


def _walk(contexts: Array, outcome: Array, spec: SafetySpec, rule: Policy) -> tuple[Array, Array, Array]:
    """(⟨x,μ̂⟩, the p-value, U) of each round, before it is learned; NaN and ∞ where there is none."""
    options, fit = rule.options, triangle.init(contexts.shape[1])
    anytime = options["guarantee"] == "anytime"
    failure = spec.estimation_risk * epoch_share(1) if anytime else None
    mixture = Mixture(options["mixture_ridge"], options["mixture_shape"])
    fitted, chance, upper = np.zeros(len(outcome)), np.full(len(outcome), np.nan), np.full(len(outcome), np.inf)
    for index, context in enumerate(contexts):
        seen = triangle.predict(fit, context)
        if anytime and seen.ready:
            log_det, least = triangle.volume(None, fit, seen, True, ridge=mixture.ridge)
            seen = seen._replace(log_det=log_det, least=least)
        fitted[index] = seen.cost
        upper[index] = cost_upper(
            seen, "anytime" if anytime else "per_round", spec.violation_risk, failure, mixture=mixture
        )
        if math.isfinite(outcome[index]):
            chance[index] = chance_above(seen, float(outcome[index]))
            fit = triangle.update(fit, seen, 0.0, outcome[index])
    return fitted, chance, upper


def _excess_path(over: Any, known: Any, risk: float) -> Array:
    state, path = monitor.init(), np.ones(len(over))
    for index in range(len(over)):
        if known[index]:
            state = monitor.update(state, bool(over[index]), risk)
        path[index] = monitor.evidence(state)
    return path


def _policy(given: Policy | Mapping[str, Any] | None) -> Policy:
    if given is None:
        return make_policy("hp_student")
    made = given if isinstance(given, Policy) else make_policy(**given)
    require(GUARANTEES[made.guarantee].gaussian, "policy", made.name, "gives no student guarantee", "name hp_student")
    return made
