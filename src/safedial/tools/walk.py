"""One walk of past rounds through a policy: `play(policy, rounds)`.

    asked ─► begin ─► bound ─► open, with what was given ─► tell, with what it led to ─► evidence

The policy decides nothing: it is asked each question, says its bound, and is told what was given then and what that
led to, at once. So the numbers of its bounds were known before the outcomes, and its evidence is that of an `Agent`
that decided these rounds. The checks and the monitor of a log are made of these two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.estimate import sample_weight
from safedial.errors import require
from safedial.model.costs import as_stated, exceeded
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies import Policy, make_policy
from safedial.policies.policy import KNOWN, LEFT_OUT, OPEN, Asked, Bound, Evidence, Task, Told
from safedial.rounds.log_file import Log
from safedial.rounds.rules import named_policy
from safedial.tools.findings import Finding
from safedial.tools.past_rounds import Rounds, read_rounds


class Step(NamedTuple):
    """One round: its place, what the policy was asked, said and was told, its evidence then, and its state."""

    place: int
    asked: Asked
    bound: Bound
    told: Told
    evidence: dict[str, Evidence]
    state: Any


def play(policy: Policy, rounds: Rounds, *, nothing: int = LEFT_OUT) -> Iterator[Step]:
    """Walk rounds through a policy that is bound to its task.

    Args:
        nothing: what becomes of a round that tells nothing because nothing was given; a log does not say why.
    """
    state, columns = policy.init(), told(policy, rounds, nothing=nothing)
    numbers = {name: getattr(columns, name).tolist() for name in COLUMNS}
    costs = {name: values.tolist() for name, values in rounds.costs.items()}
    given = proposals(policy, rounds)
    asked_for = [None] * len(rounds) if given is None else given.tolist()
    for place, context in enumerate(rounds.context):
        measured = as_stated(policy.spec, {name: values[place] for name, values in costs.items()})
        norm, row = float(np.linalg.norm(context)), {name: values[place] for name, values in numbers.items()}
        known = Told(**row, measured=measured, context=context, norm=norm)
        asked = Asked(context, norm, place + 1.0, known.baseline, proposal=asked_for[place])
        policy.begin(state, asked)
        bound = policy.bound(state, asked)
        policy.open(state, asked, bound, known.action if policy.unit == "setting" else known.intensity)
        if known.fate != OPEN:
            policy.tell(state, place, known)
        yield Step(place, asked, bound, known, policy.evidence(state), state)


COLUMNS = ("fate", "reward", "cost", "weight", "baseline", "action", "intensity", "reward_intensity")
"""What is told of a round in plain numbers."""


def told(policy: Policy, rounds: Rounds, *, nothing: int = LEFT_OUT) -> Told:
    """What a policy is told of all rounds, as columns. A cost is one per unit of intensity, ∞ where there is none, and
    only that of a single cost.
    """
    task = policy.task
    share = task.dial.action(rounds.setting)
    harm, gain = (np.asarray(curve.effect(share), dtype=float) for curve in (task.dose.cost, task.dose.reward))
    weight = np.asarray(sample_weight(task.spec, gain, harm, rounds.context), dtype=float)
    known = np.all([np.isfinite(values) for values in rounds.costs.values()], axis=0)
    fate = np.where(known, np.where((weight > 0.0) | policy.zero_tells, KNOWN, nothing), OPEN)
    used, above = known & (weight > 0.0), next(iter(rounds.costs.values())) - rounds.baseline
    with np.errstate(over="ignore"):
        cost = np.where(used, above / np.where(used, harm, 1.0), np.inf)
        reward = np.where(used, rounds.reward / np.where(used, gain, 1.0), 0.0)
    return Told(
        fate, reward, cost, weight, rounds.costs, rounds.baseline, rounds.setting, harm, rounds.context,
        reward_intensity=gain,
    )  # fmt: skip


def proposals(policy: Policy, rounds: Rounds) -> Array | None:
    """The proposals that questions come with, where they are what a policy scales, or what it is asked for."""
    options, way_out = policy.options, "add what was proposed in each round, or name another `base`"
    if options.get("base") != "proposal" and options.get("chooser") != "request":
        return None
    rule = f"lacks the column `proposal`, which {policy.name} scales"
    require(rounds.proposal is not None, "log", list(rounds.names), rule, way_out)
    return rounds.proposal


@dataclass(frozen=True, kw_only=True)
class Walk:
    """What a walk of n rounds found, as columns.

    Attributes:
        policy, state: the policy, bound to its task, and what it had learned at the end.
        told: what became of the rounds. ready: whether there was a bound; else it was the start's.
        numbers: those of the bounds, by name. evidence: after each round, by the rule that it stops with.
        ranked, chance, ranked_evidence: of each p-value that was bet on: its round, itself and the evidence after it.
        unseen: rounds of a study without an outcome, which are not among the rows.
    """

    policy: Any
    state: Any
    rounds: Rounds
    told: Told
    ready: NDArray[np.bool_]
    numbers: Mapping[str, Array]
    evidence: Mapping[str, Array]
    ranked: Any
    chance: Array
    ranked_evidence: Array

    def __len__(self) -> int:
        return int(self.known.sum())

    @property
    def spec(self) -> SafetySpec:
        return self.policy.spec

    @property
    def known(self) -> NDArray[np.bool_]:
        """The rounds that told something."""
        return self.told.fate == KNOWN

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Of these, those that were given at most what was advised, under the guarantee."""
        return self.known & ~(self.rounds.setting > self.rounds.advised)

    @property
    def over(self) -> dict[str, NDArray[np.bool_]]:
        """Whether each cost, by name, exceeded."""
        costs, nothing = self.rounds.costs, dict.fromkeys(self.rounds.costs)
        alone = {name: as_stated(self.spec, {**nothing, name: values}) for name, values in costs.items()}
        return {name: np.asarray(exceeded(self.spec, each, self.policy.direction)) for name, each in alone.items()}

    @property
    def exceeded(self) -> NDArray[np.bool_]:
        """Whether any cost exceeded."""
        return np.any(list(self.over.values()), axis=0)


