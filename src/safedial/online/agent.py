"""`Agent`: the in-memory online learner.

    context ─► Features ─► Learner.read (certified) ─► Policy.decide ─► dose curve ─► Dial ─► Decision
    outcome ─► outcome.normalise ─► Learner.update, monitor

Everything is checked before anything changes: a call that raises `InvalidInput` leaves the agent as it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core import monitor
from safedial.core.confidence import check_dim
from safedial.core.dose import Dose, DoseCurve, identity
from safedial.core.estimate import Prediction
from safedial.core.rounding import NORM_SLACK, UNIT, round_down, round_up, rounded_spec
from safedial.core.spec import NUMBERS, SafetySpec
from safedial.errors import InvalidInput, require
from safedial.online import savefile
from safedial.online.blas import dnrm2
from safedial.online.decision import Decision, Rules
from safedial.online.learner import Learner
from safedial.online.outcome import Sample, counted, normalise
from safedial.online.units import Dial, Features, as_vector, real
from safedial.policies import Policy, make_policy
from safedial.version import __version__

Vector = NDArray[np.float64]
Context = Sequence[float] | Vector | Mapping[str, float]

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
        fallback_action: what to advise where nothing is certified, in the dial's units; its low end by default.
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
        fallback_action: float | None = None,
        seed: int = 0,
    ) -> None:
        self._rules = _rules(dim, spec, policy, dose, dial, fallback_action)
        if features is not None:
            require(features.dim == dim, "dim", dim, f"must equal the features' dimension, {features.dim}")
        whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
        require(whole and seed >= 0, "seed", seed, "must be a whole number >= 0")
        self._features = features
        self._safe_spec = rounded_spec(spec)
        self._norm_limit = spec.context_bound * (1.0 + NORM_SLACK)
        self._norm_error = 1.0 + (dim + 8) * UNIT
        self._learner = Learner(dim, spec.ridge)
        self._decisions = self._updates = 0
        self._monitor, self._alarmed_at = monitor.init(), 0
        self._seed, self._rng = int(seed), np.random.default_rng(int(seed))

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
        """Whether the evidence reached 100. The fallback is then advised until `resume` is called."""
        return self._alarmed_at > 0

    def resume(self) -> None:
        """Take the alarm back and watch afresh: a person's decision, after finding out what went wrong."""
        self._monitor, self._alarmed_at = monitor.init(), 0

    def decide(self, context: Context, *, baseline_cost: float = 0.0) -> Decision:
        """Advise an action for `context`; `baseline_cost` is the known cost b₀(x) that arises without any action."""
        vector, norm = self._vector(context)
        return self._decide(vector, norm, real("baseline_cost", baseline_cost))

    def decide_many(
        self, contexts: Iterable[Context], *, baseline_costs: Iterable[float] | None = None
    ) -> list[Decision]:
        """One decision for each context, all from what is known now: the same as calling `decide` in turn."""
        vectors = [self._vector(context) for context in _listed("contexts", contexts)]
        baselines = _column("baseline_costs", baseline_costs, len(vectors))
        return [self._decide(*vector, baseline) for vector, baseline in zip(vectors, baselines, strict=True)]

    def update(
        self, context: Context, action: float, reward: float, cost: float, *, baseline_cost: float = 0.0
    ) -> None:
        """Learn from one outcome; `action` is what was applied, in the dial's units. Call in decision order."""
        vector, norm = self._vector(context)
        self._fold(vector, norm, normalise(self._rules, action, reward, cost, baseline_cost))

    def update_many(
        self,
        contexts: Iterable[Context],
        actions: Iterable[float],
        rewards: Iterable[float],
        costs: Iterable[float],
        *,
        baseline_costs: Iterable[float] | None = None,
    ) -> None:
        """Learn from several outcomes in decision order; if one of them is refused, none is learned from."""
        vectors = [self._vector(context) for context in _listed("contexts", contexts)]
        names = ("actions", "rewards", "costs", "baseline_costs")
        given = (actions, rewards, costs, baseline_costs)
        columns = [_column(name, values, len(vectors)) for name, values in zip(names, given, strict=True)]
        samples = [normalise(self._rules, *row) for row in zip(*columns, strict=True)]
        for vector, sample in zip(vectors, samples, strict=True):
            self._fold(*vector, sample)

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
            "fallback_action": rules.fallback_action,
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
                fallback_action=header["fallback_action"],
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

    def _vector(self, context: Any) -> tuple[Vector, float]:
        """The context as a vector, and its norm; refused if not finite or longer than L."""
        if self._features is not None:
            vector = self._features.transform(context)
        else:
            vector = as_vector(context, self._rules.dim, "context")
        norm = dnrm2(vector)
        if not norm <= self._norm_limit:
            self._refuse_context(vector, norm)
        return vector, norm

    def _refuse_context(self, vector: Vector, norm: float) -> None:
        bad = np.flatnonzero(~np.isfinite(vector))
        if bad.size:
            raise InvalidInput(f"context[{bad[0]}] = {vector[bad[0]]}: must be a finite number")
        raise InvalidInput(
            f"context: has norm {norm:.6g}, must have norm at most context_bound = {self._rules.spec.context_bound:g}; "
            "scale the features, or state a larger bound before the study starts"
        )

    def _decide(self, vector: Vector, norm: float, baseline_cost: float) -> Decision:
        rules, learner = self._rules, self._learner
        reward, cost, width = learner.read(vector, norm)
        rounds = float(learner.samples)
        prediction = Prediction(reward, cost, width, norm * self._norm_error, learner.log_det, rounds, rules.dim)
        number = self._decisions + 1
        coin = self._rng.random() if rules.policy.randomised else 0.5
        baseline = round_up(baseline_cost) if baseline_cost else 0.0
        choice = rules.policy.decide(
            prediction, self._safe_spec, round=float(number), coin=coin, baseline_cost=baseline
        )
        doubt = ""
        if self._alarmed_at or choice.bounds.refuted or not choice.safe.certified:
            doubt = (
                "alarm" if self._alarmed_at else "assumption_broken" if choice.bounds.refuted else "no_certified_action"
            )
            setting = safe_setting = rules.fallback_action
        else:
            safe_setting = self._setting(choice.safe.intensity)
            setting = safe_setting if choice.intensity == choice.safe.intensity else self._setting(choice.intensity)
        intensity = float(rules.dose.cost.effect(setting if rules.dial.is_plain else rules.dial.action(setting)))
        self._decisions = number
        return Decision(
            setting, intensity, safe_setting, number, not doubt, prediction, choice, baseline_cost, doubt, rules
        )

    def _setting(self, intensity: float) -> float:
        curve, dial = self._rules.dose.cost, self._rules.dial
        action = float(curve.action(round_down(intensity, curve.error_units)))
        return action if dial.is_plain else dial.setting(action)

    def _fold(self, vector: Vector, norm: float, sample: Sample) -> None:
        if sample.weight > 0.0:
            self._learner.update(vector, norm, sample.reward, sample.cost, sample.weight)
        self._updates += 1
        if self._rules.policy.promise != "realized":
            return
        watched = counted(self._rules.spec, sample, float(self._updates))
        if watched:
            self._monitor = monitor.update(self._monitor, *watched)
            if watched[0] and not self._alarmed_at and monitor.alarm(self._monitor, ALARM_LEVEL):
                self._alarmed_at = self._updates


