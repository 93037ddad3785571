"""Write tests/recorded/NAME: a store with two HP-Shield studies, and an agent's save file, as this version writes them.

    python -m tests.recorded.shield NAME

As `write.py`: run it once with the version whose work shall stay readable.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from safedial import Agent, Cost, Dial, Features, SafetySpec, create_study, growth, make_policy, open_study
from safedial.study import Store, transaction
from tests.recorded.write import restored

STUDIES = ("proposed", "two")
ONE = SafetySpec(threshold=70.0, violation_risk=0.2, promise="bracket")
TWO = SafetySpec(
    violation_risk=0.2,
    promise="bracket",
    costs={
        "trough": Cost(threshold=20.0, growth=growth.relative(0.7, 1.4, floor=0.5), unit="mg/l"),
        "glucose": Cost(threshold=70.0, growth=growth.additive(4, 30), direction="below"),
    },
)
ADDITIVE = growth.additive(4, 60)
PROPOSED = {
    "base": "proposal",
    "growth": ADDITIVE,
    "direction": "below",
    "start_scale": 0.25,
    "learned": True,
    "lag": 1,
}
BY_RULE = {"base": "rule", "start_scale": 0.25, "adapt": 0.01, "unit": "patient"}
RULES = {
    "dial": Dial(high=25, unit="U"),
    "features": Features(names=("rule", "glucose"), center=(6, 150), scale=(3, 40)),
}


def question(number: int, policy) -> dict:
    """A context, and what the policy takes with it."""
    context = {"rule": 6 + 3 * math.sin(number), "glucose": 150 + 30 * math.cos(2 * number)}
    proposed = {"proposal": round(context["rule"], 1)} if policy.options["base"] == "proposal" else {}
    return {"context": context, **proposed, **({"unit": f"P-{number % 3}"} if policy.options["unit"] else {})}


def outcome(action: float, number: int, spec: SafetySpec) -> dict:
    lowest = 180 + 60 * math.sin(3 * number) - (20 + 10 * math.cos(5 * number)) * action
    costs = {"trough": (2 + math.sin(7 * number)) * action, "glucose": None if number % 9 == 5 else lowest}
    return {"reward": math.sin(number), "cost": lowest if spec.costs is None else costs}


def everything(study, rounds: int) -> None:
    """Late, lower, void, expired and corrected, in a fixed order."""
    rules, late = study.spec.rules, []
    for number in range(rounds):
        decision = study.ask(**question(number, rules.policy), key=f"meal-{number}")
        if number % 9 == 4:
            late.append((decision, number))
        elif number % 11 == 6:
            study.void(decision.id, reason="wrong patient", unrelated=number < 20)
        else:
            applied = 0.7 * decision.action if number % 7 == 1 else None
            given = decision.action if applied is None else applied
            study.tell(decision.id, **outcome(given, number, rules.spec), applied_action=applied)
    first = next(row["decision_id"] for row in study.rows() if row["status"] == "known")
    study.correct(first, cost=outcome(0.5, 1, rules.spec)["cost"], reason="typing error")
    study.expire([late[0][0].id], reason="six weeks", unrelated=True)
    for waiting, number in late[1:]:
        study.tell(waiting.id, **outcome(waiting.action, number, rules.spec))


def go_on(study, rounds: int = 6) -> list[float]:
    """The next decisions of a study, and outcomes for them."""
    actions = []
    for number in range(500, 500 + rounds):
        decision = study.ask(**question(number, study.spec.rules.policy))
        actions.append(decision.action)
        study.tell(decision.id, **outcome(decision.action, number, study.spec.rules.spec))
    return actions


def play(agent: Agent, first: int, rounds: int) -> list[float]:
    actions = []
    for number in range(first, first + rounds):
        decision = agent.decide(**question(number, agent.policy))
        actions.append(decision.action)
        if number % 10 != 9:
            agent.update(decision, **outcome(decision.action, number, agent.spec))
    return actions


def main(name: str) -> None:
    folder = Path(__file__).parent / name
    folder.mkdir()
    transaction.SNAPSHOT_EVENTS = 40
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "store.db"
        with Store(f"sqlite:///{path}") as store:
            for study, spec, options in (("proposed", ONE, PROPOSED), ("two", TWO, BY_RULE)):
                policy = make_policy("hp_shield", **options)
                made = {**RULES, "fallback_action": 0, "storage": store, "actor": "recorder"}
                everything(create_study(study, spec, policy=policy, **made), 36)
        with closing(sqlite3.connect(path)) as connection:
            (folder / "store.sql").write_text("\n".join(connection.iterdump()) + "\n")
    said: dict = {}
    with tempfile.TemporaryDirectory() as scratch, Store(restored(folder, Path(scratch) / "copy.db")) as store:
        for study in STUDIES:
            opened = open_study(study, storage=store, actor="recorder")
            report = opened.verify()
            assert report.ok, report
            said[study] = {"status": opened.status(), "hash": report.hash, "next_actions": go_on(opened)}
    agent = Agent(2, ONE, policy=make_policy("hp_shield", **PROPOSED), **RULES)
    play(agent, 0, 30)
    agent.save(folder / "shield.save")
    said["agent"] = play(Agent.load(folder / "shield.save"), 30, 8)
    (folder / "said.json").write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
