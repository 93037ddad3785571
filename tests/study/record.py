"""Write tests/study/data/schema-N.sql: a store as this release writes it. Run once a schema, before its release:

python -m tests.study.record
"""

from __future__ import annotations

import math
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from safedial.study import Store, create_study, transaction
from safedial.study.keys import create_key
from safedial.study.schema import SCHEMA

LINEAR = {
    "dim": 2,
    "threshold": 0.5,
    "violation_risk": 0.05,
    "estimation_risk": 0.05,
    "reward_noise": 0.3,
    "cost_noise": 0.3,
    "coefficient_bound": 1.0,
    "context_bound": 1.0,
}
CONFORMAL = {"dim": 2, "threshold": 0.5, "violation_risk": 0.2, "promise": "conformal", "start_action": 0.1}
DIAL = {"dial": {"high": 20, "unit": "mg"}, "dose": {"curve": "hill", "ed50": 0.4}, "guard": {"max_step": 6.0}}


def play(study, rounds: int) -> None:
    """Everything that may happen, in a fixed order."""
    made = []
    for number in range(rounds):
        context = [0.6 * math.sin(number), 0.5 * math.cos(3 * number)]
        made.append(study.ask(context, key=f"visit-{number}", baseline_cost=0.01 * (number % 3)))
        if number % 4 != 3:
            decision = made.pop(len(made) // 2)
            applied = 0.5 * decision.action if number % 5 == 1 else None
            share = decision.intensity * (0.5 if applied else 1.0)
            study.tell(decision.id, reward=0.3 * share, cost=0.2 * share, applied_action=applied)
    study.correct(next(iter(study.rows()))["decision_id"], cost=0.05, reason="typing error")
    study.void(made[0].id, reason="wrong patient", unrelated=True)
    study.expire([made[1].id], reason="six weeks")
    study.checkpoint("end of the month")
    study.ask([0.3, 0.3])


def main() -> None:
    transaction.SNAPSHOT_EVENTS = 25
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        with Store(f"sqlite:///{path}") as store:
            play(create_study("linear", {**LINEAR, **DIAL}, storage=store, actor="recorder"), 14)
            play(create_study("arrival", {**LINEAR, "folding": "arrival"}, storage=store, actor="recorder"), 10)
            play(create_study("conformal", CONFORMAL, storage=store, actor="recorder"), 30)
            create_key(store, "read", reason="recorded", actor="recorder")
        with closing(sqlite3.connect(path)) as connection:
            text = "\n".join(connection.iterdump()) + "\n"
    target = Path(__file__).parent / "data" / f"schema-{SCHEMA}.sql"
    target.parent.mkdir(exist_ok=True)
    target.write_text(text)


if __name__ == "__main__":
    main()
