"""The tools on fixed logs: what each is given, in words of our own, and the logs themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden import adapter
from tests.golden.study_cases import CERTIFIED, PROPOSAL, Tolerances, shields, turns
from tests.golden.study_cases import CONFORMAL as CONFORMAL_STUDY
from tests.golden.study_cases import STUDENT as STUDENT_STUDY
from tests.golden.study_script import Linear, Study, mixed, ordinary

Columns = dict[str, list[Any]]

CONSTANTS = {
    "threshold": 0.5,
    "violation_risk": 0.04,
    "estimation_risk": 0.01,
    "reward_noise": 0.15,
    "cost_noise": 0.15,
    "coefficient_bound": 1.0,
    "context_bound": 1.0,
}
CONFORMAL = {"threshold": 0.5, "violation_risk": 0.1, "guarantee": "conformal"}
STUDENT = {"threshold": 0.5, "violation_risk": 0.05, "guarantee": "student"}
BRACKET = {"threshold": 20.0, "violation_risk": 0.1, "guarantee": "bracket"}
START = {"name": "hp_conformal", "start_dose": 0.05}
RELATIVE = {"growth": "relative", "low": 0.6, "high": 1.5, "floor": 2.0}
SHIELD = {"name": "hp_shield", "base": "dose", "growth": RELATIVE, "start_scale": 0.2}


def moved_by(value: Any, share: float) -> Any:
    """A number, or each in a structure, moved by up to a share of itself; a risk stays, since a count rule is exact."""
    if isinstance(value, dict):
        return {name: each if name.endswith("risk") else moved_by(each, share) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [moved_by(each, share) for each in value]
    if not share or not isinstance(value, float) or not math.isfinite(value):
        return value
    return value * (1.0 + share * math.sin(1e5 * value + 1.0))


# --- logs


def linear_log(
    rounds: int = 400, *, seed: int = 1, noise: float = 0.15, bend: float = 1.0, drift: float = 0.0
) -> Columns:
    """Advised and applied doses, a tenth of them lowered and a few raised; costs of z^bend, with a drift at the end."""
    rng = np.random.default_rng(seed)
    found: Columns = {name: [] for name in ("round", "x1", "x2", "x3", "advised", "action", "reward", "cost")}
    for number in range(1, rounds + 1):
        context = [*rng.uniform(-0.6, 0.6, 2), 0.4]
        gain = float(np.dot(context, [0.6, -0.5, 0.4])) + 0.15 * float(rng.standard_normal())
        harm = float(np.dot(context, [0.3, 0.2, 0.5])) + noise * float(rng.standard_normal())
        harm += drift * (number > 0.6 * rounds)
        advised = float(rng.uniform(0.15, 0.85))
        share = {0: 0.7, 1: 1.1}.get(int(rng.integers(0, 15)), 1.0)
        action = min(share * advised, 1.0)
        row = [number, *map(float, context), advised, action, action * gain, action**bend * harm]
        for column, value in zip(found.values(), row, strict=True):
            column.append(value)
    return found


def dose_log(
    rounds: int = 300,
    *,
    seed: int = 2,
    elasticity: float = 1.0,
    units: int = 0,
    worse: float = 1.0,
    falls: float = 0.0,
) -> Columns:
    """Protocol's settings, given settings around them, costs in proportion to a power of them; a few are not known.
    After three fifths of the rounds costs are `worse`; if it `falls`, the cost is so much less for each unit.
    """
    rng = np.random.default_rng(seed)
    names = ("round", "dose", "weight", "action", "reward", "cost", *(["patient"] if units else []))
    found: Columns = {name: [] for name in names}
    for number in range(1, rounds + 1):
        dose, weight = float(rng.uniform(2.0, 6.0)), float(rng.uniform(45.0, 95.0))
        action = dose * float(rng.choice([0.2, 0.4, 0.6, 0.8, 1.0, 1.1])) * float(rng.uniform(0.95, 1.05))
        cost = 14.0 * (action / dose) ** elasticity * (weight / 70.0) ** 0.5 * math.exp(0.2 * rng.standard_normal())
        cost *= worse if number > 0.6 * rounds else 1.0
        cost = 40.0 - falls * action + 2.0 * math.log(cost) if falls else cost
        known = "" if number % 37 == 0 else cost
        row = [number, dose, weight, action, -abs(action - 3.0), known, *([f"p{number % units}"] if units else [])]
        for column, value in zip(found.values(), row, strict=True):
            column.append(value)
    return found


def pilot_log(rounds: int = 240, *, seed: int = 3, guided: bool = False) -> Columns:
    """Doses on a few levels or, if `guided`, chosen by the context; costs and rewards of a curve that saturates."""
    rng = np.random.default_rng(seed)
    found: Columns = {name: [] for name in ("x1", "x2", "action", "reward", "cost")}
    for _ in range(rounds):
        context = [float(rng.uniform(-0.5, 0.5)), 1.0]
        action = float(rng.choice([0.1, 0.25, 0.45, 0.7, 1.0]))
        if guided:
            action = float(np.clip(0.5 - 0.7 * context[0] + 0.08 * rng.standard_normal(), 0.05, 1.0))
        effect = action / (action + 0.4) * 1.4
        harm = float(np.dot(context, [0.4, 0.8])) + 0.1 * float(rng.standard_normal())
        gain = float(np.dot(context, [-0.5, 0.5])) + 0.1 * float(rng.standard_normal())
        row = [*context, action, effect * gain, effect * harm]
        for column, value in zip(found.values(), row, strict=True):
            column.append(value)
    return found


# --- cases


def plan(folder: Path, moved: float, *, policy: Any, spec: dict[str, Any], **more: Any) -> Any:
    return adapter.plan(*moved_by([policy, spec], moved), **moved_by(more, moved))


def check(folder: Path, moved: float, *, log: Columns, spec: dict[str, Any], **more: Any) -> Any:
    """The checks and the monitor on a log."""
    return adapter.check(folder, moved_by(log, moved), spec, **more)


def evaluate(
    folder: Path, moved: float, *, log: Columns, policies: list[Any], spec: dict[str, Any], **more: Any
) -> Any:
    return adapter.evaluate(folder, moved_by(log, moved), policies, spec, **more)


def calibrate(folder: Path, moved: float, *, log: Columns, **more: Any) -> Any:
    return adapter.calibrate(folder, moved_by(log, moved), **more)


def calibrate_bracket(folder: Path, moved: float, *, log: Columns, **more: Any) -> Any:
    return adapter.calibrate_bracket(folder, moved_by(log, moved), **more)


def choose(folder: Path, moved: float, *, pilot: Columns | None = None, **more: Any) -> Any:
    return adapter.choose(folder, moved_by(pilot, moved) if pilot else None, **moved_by(more, moved))


def exported(folder: Path, moved: float, *, stated: dict[str, Any], turn: Any, policies: list[Any]) -> Any:
    """A study with late, corrected and vouched-for rounds. Its export is checked and watched as a log; the study, and
    its log as a file, are evaluated.
    """
    played = Study(folder, "exported", stated, moved=moved)
    made = turn()
    ordinary(played, made, 30)
    mixed(played, made, 21)
    ordinary(played, made, 40)
    found = adapter.export(played.live, folder, policies)
    played.live.close()
    return found


Tool = Callable[[Path, float], Any]

SITUATION = {
    "curve": "exact",
    "noise": "both",
    "linear": True,
    "exchangeable": True,
    "threshold": 0.5,
    "risk": 0.05,
    "rounds": 120,
    "dim": 3,
    "start": 0.05,
    "constants": {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1.0, "context_bound": 1.0},
    "seeds": 6,
}
TWO = {
    "load": {"threshold": 0.4, "noise": 0.1, "curve": {"curve": "power", "exponent": 2.0}},
    "heat": {"threshold": 0.6, "noise": 0.1},
}

TOOLS: dict[str, Tool] = {
    "plan_certified": partial(plan, policy={"name": "hp_probe"}, spec=CONSTANTS, dim=3, rounds=200, seeds=20),
    "plan_joint": partial(
        plan, policy="hp_ucb", spec={**CONSTANTS, "guarantee": "joint"}, dim=2, rounds=100, seeds=10, baseline=0.1
    ),
    "plan_conformal": partial(
        plan,
        policy=START,
        spec=CONFORMAL,
        dim=3,
        rounds=200,
        seeds=10,
        assumed={"reward_noise": 0.2, "cost_noise": 0.2, "coefficient_bound": 1.0, "context_bound": 1.0},
    ),
    "plan_student": partial(
        plan,
        policy={"name": "hp_student", "start_dose": 0.05},
        spec=STUDENT,
        dim=3,
        rounds=100,
        seeds=10,
        assumed={"reward_noise": 0.2, "cost_noise": 0.2, "coefficient_bound": 1.0, "context_bound": 1.0},
    ),
    "plan_bracket": partial(plan, policy=SHIELD, spec=BRACKET, rounds=150, seeds=20),
    "plan_bracket_learned": partial(plan, policy={**SHIELD, "learned": True}, spec=BRACKET, dim=3, rounds=80, seeds=8),
    "check_certified": partial(check, log=linear_log(), spec=CONSTANTS),
    "check_certified_flagged": partial(
        check, log=linear_log(seed=4, noise=0.45, bend=1.6, drift=0.5), spec=CONSTANTS, reward=True
    ),
    "check_conformal": partial(check, log=linear_log(), spec=CONFORMAL, policy=START),
    "check_conformal_flagged": partial(
        check, log=linear_log(seed=5, bend=2.0, drift=0.8), spec=CONFORMAL, policy={**START, "groups": "none"}
    ),
    "check_student": partial(
        check, log=linear_log(seed=6), spec=STUDENT, policy={"name": "hp_student", "start_dose": 0.05}
    ),
    "check_student_flagged": partial(
        check,
        log=linear_log(seed=7, bend=1.7, drift=0.9),
        spec=STUDENT,
        policy={"name": "hp_student", "start_dose": 0.05, "lag": 2},
    ),
    "check_bracket": partial(check, log=dose_log(), spec=BRACKET, policy=SHIELD, bracket=True),
    "check_bracket_flagged": partial(
        check,
        log=dose_log(seed=8, elasticity=2.4),
        spec={**BRACKET, "threshold": 12.0},
        policy={**SHIELD, "start_scale": 0.7},
        bracket=True,
    ),
    "check_bracket_changed": partial(
        check, log=dose_log(seed=15, worse=8.0), spec=BRACKET, policy={**SHIELD, "start_scale": 0.5}, bracket=True
    ),
    "evaluate_certified": partial(
        evaluate,
        log=linear_log(),
        policies=["hp_probe", "hp_ucb", "on_expectation", "fixed"],
        spec=CONSTANTS,
    ),
    "evaluate_replayed": partial(
        evaluate,
        log=linear_log(seed=16),
        policies=[{"name": "hp_probe", "radius": "mixture"}, {"name": "hp_ucb", "radius": "paper"}],
        spec=CONSTANTS,
        replay=True,
    ),
    "evaluate_stopped": partial(
        evaluate,
        log=linear_log(seed=17, noise=0.4, drift=0.9),
        policies=["hp_probe", START, {"name": "hp_student", "start_dose": 0.05}],
        spec=CONSTANTS,
    ),
    "evaluate_learned": partial(
        evaluate,
        log=linear_log(seed=9),
        policies=[START, {"name": "hp_student", "start_dose": 0.05}],
        spec=CONFORMAL,
    ),
    "evaluate_bracket": partial(
        evaluate,
        log=dose_log(),
        policies=[SHIELD, {**SHIELD, "learned": True}],
        spec=BRACKET,
        bracket=True,
    ),
    "calibrate": partial(calibrate, log=pilot_log(), resamples=10),
    "calibrate_guided": partial(calibrate, log=pilot_log(seed=10, guided=True), resamples=10),
    "calibrate_stated": partial(
        calibrate, log=pilot_log(seed=11), curve="emax", noise="constant", resamples=5, outcomes=("cost",)
    ),
    "calibrate_bracket": partial(calibrate_bracket, log=dose_log(), threshold=20.0, base="dose"),
    "calibrate_bracket_units": partial(
        calibrate_bracket, log=dose_log(seed=12, units=30), threshold=20.0, base="dose", label="patient"
    ),
    "calibrate_bracket_below": partial(
        calibrate_bracket, log=dose_log(seed=13, falls=3.0), threshold=20.0, direction="below"
    ),
    "choose": partial(choose, **SITUATION),
    "choose_unknown": partial(choose, **{**SITUATION, "noise": "unknown", "linear": False}),
    "choose_bracket": partial(
        choose,
        **{**SITUATION, "curve": "bracket", "threshold": 20.0, "start": 0.2, "constants": None},
        growth=RELATIVE,
        base="dose",
    ),
    "choose_several": partial(
        choose, **{**SITUATION, "threshold": None, "rounds": 60, "dim": 2}, cost="several", costs=TWO
    ),
    "choose_pilot": partial(
        choose, pilot=linear_log(rounds=200, seed=14), threshold=0.5, rounds=60, seeds=4, dose={"curve": "identity"}
    ),
    "export_certified": partial(
        exported,
        stated={**CERTIFIED, "guard": {}},
        turn=lambda: turns(Linear(71, noise=0.1), high=10.0),
        policies=["hp_probe", "hp_ucb"],
    ),
    "export_conformal": partial(
        exported, stated=CONFORMAL_STUDY, turn=lambda: turns(Linear(72, noise=0.15)), policies=[]
    ),
    "export_bracket": partial(
        exported,
        stated=PROPOSAL,
        turn=lambda: shields(Tolerances(73), lambda setting, held: 70.0 + 30.0 * (held - setting), proposes=True),
        policies=[],
    ),
    "export_student": partial(exported, stated=STUDENT_STUDY, turn=lambda: turns(Linear(74, noise=0.12)), policies=[]),
}
