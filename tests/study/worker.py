"""A process that works on a study until it is killed, and writes down what was acknowledged, as it is acknowledged.

The file of acknowledgements is opened for appending and written without a buffer, so a kill loses none of it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import threading

from safedial.study import Store, failpoints, open_study

FORK = multiprocessing.get_context("forkserver")
"""Processes that start with everything imported."""
FORK.set_forkserver_preload(["tests.study.worker"])


def work(url: str, acks: str, seed: int, place: str = "", rounds: int = 10**9, threads: int = 3) -> None:
    """Ask, tell, sometimes correct or void, from several threads that share one store."""
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
        decision = study.ask(context, key=f"{seed}-{number}")
        _acknowledge(file, "decided", decision.seq, decision.action)
        if rng.random() < 0.2:
            continue
        reward, cost = decision.intensity * rng.gauss(0.2, 0.2), decision.intensity * rng.gauss(0.1, 0.2)
        told = study.tell(decision.id, reward=reward, cost=cost)
        _acknowledge(file, "outcome", told.seq, decision.seq)
        if rng.random() < 0.1:
            changed = study.correct(decision.id, cost=0.5 * cost, reason="typing error")
            _acknowledge(file, "correction", changed.seq, decision.seq)
        elif rng.random() < 0.05:
            gone = study.void(decision.id, reason="wrong patient", unrelated=True)
            _acknowledge(file, "voided", gone.seq, decision.seq)


def _acknowledge(file: int, *words: object) -> None:
    os.write(file, (" ".join(map(repr, words)) + "\n").encode())


def acknowledged(acks: str) -> list[tuple[str, int, float]]:
    """(kind, seq, action or decision) of everything that was acknowledged; a last line cut short was not."""
    if not os.path.exists(acks):
        return []
    with open(acks, encoding="utf-8") as file:
        lines = [line.split() for line in file if line.endswith("\n")]
    return [(kind.strip("'"), int(seq), float(value)) for kind, seq, value in lines]
