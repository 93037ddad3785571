"""What a save file holds: everything an agent knows, as plain values and arrays."""

from __future__ import annotations

from typing import Any

from safedial.core.scale import NoiseScale
from safedial.decision.learners.kinds import saved_policy
from safedial.decision.own_functions import own_values, with_own_functions
from safedial.decision.rounds import Round
from safedial.decision.rules import Rules
from safedial.decision.watch import COUNTS, FLAGS
from safedial.errors import InvalidInput
from safedial.io import read_archive
from safedial.policies import Policy
from safedial.version import __version__

FORM = "safedial-agent"
"""What the first line of an agent's save file begins with."""


def dump(agent: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(header, arrays) of an agent; `saved_rules` and `restored` read them, bit for bit."""
    header = {
        "safedial_version": __version__,
        **agent._rules.to_dict(),
        "own": own_values(agent._rules),
        "decisions": agent._decisions,
        "expected": agent._expected,
        "frozen": agent._frozen,
        "stopped": agent._stop_reason,
        "watch": {name: getattr(agent._watch, name) for name in (*FLAGS, *COUNTS)},
        "open": [round_[:5] for round_ in agent._open.values()],
        "seed": agent._seed,
        "coin": agent._rng.bit_generator.state,
    }
    return header, {**agent._learner.state(), "monitor": agent._watch.packed()}


def saved_rules(header: dict[str, Any], *, policy: Policy | None, dose: Any, noise_scale: NoiseScale | None) -> Rules:
    """The rules of a header, with the user's own functions if it had some."""
    given = with_own_functions(header, dose=dose, noise_scale=noise_scale)
    return Rules.from_dict({**given, "policy": saved_policy(header["policy"], policy)})


def restored(kind: Any, rules: Rules, header: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """An agent of class `kind` with its rules and everything that it learned, counted and watched."""
    agent = kind.__new__(kind)
    agent._start(rules, header["seed"])
    agent._learner.restore(arrays)
    agent._decisions = header["decisions"]
    agent._open = {saved[0]: Round(*saved) for saved in header["open"]}
    agent._expected, agent._frozen, agent._stop_reason = header["expected"], header["frozen"], header["stopped"]
    agent._rng.bit_generator.state = header["coin"]
    agent._watch.unpack(arrays["monitor"])
    for name, value in header["watch"].items():
        setattr(agent._watch, name, value)
    return agent


def load_agent(kind: Any, path: Any, *, policy: Policy | None, dose: Any, noise_scale: NoiseScale | None) -> Any:
    """The agent of a save file, with the user's own functions."""
    header, arrays = read_archive(path, form=FORM)
    try:
        rules = saved_rules(header, policy=policy, dose=dose, noise_scale=noise_scale)
        return restored(kind, rules, header, arrays)
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"path = {str(path)!r}: is not a complete safedial save file ({error})") from error
