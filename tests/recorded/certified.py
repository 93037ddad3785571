"""Write tests/recorded/NAME: a store with certified studies whose options are those of the rule, and an agent.

    python -m tests.recorded.certified NAME

As `write.py`: run it once with the version whose work shall stay readable.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from safedial import Agent, Dial, SafetySpec, create_study, open_study
from safedial.study import Store, transaction
from tests.recorded.student import context, go_on, outcome, play
from tests.recorded.write import restored

SPEC = SafetySpec(
    threshold=0.2, total_risk=0.1, reward_noise=0.2, cost_noise=0.1, coefficient_bound=1, context_bound=1.5
)
DIALS = {"by_rule": Dial(), "levels": Dial(levels=(0.05, 0.1, 0.2, 0.5, 1.0)), "amended": Dial()}
AMENDED = {
    12: {"labels": {"reward": "relief"}},
    20: {"threshold": 0.25},
    26: {"guard": {"max_open": 50, "alarm_level": 0.02}},
}
"""What is amended before a round of the study of that name."""
STUDIES = tuple(DIALS)

__all__ = ["STUDIES", "go_on", "play"]


def everything(study, rounds: int) -> None:
    """Late, lower, void and corrected, in a fixed order."""
    late = []
    for number in range(rounds):
        if study.name == "amended" and number in AMENDED:
            study.amend(changes=AMENDED[number], reason="a new guideline")
        decision = study.ask(context(number), key=f"visit-{number}")
        if number % 9 == 4:
            late.append((decision, number))
        elif number % 11 == 6:
            study.void(decision.id, reason="wrong patient", unrelated=True)
        else:
            study.tell(decision.id, **outcome(decision.action, number))
        if number % 9 == 6 and late:
            waiting, earlier = late.pop()
            study.tell(waiting.id, **outcome(waiting.action, earlier))
    last = [row for row in study.rows() if row["status"] == "known"][-3]
    study.correct(last["decision_id"], cost=1.05 * last["cost"], reason="typing error")


def main(name: str) -> None:
    folder = Path(__file__).parent / name
    folder.mkdir()
    transaction.SNAPSHOT_EVENTS = 40
    said: dict = {}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "store.db"
        with Store(f"sqlite:///{path}") as store:
            for study, dial in DIALS.items():
                everything(create_study(study, SPEC, dim=2, dial=dial, storage=store, actor="recorder"), 40)
        with closing(sqlite3.connect(path)) as connection:
            (folder / "store.sql").write_text("\n".join(connection.iterdump()) + "\n")
        with Store(restored(folder, Path(scratch) / "copy.db")) as store:
            for study in STUDIES:
                opened = open_study(study, storage=store, actor="recorder")
                report = opened.verify()
                assert report.ok, report
                said[study] = {"status": opened.status(), "hash": report.hash, "next_actions": go_on(opened)}
    agent = Agent(2, SPEC)
    play(agent, 0, 30)
    agent.save(folder / "certified.save")
    said["agent"] = play(Agent.load(folder / "certified.save"), 30, 8)
    (folder / "certified.json").write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
