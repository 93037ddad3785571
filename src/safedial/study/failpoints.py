"""Places at which a test may kill the process, to see that nothing acknowledged is lost.

SAFEDIAL_CRASH_AT=name kills the process, as `kill -9` does, the first time it comes to the place `name`;
SAFEDIAL_CRASH_AT=name:k the k-th time.
"""

from __future__ import annotations

import os
import signal

PLACES = ("locked", "inserted", "before_commit", "after_commit", "snapshot_written")
_left: dict[str, int] = {}


def arm(words: str) -> None:
    """Die at the place that "name" or "name:k" says."""
    name, _, times = words.partition(":")
    _left[name] = int(times or 1)


def hit(place: str) -> None:
    """Do nothing, unless this place was named."""
    if _left and place in _left:
        _left[place] -= 1
        if _left[place] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("SAFEDIAL_CRASH_AT", "nowhere"))