def walk(policy: Policy, rounds: Rounds, names: Sequence[str], *, nothing: int = LEFT_OUT) -> Walk:
    """Walk rounds through a policy that is bound to its task, and keep these numbers of its bounds."""
    numbers: dict[str, list[Any]] = {name: [] for name in names}
    evidence: dict[str, list[float]] = {}
    ready, bets, state = [], [], None
    for step in play(policy, rounds, nothing=nothing):
        ready.append(bool(step.bound.ready))
        for name, values in numbers.items():
            values.append(step.bound.numbers[name])
        for rule, each in step.evidence.items():
            evidence.setdefault(rule, [1.0] * step.place).append(float(each.value))
        first, state = next(iter(step.evidence.values()), None), step.state
        if first is not None and first.bet is not None and (not bets or first.bet[0] > bets[-1][0]):
            bets.append((*first.bet, float(first.value)))
    ranked, chance, after = np.array(bets, dtype=float).reshape(-1, 3).T
    return Walk(
        policy=policy,
        state=state,
        rounds=rounds,
        told=told(policy, rounds, nothing=nothing),
        ready=np.array(ready, dtype=bool),
        numbers={name: np.array(values, dtype=float) for name, values in numbers.items()},
        evidence={rule: np.array(values) for rule, values in evidence.items()},
        ranked=ranked.astype(np.int64),
        chance=chance,
        ranked_evidence=after,
    )


# --- A log, and the policy that it is walked through


@dataclass(frozen=True, kw_only=True)
class LogCase:
    """A log and the guarantee that it is compared with; the arguments of `check_log` and `watch_log`."""

    log: Log
    spec: SafetySpec
    level: float
    dose: Dose | None = None
    policy: Policy | Mapping[str, Any] | None = None
    dial: Dial | None = None
    features: Features | None = None
    target: str = "cost"
    horizon: int | None = None

    @property
    def stated(self) -> Policy:
        """The policy that is given, in itself or as a spec file's table, or the spec's default."""
        default = GUARANTEES[self.spec.guarantee]
        given = {} if self.policy is None else self.policy
        made = named_policy({"name": default.default_policy, **given}) if isinstance(given, Mapping) else given
        fits = GUARANTEES[made.guarantee].needs == default.needs
        rule = f"gives no {self.spec.guarantee} guarantee"
        require(fits, "policy", made.name, rule, f"name {default.default_policy}")
        return made

    def walked(
        self,
        names: Sequence[str],
        options: Mapping[str, Any],
        *,
        nothing: int = LEFT_OUT,
        dial: Dial | None = None,
        features: Features | None = None,
    ) -> Walk:
        """The walk of the log through the spec's default policy with these options. Without a dial settings are shares
        of it.
        """
        dose, dial = as_dose(self.dose), dial or Dial()
        task = Task(dim=self.log.dim, spec=self.spec, dose=dose, dial=dial, features=features, live=True)
        policy = make_policy(GUARANTEES[self.spec.guarantee].default_policy, **options).on(task)
        return walk(policy, read_rounds(self.log, self.spec, dial=task.dial, features=None), names, nothing=nothing)


@dataclass(frozen=True, kw_only=True)
class LogTest:
    """How a log tests a guarantee that rests on one thing (`checks.TESTS`).

    Attributes:
        check: what the checks used, and what they found. watch: what the monitor found.
        targets: the outcomes that can be checked.
        figure: the picture of the checks; drawn: what it shows, in words.
        guarantee: what the spec guarantees, and what that rests on, as HTML.
        further: how many checks may raise a flag that are no bets. slack: what else the level covers, in words.
        columns: the columns of numbers that such a log needs, beside or in place of those of every log (`read_log`).
    """

    check: Callable[[LogCase], tuple[Any, list[Finding]]]
    watch: Callable[[LogCase], Any]
    figure: Callable[[Any, Sequence[Finding]], Any]
    drawn: str
    guarantee: Callable[[Any], str]
    targets: tuple[str, ...] = ("cost",)
    further: Callable[[Any], int] = lambda found: 0
    slack: str = ""
    columns: Callable[[SafetySpec, Policy | Mapping[str, Any] | None], dict[str, Any]] = lambda spec, policy: {}


def require_rounds(found: Told, least: int, words: str = "") -> None:
    """Refuse a log with fewer rounds that were given something and tell of it, or with outcomes that overflow."""
    used = found.weight > 0.0
    count, rule = int(used.sum()), f"rounds with a dose are too few: at least {least} are needed{words}"
    require(count >= least, "log", count, rule)
    finite = np.isfinite(found.cost[used]).all() and np.isfinite(found.reward[used]).all()
    require(finite, "log", "outcomes", "divided by g are not finite", "report outcomes that are numbers")
