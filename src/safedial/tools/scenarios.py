"""Scenarios: what may be true, compared with what the spec states.

A scenario changes the world, not the policy: the policy uses the stated constants, the world the true ones. If the
truth lies within what is stated, the guarantee holds; if not, the table shows what is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.bounds import monitor
from safedial.bounds.confidence import with_ridge
from safedial.bounds.estimate import Prediction
from safedial.bounds.margin import round_risk
from safedial.errors import require
from safedial.model.dose import Dose, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import Array
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.policies import Policy, guaranteed_risk
from safedial.policies.baselines import clairvoyant
from safedial.policies.policy import Asked, Task
from safedial.policies.supports import supports
from safedial.simulation.attainable import attainable_curve
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.loop import Batch, Played
from safedial.simulation.proof import guarantee_holds, margin_holds
from safedial.simulation.run import Simulation, simulate
from safedial.simulation.world import NOISY, Exposure, World, generators
from safedial.stats import Seeds, violation_interval


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A name, multiples of the spec's constants, and options of `LinearWorld`."""

    name: str
    words: str
    factors: dict[str, float] = field(default_factory=dict)
    world: dict[str, Any] = field(default_factory=dict)


def true_spec(factors: Mapping[str, float], stated: SafetySpec) -> SafetySpec:
    """The spec with multiples of its constants."""
    return replace(stated, **{name: factor * getattr(stated, name) for name, factor in factors.items()})


TRIED = 50
"""The rounds in which a world of the user's own is tried."""

NOISES = ("reward_noise", "cost_noise")

SCENARIOS = (
    Scenario(name="as stated", words="Gaussian noise of deviation κ, coefficients of norm S, contexts at random"),
    Scenario(
        name="milder truth",
        words="half the noise, coefficients of half the norm",
        factors={**dict.fromkeys(NOISES, 0.5), "coefficient_bound": 0.5},
    ),
    Scenario(
        name="worst contexts",
        words="an adversary sends the context whose cost is underestimated most",
        world={"contexts": "adversarial"},
    ),
    Scenario(name="drifting contexts", words="contexts turn towards one axis", world={"contexts": "drift"}),
    Scenario(name="two-point noise", words="noise ±κ", world={"noise": "rademacher"}),
    Scenario(name="noise 2 κ", words="the noise is twice as wide as stated", factors=dict.fromkeys(NOISES, 2.0)),
    Scenario(name="norm 2 S", words="coefficients twice as long as stated", factors={"coefficient_bound": 2.0}),
    Scenario(
        name="heavy tails", words="Student's t with 3 degrees of freedom, of deviation κ", world={"noise": "student-t3"}
    ),
    Scenario(name="bent mean", words="means are a sine of the linear ones", world={"mean": "sine"}),
)

WITHIN_A_RANGE = {"truncated": "cut Gaussian", "uniform": "uniform", "rademacher": "two-point"}
"""Noise families with ends, and their names in words."""


def scenarios_for(policy: Policy, spec: SafetySpec) -> tuple[Scenario, ...]:
    """The scenarios that can be simulated: an adversary needs a policy with a linear learner. If the spec bounds the
    noise, it is not Gaussian but of the first family in `WITHIN_A_RANGE` that lies in the range.
    """
    played = [(each, LinearWorld(dim=1, **each.world)) for each in SCENARIOS]
    tasks = [(each, Task(dim=1, spec=spec, dose=as_dose(None), world=world.facts)) for each, world in played]
    possible = [each for each, task in tasks if not each.world or not supports(policy, task)]
    return tuple(_bounded(each, spec) if spec.margin == "bounded" else each for each in possible)


def _bounded(scenario: Scenario, spec: SafetySpec) -> Scenario:
    if "noise" in scenario.world:
        return scenario
    inside = (name for name in WITHIN_A_RANGE if margin_holds(spec, LinearWorld(dim=1, noise=name)))
    chosen = next(inside, "rademacher")
    words = scenario.words.replace("Gaussian", WITHIN_A_RANGE[chosen])
    return replace(scenario, words=words, world={**scenario.world, "noise": chosen})


def scenarios_in(place: World, spec: SafetySpec) -> tuple[Scenario, ...]:
    """The scenarios for a world of the user's own: those that change constants alone, of those that it uses; one that
    changes others too says so, and one that changes only others would be the first again.
    """
    possible = [each for each in SCENARIOS if not each.world]
    idle = {name for name in {name for each in possible for name in each.factors} if not _uses(place, name, spec)}
    return tuple(_without(each, idle) for each in possible if not each.factors or set(each.factors) - idle)


def left_out(played: Sequence[Scenario]) -> tuple[str, ...]:
    """The names of those that `scenarios_in` left out because they change nothing."""
    names = {each.name for each in played}
    return tuple(each.name for each in SCENARIOS if each.factors and each.name not in names)


