"""The studies that are played: for each, what it states, what happens to it, and which certificates are kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.golden.study_script import Linear, Study, Told, mixed, ordinary

DOSES = {"low": 0.0, "high": 10.0, "unit": "mg"}
CONSTANTS = {
    "threshold": 0.5,
    "violation_risk": 0.05,
    "estimation_risk": 0.05,
    "reward_noise": 0.1,
    "cost_noise": 0.1,
    "coefficient_bound": 1.0,
    "context_bound": 1.0,
}


class Case(NamedTuple):
    """`certificates`: the numbers of the decisions whose certificates are kept."""

    stated: dict[str, Any]
    play: Callable[[Study], None]
    certificates: tuple[int, ...]


def turns(world: Linear, *, high: float = 1.0, rise: Callable[[], float] = lambda: 0.0, **fixed: Any) -> Any:
    """One round of a linear world: (its number, what a share of the advised setting leads to, how to ask again)."""

    def turn(study: Study, *, key: str | None = None, context: Any = None, **more: Any) -> Any:
        place = len(study.ids)
        context = world.context() if context is None else context
        draw = world.draw(context, rise=rise())
        asked = {"key": key, "unit": f"P-{place % 7}", "visit": f"V-{place}", **fixed, **more}
        number, advice = study.ask(context, **asked)

        def outcome(share: float) -> Told:
            setting = min(share * advice["action"], high)
            return draw(setting / high) | ({} if share == 1.0 else {"applied": setting})

        return number, outcome, lambda: study.ask(context, **asked)

    return turn


def until(study: Study, turn: Any, *rules: str) -> None:
    """Rounds that are told at once, until each of the rules has stopped the study, and a person has resumed it."""
    left = set(rules)
    while left:
        ordinary(study, turn, 1)
        while study.stopped:  # one alarm may stand behind another
            left.discard(study.stopped)
            study.see()
            study.resume(study.stopped)


# --- certified, in decision order


def certified(study: Study) -> None:
    """Imports, every kind of outcome, each rule of the guard, and amendments that keep learning or begin it again."""
    world, more = Linear(11, noise=0.1), {"rise": 0.0}
    turn = turns(world, high=10.0, rise=lambda: more["rise"])
    early = []
    for step in range(12):
        context, action = world.context(), 1.0 + 0.5 * step
        early.append(dict(zip(("x0", "x1", "x2"), context, strict=True)) | world.draw(context)(action / 10.0))
        early[-1]["action"] = action
    study.bring(early)
    study.see()
    mixed(study, turn, 21)
    study.mark()
    ordinary(study, turn, 6)
    study.reopen()
    study.ask([-0.6, 0.1, 0.4])  # masked
    turned = [turn(study, context=context) for context in ([0.2, 0.6, 0.4], [0.1, 0.1, 0.4])]  # capped
    for number, outcome, _ in reversed(turned):
        study.tell(number, **outcome(1.0))
    for share in (2.0, 0.5):  # the next step up is from what was applied, but from no more than was advised
        number, outcome, _ = turn(study, context=[-0.3, 0.6, 0.4])
        study.tell(number, **outcome(share))
        number, outcome, _ = turn(study, context=[-0.3, -0.6, 0.4])
        study.tell(number, **outcome(1.0))
    study.refused(lambda: study.live.ask([9.0, 0.0, 0.0]))
    study.refused(lambda: study.live.tell(study.ids[0], reward=0.9, cost=0.9))
    study.refused(lambda: study.live.ask([0.1, 0.1, 0.4], unit="P-2", visit="V-2"))
    study.refused(lambda: study.live.correct(study.ids[13], cost=0.1))
    study.refused(lambda: study.live.void("golden.2.00000000", unrelated=True))

    waiting = [turn(study, context=[0.1, 0.1, 0.4])]
    while not study.stopped:
        waiting.append(turn(study))
    assert study.stopped == "too_many_open"
    study.ask([0.1, 0.2, 0.4])
    for number, outcome, _ in waiting[1:]:
        study.tell(number, **outcome(1.0))
    study.refused(lambda: study.live.resume("alarm", forget=False))
    study.resume("too_many_open")

    study.wait(60.0)
    study.ask([0.1, 0.2, 0.4])
    assert study.stopped == "outcome_overdue"
    study.tell(waiting[0][0], **waiting[0][1](1.0))
    study.resume("outcome_overdue")
    ordinary(study, turn, 3)

    study.amend(guard={"max_open": 30, "max_open_hours": None, "due_after": 5.0})
    ordinary(study, turn, 3)
    open_before, _, _ = turned = turn(study)
    study.amend(threshold=0.6)
    ordinary(study, turn, 8)
    study.tell(open_before, **turned[1](1.0))
    study.amend(labels={"unit": "patient"})
    study.amend(guard={"max_step": 6.0})
    ordinary(study, turn, 8)

    more["rise"] = 0.85
    until(study, turn, "stop_rule", "noise_broken", "alarm")
    more["rise"] = 0.0

    study.amend(coefficient_bound=1.1)
    mixed(study, turn, 21, lose=True)
    ordinary(study, turn, 4)
    study.reopen()
    study.amend(cost_noise=0.12, guard={"max_void": 4})
    study.resume("too_many_void")
    ordinary(study, turn, 12)
    found, outcome, _ = turn(study, context=[0.2, -0.1, 0.4])
    study.expire(found, unrelated=False)
    for _ in range(2):  # once more after a resume, in between an earlier round is found again
        while not study.stopped:
            number, _, _ = turn(study)
            study.void(number, unrelated=True)
        assert study.stopped == "too_many_void"
        study.resume("too_many_void")
        if found is not None:
            for _ in range(2):
                study.void(turn(study, context=[0.1, -0.1, 0.4])[0], unrelated=True)
            study.tell(found, **outcome(1.0))
            found = None
    study.amend(threshold=0.55, keep=False)
    ordinary(study, turn, 8)
    number, _, _ = turn(study)
    study.tell(number, reward=0.0, cost=40.0)  # far beyond the stated noise
    study.resume("noise_broken")
    study.amend(coefficient_bound=0.2, cost_noise=0.3, threshold=2.0)  # smaller than the coefficients are
    until(study, turn, "assumption_broken")
    study.see()


CERTIFIED = {
    "dim": 3,
    **CONSTANTS,
    "dial": DOSES,
    "guard": {
        "max_open": 6,
        "max_open_hours": 48.0,
        "max_step": 3.0,
        "max_void": 12,
        "stop": {"violations": 3, "of_last": 40},
        "caps": [
            {"name": "frail", "when": {"0": {"max": -0.5}}, "limit": 0.0},
            {"name": "large", "when": {"1": {"min": 0.5}}, "limit": 1.0},
        ],
    },
}


# --- certified, in the order in which outcomes come


def arrival(study: Study) -> None:
    """Outcomes in any order, named features with ranges, a curve, levels, and rounds that nobody can watch."""
    world = Linear(21, noise=0.1, effect=lambda share: math.sqrt(share))
    names = ("age", "weight", "one")

    def turn(study: Study, *, key: str | None = None, age: float | None = None, outside: bool = False) -> Any:
        place, context = len(study.ids), world.context()
        context[:2] = context[:2] if age is None else [age, 0.1]
        draw = world.draw(context)
        raw = {"age": 50.0 + 20.0 * context[0], "weight": 70.0 + 30.0 * context[1], "one": context[2]}
        asked = {"key": key, "outside": outside, "unit": f"P-{place % 5}", "meta": {"ward": "3b"}, "baseline": 0.02}
        number, advice = study.ask({name: raw[name] for name in names}, **asked)

        def outcome(share: float) -> Told:
            setting = min(share * advice["action"], 10.0)
            told = draw(setting / 10.0)
            told["cost"] += 0.02
            return told | ({} if share == 1.0 else {"applied": setting})

        return number, outcome, lambda: study.ask({name: raw[name] for name in names}, **asked)

    mixed(study, turn, 42, lose=True)
    study.reopen()
    for _ in range(4):
        waiting = [turn(study) for _ in range(5)]
        for place in (3, 0, 4, 2, 1):
            number, outcome, _ = waiting[place]
            if study.decisions[number][2] > 0.0:
                study.tell(number, **outcome(1.0))
    study.refused(lambda: study.live.ask({"age": 90.0, "weight": 70.0, "one": 0.4}))
    turn(study, age=0.8, outside=True)
    while not study.stopped:
        number, _, _ = turn(study)
        if study.decisions[number][2] > 0.0:
            study.expire(number, unrelated=True)
    assert study.stopped == "too_many_unwatched"
    study.resume("too_many_unwatched")
    study.amend(guard={"stop": {"decisions": len(study.ids) + 20}})
    ordinary(study, turn, 15)
    study.amend(threshold=0.45)
    while not study.stopped:
        ordinary(study, turn, 1)
    assert study.stopped == "stop_rule"
    turn(study)
    study.resume("stop_rule")
    ordinary(study, turn, 6)
    study.see()


ARRIVAL = {
    "dim": 3,
    **CONSTANTS,
    "order": "arrival",
    "dose": {"curve": "power", "exponent": 0.5},
    "dial": {**DOSES, "levels": [0.0, 0.5, 1.0, 2.0, 3.5, 5.0, 7.0, 9.0]},
    "fallback_action": 0.5,
    "features": {
        "names": ["age", "weight", "one"],
        "center": [50.0, 70.0, 0.0],
        "scale": [20.0, 30.0, 1.0],
        "ranges": {"age": [30.0, 65.0]},
    },
}


# --- conformal


def conformal(study: Study) -> None:
    """A declared start, groups by sign, lost and late outcomes, drift, and a start without the earlier rounds."""
    world, more = Linear(31, noise=0.15), {"rise": 0.0}
    turn = turns(world, rise=lambda: more["rise"])
    early = []
    for _ in range(10):
        context = world.context()
        early.append(dict(zip(("x0", "x1", "x2"), context, strict=True)) | world.draw(context)(0.3) | {"action": 0.3})
    study.bring(early)
    ordinary(study, turn, 30)
    mixed(study, turn, 42, lose=True)
    study.reopen()
    ordinary(study, turn, 40)
    study.amend(guard={"max_void": 40})
    late = [turn(study) for _ in range(3)]
    more["rise"] = 0.9
    until(study, turn, "drift")
    study.tell(late[0][0], **late[0][1](1.0))
    more["rise"] = 0.0
    study.resume(forget=True)
    for number, outcome, _ in late[1:]:
        study.tell(number, **outcome(1.0))
    ordinary(study, turn, 34)
    study.amend(threshold=0.6)
    ordinary(study, turn, 8)
    study.see()


def conformal_levels(study: Study) -> None:
    """One bound for all rounds, a dial with levels, and outcomes that come two rounds late."""
    world = Linear(33, noise=0.15)
    turn = turns(world, high=10.0)
    late: list[Any] = []
    for step in range(110):
        late.append(turn(study))
        if len(late) > 2:
            number, outcome, _ = late.pop(0)
            if step % 13 == 6:
                study.void(number, unrelated=True)
            elif step % 17 == 9:
                study.void(number, unrelated=False)
            elif step % 11 == 4:
                study.tell(number, **outcome(0.5))
            else:
                study.tell(number, **outcome(1.0))
                if step % 10 == 3:
                    study.correct(number, cost=outcome(1.0)["cost"] * 0.9, key=f"once-{step}")
    study.see()


CONFORMAL = {
    "dim": 3,
    "threshold": 0.5,
    "violation_risk": 0.15,
    "guarantee": "conformal",
    "start_action": 0.05,
    "guard": {"max_unwatched": 0.6, "caps": [{"name": "frail", "when": {"0": {"max": -0.6}}, "limit": 0.0}]},
}
LEVELS = {
    "dim": 3,
    "threshold": 0.5,
    "violation_risk": 0.15,
    "guarantee": "conformal",
    "policy": {"name": "hp_conformal", "groups": "none", "lag": 2},
    "start_action": 1.0,
    "dial": {**DOSES, "levels": [0.0, 0.5, 1.0, 2.0, 3.5, 5.0, 7.0, 9.0]},
    "guard": {"max_unwatched": 0.6},
}


# --- shield


class Tolerances:
    """Units with a protocol's setting; what each tolerates is log-normal around it and depends on its weight."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def unit(self) -> tuple[dict[str, float], float]:
        """(its features, the setting at which its cost is the threshold)."""
        dose, weight = float(self.rng.uniform(2.0, 6.0)), float(self.rng.uniform(45.0, 95.0))
        tolerated = dose * 1.2 * (70.0 / weight) ** 0.6 * math.exp(0.25 * float(self.rng.standard_normal()))
        return {"dose": dose, "weight": weight}, tolerated


