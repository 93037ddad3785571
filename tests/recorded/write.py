"""Write tests/recorded/NAME: small stores, save files, spec files and a sweep folder, as this version writes them.

    python -m tests.recorded.write NAME

Run it once with the version whose work shall stay readable; `test_recorded.py` opens every folder from then on. Beside
each thing stands what that version did next with a copy of it (`expected.json`), which later versions must do too.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import safedial
from safedial import Agent, Dial, Features, SafetySpec, create_study, open_study
from safedial.function_classes import kernel, linear
from safedial.policies import make_policy
from safedial.specfile import SpecFile, save_spec
from safedial.study import Store, transaction
from safedial.study.keys import create_key
from safedial.sweep.engine import run_sweep
from safedial.sweep.grid import parse_grid

PROMISE = {
    "threshold": 0.5,
    "violation_risk": 0.05,
    "estimation_risk": 0.05,
    "reward_noise": 0.3,
    "cost_noise": 0.3,
    "coefficient_bound": 1.0,
    "context_bound": 1.0,
}
LINEAR = {"dim": 2, **PROMISE}
CONFORMAL = {"dim": 2, "threshold": 0.5, "violation_risk": 0.2, "promise": "conformal", "start_action": 0.1}
WARD = {
    **PROMISE,
    "policy": {"name": "hp_ucb", "radius": "constrained"},
    "dial": {"high": 20, "unit": "mg", "levels": [0.5, 1, 2, 4, 8, 20]},
    "dose": {"curve": "hill", "ed50": 0.4},
    "features": {"names": ["age", "weight"], "center": [50, 70], "scale": [60, 80]},
    "guard": {
        "max_step": 6.0,
        "caps": [{"when": {"age": {"min": 75}}, "limit": 4}],
        "stop": {"violations": 3, "of_last": 20},
    },
    "folding": "arrival",
}
GRID = """
[sweep]
name = "recorded"
rounds = 60
seeds = 3
[world]
dim = [2, 3]
[spec]
threshold = 0.5
violation_risk = 0.02
estimation_risk = 0.01
reward_noise = 1.0
cost_noise = 1.0
coefficient_bound = 1.0
context_bound = 1.0
[[policy]]
name = "hp_ucb"
[[policy]]
name = "hp_conformal"
start_dose = 0.1
"""


def context(number: int) -> list[float]:
    return [0.6 * math.sin(number), 0.5 * math.cos(3 * number)]


def visit(number: int) -> dict[str, float]:
    return {"age": 50 + 30 * math.sin(number), "weight": 70 + 20 * math.cos(2 * number)}


def outcome(decision, number: int) -> dict[str, float]:
    share = decision.intensity
    return {"reward": share * (0.3 + 0.1 * math.sin(7 * number)), "cost": share * (0.2 + 0.2 * math.cos(5 * number))}


def everything(study, rounds: int, of=context) -> None:
    """Late, lower, higher, missing, corrected, void, expired and found again, in a fixed order."""
    late = []
    for number in range(rounds):
        decision = study.ask(of(number), key=f"visit-{number}", baseline_cost=0.01 * (number % 3))
        if number % 9 == 4:
            late.append((decision, number))
        elif number % 11 == 6:
            study.void(decision.id, reason="wrong patient", unrelated=True)
        else:
            applied = {1: 0.5 * decision.action, 3: min(1.1 * decision.action, study.spec.rules.dial.high)}
            if study.spec.rules.dial.levels:
                applied = {}
            study.tell(decision.id, **outcome(decision, number), applied_action=applied.get(number % 13))
        if number % 15 == 14:
            waiting, which = late.pop(0)
            study.tell(waiting.id, **outcome(waiting, which))
    made = (row["decision_id"] for row in study.rows() if row["status"] != "imported")
    study.correct(next(made), cost=0.05, reason="typing error")
    for waiting, which in late[1:]:
        study.tell(waiting.id, **outcome(waiting, which))
    if late:
        study.expire([late[0][0].id], reason="six weeks", unrelated=True)
    study.checkpoint("end of the month")


def silent(study, rounds: int) -> None:
    """The first outcome is never reported, and every later cost lies far above the threshold."""
    study.ask(context(0))
    for number in range(1, rounds):
        study.tell(study.ask(context(number)).id, reward=0.1, cost=5.0)


def stopped(study) -> None:
    """An alarm, taken back, and a throttled round, behind which nothing is learned."""
    number = 0
    while not study.status()["stopped"]:
        study.tell(study.ask(context(number)).id, reward=0.1, cost=0.6)
        number += 1
    for more in range(number, number + 3):
        decision = study.ask(context(more))
        if decision.intensity > 0:
            study.tell(decision.id, **outcome(decision, more))
    study.resume("the pump was replaced")
    for more in range(number + 3, number + 12):
        decision = study.ask(context(more))
        study.tell(decision.id, **outcome(decision, more), throttled=more == number + 7)


def shifting(study, rounds: int) -> None:
    """Costs that grow: HP-Conformal's drift alarm."""
    for number in range(rounds):
        decision = study.ask(context(number))
        told = outcome(decision, number)
        study.tell(decision.id, reward=told["reward"], cost=told["cost"] * (1 if number < rounds // 2 else 20))


def write_store(folder: Path) -> None:
    transaction.SNAPSHOT_EVENTS = 40
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "store.db"
        with Store(f"sqlite:///{path}") as store:
            made = {"storage": store, "actor": "recorder"}
            history = [{"context": context(n), "action": 0.4, "reward": 0.1, "cost": 0.05} for n in range(5)]
            study = create_study("linear", LINEAR, **made)
            study.import_history(history)
            everything(study, 48)
            everything(create_study("ward", WARD, **made), 40, visit)
            everything(create_study("conformal", CONFORMAL, **made), 70)
            silent(create_study("silent", LINEAR, **made), 12)
            stopped(create_study("stopped", LINEAR, **made))
            shifting(create_study("shifting", CONFORMAL, **made), 120)
            create_key(store, "read", reason="recorded", actor="recorder")
        with closing(sqlite3.connect(path)) as connection:
            text = "\n".join(connection.iterdump()) + "\n"
    (folder / "store.sql").write_text(text)


def restored(folder: Path, target: Path) -> str:
    """The recorded store as a database of its own; its URL."""
    with closing(sqlite3.connect(target)) as connection:
        connection.executescript((folder / "store.sql").read_text())
    return f"sqlite:///{target}"


def go_on(study, rounds: int = 6) -> list[float]:
    """The next decisions of a study, and outcomes for them."""
    of = visit if study.spec.rules.features else context
    actions = []
    for number in range(500, 500 + rounds):
        decision = study.ask(of(number))
        actions.append(decision.action)
        if decision.intensity > 0:
            study.tell(decision.id, **outcome(decision, number))
    return actions


def agents() -> dict[str, Agent]:
    spec = SafetySpec(**PROMISE)
    conformal = SafetySpec(threshold=0.5, violation_risk=0.2, promise="conformal")
    policy = make_policy("nonlinear_hp_probe", cost_class=kernel("rbf:1", norm=1.0), reward_class=linear())
    features = Features(names=("age", "weight"), center=(50, 70), scale=(60, 80))
    return {
        "linear": Agent(2, spec),
        "ward": Agent(2, spec, policy="hp_ucb", dial=Dial(high=20, unit="mg"), features=features),
        "coin": Agent(2, spec, policy=make_policy("epsilon_greedy", epsilon=0.2), seed=7),
        "conformal": Agent(2, conformal, start_action=0.1),
        "kernel": Agent(2, spec, policy=policy),
    }


def play(agent: Agent, first: int, rounds: int) -> list[float]:
    actions = []
    of = visit if agent.features else context
    for number in range(first, first + rounds):
        decision = agent.decide(of(number))
        actions.append(decision.action)
        if number % 10 != 9:
            agent.update(decision, **outcome(decision, number))
    return actions


def load_agent(path: Path) -> Agent:
    """A saved agent; one with classes is given its policy again."""
    return Agent.load(path, policy=agents()[path.stem].policy) if path.stem == "kernel" else Agent.load(path)


def main(name: str) -> None:
    folder = Path(__file__).parent / name
    folder.mkdir()
    write_store(folder)
    expected: dict = {"version": safedial.__version__, "studies": {}, "agents": {}}
    with tempfile.TemporaryDirectory() as scratch, Store(restored(folder, Path(scratch) / "copy.db")) as store:
        for study in ("linear", "ward", "conformal", "silent", "stopped", "shifting"):
            opened = open_study(study, storage=store, actor="recorder")
            report = opened.verify()
            assert report.ok, report
            said = {"status": opened.status(), "hash": report.hash}
            expected["studies"][study] = {**said, "next_actions": go_on(opened), "stopped": opened.status()["stopped"]}
    for each, agent in agents().items():
        play(agent, 0, 45)
        agent.save(folder / f"{each}.save")
        expected["agents"][each] = play(load_agent(folder / f"{each}.save"), 45, 8)
    features = Features(names=("age", "weight"), center=(50, 70), scale=(60, 80))
    whole = SpecFile(spec=SafetySpec(**PROMISE), dim=2, policy={"name": "hp_probe", "probe": 0.1}, features=features)
    save_spec(whole, folder / "certified.toml")
    start = {"name": "hp_conformal", "start_dose": 0.1}
    conformal = SafetySpec(threshold=0.5, violation_risk=0.2, promise="conformal")
    save_spec(SpecFile(spec=conformal, dim=2, policy=start), folder / "conformal.toml")
    run_sweep(parse_grid(GRID), folder / "sweep", jobs=1)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
