"""One round of a simulation as pure functions of arrays, of any array library: decide, learn, score.

The loops are elsewhere: `simulation.loop` in NumPy, `simulation.jax_engine` as a compiled scan. What a policy or a
world of the user's own gives is checked for types and shapes, in the first round or once a chunk.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds import estimate
from safedial.bounds.choice import Choice, choose
from safedial.bounds.confidence import Bounds
from safedial.bounds.estimate import Prediction, sample_weight
from safedial.bounds.safe_set import SafeSet
from safedial.errors import require
from safedial.model.costs import exceeded
from safedial.model.dose import Dose
from safedial.model.namespace import namespace, where
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.policies.baselines import clairvoyant
from safedial.policies.estimates import Learner
from safedial.policies.family import KNOWN, LEFT_OUT, Asked, Told
from safedial.simulation.world import STREAMS, Array, Exposure, World, fits


def check_choice(policy: Policy, choice: Any, shape: tuple[int, ...]) -> None:
    """Refuse what is no choice for arrays of this shape, (specs, seeds)."""
    given = type(choice).__name__
    proper = isinstance(choice, Choice) and isinstance(choice.safe, SafeSet)
    rule = f"has a `decide` that returned a {given}, and it must return a Choice with a SafeSet"
    require(proper, "policy", policy.name, rule, "make it with safedial.bounds.choice.choose")
    found = np.shape(choice.intensity)
    rule = (
        f"has a `decide` that gave intensities of shape {found}, and there must be one for each (spec, seed): {shape}"
    )
    require(fits(found, shape), "policy", policy.name, rule, "compute them from the prediction's arrays")


def checked_means(world: World, means: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The two means of a world at contexts (n, seeds, d), each of this shape, (n, seeds). Those of this package, and of
    worlds with several costs, are as they are.
    """
    if not world.is_own or world.several_costs:
        return means
    two = isinstance(means, tuple | list | np.ndarray) and len(means) == 2
    found = [np.shape(each) for each in means] if two else []
    gave = f"shapes {found}" if two else f"a {type(means).__name__}"
    rule = f"has `means` that gave {gave}, and must give two arrays, reward and cost, of shape (n, seeds) = {shape}"
    way_out = "compute both from the contexts, (n, seeds, d)"
    require(two and all(fits(each, shape) for each in found), "world", world.name, rule, way_out)
    reward, cost = (np.broadcast_to(each, shape) for each in means)
    return reward, cost


# --- One round of a simulation as pure functions of arrays, of any array library


class Step(NamedTuple):
    """What a round, or a chunk of them, adds to the results: the intensities, whether the dose was the largest safe
    one, whether it was certified, and whether the learner used the outcome.
    """

    reward_intensity: Any
    cost_intensity: Any
    full: Any
    certified: Any
    informative: Any


TIE = 1e-12
"""A dose this near the largest safe one, relatively, is a full one: engines round differently."""

CURVES = ("violations", "regret", "reward", "exact_clairvoyant_reward")
"""The totals that are kept at checkpoints too."""

TOTALS = (
    *CURVES,
    "clairvoyant_reward",
    "informative_rounds",
    "uncertified_rounds",
    "full_dose_rounds",
    "full_dose_violations",
)


