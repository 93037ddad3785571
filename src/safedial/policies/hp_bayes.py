"""HP-Bayes: the action from the posterior predictive of the realized cost. Its promise is Bayesian, never certified."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from safedial.core import estimate as linear
from safedial.core.action import Choice, choose
from safedial.core.confidence import Bounds
from safedial.core.estimate import Estimate, Prediction
from safedial.core.margin import round_risk
from safedial.core.safe_set import largest_safe_intensity
from safedial.core.spec import SafetySpec
from safedial.errors import is_number, require
from safedial.policies.policy import Policy


class Posterior(NamedTuple):
    """The normal part of the posterior, shared by both targets, and the least regularised loss of each."""

    estimate: Estimate
    reward_loss: Any
    cost_loss: Any


class Beliefs(NamedTuple):
    """What is known before a round: the linear prediction and the losses so far."""

    seen: Prediction
    reward_loss: Any
    cost_loss: Any


def hp_bayes(*, shape: float = 2.0) -> Policy:
    """Keep P(C > τ | data) ≤ δ under a normal-inverse-gamma posterior; sample the reward.

        σ² ~ IG(a₀, b₀), μ | σ² ~ N(0, (σ²/λ)I), C/g | μ, σ² ~ N(⟨x,μ⟩, σ²)                    b₀ = (a₀ − 1)κ²
        σ² | data ~ IG(a, b), a = a₀ + n/2, b = b₀ + (Σy² − bᵀΣ⁻¹b)/2,   μ | σ², data ~ N(μ̂, σ²Σ⁻¹)
        C/g | data ~ t_{2a}(⟨x,μ̂⟩, (b/a)(1 + width²))        U = its (1 − δ)-quantile, z_safe = min(1, τ/U), 1 if U ≤ 0
        ⟨x,θ⟩ | data ~ t_{2a}(⟨x,θ̂⟩, (b_r/a)·width²)         z = z_safe if a draw from it is ≥ 0, else 0

    **The promise is Bayesian**: averaged over the prior, P(C_t > τ | history, X_t) ≤ δ. It says nothing about one fixed
    truth, and nothing if the prior, the Gaussian noise or its constant variance is wrong; no certificate is given. It
    needs no S and no bound on κ: the spec's noise constants are only the prior's guess of the standard deviation.

    Args:
        shape: a₀ > 1; larger values give that guess more weight.

    The posterior does not depend on the doses: it learns from R/g and C/g, and which rounds are played depends only on
    past data.

    Reference: Gelman et al., "Bayesian Data Analysis" (2013), chapter 14; the sum of squares by the recursion
    Σ (y − ⟨x,μ̂⟩)²/(1 + width²), as in `core.tight`.
    """
    require(is_number(shape) and 1.0 < shape < float("inf"), "shape", shape, "must be a finite number > 1")

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...] = ()) -> Posterior:
        return Posterior(linear.init(dim, ridge=ridge, batch=batch), np.zeros(batch), np.zeros(batch))

    def predict(state: Posterior, context: Any) -> Beliefs:
        return Beliefs(linear.predict(state.estimate, context), state.reward_loss, state.cost_loss)

    def update(state: Posterior, known: Beliefs, reward: Any, cost: Any, weight: Any) -> Posterior:
        seen = known.seen
        gain = weight / (1.0 + weight * seen.width * seen.width)
        return Posterior(
            linear.update(state.estimate, seen, reward, cost, weight),
            state.reward_loss + gain * (reward - seen.reward) ** 2,
            state.cost_loss + gain * (cost - seen.cost) ** 2,
        )

    def decide(prediction: Any, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        exact = not spec.sensors_err
        require(exact, "sensor noise", spec.cost_sensor_noise, "is not supported by hp_bayes", "use hp_probe")
        plain = spec.margin == "subgaussian"
        require(plain, "margin", spec.margin, "is not supported by hp_bayes, whose noise is Gaussian", "leave it out")
        degrees, cost_scale = spread(prediction.seen, prediction.cost_loss, spec.cost_noise, shape)
        _, reward_scale = spread(prediction.seen, prediction.reward_loss, spec.reward_noise, shape)
        seen = prediction.seen
        predictive = cost_scale * np.sqrt(1.0 + seen.width * seen.width)
        upper = seen.cost - student_quantile(degrees, round_risk(spec, round)) * predictive
        safe = largest_safe_intensity(upper, 0.0, threshold=spec.threshold - baseline_cost)
        drawn = seen.reward + student_quantile(degrees, coin) * reward_scale * seen.width
        return choose(drawn, safe, Bounds(drawn, upper, 0.0, 0.0, False))

    own = {"init": init, "predict": predict, "update": update}
    return Policy("hp_bayes", "HP-Bayes", "bayesian", decide, {"shape": float(shape)}, randomised=True, **own)


def spread(seen: Prediction, loss: Any, noise: Any, shape: float) -> tuple[Any, Any]:
    """(2a, √(b/a)): degrees of freedom and scale of the posterior after the rounds in `seen`."""
    after = shape + 0.5 * seen.informative_rounds
    return 2.0 * after, np.sqrt(((shape - 1.0) * noise * noise + 0.5 * loss) / after)


def student_quantile(degrees: Any, probability: Any) -> Any:
    """The quantile of Student's t; a probability of exactly 0 counts as the smallest positive number."""
    from scipy.special import stdtrit

    return stdtrit(degrees, np.maximum(probability, 2.0**-54))
