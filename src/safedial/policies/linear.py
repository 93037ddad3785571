"""HP-UCB: Algorithm 1 of the paper, optimistic in reward and pessimistic in cost.

HP-Probe: information does not depend on the dose, so learn from micro-doses instead of by optimism.
"""

from __future__ import annotations

from typing import Any, Literal

from safedial.bounds.choice import Choice, choose
from safedial.bounds.confidence import bound, resolve_clip
from safedial.bounds.estimate import Prediction
from safedial.bounds.safe_set import safe_set
from safedial.model.spec import SafetySpec
from safedial.policies.policy import Policy, check_probe, probe_share


def hp_ucb(*, radius: str = "mixture", clip: bool | None = None) -> Policy:
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
    clip = resolve_clip(radius, clip)

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        bounds = bound(prediction, spec, radius=radius, clip=clip)
        safe = safe_set(bounds.cost_upper, spec, round, baseline_cost, noise=bounds.noise, context=bounds.context)
        return choose(bounds.reward_upper, safe, bounds)

    return Policy("hp_ucb", "HP-UCB", "certified", decide, {"radius": radius, "clip": clip})


# --- HP-Probe


def hp_probe(*, radius: str = "mixture", clip: bool | None = None, probe: float | Literal["sqrt"] = "sqrt") -> Policy:
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
    clip = resolve_clip(radius, clip)
    check_probe(probe)

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        bounds = bound(prediction, spec, radius=radius, clip=clip)
        safe = safe_set(bounds.cost_upper, spec, round, baseline_cost, noise=bounds.noise, context=bounds.context)
        share = probe_share(probe, round)
        return choose(prediction.reward, safe, bounds, probe=share, least_probe=spec.least_informative)

    return Policy("hp_probe", "HP-Probe", "certified", decide, {"radius": radius, "clip": clip, "probe": probe})