class Rule(NamedTuple):
    """What decides, learns and keeps the score. `asked` are the arguments that the parts of the learner take."""

    policy: Policy
    world: World
    spec: SafetySpec
    dose: Dose
    learner: Learner
    asked: Learner
    batch: int
    """Rows of the learner: 1 where all rows of the spec learn alike."""
    stated: SafetySpec
    """The spec that the policy decides by; `spec` is the world's."""

    def decide(self, state: Any, number: Any, now: Exposure, coin: Any) -> tuple[Any, Choice]:
        """A round's prediction and choice. Like `learn`, a pure function of arrays of any library."""
        if self.policy.knows_truth:
            prediction = _exact_prediction(now)
            return prediction, self._knowing(self.policy, self.stated, prediction, now, number)
        asked = {"coin": coin} if "coin" in self.asked.predict else {}
        prediction = self.learner.predict(state, now.context, **asked)
        choice = self.policy.decide(
            prediction, self.stated, round=number, coin=coin, baseline_cost=self.world.baseline_cost
        )
        return prediction, choice

    def learn(self, state: Any, now: Exposure, prediction: Any, choice: Choice, coin: Any) -> tuple[Any, Step]:
        """The state after a round, and what the round adds to the results."""
        harm, gain = self.applied(choice.intensity)
        full = choice.intensity >= choice.safe.intensity * (1.0 - TIE)
        if not self.policy.learns:
            return state, Step(gain, harm, full, choice.safe.certified, False)
        # Where rows learn alike, the learner is shown the first one's rounds.
        alike = self.batch < gain.shape[0]
        shown = (gain[: self.batch], harm[: self.batch]) if alike else (gain, harm)
        now = now._replace(reward_intensity=shown[0], cost_intensity=shown[1])
        weight = sample_weight(self.spec, now.reward_intensity, now.cost_intensity, now.context)
        if choice.learn is not True:
            weight = weight * choice.learn
        reward, cost, event, left_out = self.world.normalised(self.spec, now, weight)
        if left_out is not None:
            weight = where(left_out, 0.0, weight)
        given = {"coin": coin, "intensity": now.cost_intensity, "measured": event, "left_out": left_out}
        given["reward_intensity"] = now.reward_intensity
        asked = {name: value for name, value in given.items() if name in self.asked.update}
        cost = event if self.policy.binary_cost else cost
        state = self.learner.update(state, prediction, reward, cost, weight, **asked)
        return state, Step(gain, harm, full, choice.safe.certified, weight > 0.0)

    def score(self, number: Any, rounds: Exposure, cost: Any, steps: Step) -> dict[str, Any]:
        """What each round adds to the totals: realized cost against τ, noise-free reward against the clairvoyant's."""
        reward_mean, context = rounds.reward_mean, rounds.context
        truth = Prediction(reward_mean, rounds.cost_mean, 0.0, 0.0, 0.0, 0.0, self.world.dim, context=context)
        told = clairvoyant(binary_cost=self.world.binary_cost)
        best = self._knowing(told, self.spec, truth, rounds, number).intensity
        over, reward = exceeded(self.spec, cost, self.policy.direction), rounds.reward_intensity * reward_mean
        optimal = self.applied(best)[1] * reward_mean
        known, exact = self.world.exact_intensity(self.spec, rounds), optimal
        if known is not None:
            exact = self.applied(where(reward_mean >= 0.0, known, 0.0))[1] * reward_mean
        counts = steps.informative, ~steps.certified, steps.full, steps.full & over
        return dict(zip(TOTALS, (over, optimal - reward, reward, exact, optimal, *counts), strict=True))

    def applied(self, intensity: Any) -> tuple[Any, Any]:
        """g_c and g_r of the action that has this intensity."""
        if self.dose.is_identity:
            return intensity, intensity
        action = self.dose.cost.action(intensity)
        return self.dose.cost.effect(action), self.dose.reward.effect(action)

    def _knowing(self, policy: Any, spec: SafetySpec, truth: Prediction, now: Exposure, number: Any) -> Choice:
        """The choice of a policy that knows the truth: its own rule, which takes costs to be in proportion to the
        intensity, or where they are not what the world knows to be best.
        """
        known = None if self.world.proportional else self.world.exact_intensity(self.spec, now)
        if known is not None:
            safe = SafeSet(known, known == known)
            return choose(now.reward_mean, safe, Bounds(now.reward_mean, now.cost_mean, 0.0, 0.0, False))
        return policy.decide(truth, spec, round=number, coin=0.0, baseline_cost=self.world.baseline_cost)


def with_numbers(rule: Rule, numbers: Any) -> Rule:
    """The rule with these numbers, by name, in place of those of its spec, of the stated one, and of its world."""
    spec, stated, world = (copy.copy(each) for each in (rule.spec, rule.stated, rule.world))
    for each, given in zip((spec, stated, world), numbers, strict=True):
        for name, value in given.items():
            object.__setattr__(each, name, (lambda _, at=None, value=value: value) if each is world else value)
    return rule._replace(spec=spec, stated=stated, world=world)


