"""An `Agent` in a closed loop with a world: its advice shapes the next context.

`simulate` draws contexts in advance, which is impossible here. `residual` is the one-step-ahead error of the cost's
model,

    e_t = C_t − b₀ − g_c(α_t)·ĉ_t(x_t),

which has mean zero under a true model whatever was advised; its mean by band of intensity (`by_band`) checks this.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.worlds.battery import BatteryWorld
from safedial.io import Advance
from safedial.model.dose import DoseCurve, identity, power
from safedial.rounds.agent import Agent

FITS: dict[str, tuple[DoseCurve, bool]] = {
    "line": (identity(), False),
    "square": (power(2.0), False),
    "line, told": (identity(), True),
    "square, told": (power(2.0), True),
}
BANDS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""Edges of the bands of the dial in which residuals are averaged."""


class Round(NamedTuple):
    """One round: `guarantee` and `limit` are the decision's, `evidence` is the agent's after the outcome. `noisy`: its
    outcome stopped the agent because outcomes scatter more than stated (`noise_broken`).
    """

    context: NDArray[np.float64]
    action: float
    guarantee: str
    limit: str
    baseline_cost: float
    reward: float
    cost: float
    true_cost: float
    violated: bool
    predicted: bool
    residual: float
    evidence: float
    alarmed: bool
    cell: int
    noisy: bool = False


class Band(NamedTuple):
    """Residuals of the rounds with low < action ≤ high: how many, their mean and its standard error."""

    low: float
    high: float
    rounds: int
    mean: float
    error: float


def run_loop(
    agent: Agent,
    world: BatteryWorld,
    rounds: int,
    seed: int,
    *,
    carry_over: bool = False,
    resume_noise: bool = False,
    progress: Advance | None = None,
) -> list[Round]:
    """Let `agent` turn the dial of `world` for `rounds` rounds.

    Args:
        carry_over: state the heat left from the last step as the decision's baseline cost.
        resume_noise: resume at once where outcomes scatter more than stated (`noise_broken`), to see what follows.
        progress: called with the number of rounds just finished.

    No other alarm is cleared: the agent advises its fallback from then on.
    """
    battery, played = world.start(seed), []
    for _ in range(rounds):
        baseline = battery.carry_over if carry_over else 0.0
        decision = agent.ask(battery.context, baseline_cost=baseline)
        step = battery.step(decision.action)
        seen = decision.numbers
        agent.tell(decision, reward=step.reward, cost=step.cost)
        noisy = agent.stop_reason == "noise_broken"
        if noisy and resume_noise:
            agent.resume()
        played.append(
            Round(
                decision.context,
                decision.action,
                decision.guarantee,
                decision.limit,
                baseline,
                step.reward,
                step.cost,
                step.true_cost,
                step.cost > agent.spec.threshold,
                bool(seen.get("informative_rounds", True)),
                step.cost - baseline - decision.intensity * seen["cost"],
                agent.evidence,
                agent.alarmed,
                step.cell,
                noisy,
            )
        )
        if progress:
            progress(1)
    return played


def alarm_round(played: Sequence[Round]) -> int | None:
    """The number, from 1, of the round whose outcome raised the alarm; None without an alarm."""
    return next((number for number, each in enumerate(played, start=1) if each.alarmed), None)


def noise_round(played: Sequence[Round]) -> int | None:
    """The number, from 1, of the first round whose outcome showed that the noise is larger than stated, or None."""
    return next((number for number, each in enumerate(played, start=1) if each.noisy), None)


def by_band(played: Sequence[Round]) -> list[Band]:
    """Residuals by band of the dial, over the rounds with a dose and a model."""
    rows = [(each.action, each.residual) for each in played if each.action > 0.0 and each.predicted]
    return band_means(*np.array(rows).reshape(-1, 2).T)


def band_means(actions: NDArray[np.float64], residuals: NDArray[np.float64]) -> list[Band]:
    """Mean residuals between `BANDS`; bands without a round are left out.

    The standard error assumes independent rounds, which a battery's are not: read it as a lower bound.
    """
    bands = []
    for low, high in pairwise(BANDS):
        inside = residuals[(actions > low) & (actions <= high)]
        if inside.size:
            error = float(inside.std() / np.sqrt(inside.size))
            bands.append(Band(low, high, inside.size, float(inside.mean()), error))
    return bands


def residuals_of_fits(world: BatteryWorld, *, steps: int, seed: int) -> dict[str, list[Band]]:
    """Least squares over random loads, which cover the dial evenly, to show where each form of the model is wrong."""
    battery, rng = world.start(seed), np.random.default_rng([seed, 99])
    seen = []
    for _ in range(steps):
        context, left, action = battery.context, battery.carry_over, float(rng.random())
        seen.append((*context, action, left, battery.step(action).cost))
    table = np.array(seen)
    context, (action, left, cost) = table[:, :-3], table[:, -3:].T
    return {name: _fit(context, action, cost - told * left, curve) for name, (curve, told) in FITS.items()}


def _fit(context: NDArray[Any], action: NDArray[Any], cost: NDArray[Any], curve: DoseCurve) -> list[Band]:
    scaled = context * np.asarray(curve.effect(action))[:, None]
    coef = np.linalg.lstsq(scaled, cost, rcond=None)[0]
    return band_means(action, cost - scaled @ coef)
