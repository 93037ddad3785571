"""Several costs under one guarantee: their names, and what each is allowed of the risk.

**Brackets** (guarantee="bracket"). A round exceeds if any cost does. The count rule counts rounds, so the risk is one.

**Certified** (hp_probe, hp_ucb, …). Cost k has its own estimate, threshold τ_k, noise and dose curve g_k, and a share
s_k of both risks, Σ s_k = 1. Let a_k be the largest setting that its own certificate allows, with risks s_kδ and s_kδ′.
We play a ≤ min a_k.

*Claim.* With probability ≥ 1 − δ′, for all t: P(C_k > τ_k for any k | history, X_t, a_t) ≤ δ.

*Proof.* Cost k's confidence set holds for all t with probability ≥ 1 − s_kδ′, so all of them do with probability
≥ 1 − Σ s_kδ′ = 1 − δ′ (union bound). On that event z_k(cost_upper + margin) ≤ τ_k at z_k = g_k(a_k). Safe
intensities are an interval from 0 (`bounds.safe_set`) and g_k does not fall, so the lower setting a is safe for cost k:
P(C_k > τ_k | history, X_t, a_t) ≤ s_kδ. The sum over k is δ. ∎

**Student** (hp_student). The same with the Student bounds, which need no noise (`policies.combine`).

Neither step asks how the costs depend on each other. "History" has all costs and the reward: cost k's noise must be
sub-Gaussian given the other costs' past too. The same holds for the joint guarantee, with s_kδ_t in round t.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from safedial.bounds.tolerated import Cost
from safedial.errors import InvalidInput, require
from safedial.model.brackets import WRITTEN
from safedial.model.guarantee import Guarantee

if TYPE_CHECKING:
    from safedial.model.spec import SafetySpec

ONE = "cost"
"""The name of the cost where a spec states one."""

NAME = re.compile(r"[\w-]+")
"""The name of a cost."""


def read_costs(costs: Any, guarantee: Guarantee) -> dict[str, Cost]:
    """Costs by name, each a `Cost` or its plain values, with what the guarantee needs of each."""
    way_out = "for example {'trough': Cost(...), 'auc': Cost(...)}"
    require(isinstance(costs, Mapping) and costs, "costs", costs, "must be a mapping from names to costs", way_out)
    for name in costs:
        proper = isinstance(name, str) and NAME.fullmatch(name)
        require(proper, "costs", name, "must have names of letters, digits, _ and -: they name columns too")
    read = {name: _read(name, cost) for name, cost in costs.items()}
    needed, ways_out = guarantee.cost_states, {"growth": WRITTEN, "noise": "an upper bound on its noise"}
    for name, cost in read.items():
        if needed:
            stated = getattr(cost, needed) is not None
            require(stated, f"costs[{name!r}]: {needed}", None, "must be stated", ways_out[needed])
        else:
            rule = "is a growth bracket, which this guarantee does not use"
            require(cost.growth is None, f"costs[{name!r}]", cost.to_dict(), rule, "use guarantee='bracket'")
    shares = [cost.share for cost in read.values() if cost.share is not None]
    whole = not shares or (len(shares) == len(read) and abs(sum(shares) - 1.0) <= 1e-9)
    require(whole, "share", shares, "must be stated for each cost, with the sum 1, or for none", "for equal ones")
    return read


# --- One cost or several, as people write and read them


def cost_columns(spec: SafetySpec, head: str = "cost") -> dict[str, str]:
    """The columns of a table for each of a spec's costs, with the cost's name: `cost`, or `cost_NAME` for several."""
    return {f"{head}_{name}": name for name in spec.costs} if spec.costs else {head: ONE}


def thresholds(spec: SafetySpec) -> dict[str, Any]:
    """The threshold of each cost, by name."""
    return {name: cost.threshold for name, cost in spec.costs.items()} if spec.costs else {ONE: spec.threshold}


def limits(spec: SafetySpec, **single: Any) -> dict[str, Cost]:
    """The limit on each cost, by name; `single` is what the policy, and not the spec, states of a single one."""
    return dict(spec.costs or {ONE: Cost(threshold=spec.threshold, on=spec.threshold_on, **single)})


def by_name(told: Any) -> Mapping[str, Any]:
    """What was told of the costs, by name; a single one is called "cost"."""
    return told if isinstance(told, Mapping) else {ONE: told}


def as_stated(spec: SafetySpec, told: Mapping[str, Any]) -> Any:
    """The inverse: a mapping where the spec has several costs, else the one value."""
    return dict(told) if spec.costs else told[ONE]


def exceeded(spec: SafetySpec, told: Any, direction: str = "above") -> Any:
    """Whether a measured cost, in plain numbers or arrays, lies on the wrong side of its threshold, in this direction;
    or any of several, each in its own. A cost that is not known, None or NaN, does not.
    """
    if spec.costs is None:
        return told < spec.threshold if direction == "below" else told > spec.threshold
    found: Any = False
    for name, each in spec.costs.items():
        found = found | each.exceeded(told[name]) if told[name] is not None else found
    return found


def require_one_cost(spec: SafetySpec) -> None:
    """Refuse several costs where a tool takes one."""
    several = list(spec.costs or ())
    rule = "are for an Agent, a study, or a simulation of a policy with a proof for them in a world that has them"
    require(not several, "costs", several, rule, "state one threshold, and use one cost at a time")


def split_spec(spec: SafetySpec) -> dict[str, SafetySpec]:
    """The spec of each cost of a certified guarantee, with its share of the risks; the shares sum to 1.

    >>> from safedial.model.spec import SafetySpec
    >>> costs = {"heat": Cost(threshold=2, noise=0.3), "load": Cost(threshold=5, noise=1)}
    >>> spec = SafetySpec(costs=costs, violation_risk=0.02, estimation_risk=0.01, reward_noise=1, coefficient_bound=1,
    ...                   context_bound=1)
    >>> [(part.threshold, part.cost_noise, part.violation_risk) for part in split_spec(spec).values()]
    [(2.0, 0.3, 0.01), (5.0, 1.0, 0.01)]
    """
    costs = spec.costs or {}
    total = sum(cost.share or 1.0 for cost in costs.values())
    return {name: _part(spec, cost, (cost.share or 1.0) / total) for name, cost in costs.items()}


def _part(spec: SafetySpec, cost: Cost, share: float) -> SafetySpec:
    risks = {name: getattr(spec, name) for name in ("violation_risk", "estimation_risk", "margin_risk")}
    parts = {name: share * risk for name, risk in risks.items() if risk is not None}
    return replace(
        spec, costs=None, threshold=cost.threshold, threshold_on=cost.on, cost_noise=cost.noise, **parts
    )  # fmt: skip


def _read(name: str, given: Any) -> Cost:
    if isinstance(given, Cost):
        return given
    require(isinstance(given, Mapping), f"costs[{name!r}]", given, "must be a Cost")
    try:
        return Cost.from_dict(given)
    except InvalidInput as error:
        raise InvalidInput(f"costs[{name!r}]: {error}", error.code) from error
