"""safedial: turn one dial for each context, with a promise on the realized cost in every round.

The public names. Each is imported on first use, so that `import safedial` and the command line start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safedial.errors import InvalidInput, MissingExtra
from safedial.version import __version__

if TYPE_CHECKING:
    from safedial.agent import Agent
    from safedial.calibration import calibrate
    from safedial.calibration.bracket import calibrate_bracket
    from safedial.choosing import choose
    from safedial.core import brackets as growth
    from safedial.core.dose import Dose, DoseCurve, hill, identity, logistic, power, tabulated
    from safedial.core.spec import SafetySpec
    from safedial.core.tolerated import Cost
    from safedial.decision.decision import Decision
    from safedial.decision.units import Dial, Features
    from safedial.diagnostics import check_log
    from safedial.diagnostics.promise_watch import watch_log
    from safedial.evaluation import evaluate
    from safedial.evaluation.evaluated import Evaluation
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
        hp_student,
        hp_ucb,
        make_policy,
        nonlinear_hp_probe,
        nonlinear_hp_ucb,
        on_expectation,
        thompson,
    )
    from safedial.replay_engines.dispatch import replay
    from safedial.replay_engines.record import Replay
    from safedial.rounds_io import read_log
    from safedial.simulation.comparison import Comparison, compare
    from safedial.simulation.run import Simulation, simulate
    from safedial.specfile import SpecFile, load_spec, save_spec
    from safedial.study import Study, create_study, open_study
    from safedial.testing import check_policy
    from safedial.worlds.data_world import DataWorld
    from safedial.worlds.dose_response import DoseResponseWorld
    from safedial.worlds.linear import LinearWorld
    from safedial.worlds.nonlinear import NonlinearWorld

_PUBLIC = {
    "agent": "Agent",
    "calibration": "calibrate",
    "calibration.bracket": "calibrate_bracket",
    "core.dose": "Dose DoseCurve hill identity logistic power tabulated",
    "core.spec": "SafetySpec",
    "core.tolerated": "Cost",
    "decision.decision": "Decision",
    "decision.units": "Dial Features",
    "diagnostics": "check_log",
    "diagnostics.promise_watch": "watch_log",
    "choosing": "choose",
    "evaluation": "evaluate Evaluation",
    "planning": "plan",
    "policies": "clairvoyant epsilon_greedy fixed hp_bayes hp_conformal hp_probe hp_student hp_ucb "
    "make_policy nonlinear_hp_probe nonlinear_hp_ucb on_expectation POLICIES Policy thompson",
    "replay_engines.dispatch": "replay",
    "replay_engines.record": "Replay",
    "rounds_io": "read_log",
    "simulation.comparison": "compare Comparison",
    "simulation.run": "simulate Simulation",
    "specfile": "load_spec save_spec SpecFile",
    "study": "create_study open_study Study",
    "testing": "check_policy",
    "worlds.data_world": "DataWorld",
    "worlds.dose_response": "DoseResponseWorld",
    "worlds.linear": "LinearWorld",
    "worlds.nonlinear": "NonlinearWorld",
}
"""Module → the names that it provides."""

_LAZY = {name: f"safedial.{module}" for module, names in _PUBLIC.items() for name in names.split()}
_LAZY["growth"] = "safedial.core.brackets"  # the module itself: `growth.relative(0.7, 1.4, floor=2)`

__all__ = [
    "POLICIES",
    "Agent",
    "Comparison",
    "Cost",
    "DataWorld",
    "Decision",
    "Dial",
    "Dose",
    "DoseCurve",
    "DoseResponseWorld",
    "Evaluation",
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
    "calibrate_bracket",
    "check_log",
    "check_policy",
    "choose",
    "clairvoyant",
    "compare",
    "create_study",
    "epsilon_greedy",
    "evaluate",
    "fixed",
    "growth",
    "hill",
    "hp_bayes",
    "hp_conformal",
    "hp_probe",
    "hp_student",
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
    value = module if name == "growth" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
