"""Fixed: the first-round action in every round; the reward of safety without learning.

On-Expectation: HP-UCB without the noise margin, the baseline of the paper's Table 1.

ε-greedy: the paper's cheap variant, which plays the first-round action in a share ε of the rounds.

Clairvoyant: the optimal feasible action given θ* and μ*; regret is measured against it.

Thompson: samples the reward; the safe set is HP-UCB's.

HP-Bayes: the action from the posterior predictive of the realized cost. Its guarantee is Bayesian, never certified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from safedial.bounds import estimate
from safedial.bounds.confidence import Bounds
from safedial.bounds.estimate import Estimate, Prediction
from safedial.bounds.margin import round_risk, subgaussian_spec
from safedial.bounds.safe_set import binary_safe_set, largest_safe_intensity, safe_set
from safedial.errors import is_number
from safedial.model.namespace import Array, namespace, normal_quantile, where
from safedial.policies.linear import HPUCB, Linear, bound_numbers
from safedial.policies.policy import KNOWN, Asked, Bound, Policy, Told, flag, is_share, one_of, option
from safedial.policies.supports import ELSEWHERE


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

# --- HP-Bayes: the action from the posterior predictive of the realized cost


class Posterior:
    """The normal part of the posterior, shared by both targets, and the least regularised loss of each.

    `_seen` keeps the prediction at the latest open round's context, until something is learned.
    """

    def __init__(self, begun: Estimate, lanes: tuple[int, ...]) -> None:
        self.estimate = begun
        self.reward_loss, self.cost_loss = np.zeros(lanes), np.zeros(lanes)
        self._seen: tuple[Any, Prediction] | None = None


@dataclass(frozen=True, kw_only=True)
class HPBayes(Policy):
    """Keep P(C > τ | data) ≤ δ under a normal-inverse-gamma posterior; sample the reward.

        σ² ~ IG(a₀, b₀), μ | σ² ~ N(0, (σ²/λ)I), C/g | μ, σ² ~ N(⟨x,μ⟩, σ²)                    b₀ = (a₀ − 1)κ²
        σ² | data ~ IG(a, b), a = a₀ + n/2, b = b₀ + (Σy² − bᵀΣ⁻¹b)/2,   μ | σ², data ~ N(μ̂, σ²Σ⁻¹)
        C/g | data ~ t_{2a}(⟨x,μ̂⟩, (b/a)(1 + width²))        U = its (1 − δ)-quantile, z_safe = min(1, τ/U), 1 if U ≤ 0
        ⟨x,θ⟩ | data ~ t_{2a}(⟨x,θ̂⟩, (b_r/a)·width²)         z = z_safe if a draw from it is ≥ 0, else 0

    **The guarantee is Bayesian**: averaged over the prior, P(C_t > τ | history, X_t) ≤ δ. It says nothing about one
    fixed truth, and nothing if the prior, the Gaussian noise or its constant variance is wrong; no certificate is
    given. It needs no S and no bound on κ: the spec's noise constants are only the prior's guess of the standard
    deviation.

    Args:
        shape: a₀ > 1; larger values give that guess more weight.

    The posterior does not depend on the doses: it learns from R/g and C/g, and which rounds are played depends only on
    past data.

    Reference: Gelman et al., "Bayesian Data Analysis" (2013), chapter 14; the sum of squares by the recursion
    Σ (y − ⟨x,μ̂⟩)²/(1 + width²), as in `bounds.confidence`.
    """

    name = "hp_bayes"
    label = "HP-Bayes"
    guarantee = "bayesian"
    in_order = True
    randomised = True
    excludes = ELSEWHERE | {"advice", "sensor noise", "other margin"}
    uncompiled = "needs quantiles of Student's t, which JAX does not have"

    shape: float = option(
        2.0, lambda shape: is_number(shape) and 1.0 < shape < float("inf"), "must be a finite number > 1"
    )

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> Posterior:
        return Posterior(estimate.init(self.task.dim, ridge=self.spec.ridge, batch=lanes), lanes)

    def bound(self, state: Posterior, asked: Asked) -> Bound:
        spec, seen = self.spec, estimate.predict(state.estimate, asked.context)
        degrees, cost_scale = self._spread(seen, state.cost_loss, spec.cost_noise)
        _, reward_scale = self._spread(seen, state.reward_loss, spec.reward_noise)
        predictive = cost_scale * np.sqrt(1.0 + seen.width * seen.width)
        upper = seen.cost - student_quantile(degrees, round_risk(spec, asked.number)) * predictive
        safe = largest_safe_intensity(upper, 0.0, threshold=spec.threshold - asked.baseline)
        drawn = seen.reward + student_quantile(degrees, asked.coin) * reward_scale * seen.width
        scales = {"degrees": degrees, "cost_scale": cost_scale, "reward_scale": reward_scale, "width": seen.width}
        numbers = {"cost": seen.cost, "reward": seen.reward, "reward_upper": drawn, "cost_upper": upper, **scales}
        return Bound(drawn, safe.intensity, numbers, certified=safe.certified, memo=seen)

    def open(self, state: Posterior, asked: Asked, bound: Bound | None, chosen: Any) -> None:
        if bound is not None:
            state._seen = asked.context, bound.memo

    def tell(self, state: Posterior, place: int, told: Told) -> None:
        weight = np.where(np.equal(told.fate, KNOWN), told.weight, 0.0)
        context, seen = state._seen or (None, None)
        if seen is None or context is not told.context:
            seen = estimate.predict(state.estimate, told.context)
        gain = weight / (1.0 + weight * seen.width * seen.width)
        state.estimate = estimate.update(state.estimate, seen, told.reward, told.cost, weight)
        state.reward_loss = state.reward_loss + gain * (told.reward - seen.reward) ** 2
        state.cost_loss = state.cost_loss + gain * (told.cost - seen.cost) ** 2
        state._seen = None

    def _spread(self, seen: Prediction, loss: Any, noise: Any) -> tuple[Any, Any]:
        """(2a, √(b/a)): degrees of freedom and scale of the posterior after the rounds in `seen`."""
        after = self.shape + 0.5 * seen.informative_rounds
        return 2.0 * after, np.sqrt(((self.shape - 1.0) * noise * noise + 0.5 * loss) / after)


hp_bayes = HPBayes


def student_quantile(degrees: Any, probability: Any) -> Any:
    """The quantile of Student's t; a probability of exactly 0 counts as the smallest positive number."""
    from scipy.special import stdtrit

    return stdtrit(degrees, np.maximum(probability, 2.0**-54))
