"""Planning a study: simulate the spec and its alternatives, and forecast the results.

spec, dose, dim, rounds, assumptions ─► scenarios ─► forecast (many truths each) ─► operating characteristics, words

HP-Shield is planned in dose-response worlds in which the bracket is true, and in which it is not. All is in multiples
of the base: a unit tolerates up to T times its protocol's setting, T log-normal. For a relative bracket costs are
(scale/T)^e, for an additive one they rise by a slope s from anything: then only e, or s as a share of `high`, and the
floor as a share of the threshold matter, and neither units nor the dial. Of several costs, one that is drawn anew for
each unit sets T, and the others tolerate more. For a learned base, features tell a share of the variance of ln T. The
reward of a round is its scale, so that the all-knowing policy plays the scale that a share δ of the units with the same
features does not tolerate. Given a scale, the chance of an excess is known, which gives the worst round without the
noise of counting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from safedial.bounds.tolerated import Cost
from safedial.errors import InvalidInput, is_whole, require
from safedial.io import card, data_frame
from safedial.model.brackets import Growth
from safedial.model.dial import Dial, significant
from safedial.model.dose import Dose, DoseCurve, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import POLICIES, Policy, as_policy, make_policy
from safedial.rounds.rules import by_rule, named_policy
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.engines import pays
from safedial.simulation.loop import Played
from safedial.simulation.results import guarantee_holds
from safedial.simulation.rule import exceeded
from safedial.simulation.run import find_policy, is_own_name, simulate
from safedial.simulation.world import World, generators
from safedial.simulation.worlds import as_world
from safedial.stats import Seeds, as_seeds
from safedial.tools.scenarios import (
    SMALL,
    Forecast,
    Scenario,
    complete,
    curves_of,
    forecast,
    left_out,
    moving,
    reward_of,
    scenarios_for,
    scenarios_in,
    violations_of,
)

if TYPE_CHECKING:
    from pandas import DataFrame

TOLERANCE = {"tolerance": 1.0, "tolerance_spread": 0.5}
"""What is assumed of units: the median of T, and the standard deviation of its logarithm."""

EXPLAINED = {"explained": 0.5}
"""What is assumed besides for a learned base: the share of the variance of ln T that the features tell."""

FALL, STRETCH = 0.7, 10
KEPT = ("climb", "confidence", "adapt", "learned")


def tolerances(policy: Policy, assumed: Mapping[str, float]) -> dict[str, float]:
    """The assumed law of T, checked."""
    usual = TOLERANCE | (EXPLAINED if policy.options["learned"] else {})
    odd = sorted(set(assumed) - set(usual))
    require(not odd, "assumed", odd, "have no part in a bracket's plan", "assume " + ", ".join(usual))
    found = usual | dict(assumed)
    for name, value in found.items():
        require(math.isfinite(value) and value > 0.0, name, value, "must be a number > 0")
    share = found.get("explained", 0.0)
    require(share < 1.0, "explained", share, "must be below 1: features do not tell everything")
    return found


def columns(policy: Policy, dim: int | None) -> int:
    """The columns of a simulated context: the protocol's setting and, for a learned base, the features."""
    if not policy.options["learned"]:
        return 1
    require(dim is not None, "dim", dim, "is missing", "a learned base depends on the dimension of the contexts")
    base = policy.options["base"]
    found = int(dim or 0) + (callable(base) or base == "proposal")
    require(found > 1, "dim", dim, "leaves a learned base no feature beside the protocol's setting")
    return found


