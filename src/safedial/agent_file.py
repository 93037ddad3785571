"""All that an agent knows, as plain values and arrays, and back: what a save file holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from safedial.core.monitor import Monitor
from safedial.core.scale import NoiseScale
from safedial.decision.learners.kinds import saved_policy
from safedial.decision.own_functions import own_values, with_own_functions
from safedial.decision.rounds import Advice
from safedial.decision.rules import Rules
from safedial.policies import Policy
from safedial.version import __version__

FORM, FORM_VERSION = "safedial-agent", 2
"""What the first line of an agent's save file says."""


def dump(agent: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(header, arrays) of an agent; `saved_rules` and `restore` take them back, bit for bit."""
    rules, form, watch = agent._rules, agent._rules.to_dict(), agent._monitor
    header = {
        "safedial_version": __version__,
        **form,
        "policy": {"name": form["policy"].pop("name"), "options": form["policy"]},
        **({"own": own} if (own := own_values(rules)) else {}),
        "rules": rules.version,
        "counts": [agent._decisions, agent._alarmed_at],
        "expected": agent._expected,
        "frozen": agent._frozen,
        "open": [[number, *advice] for number, advice in agent._open.items()],
        "seed": agent._seed,
        "coin": agent._rng.bit_generator.state,
    }
    seen = np.append(watch.log_evidence, [watch.rounds, watch.violations])
    return header, {**agent._learner.state(), "monitor": seen}


def saved_rules(header: dict[str, Any], *, policy: Policy | None, dose: Any, noise_scale: NoiseScale | None) -> Rules:
    """The rules of a header, with the user's own functions where it had some.

    A header holds the policy's options in an object of their own. Early ones state no version, and no guards.
    """
    given = with_own_functions(header, dose=dose, noise_scale=noise_scale)
    made = saved_policy(header["policy"]["name"], header["policy"]["options"], policy)
    return Rules.from_dict({**given, "policy": made}, version=header.get("rules", 1))


def _advice(saved: list[Any]) -> Advice:
    """An open decision; earlier versions kept only its place, so the monitor cannot count it."""
    return Advice(*saved) if len(saved) > 1 else Advice(saved[0], math.inf, 0.0, False)


def restore(agent: Any, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Put what was learned, counted and watched back into a fresh agent."""
    agent._learner.restore(arrays)
    agent._decisions, agent._alarmed_at = header["counts"]
    agent._open = {number: _advice(rest) for number, *rest in header["open"]}
    agent._expected = header.get("expected", agent._decisions)
    agent._frozen = header.get("frozen", False)
    agent._rng.bit_generator.state = header["coin"]
    *log_evidence, rounds, violations = arrays["monitor"]
    agent._monitor = Monitor(np.array(log_evidence), rounds, violations)
