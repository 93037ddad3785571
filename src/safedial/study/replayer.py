"""Replays for events that change the past, in a thread of their own, so that no other write waits for them.

The writer hands such an event over before it appends it. The log is read and replayed with the change, while decisions
go on with the old values; then what was written meanwhile is applied. When little is left, the writer applies the rest
and appends the event, so that it counts from its place in the log on, as if the writer had replayed the log itself.

Changes of several rounds that wait together are one replay: their events follow each other in the log, and the guard
looks after the last of them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from safedial.study.database import reading
from safedial.study.log import read_head
from safedial.study.replay_log import Change, Kept, Source, extend, replay_again
from safedial.study.state import NEVER, State
from safedial.study.study_spec import StudySpec

FEW_EVENTS, MOST_ROUNDS = 256, 20
"""The writer applies the rest if there are so few events, or after so many attempts to catch up with it."""

WORK_SECONDS, PAUSE_SECONDS = 1e-3, 1e-4
"""A replay pauses so often and so long, so that threads that write and answer get the interpreter at once."""


class Ready(NamedTuple):
    """A state that was replayed with changes."""

    changes: tuple[Change, ...]
    state: State


class Task(NamedTuple):
    """Changes of `source`'s log, each for one of `jobs`; `kept` are states that this process kept before."""

    jobs: list[Any]
    source: Source
    spec: StudySpec
    kept: Kept
    changes: tuple[Change, ...]


class Replayer:
    """Replays one log after the other; `back` gets the jobs of a replay with their state, or with the error."""

    def __init__(self, engine: Any, back: Callable[[list[Any], Ready | Exception], None]) -> None:
        self._engine, self._back = engine, back
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, task: Task) -> None:
        """Replay a log later; called by one thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="safedial-replayer", daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def close(self) -> None:
        """Finish what waits."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                ready = replay_for(self._engine, task)
            except Exception as error:
                ready = error
            self._back(task.jobs, ready)


def replay_for(engine: Any, task: Task) -> Ready:
    """The state at the end of a task's log, or near it, with its changes."""
    with reading(engine) as connection:
        source = task.source._replace(connection=connection)
        head = read_head(connection, source.study).seq
        placed = [change._replace(seq=head + number) for number, change in enumerate(task.changes, start=1)]
        state = replay_again(source, task.spec, head, task.kept, changes=placed, pause=_Pauses())
    state.next_shot = NEVER
    for _ in range(MOST_ROUNDS):
        with reading(engine) as connection:
            source, head = task.source._replace(connection=connection), read_head(connection, source.study).seq
            further = extend(source, state, head, task.changes) if head > state.seq + FEW_EVENTS else None
        if further is None:
            break
        state = further
    return Ready(task.changes, state)


class _Pauses:
    def __init__(self) -> None:
        self.due = time.monotonic() + WORK_SECONDS

    def __call__(self) -> None:
        if time.monotonic() > self.due:
            time.sleep(PAUSE_SECONDS)
            self.due = time.monotonic() + WORK_SECONDS
