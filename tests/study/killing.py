"""kill -9 at random, of processes that have a store open or serve it; what must be true after each."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC
from tests.study.worker import FORK, acknowledged, serve, work, work_over_http

LOOSE = {**SPEC, "fallback_action": 0.0, "guard": {"alarm_level": 1e-4}}


def prepare(url: str) -> None:
    with Store(url) as store:
        Study.create("trial", LOOSE, storage=store)


def check(url: str, acks: str, heads: list[str] | None = None) -> int:
    """Every acknowledged event is in the log as it was acknowledged, the log is whole, and the events that clients saw
    last are in it; how many were acknowledged.
    """
    told, seen = acknowledged(acks), heads or []
    with Store(url) as store:
        study = Study.open("trial", storage=store)
        report = study.verify()
        assert report.ok, report
        events = {}
        page = {"next_seq": 1, "events": [None]}
        while page["events"]:
            page = study.events(page["next_seq"], 10_000)
            events |= {event["seq"]: event for event in page["events"]}
    for kind, seq, value in told:
        assert seq in events, f"{kind} {seq} was acknowledged, and the log lacks it"
        assert events[seq]["kind"] == kind
        about, body = events[seq]["decision_id"], events[seq]["body"]
        stated = body["spec"]["threshold"] if kind == "amended" else body.get("action")
        assert (stated if about is None else int(about.split(".")[1])) == value
    for head in seen:
        seq, _, name = head.partition(":")
        assert events[int(seq)]["hash"] == name, f"a client saw {head}, which the log lacks"
    return len(told)


def kill_at_random(
    url: str,
    folder: Path,
    *,
    kills: int,
    workers: int,
    seed: int = 7,
    served: bool = False,
    longest: float = 0.1,
    after: Callable[[int], None] = lambda _: None,
) -> int:
    """Kill `kills` times, at random moments, all of the workers that write to a new study; with `served` the services
    that clients ask, one of them or all. A turn ends `longest` seconds after its first answers at most. Returns how
    many events were acknowledged; `after` is told that number after each kill.
    """
    prepare(url)
    acks, heads, dice = str(folder / "acks"), folder / "head", random.Random(seed)  # noqa: S311 -- a test's dice
    ports = [_free_port() for _ in range(workers)] if served else []
    clients = _clients(ports, acks, seed, heads)
    running: dict[int, Any] = {}
    seen = 0
    try:
        for turn in range(kills):
            for number in set(range(workers)) - set(running):
                target, words = (
                    (serve, (url, ports[number])) if served else (work, (url, acks, workers * turn + number))
                )
                running[number] = FORK.Process(target=target, args=words)
                running[number].start()
            until = time.monotonic() + 60
            while not all(map(_answers, ports)) and time.monotonic() < until:
                time.sleep(0.01)
            while _lines(acks) < seen + 5 * workers and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(dice.uniform(0.0, longest))
            one = served and workers > 1 and dice.random() < 0.5
            for number in [dice.randrange(workers)] if one else list(running):
                _kill(running.pop(number))
            _signal(clients, signal.SIGSTOP)  # otherwise a log grows by as much as its check takes long
            now = check(url, acks, _seen(heads))
            _signal(clients, signal.SIGCONT)
            assert now > seen
            seen = now
            after(seen)
    finally:
        for process in (*clients, *running.values()):
            _kill(process)
    return check(url, acks, _seen(heads))


def _clients(ports: list[int], acks: str, seed: int, heads: Path) -> list[Any]:
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    made = [FORK.Process(target=work_over_http, args=(urls, acks, seed, str(heads)))] if urls else []
    for process in made:
        process.start()
    return made


def _signal(processes: list[Any], number: int) -> None:
    for process in processes:
        os.kill(process.pid, number)


def _kill(process: Any) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def _lines(acks: str) -> int:
    """How many were acknowledged, without reading what: that takes time from the services."""
    file = Path(acks)
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _seen(heads: Path) -> list[str]:
    """The last event that each client has seen, SEQ:HASH."""
    return [json.loads(file.read_text())["trial"] for file in heads.parent.glob(f"{heads.name}.[0-9]")]


def _answers(port: int) -> bool:
    """Whether a service listens: one that was killed again before that would never be asked."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    """Below those that the system gives to outgoing connections, which could take it while its service is killed."""
    while True:
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", random.SystemRandom().randrange(15_000, 32_000)))
            return free.getsockname()[1]
