"""What the checks use: normalised outcomes, and residuals taken before each round's update.

    y_t = (C_t − b₀)/g_c(α_t)   or   R_t/g_r(α_t)        e_t = y_t − ⟨x_t, μ̂_{t−1}⟩

μ̂_{t−1} is the learner's estimate from the rounds before t, so e_t = ξ_t + ⟨x_t, μ* − μ̂_{t−1}⟩: noise, and an error
that was fixed before the noise was drawn. Residuals of a fit that includes the round are smaller than the noise and
would hide what the checks look for. Rounds at intensity 0 carry no information and are left out. With sensor noise
every row is multiplied by √ω (core/estimate.py), which makes its noise κ-sub-Gaussian again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from safedial.core import estimate
from safedial.core.confidence import RADII
from safedial.core.dose import Dose
from safedial.core.spec import CONSTANTS, SafetySpec
from safedial.errors import require
from safedial.rounds_io import Log

Array = NDArray[np.float64]
Target = Literal["cost", "reward"]

ESTIMATION_SHARE = 0.1
"""The share of a check's level that its confidence set uses."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """The informative rounds of a log, in order; n rows.

    Attributes:
        number: the rounds' numbers in the log.
        context: (n, d), as the learner saw them; all_norms: of every row, informative or not.
        rows, outcome: √ω·context and √ω·y.
        fitted: ⟨x_t, μ̂_{t−1}⟩, known before the outcome.
        residual: √ω·e_t. slack: what its error part is at most, β_t·width_t·√ω, with probability ≥ 1 − `slack_risk`.
        free: which rounds have no recorded advice.
        noise: κ of the target. horizon: the planned number of rounds, fixed in advance.
    """

    target: Target
    spec: SafetySpec
    noise: float
    horizon: int
    number: Array
    all_norms: Array
    names: tuple[str, ...]
    context: Array
    action: Array
    free: NDArray[np.bool_]
    intensity: Array
    weight: Array
    rows: Array
    outcome: Array
    fitted: Array
    residual: Array
    slack: Array
    gram: Array
    coef: Array

    def __len__(self) -> int:
        return len(self.number)


def read_rounds(
    log: Log,
    spec: SafetySpec,
    dose: Dose,
    *,
    target: Target = "cost",
    horizon: int | None = None,
    slack_risk: float = 0.005,
) -> Rounds:
    """Normalise a log and process it round by round, as the learner would.

    >>> from safedial.simulation.logged import simulated_log
    >>> from safedial.worlds.linear import LinearWorld
    >>> from safedial.core.dose import as_dose
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> log = simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=200)
    >>> rounds = read_rounds(log, spec, as_dose(None))
    >>> len(rounds), bool(abs(rounds.residual[100:].std() - 0.3) < 0.05)
    (200, True)
    """
    require(target in ("cost", "reward"), "target", target, "must be cost or reward")
    lacking = [name for name in CONSTANTS if getattr(spec, name) is None]
    rule = "are not in the spec, and the checks test constants"
    require(not lacking, "spec", lacking, rule, "a conformal promise assumes exchangeability: an Agent watches it")
    planned = len(log) if horizon is None else horizon
    rule = f"must be a whole number of rounds, at least the log's {len(log)}"
    require(
        type(planned) is int and planned >= len(log), "horizon", planned, rule, "it is fixed before the first round"
    )
    reward_intensity = np.asarray(dose.reward.effect(log.action), dtype=float)
    cost_intensity = np.asarray(dose.cost.effect(log.action), dtype=float)
    weight = np.asarray(estimate.sample_weight(spec, reward_intensity, cost_intensity, log.context), dtype=float)
    used = np.flatnonzero(weight > 0.0)
    least = 2 * log.dim + 8
    rule = f"rounds with a dose are too few: at least {least} are needed at dimension {log.dim}"
    require(used.size >= least, "log", used.size, rule)
    cost = (log.cost - log.baseline_cost)[used] / cost_intensity[used]
    reward = log.reward[used] / reward_intensity[used]
    require(np.all(np.isfinite(cost)) and np.all(np.isfinite(reward)), "log", "outcomes", "divided by g are not finite")
    noise = float(spec.cost_noise if target == "cost" else spec.reward_noise)
    root = np.sqrt(weight[used])
    walk = _walk(
        log.context[used], reward, cost, weight[used], spec=replace(spec, estimation_risk=slack_risk), noise=noise
    )
    outcome, fitted = (cost, walk["cost"]) if target == "cost" else (reward, walk["reward"])
    rows = root[:, None] * log.context[used]
    return Rounds(
        target=target,
        spec=spec,
        noise=noise,
        horizon=planned,
        number=log.round[used],
        all_norms=np.linalg.norm(log.context, axis=1),
        names=log.names,
        context=log.context[used],
        action=log.action[used],
        free=np.isnan(log.advised[used]),
        intensity=(cost_intensity if target == "cost" else reward_intensity)[used],
        weight=weight[used],
        rows=rows,
        outcome=root * outcome,
        fitted=fitted,
        residual=root * (outcome - fitted),
        slack=root * walk["slack"],
        gram=rows.T @ rows + spec.ridge * np.eye(log.dim),
        coef=walk["cost_coef"] if target == "cost" else walk["reward_coef"],
    )


def _walk(
    contexts: Array, rewards: Array, costs: Array, weights: Array, *, spec: SafetySpec, noise: float
) -> dict[str, Any]:
    """Predictions before each update, and the radius times the width, by the learner's recursion."""
    state = estimate.init(contexts.shape[1], ridge=spec.ridge)
    fitted = {name: np.empty(len(contexts)) for name in ("reward", "cost", "slack")}
    for index, context in enumerate(contexts):
        seen = estimate.predict(state, context)
        fitted["reward"][index], fitted["cost"][index] = seen.reward, seen.cost
        fitted["slack"][index] = RADII["mixture"](noise, seen, spec) * seen.width
        state = estimate.update(state, seen, rewards[index], costs[index], weights[index])
    return {**fitted, "reward_coef": state.reward_coef, "cost_coef": state.cost_coef}
