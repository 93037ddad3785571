"""Write tests/recorded/NAME: a store with HP-Student studies, and one of HP-Conformal, with throttled rounds, and an
agent's save file, as this version writes them. (student1, of rules 3, has two studies, and 62 rounds of each.)

    python -m tests.recorded.student NAME

As `write.py`: run it once with the version whose work shall stay readable.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from safedial import Agent, SafetySpec, create_study, hp_conformal, hp_student, open_study
from safedial.study import Store, transaction
from tests.recorded.write import restored

SPEC = SafetySpec(threshold=0.2, violation_risk=0.1, estimation_risk=0.05, promise="student")
POLICIES = {
    "per_round": hp_student(lag=2),
    "anytime": hp_student(promise="anytime", mixture_ridge=0.5),
    "conformal": hp_conformal(),
}


def context(number: int) -> list[float]:
    return [math.sin(number), math.cos(3 * number)]


def outcome(intensity: float, number: int) -> dict[str, float]:
    noise = math.sin(7 * number) * math.cos(11 * number) / 10
    return {"reward": intensity * (0.5 + math.sin(number)), "cost": intensity * (0.3 * math.sin(number) + noise)}


def everything(study, rounds: int) -> None:
    """Late, lower, void, expired, throttled and corrected, in a fixed order; a lost round, and a new start without the
    others.
    """
    late = []
    for number in range(rounds):
        decision = study.ask(context(number), key=f"visit-{number}")
        if number % 9 == 4:
            late.append((decision, number))
        elif number % 11 == 6:
            study.void(decision.id, reason="wrong patient", unrelated=number != 6)
        else:
            applied = 0.7 * decision.action if number % 7 == 1 else decision.action
            study.tell(decision.id, **outcome(applied, number), applied_action=applied)
        if number == 8:
            study.resume("a round was lost", forget=True)
        if number % 9 == 6 and late:
            waiting, earlier = late.pop()
            study.tell(waiting.id, **outcome(waiting.intensity, earlier))
    for number in range(rounds, rounds + 6):
        study.tell(study.ask(context(number)).id, reward=0.1, cost=0.3, throttled=True)
    last = [row for row in study.rows() if row["status"] == "known"][-3]
    study.correct(last["decision_id"], cost=1.5 * last["cost"], reason="typing error")
    study.expire([study.ask(context(99)).id], reason="six weeks", unrelated=True)


def go_on(study, rounds: int = 6) -> list[float]:
    """The next decisions of a study, and outcomes for them."""
    actions = []
    for number in range(500, 500 + rounds):
        decision = study.ask(context(number))
        actions.append(decision.action)
        study.tell(decision.id, **outcome(decision.intensity, number))
    return actions


def play(agent: Agent, first: int, rounds: int) -> list[float]:
    actions = []
    for number in range(first, first + rounds):
        decision = agent.decide(context(number))
        actions.append(decision.action)
        agent.update(decision, **outcome(decision.intensity, number))
    return actions


def main(name: str) -> None:
    folder = Path(__file__).parent / name
    folder.mkdir()
    transaction.SNAPSHOT_EVENTS = 40
    said: dict = {}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "store.db"
        with Store(f"sqlite:///{path}") as store:
            for study, policy in POLICIES.items():
                spec = replace(SPEC, promise="conformal") if study == "conformal" else SPEC
                rules = {"dim": 2, "policy": policy, "start_action": 0.05}
                everything(create_study(study, spec, **rules, storage=store, actor="recorder"), 44)
        with closing(sqlite3.connect(path)) as connection:
            (folder / "store.sql").write_text("\n".join(connection.iterdump()) + "\n")
        with Store(restored(folder, Path(scratch) / "copy.db")) as store:
            for study in POLICIES:
                opened = open_study(study, storage=store, actor="recorder")
                report = opened.verify()
                assert report.ok, report
                said[study] = {"status": opened.status(), "hash": report.hash, "next_actions": go_on(opened)}
    agent = Agent(2, SPEC, policy=POLICIES["per_round"], start_action=0.05)
    play(agent, 0, 30)
    agent.save(folder / "student.save")
    said["agent"] = play(Agent.load(folder / "student.save"), 30, 8)
    (folder / "student.json").write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