def shields(units: Tolerances, harm: Callable[[float, float], Any], *, proposes: bool) -> Any:
    """One round: `harm` is the cost of a setting where so much is tolerated."""

    def turn(study: Study, *, key: str | None = None) -> Any:
        place, (context, tolerated) = len(study.ids), units.unit()
        asked: dict[str, Any] = {"key": key, "unit": f"P-{place % 4}"}
        if proposes:
            asked["proposal"] = context["dose"] * (0.7 + 0.11 * (place % 7))
        number, advice = study.ask(context, **asked)

        def outcome(share: float) -> Told:
            setting = min(share * advice["action"], 20.0)
            told = {"reward": -0.01 * (setting - 4.0) ** 2, "cost": harm(setting, tolerated)}
            return told | ({} if share == 1.0 else {"applied": setting})

        return number, outcome, lambda: study.ask(context, **asked)

    return turn


def shield_learned(study: Study) -> None:
    """A learned base, levels, requests under the cap, a mask, a drift of what is tolerated, a new start."""
    units, more = Tolerances(41), {"worse": 1.0}
    turn = shields(units, lambda setting, tolerated: 2.0 * (more["worse"] * setting / tolerated) ** 1.1, proposes=True)
    ordinary(study, turn, 20)
    mixed(study, turn, 42, lose=True)
    study.reopen()
    ordinary(study, turn, 40)
    study.amend(guard={"max_void": 40})
    more["worse"] = 60.0

    def more_than_advised(study: Study) -> Any:
        number, outcome, again = turn(study)
        return number, lambda share: outcome(3.0), again

    until(study, more_than_advised, "bracket_drift")
    more["worse"] = 1.0
    late = [turn(study) for _ in range(3)]
    study.resume(forget=True)
    for number, outcome, _ in late:
        study.tell(number, **outcome(1.0))
    ordinary(study, turn, 25)
    study.see()


