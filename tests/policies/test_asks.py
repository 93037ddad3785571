"""Outside policies/ hardly anything asks a policy, a guarantee or a spec what kind it is: what differs is data that is
used as it is, or a method of whatever knows. The places that still ask are listed, each with its reason.
"""

import ast
import re
from pathlib import Path

import pytest

import safedial

SOURCE = Path(safedial.__file__).parent

KINDS = {
    *("from_constants", "exchangeable", "bracketed", "gaussian", "each_round", "claimed", "proved", "standing"),
    *("in_order", "knows_truth", "randomised", "learns_noise", "sensors"),
    *("policy.zero_one", "policy.zero_tells", "policy.exact_dose", "spec.costs"),
}
"""The attributes that say of which kind a policy, a guarantee or a spec is; some of these have other owners too."""

DEFINED = "it is where this is defined or stated, once for all"
ONE_COST = "a log, a page or a world has another form for one cost than for several, which have names"
EDGE = "what a user gives is checked here, and refused with the reason"
CHANCE = "a policy that tosses no coin needs none: none is drawn, sent or asked for"

REASONS = {
    "bounds/estimate.py": (1, "only the sensors that err lower a weight: a loop over these"),
    "bounds/margin.py": (2, "how much of the risk a round may spend, and what a learned variance assumes, " + DEFINED),
    "model/costs.py": (7, "the costs of a spec by name, as columns and as specs: " + DEFINED),
    "model/guarantee.py": (3, DEFINED),
    "model/spec.py": (2, EDGE),
    "paper/battery_experiment.py": (2, "the clairvoyant cannot be replayed, and a table shows which risk is proved"),
    "rounds/certificate.py": (3, "a certificate states whether it holds, and which risks the constants cost"),
    "rounds/decision.py": (
        3,
        "`Decision.certified`, its card, and which rounds may contradict a guarantee: " + DEFINED,
    ),
    "rounds/learning.py": (2, "whether a lost round ends learning, and whether nothing given is a lesson"),
    "rounds/log_file.py": (1, "an exported row says in words what was guaranteed"),
    "rounds/outcome.py": (4, EDGE),
    "rounds/rounds.py": (4, "what becomes of rounds that are given nothing: they may tell something"),
    "rounds/rules.py": (1, "which radius a new agent has by rule: " + DEFINED),
    "rounds/validation.py": (1, EDGE),
    "service/charts.py": (2, ONE_COST),
    "service/timeline.py": (3, ONE_COST),
    "simulation/attainable.py": (1, "there is no exact clairvoyant of a risk over all rounds"),
    "simulation/check_policy.py": (2, "which claims a policy's guarantee makes; not the clairvoyant, before any data"),
    "simulation/dose_response.py": (1, ONE_COST),
    "simulation/jax_engine.py": (2, EDGE + "; " + CHANCE),
    "simulation/linear_world.py": (1, ONE_COST),
    "simulation/replay_arguments.py": (1, CHANCE),
    "simulation/results.py": (1, "whether what was stated holds, with one threshold a row"),
    "simulation/rule.py": (1, "only the clairvoyant may see the truth"),
    "simulation/run.py": (2, EDGE),
    "simulation/world.py": (1, "without sensors an outcome is two sums: the usual case of a simulation, and fast"),
    "study/answer.py": (2, "a certificate states what becomes of void rounds"),
    "study/event.py": (1, "a round that was given nothing may wait for its outcome"),
    "study/study_spec.py": (3, EDGE),
    "tools/scenarios.py": (1, "a forecast names the risk that is guaranteed, where one is proved"),
    "tools/outcomes.py": (1, "which outcomes tell what another setting would have cost"),
    "tools/walk.py": (1, "a round that was given nothing may be a lesson"),
}
"""The files that ask, each with how many lines do and the reason."""


def asks(text: str) -> list[int]:
    """The lines that ask for a kind.

    >>> asks("if policy.randomised: pass\\nlimits(spec)\\nspec.costs or {}\\nisinstance(given, Policy)")
    [1, 3, 4]
    """
    lines = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            owner = ast.unparse(node.value).rpartition(".")[2].strip("_")
            if KINDS & {node.attr, f"{owner}.{node.attr}"}:
                lines.add(node.lineno)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "getattr", "hasattr"):
            asked = set(re.findall(r"\w+", ast.unparse(node.args[1])))
            lines |= {node.lineno} if asked & {"Policy", *KINDS} else set()
    return sorted(lines)


def found() -> dict[str, int]:
    """How many lines ask, by file."""
    files = (path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
    counts = {path.as_posix(): len(asks((SOURCE / path).read_text())) for path in files if path.parts[0] != "policies"}
    return {name: count for name, count in sorted(counts.items()) if count}


def test_what_still_asks_for_a_kind_is_known_with_its_reason():
    now, known = found(), {name: count for name, (count, _) in REASONS.items()}
    assert now == known, "let the policy, guarantee or spec state what differs, or state the reason here"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("if policy.randomised: pass\nlimits(spec)\nself.spec.costs or {}", [1, 3]),
        ("isinstance(given, Policy)\nisinstance(given, str)\ngetattr(policy, 'in_order', False)", [1, 3]),
        ("GUARANTEES[name].proved\nuser.zero_one\nself._policy.zero_one", [1, 3]),
    ],
)
def test_asking_is_found(text, lines):
    assert asks(text) == lines
