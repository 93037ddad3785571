"""HP-Bayes: the action from the posterior predictive of the realized cost. Its guarantee is Bayesian and never
certified.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from safedial.bounds import estimate as linear
from safedial.bounds.estimate import Estimate, Prediction
from safedial.bounds.margin import round_risk
from safedial.bounds.safe_set import largest_safe_intensity
from safedial.errors import is_number
from safedial.policies.policy import KNOWN, Asked, Bound, Policy, Told, option
from safedial.policies.supports import ELSEWHERE


class Posterior:
    """The normal part of the posterior, shared by both targets, and the least regularised loss of each.

    `_seen` keeps the prediction at the latest open round's context, until something is learned.
    """

    def __init__(self, estimate: Estimate, lanes: tuple[int, ...]) -> None:
        self.estimate = estimate
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
        return Posterior(linear.init(self.task.dim, ridge=self.spec.ridge, batch=lanes), lanes)

    def bound(self, state: Posterior, asked: Asked) -> Bound:
        spec, seen = self.spec, linear.predict(state.estimate, asked.context)
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
            seen = linear.predict(state.estimate, told.context)
        gain = weight / (1.0 + weight * seen.width * seen.width)
        state.estimate = linear.update(state.estimate, seen, told.reward, told.cost, weight)
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
