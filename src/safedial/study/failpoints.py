"""Places at which a test may kill the process, to see that nothing acknowledged is lost.

SAFEDIAL_CRASH_AT=name kills the process, as `kill -9` does, the first time it comes to the place `name`;
SAFEDIAL_CRASH_AT=name:k the k-th time.
"""

from __future__ import annotations

import os
import signal

PLACES = ("locked", "inserted", "before_commit", "after_commit", "snapshot_written")
armed: dict[str, int] = {}
"""Place -> how many times it may still be passed; empty outside tests, so that a write need not call `hit`."""


def arm(words: str) -> None:
    """Die at the place that "name" or "name:k" says."""
    name, _, times = words.partition(":")
    armed[name] = int(times or 1)


def hit(place: str) -> None:
    """Do nothing, unless this place was named."""
    if place in armed:
        armed[place] -= 1
        if armed[place] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


if "SAFEDIAL_CRASH_AT" in os.environ:
    arm(os.environ["SAFEDIAL_CRASH_AT"])
