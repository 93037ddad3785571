"""How fast the non-linear classes are, beside a scikit-learn Gaussian process that is refitted in each round.

Finite: rounds per second of a whole simulation, one seed. Kernel: a decision and its update after `points` rounds.
scikit-learn's process has the same kernel and noise, no hyperparameter search, and both targets in one fit: what a user
would write instead. Calls are interleaved, so that both run under the same load.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from safedial.errors import import_extra, require
from safedial.model.dose import as_dose
from safedial.paper.synthetic import synthetic_spec
from safedial.policies import nonlinear_hp_ucb
from safedial.policies.classes import finite, kernel
from safedial.policies.policy import KNOWN, Asked, Task, Told
from safedial.simulation.nonlinear_worlds import NonlinearWorld, waves
from safedial.simulation.run import simulate


def bench_nonlinear(
    *, functions: int = 10_000, rounds: int = 4000, points: int = 2000, refits: int = 8
) -> dict[str, Any]:
    """Rounds per second, milliseconds, and their ratio to scikit-learn's."""
    require(points >= 10, "points", points, "must be a whole number >= 10")
    gaussian_process = import_extra("sklearn.gaussian_process", "dev")
    world = NonlinearWorld(kind="finite", dim=2, functions=functions)
    policy = nonlinear_hp_ucb(cost_class=finite(waves(2, functions)))
    fast = simulate(policy, world, synthetic_spec(), rounds=rounds, seeds=1).rounds_per_second
    rng = np.random.default_rng(0)
    contexts, outcomes = rng.uniform(-0.7, 0.7, (points + refits, 2)), rng.standard_normal((points + refits, 2))
    mine, process = _Kernel(points + refits), _process(gaussian_process)
    for index in range(points):
        mine.round(contexts[index], outcomes[index])
    times = np.empty((2, refits))
    for step in range(refits):
        index, start = points + step, time.perf_counter()
        mine.round(contexts[index], outcomes[index])
        middle = time.perf_counter()
        process.fit(contexts[:index], outcomes[:index])
        process.predict(contexts[index : index + 1], return_std=True)
        times[:, step] = middle - start, time.perf_counter() - middle
    ours, theirs = (float(np.median(row)) * 1e3 for row in times)
    return {
        "functions": functions,
        "finite_rounds_per_second": fast,
        "points": points,
        "kernel_decide_and_update_ms": ours,
        "sklearn_refit_ms": theirs,
        "ratio": theirs / ours,
    }


class _Kernel:
    """Non-linear HP-UCB over the kernel class, one round at a time."""

    def __init__(self, most: int) -> None:
        policy = nonlinear_hp_ucb(cost_class=kernel(max_points=most))
        self.policy = policy.on(Task(dim=2, spec=synthetic_spec(), dose=as_dose(None)))
        self.state, self.number = self.policy.init(), 0

    def round(self, context: Any, outcome: Any) -> None:
        asked = Asked(context, float(np.linalg.norm(context)), float(self.number + 1))
        bound = self.policy.bound(self.state, asked)
        self.policy.open(self.state, asked, bound, self.policy.choose(bound, asked))
        told = Told(KNOWN, outcome[0], outcome[1], 1.0, outcome[1], 0.0, 1.0, 1.0, context)
        self.policy.tell(self.state, self.number, told)
        self.number += 1


def _process(module: Any) -> Any:
    return module.GaussianProcessRegressor(module.kernels.RBF(0.5), alpha=1.0, optimizer=None)