def bound(learner: Learner, spec: SafetySpec, seeds: list[int]) -> tuple[Learner, Learner]:
    """A learner, with the spec and generators if it needs them, and the names of the arguments that its parts need."""
    learner = Learner(learner.init, learner.predict, learner.update)
    asked = [signature(part).parameters.keys() for part in learner]
    fixed: dict[str, Any] = {"spec": spec}
    if any("rngs" in names for names in asked):
        fixed["rngs"] = [np.random.default_rng([seed, len(STREAMS)]) for seed in seeds]
    given = ({name: fixed[name] for name in fixed if name in names} for names in asked)
    parts = [partial(part, **each) if each else part for part, each in zip(learner, given, strict=True)]
    return Learner(*parts), Learner(*asked)


def sent_context(rule: Rule, now: Any, candidates: Any, truth: Any) -> Any:
    """The context that an adversary who sees the estimate sends, (rows, seeds, d), of (seeds, candidates, d)."""
    lifted, xp = type(now)(*(part[:, :, None] for part in now)), namespace(candidates)
    offered = xp.broadcast_to(candidates, (rule.batch, *candidates.shape[-3:]))
    return rule.world.next_context(offered, truth, partial(estimate.predict, lifted))


def all_finite(cost: Any) -> Any:
    """Whether every cost is finite, one or several by name."""
    if isinstance(cost, Mapping):
        cost = namespace(*cost.values()).stack(list(cost.values()))
    xp = namespace(cost)
    return xp.all(xp.isfinite(cost))


def _exact_prediction(now: Exposure) -> Prediction:
    nothing, xp = 0.0 * now.reward_mean, namespace(now.reward_mean)
    norm, dim = xp.linalg.norm(now.context, axis=-1), now.context.shape[-1]
    return Prediction(now.reward_mean, now.cost_mean, nothing, norm, nothing, nothing, dim, context=now.context)


class FamilyRule(Rule):
    """What decides, learns and keeps the score where the policy has a state of its own (`policies.family`)."""

    def decide(self, state: Any, number: Any, now: Exposure, coin: Any) -> tuple[Any, Choice]:
        """A round's bound and choice; refits that are due come first."""
        policy: Any = self.policy
        norm = np.sqrt(np.vecdot(now.context, now.context))
        asked = Asked(now.context, norm, float(number), self.world.baseline_cost, coin)
        policy.begin(state)
        found = policy.bound(state, asked)
        chosen, largest = policy.choose(found, asked), found.largest
        settings = None
        if policy.unit == "setting":
            settings = chosen, largest
            chosen, largest = (self.dose.cost.effect(policy.task.dial.action(each)) for each in settings)
        numbers = found.numbers
        limits = Bounds(found.index, numbers.get("cost_upper", 0.0), 0.0, 0.0, found.refuted)
        choice = Choice(chosen, SafeSet(largest, found.certified), limits, found.index, settings=settings)
        return (asked, found), choice

    def learn(self, state: Any, now: Exposure, prediction: Any, choice: Choice, coin: Any) -> tuple[Any, Step]:
        """Open the round and tell its outcome at once; the state changes in place."""
        policy: Any = self.policy
        asked, found = prediction
        harm, gain = self.applied(choice.intensity)
        full = choice.intensity >= choice.safe.intensity * (1.0 - TIE)
        if not policy.learns:
            return state, Step(gain, harm, full, choice.safe.certified, False)
        # Where rows learn alike, the policy is shown the first one's rounds.
        chosen = choice.intensity if choice.settings is None else choice.settings[0]
        shown = [chosen, harm, gain]
        if self.batch < harm.shape[0] or np.shape(chosen) != harm.shape:
            shown = [np.broadcast_to(each, harm.shape)[: self.batch] for each in shown]
        now = now._replace(reward_intensity=shown[2], cost_intensity=shown[1])
        weight = sample_weight(self.spec, now.reward_intensity, now.cost_intensity, now.context)
        reward, cost, measured, left_out = self.world.normalised(self.spec, now, weight)
        if left_out is not None:
            weight = where(left_out, 0.0, weight)
        fate = np.full(shown[1].shape, KNOWN) if left_out is None else np.where(left_out, LEFT_OUT, KNOWN)
        action = shown[0] if choice.settings is not None else self.dose.cost.action(shown[1])
        policy.open(state, asked, found, shown[0])
        told = Told(
            fate, reward, cost, weight, measured, self.world.baseline_cost, action,
            shown[1], now.context, asked.norm, None, shown[2],
        )  # fmt: skip
        policy.tell(state, int(asked.number) - 1, told)
        return state, Step(gain, harm, full, choice.safe.certified, weight > 0.0)
