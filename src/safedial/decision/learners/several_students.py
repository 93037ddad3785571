"""Several costs under a student promise: one HP-Student learner for each, and the smallest of their settings.

Cost k has its share s_k of both risks (`core.costs`), and the setting that its own bound allows keeps it with its own
promise, at s_kδ and s_kδ′. A lower setting keeps it too, as noise scales with the intensity, so the smallest keeps all:
by the union bound P(any C_k > τ_k) ≤ δ, with probability 1 − δ′ where the promise has one, however the costs depend on
each other. Where one has no bound yet, nothing is proved, and no setting is above the start.

The evidence of each cost is fair by itself, and nothing is known about all together. So the largest, divided by their
number, is what counts: it ever reaches 100 with probability at most 0.01.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from safedial.core.action import Choice
from safedial.core.spec import SafetySpec
from safedial.decision.certificates import several_terms
from safedial.decision.learners.several_learner import SeveralLearner, View
from safedial.decision.learners.student_learner import StudentLearner
from safedial.decision.outcome import Sample

if TYPE_CHECKING:
    from safedial.decision.decision import Decision
    from safedial.decision.learners.several_learner import Array
    from safedial.decision.rules import Rules


class SeveralStudents(SeveralLearner):
    """One `StudentLearner` for each cost, by name; all see the same rounds."""

    in_order, watches_itself = False, True
    stop_rules = StudentLearner.stop_rules
    part_kind = StudentLearner
    statement: Any = StudentLearner.statement

    def __init__(self, rules: Rules, learners: dict[str, Any]) -> None:
        super().__init__(rules, learners)
        self.first: StudentLearner = next(iter(learners.values()))
        self.leaves_own_zeros = self.first.leaves_own_zeros
        for learner in learners.values():
            learner.watch.alarm_at = 100.0 * len(learners)

    @classmethod
    def started(cls, rules: Rules, start_action: Any) -> Rules:
        parts = {name: part.learner.started(part, start_action) for name, part in rules.parts.items()}
        first = next(iter(parts.values()))
        fallback = min(part.fallback_action for part in parts.values())
        whole = rules._replace(parts=parts, start_action=first.start_action, fallback_action=fallback)
        if start_action is not None:
            whole = whole._replace(policy=StudentLearner.started(rules, start_action).policy)
        return whole

    @classmethod
    def start_limit(cls, decision: Decision) -> str:
        return StudentLearner.start_limit(_least(decision))

    @classmethod
    def fixed_assumptions(cls, rules: Rules) -> list[str]:
        return []

    @classmethod
    def facts(cls, decision: Decision) -> dict[str, Any]:
        told = several_terms.facts(decision)
        own = {name: part.pop("assumptions") for name, part in told["costs"].items()}
        return {**told, "assumptions": several_terms.joined(own)} if any(own.values()) else {**told, "assumptions": []}

    @property
    def starts(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        return self.first.starts

    def begin(self) -> None:
        for learner in self.learners.values():
            learner.begin()

    def foresee(self, context: Array, norm: float) -> dict[str, Any]:
        return {name: learner.foresee(context, norm) for name, learner in self.learners.items()}

    def choose(
        self, rules: Rules, spec: SafetySpec, prediction: Any, *, round: float, coin: float, baseline_cost: float
    ) -> tuple[View, Choice]:
        """The smallest choice; without a bound where one cost has none."""
        asked = {"round": round, "coin": coin, "baseline_cost": baseline_cost}
        view, choice = super().choose(rules, spec, prediction, **asked)
        unknown = [name for name, part in view.choices.items() if part.bounds.cost_upper == math.inf]
        if unknown:
            view = view._replace(least=min(unknown, key=lambda name: view.choices[name].safe.intensity))
            choice = choice._replace(bounds=choice.bounds._replace(cost_upper=math.inf))
        return view, choice

    def open(self, context: Array) -> int:
        places = [learner.open(context) for learner in self.learners.values()]
        return places[0]  # all learners see the same rounds

    def check_report(self, context: Array, round: int, place: int | None, decisions: int) -> None:
        self.first.check_report(context, round, place, decisions)

    def learn(self, context: Array, norm: float, sample: Sample, place: int | None) -> None:
        """Each cost from its own part; the round is lost where one is not known."""
        if sample.weight <= 0.0:
            self.lose(place)
        super().learn(context, norm, sample, place)

    def throttled(self, context: Array, sample: Sample, place: int, advised: float) -> None:
        for name, part in sample.cost.items():
            self.learners[name].throttled(context, part, place, advised)

    def leave_out(self, place: int) -> None:
        for learner in self.learners.values():
            learner.leave_out(place)

    def lose(self, place: int | None, baseline_cost: float = 0.0) -> None:
        for learner in self.learners.values():
            learner.lose(place, baseline_cost)

    def count_start(self, promise: str) -> None:
        for learner in self.learners.values():
            learner.count_start(promise)

    @property
    def evidence(self) -> float:
        return max(learner.evidence or 0.0 for learner in self.learners.values()) / len(self.learners)

    @property
    def alarmed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        return any(learner.alarmed for learner in self.learners.values())

    @property
    def stop_rule(self) -> str:
        return self.first.stop_rule

    def restart_evidence(self) -> None:
        for learner in self.learners.values():
            learner.restart_evidence()

    def forget(self) -> None:
        for learner in self.learners.values():
            learner.forget()


def _least(decision: Decision) -> Decision:
    """The decision of the cost that allows least."""
    return several_terms.parts_of(decision)[decision.prediction.least]