def shield_proposal(study: Study) -> None:
    """The proposal is the base, costs must not fall below the threshold, and the latest two rounds do not count."""
    units = Tolerances(42)
    turn = shields(units, lambda setting, tolerated: 70.0 + 30.0 * (tolerated - setting), proposes=True)
    late: list[Any] = []
    for step in range(110):
        late.append(turn(study))
        if len(late) > 2:
            number, outcome, _ = late.pop(0)
            if step % 13 == 6:
                study.void(number, unrelated=True)
            elif step % 11 == 4:
                study.tell(number, **outcome(0.8))
            elif step % 29 == 20:
                study.tell(number, **outcome(0.7), throttled=True)
            else:
                study.tell(number, **outcome(1.0))
                if step % 10 == 3:
                    study.correct(number, cost=outcome(1.0)["cost"] + 2.0)
    study.see()


def shield_start(study: Study) -> None:
    """A start that is declared safe and is not, then two costs of which one must not fall."""
    units, more = Tolerances(43), {"worse": 3.0}

    def harm(setting: float, tolerated: float) -> dict[str, float]:
        trough = 2.0 * more["worse"] * setting / tolerated
        return {"trough": trough, "glucose": 70.0 + 25.0 * (1.3 * tolerated - setting)}

    turn = shields(units, harm, proposes=False)
    until(study, turn, "start_refuted")
    more["worse"] = 1.0
    study.resume(forget=True)
    ordinary(study, turn, 25)
    mixed(study, turn, 21, lose=True, raised=False)
    number, outcome, _ = turn(study)
    study.tell(number, reward=0.0, cost=outcome(1.0)["cost"] | {"glucose": None})
    ordinary(study, turn, 20)
    study.see()


