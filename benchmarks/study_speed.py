"""How fast a study answers, and how fast its log is verified and replayed.

`bench_load` lets threads ask (and, in a second run, also tell) on one study: every answer comes after its commit, and
callers that wait at the same time share one commit. `bench_log` fills a study with rounds, of which one in 20 has no
outcome and one in 100 a corrected one, and times, in one run: the hash chain alone, the whole verification with every
decision recomputed (by one process and by two), rebuilding the state from the first event, and rebuilding it from a
snapshot.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks import seconds_of
from safedial.errors import require
from safedial.model.spec import CONSTANTS
from safedial.study.answer import read_id
from safedial.study.database import reading
from safedial.study.operations import ask, expire, tell
from safedial.study.reducer import Noted
from safedial.study.replay_log import Source, load_state, replay
from safedial.study.requests import read_request
from safedial.study.snapshot import pack
from safedial.study.state import State
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.verify import verify_log

PAIRS = 2_000
"""Rounds in one transaction while a log is filled."""


def study_spec(dim: int) -> dict[str, Any]:
    """The paper's constants, in `dim` dimensions, with room for open outcomes."""
    paper = {"threshold": 0.5, "violation_risk": 0.01, "estimation_risk": 0.01, **dict.fromkeys(CONSTANTS, 1.0)}
    return {"dim": dim, **paper, "fallback_action": 0.0, "guard": {"max_open": 10**9, "alarm_level": 1e-4}}


def bench_load(storage: str | None, *, dim: int, decisions: int, threads: int) -> dict[str, Any]:
    """Decisions per second with `threads` callers, alone and each followed by its outcome."""
    require(decisions >= threads >= 1, "threads", threads, "must be at least 1 and at most the decisions")
    report: dict[str, Any] = {"dim": dim, "threads": threads, "decisions": decisions}
    with _opened(storage) as store:
        for name, outcome in (("asks", False), ("rounds", True)):
            study = Study.create(f"load-{name}-{time.time_ns()}", study_spec(dim), storage=store)
            waits, seconds, processor = _drive(study, decisions, threads, outcome)
            report |= {
                f"{name}_per_second": decisions / seconds,
                f"{name}_processor_us": processor / decisions * 1e6,
                f"{name}_p50_ms": float(np.median(waits)) * 1e3,
                f"{name}_p99_ms": float(np.percentile(waits, 99)) * 1e3,
            }
    return report


def bench_log(
    storage: str | None, *, dim: int, events: int, progress: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Fill a study with `events` events, then verify and replay it; rates are per second, times in seconds."""
    require(events >= 10, "events", events, "must be at least 10")
    rounds = (events - 1) * 100 // 201
    with _opened(storage) as store:
        study = Study.create(f"log-{time.time_ns()}", study_spec(dim), storage=store)
        filled = seconds_of(lambda: _fill(study, rounds, progress))
        with reading(store.engine) as connection:
            source = Source(connection, study._id, study.name)
            chain, chained = seconds_of(lambda: verify_log(source, recompute=False)), study.status()["seq"]
            alone = seconds_of(lambda: require(verify_log(source).ok, "study", study.name, "must verify"))
            states: list[State] = []
            cold = seconds_of(lambda: states.append(replay(source, study.spec, stored=())))
            warm = seconds_of(lambda: states.append(load_state(source, study.spec)))
        require(pack(states[0]) == pack(states[1]), "snapshot", study.name, "must give the same state as the whole log")
    return {
        "dim": dim,
        "events": chained,
        "filled_rounds_per_second": rounds / filled,
        "chain_events_per_second": chained / chain,
        "verified_events_per_second": chained / alone,
        "recomputed_decisions_per_second": rounds / alone,
        "cold_fold_seconds": cold,
        "snapshot_fold_seconds": warm,
    }


def _fill(study: Study, rounds: int, progress: Callable[[int], None] | None) -> None:
    rng = np.random.default_rng(0)
    for start in range(0, rounds, PAIRS):
        count = min(PAIRS, rounds - start)
        contexts, noise = _contexts(rng, count, study.spec.rules.dim), rng.standard_normal((count, 2)).tolist()
        read = [read_request(study.spec.rules, context, Noted()) for context in contexts]

        def work(transaction: Any, read: Any = read, noise: Any = noise) -> list[tuple[str, float]]:
            misread = []
            for asked, (reward, cost) in zip(read, noise, strict=True):
                made = ask(transaction, lambda _, asked=asked: asked, actor="bench")
                if made.decision.round % 20 == 0:
                    expire(transaction, [read_id(made.id)], unrelated=True, reason="lost", actor="bench")
                    continue
                body = {"applied_action": None, "throttled": False}
                body |= {"reward": reward * made.intensity, "cost": cost * made.intensity}
                tell(transaction, read_id(made.id), lambda _, body=body: body, actor="bench")
                if made.decision.round % 100 == 1:
                    misread.append((made.id, 0.9 * body["cost"]))
            return misread

        misread = study.store.submit(study._id, study.name, work).result()
        corrections = [study.correct(each, cost=cost, reason="misread", wait=False) for each, cost in misread]
        for receipt in corrections:  # together, so that they are one replay
            receipt.result()
        if progress:
            progress(count)


def _drive(study: Study, decisions: int, threads: int, outcome: bool) -> tuple[Any, float, float]:
    """(seconds each caller waited, seconds in all, processor seconds)."""
    contexts = _contexts(np.random.default_rng(1), decisions, study.spec.rules.dim)
    waits = np.zeros(decisions)

    def call(first: int) -> None:
        for number in range(first, decisions, threads):
            started = time.perf_counter()
            made = study.ask(contexts[number], key=f"{first}-{number}")
            waits[number] = time.perf_counter() - started
            if outcome:
                study.tell(made.id, reward=0.1 * made.intensity, cost=0.1 * made.intensity)

    callers = [threading.Thread(target=call, args=(first,)) for first in range(threads)]
    processor, started = time.process_time(), time.perf_counter()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return waits, time.perf_counter() - started, time.process_time() - processor


def _contexts(rng: np.random.Generator, count: int, dim: int) -> list[list[float]]:
    rows = rng.standard_normal((count, dim))
    return (rows / (np.linalg.norm(rows, axis=1, keepdims=True) * (1.0 + 1e-9))).tolist()


@contextmanager
def _opened(storage: str | None) -> Iterator[Store]:
    """The store at a URL, or a new one in a temporary folder."""
    if storage is not None:
        with Store(storage) as store:
            yield store
        return
    with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/bench.db") as store:
        yield store
