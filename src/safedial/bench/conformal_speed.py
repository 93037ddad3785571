"""How long one HP-Conformal decision takes after many rounds."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from safedial.agent import Agent
from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.policies import make_policy


def bench_conformal(dim: int, *, form: str = "split", rounds: int = 100_000, decisions: int = 2000) -> dict[str, Any]:
    """Microseconds for `Agent.decide` and `Agent.update` after `rounds` rounds, and the refit before the first."""
    require(dim >= 1, "dim", dim, "must be a whole number >= 1")
    require(rounds >= 0, "rounds", rounds, "must be a whole number >= 0")
    spec = SafetySpec(threshold=0.5, violation_risk=0.02, promise="conformal")
    agent = Agent(dim, spec, policy=make_policy("hp_conformal", form=form, start_dose=0.05, history="calibrate"))
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((rounds + decisions, dim)) / np.sqrt(dim)
    noise = rng.standard_normal((rounds + decisions, 2))
    agent.update_many(contexts[:rounds], np.full(rounds, 0.05), 0.05 * noise[:rounds, 0], 0.05 * noise[:rounds, 1])
    started = time.perf_counter()
    first = agent.decide(contexts[rounds])
    refit = time.perf_counter() - started
    agent.update(first, reward=0.0, cost=0.0)
    times = np.empty((2, decisions - 1))
    for index in range(1, decisions):
        gain, harm = noise[rounds + index].tolist()
        start = time.perf_counter()
        decision = agent.decide(contexts[rounds + index])
        decided = time.perf_counter()
        agent.update(decision, reward=gain * decision.intensity, cost=harm * decision.intensity)
        times[:, index - 1] = decided - start, time.perf_counter() - decided
    decide, update = times * 1e6
    return {
        "dim": dim,
        "form": form,
        "rounds": rounds,
        "decide_p50_us": float(np.median(decide)),
        "decide_p99_us": float(np.percentile(decide, 99)),
        "update_p50_us": float(np.median(update)),
        "refit_ms": refit * 1e3,
    }