def in_scales(policy: Policy, spec: SafetySpec, assumed: Mapping[str, float]) -> tuple[Policy, SafetySpec]:
    """The policy and the spec in multiples of the base, with a threshold of 1."""
    growth, start, costs = policy.options["growth"], policy.options["start_scale"], spec.costs
    require((growth is None) != (costs is None), "growth", growth, "or costs with brackets: state one of them")
    require(start is not None, "start_scale", start, "is missing: a plan begins at a share of the base")
    options = {name: policy.options[name] for name in KEPT}
    share = start / assumed["tolerance"]
    require(share <= 1.0, "start_scale", start, "must be at most the tolerance that is assumed")
    options |= {"base": 0, "start_scale": share}
    common: dict[str, Any] = {"violation_risk": spec.violation_risk, "guarantee": "bracket"}
    if costs is not None:
        plain = {name: Cost(threshold=1.0, growth=_plain(each.growth, each.threshold)) for name, each in costs.items()}
        return make_policy("hp_shield", **options), SafetySpec(costs=plain, **common)
    threshold = 0.5 if growth.name == "spread" else 1.0
    simulated = make_policy("hp_shield", growth=_plain(growth, spec.threshold), **options)
    return simulated, SafetySpec(threshold=threshold, **common)


def _plain(growth: Growth, threshold: Any) -> Growth:
    """The bracket with numbers: slopes as shares of `high`, 0 for a `low` whose share is not known."""
    given = dict(growth.parameters)
    if growth.name == "spread":
        return growth._replace(parameters=given | {"error": 0.0})
    if growth.name == "additive":
        known = not growth.features and given["high"] > 0.0
        return growth._replace(
            parameters={"low": given["low"] / given["high"] if known else 0.0, "high": 1.0, "error": 0.0}
        )
    require(
        not growth.features,
        "growth",
        list(growth.features),
        "must be numbers: a simulated plan has no such features",
        "state numbers",
    )
    size = float(threshold)
    return growth._replace(parameters=given | {"floor": given["floor"] / size, "error": given["error"] / size})


def bracket_scenarios(policy: Policy, spec: SafetySpec, assumed: Mapping[str, float]) -> tuple[Scenario, ...]:
    """What may be true, for a policy and a spec `in_scales`."""
    growth: Any = policy.options["growth"]
    spread = assumed["tolerance_spread"] * math.sqrt(1.0 - assumed.get("explained", 0.0))
    safe = {"least": policy.options["start_scale"], "spread": spread}
    if getattr(growth, "name", "") == "spread":
        sigma = growth.parameters["sigma"]
        given = {"as stated": sigma, "twice the spread": 2.0 * sigma, "half the spread": 0.5 * sigma}
        words = "costs of 0 or 1; log-tolerances with standard deviation"
        made = [(name, f"{words} {value:g}", {"curve": "binary", "spread": value}) for name, value in given.items()]
        return tuple(Scenario(name=name, words=told, world=world) for name, told, world in made)
    if spec.costs is None:
        word, curve = ("elasticities", "power") if growth.name == "relative" else ("slopes", "hinge")
        low, high = growth.parameters["low"], growth.parameters["high"]
    else:  # places between the ends of each cost's bracket
        word, curve, low, high = "slopes of each cost", "stated", 0.0, 1.0
    stated = {"curve": curve, "low": low, "high": high, **safe}
    made = {
        "as stated": (f"{word} of units between both ends of the bracket", {}),
        "steep units": (f"all {word} at the upper end", {"low": high}),
        "flat units": (f"all {word} at the lower end", {"low": max(low, 0.05 * high), "high": max(low, 0.05 * high)}),
        "heavy tails": ("tolerances with Student's t of 2 degrees of freedom", {"tails": "t2", "spread": 0.5 * spread}),
        "lost outcomes": ("a fifth of the outcomes lost, and vouched for", {"missing": 0.2}),
        "1.25 × high": (f"all {word} a quarter beyond the bracket", {"low": 1.25 * high, "high": 1.25 * high}),
        "2 × high": (f"all {word} twice the upper end", {"low": 2.0 * high, "high": 2.0 * high}),
        "falling": (f"tolerances fall by {1.0 - FALL:.0%} half way", {"fall": FALL}),
    }
    return tuple(Scenario(name=name, words=words, world=stated | changed) for name, (words, changed) in made.items())