FEATURES = {"names": ["dose", "weight"], "center": [4.0, 70.0], "scale": [2.0, 30.0]}
UNITS = {"low": 0.0, "high": 20.0, "unit": "U"}
RELATIVE = {"growth": "relative", "low": 0.7, "high": 1.4, "floor": 0.3}
ADDITIVE = {"growth": "additive", "low": 5.0, "high": 40.0}
SHIELD = {
    "dim": 2,
    "threshold": 2.0,
    "violation_risk": 0.2,
    "guarantee": "bracket",
    "features": FEATURES,
    "dial": UNITS,
}
LEARNED = {
    **SHIELD,
    "policy": {
        "name": "hp_shield",
        "base": "dose",
        "growth": RELATIVE,
        "start_scale": 0.25,
        "learned": True,
        "chooser": "request",
    },
    "dial": {**UNITS, "levels": [0.0, 0.4, 0.8, 1.2, 1.6, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 11.0, 15.0]},
    "guard": {"max_unwatched": 0.6, "caps": [{"name": "frail", "when": {"weight": {"max": 48.0}}, "limit": 0.0}]},
}
PROPOSAL = {
    **SHIELD,
    "threshold": 70.0,
    "policy": {
        "name": "hp_shield",
        "base": "proposal",
        "growth": {"growth": "additive", "low": 10.0, "high": 45.0},
        "start_scale": 0.25,
        "direction": "below",
        "lag": 2,
    },
    "guard": {"max_unwatched": 0.6},
}
TWO = {
    **{name: value for name, value in SHIELD.items() if name != "threshold"},
    "costs": {
        "trough": {"threshold": 2.0, "growth": RELATIVE, "unit": "mg/l"},
        "glucose": {"threshold": 70.0, "growth": ADDITIVE, "direction": "below"},
    },
    "policy": {"name": "hp_shield", "base": "dose", "start_scale": 0.5},
    "guard": {"max_unwatched": 0.6},
}


