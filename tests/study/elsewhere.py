"""A store of small studies, to be written by one processor and verified by another:

python -m tests.study.elsewhere sqlite:///store.db
"""

from __future__ import annotations

import sys

import numpy as np

from safedial.study import transaction
from safedial.study.store import Store
from safedial.study.study import Study

GUARANTEE = {
    "threshold": 0.5,
    "violation_risk": 0.05,
    "estimation_risk": 0.05,
    "reward_noise": 0.1,
    "cost_noise": 0.1,
    "coefficient_bound": 1.0,
    "context_bound": 1.0,
    "fallback_action": 0.0,
}
CONFORMAL = {
    "threshold": 0.5,
    "violation_risk": 0.1,
    "guarantee": "conformal",
    "start_action": 0.1,
    "fallback_action": 0.0,
}
STUDENT = {"threshold": 0.5, "violation_risk": 0.1, "guarantee": "student", "start_action": 0.1, "lag": 4}
STUDIES = {
    "dialled": {
        **GUARANTEE,
        "dim": 3,
        "dial": {"high": 20, "unit": "mg"},
        "dose": {"curve": "hill", "ed50": 0.4},
        "guard": {"max_step": 6.0},
    },
    "levels": {**GUARANTEE, "dim": 3, "dial": {"high": 10, "levels": [1, 2, 5, 10]}, "learning_order": "arrival"},
    "self-normalised": {**GUARANTEE, "dim": 3, "radius": "self-normalised"},
    "stiff": {**GUARANTEE, "dim": 6, "ridge": 1e-3},
    "precise": {**GUARANTEE, "dim": 5, "ridge": 1e-6},
    "conformal": {**CONFORMAL, "dim": 4},
    "groups": {**CONFORMAL, "dim": 4, "groups": "none"},
    "coarse": {**CONFORMAL, "dim": 4},
    "student": {**STUDENT, "dim": 4, "ridge": 1.0},
    "anytime": {**STUDENT, "dim": 3, "estimation_risk": 0.05, "policy": {"name": "hp_student", "guarantee": "anytime"}},
}
"""`stiff`, `precise` and `student` have columns of unequal sizes, where rounding is amplified; `coarse` has
contexts and outcomes of few values, so that scores tie but for rounding.
"""


def write(storage: str, *, rounds: int = 50) -> None:
    """Every study, with outcomes of which one in seven comes late, and a correction."""
    transaction.SNAPSHOT_EVENTS = 40
    with Store(storage) as store:
        for name, spec in STUDIES.items():
            study = Study.create(name, spec, storage=store, actor="elsewhere")
            rng, dim, late, made = np.random.default_rng(1), spec["dim"], [], []
            scales = np.geomspace(1.0, 1e-3, dim) if "ridge" in spec else np.ones(dim)
            reward_coef, cost_coef = rng.standard_normal((2, dim)) / np.sqrt(2.0 * dim)
            for number in range(rounds):
                context = rng.standard_normal(dim) * scales
                context /= 1.001 * np.linalg.norm(context)
                if name == "coarse":
                    context = 0.4 * (context > 0.0)
                decision = study.ask(context.tolist())
                noise = 0.1 * rng.standard_normal(2)
                reward, cost = context @ reward_coef + noise[0], context @ cost_coef + noise[1]
                if name == "coarse":
                    reward, cost = 0.1, 0.3 * (cost > 0.0)
                made.append(decision.id)
                late.append((decision.id, float(decision.intensity * reward), float(decision.intensity * cost)))
                while late and (number % 7 or len(late) > 3):
                    told, *outcome = late.pop(0)
                    study.tell(told, reward=outcome[0], cost=outcome[1])
            study.correct(made[0], cost=0.05, reason="typing error")
            study.ask(context.tolist())


if __name__ == "__main__":
    write(sys.argv[1])
