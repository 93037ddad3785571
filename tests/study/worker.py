"""A process that works on a study until it is killed, and writes down what was acknowledged, as it is acknowledged.

The file of acknowledgements is opened for appending and written without a buffer, so a kill loses none of it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from safedial.study import Store, StoreUnavailable, failpoints, open_study

FORK = multiprocessing.get_context("forkserver")
"""Processes that start with everything imported."""
FORK.set_forkserver_preload(["tests.study.worker"])


def work(url: str, acks: str, seed: int, place: str = "", rounds: int = 10**9, threads: int = 3) -> None:
    """Ask, tell, sometimes correct, void or amend, from several threads that share one store."""
    if place:
        failpoints.arm(place)
    file = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Store(url) as store:
        callers = [threading.Thread(target=_call, args=(store, file, seed * 100 + n, rounds)) for n in range(threads)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()


def _call(store: Store, file: int, seed: int, rounds: int) -> None:
    study = open_study("trial", storage=store, actor=f"worker {seed}")
    rng = random.Random(seed)  # noqa: S311 -- a test's dice
    for number in range(rounds):
        context = [rng.uniform(-0.7, 0.7), rng.uniform(-0.7, 0.7)]
        decision = _again(partial(study.ask, context, key=f"{seed}-{number}"))
        _acknowledge(file, "decided", decision.seq, decision.action)
        if rng.random() < 0.2:
            continue
        reward, cost = decision.intensity * rng.gauss(0.2, 0.2), decision.intensity * rng.gauss(0.1, 0.2)
        told = _again(partial(study.tell, decision.id, reward=reward, cost=cost))
        _acknowledge(file, "outcome", told.seq, decision.seq)
        if rng.random() < 0.1:
            fix = partial(
                study.correct, decision.id, cost=0.5 * cost, reason="typing error", key=f"{seed}-{number}-fix"
            )
            changed = _again(fix)
            _acknowledge(file, "correction", changed.seq, decision.seq)
        elif rng.random() < 0.05:
            gone = _again(partial(study.void, decision.id, reason="wrong patient", unrelated=True))
            _acknowledge(file, "voided", gone.seq, decision.seq)
        elif rng.random() < 0.05:
            changes, key = {"threshold": rng.uniform(0.4, 0.6)}, f"{seed}-{number}-new"
            other = _again(partial(study.amend, changes=changes, reason="a new guideline", key=key))
            _acknowledge(file, "amended", other.seq, changes["threshold"])


def _again(call: Callable[[], Any]) -> Any:
    """As a client does: a store that is locked for too long, on a busy machine, is asked again; each request repeats
    safely.
    """
    for _ in range(100):
        try:
            return call()
        except StoreUnavailable:
            time.sleep(0.1)
    return call()


def _acknowledge(file: int, *words: object) -> None:
    os.write(file, (" ".join(map(repr, words)) + "\n").encode())


def acknowledged(acks: str) -> list[tuple[str, int, float]]:
    """(kind, seq, action or decision) of everything that was acknowledged; a last line cut short was not."""
    if not os.path.exists(acks):
        return []
    with open(acks, encoding="utf-8") as file:
        lines = [line.split() for line in file if line.endswith("\n")]
    return [(kind.strip("'"), int(seq), float(value)) for kind, seq, value in lines]
