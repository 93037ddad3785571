"""The errors of a study, with codes for programs. A call that raised one of these changed nothing.

A test may kill the process at named places, to check that nothing acknowledged is lost: SAFEDIAL_CRASH_AT=name kills
the process, as `kill -9` does, when it first reaches the place `name`; SAFEDIAL_CRASH_AT=name:k the k-th time.
"""

from __future__ import annotations

import os
import signal

from safedial.errors import InvalidInput

MEANINGS = {
    "invalid_input": "the request breaks a rule of the study",
    "not_finite": "a number is missing, not a number, or not finite",
    "wrong_dimension": "the context does not have the study's dimension",
    "wrong_features": "the context lacks a feature or has an unknown one",
    "context_out_of_bounds": "the context is longer than the study's context_bound",
    "out_of_range": "a feature lies outside its stated range",
    "unknown_study": "there is no study of that name",
    "unknown_decision": "there is no such decision in this study",
    "unknown_key": "there is no such key",
    "unknown_unit": "no decision of this study has that unit",
    "unknown_visit": "no decision has that visit",
    "visit_taken": "the visit already has a decision",
    "study_exists": "there already is a study of that name",
    "conflict": "the decision already has a different answer; use a correction",
    "key_reused": "the idempotency key was used for another request",
    "reason_required": "this needs a reason",
    "other_rule": "another rule has stopped the study; look at its status again",
    "other_study": "the checkpoint is of another study",
    "log_broken": "the log is inconsistent; verify it",
    "store_unavailable": "the store cannot be reached, is locked or is full; nothing was written",
    "wrong_schema": "the store was made by another version",
    "own_policy": "the study's policy is defined in its author's Python code; open the study there",
}
"""Every code, in words that contain no values."""


class StudyError(InvalidInput):
    """A request that a study refuses; `code` is a key of `MEANINGS`.

    >>> StudyError("unknown_study", "name = 'x': there is no such study").code
    'unknown_study'
    """

    def __init__(self, code: str, message: str, *, public: str = "") -> None:
        super().__init__(message, code, public=public)


class StoreUnavailable(StudyError):
    """The store is unreachable, locked, full or broken. The request was not written, or not acknowledged."""

    def __init__(self, message: str) -> None:
        super().__init__("store_unavailable", message)


# --- Places at which a test may kill the process, to check that nothing acknowledged is lost

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
