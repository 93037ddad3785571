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
from safedial.diagnostics import LEVEL, check_log
from safedial.errors import require
from safedial.rounds_io import Log

RESAMPLES = 20

CERTIFIED: dict[str, str] = {"norms": "constants", "noise": "constants", "tails": "constants", "linearity": "linear"}
CERTIFIED |= {"drift": "linear", "dose_curve": "exact_curve"}
EXCHANGEABLE: dict[str, str] = dict.fromkeys(("exchangeability", "contexts", "carry_over"), "exchangeable")
GAUSSIAN: dict[str, str] = dict.fromkeys(("residuals", "normality", "equal_variance", "contexts"), "gaussian")
"""Which assumption each check of a log concerns, by the promise that is checked."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Constants, dose curve and dimension from a pilot, and, for each assumption, what contradicts it."""

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
    common: dict[str, Any] = {"threshold": threshold, "total_risk": risk}
    families_of = (
        (SafetySpec(**common, **constants), CERTIFIED),
        (SafetySpec(**common, promise="conformal"), EXCHANGEABLE),
        (SafetySpec(**common, promise="student"), GAUSSIAN),
    )
    against: dict[str, str] = {}
    for spec, concerns in families_of:
        for each in check_log(pilot, spec, dose=curve, level=LEVEL / len(families_of))[1]:
            if each.flagged and each.name in concerns:
                against[concerns[each.name]] = f"{each.title}. {each.found}"
    if found.problem and stated is None:
        against["exact_curve"] = found.problem
    return Evidence(constants=constants, dose=curve, dim=found.dim, against=against)
