"""Planning a study: simulate what the spec states and what may be true instead, and say what to expect.

spec, dose, dim, rounds ─► scenarios ─► forecast (many truths each) ─► operating characteristics, words, curves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from safedial.core.dose import Dose, DoseCurve, as_dose
from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.planning.forecast import Forecast, forecast
from safedial.planning.scenarios import SCENARIOS, Scenario, promise_kept, scenarios_for
from safedial.policies import Policy, as_policy


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to expect: a forecast for each scenario, the first one being the spec's own."""

    policy: Policy
    spec: SafetySpec
    dose: Dose
    dim: int
    rounds: int
    seeds: int
    forecasts: tuple[Forecast, ...]

    @property
    def table(self) -> list[dict[str, Any]]:
        """The operating characteristics: a row for each scenario."""
        return [each.quantities for each in self.forecasts]

    @property
    def curves(self) -> list[dict[str, Any]]:
        return [row for each in self.forecasts for row in each.curves]

    def words(self) -> list[str]:
        """What to expect if the spec is true, in plain words."""
        first = self.table[0]
        half, share = first["half_reward_round"], first["reward_share"]
        earned = f"Over the whole study it is {share:.0%} of that." if share is not None else "Nobody can earn here."
        begun = (
            f"From about round {half} on, a round earns at least half of what one would earn who knew everything."
            if half is not None
            else "Within these rounds, no stretch earns half of what one would earn who knew everything."
        )
        return [
            f"Of {self.rounds} rounds expect {first['violations']:.2g} with a cost above {self.spec.threshold:g}; at "
            f"most one study in twenty has more than {first['violations_high']:.0f}; {self._allowed()}.",
            f"{begun} {earned}",
            f"The dose begins at {first['first_dose']:.2g} of the dial and is {first['last_dose']:.2g} on average in "
            "the last tenth.",
            *self._doubts(),
        ]

    def _allowed(self) -> str:
        first = self.table[0]
        if not first["promise_holds"]:
            return "nothing is promised about them"
        if self.spec.promise == "joint":
            return f"the promise allows any at all in {first['promised_risk']:.3g} of the studies"
        return f"the promise allows {first['promised_risk'] * self.rounds:.3g} on average"

    def _doubts(self) -> list[str]:
        rate = "any_violation" if self.spec.promise == "joint" else "violation_rate"
        broken = [row for row in self.table if not row["promise_holds"] and row[rate] > row["promised_risk"]]
        if not broken:
            return []
        names = ", ".join(f"{row['scenario']} ({row[rate]:.1%})" for row in broken)
        risk = f"{broken[0]['promised_risk']:.1%}"
        if self.policy.promise in ("certified", "conformal"):
            return [f"Where the promise rests on what is not so, it can break: {names}; promised is {risk}."]
        return [f"Nothing is promised, and the spec's {risk} is exceeded: {names}."]


def plan(
    policy: str | Policy,
    spec: SafetySpec,
    *,
    dim: int,
    rounds: int,
    seeds: int = 100,
    dose: DoseCurve | Dose | None = None,
    scenarios: Sequence[Scenario] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Plan:
    """Simulate every scenario.

    Args:
        seeds: studies in each scenario, with different true coefficients.
        dose: the dose curve, taken to be exact.
        scenarios: by default all of `SCENARIOS` that the policy can be played in.
        progress: called with the number of rounds just finished; a scenario has `rounds`.

    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> found = plan("hp_probe", spec, dim=2, rounds=100, seeds=20, scenarios=SCENARIOS[:1])
    >>> found.table[0]["violation_rate"] <= 0.05
    True
    """
    rule = as_policy(policy)
    given = scenarios_for(rule, spec) if scenarios is None else tuple(scenarios)
    require(len(given), "scenarios", given, "must hold at least one")
    curve = as_dose(dose)
    made = tuple(
        forecast(each, rule, spec, dim=dim, dose=curve, rounds=rounds, seeds=seeds, progress=progress) for each in given
    )
    return Plan(policy=rule, spec=spec, dose=curve, dim=dim, rounds=rounds, seeds=seeds, forecasts=made)


__all__ = ["SCENARIOS", "Plan", "Scenario", "plan", "promise_kept", "scenarios_for"]
