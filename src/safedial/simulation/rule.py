"""One round of a simulation as pure functions of arrays, of any array library: decide, learn, score.

The loops are elsewhere: `simulation.loop` in NumPy, `simulation.jax_engine` as a compiled scan. What a policy or a
world of the user's own gives is checked for types and shapes, in the first round or once a chunk.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds import estimate
from safedial.bounds.estimate import Prediction, sample_weight
from safedial.errors import require
from safedial.model.costs import exceeded
from safedial.model.dose import Dose
from safedial.model.namespace import namespace, where
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.policies.policy import KNOWN, LEFT_OUT, Asked, Bound, Told, check_found
from safedial.simulation.world import Array, Exposure, World, fits


class Given(NamedTuple):
    """What a policy gives in a round: its choice in its own unit, the intensity of that, and the largest intensity that
    keeps the guarantee.
    """

    chosen: Any
    intensity: Any
    largest: Any


def check_given(policy: Policy, given: Given, shape: tuple[int, ...]) -> None:
    """Refuse intensities that are not arrays of this shape, (specs, seeds)."""
    found = np.shape(given.intensity)
    rule = f"gave intensities of shape {found}, and there must be one for each (spec, seed): {shape}"
    require(fits(found, shape), "policy", policy.name, rule, "compute them from the bound's arrays")


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


def row_norm(context: Any) -> Any:
    """The norm of contexts (..., d)."""
    xp = namespace(context)
    return xp.sqrt(xp.vecdot(context, context))


class Rule(NamedTuple):
    """What decides, learns and keeps the score."""

    policy: Policy
    """It knows its task, with the spec that it decides by."""
    world: World
    spec: SafetySpec
    """The world's."""
    dose: Dose
    batch: int
    """Rows of the policy's state: 1 where all rows of the spec learn alike."""
    stated: SafetySpec
    """The spec that the policy decides by."""
    norm: Callable[[Any], Any] = row_norm
    """The norm of contexts, in the layout that the state has."""

    def decide(self, state: Any, number: Any, now: Exposure, coin: Any) -> tuple[Asked, Bound, Given]:
        """A round's question, bound and choice; what is due by the number of rounds comes first."""
        policy = self.policy
        asked = Asked(now.context, self.norm(now.context), number, self.world.baseline_cost, coin)
        known = None
        if policy.knows_truth:
            asked, known = asked._replace(truth=_truth(now, asked.norm)), self._best(now)
        policy.begin(state, asked)
        if known is None:
            found = policy.bound(state, asked)
            try:
                chosen, largest = policy.choose(found, asked), found.largest
            except (AttributeError, TypeError):
                check_found(policy, found)
                raise
        else:
            found = Bound(now.reward_mean, known, {}, certified=known == known)
            chosen, largest = where(now.reward_mean >= 0.0, known, 0.0 * known), known
        if policy.unit == "intensity":
            return asked, found, Given(chosen, chosen, largest)
        effect, dial = self.dose.cost.effect, policy.task.dial
        chosen, largest = np.asarray(chosen), np.asarray(largest)
        return asked, found, Given(chosen, effect(dial.action(chosen)), effect(dial.action(largest)))

    def learn(self, state: Any, place: int, now: Exposure, decided: tuple[Asked, Bound, Given]) -> Step:
        """Open the round and tell its outcome at once. Returns what the round adds to the results."""
        policy, (asked, found, given) = self.policy, decided
        harm, gain = self.applied(given.intensity)
        full = given.intensity >= given.largest * (1.0 - TIE)
        if not policy.learns:
            return Step(gain, harm, full, found.certified, False)
        # Where rows learn alike, the policy is shown the first one's rounds.
        chosen, gain_shown, harm_shown = given.chosen, gain, harm
        if self.batch < harm.shape[0] or np.shape(chosen) != harm.shape:
            xp = namespace(harm)
            chosen, gain_shown, harm_shown = (
                xp.broadcast_to(each, harm.shape)[: self.batch] for each in (chosen, gain, harm)
            )
        now = now._replace(reward_intensity=gain_shown, cost_intensity=harm_shown)
        weight = sample_weight(self.spec, gain_shown, harm_shown, now.context)
        if found.teaches is not True:
            weight = weight * found.teaches
        reward, cost, measured, left_out = self.world.normalised(self.spec, now, weight)
        if measured is None and policy.is_own:  # the package's do not look at it where it follows from the rest
            measured = self.world.outcome(self.spec, now).cost
        fate: Any = KNOWN
        if left_out is not None:
            weight, fate = where(left_out, 0.0, weight), np.where(left_out, LEFT_OUT, KNOWN)
        action = chosen if policy.unit == "setting" else self.dose.cost.action(harm_shown)
        policy.open(state, asked, found, chosen)
        told = Told(
            fate, reward, cost, weight, measured, self.world.baseline_cost, action, harm_shown, now.context, asked.norm,
            None, gain_shown,
        )  # fmt: skip
        policy.tell(state, place, told)
        return Step(gain, harm, full, found.certified, weight > 0.0)

    def score(self, number: Any, rounds: Exposure, cost: Any, steps: Step) -> dict[str, Any]:
        """What each round adds to the totals: realized cost against τ, noise-free reward against the clairvoyant's."""
        reward_mean, context = rounds.reward_mean, rounds.context
        truth = Prediction(reward_mean, rounds.cost_mean, 0.0, 0.0, 0.0, 0.0, self.world.dim, context=context)
        best = self._best(rounds)
        if best is None:
            asked = Asked(context, 0.0, number, self.world.baseline_cost)
            best = self.world.clairvoyant().decide(truth, self.spec, asked)[1]
        else:
            best = where(reward_mean >= 0.0, best, 0.0 * best)
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

    def _best(self, now: Exposure) -> Any:
        """The largest intensity that the truth allows, where costs are not in proportion to it and the world knows."""
        return None if self.world.proportional else self.world.exact_intensity(self.spec, now)


