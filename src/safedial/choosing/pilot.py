"""What a pilot says: numbers for the forecast, and what it contradicts.

A pilot can contradict an assumption, never vouch for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from safedial.calibration import calibrate
from safedial.calibration.curve_families import families
from safedial.core.dose import Dose, as_dose
from safedial.core.spec import CONSTANTS, SafetySpec
from safedial.diagnostics import check_log
from safedial.diagnostics.finding import Finding
from safedial.errors import require
from safedial.rounds_io import Log

RESAMPLES = 20

CONCERNS = {
    "norms": "constants",
    "noise": "constants",
    "tails": "constants",
    "linearity": "linear",
    "dose_curve": "exact_curve",
    "drift": "linear",
    "exchangeability": "exchangeable",
    "contexts": "exchangeable",
    "carry_over": "exchangeable",
}
"""Which assumption a check of a log concerns."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Constants, dose curve and dimension from a pilot, and by assumption what speaks against it."""

    constants: Mapping[str, float] = field(default_factory=dict)
    dose: Dose | None = None
    dim: int | None = None
    against: Mapping[str, str] = field(default_factory=dict)


def read_pilot(pilot: Log, *, threshold: Any, risk: Any, dose: Any = None) -> Evidence:
    """Calibrate on the pilot, and check it."""
    rule = "must be one number for a pilot: its checks are of one cost"
    require(threshold is not None, "threshold", threshold, rule)
    stated = None if dose is None else as_dose(dose)
    family = "auto" if stated is None else stated.cost.name
    found = calibrate(pilot, curve=family if family in families(pilot.action) else "auto", resamples=RESAMPLES)
    constants: dict[str, Any] = {name: found.proposals[name].value for name in CONSTANTS}
    curve = found.dose if stated is None else stated
    certified = SafetySpec(threshold=threshold, total_risk=risk, **constants)
    plain = SafetySpec(threshold=threshold, total_risk=risk, promise="conformal")
    findings = [each for spec in (certified, plain) for each in check_log(pilot, spec, dose=curve)[1]]
    against = {CONCERNS[each.name]: _words(each) for each in findings if each.flagged and each.name in CONCERNS}
    if found.problem and stated is None:
        against["exact_curve"] = found.problem
    return Evidence(constants=constants, dose=curve, dim=found.dim, against=against)


def _words(found: Finding) -> str:
    return f"{found.title}. {found.found}"
