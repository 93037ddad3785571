"""Planning a study: simulate the spec and its alternatives, and forecast the results.

spec, dose, dim, rounds, assumptions ─► scenarios ─► forecast (many truths each) ─► operating characteristics, words

A policy is planned in linear worlds (scenarios.py), or, where its guarantee rests on a growth bracket, in dose-response
worlds (tolerances.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from safedial.errors import require
from safedial.io import card, data_frame
from safedial.model.dial import Dial, significant
from safedial.model.dose import Dose, DoseCurve, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import Policy, as_policy, guaranteed_risk
from safedial.rounds.rules import by_rule, named_policy
from safedial.simulation.run import find_policy, is_own_name
from safedial.simulation.world import World
from safedial.simulation.worlds import as_world
from safedial.stats import Seeds, as_seeds
from safedial.tools.scenarios import Forecast, LinearWorlds, Scenario, left_out
from safedial.tools.tolerances import Tolerances

if TYPE_CHECKING:
    from pandas import DataFrame


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
        worlds: how it is simulated and told.
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
    worlds: LinearWorlds | Tolerances = field(repr=False)

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

    @property
    def rate(self) -> str:
        """The column that the guarantee limits by `guaranteed_risk`."""
        return self.worlds.rate(self.spec)

    def _repr_html_(self) -> str:
        names = ("scenario", "guarantee_holds", self.rate, "guaranteed_risk", "reward_share")
        rows = ({name: row[name] for name in names} for row in self.table)
        return card(f"{self.policy.name}: {self.rounds:,} rounds, {self.seeds} studies", rows, self.words())

    def words(self) -> list[str]:
        """What to expect if the spec is true, in plain words."""
        return [self._excesses(), *self.worlds.story(self), *self._assumptions(), *self._doubts(), *self._left_out()]

    def _excesses(self) -> str:
        first = self.table[0]
        return (
            f"Of {self.rounds} rounds expect {significant(first['violations'], 2)} with a cost "
            f"{self.worlds.limit(self)}; at most one study in twenty has more than {first['violations_high']:.0f}; "
            f"{self._allowed()}."
        )

    def _assumptions(self) -> list[str]:
        if not self.assumed:
            return []
        told = ", ".join(f"{name} = {value:g}" for name, value in self.assumed.items())
        return [f"Assumed, not stated: {told}. The forecast depends on this; the guarantee does not."]

    def _allowed(self) -> str:
        first = self.table[0]
        if not first["guarantee_holds"]:
            return "nothing is guaranteed about them"
        return "the guarantee allows " + GUARANTEES[self.spec.guarantee].allows(first["guaranteed_risk"], self.rounds)

    def _doubts(self) -> list[str]:
        stated = float(guaranteed_risk(self.policy, self.spec))
        broken = [row for row in self.table if not row["guarantee_holds"] and row[self.rate] > stated]
        if not broken:
            return []
        names = ", ".join(f"{row['scenario']} ({row[self.rate]:.1%})" for row in broken)
        risk = f"{stated:.1%}"
        if self.table[0]["guarantee_holds"]:
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
    worlds = worlds_of(rule)
    given = worlds.scenarios(rule, spec, added, place) if scenarios is None else tuple(scenarios)
    require(len(given), "scenarios", given, "must hold at least one")
    common: dict[str, Any] = {"rounds": rounds, "seeds": which}
    if place is not None:
        worlds.check_place(place)
        require(dim == place.dim, "dim", dim, f"is not that of the world, {place.dim}", "leave it out")
        require(baseline_cost == 0.0, "baseline_cost", baseline_cost, "is the world's own", "leave it out")
    common |= {"place": place, "dose": as_dose(dose), "baseline_cost": baseline_cost, "assumed": added}
    common |= {"progress": progress, "engine": engine, "device": device}
    found = {"dial": dial or Dial(), **worlds.forecasts(given, rule, spec, dim=dim, **common)}
    return Plan(
        policy=rule,
        **found,
        rounds=rounds,
        seeds=len(which),
        which=which,
        left_out=left_out(given) if place and scenarios is None else (),
        worlds=worlds,
    )


def worlds_of(policy: Policy) -> LinearWorlds | Tolerances:
    """The worlds in which a policy is planned."""
    needs = GUARANTEES[policy.guarantee].rests_on
    return next((worlds for need, worlds in WORLDS.items() if need in needs), LinearWorlds())


WORLDS = {"kept bracket": Tolerances()}
"""By what a guarantee rests on, where the worlds are not linear."""


def planned(policy: Any, spec: SafetySpec, dim: int | None, dial: Dial | None) -> tuple[Policy, SafetySpec]:
    """The policy and the spec that a new study would have (rounds/rules.py)."""
    policy = find_policy(policy) if is_own_name(policy) else policy
    if dim is not None:
        return by_rule(policy, spec, dim)
    return (named_policy(policy) if isinstance(policy, Mapping) else as_policy(policy)), spec


def scenarios_of(
    policy: Policy, spec: SafetySpec, assumed: Mapping[str, float], place: World | None = None
) -> tuple[Scenario, ...]:
    """The scenarios that `plan` simulates; in a world of the user's own, those that change constants which it uses."""
    return worlds_of(policy).scenarios(policy, spec, assumed, place)