def with_numbers(rule: Rule, numbers: Any, layout: Callable[[SafetySpec], Any] | None = None) -> Rule:
    """The rule with these numbers, by name, in place of those of its spec, of the stated one, and of its world; and
    with the arithmetic that `layout` makes of the stated one.
    """
    spec, stated, world = copy.copy(rule.spec), copy.copy(rule.stated), copy.copy(rule.world)
    for each, given in zip((spec, stated, world), numbers, strict=True):
        for name, value in given.items():
            object.__setattr__(each, name, (lambda _, at=None, value=value: value) if each is world else value)
    policy: Any = rule.policy
    if layout is not None:
        arithmetic = layout(stated)
        policy, rule = policy.under(stated, arithmetic), rule._replace(norm=arithmetic.norm)
    else:
        policy = policy.under(stated)
    return rule._replace(policy=policy, spec=spec, stated=stated, world=world)


def sent_context(rule: Rule, now: Any, candidates: Any, truth: Any) -> Any:
    """The context that an adversary who sees the estimate sends, (rows, seeds, d), of (seeds, candidates, d)."""
    now, xp = getattr(now, "estimate", now), namespace(candidates)
    lifted = type(now)(*(part[:, :, None] for part in now))
    offered = xp.broadcast_to(candidates, (rule.batch, *candidates.shape[-3:]))
    return rule.world.next_context(offered, truth, partial(estimate.predict, lifted))


def all_finite(cost: Any) -> Any:
    """Whether every cost is finite, one or several by name."""
    if isinstance(cost, Mapping):
        cost = namespace(*cost.values()).stack(list(cost.values()))
    xp = namespace(cost)
    return xp.all(xp.isfinite(cost))


def _truth(now: Exposure, norm: Any) -> Prediction:
    """The true means as a prediction without error."""
    nothing = 0.0 * now.reward_mean
    return Prediction(
        now.reward_mean, now.cost_mean, nothing, norm, nothing, nothing, now.context.shape[-1], context=now.context
    )