def _without(scenario: Scenario, idle: set[str]) -> Scenario:
    unused = [name for name in scenario.factors if name in idle]
    if not unused:
        return scenario
    words = f"{scenario.words}; this world does not use {', '.join(unused)}"
    factors = {name: factor for name, factor in scenario.factors.items() if name not in idle}
    return replace(scenario, words=words, factors=factors)


def _uses(place: World, constant: str, spec: SafetySpec) -> bool:
    """Whether half of a constant gives other contexts, means or outcomes of a full dose, in a few rounds. A world that
    refuses these rounds is taken to use it, and refuses them again when it is simulated.
    """
    if constant not in place.constants or getattr(spec, constant) is None:
        return False
    try:
        stated, halved = (_few_rounds(place, each) for each in (spec, true_spec({constant: 0.5}, spec)))
    except Exception:  # whatever the user's world does
        return True
    return not all(map(np.array_equal, stated, halved))


def _few_rounds(place: World, spec: SafetySpec) -> list[Any]:
    rngs = generators([0, 1])
    truth, draws = place.draw_truth(spec, rngs), place.draw_chunk(spec, rngs, TRIED)
    context = draws.context[..., 0, :] if place.adversarial else draws.context
    means = place.means(spec, truth, context)
    noise = (getattr(draws, stream)[:, None] for stream in NOISY)
    full = np.ones((TRIED, 1, 2))
    gain, harm = (np.asarray(mean)[:, None] for mean in means)
    reward, cost, _ = place.outcome(spec, Exposure(context[:, None], gain, harm, full, full, *noise))
    return [context, *means, reward, *(cost.values() if isinstance(cost, Mapping) else (cost,))]


def complete(policy: Policy, spec: SafetySpec, assumed: Mapping[str, float]) -> SafetySpec:
    """The spec with all constants that a simulated world needs: stated or assumed."""
    odd = [name for name in assumed if name not in CONSTANTS or getattr(spec, name) is not None]
    require(not odd, "assumed", odd, "are already stated, or not constants", "assume " + ", ".join(CONSTANTS))
    lacking = [name for name in CONSTANTS if getattr(spec, name) is None and name not in assumed]
    options = ", ".join(f"--{name.replace('_', '-')}" for name in lacking)
    way_out = (
        f"assume them: {options} (in Python, assumed=); safedial calibrate proposes them from a pilot. The forecast "
        "depends on them; the guarantee does not"
    )
    require(not lacking, "spec", lacking, "are not stated, and a forecast needs a simulated world", way_out)
    unknown = spec.cost_noise is None or spec.coefficient_bound is None
    uncertified = unknown and GUARANTEES[policy.guarantee].exchangeable
    started = not uncertified or policy.options["start_dose"] is not None
    way_out = "declare an intensity that is safe for every context, for example start_dose = 0.05 under [[policy]]"
    require(started, "start_dose", None, "is missing: assumed constants cannot certify the start", way_out)
    return replace(spec, **assumed)


def guarantee_kept(policy: Policy, scenario: Scenario, stated: SafetySpec) -> bool:
    """Whether the policy's guarantee on the realized cost is proved in that scenario."""
    world = LinearWorld(dim=1, **scenario.world)
    return guarantee_holds(policy, world, stated, true=true_spec(scenario.factors, stated))


# --- Simulates one scenario many times, to forecast a study

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
    true = true_spec(scenario.factors, stated)
    chunks: list[Played] = []
    options: Any = {"rounds": rounds, "seeds": seeds, "dose": dose, "points": 1, "progress": progress}
    run = simulate(policy, world, true, **options, record=chunks.append, stated=stated, engine=engine, device=device)
    context, action, _, cost = (np.concatenate([chunk[part][:, 0] for chunk in chunks]) for part in range(4))
    whole = replace(true, violation_risk=guaranteed_risk(policy, stated))
    gain, best = _rewards(run, whole, context, action)
    again: Any = {"checkpoints": run.checkpoints, "seeds": run.seeds, "dose": dose, "chunk": Batch.step}
    most = attainable_curve(world, whole, **again, context=context)
    over = cost > stated.threshold
    quantities = {
        "scenario": scenario.name,
        "guarantee_holds": place is None and guarantee_kept(policy, scenario, stated),
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
        asked = Asked(context, 0.0, numbers, world.baseline_cost)
        known = clairvoyant(binary_cost=world.binary_cost).decide(seen, whole, asked)[1]
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
        "guaranteed_risk": float(guaranteed_risk(policy, stated)),
        "guaranteed_over": GUARANTEES[stated.guarantee].span,
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
    """The share of studies with an alarm of the monitor, at level 0.01; None if it does not watch this guarantee."""
    if GUARANTEES[policy.guarantee].exchangeable:
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
