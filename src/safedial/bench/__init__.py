"""Benchmarks for `safedial bench`: timings beside the plain arithmetic, and power studies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def seconds_of(work: Callable[[], Any]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
