"""A study whose outcomes come late, are corrected, or never come.

    python examples/late_outcomes.py [ROUNDS]

Every event is a row of an append-only log in a SQLite file; at the end the log is replayed and every decision
computed again. Needs the extra `service`.
"""

import sys
import tempfile

import numpy as np

from safedial import Study
from safedial.study.store import Store

SPEC = {
    "threshold": 0.5,
    "total_risk": 0.05,
    "reward_noise": 0.1,
    "cost_noise": 0.1,
    "coefficient_bound": 1,
    "context_bound": 1.2,
    "features": {"names": ["age", "weight"], "center": [50, 70], "scale": [100, 100], "intercept": True},
    "dial": {"high": 20, "unit": "mg"},
    "fallback_action": 2,
}
LATE = 5
"""An outcome is known so many rounds after its decision."""


def main(count: int) -> None:
    rng, waiting = np.random.default_rng(0), []
    with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/trial.db") as store:
        study = Study.create("infusion", SPEC, storage=store)
        for number in range(count):
            age, weight = rng.uniform(20, 80), rng.uniform(50, 100)
            decision = study.ask({"age": age, "weight": weight}, unit=f"P-{number}", visit="day 1")
            share = decision.action / 20
            waiting.append((decision.id, 0.3 * share, share * (0.4 + 0.003 * (age - 50) + rng.normal(0, 0.1))))
            if number % 20 == 19:  # this patient moved away
                study.void(waiting.pop()[0], reason="moved to another hospital", unrelated=True)
            if len(waiting) > LATE:
                known, reward, cost = waiting.pop(0)
                study.tell(known, reward=reward, cost=cost)
        study.correct(known, cost=cost + 0.01, reason="misread; laboratory slip 4711", actor="Dr. Lee")
        print(f"{len(study.waiting())} outcomes are still open")
        report = study.verify()
        print(f"verified: {report.ok}, {report.events} events, {report.decisions} decisions computed again")
        print(study.explain(study.ask({"age": 60, "weight": 80}).id))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