def _rules(dim: Any, spec: Any, policy: Any, dose: Any, dial: Any, fallback_action: Any) -> Rules:
    """What is fixed for the life of an agent, checked."""
    require(isinstance(dim, int) and not isinstance(dim, bool) and dim >= 1, "dim", dim, "must be a whole number >= 1")
    require(isinstance(spec, SafetySpec), "spec", spec, "must be a SafetySpec")
    for name in NUMBERS:
        require(np.ndim(getattr(spec, name)) == 0, name, getattr(spec, name), "must be one number for an Agent")
    rule = make_policy(policy) if isinstance(policy, str) else policy
    require(isinstance(rule, Policy), "policy", policy, "must be a policy or the name of one")
    require(not rule.knows_truth, "policy", rule.name, "knows the truth and cannot run online", "simulate it instead")
    exploring = rule.options.get("learn_from") == "exploring"
    require(not exploring, "learn_from", "exploring", "cannot run online: outcomes do not say which rounds explored")
    check_dim(rule.options.get("radius"), dim)
    curves = Dose.of(dose if dose is not None else identity()) if dose is None or isinstance(dose, DoseCurve) else dose
    require(isinstance(curves, Dose), "dose", dose, "must be a dose curve or a Dose", "for example safedial.hill(0.5)")
    knob = dial if dial is not None else Dial()
    require(isinstance(knob, Dial), "dial", dial, "must be a Dial")
    fallback = knob.low if fallback_action is None else real("fallback_action", fallback_action)
    inside = knob.low <= fallback <= knob.high
    require(inside, "fallback_action", fallback, f"must lie between {knob.low:g} and {knob.high:g}")
    return Rules(spec, rule, curves, knob, dim, fallback)


def _listed(name: str, values: Any) -> list[Any]:
    require(np.iterable(values) and not isinstance(values, (str, Mapping)), name, values, "must be a list")
    return list(values)


def _column(name: str, values: Any, count: int) -> list[float]:
    """One number a context; zeros where nothing is given."""
    if values is None and name == "baseline_costs":
        return [0.0] * count
    listed = _listed(name, values)
    require(len(listed) == count, name, values, f"must have one value for each of {count} contexts")
    return [real(f"{name}[{index}]", value) for index, value in enumerate(listed)]
