"""How long one question and one outcome of an agent take, compared with the bare arithmetic; and after many rounds.

`bare` is the shortest BLAS code for the same arithmetic as `Agent`: direction, residual and the dot products of
bounds.rounding for a question; the same, two rank-one updates and two axpys for an outcome. An agent does less: it
reuses what it computed for the decision, and at high dimension it applies samples in small batches, so the mean of an
outcome says more than its median. Calls are interleaved, so that both run under the same load.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from safedial.errors import require
from safedial.model.spec import SafetySpec
from safedial.paper.synthetic import synthetic_spec
from safedial.policies import make_policy
from safedial.policies.estimates import daxpy, ddot, dnrm2, dsymv, dsyr
from safedial.rounds.agent import Agent

DECISIONS = 2000
"""Decisions of HP-Conformal that are timed."""


def bench_online(dim: int) -> dict[str, Any]:
    """Microseconds for `Agent.ask` and `Agent.tell` (hp_probe, unit noise), and for the bare arithmetic."""
    require(dim >= 1, "dim", dim, "must be a whole number >= 1")
    count = max(60, min(4000, 40_000_000 // dim**2))
    spec = synthetic_spec()
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((count, dim))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True) * (1.0 + 1e-9)
    noise = rng.standard_normal((count, 2))
    agent, bare = Agent(dim, spec), _Bare(dim)
    times = np.empty((4, count))
    clock = time.perf_counter
    for index in range(count):
        context, (reward, cost) = contexts[index], noise[index].tolist()
        start = clock()
        decision = agent.ask(context)
        decided = clock()
        agent.tell(context, decision.action, reward * decision.intensity, cost * decision.intensity)
        updated = clock()
        bare.ask(context)
        bare_decided = clock()
        bare.tell(context, reward, cost)
        times[:, index] = decided - start, updated - decided, bare_decided - updated, clock() - bare_decided
    ask, tell, bare_ask, bare_tell = times[:, count // 10 :] * 1e6
    return {
        "dim": dim,
        "rounds": count,
        **_agent_times(ask, tell),
        "bare_ask_us": float(np.median(bare_ask)),
        "bare_tell_us": float(np.median(bare_tell)),
        "tell_mean_us": float(np.mean(tell)),
        "both_p99_us": float(np.percentile(ask + tell, 99)),
    }


def bench_conformal(dim: int, *, rounds: int = 100_000) -> dict[str, Any]:
    """Microseconds for `Agent.ask` and `Agent.tell` after `rounds` rounds, and the refit before the first."""
    require(dim >= 1, "dim", dim, "must be a whole number >= 1")
    require(rounds >= 0, "rounds", rounds, "must be a whole number >= 0")
    spec = SafetySpec(threshold=0.5, violation_risk=0.02, guarantee="conformal")
    agent = Agent(dim, spec, policy=make_policy("hp_conformal", start_dose=0.05, history="calibrate"))
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((rounds + DECISIONS, dim)) / np.sqrt(dim)
    noise = rng.standard_normal((rounds + DECISIONS, 2))
    agent.tell_many(contexts[:rounds], np.full(rounds, 0.05), 0.05 * noise[:rounds, 0], 0.05 * noise[:rounds, 1])
    started = time.perf_counter()
    first = agent.ask(contexts[rounds])
    refit = time.perf_counter() - started
    agent.tell(first, reward=0.0, cost=0.0)
    times = np.empty((2, DECISIONS - 1))
    for index in range(1, DECISIONS):
        gain, harm = noise[rounds + index].tolist()
        start = time.perf_counter()
        decision = agent.ask(contexts[rounds + index])
        decided = time.perf_counter()
        agent.tell(decision, reward=gain * decision.intensity, cost=harm * decision.intensity)
        times[:, index - 1] = decided - start, time.perf_counter() - decided
    return {"dim": dim, "rounds": rounds, **_agent_times(*times * 1e6), "refit_ms": refit * 1e3}


def _agent_times(ask: Any, tell: Any) -> dict[str, float]:
    """What both benches say of an agent, from microseconds of each round."""
    times = {"ask_p50_us": np.median(ask), "ask_p99_us": np.percentile(ask, 99)}
    times["tell_p50_us"] = np.median(tell)
    return {name: float(value) for name, value in times.items()}


class _Bare:
    """The same arithmetic alone."""

    def __init__(self, dim: int) -> None:
        self.gram, self.inverse = np.asfortranarray(np.eye(dim)), np.asfortranarray(np.eye(dim))
        self.reward_rhs, self.cost_rhs, self.scale = np.zeros(dim), np.zeros(dim), np.ones(dim)

    def ask(self, context: Any) -> tuple[float, ...]:
        direction = dsymv(1.0, self.inverse, context, lower=1)
        residual = dsymv(-1.0, self.gram, direction, beta=1.0, y=context, lower=1)
        squared = ddot(context, direction) + ddot(direction, residual)
        loose = dnrm2(residual) + dnrm2(direction) + ddot(self.scale, np.abs(direction))
        reward, cost = ddot(direction, self.reward_rhs), ddot(direction, self.cost_rhs)
        upper = cost + 3.0 * math.sqrt(max(squared + 1e-16 * loose, 0.0))
        return reward, min(1.0, 0.5 / (min(upper, dnrm2(context)) + 3.03))

    def tell(self, context: Any, reward: float, cost: float) -> None:
        direction = dsymv(1.0, self.inverse, context, lower=1)
        residual = dsymv(-1.0, self.gram, direction, beta=1.0, y=context, lower=1)
        squared = ddot(context, direction) + ddot(direction, residual)
        dsyr(-1.0 / (1.0 + squared), direction, a=self.inverse, overwrite_a=1, lower=1)
        dsyr(1.0, context, a=self.gram, overwrite_a=1, lower=1)
        daxpy(context, self.reward_rhs, a=reward)
        daxpy(context, self.cost_rhs, a=cost)
        self.scale = np.sqrt(self.gram.diagonal())
