"""How many times one decision enters another file of the package: python -m benchmarks.file_switches

A switch is a Python call whose code lies in another file of the package than the last package code that called it. A
coroutine or generator that goes on after a pause is not called again. All threads of the process count, so that HTTP
requests are followed through the writer. Each figure is the median of 21 calls after a warm-up, with every outcome of
the earlier rounds known.
"""

from __future__ import annotations

import inspect
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import safedial
from safedial import Agent, SafetySpec
from safedial.service.client import Client

ROOT = str(Path(safedial.__file__).parent)
SPEC = {
    "threshold": 0.5,
    "total_risk": 0.02,
    "reward_noise": 0.3,
    "cost_noise": 0.3,
    "coefficient_bound": 1,
    "context_bound": 1,
}
CALLS = 21
PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Counter:
    """Counts while `active`; installed in every thread that starts after `install`."""

    def __init__(self) -> None:
        self.active, self.count, self.client = False, 0, 0
        self.files: set[str] = set()
        self.begun: set[FrameType] = set()

    def install(self) -> None:
        threading.setprofile(self._see)
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.active or event != "call" or threading.get_ident() == self.client:
            return
        here = frame.f_code.co_filename
        if here.startswith(ROOT) and frame not in self.begun:
            if frame.f_code.co_flags & PAUSES:
                self.begun.add(frame)
            self.files.add(here)
            self.count += here != _caller(frame)

    def measure(self, call: Callable[[], Any]) -> tuple[int, int]:
        """(switches, files) of one call, the median of several."""
        seen = []
        for number in range(3 + CALLS):
            self.count, self.files, self.begun, self.active = 0, set(), set(), number >= 3
            call()
            self.active = False
            seen.append((self.count, len(self.files)))
        return _median(seen[3:])


def _median(seen: list[tuple[int, int]]) -> tuple[int, int]:
    return int(statistics.median(each[0] for each in seen)), int(statistics.median(each[1] for each in seen))


def _caller(frame: FrameType) -> str:
    """The file of the nearest calling frame that is the package's own."""
    above = frame.f_back
    while above is not None and not above.f_code.co_filename.startswith(ROOT):
        above = above.f_back
    return "" if above is None else above.f_code.co_filename


def main() -> None:
    counter = Counter()
    counter.install()
    agent, context = Agent(4, SafetySpec(**SPEC)), [0.3, 0.2, 0.1, 0.4]
    made: list[Any] = []

    def ask() -> None:
        made.append(agent.ask(context))

    def tell() -> None:
        agent.tell(made.pop(0), reward=0.1, cost=0.05)

    found = {"Agent.ask": counter.measure(ask), "Agent.tell": counter.measure(tell)}
    from safedial.service.server import running
    from safedial.study.store import Store

    counter.client = threading.get_ident()  # what the client does is not the service's
    folder = tempfile.TemporaryDirectory()
    with folder, Store(f"sqlite:///{folder.name}/trial.db") as store, running(store) as address:
        client = Client(address)
        client.create_study("trial", {"dim": 4, "fallback_action": 0.0, **SPEC})
        asked: list[str] = []

        def ask() -> None:
            asked.append(client.ask("trial", context).id)

        def tell() -> None:
            client.tell(asked.pop(0), reward=0.1, cost=0.05)

        for name, call in (("HTTP ask", ask), ("HTTP tell", tell)):
            found[name] = counter.measure(call)
    for name, (switches, files) in found.items():
        print(f"{name:14} {switches:4d} file switches, {files:3d} files")


if __name__ == "__main__":
    main()
