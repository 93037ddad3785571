"""HP-UCB: Algorithm 1 of the paper, optimistic in reward and pessimistic in cost.

HP-Probe: information does not depend on the dose, so learn from micro-doses instead of by optimism.

Both, and every policy over a linear estimate, are a `Linear`: a radius, and a pure rule from what the estimate says at
a context to what may be given. The rule is written once for floats, NumPy and JAX: an agent runs it on plain floats,
a compiled scan on arrays of seeds. The arithmetic behind it is a part that can be exchanged (`policies.estimates`).

A policy of one's own over the same estimate is a subclass with a `rule`, a `choose`, or both:

    @dataclass(frozen=True, kw_only=True)
    class Patient(HPUCB):
        name = "patient"

        def choose(self, bound, asked):
            given = super().choose(bound, asked)
            return where(bound.memo.width > 0.1, 0.1 * given, given)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Literal

import numpy as np

from safedial.bounds.confidence import NAMES, Bounds, bound, check_dim, check_scale, with_ridge
from safedial.bounds.estimate import Dual, Prediction
from safedial.bounds.safe_set import safe_set
from safedial.errors import require
from safedial.model.dose import as_dose
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies import words
from safedial.policies.combine import Smallest
from safedial.policies.policy import (
    KNOWN,
    Asked,
    Bound,
    Decided,
    Policy,
    Task,
    Terms,
    Told,
    is_probe,
    one_of,
    option,
    probed,
)
from safedial.policies.supports import check_supported

DUAL = ("dual_cost", "dual_width", "dual_miss")
ESTIMATE = ("reward", "cost", "width", "norm", "log_det", "informative_rounds", "cost_slack")
KEPT = attrgetter(*ESTIMATE)
"""The numbers of an estimate that a decision keeps, beside those that only some radii and margins need."""

KEPT_THROUGH = {"threshold", "fallback_action", "high_fallback", "guard"}
"""What may be amended without learning anew: the confidence set is made of contexts and outcomes, without τ, and
holds for all rounds at once."""

MORE = ("reward_energy", "cost_energy", "noise", "unshrunk")


class LinearState:
    """The sums behind the estimate (`policies.estimates`)."""

    def __init__(self, sums: Any) -> None:
        self.sums = sums
        self._context: Any = None
        self._seen: Any = None
        """What was read at the latest context, until an outcome is learned: it mostly follows its decision."""

    def read(self, arithmetic: Any, context: Any, norm: Any) -> Prediction:
        """What the estimate says at a context."""
        known = self._context
        # An agent reads the context of an outcome anew, so it is another array with the same numbers.
        same = arithmetic.one_lane and known is not None and known.tobytes() == context.tobytes()
        if context is not known and not same:
            self._context, self._seen = context, arithmetic.predict(self.sums, context, norm)
        return self._seen

    def learn(self, sums: Any) -> None:
        """Go on with other sums."""
        self.sums, self._context, self._seen = sums, None, None


class Recorded:
    """The recorded numbers of a decision in place of a state: `Linear.bound` of it gives that decision again, whatever
    rounding does on this processor.
    """

    names: ClassVar[tuple[str, ...]] = (*ESTIMATE, *MORE, *DUAL)
    """The numbers that rounding moves by at most `rounding`; all others follow from them."""

    def __init__(self, policy: Linear, numbers: Mapping[str, Any], context: Any) -> None:
        known = {name: numbers[name] for name in (*ESTIMATE, *MORE) if name in numbers}
        known = {name: math.inf if value is None else value for name, value in known.items()}
        dual = Dual(*(numbers[name] for name in DUAL)) if DUAL[0] in numbers else None
        self.seen = Prediction(**known, dim=policy.task.dim, context=context, dual=dual)

    def read(self, arithmetic: Any, context: Any, norm: Any) -> Prediction:
        """What was recorded."""
        return self.seen

    @staticmethod
    def rounding(state: LinearState, context: Any, norm: float) -> float:
        """How far rounding may move the numbers of an estimate, on this or another processor."""
        return state.sums.rounding(context, norm)


@dataclass(frozen=True, kw_only=True)
class Linear(Policy):
    """A policy over the linear estimate: `rule` and `choose`, pure functions, are what makes it.

    Outcomes are learned in the order in which they are told; drivers tell them in decision order, and none after one
    that was lost.
    """

    guarantee = "certified"
    in_order = True
    uncompiled = ""
    excludes = frozenset()
    recorded = Recorded
    margins: ClassVar[bool] = True
    """Whether the realized cost is bounded: with the margin for noise, and that for sensor error."""

    radius: ClassVar[str | None] = None
    """Of policies with a confidence radius an option."""

    @cached_property
    def plain_numbers(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- of this package's rules
        return not self.is_own

    # --- the rule, on floats or arrays of any library

    def rule(self, seen: Prediction, asked: Asked) -> Bound:
        """The bound from what the estimate says."""
        raise NotImplementedError

    def decide(self, seen: Prediction, spec: SafetySpec, asked: Asked) -> tuple[Bound, Any]:
        """The rule and the choice under a spec, as one pure function."""
        policy = self.under(spec)
        found = policy.rule(seen, asked)
        return found, policy.choose(found, asked)

    def under(self, spec: SafetySpec, arithmetic: Any = None) -> Linear:
        """This policy with another spec, unchecked: its numbers may be those of a program that is being compiled; and
        with another arithmetic behind it.
        """
        made = replace(self)
        object.__setattr__(made, "task", Task(dim=1, spec=spec, dose=as_dose(None)))
        if arithmetic is not None:
            object.__setattr__(made, "arithmetic", arithmetic)
        return made

    # --- its state

    def fitted(self, spec: SafetySpec, dim: int) -> SafetySpec:
        """With the ridge that is best for its radius, which must hold there."""
        check_dim(self.radius, dim)
        check_scale(self.radius, spec)
        return with_ridge(spec, self.radius, dim)

    def on(self, task: Task, **options: Any) -> Policy:  # pyright: ignore[reportIncompatibleMethodOverride] -- of several costs
        if task.spec.costs is not None and not self.knows_truth:
            check_supported(self, task, whole=False)
            return Smallest(of=self).on(task)
        check_dim(self.radius, task.dim)
        check_scale(self.radius, task.spec)
        start, rule = task.start_action, f"does not apply to {self.name}"
        require(start is None, "start_action", start, rule, "its first dose is certified")
        made = super().on(task, **options)
        if task.live:
            made.warn_where_no_level_is_reached()
        return made

    @cached_property
    def arithmetic(self) -> Any:
        """How the estimate is kept: with certified rounding where people act on it."""
        from safedial.policies.estimates import Certified, Plain  # here, so that no help text waits for SciPy

        return (Certified if self.task.live else Plain)(self.radius, self.safe_spec)

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> LinearState:
        return LinearState(self.arithmetic.init(self.task.dim, ridge=self.spec.ridge, batch=lanes))

    def bound(self, state: Any, asked: Asked) -> Bound:
        seen = state.read(self.arithmetic, asked.context, asked.norm)
        found = self.rule(seen, asked)
        if self.plain_numbers or not self.task.live:
            return found
        return found._replace(numbers=estimate_numbers(seen) | found.numbers)

    def tell(self, state: LinearState, place: int, told: Told) -> None:
        weight = told.weight if told.fate is KNOWN else told.weight * (told.fate == KNOWN)
        if self.task.live and not weight > 0.0:
            return
        seen = state.read(self.arithmetic, told.context, told.norm)
        state.learn(self.arithmetic.update(state.sums, seen, told.reward, told.cost, weight))

    def keeps(self, changed: set[str]) -> bool:
        return not changed or (changed <= KEPT_THROUGH and not (self.is_own or self.spec.learns_noise))

    def warn_where_no_level_is_reached(self) -> None:
        """Warn if levels may keep an agent at zero for ever: without a dose there is nothing to learn from."""
        dial, spec, dim = self.task.dial, self.spec, self.task.dim
        if not dial.levels:
            return
        longest, size = np.full(dim, spec.context_bound / math.sqrt(dim)), spec.coefficient_bound * spec.context_bound
        first = safe_set(size, spec, 1.0, context=longest).intensity
        lowest = next(level for level in dial.levels if level > dial.low or level == dial.levels[-1])
        needed = float(self.task.dose.cost.effect(dial.action(lowest)))
        if first < needed:
            warnings.warn(
                f"the lowest level, {dial.text(lowest)}, has intensity {needed:.3g}; at contexts of norm L the first "
                f"safe intensity is {first:.3g}. Such rounds get no dose and teach nothing; unless shorter contexts "
                "come, the agent stays at zero. A lower level, a higher threshold or less noise would help",
                UserWarning,
                stacklevel=6,
            )

    # --- the words of its certificates

    def assumptions(self) -> list[str]:
        """What the guarantee rests on, one sentence each."""
        spec = self.spec
        own = [
            "mean reward and mean cost per unit of intensity are linear in the context",
            f"the true coefficients have norm at most S = {spec.coefficient_bound:g}",
            f"every context has norm at most L = {spec.context_bound:g} (checked)",
            f"noise is mean-zero and sub-Gaussian with constants {spec.reward_noise:g} (reward) and "
            f"{spec.cost_noise:g} (cost), given all earlier rounds, the context and the action",
        ]
        return words.certified_assumptions(spec, self.task.dose, own, fixed="the radius")

    def statement(self, decided: Decided) -> str:
        """The guarantee in one sentence."""
        return words.statement(self.guarantee, self.spec)

    def terms(self, decided: Decided) -> Terms:
        facts = self._facts(decided)
        return Terms(self.statement(decided), self.assumptions(), self._arithmetic(decided, facts), facts)

    def _facts(self, decided: Decided) -> dict[str, Any]:
        """Plain values: the estimate, the bound and the margins."""
        spec, told, number = self.spec, decided.numbers, decided.number
        radius, upper = told.get("cost_radius", 0.0), told.get("cost_upper")
        learned = {} if spec.margin_risk is None else {"margin_risk": spec.margin_risk}
        noise = math.inf if told.get("noise", 0.0) is None else told.get("noise")
        dual = {}  # of the self-normalised radius: the noise's part, and the three numbers of its bound
        if DUAL[0] in told:
            part = spec.cost_noise * (told["log_det"] + 2.0 * spec.log_inverse_risk) ** 0.5
            parts = {name.removeprefix("dual_"): told[name] for name in DUAL}
            dual = {"self_normalised": {"noise_radius": part, **parts}}
        names = ("informative_rounds", "reward", "cost", "width", "norm", "log_det")
        return {
            "risk": words.risks(spec, number) | learned,
            "model": {"context_norm" if name == "norm" else name: told[name] for name in names},
            "radius_name": self.radius,
            "radius": radius,
            **dual,
            "reward_upper": told.get("reward_upper"),
            "cost_upper_uncut": told["cost"] + radius * told["width"] if radius else upper,
            "cost_upper": upper,
            **(
                words.margins(spec, number, noise)
                | ({} if self.margins else {"noise_margin": 0.0, "sensor_margin": 0.0})
            ),
            **({"numbers": dict(told)} if self.is_own else {}),
        }

    def _arithmetic(self, decided: Decided, facts: dict[str, Any]) -> list[str]:
        """The bound, and the division that gave the largest safe intensity."""
        model, upper, size = facts["model"], facts["cost_upper"], self.spec.coefficient_bound
        rounds = f" ({model['informative_rounds']:.0f} informative rounds)."
        if upper is None:  # a rule of one's own does not tell it
            line = f"The estimate: mean cost {model['cost']:.4g} per unit of intensity, width {model['width']:.4g}"
            return [line + rounds, words.own_largest(self, decided, Recorded.names), *words.part_given(decided)]
        how = f"the estimate {model['cost']:.4g} + radius {facts['radius']:.4g} x width {model['width']:.4g}"
        # S‖x‖, the largest mean cost that the stated norms allow, with room for rounding.
        dual = upper < size * model["context_norm"] * (1.0 - 1e-12) and "self_normalised" in facts
        if not facts["radius"]:
            how = "what the norms alone allow"
        elif upper < facts["cost_upper_uncut"] and dual:
            best = facts["self_normalised"]
            how = (
                f"the estimate {best['cost']:.4g} + noise {best['noise_radius']:.4g} x width {best['width']:.4g} + "
                f"S {size:.4g} x {best['miss']:.4g} for the part of the context that past rounds do not cover"
            )
        elif upper < facts["cost_upper_uncut"]:
            how += f", cut at what the norms allow, {upper:.4g}"
        elif upper > facts["cost_upper_uncut"]:
            how = "what the norms alone allow, in round one"
        stated = facts["cost_upper_uncut"] if facts["radius"] else math.inf
        norms = size * model["context_norm"], size * self.spec.context_bound
        if self.is_own and not dual and not any(math.isclose(upper, each, rel_tol=1e-9) for each in (stated, *norms)):
            how = f"as the rule of {self.name} says"
        line = f"The bound: mean cost per unit of intensity is at most {upper:.4g}: {how}"
        if self.is_own and not self._divides(decided, upper):
            return [line + rounds, words.own_largest(self, decided, Recorded.names), *words.part_given(decided)]
        return [line + rounds, *words.division(self.spec, decided, upper, facts)]

    def _divides(self, decided: Decided, upper: float) -> bool:
        """Whether the bound on the cost gives the largest intensity, as it does unless one's own rule changes that."""
        if self.spec.noise_scale is not None:  # which may need the context
            return False
        noise, on_mean = decided.numbers.get("noise") or math.inf, not self.margins
        found = safe_set(upper, self.spec, decided.number, decided.baseline, on_expectation=on_mean, noise=noise)
        return math.isclose(found.intensity, decided.largest, rel_tol=1e-6)


