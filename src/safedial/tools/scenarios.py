"""Scenarios: what may be true, compared with what the spec states.

A scenario changes the world, not the policy: the policy uses the stated constants, the world the true ones. If the
truth lies within what is stated, the guarantee holds; if not, the table shows what is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from safedial.bounds import monitor
from safedial.bounds.estimate import Prediction
from safedial.bounds.margin import round_risk
from safedial.errors import InvalidInput, is_whole, require
from safedial.model.costs import exceeded
from safedial.model.dose import Dose, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import Array
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.policies import Policy, guaranteed_risk
from safedial.policies.policy import Asked, Task
from safedial.policies.supports import supports
from safedial.simulation.attainable import attainable_curve
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.engines import pays
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.loop import Batch, Played
from safedial.simulation.proof import guarantee_holds
from safedial.simulation.run import Simulation, simulate
from safedial.simulation.world import NOISY, Exposure, World, generators
from safedial.stats import Seeds, violation_interval

if TYPE_CHECKING:
    from safedial.tools.planning import Plan


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
    inside = (name for name in WITHIN_A_RANGE if LinearWorld(dim=1, noise=name).keeps_noise(spec))
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
    uncertified = unknown and "exchangeable rounds" in GUARANTEES[policy.guarantee].rests_on
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
    stated = policy.fitted(stated, dim)
    true = true_spec(scenario.factors, stated)
    options: Any = {"rounds": rounds, "seeds": seeds, "dose": dose, "progress": progress}
    run, context, action, over = played(policy, world, true, **options, stated=stated, engine=engine, device=device)
    whole = replace(true, violation_risk=guaranteed_risk(policy, stated))
    gain, best = _rewards(run, whole, context, action)
    again: Any = {"checkpoints": run.checkpoints, "seeds": run.seeds, "dose": dose, "chunk": Batch.step}
    most = attainable_curve(world, whole, **again, context=context)
    holds = place is None and guarantee_kept(policy, scenario, stated)
    return told_of(
        scenario,
        {"guarantee_holds": holds, **risks_of(over, stated, policy)},
        {"attainable_share": None if most is None else float(gain.sum() / most[-1].sum())},
        {"small_doses": float((action < SMALL).mean()), **_alarms(over, stated, policy)},
        run=run, over=over, dose=action, gain=gain, best=best,
    )  # fmt: skip


def played(
    policy: Policy, world: World, spec: SafetySpec, **options: Any
) -> tuple[Simulation, Array, Array, NDArray[np.bool_]]:
    """A simulation with the contexts and the actions of its rounds, and which of them exceeded, (rounds, seeds)."""
    chunks: list[Played] = []
    run = simulate(policy, world, spec, **options, points=1, record=chunks.append)
    context, action = (np.concatenate([chunk[part][:, 0] for chunk in chunks]) for part in range(2))
    over = [exceeded(spec, chunk.cost, policy.direction)[:, 0] for chunk in chunks]
    return run, context, action, np.concatenate(over)


def told_of(
    scenario: Scenario,
    risks: Mapping[str, Any],
    shares: Mapping[str, Any],
    further: Mapping[str, Any],
    *,
    run: Simulation,
    over: NDArray[np.bool_],
    dose: Array,
    gain: Array,
    best: Array,
) -> Forecast:
    """A forecast, from its rounds: doses, what they earned and what was best, and what else there is to tell."""
    doses = {"first_dose": float(dose[0].mean()), "last_dose": float(dose[-max(len(dose) // 10, 1) :].mean())}
    return Forecast(
        scenario=scenario,
        quantities={"scenario": scenario.name, **risks, **reward_of(gain, best), **shares, **doses, **further},
        curves=curves_of(scenario.name, dose, gain, best, over),
        engine=run.engine,
        compile_seconds=run.compile_seconds,
    )


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
        known = world.clairvoyant().decide(seen, whole, asked)[1]
    best = np.asarray(dose.reward.effect(dose.cost.action(np.where(reward >= 0.0, known, 0.0))))
    return np.asarray(dose.reward.effect(action)) * reward, best * reward


def risks_of(over: NDArray[np.bool_], stated: SafetySpec, policy: Policy) -> dict[str, Any]:
    counts = over.sum(axis=0)
    low, high = violation_interval(counts, len(over))
    proved = GUARANTEES[policy.guarantee].proved
    return {
        "violations": float(counts.mean()),
        "violations_high": float(np.quantile(counts, 0.95, method="inverted_cdf")),
        "violation_rate": float(over.mean()),
        "rate_low": low,
        "rate_high": high,
        "guaranteed_risk": float(guaranteed_risk(policy, stated)) if proved else None,
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
    if "exchangeable rounds" in GUARANTEES[policy.guarantee].rests_on:
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


# --- The linear worlds in which a policy is planned


class LinearWorlds:
    """Worlds with the constants that a spec states, or multiples of them."""

    kind: ClassVar[str] = "linear"
    pictured: ClassVar[str] = "Dose, reward and violations over time, and the violation rate of every scenario"
    varied: ClassVar[str] = " with different true coefficients"
    page_heads: ClassVar[dict[str, str]] = {
        "scenario": "scenario",
        "violations": "violations",
        "violations_high": "19 of 20: ≤",
        "violation_rate": "rate",
        "any_violation": "any",
        "reward_share": "reward",
        "attainable_share": "attainable",
        "half_reward_round": "half from",
        "last_dose": "last dose",
        "small_doses": "small doses",
        "alarms": "alarms",
    }

    heads: ClassVar[dict[str, str]] = {
        "violations": "costs\nabove",
        "violations_high": "19 of\n20: ≤",
        "violation_rate": "rate",
        "reward_share": "reward",
        "attainable_share": "attain-\nable",
        "half_reward_round": "half\nfrom",
        "last_dose": "dose",
    }
    """The columns that are printed; heads of two lines, so that the table fits into 80 columns."""
    note = (
        ", and at most in 19 of 20 studies; reward: as a share of an all-knowing policy's; attainable: as a share of "
        "the reward of a policy that must learn only its sign; half from: the first round from which half is earned"
    )

    def rate(self, spec: SafetySpec) -> str:
        """The column that the guarantee limits."""
        return GUARANTEES[spec.guarantee].rate

    def limit(self, plan: Plan) -> str:
        """Which costs are counted, in words."""
        return f"above {plan.spec.threshold:g}"

    def scenarios(
        self, policy: Policy, spec: SafetySpec, assumed: Mapping[str, float], place: World | None
    ) -> tuple[Scenario, ...]:
        """All in which the policy can be simulated; in a world of the user's own, those whose constants it uses."""
        whole = complete(policy, spec, assumed)
        return scenarios_for(policy, whole) if place is None else scenarios_in(place, whole)

    def check_place(self, place: World) -> None:
        """Refuse a world of the user's own that this plan cannot use."""
        rule = "is for brackets, whose plan makes its own"
        require(not isinstance(place, DoseResponseWorld), "world", place.name, rule, "leave it out")

    def forecasts(
        self,
        given: tuple[Scenario, ...],
        policy: Policy,
        spec: SafetySpec,
        *,
        assumed: dict[str, float],
        **options: Any,
    ) -> dict[str, Any]:
        """What `plan` adds to its arguments: the completed spec, and the forecasts."""
        require(options["dim"] is not None, "dim", None, "is missing", "give the dimension of the contexts")
        whole = complete(policy, spec, assumed)
        if assumed:
            given = tuple(replace(each, name=each.name.replace("as stated", "as assumed")) for each in given)
        engine = options.pop("engine")
        made = _forecasts(given, policy, whole, engine, options)
        kept = {name: options[name] for name in ("dim", "dose", "baseline_cost")}
        return {**kept, "spec": whole, "assumed": assumed, "forecasts": made}

    def story(self, plan: Plan) -> list[str]:
        """Rewards and doses over time, in words."""
        first = plan.table[0]
        half, share, most = first["half_reward_round"], first["reward_share"], first["attainable_share"]
        known = "of a policy that knows the cost and must learn only the sign of the reward"
        beside = "" if most is None else f", and {most:.0%} of the attainable reward, that {known}"
        earned = (
            f"Over the whole study the reward is {share:.0%} of that policy's{beside}."
            if share is not None
            else "No policy can earn a reward here."
        )
        begun = (
            f"From about round {half} on, a round earns at least half of an all-knowing policy's reward."
            if half is not None
            else "Within these rounds, no stretch earns half of an all-knowing policy's reward."
        )
        dose = (
            f"The dose begins at {plan.dial.amount(first['first_dose'], digits=3)} and is "
            f"{plan.dial.amount(first['last_dose'], digits=3)} on average in the last tenth."
        )
        return [f"{begun} {earned}", dose, *_small_doses(plan)]

    def stated(self, plan: Plan, risk: float) -> str:
        """What is planned, in words."""
        spec, names = plan.spec, {"cost_noise": "κ (cost)", "reward_noise": "κ (reward)"}
        names |= {"coefficient_bound": "S", "context_bound": "L"}
        told = {name: f"{words} = {getattr(spec, name):g}" for name, words in names.items()}
        heads = {"stated": told.keys() - plan.assumed.keys(), "assumed": plan.assumed.keys()}
        parts = {head: ", ".join(told[name] for name in told if name in chosen) for head, chosen in heads.items()}
        constants = "; ".join(f"{head}: {part}" for head, part in parts.items() if part)
        based = f", baseline cost {plan.baseline_cost:g}" if plan.baseline_cost else ""
        limits = f"threshold {spec.threshold:g}, risk {risk:.3g} in {GUARANTEES[spec.guarantee].span}"
        return f"{plan.dim} features, {limits}; {constants}, dose curve {plan.dose.cost.words}{based}"

    def legend(self, plan: Plan) -> str:
        """What the columns of the page mean."""
        dial = plan.dial
        unit = "shares of the dial" if dial.is_plain else "settings of the dial"
        return (
            "Violations: rounds of a study with a cost above the threshold, on average, and at most in 19 of 20 "
            "studies; any: studies with one. Reward is the share of what an all-knowing policy earns, without noise; "
            "attainable: the share of what a policy earns which knows the cost and must learn only the sign of the "
            "reward; half reward: the first round from which a twentieth of the study earns half of that. Doses are "
            f"{f'in {dial.unit}' if dial.unit else unit}; small ones are below {dial.amount(SMALL)}. Monitor: alarm at "
            "evidence 100."
        )


