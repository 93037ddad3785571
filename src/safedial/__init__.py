"""safedial: turn one dial for each context, with a guarantee on the realized cost in every round.

The public names. Each is imported on first use, so that `import safedial` and the command line start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safedial.errors import InvalidInput, MissingExtra
from safedial.version import __version__

if TYPE_CHECKING:
    from safedial.model import brackets as growth
    from safedial.model.costs import Cost
    from safedial.model.dial import Dial, Features
    from safedial.model.dose import Dose, DoseCurve, hill, identity, logistic, power, tabulated
    from safedial.model.spec import SafetySpec
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
    from safedial.rounds.agent import Agent
    from safedial.rounds.decision import Decision
    from safedial.rounds.log_file import read_log
    from safedial.rounds.specfile import SpecFile, load_spec, save_spec
    from safedial.simulation.check_policy import check_policy
    from safedial.simulation.comparison import Comparison, compare
    from safedial.simulation.dose_response import DoseResponseWorld
    from safedial.simulation.linear_world import DataWorld, LinearWorld
    from safedial.simulation.nonlinear_worlds import NonlinearWorld
    from safedial.simulation.replay import replay
    from safedial.simulation.replay_arguments import Replay
    from safedial.simulation.run import Simulation, simulate
    from safedial.study.study import Study
    from safedial.tools.bracket_calibration import calibrate_bracket
    from safedial.tools.calibration import calibrate
    from safedial.tools.checks import check_log, watch_log
    from safedial.tools.choosing import choose
    from safedial.tools.evaluation import Evaluation, evaluate
    from safedial.tools.planning import plan

_PUBLIC = {
    "rounds.agent": "Agent",
    "tools.calibration": "calibrate",
    "tools.bracket_calibration": "calibrate_bracket",
    "model.dose": "Dose DoseCurve hill identity logistic power tabulated",
    "model.spec": "SafetySpec",
    "model.costs": "Cost",
    "rounds.decision": "Decision",
    "model.dial": "Dial Features",
    "tools.checks": "check_log watch_log",
    "tools.choosing": "choose",
    "tools.evaluation": "evaluate Evaluation",
    "tools.planning": "plan",
    "policies": "clairvoyant epsilon_greedy fixed hp_bayes hp_conformal hp_probe hp_student hp_ucb "
    "make_policy nonlinear_hp_probe nonlinear_hp_ucb on_expectation POLICIES Policy thompson",
    "simulation.replay": "replay",
    "simulation.replay_arguments": "Replay",
    "rounds.log_file": "read_log",
    "simulation.comparison": "compare Comparison",
    "simulation.run": "simulate Simulation",
    "rounds.specfile": "load_spec save_spec SpecFile",
    "study.study": "Study",
    "simulation.check_policy": "check_policy",
    "simulation.linear_world": "DataWorld LinearWorld",
    "simulation.dose_response": "DoseResponseWorld",
    "simulation.nonlinear_worlds": "NonlinearWorld",
}
"""Module → the names that it provides."""

_LAZY = {name: f"safedial.{module}" for module, names in _PUBLIC.items() for name in names.split()}
_LAZY["growth"] = "safedial.model.brackets"  # the module itself: `growth.relative(0.7, 1.4, floor=2)`

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
