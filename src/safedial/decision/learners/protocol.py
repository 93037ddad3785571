"""What an agent and a study ask of a learner; a learner of one's own is a class that fulfils it.

`Learner` answers for a learner that needs nothing special: outcomes are learned from in decision order, and the
promise is watched from outside, by counting violations. A subclass must give `predict`, `learn`, `state` and
`restore`; the rest only where it differs. Nobody outside `decision.learners` asks which learner it has.

A learner of one's own is made with the rules it lives by, `MyLearner(rules)`: `rules.spec` is the spec, `rules.dim` the
dimension, `rules.policy.options` are the policy's options. What an outcome teaches is a `Sample`: reward and cost over
their intensities, `weight` (0: it teaches nothing), and `intensity`, that of the applied setting.

Chance: a policy that is `randomised` is given `coin` in its `decide`, uniform on [0, 1). A simulation draws it from its
seeds, an Agent from its `seed`, and a study takes it from the hash of the event before, because it must be able to
compute each decision again. A learner that draws numbers itself needs a generator whose seed is an option of the
policy, and keeps the generator's state in `state`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.confidence import Bounds
from safedial.core.estimate import Prediction, Ridges
from safedial.core.promise import PROMISES
from safedial.core.safe_set import SafeSet
from safedial.core.spec import SafetySpec
from safedial.decision.certificates import shared_terms
from safedial.decision.outcome import Sample
from safedial.errors import InvalidInput, require
from safedial.policies import Policy

if TYPE_CHECKING:
    from safedial.decision.decision import Decision
    from safedial.decision.rules import Rules

Array = NDArray[np.float64]
Residuals = tuple[float, float, float, float, float]


class Learner(ABC):
    """One learner's state."""

    in_order: ClassVar[bool] = True
    """Whether outcomes must be learned from in decision order, and none may be left out without a reason."""
    watches_itself: ClassVar[bool] = False
    """Whether its own evidence stops it (the rule "drift"), and violations are only counted."""

    samples: int = 0
    """How many outcomes were learned from."""
    starts: Any = None
    """How many decisions were at a declared or certified start dose; None for a learner without one."""
    alarmed: bool = False
    """Whether its own evidence has reached 100."""

    @classmethod
    def check(cls, policy: Policy, spec: SafetySpec) -> None:
        """Refuse a spec that it cannot learn under."""

    @classmethod
    def started(cls, rules: Rules, start_action: Any) -> Rules:
        """The rules with what follows from the start dose: the policy, `start_action` and the default fallback."""
        name = rules.policy.name
        require(start_action is None, "start_action", start_action, f"is not for {name}", "it starts certified")
        return rules

    @classmethod
    def check_study(cls, rules: Rules) -> None:
        """Refuse rules that an agent may have and a study may not."""

    @classmethod
    def least_setting(cls, rules: Rules) -> float | None:
        """The lowest setting that is given where a positive intensity is advised; None: it may round to nothing."""
        return None

    @classmethod
    def guarded(cls, decision: Decision) -> str:
        """A key of `LIMITS`: which guard of its own set the largest intensity; "" where none did."""
        return ""

    @classmethod
    def start_limit(cls, decision: Decision) -> str:
        """A key of `LIMITS`: why a start dose is given; "" where none is."""
        return ""

    @classmethod
    def statement(cls, decision: Decision) -> str:
        """The promise of a decision that is not in doubt, in one sentence."""
        spec = decision.rules.spec
        promise = PROMISES[decision.rules.policy.promise]
        if promise.from_constants:
            promise = PROMISES[spec.promise]
        cost = f"{spec.threshold_on} cost" if spec.cost_sensor_noise else "cost"
        return promise.statement.format(cost=cost, threshold=spec.threshold, risk=spec.promised_risk)

    @classmethod
    def fallback_note(cls, decision: Decision) -> str:
        """What else to say of a decision that is in doubt."""
        return ""

    @classmethod
    def assumptions(cls, rules: Rules) -> list[str]:
        """What its promise rests on beyond exact curves and complete reports, one sentence each."""
        return []

    @classmethod
    def facts(cls, decision: Decision) -> dict[str, Any]:
        """The numbers of a certificate that are its own: "assumptions", "risk", its bounds, its model."""
        return shared_terms.facts(decision, cls.assumptions(decision.rules))

    @classmethod
    def arithmetic(cls, decision: Decision, facts: dict[str, Any]) -> list[str]:
        """How these numbers gave the largest safe intensity, in words."""
        return shared_terms.arithmetic(decision, facts)

    @classmethod
    def written(cls, prediction: Any) -> dict[str, Any]:
        """A decision's prediction as plain values, for a study's log."""
        told: dict[str, Any] = {
            "cost": float(prediction.cost),
            "informative_rounds": float(prediction.informative_rounds),
            "log_det": float(prediction.log_det),
            "norm": float(prediction.norm),
            "reward": float(prediction.reward),
            "width": float(prediction.width),
        }
        if prediction.cost_energy is not None:
            told |= {name: float(getattr(prediction, name)) for name in ("reward_energy", "cost_energy")}
        if prediction.noise is not None:
            told["noise"] = float(prediction.noise)
        if prediction.ridges is not None:
            parts = prediction.ridges._asdict().items()
            told["ridges"] = {name: np.asarray(part).tolist() for name, part in parts if part is not None}
        return told

    @classmethod
    def read_written(cls, rules: Rules, told: Mapping[str, Any]) -> Any:
        """What `written` wrote."""
        ridges = Ridges(**{name: np.array(part) for name, part in told["ridges"].items()}) if "ridges" in told else None
        noise = {"noise": math.inf} if told.get("noise", 0.0) is None else {}
        return Prediction(**{**told, "ridges": ridges, **noise}, dim=rules.dim)

    @classmethod
    def same_option(cls, name: str, given: Mapping[str, Any], saved: Any) -> bool:
        """Whether the option `name` of a given policy is the saved one."""
        return given.get(name) == saved

    @classmethod
    def with_saved(cls, policy: Policy, saved: Mapping[str, Any]) -> Policy:
        """The policy of a saved agent, with the saved options that were resolved at its start."""
        return policy

    @classmethod
    def history_counts(cls, rules: Rules) -> bool:
        """Whether its promise rests on rounds from before the first decision too."""
        return True

    @property
    def evidence(self) -> float | None:
        """Its own evidence that what it assumes is broken; None where violations are the evidence."""
        return None

    @property
    def stop_rule(self) -> str:
        """The rule that its evidence belongs to."""
        return "drift" if self.watches_itself else "alarm"

    def begin(self) -> None:
        """Before a decision."""

    @abstractmethod
    def predict(self, context: Array, norm: float) -> Any:
        """What a decision depends on. Changes nothing."""

    def foresee(self, context: Array, norm: float) -> Any:
        """`predict` as it will be after the next `begin`."""
        return self.predict(context, norm)

    def rounding(self, context: Array, norm: float) -> float | None:
        """How far rounding may move its predictions on another processor; None where it does not say."""
        return None

    def view(self, prediction: Any, choice: Choice) -> tuple[Any, Choice]:
        """What a decision keeps: plain values that later rounds leave alone. The choice's bounds are marked as refuted
        where the data contradict what the spec states.
        """
        return prediction, plain_choice(choice)

    def open(self, context: Array) -> Any:
        """A round was decided; what is returned names its place when its outcome comes."""
        return None

    def check_report(self, context: Array, round: int, place: Any, decisions: int) -> None:
        """Refuse an outcome that is reported by its context and fits no round."""

    @abstractmethod
    def learn(self, context: Array, norm: float, sample: Sample, place: Any) -> None:
        """Learn from the outcome of the round at `place`; None: of a round from before the first decision."""

    def residuals(self, rules: Any, context: Array, norm: float, sample: Sample) -> Residuals | None:
        """(reward's residual, its slack, cost's residual, its slack, rounding) of an outcome that is yet to be learned:
        how far it lies from the predicted means and how far it may lie from them without any noise, times √ω, and what
        rounding may add to the cost's. None where this says nothing about the noise.
        """
        return None

    def leave_out(self, place: Any) -> None:
        """The round at `place` has no outcome, for a reason that has nothing to do with it."""

    def count_start(self, promise: str) -> None:
        """Count a decision by its promise, where `starts` is a number."""

    def watch_afresh(self) -> None:
        """Begin its own evidence anew."""

    def forget(self) -> None:
        """Begin again without the earlier rounds."""
        raise InvalidInput("forget = True: is for hp_conformal: a certified learner's rounds stay true")

    def coef(self, target: str) -> Array:
        """The coefficients of "reward" or "cost"."""
        raise InvalidInput(f"{target}_coef: this learner has no coefficients")

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The arrays to save."""

    @abstractmethod
    def restore(self, arrays: dict[str, Any]) -> None:
        """Take back, bit for bit, what `state` gave."""


def plain_choice(choice: Choice) -> Choice:
    """The choice in plain floats, whatever kind of numbers the policy gave."""
    bounds, safe = choice.bounds, choice.safe
    radii = float(bounds.reward_radius), float(bounds.cost_radius)
    noise = None if bounds.noise is None else float(bounds.noise)
    return Choice(
        float(choice.intensity),
        SafeSet(float(safe.intensity), bool(safe.certified)),
        Bounds(float(bounds.reward_upper), float(bounds.cost_upper), *radii, bool(bounds.refuted), noise),
        float(choice.reward_index),
        exploring=bool(choice.exploring),
    )
