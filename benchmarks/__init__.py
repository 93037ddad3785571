"""What is measured about safedial and not shipped with it: timings beside the plain arithmetic, the power of checks,
the arena, and our own figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def seconds_of(work: Callable[[], Any]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