def bracket_forecast(
    scenario: Scenario,
    policy: Policy,
    spec: SafetySpec,
    *,
    dim: int,
    rounds: int,
    seeds: Seeds,
    assumed: Mapping[str, float],
    progress: Any = None,
) -> Forecast:
    """Simulate the scenario with contexts of so many columns; `assumed` are the tolerances."""
    world = _world(scenario, dim, rounds, assumed.get("explained", 0.0))
    chunks: list[Played] = []
    run = simulate(policy, world, spec, rounds=rounds, seeds=seeds, points=1, progress=progress, record=chunks.append)
    context, action = (np.concatenate([chunk[part][:, 0] for chunk in chunks]) for part in range(2))
    over = np.concatenate([exceeded(policy, spec, chunk.cost)[:, 0] for chunk in chunks])
    protocol, start = context[..., 0], policy.options["start_scale"]
    scale = action / protocol
    fall = np.where(np.arange(rounds) >= world.after, world.fall, 1.0)[:, None]
    # What the features tell of ln T; 0 where there are none.
    middle = world.means(spec, world.draw_truth(spec, generators(run.seeds)), context)[1]
    tolerable = np.exp(middle + world.spread * _quantile(world.tails, spec.violation_risk))
    best = np.minimum(fall * np.maximum(tolerable, world.least), 1.0 / protocol)
    intolerant = _share(world.tails, (np.log(scale / fall) - middle) / world.spread)
    risk = np.where(scale > world.least * fall, intolerant, 0.0).mean(axis=1)
    if dim > 1:  # the chance also depends on the context: the mean of ten rounds, from the one that is named
        size = min(STRETCH, rounds)
        risk = moving(risk, size) / size
    above = (scale > 1.001 * start).mean(axis=1) >= 0.5
    dose = assumed["tolerance"] * scale
    quantities = {
        "scenario": scenario.name,
        "guarantee_holds": guarantee_holds(policy, world, spec),
        **violations_of(over, spec, policy),
        **reward_of(scale, best),
        "first_dose": float(dose[0].mean()),
        "last_dose": float(dose[-max(rounds // 10, 1) :].mean()),
        "small_doses": 0.0,
        "alarms": None,
        "worst_rate": float(risk.max()),
        "worst_round": int(np.argmax(risk)) + 1,
        "first_above_start": int(np.argmax(above)) + 1 if above.any() else None,
    }
    return Forecast(scenario=scenario, quantities=quantities, curves=curves_of(scenario.name, dose, scale, best, over))


def _world(scenario: Scenario, dim: int, rounds: int, explained: float) -> DoseResponseWorld:
    """The scenario's world: what the features tell is in proportion to what they leave open."""
    fallen = scenario.world.get("fall", 1.0) != 1.0
    effect = scenario.world["spread"] * math.sqrt(explained / (1.0 - explained))
    return DoseResponseWorld(**scenario.world, dim=dim, effect=effect, after=rounds // 2 if fallen else 0)


def _quantile(tails: str, share: Any) -> float:
    """F⁻¹ of (ln T − its middle)/σ."""
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(2.0, share) if tails == "t2" else ndtri(share))


def _share(tails: str, size: Any) -> Any:
    """F of it."""
    from scipy.special import ndtr, stdtr

    return stdtr(2.0, size) if tails == "t2" else ndtr(size)


# --- Planning a study: simulate the spec and its alternatives, and forecast the results


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A forecast for each scenario; in the first one, the spec is true.

    Attributes:
        spec: the study's spec, completed with the constants of the simulated world.
        assumed: the constants that are assumed for the forecast and not stated.
        baseline_cost: the known cost without any action.
        which: the seeds themselves.
        dial: the units of doses in words; in the tables, doses are shares of the dial.
        left_out: the scenarios that a world of your own does not tell from the first.
        engine: what played the rounds.
    """

    policy: Policy
    spec: SafetySpec
    dose: Dose
    dim: int
    rounds: int
    seeds: int
    forecasts: tuple[Forecast, ...]
    assumed: Mapping[str, float] = field(default_factory=dict)
    baseline_cost: float = 0.0
    dial: Dial = field(default_factory=Dial)
    which: Sequence[int] = ()
    left_out: Sequence[str] = ()

    @property
    def engine(self) -> str:
        return " and ".join(sorted({each.engine for each in self.forecasts}))

    @property
    def compile_seconds(self) -> float:
        """How long it took to compile programs; next to nothing where all were there."""
        return sum(each.compile_seconds for each in self.forecasts)

    @property
    def table(self) -> list[dict[str, Any]]:
        """The operating characteristics: a row for each scenario."""
        return [each.quantities for each in self.forecasts]

    @property
    def curves(self) -> list[dict[str, Any]]:
        return [row for each in self.forecasts for row in each.curves]

    def to_frame(self) -> DataFrame:
        """The table, as a pandas table."""
        return data_frame(self.table)

    def _repr_html_(self) -> str:
        rate = "worst_rate" if self.bracketed else "violation_rate"
        names = ("scenario", "guarantee_holds", rate, "guaranteed_risk", "reward_share")
        rows = ({name: row[name] for name in names} for row in self.table)
        return card(f"{self.policy.name}: {self.rounds:,} rounds, {self.seeds} studies", rows, self.words())

    def words(self) -> list[str]:
        """What to expect if the spec is true, in plain words."""
        first = self.table[0]
        if self.bracketed:
            return [self._excesses(), *self._scales(), *self._assumptions(), *self._doubts()]
        half, share = first["half_reward_round"], first["reward_share"]
        most = first["attainable_share"]
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
        return [
            self._excesses(),
            f"{begun} {earned}",
            f"The dose begins at {self.dial.amount(first['first_dose'], digits=3)} and is "
            f"{self.dial.amount(first['last_dose'], digits=3)} on average in the last tenth.",
            *self._assumptions(),
            *self._small_doses(),
            *self._doubts(),
            *self._left_out(),
        ]

    @property
    def bracketed(self) -> bool:
        return GUARANTEES[self.policy.guarantee].bracketed

    def _excesses(self) -> str:
        first, side = self.table[0], "below" if self.policy.options.get("direction") == "below" else "above"
        limit = f"{side} {self.spec.threshold:g}" if self.spec.costs is None else "beyond its threshold"
        return (
            f"Of {self.rounds} rounds expect {significant(first['violations'], 2)} with a cost {limit}; at "
            f"most one study in twenty has more than {first['violations_high']:.0f}; {self._allowed()}."
        )

    def _scales(self) -> list[str]:
        """The scale over time, and the chance of an excess in the worst round."""
        first = self.table[0]
        leaves = first["first_above_start"]
        begun = f"is above that from about round {leaves} on" if leaves else "stays there in most studies"
        share = f"Over the whole study it is {first['reward_share']:.0%} of an all-knowing policy's."
        base = "protocol's setting" if self.policy.options["learned"] else "base"
        return [
            f"The scale begins at {first['first_dose']:.3g} times the {base}, {begun}, and is {first['last_dose']:.3g} "
            f"on average in the last tenth. {share}",
            f"In the worst round, {first['worst_round']}, the chance of an excess is {first['worst_rate']:.1%}.",
        ]

    def _assumptions(self) -> list[str]:
        if not self.assumed:
            return []
        told = ", ".join(f"{name} = {value:g}" for name, value in self.assumed.items())
        several = (
            " One of the costs, drawn anew for each unit, sets what it tolerates; the others tolerate up to "
            f"{math.exp(DoseResponseWorld.gap):.2g} times as much."
            if self.spec.costs
            else ""
        )
        return [f"Assumed, not stated: {told}.{several} The forecast depends on this; the guarantee does not."]

    def _small_doses(self) -> list[str]:
        """A warning about micro-doses and the errors of measurement that they magnify."""
        share, probe = self.table[0]["small_doses"], self.policy.options.get("probe")
        if share < 0.01 or probe is None or probe == 0:
            return []
        based = ", after the baseline cost is taken off," if self.baseline_cost else ""
        out = "state it as cost_sensor_noise, or " if GUARANTEES[self.policy.guarantee].from_constants else ""
        return [
            f"In {share:.0%} of the rounds the dose is below {self.dial.amount(SMALL)}: where no benefit is expected, "
            "as in about half of the contexts of these simulated worlds, the policy gives a small share of the safe "
            f"dose, so that the policy still learns (probe = {probe}). The measurement{based} is divided by "
            "that small dose, which magnifies its error. If your error does not shrink with the dose, "
            f"{out}set probe = 1, which gives the safe dose in every round."
        ]

    def _allowed(self) -> str:
        first = self.table[0]
        if not first["guarantee_holds"]:
            return "nothing is guaranteed about them"
        if GUARANTEES[self.spec.guarantee].each_round:
            return f"the guarantee allows {significant(first['guaranteed_risk'] * self.rounds, 3)} on average"
        return f"the guarantee allows one or more in {first['guaranteed_risk']:.3g} of the studies"

    def _doubts(self) -> list[str]:
        rate = "violation_rate" if GUARANTEES[self.spec.guarantee].each_round else "any_violation"
        rate = "worst_rate" if self.bracketed else rate
        broken = [row for row in self.table if not row["guarantee_holds"] and row[rate] > row["guaranteed_risk"]]
        if not broken:
            return []
        names = ", ".join(f"{row['scenario']} ({row[rate]:.1%})" for row in broken)
        risk = f"{broken[0]['guaranteed_risk']:.1%}"
        if GUARANTEES[self.policy.guarantee].proved:
            return [f"Where an assumption fails, the guarantee can break: {names}; the guarantee is {risk}."]
        return [f"Nothing is guaranteed, and these exceed the spec's {risk}: {names}."]

    def _left_out(self) -> list[str]:
        names = ", ".join(self.left_out)
        return [f"Left out, since this world uses none of the constants that they change: {names}."] if names else []


def plan(
    policy: str | Policy | Mapping[str, Any],
    spec: SafetySpec,
    *,
    rounds: int,
    dim: int | None = None,
    world: str | Mapping[str, Any] | World | None = None,
    seeds: Seeds = 100,
    dose: DoseCurve | Dose | None = None,
    baseline_cost: float = 0.0,
    assumed: Mapping[str, float] | None = None,
    dial: Dial | None = None,
    scenarios: Sequence[Scenario] | None = None,
    progress: Callable[[int], None] | None = None,
    engine: Literal["numpy", "jax", "auto"] = "auto",
    device: Literal["cpu", "gpu"] | None = None,
) -> Plan:
    """Simulate every scenario.

    Args:
        policy: as for an `Agent`: options that a name or a mapping leaves open are those of a new study; your own also
            as "module:factory".
        dim: of the contexts; for a bracket only a learned base needs it.
        world: your own, an object or "module:factory", in place of the linear one. The scenarios are then those that
            change constants alone, of those that it uses; no guarantee is proved.
        seeds: studies in each scenario, with different true coefficients: how many, or which.
        dose: the dose curve, assumed exact.
        baseline_cost: the known cost without any action, in every round.
        assumed: constants of the world that a conformal spec does not state; the names are in `CONSTANTS`. For a
            bracket: `tolerance`, the median of what units tolerate in multiples of the base (1), and
            `tolerance_spread`, the standard deviation of its logarithm (0.5); and, for a learned base, `explained`, the
            share of the variance of that logarithm which the features tell (0.5).
        dial: the units of doses in words.
        scenarios: by default all of `SCENARIOS` in which the policy can be simulated.
        progress: called with the number of rounds just finished; a scenario has `rounds`.
        engine: of `simulate`; "jax" is for policies with a linear learner, and "auto" is "jax" where that is installed
            and the plan is large enough for it. `Plan.engine` says which played; they agree up to rounding.
        device: for "jax": "cpu", "gpu", or None for JAX's default.

    >>> from safedial.tools.scenarios import SCENARIOS
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> found = plan("hp_probe", spec, dim=2, rounds=100, seeds=20, scenarios=SCENARIOS[:1])
    >>> found.table[0]["violation_rate"] <= 0.05
    True
    """
    place, which = None if world is None else as_world(world), as_seeds(seeds)
    dim = place.dim if place and dim is None else dim
    rule, spec = planned(policy, spec, dim, dial)
    added = dict(assumed or {})
    given = scenarios_of(rule, spec, added, place) if scenarios is None else tuple(scenarios)
    require(len(given), "scenarios", given, "must hold at least one")
    common: dict[str, Any] = {"rounds": rounds, "seeds": which}
    _check_place(place, rule, dim, baseline_cost)
    if GUARANTEES[rule.guarantee].bracketed:
        units = tolerances(rule, added)
        common["dim"] = columns(rule, dim)
        simulated, scaled = in_scales(rule, spec, units)
        require(engine != "jax", "engine", engine, "cannot play the rounds of a bracket", "use 'numpy' or 'auto'")
        require(device is None, "device", device, "is for engine jax, which plays no bracket", "leave it out")
        options = common | {"assumed": units, "progress": progress}
        made = tuple(bracket_forecast(each, simulated, scaled, **options) for each in given)
        common |= {"seeds": len(which), "which": which}
        return Plan(policy=rule, spec=spec, dose=as_dose(None), **common, forecasts=made, assumed=units)
    require(dim is not None, "dim", dim, "is missing", "give the dimension of the contexts")
    whole = complete(rule, spec, added)
    if added:
        given = tuple(replace(each, name=each.name.replace("as stated", "as assumed")) for each in given)
    common |= {"dim": dim, "dose": as_dose(dose)}
    options = common | {"baseline_cost": baseline_cost, "progress": progress, "place": place, "device": device}
    made = _forecasts(given, rule, whole, engine, options)
    common |= {"seeds": len(which), "which": which}
    return Plan(
        policy=rule,
        spec=whole,
        **common,
        forecasts=made,
        assumed=added,
        baseline_cost=baseline_cost,
        dial=Dial() if dial is None else dial,
        left_out=left_out(given) if place and scenarios is None else (),
    )


def _forecasts(
    given: tuple[Scenario, ...], policy: Policy, spec: SafetySpec, engine: Any, options: dict[str, Any]
) -> tuple[Forecast, ...]:
    """Every scenario's. They share programs, so with "auto" they may together repay what none would alone; your own
    policies and worlds compile in each.
    """
    shared = policy.name in POLICIES and options["place"] is None and is_whole(options["rounds"])
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


def planned(policy: Any, spec: SafetySpec, dim: int | None, dial: Dial | None) -> tuple[Policy, SafetySpec]:
    """The policy and the spec that a new study would have (rounds/rules.py)."""
    policy = find_policy(policy) if is_own_name(policy) else policy
    if dim is not None:
        return by_rule(policy, spec, dim)
    return (named_policy(policy) if isinstance(policy, Mapping) else as_policy(policy)), spec


def _check_place(place: World | None, policy: Policy, dim: int | None, baseline_cost: float) -> None:
    """Check that a world of the user's own can be planned in."""
    if place is None:
        return
    rule = "is planned in dose-response worlds of its own" if GUARANTEES[policy.guarantee].bracketed else ""
    rule = "is for brackets, whose plan makes its own" if isinstance(place, DoseResponseWorld) else rule
    require(not rule, "world", place.name, rule or "fits", "leave it out")
    require(dim == place.dim, "dim", dim, f"is not that of the world, {place.dim}", "leave it out")
    require(baseline_cost == 0.0, "baseline_cost", baseline_cost, "is the world's own", "leave it out")


def scenarios_of(
    policy: Policy, spec: SafetySpec, assumed: Mapping[str, float], place: World | None = None
) -> tuple[Scenario, ...]:
    """The scenarios that `plan` simulates; in a world of the user's own, those that change constants which it uses."""
    if GUARANTEES[policy.guarantee].bracketed:
        units = tolerances(policy, assumed)
        return bracket_scenarios(*in_scales(policy, spec, units), units)
    whole = complete(policy, spec, assumed)
    return scenarios_for(policy, whole) if place is None else scenarios_in(place, whole)
