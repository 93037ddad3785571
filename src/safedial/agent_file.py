"""All that an agent knows, as plain values and arrays, and back: what a save file holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from safedial.core.monitor import Monitor
from safedial.core.scale import NoiseScale
from safedial.decision.certificates.certified import plain_options
from safedial.decision.conformal_options import OFF
from safedial.decision.own_functions import own_values, saved_dose, saved_spec
from safedial.decision.rounds import Advice
from safedial.decision.units import Dial, Features
from safedial.errors import require
from safedial.policies import Policy, make_policy
from safedial.version import __version__

FORM, FORM_VERSION = "safedial-agent", 2
"""What the first line of an agent's save file says."""


def dump(agent: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(header, arrays) of an agent; `arguments` and `recall` take them back, bit for bit."""
    rules, watch = agent._rules, agent._monitor
    header = {
        "safedial_version": __version__,
        "dim": rules.dim,
        "spec": rules.spec.to_dict(),
        "policy": {"name": rules.policy.name, "options": plain_options(rules.policy.options)},
        "dose": rules.dose.to_dict(),
        **({"own": own} if (own := own_values(rules)) else {}),
        "dial": rules.dial.to_dict(),
        "features": rules.features.to_dict() if rules.features else None,
        "start_action": rules.start_action,
        "fallback_action": rules.fallback_action,
        "rules": rules.version,
        "baseline_range": [None if math.isinf(end) else end for end in rules.baseline_range],
        "counts": [agent._decisions, agent._alarmed_at],
        "expected": agent._expected,
        "frozen": agent._frozen,
        "open": [[number, *advice] for number, advice in agent._open.items()],
        "seed": agent._seed,
        "coin": agent._rng.bit_generator.state,
    }
    seen = np.append(watch.log_evidence, [watch.rounds, watch.violations])
    return header, {**agent._learner.state(), "monitor": seen}


def arguments(
    header: dict[str, Any], *, policy: Policy | None, dose: Any, noise_scale: NoiseScale | None
) -> dict[str, Any]:
    """The arguments of `make_rules` that give a header's rules, with the user's own functions where it had some."""
    saved = header["policy"]
    if policy is not None:
        require(policy.name == saved["name"], "policy", policy.name, f"must be the saved one, {saved['name']!r}")
        given = plain_options(policy.options)
        other = sorted(name for name, value in saved["options"].items() if not _same(name, given, value))
        require(not other, "policy", policy.name, f"has other options than the saved one: {', '.join(other)}")
    own = sorted(name for name, value in saved["options"].items() if isinstance(value, dict))
    require(
        policy is not None or not own,
        "policy",
        saved["name"],
        f"was saved with your own {', '.join(own)}, which the file does not hold",
        "give the policy again: Agent.load(path, policy=...)",
    )
    options = saved["options"] if policy is None else policy.options
    if saved["name"] == "hp_conformal":
        options = {**options, **{name: saved["options"].get(name, value) for name, value in OFF.items()}}
        policy = None
    return {
        "dim": header["dim"],
        "spec": saved_spec(header, noise_scale),
        "policy": policy or make_policy(saved["name"], **options),
        "start_action": header["start_action"],
        "dose": saved_dose(header, dose),
        "dial": Dial(**header["dial"]),
        "features": Features(**header["features"]) if header["features"] else None,
        "fallback_action": header["fallback_action"],
        "baseline_range": header.get("baseline_range"),
        "version": header.get("rules", 1),
    }


def _same(name: str, given: dict[str, Any], saved: Any) -> bool:
    """Whether an option is the saved one; a start dose, a feature's name and the guards were resolved before saving."""
    stated = given.get(name)
    resolved = (name == "start_dose" and stated is None) or (name == "group" and isinstance(stated, str))
    return resolved or stated == saved or (name in OFF and name not in given)


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