def _small_doses(plan: Plan) -> list[str]:
    """A warning about micro-doses and the errors of measurement that they magnify."""
    share, probe = plan.table[0]["small_doses"], plan.policy.options.get("probe")
    if share < 0.01 or probe is None or probe == 0:
        return []
    stated = "state it as cost_sensor_noise, or " if "sensors" in GUARANTEES[plan.policy.guarantee].takes else ""
    based = ", after the baseline cost is taken off," if plan.baseline_cost else ""
    return [
        f"In {share:.0%} of the rounds the dose is below {plan.dial.amount(SMALL)}: where no benefit is expected, "
        "as in about half of the contexts of these simulated worlds, the policy gives a small share of the safe "
        f"dose, so that the policy still learns (probe = {probe}). The measurement{based} is divided by "
        "that small dose, which magnifies its error. If your error does not shrink with the dose, "
        f"{stated}set probe = 1, which gives the safe dose in every round."
    ]


def _forecasts(
    given: tuple[Scenario, ...], policy: Policy, spec: SafetySpec, engine: Any, options: dict[str, Any]
) -> tuple[Forecast, ...]:
    """Every scenario's. They share programs, so with "auto" they may together repay what none would alone; your own
    policies and worlds compile in each.
    """
    shared = not policy.is_own and options["place"] is None and is_whole(options["rounds"])
    rounds, seeds = options["rounds"], len(options["seeds"])
    together = (
        engine == "auto"
        and options["device"] is None
        and shared
        and pays(policy, options["dim"], rounds * len(given), seeds)
    )

    def made(each: Scenario) -> Forecast:
        try:
            return forecast(each, policy, spec, **options, engine="jax" if together else engine)
        except InvalidInput:
            if not together:
                raise
            return forecast(each, policy, spec, **options, engine="numpy")

    return tuple(map(made, given))
