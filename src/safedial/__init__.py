"""safedial: turn one dial for each context, with a promise on the realized cost in every round.

The public names. Each is imported on first use, so that `import safedial` and the command line start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safedial.errors import InvalidInput, MissingExtra
from safedial.version import __version__

if TYPE_CHECKING:
    from safedial.calibration import calibrate
    from safedial.conformance import check_policy
    from safedial.core.dose import Dose, DoseCurve, hill, identity, logistic, power, tabulated
    from safedial.core.spec import SafetySpec
    from safedial.diagnostics import check_log
    from safedial.diagnostics.promise import watch_log
    from safedial.logs import read_log
    from safedial.online.agent import Agent
    from safedial.online.decision import Decision
    from safedial.online.units import Dial, Features
    from safedial.planning import plan
    from safedial.policies import (
        POLICIES,
        Policy,
        clairvoyant,
        epsilon_greedy,
        fixed,
        hp_bayes,
        hp_conformal,
        hp_probe,
        hp_ucb,
        make_policy,
        nonlinear_hp_probe,
        nonlinear_hp_ucb,
        on_expectation,
        thompson,
    )
    from safedial.replay.record import Replay
    from safedial.replay.run import replay
    from safedial.simulation import Simulation, simulate
    from safedial.specfile import SpecFile, load_spec, save_spec
    from safedial.study import Study, create_study, open_study
    from safedial.worlds.linear import LinearWorld
    from safedial.worlds.nonlinear import NonlinearWorld

_LAZY = {
    "Agent": "safedial.online.agent",
    "calibrate": "safedial.calibration",
    "check_log": "safedial.diagnostics",
    "check_policy": "safedial.conformance",
    "clairvoyant": "safedial.policies",
    "create_study": "safedial.study",
    "Decision": "safedial.online.decision",
    "Dial": "safedial.online.units",
    "Dose": "safedial.core.dose",
    "DoseCurve": "safedial.core.dose",
    "epsilon_greedy": "safedial.policies",
    "Features": "safedial.online.units",
    "fixed": "safedial.policies",
    "hill": "safedial.core.dose",
    "hp_bayes": "safedial.policies",
    "hp_conformal": "safedial.policies",
    "hp_probe": "safedial.policies",
    "hp_ucb": "safedial.policies",
    "identity": "safedial.core.dose",
    "LinearWorld": "safedial.worlds.linear",
    "load_spec": "safedial.specfile",
    "logistic": "safedial.core.dose",
    "make_policy": "safedial.policies",
    "nonlinear_hp_probe": "safedial.policies",
    "nonlinear_hp_ucb": "safedial.policies",
    "NonlinearWorld": "safedial.worlds.nonlinear",
    "on_expectation": "safedial.policies",
    "open_study": "safedial.study",
    "plan": "safedial.planning",
    "POLICIES": "safedial.policies",
    "Policy": "safedial.policies",
    "power": "safedial.core.dose",
    "read_log": "safedial.logs",
    "Replay": "safedial.replay.record",
    "replay": "safedial.replay",
    "SafetySpec": "safedial.core.spec",
    "save_spec": "safedial.specfile",
    "simulate": "safedial.simulation",
    "Simulation": "safedial.simulation",
    "SpecFile": "safedial.specfile",
    "Study": "safedial.study",
    "tabulated": "safedial.core.dose",
    "thompson": "safedial.policies",
    "watch_log": "safedial.diagnostics.promise",
}

__all__ = [
    "POLICIES",
    "Agent",
    "Decision",
    "Dial",
    "Dose",
    "DoseCurve",
    "Features",
    "InvalidInput",
    "LinearWorld",
    "MissingExtra",
    "NonlinearWorld",
    "Policy",
    "Replay",
    "SafetySpec",
    "Simulation",
    "SpecFile",
    "Study",
    "__version__",
    "calibrate",
    "check_log",
    "check_policy",
    "clairvoyant",
    "create_study",
    "epsilon_greedy",
    "fixed",
    "hill",
    "hp_bayes",
    "hp_conformal",
    "hp_probe",
    "hp_ucb",
    "identity",
    "load_spec",
    "logistic",
    "make_policy",
    "nonlinear_hp_probe",
    "nonlinear_hp_ucb",
    "on_expectation",
    "open_study",
    "plan",
    "power",
    "read_log",
    "replay",
    "save_spec",
    "simulate",
    "tabulated",
    "thompson",
    "watch_log",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'safedial' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_LAZY[name])
    value = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
