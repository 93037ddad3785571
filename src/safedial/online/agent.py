"""`Agent`: the in-memory online learner.

    context ─► Features ─► Learner.read (certified) ─► Policy.decide ─► dose curve ─► Dial ─► Decision
    outcome ─► dose curve ─► R/g_r, C/g_c, weight ─► Learner.update

Everything is checked before anything changes: a call that raises `InvalidInput` leaves the agent as it was.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core import monitor
from safedial.core.confidence import check_dim
from safedial.core.dose import Dose, DoseCurve, identity
from safedial.core.estimate import Prediction, sample_weight
from safedial.core.rounding import UNIT, round_down, round_up, rounded_spec
from safedial.core.safe_set import round_risk
from safedial.core.spec import NUMBERS, SafetySpec
from safedial.errors import InvalidInput, require
from safedial.online import savefile
from safedial.online.blas import dnrm2
from safedial.online.decision import Decision, Rules
from safedial.online.learner import Learner
from safedial.online.units import Dial, Features, as_vector, real
from safedial.policies import Policy, make_policy
from safedial.version import __version__

Context = Sequence[float] | NDArray[np.float64] | Mapping[str, float]

NORM_SLACK = 1e-12
"""How far a context's norm may exceed L, relatively: a vector scaled to norm L in floating point must pass."""

ALARM_LEVEL = 0.01


