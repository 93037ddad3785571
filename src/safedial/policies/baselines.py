"""Fixed: the first-round action in every round; the reward of safety without learning.

On-Expectation: HP-UCB without the noise margin, the baseline of the paper's Table 1.

ε-greedy: the paper's cheap variant, which plays the first-round action in a share ε of the rounds.

Clairvoyant: the optimal feasible action given θ* and μ*; regret is measured against it.

Thompson: samples the reward; the safe set is HP-UCB's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from safedial.bounds.confidence import Bounds
from safedial.bounds.estimate import Prediction
from safedial.bounds.margin import subgaussian_spec
from safedial.bounds.safe_set import binary_safe_set, safe_set
from safedial.errors import is_number
from safedial.model.namespace import Array, namespace, normal_quantile, where
from safedial.policies.linear import HPUCB, Linear, bound_numbers
from safedial.policies.policy import Asked, Bound, flag, is_share, one_of, option


def is_size(value: Any) -> bool:
    """Whether this is a finite number of at least 0."""
    return is_number(value) and 0.0 <= value < float("inf")


@dataclass(frozen=True, kw_only=True)
class Fixed(Linear):
    """z = min(1, τ/(S‖x‖ + noise_margin)) in every round, whatever is observed (eq. initialSafeAction).

    Args:
        clip: use S‖x‖, which always bounds the cost; False: the paper's S·L.
    """

    name = "fixed"
    label = "Fixed action"
    learns = False
    clip: bool = flag(True)

    def rule(self, seen: Prediction, asked: Asked) -> Bound:
        spec = self.safe_spec
        upper = spec.coefficient_bound * (seen.norm if self.clip else 0.0 * seen.norm + spec.context_bound)
        safe = safe_set(upper, spec, asked.number, asked.baseline, context=seen.context)
        numbers = bound_numbers(seen, upper, upper, live=self.task.live)
        return Bound(0.0, safe.intensity, numbers, True, safe.certified, False, seen)


fixed = Fixed

# --- On-Expectation: HP-UCB without the noise margin, the baseline of the paper's Table 1


@dataclass(frozen=True, kw_only=True)
class OnExpectation(HPUCB):
    """Keep the *expected* cost below τ, without a guarantee on the realized cost.

        z_safe = min(1, τ/cost_upper), or 1 if cost_upper ≤ 0;      z = z_safe if reward_upper ≥ 0 else 0

    This is what the paper's baseline amounts to in its own model. It is not the algorithm of Pacchiano et al. (2024),
    which chooses among finitely many arms with a known safe one and scales its optimism up by a factor that the cost's
    slack dictates; docs/design.md says how the two differ.
    """

    name = "on_expectation"
    label = "On-Expectation"
    guarantee = "expected"
    excludes = frozenset({"several costs"})
    margins = False


on_expectation = OnExpectation

# --- ε-greedy


@dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(HPUCB):
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

    name = "epsilon_greedy"
    label = "ε-Greedy"
    randomised = True
    epsilon: float = option(0.5, is_share, "must be a number in [0, 1]")
    learn_from: Literal["all", "exploring"] = one_of("all", ("all", "exploring"))

    def rule(self, seen: Prediction, asked: Asked) -> Bound:
        exploit, explore = super().rule(seen, asked), Fixed.rule(self, seen, asked)  # pyright: ignore[reportArgumentType]
        exploring = asked.coin < self.epsilon
        largest = namespace(exploit.largest, explore.largest).maximum(exploit.largest, explore.largest)
        numbers = exploit.numbers | {"exploring": exploring}
        memo = exploit.largest, explore.largest
        teaches = True if self.learn_from == "all" else exploring | (asked.number == 1)
        return exploit._replace(largest=largest, numbers=numbers, memo=memo, teaches=teaches)

    def choose(self, bound: Bound, asked: Asked) -> Array | float:
        greedy, first = bound.memo
        greedy = where(bound.index >= 0.0, greedy, 0.0 * greedy)
        exploring = bound.numbers["exploring"]
        return namespace(exploring, greedy).where(exploring, first, greedy)

    @property
    def excludes(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride] -- by an option
        return frozenset({"unmarked rounds"} if self.learn_from == "exploring" else ())


epsilon_greedy = EpsilonGreedy

# --- Clairvoyant: the optimal feasible action given θ* and μ*; regret is measured against it


@dataclass(frozen=True, kw_only=True)
class Clairvoyant(Linear):
    """α*_t of the paper: the best action in the true feasible set (eq. setOfFeasibleDosages).

    The same rule with width 0 and the true coefficients. It keeps the sub-Gaussian noise margin, whatever the spec's,
    because knowing the means does not reveal the noise.

    Args:
        binary_cost: the cost is 0 or 1, and the known quantity is its log-odds at full intensity.
    """

    name = "clairvoyant"
    label = "Clairvoyant"
    knows_truth = True
    learns = False
    binary_cost: Any = flag(False)

    @property
    def zero_one(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- an option decides
        return self.binary_cost

    @property
    def needs(self) -> tuple[frozenset[str], ...]:
        return tuple(each - {"linear mean"} for each in super().needs)

    @property
    def excludes(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset({"unknown means", "costs of any size" if self.binary_cost else "costs of 0 or 1"})

    def bound(self, state: Any, asked: Asked) -> Bound:
        """From the truth, which whoever plays it states."""
        return self.rule(asked.truth, asked)

    def rule(self, seen: Prediction, asked: Asked) -> Bound:
        if self.binary_cost:
            safe = binary_safe_set(seen.cost, self.spec, round=asked.number)
        else:
            spec = subgaussian_spec(self.spec)
            safe = safe_set(seen.cost, spec, round=asked.number, baseline_cost=asked.baseline, context=seen.context)
        numbers = {"cost_upper": seen.cost, "reward_upper": seen.reward}
        return Bound(seen.reward, safe.intensity, numbers, True, safe.certified, False, seen)


clairvoyant = Clairvoyant

# --- Thompson: samples the reward; the safe set is HP-UCB's


@dataclass(frozen=True, kw_only=True)
class Thompson(HPUCB):
    """Sample θ̃ ~ N(θ̂, (scale·κ_r)² Σ⁻¹) and play z_safe if ⟨x,θ̃⟩ ≥ 0, else 0.

    Only ⟨x,θ̃⟩ matters, and it is N(⟨x,θ̂⟩, (scale·κ_r·width)²): one normal number per round, Φ⁻¹(coin), instead of a
    d-dimensional draw. The cost side is HP-UCB's, and so is the guarantee; the frequentist regret at scale 1 is not
    proved here.

    Args:
        radius, clip: for the cost's bound, as for `hp_ucb`.
        scale: how widely to sample, in units of the reward's noise.
    """

    name = "thompson"
    label = "Thompson"
    randomised = True
    scale: float = option(1.0, is_size, "must be a finite number >= 0")

    def index(self, seen: Prediction, limits: Bounds, asked: Asked) -> Array | float:
        return seen.reward + self.scale * self.safe_spec.reward_noise * seen.width * normal_quantile(asked.coin)


thompson = Thompson
