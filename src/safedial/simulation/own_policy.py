"""A policy by its name, your own included.

For what a person runs: simulations, comparisons, sweeps and plans. Agents, studies and the service take your own policy
as an object and import nothing by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safedial.decision.rules import named_policy
from safedial.own_names import made_by
from safedial.policies import Policy, as_policy


def find_policy(given: str | Mapping[str, Any] | Policy) -> Policy:
    """A policy, given itself, by its name, or by a mapping with its name and options; your own is "module:factory".

    >>> find_policy("hp_ucb").label, find_policy({"name": "hp_ucb", "radius": "paper"}).options["radius"]
    ('HP-UCB', 'paper')
    """
    if not is_own_name(given):
        return named_policy(given) if isinstance(given, Mapping) else as_policy(given)
    options = dict(given) if isinstance(given, Mapping) else {"name": given}
    return made_by(str(options.pop("name")), options, "policy", Policy)


def is_own_name(given: Any) -> bool:
    """Whether it names a policy of the user's own."""
    name = given.get("name") if isinstance(given, Mapping) else given
    return isinstance(name, str) and ":" in name