# --- student


def student(study: Study) -> None:
    """Outcomes within the lag and beyond it, lost rounds, a new start without them, and noise that grows."""
    world, more = Linear(51, noise=0.12), {"rise": 0.0}
    turn = turns(world, rise=lambda: more["rise"])
    ordinary(study, turn, 12)
    mixed(study, turn, 42)
    study.reopen()
    number, outcome, _ = turn(study)
    study.tell(number, **outcome(0.5), throttled=True)  # lost: the start from now on
    ordinary(study, turn, 4)
    late, outcome, _ = turn(study)
    study.resume(forget=True)
    ordinary(study, turn, 8)
    study.tell(late, **outcome(1.0))
    ordinary(study, turn, 22)
    more["rise"] = 1.2
    until(study, turn, "student_drift")
    more["rise"] = 0.0
    study.resume(forget=True)
    ordinary(study, turn, 15)
    study.amend(threshold=0.55)
    ordinary(study, turn, 10)
    study.see()


STUDENT = {
    "dim": 3,
    "threshold": 0.5,
    "violation_risk": 0.1,
    "guarantee": "student",
    "policy": {"name": "hp_student", "lag": 3},
    "start_action": 0.05,
}
ANYTIME = {
    **STUDENT,
    "violation_risk": 0.05,
    "estimation_risk": 0.01,
    "policy": {"name": "hp_student", "guarantee": "anytime", "mixture_ridge": 3.0},
}


