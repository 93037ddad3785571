"""Places at which a test may kill the process, to see that nothing acknowledged is lost.

SAFEDIAL_CRASH_AT=name kills the process, as `kill -9` does, the first time it comes to the place `name`;
SAFEDIAL_CRASH_AT=name:k the k-th time.
"""

from __future__ import annotations

import os
import signal

PLACES = ("locked", "inserted", "before_commit", "after_commit", "snapshot_written")
_name, _, _times = os.environ.get("SAFEDIAL_CRASH_AT", "").partition(":")
_left = [int(_times or 1)]


def reach(place: str) -> None:
    """Do nothing, unless the environment named this place."""
    if place == _name:
        _left[0] -= 1
        if _left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