def bound_numbers(
    seen: Prediction,
    reward_upper: Any,
    cost_upper: Any,
    reward_radius: Any = 0.0,
    cost_radius: Any = 0.0,
    *,
    live: bool = True,
) -> dict[str, Any]:
    """The numbers of a bound, and, where people act on it, those of the estimate."""
    numbers = {"cost_upper": cost_upper, "reward_upper": reward_upper, "cost_radius": cost_radius}
    numbers["reward_radius"] = reward_radius
    return numbers | estimate_numbers(seen) if live else numbers


def estimate_numbers(seen: Prediction) -> dict[str, Any]:
    """The numbers of an estimate that a decision keeps, with what only some radii and margins need."""
    numbers: dict[str, Any] = dict(zip(ESTIMATE, KEPT(seen), strict=True))
    if seen.cost_energy is not None:
        numbers["reward_energy"], numbers["cost_energy"] = seen.reward_energy, seen.cost_energy
    if seen.noise is not None:
        numbers["noise"] = seen.noise if seen.noise < math.inf else None
    if seen.dual is not None:
        numbers["unshrunk"] = seen.unshrunk
        numbers |= dict(zip(DUAL, seen.dual, strict=True))
    return numbers


# --- HP-UCB


@dataclass(frozen=True, kw_only=True)
class HPUCB(Linear):
    """High Probability Constrained UCB.

        cost_upper = ⟨x,μ̂⟩ + β_c·width          z_safe = min(1, τ/(cost_upper + noise_margin)), or 1 if that sum ≤ 0
        reward_upper = ⟨x,θ̂⟩ + β_r·width        z = z_safe if reward_upper ≥ 0 else 0

    Args:
        radius: "mixture" (default), "self-normalised" (tighter, with a larger ridge), "noise-adaptive" (for a κ that
            may be far too large), or "paper"; `bounds.confidence` derives them, docs/choosing.md advises.
        clip: cut cost_upper at S‖x‖, which always holds. Default: True, but False with the paper's radius.

    `hp_ucb(radius="paper")` is Algorithm 1 to the letter, round one with S·L included. The other radii and the clip
    are ours: the same guarantee, larger doses.

    Reference: Dragazis and Pacchiano, "Safety by Design", Algorithm 1.
    """

    name = "hp_ucb"
    label = "HP-UCB"
    radius: str = one_of("mixture", NAMES)  # pyright: ignore[reportIncompatibleVariableOverride] -- an option here
    clip: bool | None = option(None, lambda clip: clip is None or isinstance(clip, bool), "must be True, False or None")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is None:
            object.__setattr__(self, "clip", self.radius != "paper")

    def rule(self, seen: Prediction, asked: Asked) -> Bound:
        spec, live = self.safe_spec, self.task.live
        limits = bound(seen, spec, radius=self.radius, clip=bool(self.clip))
        safe = safe_set(
            limits.cost_upper, spec, asked.number, asked.baseline, on_expectation=not self.margins, noise=limits.noise,
            context=limits.context,
        )  # fmt: skip
        numbers, refuted = bound_numbers(seen, *limits[:4], live=live), limits.refuted
        if live:
            numbers["reward_far"], numbers["cost_far"] = self._far(seen, limits)
            # `bounds.confidence.bound` sees data below what the norms allow; the clip would hide data above it. While
            # the confidence set holds, either refutes ‖μ*‖ ≤ S.
            lowest = seen.cost - seen.cost_slack - limits.cost_radius * seen.width
            refuted = refuted | (lowest > spec.coefficient_bound * seen.norm)
        return Bound(self.index(seen, limits, asked), safe.intensity, numbers, True, safe.certified, refuted, seen)

    def index(self, seen: Prediction, limits: Bounds, asked: Asked) -> Array | float:
        """Benefit is expected where it is ≥ 0."""
        return limits.reward_upper

    def _far(self, seen: Prediction, limits: Bounds) -> tuple[Any, Any]:
        """How far the two estimates may lie from the means, without any noise in this round."""
        if seen.unshrunk is None:
            return limits.reward_radius * seen.width, limits.cost_radius * seen.width
        spec = self.safe_spec
        root = math.sqrt(seen.log_det + 2.0 * spec.log_inverse_risk) * seen.width
        rest = spec.coefficient_bound * seen.unshrunk
        return spec.reward_noise * root + rest, spec.cost_noise * root + rest


