"""Checks of the guarantee's assumptions on a log, and its monitor, each with evidence that is valid at any time.

    log, spec ─► what the guarantee rests on ─► TESTS ─► the policy's walk of the log (walk.py) ─► findings, or a watch

Every check returns an e-value: about 1 while its assumption holds, and ever at or above 1/a with probability at most a,
however often you look. `check_log` raises a flag at a level that covers all checks of a log together.

Online, call `check_log` on the rounds so far with the study's planned `horizon`, as often as you like. To add one round
at a time, use the moments in evidence.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safedial.errors import require
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose, DoseCurve, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.rounds.log_file import Log
from safedial.tools import bracket_checks, gaussian_checks, linear_checks, rank_checks
from safedial.tools.findings import Finding
from safedial.tools.linear_checks import CHECKS, Residuals, Target, needed_evidence
from safedial.tools.log_watch import Watch
from safedial.tools.walk import LogCase, LogTest, Walk

LEVEL, ALARM_LEVEL = 0.05, 0.01

TESTS: dict[str, LogTest] = {
    "stated noise": linear_checks.TEST,
    "exchangeable rounds": rank_checks.TEST,
    "gaussian noise": gaussian_checks.TEST,
    "kept bracket": bracket_checks.TEST,
}
"""By what a guarantee rests on (`Guarantee.needs`). Each guarantee that is proved rests on one of these."""


def test_of(spec: SafetySpec) -> LogTest:
    """How a log tests the spec's guarantee."""
    needs = GUARANTEES[spec.guarantee].rests_on
    return next(test for need, test in TESTS.items() if need in needs)


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
) -> tuple[Walk | Residuals, list[Finding]]:
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
    sound = isinstance(level, (int, float)) and 0.0 < level < 1.0
    way_out = "0.05 is one false flag in twenty logs"
    require(sound, "level", level, "must lie strictly between 0 and 1", way_out)
    test = test_of(spec)
    rule = f"must be {' or '.join(test.targets)} for a {spec.guarantee} spec"
    require(target in test.targets, "target", target, rule, "its guarantee is on costs")
    given = {"policy": policy, "dial": dial, "features": features, "target": target, "horizon": horizon}
    return test.check(LogCase(log=log, spec=spec, level=level, dose=dose and as_dose(dose), **given))


def watch_log(
    log: Log,
    spec: SafetySpec,
    *,
    level: float = ALARM_LEVEL,
    dose: DoseCurve | Dose | None = None,
    policy: Policy | Mapping[str, Any] | None = None,
    dial: Dial | None = None,
    features: Features | None = None,
) -> Watch:
    """Run the monitor over a log; for a conformal or a bracket guarantee, run the test of exchangeability, which needs
    the dose curve and the policy (or a spec file's table of one), for a bracket also the dial and the features. For a
    student guarantee, bet on the p-values of costs.

    >>> from safedial.simulation.results import simulated_log
    >>> from safedial.simulation.linear_world import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> watch_log(simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=300), spec).alarm_round is None
    True
    >>> watch_log(simulated_log("on_expectation", LinearWorld(dim=3), spec, rounds=300), spec).alarm_round is None
    False
    """
    require(0.0 < level < 1.0, "level", level, "must lie strictly between 0 and 1", "0.01 alarms at evidence 100")
    given = {"policy": policy, "dial": dial, "features": features}
    return test_of(spec).watch(LogCase(log=log, spec=spec, level=level, dose=dose and as_dose(dose), **given))


__all__ = ["ALARM_LEVEL", "CHECKS", "LEVEL", "TESTS", "check_log", "needed_evidence", "test_of", "watch_log"]