class Agent:
    """Advises one safe action at a time and learns from its outcome.

    Args:
        dim: the context's dimension (with `features`, their number, an intercept included).
        spec: the promise and its assumptions; plain numbers, no arrays.
        policy: a policy, or its name with the default options; `hp_probe` by default.
        dose: one dose curve, or a `Dose` with different ones for reward and cost; the identity by default.
        dial: the dial's own units and levels.
        features: names, centres and scales of raw feature values.
        seed: of the coin that randomised policies toss.

    >>> spec = SafetySpec(threshold=0.5, total_risk=0.02, reward_noise=0.3, cost_noise=0.3,
    ...                   coefficient_bound=1, context_bound=1)
    >>> agent = Agent(2, spec)
    >>> decision = agent.decide([0.6, 0.3])
    >>> agent.update([0.6, 0.3], decision.action, reward=0.12, cost=0.09)
    >>> agent.decide([0.6, 0.3]).action > 0
    True
    """

    def __init__(
        self,
        dim: int,
        spec: SafetySpec,
        *,
        policy: str | Policy = "hp_probe",
        dose: DoseCurve | Dose | None = None,
        dial: Dial | None = None,
        features: Features | None = None,
        seed: int = 0,
    ) -> None:
        require(
            isinstance(dim, int) and not isinstance(dim, bool) and dim >= 1, "dim", dim, "must be a whole number >= 1"
        )
        require(isinstance(spec, SafetySpec), "spec", spec, "must be a SafetySpec")
        for name in NUMBERS:
            require(np.ndim(getattr(spec, name)) == 0, name, getattr(spec, name), "must be one number for an Agent")
        rule = make_policy(policy) if isinstance(policy, str) else policy
        require(
            not rule.knows_truth, "policy", rule.name, "knows the truth and cannot run online", "simulate it instead"
        )
        check_dim(rule.options.get("radius"), dim)
        if features is not None:
            require(features.dim == dim, "dim", dim, f"must equal the features' dimension, {features.dim}")
        curves = Dose.of(dose or identity()) if dose is None or isinstance(dose, DoseCurve) else dose
        self._rules = Rules(spec, rule, curves, dial or Dial(), dim)
        self._features = features
        self._safe_spec = rounded_spec(spec)
        self._norm_limit = spec.context_bound * (1.0 + NORM_SLACK)
        self._norm_error = 1.0 + (dim + 8) * UNIT
        self._learner = Learner(dim, spec.ridge)
        self._decisions = self._updates = 0
        self._monitor, self._alarmed_at = monitor.init(), 0
        self._seed, self._rng = seed, np.random.default_rng(seed)

    @property
    def spec(self) -> SafetySpec:
        return self._rules.spec

    @property
    def dim(self) -> int:
        return self._rules.dim

    @property
    def decisions(self) -> int:
        """How many actions were advised."""
        return self._decisions

    @property
    def informative_rounds(self) -> int:
        """How many outcomes were learned from."""
        return self._learner.samples

    @property
    def evidence(self) -> float:
        """Evidence that the promise is broken: 1 at the start; ≥ 100 with probability at most 0.01 + δ′ if it holds."""
        return float(monitor.evidence(self._monitor))

    @property
    def alarmed(self) -> bool:
        """Whether the evidence ever reached 100. Decisions then carry a warning."""
        return self._alarmed_at > 0

    def decide(self, context: Context, *, baseline_cost: float = 0.0) -> Decision:
        """Advise an action for `context`; `baseline_cost` is the known cost b₀(x) that arises without any action."""
        vector, norm = self._vector(context)
        return self._decide(vector, norm, real("baseline_cost", baseline_cost) if baseline_cost else 0.0)

    def decide_many(
        self, contexts: Sequence[Context] | NDArray[np.float64], *, baseline_costs: Sequence[float] | None = None
    ) -> list[Decision]:
        """One decision for each context, all from what is known now: the same as calling `decide` in turn."""
        vectors = [self._vector(context) for context in contexts]
        baselines = _column("baseline_costs", baseline_costs, len(vectors)) if baseline_costs is not None else None
        return [
            self._decide(vector, norm, baselines[index] if baselines else 0.0)
            for index, (vector, norm) in enumerate(vectors)
        ]

    def update(
        self, context: Context, action: float, reward: float, cost: float, *, baseline_cost: float = 0.0
    ) -> None:
        """Learn from one outcome; `action` is what was applied, in the dial's units. Call in decision order."""
        self._fold(*self._sample(context, action, reward, cost, baseline_cost))

    def update_many(
        self,
        contexts: Sequence[Context] | NDArray[np.float64],
        actions: Sequence[float],
        rewards: Sequence[float],
        costs: Sequence[float],
        *,
        baseline_costs: Sequence[float] | None = None,
    ) -> None:
        """Learn from several outcomes in decision order; if one of them is refused, none is learned from."""
        count = len(contexts)
        columns = [
            _column(name, values, count)
            for name, values in (("actions", actions), ("rewards", rewards), ("costs", costs))
        ]
        baselines = _column("baseline_costs", baseline_costs, count) if baseline_costs is not None else [0.0] * count
        samples = [self._sample(*row) for row in zip(contexts, *columns, baselines, strict=True)]
        for sample in samples:
            self._fold(*sample)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file; `Agent.load` gives an agent that decides the same, bit for bit."""
        rules = self._rules
        header = {
            "safedial_version": __version__,
            "dim": rules.dim,
            "spec": rules.spec.to_dict(),
            "policy": {"name": rules.policy.name, "options": rules.policy.options},
            "dose": rules.dose.to_dict(),
            "dial": rules.dial.to_dict(),
            "features": self._features.to_dict() if self._features else None,
            "counts": [self._decisions, self._updates, self._alarmed_at],
            "seed": self._seed,
            "coin": self._rng.bit_generator.state,
        }
        watch = np.append(self._monitor.log_evidence, [self._monitor.rounds, self._monitor.violations])
        savefile.write(path, header, {**self._learner.state(), "monitor": watch})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Agent:
        """The agent that `save` wrote; a truncated or altered file is refused."""
        header, arrays = savefile.read(path)
        try:
            agent = cls(
                header["dim"],
                SafetySpec.from_dict(header["spec"]),
                policy=make_policy(header["policy"]["name"], **header["policy"]["options"]),
                dose=Dose.from_dict(header["dose"]),
                dial=Dial(**header["dial"]),
                features=Features(**header["features"]) if header["features"] else None,
                seed=header["seed"],
            )
            agent._learner.restore(arrays)
            agent._decisions, agent._updates, agent._alarmed_at = header["counts"]
            agent._rng.bit_generator.state = header["coin"]
            *log_evidence, rounds, violations = arrays["monitor"]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"path = {str(path)!r}: lacks a part of a safedial save file ({error})") from error
        agent._monitor = monitor.Monitor(np.array(log_evidence), rounds, violations)
        return agent

    def _vector(self, context: Context) -> tuple[NDArray[np.float64], float]:
        """The context as a vector, and its norm; refused if not finite or longer than L."""
        if self._features is not None:
            vector = self._features.transform(context)  # pyright: ignore[reportArgumentType] -- arrays are sequences here
        else:
            vector = as_vector(context, self._rules.dim, "context")
        norm = dnrm2(vector)
        if not norm <= self._norm_limit:
            self._refuse_context(vector, norm)
        return vector, norm

    def _refuse_context(self, vector: NDArray[np.float64], norm: float) -> None:
        bad = np.flatnonzero(~np.isfinite(vector))
        if bad.size:
            raise InvalidInput(f"context[{bad[0]}] = {vector[bad[0]]}: must be a finite number")
        raise InvalidInput(
            f"context: has norm {norm:.6g}, must have norm at most context_bound = {self._rules.spec.context_bound:g}; "
            "scale the features, or state a larger bound before the study starts"
        )

    def _decide(self, vector: NDArray[np.float64], norm: float, baseline_cost: float) -> Decision:
        rules, learner = self._rules, self._learner
        reward, cost, width = learner.read(vector, norm)
        prediction = Prediction(
            reward,
            cost,
            width,
            norm * self._norm_error,
            learner.log_det,
            float(learner.samples),
            rules.dim,
        )
        number = self._decisions + 1
        coin = self._rng.random() if rules.policy.randomised else 0.5
        choice = rules.policy.decide(
            prediction,
            self._safe_spec,
            round=float(number),
            coin=coin,
            baseline_cost=round_up(baseline_cost) if baseline_cost else 0.0,
        )
        safe_setting = self._setting(choice.safe.intensity)
        setting = safe_setting if choice.intensity == choice.safe.intensity else self._setting(choice.intensity)
        self._decisions = number
        return Decision(
            setting,
            rules.dose.cost.effect(setting if rules.dial.is_plain else rules.dial.action(setting)),
            safe_setting,
            number,
            choice.safe.certified,
            prediction,
            choice,
            baseline_cost,
            self._alarmed_at > 0,
            rules,
        )

    def _setting(self, intensity: float) -> float:
        action = self._rules.dose.cost.action(round_down(intensity))
        return float(action) if self._rules.dial.is_plain else self._rules.dial.setting(float(action))

    def _sample(self, context: Any, action: Any, reward: Any, cost: Any, baseline_cost: Any) -> tuple[Any, ...]:
        """One checked, normalised sample: (vector, norm, reward/g_r, cost/g_c, weight, violated)."""
        rules = self._rules
        vector, norm = self._vector(context)
        setting, gain, harm = real("action", action), real("reward", reward), real("cost", cost)
        dial = rules.dial
        require(
            dial.low <= setting <= dial.high,
            "action",
            setting,
            f"must lie between {dial.low:g} and {dial.high:g}",
            "report what was applied, in the dial's units",
        )
        harm_above_baseline = harm - real("baseline_cost", baseline_cost)
        share = dial.action(setting)
        reward_intensity, cost_intensity = float(rules.dose.reward.effect(share)), float(rules.dose.cost.effect(share))
        weight = float(sample_weight(rules.spec, reward_intensity, cost_intensity))
        violated = harm > rules.spec.threshold
        if weight <= 0.0:
            return vector, norm, 0.0, 0.0, 0.0, violated
        quotients = (("reward", gain, reward_intensity), ("cost", harm_above_baseline, cost_intensity))
        normalised = [_quotient(name, value, intensity, weight) for name, value, intensity in quotients]
        return vector, norm, *normalised, weight, violated

    def _fold(
        self, vector: NDArray[np.float64], norm: float, reward: float, cost: float, weight: float, violated: bool
    ) -> None:
        if weight > 0.0:
            self._learner.update(vector, norm, reward, cost, weight)
        self._updates += 1
        self._monitor = monitor.update(self._monitor, violated, round_risk(self._rules.spec, float(self._updates)))
        if violated and not self._alarmed_at and monitor.alarm(self._monitor, ALARM_LEVEL):
            self._alarmed_at = self._updates


def _quotient(name: str, value: float, intensity: float, weight: float) -> float:
    """value/intensity, refused where it, or its weighted square, is not a finite number."""
    quotient = value / intensity
    if not math.isfinite(weight * quotient * quotient):
        raise InvalidInput(
            f"{name} = {value!r}: divided by the intensity {intensity!r} it is too large for a float; "
            "check the outcome and its unit"
        )
    return quotient


def _column(name: str, values: Any, count: int) -> list[float]:
    require(len(values) == count, name, values, f"must have one value for each of {count} contexts")
    return [real(f"{name}[{index}]", value) for index, value in enumerate(values)]
