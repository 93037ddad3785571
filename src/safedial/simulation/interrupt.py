"""Ctrl-C during `simulate`: the rounds end with their chunk, and the results so far are returned."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LOGGED = "safedial.simulation.logged"
"""The module that only hands on what `simulate` returns, with a log of its rounds."""


def calling_module(depth: int = 2) -> str:
    """The module that called the caller of this function, or that called `logged_simulation` if that did."""
    frame: Any = sys._getframe(depth)
    while frame.f_back is not None and frame.f_globals.get("__name__") == LOGGED:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))


@contextmanager
def noted_interrupt(caller: str) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; pressed again, it interrupts at once.

    Only for a call of the user's own, in the main thread. Where a module of this package is the caller, as for a sweep,
    a plan or a comparison, the whole of that ends as ever, so that no part of it is taken for a complete one.

    Args:
        caller: the name of the module that called.
    """
    inside = caller.startswith("safedial.") and not caller.startswith("safedial.cli.")
    before: Any = signal.getsignal(signal.SIGINT)
    if inside or threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False
        return
    pressed: list[int] = []

    def note(number: int, frame: Any) -> None:
        if pressed:
            before(number, frame)
        pressed.append(number)

    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
