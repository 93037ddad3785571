"""Several costs under a certified or a student guarantee: one learner for each, and the smallest of their settings.

**Certified.** Each cost has its own rules: its threshold, noise and dose curve, and its share of the risks.
`model.costs` has the proof that the smallest of the settings keeps the guarantee. All learners see every outcome, so
they agree about the reward.

**Student.** Cost k has its share s_k of both risks (`model.costs`), and the setting that its own bound allows keeps it
with its own guarantee, at s_kδ and s_kδ′. A lower setting keeps it too, as noise scales with the intensity, so the
smallest keeps all: by the union bound P(any C_k > τ_k) ≤ δ, with probability 1 − δ′ where the guarantee has one,
however the costs depend on each other. Where one has no bound yet, nothing is proved, and no setting is above the
start.

The evidence of each cost is fair by itself, and nothing is known about all together. So the largest, divided by their
number, is what counts: it ever reaches 100 with probability at most 0.01.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from safedial.bounds.choice import Choice
from safedial.bounds.estimate import Prediction
from safedial.bounds.rounding import round_down, rounded_spec
from safedial.bounds.safe_set import SafeSet
from safedial.model.costs import exceeded
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.rounds import several_terms
from safedial.rounds.decision import read_choice, written_choice
from safedial.rounds.learner import Learner
from safedial.rounds.outcome import Sample
from safedial.rounds.student_learner import StudentLearner

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules


class View(NamedTuple):
    """What a decision rests on: each cost's prediction and choice, and the cost that allows least."""

    predictions: dict[str, Prediction]
    choices: dict[str, Choice]
    least: str


class SeveralLearner(Learner):
    """One learner for each cost, by name."""

    certificate_terms = several_terms
    event: Any = staticmethod(several_terms.event)
    fixed_assumptions: Any = staticmethod(several_terms.assumptions)
    part_kind: ClassVar[type[Learner]]
    """The class of these learners."""

    def __init__(self, rules: Rules, learners: dict[str, Learner]) -> None:
        self.rules, self.learners = rules, learners
        self.safe_specs = {name: rounded_spec(part.spec) for name, part in rules.parts.items()}

    @classmethod
    def started(cls, rules: Rules, start_action: Any) -> Rules:
        for part in rules.parts.values():
            part.learner.started(part, start_action)
        return rules

    @classmethod
    def specs(cls, rules: Rules) -> list[SafetySpec]:
        return [part.spec for part in rules.parts.values()]

    @classmethod
    def exceeds(cls, rules: Rules, sample: Sample, advised: float) -> bool:
        return any(
            rules.parts[name].learner.exceeds(rules.parts[name], part, advised) for name, part in sample.cost.items()
        )

    @classmethod
    def judges(cls, rules: Rules, sample: Sample, advised: float) -> bool:
        return all(
            rules.parts[name].learner.judges(rules.parts[name], part, advised) for name, part in sample.cost.items()
        )

    @classmethod
    def is_over(cls, rules: Rules, cost: Any) -> bool:
        return bool(exceeded(rules.spec, cost))

    @classmethod
    def written(cls, prediction: View) -> dict[str, Any]:
        seen, choices = prediction.predictions, prediction.choices
        costs = {
            name: {"prediction": cls.part_kind.written(seen[name]), "choice": written_choice(choice)}
            for name, choice in choices.items()
        }
        return {"costs": costs, "least": prediction.least}

    @classmethod
    def read_written(cls, rules: Rules, values: Mapping[str, Any]) -> View:
        read, costs = cls.part_kind.read_written, values["costs"]
        predictions = {name: read(part, costs[name]["prediction"]) for name, part in rules.parts.items()}
        return View(predictions, {name: read_choice(costs[name]["choice"]) for name in rules.parts}, values["least"])

    @property
    def samples(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        return next(iter(self.learners.values())).samples

    def predict(self, context: Array, norm: float) -> dict[str, Any]:
        return {name: learner.predict(context, norm) for name, learner in self.learners.items()}

    def rounding(self, context: Array, norm: float) -> float | None:
        return max(learner.rounding(context, norm) or 0.0 for learner in self.learners.values())

    def estimated(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        parts = numbers["costs"].items()
        return {f"{cost}.{name}": value for cost, part in parts for name, value in part["prediction"].items()}

    def reread(self, rules: Rules, values: Mapping[str, Any], context: Array, norm: float) -> dict[str, Any]:
        return {
            name: learner.reread(rules.parts[name], values["costs"][name]["prediction"], context, norm)
            for name, learner in self.learners.items()
        }

    def choose(
        self, rules: Rules, spec: SafetySpec, prediction: Any, *, round: float, coin: float, baseline_cost: float
    ) -> tuple[View, Choice]:
        """Each cost's choice under its own rules; the smallest is taken."""
        asked = {"round": round, "coin": coin, "baseline_cost": baseline_cost}
        found = {
            name: learner.choose(rules.parts[name], self.safe_specs[name], prediction[name], **asked)
            for name, learner in self.learners.items()
        }
        choices = {name: choice for name, (_, choice) in found.items()}
        safe = {name: self._shared(name, choice.safe.intensity) for name, choice in choices.items()}
        least = min(safe, key=lambda name: safe[name])
        choice = choices[least]._replace(
            intensity=min(safe[least], *(self._shared(name, choice.intensity) for name, choice in choices.items())),
            safe=SafeSet(safe[least], all(choice.safe.certified for choice in choices.values())),
            bounds=choices[least].bounds._replace(refuted=any(choice.bounds.refuted for choice in choices.values())),
        )
        return View({name: seen for name, (seen, _) in found.items()}, choices, least), choice

    def _shared(self, name: str, intensity: float) -> float:
        """An intensity of one cost's curve in that of the rules, which all costs share: never a higher setting."""
        own, shared = self.rules.parts[name].dose.cost, self.rules.dose.cost
        if own is shared or intensity in (0.0, 1.0):
            return intensity
        action = float(own.action(round_down(intensity, own.error_units)))
        return min(round_down(float(shared.effect(action)), shared.error_units), math.nextafter(1.0, 0.0))

    def parts(self, rules: Rules, sample: Sample) -> list[tuple[Rules, Learner, Sample]]:
        return [(rules.parts[name], self.learners[name], part) for name, part in sample.cost.items()]

    def learn(self, context: Array, norm: float, sample: Sample, place: Any) -> None:
        """Each cost from its own part; nothing where one is not known."""
        if sample.weight > 0.0:
            for name, learner in self.learners.items():
                learner.learn(context, norm, sample.cost[name], place)

    def coef(self, target: str) -> Array:
        """The reward's coefficients, or a row for each cost."""
        found = np.stack([learner.coef(target) for learner in self.learners.values()])
        return found[0] if target == "reward" else found

    def state(self) -> dict[str, Any]:
        return {
            f"{name}.{key}": array for name, learner in self.learners.items() for key, array in learner.state().items()
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        for name, learner in self.learners.items():
            start = f"{name}."
            learner.restore({key[len(start) :]: array for key, array in arrays.items() if key.startswith(start)})


# --- Several costs under a student guarantee


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

    def count_start(self, guarantee: str) -> None:
        for learner in self.learners.values():
            learner.count_start(guarantee)

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
