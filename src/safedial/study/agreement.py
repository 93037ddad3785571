"""Does a log written by another processor or build agree with this one, up to rounding?

The same log gives the same bits in any process of one build on one machine. Elsewhere another BLAS kernel or
mathematical library rounds differently, and the learner's predictions differ in their last digits: by 1e-14 if the
ridge is as large as the contexts, by more if it is much smaller. From a prediction to a decision it takes only a few
well-conditioned operations. So a decision whose learner bounds its rounding (`Learner.rounding`) agrees if

* the numbers of its prediction agree within 1e-9, or within the learner's own bound on rounding (core.rounding) if that
  is more; and
* the decision recomputed from the recorded prediction has the same actions, within 1e-12, and the same other numbers,
  within 1e-9.

Any other decision is compared with the recomputed one, with the same two tolerances. Values that are not numbers must
be equal. A choice that depends on the last digits (a reward index within rounding of 0, evidence within rounding of an
alarm) may differ elsewhere; no tolerance can tell that from a changed log.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.decision.rounds import Asked
from safedial.study.event import canonical, orjson
from safedial.study.event_bodies import body_of, noted_in
from safedial.study.reducer import decide_next
from safedial.study.snapshot import parts
from safedial.study.state import State

ACTION, NUMBER, STATE = 1e-12, 1e-9, 1e-6
"""How far actions, other numbers of a decision, and numbers of a snapshot may differ, relative to 1 or their size."""

ACTIONS = ("action", "intensity", "safe_action")


class Agreement:
    """Compares a log with what is recomputed, event by event.

    `spent` is how much rounding may have added up since the last decision that was equal to the bit: ln det is a sum of
    ln(1 + ω·width²) over rounds, and the evidence against the noise is a sum too. Each round adds twice its width's
    tolerance, but no more than its term can be.
    """

    def __init__(self) -> None:
        self.spent = 0.0

    def exact(self) -> None:
        """Record that a decision was equal to the bit, including ln det."""
        self.spent = 0.0

    def on_decision(self, state: State, asked: Asked, again: dict[str, Any], body: dict[str, Any]) -> bool:
        """Whether a decision's recorded `body` equals the recomputed one, `again`, up to rounding."""
        learner = state.learner
        vector, norm, raw = asked.vector, asked.norm, body["context"]
        room = learner.rounding(vector, norm)
        if room is None:
            return _agrees(_plain(again), body)
        rules = state.study.rules
        self.spent += min(2.0 * room, math.log1p(norm * norm / rules.spec.ridge))
        for own, stated in zip(_linear(_plain(again["prediction"])), _linear(body["prediction"]), strict=True):
            if not _close(own.pop("log_det"), stated.pop("log_det"), NUMBER, self.spent) or not _close(
                own, stated, NUMBER, room
            ):
                return False
        seen = learner.reread(rules, body["prediction"], vector, norm)
        follows = decide_next(state, asked, raw, seen=seen)
        return _agrees(_plain(body_of(follows, raw, state, noted_in(body))), body)

    def on_snapshot(self, state: State, mine: bytes, theirs: bytes) -> bool:
        """Whether a snapshot equals the state up to rounding: every number within 1e-6, or `spent` if that is more."""
        try:
            (head, arrays), (other, others) = parts(mine), parts(theirs)
            near = all(_near(own, others[name], STATE + self.spent) for name, own in arrays.items())
            return near and _close(head, other, NUMBER, self.spent)
        except (LookupError, TypeError, ValueError):
            return False


def _near(a: NDArray[Any], b: NDArray[Any], share: float) -> bool:
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    size = max(1.0, np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return np.allclose(a, b, rtol=0.0, atol=share * size, equal_nan=True)


def _linear(written: dict[str, Any]) -> list[dict[str, Any]]:
    """The numbers of a linear prediction, or of each cost's."""
    each = [part["prediction"] for part in written["costs"].values()] if "costs" in written else [written]
    return [dict(numbers) for numbers in each]


def _plain(stated: dict[str, Any]) -> dict[str, Any]:
    """The values as they are read from a log."""
    return orjson.loads(canonical(stated))


def _agrees(again: dict[str, Any], body: dict[str, Any]) -> bool:
    names = again.keys() - {"version"}
    return names == body.keys() - {"version"} and all(
        _close(again[name], body[name], ACTION if name in ACTIONS else NUMBER) for name in names
    )


def _close(a: Any, b: Any, tolerance: float, room: float = 0.0) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_close(a[name], b[name], tolerance, room) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_close(*pair, tolerance, room) for pair in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= tolerance * max(1.0, abs(a), abs(b)) + room
    return a == b
