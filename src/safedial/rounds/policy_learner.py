# pyright: reportIncompatibleMethodOverride=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportCallIssue=false
# (`Learner`, whose signatures these differ from, goes when all policies are ported.)
"""The driver of a policy (`policies.policy`) in an agent or a study: one lane of its state, and what people ask of it.

What is asked of any policy, whatever its state, is answered from the policy's data; what changes the state is one of
`begin`, `open`, `tell` and `restart`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.choice import Choice
from safedial.bounds.confidence import Bounds
from safedial.bounds.safe_set import SafeSet
from safedial.errors import InvalidInput, refusal, require
from safedial.model.costs import exceeded
from safedial.model.dial import real
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies import table
from safedial.policies.policy import KNOWN, LEFT_OUT, LOST, THROTTLED, Asked, Bound, Policy, Task, Told, plain
from safedial.rounds.decision import Decision, intensity_of, settings_of
from safedial.rounds.learner import Learner, Residuals
from safedial.rounds.outcome import Asked as Question
from safedial.rounds.outcome import Sample, check_reported, cost_at_advice
from safedial.rounds.rules import Rules, plain_options

RESIDUAL = ("reward", "cost", "reward_far", "cost_far", "cost_slack")
"""The numbers of a bound that an outcome's residuals follow from: two means, how far each may lie from the true one
without any noise in the round, and how far rounding may have raised the cost's."""

AMENDABLE = ("threshold", "fallback_action", "high_fallback", "guard")
"""Fields of a study on which what a certified policy learns may not depend: its own `keeps` says so of a spec's."""

AT_START = ("start_dose", "no_information", "open_rounds", "forgotten", "shield_start")
"""The keys of `LIMITS` that say why a start dose was given."""


class Ask(NamedTuple):
    """A question on its way to the policy: what a decision's `prediction` is before it is chosen."""

    context: Array
    norm: float
    proposal: float | None
    stated: Any
    state: Any