# --- HP-Probe


@dataclass(frozen=True, kw_only=True)
class HPProbe(HPUCB):
    """Play z_safe if the estimated reward is ≥ 0, else a probe m_t·z_safe; every round is informative.

        z = z_safe if ⟨x,θ̂⟩ ≥ 0 else m_t·z_safe,      m_t = 1/√t by default

    R/g(α) = ⟨x,θ*⟩ + ξ has the same noise at 1 % intensity as at full intensity. So a high dose where the reward is
    unclear (optimism) pays for information that a micro-dose gives for free, and a dose of 0 discards it.

    * Safety: z ≤ z_safe always; the guarantee is that of HP-UCB.
    * Regret: Σ contains every round. A wrong sign costs at most β·width, a correct refusal at most m_t·S·L, so with
      m_t = 1/√t the sum is Õ(d√T), the paper's order, without optimism. With a constant m, regret is linear in the
      worst case.
    * With sensor noise σ_ε the probe does not fall below σ_ε/κ (or z_safe); the regret claim is for σ_ε = 0.

    Args:
        radius, clip: as for `hp_ucb`.
        probe: "sqrt" for 1/√t; a number in [0, 1] for a constant share; 0 if nobody may receive a dose without an
            expected benefit (those rounds then teach nothing).

    Reference: this project, docs/design.md.
    """

    name = "hp_probe"
    label = "HP-Probe"
    probe: float | Literal["sqrt"] = option("sqrt", is_probe, "must be 'sqrt' or a number in [0, 1]")

    def index(self, seen: Prediction, limits: Bounds, asked: Asked) -> Array | float:
        return seen.reward

    def choose(self, bound: Bound, asked: Asked) -> Array | float:
        share = asked.number**-0.5 if self.probe == "sqrt" else float(self.probe)
        return probed(bound, share, self.safe_spec.least_informative)


hp_ucb, hp_probe = HPUCB, HPProbe
