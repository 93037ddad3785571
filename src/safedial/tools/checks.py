"""Checks of the guarantee's assumptions, each with evidence that is valid at any time.

    log, spec, dose ─► read_rounds ─► CHECKS ─► Findings

Every check returns an e-value: about 1 while its assumption holds, and ever at or above 1/a with probability at most a,
however often you look. `check_log` raises a flag at `len(CHECKS)`/(0.9·level). By the union bound, the chance of any
false flag in the whole life of a study is at most `level`, however the checks depend on each other; a tenth of the
level covers the confidence set that `tails` and `influence` use. Checks of the reward are a separate family.

A conformal spec states no constants, and its guarantee assumes exchangeable rounds; three of its checks are bets
(3/level each). A bracket guarantee needs less still. HP-Student needs Gaussian noise of one size; five bets check it.
All three are in marginal_checks.py.

Online, call `check_log` on the rounds so far with the study's planned `horizon`, as often as you like. To add one round
at a time, use the moments in evidence.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safedial.errors import require
from safedial.model.costs import require_one_cost
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose, DoseCurve, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.rounds.log_file import Log
from safedial.tools.findings import ESTIMATION_SHARE, Finding, Rounds, Target, read_rounds
from safedial.tools.linear_checks import CHECKS
from safedial.tools.marginal_checks import BETS, STUDENT_BETS, check_bracket, check_conformal, check_student
from safedial.tools.marginal_rounds import (
    BracketRounds,
    ConformalRounds,
    StudentRounds,
    walk_bracket_log,
    walk_log,
    walk_student_log,
)

LEVEL = 0.05


def needed_evidence(level: float) -> float:
    """The evidence at which each check raises its flag.

    >>> round(needed_evidence(0.05), 1)
    177.8
    """
    _check_level(level)
    return len(CHECKS) / ((1.0 - ESTIMATION_SHARE) * level)


def check_log(
    log: Log,
    spec: SafetySpec,
    *,
    dose: DoseCurve | Dose | None = None,
    target: Target = "cost",
    level: float = LEVEL,
    horizon: int | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
    dial: Dial | None = None,
    features: Features | None = None,
) -> tuple[Rounds | ConformalRounds | BracketRounds | StudentRounds, list[Finding]]:
    """Run all checks of a log against a spec; return the rounds they used and their findings.

    Args:
        dose: the dose curve that the spec states.
        target: "cost", which the guarantee concerns, or "reward".
        level: the chance of any false flag.
        horizon: the planned number of rounds, fixed in advance; by default the log's length.
        policy: for a conformal, bracket or student spec: the policy, or a spec file's table, which says how it learns.
        dial, features: for a bracket: the settings' units, and the features that made the contexts.

    >>> from safedial.simulation.results import simulated_log
    >>> from safedial.simulation.linear_world import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> log = simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=300)
    >>> [finding.name for finding in check_log(log, spec)[1] if finding.flagged]
    []
    >>> from dataclasses import replace
    >>> [finding.name for finding in check_log(log, replace(spec, cost_noise=0.2))[1] if finding.flagged]
    ['tails', 'noise']
    """
    guarantee = GUARANTEES[spec.guarantee]
    if guarantee.exchangeable or guarantee.gaussian:
        _check_level(level)
        rule = f"must be cost for a {spec.guarantee} spec"
        require(target == "cost", "target", target, rule, "its guarantee is on costs")
    if guarantee.bracketed:
        played = walk_bracket_log(log, spec, as_dose(dose), policy=policy, dial=dial, features=features)
        return played, check_bracket(played, level=level)
    log = log.prefix
    if guarantee.exchangeable:
        walked = walk_log(log, spec, as_dose(dose), policy)
        return walked, check_conformal(walked, needed=BETS / level)
    require_one_cost(spec)
    if guarantee.gaussian:
        student = walk_student_log(log, spec, as_dose(dose), policy)
        return student, check_student(student, needed=STUDENT_BETS / level)
    needed = needed_evidence(level)
    rounds = read_rounds(log, spec, as_dose(dose), target=target, horizon=horizon, slack_risk=ESTIMATION_SHARE * level)
    return rounds, [check(rounds, needed=needed) for check in CHECKS.values()]


def _check_level(level: Any) -> None:
    sound = isinstance(level, (int, float)) and 0.0 < level < 1.0
    require(sound, "level", level, "must lie strictly between 0 and 1", "0.05 is one false flag in twenty logs")