def student_anytime(study: Study) -> None:
    """The promise given the past, in all rounds at once; any delay."""
    world = Linear(52, noise=0.08)
    turn = turns(world)
    ordinary(study, turn, 30)
    mixed(study, turn, 42)
    study.reopen()
    ordinary(study, turn, 30)
    study.see()


# --- several certified costs


def several(study: Study) -> None:
    """Two costs with their own thresholds, noises and curves; they are told, corrected and amended together."""
    rng = np.random.default_rng(61)

    def turn(study: Study, *, key: str | None = None, worse: float = 0.0) -> Any:
        context = [float(rng.uniform(-0.7, 0.7)), float(rng.uniform(0.0, 0.7))]
        noise = rng.standard_normal(3)
        asked = {"key": key, "unit": f"P-{len(study.ids) % 3}"}
        number, advice = study.ask(context, **asked)
        heat = float(np.dot(context, [0.4, 1.1])) + 0.1 * float(noise[0]) + worse
        load = float(np.dot(context, [0.9, 0.6])) + 0.1 * float(noise[1]) + worse
        gain = float(np.dot(context, [0.5, 0.6])) + 0.1 * float(noise[2])

        def outcome(share: float) -> Told:
            setting = min(share * advice["action"], 10.0)
            part = setting / 10.0
            told = {"reward": part * gain, "cost": {"heat": part * heat, "load": part**2 * load}}
            return told | ({} if share == 1.0 else {"applied": setting})

        return number, outcome, lambda: study.ask(context, **asked)

    mixed(study, turn, 42)
    study.reopen()
    ordinary(study, turn, 20)
    study.amend(guard={"max_open": 50})
    ordinary(study, turn, 5)
    study.amend(estimation_risk=0.03)
    ordinary(study, turn, 20)

    def badly(study: Study, **more: Any) -> Any:
        return turn(study, worse=0.5, **more)

    until(study, badly, "alarm")
    ordinary(study, turn, 10)
    study.see()


SEVERAL = {
    "dim": 2,
    "violation_risk": 0.05,
    "estimation_risk": 0.02,
    "reward_noise": 0.1,
    "coefficient_bound": 1.5,
    "context_bound": 1.0,
    "costs": {
        "load": {"threshold": 0.4, "noise": 0.1, "curve": {"curve": "power", "exponent": 2.0}},
        "heat": {"threshold": 0.6, "noise": 0.1, "unit": "C"},
    },
    "dial": DOSES,
}


# --- mistakes


def dosed(study: Study, turn: Any) -> Any:
    """The next round that is given more than a probe; those before it are told, and a stopped study is resumed."""
    while True:
        while study.stopped:
            study.resume(study.stopped)
        number, outcome, again = turn(study)
        if study.decisions[number][2] > 0.02:
            return number, outcome, again
        study.tell(number, **outcome(1.0))


