"""Processes that work on a study until they are killed, and write down what was acknowledged, as it is acknowledged.

`work` uses a store, or services over HTTP that `serve` runs. The file of acknowledgements is opened for appending and
written without a buffer, so a kill loses none of it.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from safedial.service.client import Client, ForkedLog, ServiceUnavailable
from safedial.study import study_errors
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StoreUnavailable

PATIENCE_SECONDS = 300.0

MOST_AMENDMENTS = 3
"""Of each caller: a log holds 100 at most."""

FORK = multiprocessing.get_context("forkserver")
"""Processes that start with everything imported."""
FORK.set_forkserver_preload(["tests.study.worker", "safedial.service.server"])


def work(url: str, acks: str, seed: int, place: str = "", rounds: int = 10**9, threads: int = 3) -> None:
    """Ask, tell, sometimes correct, void or amend, from several threads that share one store."""
    if place:
        study_errors.arm(place)
    with Store(url) as store:
        studies = [Study.open("trial", storage=store, actor=f"worker {seed * 100 + n}") for n in range(threads)]
        _call_all(studies, acks, seed, rounds)


def work_over_http(urls: Sequence[str], acks: str, seed: int, heads: str, threads: int = 4) -> None:
    """The same through clients, each of which keeps the last event that it saw in a file `heads`.NUMBER."""
    logging.disable()
    _call_all([Remote(urls[n % len(urls)], f"{heads}.{n}") for n in range(threads)], acks, seed, 10**9)


def serve(url: str, port: int) -> None:
    """One service, until it is killed."""
    from safedial.service import server

    server.serve(url, port=port, rate=1e6)


class Remote:
    """A study over HTTP, with the methods of `Study` that are called here."""

    def __init__(self, url: str, heads: str) -> None:
        self.client = Client(url, heads=heads, retries=0, timeout=20.0)

    def ask(self, context: list[float], *, key: str) -> Any:
        advice = self.client.ask("trial", context, key=key)
        if advice.fallback:
            self.client._check_head("trial", self.client.heads.get("trial"))
            raise ServiceUnavailable(advice.reason)
        return advice

    def tell(self, decision_id: str, **values: Any) -> Any:
        return SimpleNamespace(**self.client.tell(decision_id, **values))

    def correct(self, decision_id: str, *, key: str, **values: Any) -> Any:
        return SimpleNamespace(**self.client.correct(decision_id, **values))

    def void(self, decision_id: str, **words: Any) -> Any:
        return SimpleNamespace(**self.client.void(decision_id, **words))

    def amend(self, *, key: str, **words: Any) -> Any:
        answer = self.client._witness("trial", "POST", "/v1/studies/trial/amendment", words, key=key)
        return SimpleNamespace(**answer)


def _call_all(studies: list[Any], acks: str, seed: int, rounds: int) -> None:
    file = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    callers = [
        threading.Thread(target=_call, args=(study, file, seed * 100 + n, rounds)) for n, study in enumerate(studies)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()


def _call(study: Any, file: int, seed: int, rounds: int) -> None:
    rng = random.Random(seed)  # noqa: S311 -- a test's dice
    again = partial(_again, file)
    amendments = 0
    for number in range(rounds):
        context = [rng.uniform(-0.7, 0.7), rng.uniform(-0.7, 0.7)]
        decision = again(partial(study.ask, context, key=f"{seed}-{number}"))
        _acknowledge(file, "decided", decision.seq, decision.action)
        if rng.random() < 0.2:
            continue
        reward, cost = decision.intensity * rng.gauss(0.2, 0.2), decision.intensity * rng.gauss(0.1, 0.2)
        told = again(partial(study.tell, decision.id, reward=reward, cost=cost))
        _acknowledge(file, "outcome", told.seq, decision.seq)
        if rng.random() < 0.1:
            fix = partial(
                study.correct, decision.id, cost=0.5 * cost, reason="typing error", key=f"{seed}-{number}-fix"
            )
            changed = again(fix)
            _acknowledge(file, "correction", changed.seq, decision.seq)
        elif rng.random() < 0.05:
            gone = again(partial(study.void, decision.id, reason="wrong patient", unrelated=True))
            _acknowledge(file, "voided", gone.seq, decision.seq)
        elif rng.random() < 0.05 and amendments < MOST_AMENDMENTS:
            amendments += 1
            changes, key = {"threshold": rng.uniform(0.4, 0.6)}, f"{seed}-{number}-new"
            other = again(partial(study.amend, changes=changes, reason="a new guideline", key=key))
            _acknowledge(file, "amended", other.seq, changes["threshold"])


def _again(file: int, call: Callable[[], Any]) -> Any:
    """As a client does: a store that is locked for too long, on a busy machine, and a service that is away are asked
    again; each request repeats safely. Any other failure, a log that lacks what a client saw among them, is written
    down as an event that no log has, for `check` to find.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except (StoreUnavailable, ServiceUnavailable) as error:
            if isinstance(error, ForkedLog) or time.monotonic() > until:
                _acknowledge(file, type(error).__name__, 0, 0)
                raise
            time.sleep(0.1)
        except Exception as error:
            _acknowledge(file, type(error).__name__, 0, 0)
            raise


def _acknowledge(file: int, *words: object) -> None:
    os.write(file, (" ".join(map(repr, words)) + "\n").encode())


def acknowledged(acks: str) -> list[tuple[str, int, float]]:
    """(kind, seq, action or decision) of everything that was acknowledged; a last line cut short was not."""
    if not os.path.exists(acks):
        return []
    with open(acks, encoding="utf-8") as file:
        lines = [line.split() for line in file if line.endswith("\n")]
    return [(kind.strip("'"), int(seq), float(value)) for kind, seq, value in lines]
