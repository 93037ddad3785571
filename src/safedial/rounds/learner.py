"""What an agent and a study need from a learner. Your own learner is a subclass of `Learner`.

The defaults suit a learner that needs nothing special: it learns from outcomes in decision order, and its guarantee is
watched by counting violations. A subclass must define `predict`, `learn`, `state` and `restore`, and the rest only
where it differs. Code outside a learner never asks which learner it has.

Your own learner is made from its rules, `MyLearner(rules)`: `rules.spec` is the spec, `rules.dim` the dimension,
`rules.policy.options` are the policy's options. It learns from a `Sample`: reward and cost divided by their
intensities, `weight` (0: nothing to learn), and `intensity`, that of the applied setting.

A `randomised` policy gets a `coin` in its `decide`, uniform on [0, 1). A simulation draws it from its seeds, an agent
from its `seed`; a study derives it from the hash of the previous event, because it must be able to recompute each
decision. A learner that draws random numbers needs a generator seeded by an option of the policy, and must keep the
generator's state in `state`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from safedial.bounds.choice import Choice
from safedial.bounds.estimate import Dual, Prediction
from safedial.errors import InvalidInput, require
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.rounds import shared_terms
from safedial.rounds.decision import plain_choice
from safedial.rounds.outcome import Sample, cost_at_advice

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules

Residuals = tuple[float, float, float, float, float]


class Learner(ABC):
    """The state of one learner."""

    in_order: ClassVar[bool] = True
    """Whether outcomes must be learned in decision order, and none may be left out without a reason."""
    watches_itself: ClassVar[bool] = False
    """Whether its own evidence stops it (the rule "drift"); violations are then only counted."""
    stop_rules: ClassVar[tuple[str, ...]] = ("drift",)
    """The rules that its own evidence may trigger, keys of `LIMITS`; a resume after one restarts it."""
    reads_questions: ClassVar[bool] = False
    """Whether it takes more from a question than its context, as the driver of a policy of one class does."""
    names_rounds: ClassVar[bool] = False
    """Whether its written prediction lists rounds by number, under "exceeding"; a study lists their ids there."""
    awaits_all: ClassVar[bool] = False
    """Whether a study waits for the outcomes of decisions that give nothing too, because they tell something."""
    certificate_terms: ClassVar[Any] = shared_terms
    """The module whose `facts` and `arithmetic` write its part of a certificate."""
    kept_through: ClassVar[tuple[str, ...]] = ()
    """Fields of a specification on which what it learns under a certified guarantee does not depend."""

    samples: int = 0
    """The number of outcomes learned from."""
    starts: Any = None
    """The number of decisions at a declared or certified start dose; None for a learner without one."""
    alarmed: bool = False
    """Whether its own evidence has reached 100."""
    leaves_own_zeros: bool = False
    """Whether rounds for which it advised nothing, and which got nothing, are left out without harm."""

    @classmethod
    def check(cls, policy: Policy, spec: SafetySpec) -> None:
        """Refuse a spec that it cannot learn under."""

    @classmethod
    def started(cls, rules: Rules, start_action: Any) -> Rules:
        """The rules with the policy, `start_action` and default fallback that follow from the start dose."""
        name = rules.policy.name
        require(
            start_action is None,
            "start_action",
            start_action,
            f"does not apply to {name}",
            "its first dose is certified",
        )
        return rules

    @classmethod
    def exceeds(cls, rules: Rules, sample: Sample, advised: float) -> bool:
        """Whether an outcome is a violation, for people who count: at the advised setting, or below."""
        cost = cost_at_advice(rules, sample, advised)
        return cost is not None and cost > rules.spec.threshold

    @classmethod
    def specs(cls, rules: Rules) -> list[SafetySpec]:
        """The spec of each cost that is watched by itself; one for one cost."""
        return [rules.spec]

    @classmethod
    def is_over(cls, rules: Rules, cost: Any) -> bool:
        """Whether a measured cost is beyond its limit, whatever was applied."""
        return bool(cost > rules.spec.threshold)

    @classmethod
    def judges(cls, rules: Rules, sample: Sample, advised: float) -> bool:
        """Whether an outcome shows if the guarantee was kept."""
        return cost_at_advice(rules, sample, advised) is not None

    @classmethod
    def check_study(cls, rules: Rules) -> None:
        """Refuse rules that an agent may use but a study may not."""

    @classmethod
    def check_history(cls, rules: Rules) -> None:
        """Refuse rounds from before the first decision of a study."""

    @classmethod
    def revises(cls, rules: Rules) -> bool:
        """Whether it has a method `revise(context, before, after)` that replaces a learned sample by another of the
        same weight; without it a correction replays the log of a study.
        """
        return False

    @classmethod
    def needs_reward(cls, rules: Rules) -> bool:
        """Whether it chooses by rewards. Where it does not, a report may leave the reward out, and 0 is recorded."""
        return True

    @classmethod
    def least_setting(cls, rules: Rules) -> float | None:
        """The lowest setting given for a positive intensity; None: it may round down to nothing."""
        return None

    @classmethod
    def chosen(cls, decision: Decision) -> str:
        """A key of `LIMITS`: why the learner chose less than the largest safe setting; "" if it did not."""
        return ""

    @classmethod
    def guarded(cls, decision: Decision) -> str:
        """A key of `LIMITS`: which of its own guards set the largest intensity; "" if none did."""
        return ""

    @classmethod
    def start_limit(cls, decision: Decision) -> str:
        """A key of `LIMITS`: why a start dose is given; "" if none is."""
        return ""

    @classmethod
    def statement(cls, decision: Decision) -> str:
        """The guarantee of a decision without a fallback reason, in one sentence."""
        return decision.rules.sentence

    @classmethod
    def event(cls, rules: Rules) -> str:
        """What the guarantee limits the chance of: "cost > 0.5"."""
        spec = rules.spec
        cost = f"{spec.threshold_on} cost" if spec.cost_sensor_noise else "cost"
        return f"{cost} > {spec.threshold:g}"

    @classmethod
    def fallback_note(cls, decision: Decision) -> str:
        """What to add to the reason for a fallback."""
        return ""

    @classmethod
    def assumptions(cls, rules: Rules) -> list[str]:
        """Its assumptions beyond exact curves and complete reports, one sentence each."""
        return []

    @classmethod
    def fixed_assumptions(cls, rules: Rules) -> list[str]:
        """All its assumptions that do not depend on a single decision, one sentence each."""
        return shared_terms.fixed_assumptions(rules, cls.assumptions(rules))

    @classmethod
    def facts(cls, decision: Decision) -> dict[str, Any]:
        """Its part of a certificate: "risk", its bounds, its model; "assumptions" if they depend on the decision."""
        return cls.certificate_terms.facts(decision)

    @classmethod
    def arithmetic(cls, decision: Decision, facts: dict[str, Any]) -> list[str]:
        """How these numbers give the largest safe intensity, in words."""
        return cls.certificate_terms.arithmetic(decision, facts)

    @classmethod
    def written(cls, prediction: Any) -> dict[str, Any]:
        """A decision's prediction as plain values, for a study's log."""
        values: dict[str, Any] = {
            "cost": float(prediction.cost),
            "informative_rounds": float(prediction.informative_rounds),
            "log_det": float(prediction.log_det),
            "norm": float(prediction.norm),
            "reward": float(prediction.reward),
            "width": float(prediction.width),
        }
        if prediction.cost_energy is not None:
            values |= {name: float(getattr(prediction, name)) for name in ("reward_energy", "cost_energy")}
        if prediction.noise is not None:
            values["noise"] = float(prediction.noise)
        if prediction.dual is not None:
            values["dual"] = prediction.dual._asdict()
        return values

    @classmethod
    def read_written(cls, rules: Rules, values: Mapping[str, Any]) -> Any:
        """The inverse of `written`."""
        dual = Dual(**values["dual"]) if "dual" in values else None
        noise = {"noise": math.inf} if values.get("noise", 0.0) is None else {}
        return Prediction(**{**values, "dual": dual, **noise}, dim=rules.dim)

    @classmethod
    def same_option(cls, name: str, given: Mapping[str, Any], saved: Any) -> bool:
        """Whether the option `name` of a given policy is the saved one."""
        return given.get(name) == saved

    @classmethod
    def history_counts(cls, rules: Rules) -> bool:
        """Whether its guarantee also depends on rounds from before the first decision."""
        return True

    @property
    def evidence(self) -> float | None:
        """Its own evidence against its assumptions; None if violations are the evidence."""
        return None

    @property
    def stop_rule(self) -> str:
        """The rule that its evidence triggers: one of `stop_rules` if it watches itself."""
        return "drift" if self.watches_itself else "alarm"

    def begin(self) -> None:
        """Called before a decision."""

    @abstractmethod
    def predict(self, context: Array, norm: float) -> Any:
        """What a decision depends on. Must not change the learner."""

    def foresee(self, context: Array, norm: float) -> Any:
        """`predict` as it will be after the next `begin`."""
        return self.predict(context, norm)

    def rounding(self, context: Array, norm: float) -> float | None:
        """How far rounding may move its predictions on another processor; None if unknown."""
        return None

    def estimated(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers of a recorded prediction that rounding moves by at most `rounding`."""
        return dict(numbers)

    def reread(self, rules: Rules, values: Mapping[str, Any], context: Array, norm: float) -> Any:
        """A recorded prediction, with what is not `written`: from it a decision of another processor is recomputed."""
        return self.read_written(rules, values)

    def view(self, prediction: Any, choice: Choice) -> tuple[Any, Choice]:
        """The prediction and choice that a decision keeps: plain values that later rounds do not change. The bounds
        are marked as refuted if the data contradict the spec.
        """
        return prediction, plain_choice(choice)

    def choose(
        self, rules: Rules, spec: SafetySpec, prediction: Any, *, round: float, coin: float, baseline_cost: float
    ) -> tuple[Any, Choice]:
        """The policy's choice, and the prediction that a decision keeps (`view`)."""
        raise NotImplementedError

    def parts(self, rules: Rules, sample: Sample) -> list[tuple[Rules, Learner, Sample]]:
        """The known costs of an outcome, each with its rules, its learner and its part of the sample."""
        return [(rules, self, sample)]

    def open(self, context: Array) -> Any:
        """Register a decided round. Returns its place, which comes back with its outcome."""
        return None

    def check_report(self, context: Array, round: int, place: Any, decisions: int) -> None:
        """Refuse an outcome that is reported by its context but fits no round."""

    @abstractmethod
    def learn(self, context: Array, norm: float, sample: Sample, place: Any) -> None:
        """Learn from the outcome of the round at `place`; None: a round from before the first decision."""

    def residuals(self, rules: Any, context: Array, norm: float, sample: Sample) -> Residuals | None:
        """(reward residual, its slack, cost residual, its slack, rounding) of an outcome not yet learned, or None if
        they say nothing about the noise. A residual is the distance from the predicted mean, the slack is how far it
        may lie without any noise, both times √ω; rounding is what rounding may add to the cost's.
        """
        return None

    def throttled(self, context: Array, sample: Sample, place: Any, advised: float) -> None:
        """The setting of the round at `place` was lowered because of its outcome: its cost is evidence, no lesson."""

    def leave_out(self, place: Any) -> None:
        """The round at `place` has no outcome, for a reason unrelated to it."""

    def lose(self, place: Any, baseline_cost: float = 0.0) -> None:
        """The round at `place` has no outcome, for a reason that may be related to it; or it was given nothing, which a
        baseline cost at the threshold or above would explain.
        """

    def count_start(self, guarantee: str) -> None:
        """Count a decision at the start dose, by its guarantee, if `starts` is a number."""
        if self.starts is not None:
            self.starts += guarantee in ("declared", "certified")

    def restart_evidence(self) -> None:
        """Restart its own evidence."""

    def forget(self, *, unrelated: bool = False) -> None:
        """Start again without the earlier rounds. `unrelated`: for a reason that has nothing to do with outcomes."""
        words = "is only for hp_conformal, hp_shield and hp_student; the rounds of a certified learner stay valid"
        raise InvalidInput(f"forget = True: {words}")

    def begins_after(self, before: Learner) -> None:
        """Begin with nothing learned, after another learner whose rounds are not kept."""

    def coef(self, target: str) -> Array:
        """The coefficients of "reward" or "cost"."""
        raise InvalidInput(f"{target}_coef: this learner has no coefficients")

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The arrays to save."""

    @abstractmethod
    def restore(self, arrays: dict[str, Any]) -> None:
        """Restore, bit for bit, what `state` gave."""