def mistakes(study: Study, turn: Any, over: Callable[[Any], Any]) -> None:
    """Outcomes above the threshold that are corrected, voided or throttled, before and after alarms, resumes and
    restarts; `over` makes such a cost of an ordinary one.
    """
    ordinary(study, turn, 24)
    typed = []
    for step in range(4):  # above the threshold by mistake, and taken back, the second after a restart
        number, outcome, _ = dosed(study, turn)
        study.tell(number, **(outcome(1.0) | {"cost": over(outcome(1.0)["cost"])}))
        typed.append((number, outcome(1.0)))
        ordinary(study, turn, 1)
        if step == 1:
            study.reopen()
            study.correct(typed[0][0], cost=typed[0][1]["cost"])
    study.see()
    number, outcome, _ = dosed(study, turn)  # a cost that was higher than reported
    study.tell(number, **outcome(1.0))
    study.correct(number, cost=over(outcome(1.0)["cost"]))
    number, outcome, _ = dosed(study, turn)  # corrected twice, the second time with a lower setting
    study.tell(number, **outcome(1.0))
    study.correct(number, reward=outcome(1.0)["reward"] + 0.01)
    study.correct(number, **outcome(0.85))
    study.see()
    for unrelated in (True, False):  # an excess cannot be hidden by a void
        if not unrelated:
            ordinary(study, turn, 6)
        number, outcome, _ = dosed(study, turn)
        study.tell(number, **(outcome(1.0) | {"cost": over(outcome(1.0)["cost"])}))
        study.void(number, unrelated=unrelated)
        study.refused(lambda each=number: study.live.correct(study.ids[each], cost=0.1))
        ordinary(study, turn, 2)
    gone = [dosed(study, turn) for _ in range(3)]
    study.expire(*(number for number, _, _ in gone), unrelated=False)
    for number, outcome, _ in gone[:2]:  # found again, one of them above the threshold
        told = outcome(1.0)
        study.tell(number, **(told | {"cost": over(told["cost"])} if number == gone[1][0] else told))
    study.void(gone[2][0], unrelated=True)
    for share in (1.0, 0.4):  # throttled, above the threshold and below it
        number, outcome, _ = dosed(study, turn)
        told = outcome(share)
        study.tell(number, **(told | {"cost": over(told["cost"])} if share == 1.0 else told), throttled=True)
    study.see()
    for number, told in typed[1:]:
        study.correct(number, cost=told["cost"])
    while study.stopped:
        study.resume(study.stopped)
    ordinary(study, turn, 8)
    study.see()


def certified_mistakes(study: Study) -> None:
    """With a stop rule that counts what corrections take back."""
    mistakes(study, turns(Linear(81, noise=0.1), high=10.0), lambda cost: 0.52 + 0.1 * cost)


def conformal_mistakes(study: Study) -> None:
    mistakes(study, turns(Linear(82, noise=0.15)), lambda cost: cost + 0.6)


def shield_mistakes(study: Study) -> None:
    turn = shields(Tolerances(83), lambda setting, tolerated: 2.0 * setting / tolerated, proposes=False)
    mistakes(study, turn, lambda cost: cost + 2.0)


def student_mistakes(study: Study) -> None:
    mistakes(study, turns(Linear(84, noise=0.12)), lambda cost: cost + 0.45)


MISTAKEN = {**CERTIFIED, "guard": {"stop": {"violations": 4, "of_last": 30}, "max_void": 6}}
TOLD_SHIELD = {
    **SHIELD,
    "policy": {"name": "hp_shield", "base": "dose", "growth": RELATIVE, "start_scale": 0.25, "learned": True},
    "guard": {"max_void": 6},
}


STUDIES: dict[str, Case] = {
    "certified": Case(CERTIFIED, certified, (1, 30, 60, 100, 140)),
    "arrival": Case(ARRIVAL, arrival, (25, 70)),
    "conformal": Case(CONFORMAL, conformal, (5, 80, 120)),
    "conformal_levels": Case(LEVELS, conformal_levels, (60, 100)),
    "shield_learned": Case(LEARNED, shield_learned, (60, 100)),
    "shield_proposal": Case(PROPOSAL, shield_proposal, (5, 100)),
    "shield_start": Case(TWO, shield_start, (50,)),
    "student": Case(STUDENT, student, (40, 80)),
    "student_anytime": Case(ANYTIME, student_anytime, (90,)),
    "several": Case(SEVERAL, several, (30, 80)),
    "certified_mistakes": Case(MISTAKEN, certified_mistakes, (45,)),
    "conformal_mistakes": Case({**CONFORMAL, "guard": {"max_void": 6}}, conformal_mistakes, (50,)),
    "shield_mistakes": Case(TOLD_SHIELD, shield_mistakes, (50,)),
    "student_mistakes": Case({**STUDENT, "guard": {"max_void": 6}}, student_mistakes, (45,)),
}
