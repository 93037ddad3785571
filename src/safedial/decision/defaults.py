"""The options of a new agent or study that its user leaves open, by rule.

A certified `hp_probe` that is named without these options has

| left open | by rule | why |
|---|---|---|
| radius and ridge, d ≤ 50 | `self-normalised` and its ridge | the largest doses under the same promise |
| the same, d > 50, or a margin that learns | `mixture`, λ = d·κ²/S² | decisions stay fast; a small ellipsoid |
| radius, where a ridge is stated | `mixture` | the ridge, or the constants with it, were chosen for that |

docs/choosing.md has what each is worth. Simulations keep the defaults of the policies themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from safedial.core.promise import PROMISES
from safedial.core.self_normalised import largest_noise, with_ridge
from safedial.core.spec import SafetySpec
from safedial.decision.rules import named_policy
from safedial.policies import Policy, as_policy

MOST_SOLVED = 50
"""The largest dimension for which the radius is `self-normalised` by rule."""


def by_rule(policy: Any, spec: SafetySpec, dim: int) -> tuple[Policy, SafetySpec]:
    """The policy and the spec of a new agent or study; what its user states is kept.

    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> policy, spec = by_rule(None, spec, 4)
    >>> policy.options["radius"], round(spec.ridge, 6)
    ('self-normalised', 3.6)
    """
    stated = PROMISES[spec.promise]
    if policy is None:
        policy = {"name": stated.default_policy, **stated.default_options}
    if not isinstance(policy, (str, Mapping)):
        made = as_policy(policy)
        return made, with_ridge(spec, made.options.get("radius"), dim)
    given = {"name": policy} if isinstance(policy, str) else policy
    options = OPEN[given["name"]](spec, dim) if stated.from_constants and given.get("name") in OPEN else {}
    made = named_policy({**options, **given})
    if options.get("radius") == "mixture" and "radius" not in given and not spec.states_ridge:
        spec = replace(spec, ridge=float(f"{dim * (largest_noise(spec) / spec.coefficient_bound) ** 2:.3g}"))
    return made, with_ridge(spec, made.options.get("radius"), dim)


def open_options(spec: SafetySpec, dim: int) -> dict[str, Any]:
    """The options of a certified `hp_probe` whose user states none."""
    tight = dim <= MOST_SOLVED and not spec.states_ridge and not spec.learns_noise
    return {"radius": "self-normalised" if tight else "mixture"}


OPEN = {"hp_probe": open_options}
"""The policies with options that may be left open to the rule, and what that makes of them."""
