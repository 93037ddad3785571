"""Simulates one scenario many times, to forecast a study."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core import monitor
from safedial.core.dose import Dose
from safedial.core.estimate import Prediction
from safedial.core.margin import round_risk
from safedial.core.promise import PROMISES
from safedial.core.self_normalised import with_ridge
from safedial.core.spec import SafetySpec
from safedial.planning.scenarios import Scenario, promise_kept
from safedial.policies import Policy, promised_risk
from safedial.policies.clairvoyant import clairvoyant
from safedial.seeds import Seeds
from safedial.simulation.attainable import attainable_curve
from safedial.simulation.loop import Batch, Played
from safedial.simulation.run import Simulation, simulate
from safedial.stats import violation_interval
from safedial.worlds.linear import LinearWorld
from safedial.worlds.world import Exposure, World, generators

Array = NDArray[np.float64]

POINTS = 40
"""The number of rounds at which curves are kept."""

DOSES, STUDIES = (0.25, 0.75), (0.1, 0.9)
"""The quantiles of a band: over doses, and over studies."""

SMALL = 0.02
"""The share of the dial below which a dose counts as small."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A scenario's numbers, and its curves at some rounds: plain values, ready for a table."""

    scenario: Scenario
    quantities: dict[str, Any]
    curves: list[dict[str, Any]] = field(repr=False)
    engine: str = "numpy"
    compile_seconds: float = 0.0


