"""Places at which a test may kill the process, to check that nothing acknowledged is lost.

SAFEDIAL_CRASH_AT=name kills the process, as `kill -9` does, when it first reaches the place `name`;
SAFEDIAL_CRASH_AT=name:k the k-th time.
"""

from __future__ import annotations

import os
import signal

PLACES = ("locked", "inserted", "before_commit", "after_commit", "snapshot_written")
armed: dict[str, int] = {}
"""Place -> how many more times it may be reached; empty outside tests, so that a write need not call `hit`."""


def arm(words: str) -> None:
    """Arm the place of "name" or "name:k"."""
    name, _, times = words.partition(":")
    armed[name] = int(times or 1)


def hit(place: str) -> None:
    """Kill the process if this place is armed; otherwise do nothing."""
    if place in armed:
        armed[place] -= 1
        if armed[place] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


if "SAFEDIAL_CRASH_AT" in os.environ:
    arm(os.environ["SAFEDIAL_CRASH_AT"])