class Driver(Learner):
    """What is asked of a policy without its state. A drop-in for the class of a learner."""

    reads_questions = True

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.in_order, self.watches_itself = policy.in_order, not policy.counts
        self.stop_rules, self.awaits_all = policy.stop_rules, policy.zero_tells
        self.names_rounds = policy.names_rounds
        self.samples, self.starts = 0, None if policy.counts or not policy.counts_starts else 0
        self._prepares, self._opens = type(policy).begin is not Policy.begin, type(policy).open is not Policy.open
        """Whether decisions change its state: before they are made, and when they are. Outcomes always do."""
        self.kept_through = tuple(name for name in AMENDABLE if policy.keeps({name}))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) is Driver and self.policy == other.policy

    def __hash__(self) -> int:
        return hash(type(self))

    def __call__(self, rules: Rules) -> PolicyLearner:
        """The learner before any round."""
        return PolicyLearner(rules)

    def started(self, rules: Rules, start_action: Any) -> Rules:
        """The rules with the policy bound to its task, and the start and fallback that it then has."""
        start = None if start_action is None else real("start_action", start_action)
        parts = {"dose": rules.dose, "dial": rules.dial, "features": rules.features}
        made = self.policy.on(Task(dim=rules.dim, spec=rules.spec, start_action=start, live=True, **parts))
        fallback = rules.fallback_action if made.fallback_action is None else made.fallback_action
        return rules._replace(
            policy=made, learner=Driver(made), start_action=made.start_action, fallback_action=fallback
        )

    def is_over(self, rules: Rules, cost: Any) -> bool:
        return bool(exceeded(rules.spec, cost, self.policy.direction))

    def exceeds(self, rules: Rules, sample: Sample, advised: float) -> bool:
        if rules.parts is not None:
            return any(self.exceeds(rules.parts[name], part, advised) for name, part in sample.cost.items())
        cost = cost_at_advice(rules, sample, advised)
        return cost is not None and self.is_over(rules, cost)

    def judges(self, rules: Rules, sample: Sample, advised: float) -> bool:
        if rules.parts is not None:
            return all(self.judges(rules.parts[name], part, advised) for name, part in sample.cost.items())
        known = cost_at_advice(rules, sample, advised) is not None
        return known and (not sample.unknown or self.exceeds(rules, sample, advised))

    def check_history(self, rules: Rules) -> None:
        if not self.policy.takes_history:
            words = f"{self.policy.name} learns only from rounds that it decided; start without it"
            raise InvalidInput(f"history: {words}")

    def check_study(self, rules: Rules) -> None:
        """A study's options must be plain values, from which its log can be replayed."""
        written = plain_options(rules.policy.options)
        own = [name for name, value in written.items() if isinstance(value, dict) and "custom" in value]
        rule = "is your own function or model, which a log cannot hold"
        require(not own, own[0] if own else "", own, rule, "make its value a feature or a proposal, or use an Agent")
        rules.policy.check_study()

    def specs(self, rules: Rules) -> list[SafetySpec]:
        return [rules.spec] if rules.parts is None else [part.spec for part in rules.parts.values()]

    def revises(self, rules: Rules) -> bool:
        return rules.policy.revise is not None

    def needs_reward(self, rules: Rules) -> bool:
        return self.policy.reads_reward

    def least_setting(self, rules: Rules) -> float | None:
        return rules.policy.least_setting

    def chosen(self, decision: Decision) -> str:
        return decision.choice.limit if self.policy.unit == "setting" else ""

    def guarded(self, decision: Decision) -> str:
        limit = decision.choice.limit
        return "" if limit in AT_START else limit

    def start_limit(self, decision: Decision) -> str:
        limit = decision.choice.limit
        return limit if limit in AT_START else ""

    def settings(self, rules: Rules, prediction: Any, choice: Choice) -> tuple[float, float]:
        """The setting of a choice, and the largest safe one, in the dial's units."""
        return choice.settings or settings_of(rules, choice)

    def read_question(self, rules: Rules, asked: Question, proposal: Any) -> Question:
        if proposal is not None:
            if not self.policy.takes_proposal:
                raise refusal("proposal", proposal, f"is not for {rules.policy.name}", "leave it out")
            asked = asked._replace(proposal=real("proposal", proposal))
        given = Asked(asked.vector, asked.norm, 0, asked.baseline_cost, proposal=asked.proposal)
        stated = rules.policy.read(given)
        return asked if stated is None else asked._replace(stated=stated)

    def written(self, prediction: Any) -> dict[str, Any]:
        return dict(prediction)

    def read_written(self, rules: Rules, values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(values)

    def statement(self, decision: Decision) -> str:
        return self.policy.terms(decision.plain).statement

    def fixed_assumptions(self, rules: Rules) -> list[str]:
        return rules.policy.terms(None).assumptions

    def facts(self, decision: Decision) -> dict[str, Any]:
        terms = self.policy.terms(decision.plain)
        return {"assumptions": terms.assumptions, **terms.facts}

    def arithmetic(self, decision: Decision, facts: dict[str, Any]) -> list[str]:
        decided = decision.plain
        if self.names_rounds:  # a study names them by their ids
            decided = decided._replace(numbers={**decided.numbers, "exceeding": facts["count"]["exceeding"]})
        return list(self.policy.terms(decided).arithmetic)

    def history_counts(self, rules: Rules) -> bool:
        return rules.policy.history_counts

    def fallback_note(self, decision: Decision) -> str:
        return self.policy.terms(decision.plain).note

    def predict(self, context: Array, norm: float) -> Any:
        raise NotImplementedError

    def learn(self, context: Array, norm: float, sample: Sample, place: Any) -> None:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        raise NotImplementedError

    def restore(self, arrays: dict[str, Any]) -> None:
        raise NotImplementedError


class PolicyLearner(Driver):
    """A policy with the one lane of its state."""

    def __init__(self, rules: Rules) -> None:
        super().__init__(rules.policy)
        self.rules, self._state = rules, rules.policy.init()
        self.opened_rounds = 0
        self._contexts: dict[int, Array] = {}
        """Those of open rounds, where the policy must know the round that an outcome belongs to."""
        self._latest: tuple[Asked, Bound] | None = None
        """The last question and its bound, for the round that is opened next."""
        self._seen: tuple[Asked, Bound] | None = None
        """The same, until the state changes."""

    # --- a decision

    def begin(self) -> None:
        if not self._prepares:
            return
        self._latest = self._seen = None
        self.policy.begin(self._state)

    def ask(self, asked: Question, *, preview: bool = False) -> Ask:
        """A question with the state that answers it: a preview's is a copy, with what the next decision begins with,
        where a decision begins with something.
        """
        state = self._state
        if preview and self._prepares:
            state = copy.deepcopy(state)
            self.policy.begin(state)
        return Ask(asked.vector, asked.norm, asked.proposal, asked.stated, state)

    def choose(
        self, rules: Rules, spec: Any, prediction: Ask, *, round: float, coin: float, baseline_cost: float
    ) -> tuple[Any, Choice]:
        # An amendment that keeps what was learned may have changed the rules, and a new start the policy's task.
        known = self.policy.task.spec
        policy = self.policy if rules.spec is known or rules.spec == known else rules.policy
        context, norm, proposal, stated, state = prediction
        asked = Asked(context, norm, round, baseline_cost, coin, proposal, stated)
        bound = policy.bound(state, asked)
        chosen = float(policy.choose(bound, asked))
        if state is self._state:
            self._latest = self._seen = asked, bound
        numbers = bound.numbers
        if not policy.plain_numbers:
            numbers = {name: plain(value) for name, value in numbers.items()}
        if self.starts is not None:
            numbers["starts"] = self.starts
        return numbers, self._choice(bound, chosen)

    def _choice(self, bound: Bound, chosen: float) -> Choice:
        told, largest = bound.numbers.get, float(bound.largest)
        upper, above = told("cost_upper", 0.0), told("reward_upper")
        above, upper = told("reward", 0.0) if above is None else above, math.inf if upper is None else upper
        radii = told("reward_radius", 0.0), told("cost_radius", 0.0)
        limits = Bounds(above, upper, *radii, bool(bound.refuted), told("noise"))
        settings = None
        if self.policy.unit == "setting":
            settings, alike = (chosen, largest), chosen == largest
            chosen = intensity_of(self.rules, chosen)
            largest = chosen if alike else intensity_of(self.rules, largest)
        safe, exploring = SafeSet(largest, bool(bound.certified)), bool(told("exploring", False))
        return Choice(
            chosen, safe, limits, float(bound.index), True, exploring, bool(bound.ready), bound.limit, settings
        )  # fmt: skip

    def opened(self, asked: Question, decision: Decision) -> int:
        """Open a decided round. Its bound is that of the last `choose`, unless the decision was read from a log."""
        latest, self._latest = self._latest, None
        if not self._opens:
            self.opened_rounds += 1
            return self.opened_rounds - 1
        more = {"proposal": asked.proposal, "stated": asked.stated}
        question = Asked(asked.vector, asked.norm, decision.round, asked.baseline_cost, **more)
        if latest is not None and latest[0].number == decision.round and latest[0].context is asked.vector:
            question, bound = latest
        else:
            bound = self.policy.bound(self._state, question)
        chosen = decision.action if self.policy.unit == "setting" else decision.intensity
        return self._open(question, bound, chosen)

    def _open(self, asked: Asked, bound: Bound | None, chosen: float) -> int:
        self.policy.open(self._state, asked, bound, chosen)
        place, self.opened_rounds = self.opened_rounds, self.opened_rounds + 1
        if not self.in_order:
            self._contexts[place] = asked.context
        return place

    # --- its outcome

    def check_report(self, context: Array, round: int, place: int | None, decisions: int) -> None:
        if not self.in_order:
            kept = None if place is None else self._contexts.get(place)
            history = self.policy.takes_history
            check_reported(self.policy.name, context, kept, round=round, decisions=decisions, history=history)

    def learn(self, context: Array, norm: float, sample: Sample, place: int | None) -> None:
        if place is None:
            place = self._open(Asked(context, norm, 0), None, sample.applied) if self._opens else 0
        if place < 0:  # the round was forgotten
            return
        fate = LOST if sample.unknown else KNOWN
        self.samples += not sample.unknown and (sample.weight > 0.0 or self.policy.zero_tells)
        self._tell(place, told_of(fate, sample, context, norm))

    def revise(self, context: Array, before: Sample, after: Sample) -> None:
        """Replace the outcome of a round that was learned from."""
        self._latest = self._seen = None
        told = (told_of(KNOWN, sample, context, math.nan) for sample in (before, after))
        self.policy.revise(self._state, *told)

    def throttled(self, context: Array, sample: Sample, place: int, advised: float) -> None:
        self._tell(place, told_of(THROTTLED, sample, context, math.nan))

    def leave_out(self, place: int) -> None:
        self._tell(place, nothing_told(LEFT_OUT, self._contexts.get(place)))

    def lose(self, place: int | None, baseline_cost: float = 0.0) -> None:
        if place is not None:
            self._tell(place, nothing_told(LOST, self._contexts.get(place), baseline_cost))

    def _tell(self, place: int, told: Told) -> None:
        if place < 0:
            return
        self._latest = self._seen = None
        if self._contexts:
            self._contexts.pop(place, None)
        self.policy.tell(self._state, place, told)

    def parts(self, rules: Rules, sample: Sample) -> list[tuple[Rules, Any, Sample]]:
        if rules.parts is None:
            return [(rules, self, sample)]
        return [(rules.parts[name], PartOf(self, f"{name}."), part) for name, part in sample.cost.items()]

    # --- its evidence

    def residuals(self, rules: Rules, context: Array, norm: float, sample: Sample, of: str = "") -> Residuals | None:
        """The residuals of an outcome, where the policy's numbers say how far its means may be off without noise.

        `of` is "" or the beginning of the names of one cost's numbers.
        """
        seen = self._seen
        if seen is None or seen[0].context.tobytes() != context.tobytes():
            asked = Asked(context, norm, max(self.opened_rounds, 1))
            self._seen = seen = asked, rules.policy.bound(self._state, asked)
        told = seen[1].numbers
        if f"{of}cost_far" not in told:
            return None
        share = math.sqrt(sample.weight)
        mean, cost, reward_far, cost_far, raised = (share * told[of + name] for name in RESIDUAL)
        return share * sample.reward - mean, reward_far, share * sample.cost - cost, cost_far, raised

    @property
    def evidence(self) -> float | None:
        """That of the first of its rules."""
        if self.policy.counts:
            return None
        return next((float(each.value) for each in self.policy.evidence(self._state).values()), 1.0)

    @property
    def alarmed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        return any(bool(each.crossed) for each in self.policy.evidence(self._state).values())

    @property
    def stop_rule(self) -> str:
        found = self.policy.evidence(self._state)
        crossed = [rule for rule, each in found.items() if bool(each.crossed)]
        return crossed[0] if crossed else self.stop_rules[0] if self.watches_itself else "alarm"

    def restart_evidence(self) -> None:
        self._latest = None
        self.policy.restart(self._state)

    def forget(self, *, unrelated: bool = False) -> None:
        """Start again without rounds, after a change that made the earlier ones useless: a new epoch. `unrelated`: the
        reason for it has nothing to do with outcomes.
        """
        if not self.watches_itself:
            super().forget()
        task = self.policy.task
        self._begin_epoch(task.epoch + 1, exact=task.exact and unrelated)
        self.samples, self.opened_rounds = 0, 0
        self._contexts.clear()

    def begins_after(self, before: Learner) -> None:
        if isinstance(before, PolicyLearner):
            task = before.policy.task
            self._begin_epoch(task.epoch + 1, exact=task.exact)

    def _begin_epoch(self, epoch: int, *, exact: bool) -> None:
        """Begin with nothing learned."""
        self.policy = self.policy.on(replace(self.policy.task, epoch=epoch, exact=exact))
        self._state, self._latest, self._seen = self.policy.init(), None, None

    def coef(self, target: str) -> Array:
        """The coefficients that the policy predicts by: its predictions at the unit vectors; for several costs a row
        for each.
        """
        if target == "cost" and self.rules.parts is not None:
            return np.stack([self._coef(f"{name}.cost") for name in self.rules.parts])
        return self._coef(target if self.rules.parts is None else f"{next(iter(self.rules.parts))}.{target}")

    def _coef(self, target: str) -> Array:
        number, rows = max(self.opened_rounds, 1), np.eye(self.policy.task.dim)
        asked = [Asked(row, 1.0, number) for row in (*rows, *-rows)]
        found = [self.policy.bound(self._state, each).numbers.get(target) for each in asked]
        if any(each is None for each in found):
            raise InvalidInput(f"{target}_coef: policy {self.policy.name} has no coefficients")
        # Half the difference to the opposite context: what a prediction was raised by, for rounding, cancels.
        ahead, behind = np.split(np.array(found, dtype=np.float64), 2)
        return 0.5 * (ahead - behind)

    # --- decisions of another processor

    def rounding(self, context: Array, norm: float) -> float | None:
        recorded = self.policy.recorded
        return None if recorded is None else recorded.rounding(self._state, context, norm)

    def estimated(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers of a decision that all others follow from."""
        return {name: value for name, value in numbers.items() if name in self.policy.recorded.names}

    def reread(self, rules: Rules, values: Mapping[str, Any], context: Array, norm: float) -> Ask:
        """A question whose decision follows from recorded numbers."""
        return Ask(context, norm, None, None, self.policy.recorded(self.policy, values, context))

    # --- saving

    def state(self) -> dict[str, Any]:
        places = sorted(self._contexts)
        rows = [self._contexts[place] for place in places]
        return {
            **{f"policy.{name}": value for name, value in table.pack(self._state).items()},
            "counts": np.array([self.samples, self.opened_rounds, -1 if self.starts is None else self.starts]),
            "epoch": np.array([self.policy.task.epoch, self.policy.task.exact]),
            "open.places": np.array(places, dtype=np.int64),
            "open.contexts": np.array(rows, dtype=np.float64).reshape(len(places), self.policy.task.dim),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        epoch, exact = (int(value) for value in arrays["epoch"])
        self._begin_epoch(epoch, exact=bool(exact))
        packed = {name.removeprefix("policy."): value for name, value in arrays.items() if name.startswith("policy.")}
        self._state = table.unpack(self.policy.init(), packed)
        self.samples, self.opened_rounds, starts = (int(value) for value in arrays["counts"])
        self.starts = None if starts < 0 else starts
        self._contexts = dict(zip(arrays["open.places"].tolist(), arrays["open.contexts"].copy(), strict=True))
        self._latest = self._seen = None


class PartOf(NamedTuple):
    """One of several costs, as the watch asks it."""

    learner: PolicyLearner
    of: str

    def residuals(self, rules: Rules, context: Array, norm: float, sample: Sample) -> Residuals | None:
        return self.learner.residuals(self.learner.rules, context, norm, sample, self.of)


def told_of(fate: int, sample: Sample, context: Any, norm: float) -> Told:
    """An outcome as a policy is told it."""
    parts, cost = None, sample.cost
    if isinstance(cost, dict):
        parts = {name: told_of(fate, part, context, norm) for name, part in cost.items()}
        cost = 0.0
    return Told(
        fate, sample.reward, cost, sample.weight, sample.measured, sample.baseline_cost, sample.applied,
        sample.intensity, context, norm, parts,
    )  # fmt: skip


def nothing_told(fate: int, context: Any, baseline: float = 0.0) -> Told:
    """A round without an outcome."""
    return Told(fate, 0.0, 0.0, 0.0, math.nan, baseline, math.nan, 0.0, context)