def forecast(
    scenario: Scenario,
    policy: Policy,
    stated: SafetySpec,
    *,
    dim: int,
    dose: Dose,
    rounds: int,
    seeds: Seeds,
    baseline_cost: float = 0.0,
    place: World | None = None,
    progress: Any = None,
    engine: Any = "numpy",
    device: Any = None,
) -> Forecast:
    """Simulate the scenario with a truth for each seed, in the linear world or in `place`. Shares are of the exact
    clairvoyant's reward at the whole risk, in the same rounds.
    """
    world = place or LinearWorld(dim=dim, baseline_cost=baseline_cost, **scenario.world)
    stated = with_ridge(stated, policy.options.get("radius"), dim)
    true = scenario.true_spec(stated)
    chunks: list[Played] = []
    options: Any = {"rounds": rounds, "seeds": seeds, "dose": dose, "points": 1, "progress": progress}
    run = simulate(policy, world, true, **options, record=chunks.append, stated=stated, engine=engine, device=device)
    context, action, _, cost = (np.concatenate([chunk[part][:, 0] for chunk in chunks]) for part in range(4))
    whole = replace(true, violation_risk=promised_risk(policy, stated))
    gain, best = _rewards(run, whole, context, action)
    again: Any = {"checkpoints": run.checkpoints, "seeds": run.seeds, "dose": dose, "chunk": Batch.step}
    most = attainable_curve(world, whole, **again, context=context)
    over = cost > stated.threshold
    quantities = {
        "scenario": scenario.name,
        "promise_holds": place is None and promise_kept(policy, scenario, stated),
        **violations_of(over, stated, policy),
        **reward_of(gain, best),
        "attainable_share": None if most is None else float(gain.sum() / most[-1].sum()),
        "first_dose": float(action[0].mean()),
        "last_dose": float(action[-max(rounds // 10, 1) :].mean()),
        "small_doses": float((action < SMALL).mean()),
        **_alarms(over, stated, policy),
    }
    curves = curves_of(scenario.name, action, gain, best, over)
    played = {"engine": run.engine, "compile_seconds": run.compile_seconds}
    return Forecast(scenario=scenario, quantities=quantities, curves=curves, **played)


def window(rounds: int) -> int:
    """Rounds over which a current reward is averaged."""
    return max(rounds // 20, min(rounds, 10))


def _rewards(run: Simulation, whole: SafetySpec, context: Array, action: Array) -> tuple[Array, Array]:
    """Noise-free rewards of the policy and of the exact clairvoyant at the whole risk, (rounds, seeds); where there is
    no exact one, of the clairvoyant.
    """
    world, dose = run.world, run.dose
    truth = world.draw_truth(whole, generators(run.seeds, ("truth",)))
    reward, cost = world.means(whole, truth, context)
    known = world.exact_intensity(whole, Exposure(context, reward, cost, *[np.zeros(reward.shape)] * 6))
    if known is None:
        numbers = np.arange(1.0, len(action) + 1.0)[:, None]
        seen = Prediction(reward, cost, 0.0, 0.0, 0.0, 0.0, world.dim, context=context)
        baseline = world.baseline_cost
        known = (
            clairvoyant(binary_cost=world.binary_cost)
            .decide(seen, whole, round=numbers, coin=0.0, baseline_cost=baseline)
            .intensity
        )
    best = np.asarray(dose.reward.effect(dose.cost.action(np.where(reward >= 0.0, known, 0.0))))
    return np.asarray(dose.reward.effect(action)) * reward, best * reward


def violations_of(over: NDArray[np.bool_], stated: SafetySpec, policy: Policy) -> dict[str, Any]:
    counts = over.sum(axis=0)
    low, high = violation_interval(counts, len(over))
    return {
        "violations": float(counts.mean()),
        "violations_high": float(np.quantile(counts, 0.95, method="inverted_cdf")),
        "violation_rate": float(over.mean()),
        "rate_low": low,
        "rate_high": high,
        "promised_risk": float(promised_risk(policy, stated)),
        "promised_over": "a round" if PROMISES[stated.promise].each_round else "all rounds",
        "any_violation": float((counts > 0).mean()),
    }


def reward_of(gain: Array, best: Array) -> dict[str, Any]:
    """The share of the clairvoyant's reward, and the first round from which a window has half of it (None: never)."""
    total = float(best.sum())
    size = window(len(gain))
    current, possible = (moving(values.sum(axis=1), size) for values in (gain, best))
    half = np.flatnonzero(current >= 0.5 * possible)
    return {
        "reward_share": float(gain.sum()) / total if total > 0 else None,
        "half_reward_round": int(half[0]) + 1 if half.size else None,
    }


def moving(values: Array, size: int) -> Array:
    """Sums over windows of `size` that begin at each round."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return sums[size:] - sums[:-size]


def _alarms(over: NDArray[np.bool_], stated: SafetySpec, policy: Policy) -> dict[str, Any]:
    """The share of studies with an alarm of the monitor, at level 0.01; None if it does not watch this promise."""
    if PROMISES[policy.promise].exchangeable:
        return {"alarms": None}
    before, alarmed = monitor.init(over.shape[1:]).log_evidence[None], np.zeros(over.shape[1], dtype=bool)
    for start in range(0, len(over), Batch.step):
        part = over[start : start + Batch.step]
        risk = round_risk(stated, np.arange(start + 1.0, start + len(part) + 1.0)[:, None])
        alone = monitor.update(monitor.init(part.shape), part, np.broadcast_to(risk, (len(part), 1)))
        running = np.cumsum(np.concatenate([before, alone.log_evidence]), axis=0)
        alarmed |= np.any(monitor.alarm(alone._replace(log_evidence=running)), axis=0)
        before = running[-1:]
    return {"alarms": float(alarmed.mean())}


def curves_of(name: str, action: Array, gain: Array, best: Array, over: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Doses by window (mean and middle half, over rounds and studies), current reward share, violations so far."""
    edges = np.unique(np.linspace(0, len(action), min(POINTS, len(action)) + 1).round().astype(int))
    total = np.cumsum(over, axis=0)
    rows = []
    for start, end in pairwise(edges):
        possible = float(best[start:end].sum())
        low, high = np.quantile(action[start:end], DOSES)
        few, many = np.quantile(total[end - 1], STUDIES)
        rows.append(
            {
                "scenario": name,
                "round": int(end),
                "dose": float(action[start:end].mean()),
                "dose_low": float(low),
                "dose_high": float(high),
                "reward_share": float(gain[start:end].sum()) / possible if possible > 0 else "",
                "violations": float(total[end - 1].mean()),
                "violations_low": float(few),
                "violations_high": float(many),
            }
        )
    return rows
