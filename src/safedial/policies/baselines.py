"""Fixed: the first-round action in every round; the reward of safety without learning.

On-Expectation: HP-UCB without the noise margin, the baseline of the paper's Table 1.

ε-greedy: the paper's cheap variant, which plays the first-round action in a share ε of the rounds.

Clairvoyant: the optimal feasible action given θ* and μ*; regret is measured against it.

Thompson: samples the reward; the safe set is HP-UCB's.
"""

from __future__ import annotations

from typing import Any, Literal

from safedial.bounds.choice import Choice, choose
from safedial.bounds.confidence import Bounds, bound, resolve_clip
from safedial.bounds.estimate import Prediction
from safedial.bounds.margin import subgaussian_spec
from safedial.bounds.safe_set import SafeSet, binary_safe_set, safe_set
from safedial.errors import is_number, require
from safedial.model.namespace import namespace, normal_quantile
from safedial.model.spec import SafetySpec
from safedial.policies.linear import hp_ucb
from safedial.policies.policy import Policy


def fixed(*, clip: bool = True) -> Policy:
    """z = min(1, τ/(S‖x‖ + noise_margin)) in every round, whatever is observed (eq. initialSafeAction).

    Args:
        clip: use S‖x‖, which always bounds the cost; False: the paper's S·L.
    """

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        cost_upper = spec.coefficient_bound * (prediction.norm if clip else 0.0 * prediction.norm + spec.context_bound)
        safe = safe_set(cost_upper, spec, round=round, baseline_cost=baseline_cost, context=prediction.context)
        return choose(0.0, safe, Bounds(cost_upper, cost_upper, 0.0, 0.0, False))

    return Policy("fixed", "Fixed action", "certified", decide, {"clip": clip}, learns=False)


# --- On-Expectation: HP-UCB without the noise margin, the baseline of the paper's Table 1


def on_expectation(*, radius: str = "mixture", clip: bool | None = None) -> Policy:
    """Keep the *expected* cost below τ, without a guarantee on the realized cost.

        z_safe = min(1, τ/cost_upper), or 1 if cost_upper ≤ 0;      z = z_safe if reward_upper ≥ 0 else 0

    This is what the paper's baseline amounts to in its own model. It is not the algorithm of Pacchiano et al. (2024),
    which chooses among finitely many arms with a known safe one and scales its optimism up by a factor that the cost's
    slack dictates; docs/design.md says how the two differ.
    """
    clip = resolve_clip(radius, clip)

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        bounds = bound(prediction, spec, radius=radius, clip=clip)
        safe = safe_set(bounds.cost_upper, spec, round=round, baseline_cost=baseline_cost, on_expectation=True)
        return choose(bounds.reward_upper, safe, bounds)

    return Policy("on_expectation", "On-Expectation", "expected", decide, {"radius": radius, "clip": clip})


# --- ε-greedy


def epsilon_greedy(
    *,
    radius: str = "mixture",
    clip: bool | None = None,
    epsilon: float = 0.5,
    learn_from: Literal["all", "exploring"] = "all",
) -> Policy:
    """With probability ε play the first-round safe action, otherwise HP-UCB's.

    Args:
        radius, clip: as for `hp_ucb`.
        epsilon: the share of exploring rounds.
        learn_from: the paper can be read both ways. "all": learn from every informative round. "exploring": learn only
            from the first round, which Algorithm 1 always stores (line 2), and from the exploring rounds, which saves
            computation and "collects approximately εT samples".

    In round 1 both actions are the same. Both are safe on the same event (the first-round action given only S and L),
    and the coin that chooses between them does not depend on the outcome, so the guarantee is HP-UCB's.

    Reference: Dragazis and Pacchiano, "Safety by Design", section Experimental Results.
    """
    clip = resolve_clip(radius, clip)
    require(is_number(epsilon) and 0.0 <= epsilon <= 1.0, "epsilon", epsilon, "must be a number in [0, 1]")
    require(learn_from in ("all", "exploring"), "learn_from", learn_from, "must be 'all' or 'exploring'")
    greedy, first = hp_ucb(radius=radius, clip=clip), fixed(clip=clip)

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        exploit = greedy.decide(prediction, spec, round=round, coin=coin, baseline_cost=baseline_cost)
        explore = first.decide(prediction, spec, round=round, coin=coin, baseline_cost=baseline_cost)
        exploring = coin < epsilon
        xp = namespace(exploring, exploit.intensity)
        safe = SafeSet(xp.maximum(exploit.safe.intensity, explore.safe.intensity), exploit.safe.certified)
        intensity = xp.where(exploring, explore.intensity, exploit.intensity)
        learn = True if learn_from == "all" else exploring | (round == 1)
        return exploit._replace(intensity=intensity, safe=safe, learn=learn, exploring=exploring)

    options = {"radius": radius, "clip": clip, "epsilon": epsilon, "learn_from": learn_from}
    return Policy("epsilon_greedy", "ε-Greedy", "certified", decide, options, randomised=True)


# --- Clairvoyant: the optimal feasible action given θ* and μ*; regret is measured against it


def clairvoyant(*, binary_cost: bool = False) -> Policy:
    """α*_t of the paper: the best action in the true feasible set (eq. setOfFeasibleDosages).

    The same rule with width 0 and the true coefficients. It keeps the sub-Gaussian noise margin, whatever the spec's,
    because knowing the means does not reveal the noise.

    Args:
        binary_cost: the cost is 0 or 1, and the known quantity is its log-odds at full intensity.
    """

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        if binary_cost:
            safe = binary_safe_set(prediction.cost, spec, round=round)
        else:
            plain, context = subgaussian_spec(spec), prediction.context
            safe = safe_set(prediction.cost, plain, round=round, baseline_cost=baseline_cost, context=context)
        bounds = Bounds(prediction.reward, prediction.cost, 0.0, 0.0, False)
        return choose(prediction.reward, safe, bounds)

    options = {"binary_cost": binary_cost}
    told = Policy("clairvoyant", "Clairvoyant", "certified", decide, options, knows_truth=True, learns=False)
    return told._replace(binary_cost=binary_cost)


# --- Thompson: samples the reward; the safe set is HP-UCB's


def thompson(*, radius: str = "mixture", clip: bool | None = None, scale: float = 1.0) -> Policy:
    """Sample θ̃ ~ N(θ̂, (scale·κ_r)² Σ⁻¹) and play z_safe if ⟨x,θ̃⟩ ≥ 0, else 0.

    Only ⟨x,θ̃⟩ matters, and it is N(⟨x,θ̂⟩, (scale·κ_r·width)²): one normal number per round, Φ⁻¹(coin), instead of a
    d-dimensional draw. The cost side is HP-UCB's, and so is the guarantee; the frequentist regret at scale 1 is not
    proved here.

    Args:
        radius, clip: for the cost's bound, as for `hp_ucb`.
        scale: how widely to sample, in units of the reward's noise.
    """
    clip = resolve_clip(radius, clip)
    require(is_number(scale) and 0.0 <= scale < float("inf"), "scale", scale, "must be a finite number >= 0")

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        bounds = bound(prediction, spec, radius=radius, clip=clip)
        safe = safe_set(bounds.cost_upper, spec, round, baseline_cost, noise=bounds.noise, context=bounds.context)
        sampled = prediction.reward + scale * spec.reward_noise * prediction.width * normal_quantile(coin)
        return choose(sampled, safe, bounds)

    return Policy(
        "thompson", "Thompson", "certified", decide, {"radius": radius, "clip": clip, "scale": scale}, randomised=True
    )
