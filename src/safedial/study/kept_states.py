"""Earlier states of a study that are kept in memory, for a replay to begin from (study/replay_log.py).

A replay for a change of a recent outcome should begin near that outcome, so states are kept often. A kept state shares
with the others what no event changes (rounds, samples, specifications, the rows of study/scatter.py); only the
containers and the learner's arrays are its own. Of older states, one is kept for each doubling of age.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple, TypeVar

import numpy as np

from safedial.decision.learners.kinds import make_learner
from safedial.study.scatter import Scatter
from safedial.study.state import State

KEPT_EVENTS, KEPT_BYTES = 32, 2_000
"""A state is kept after this many events, or one event for this many of its bytes if that is later."""

ROUND_BYTES, PHASE_BYTES = 100, 4_000
"""What a waiting round and a phase count as."""

NEVER = 2**62
"""Where the next state is kept, if none is to be."""

NOT_YET = 2**62
"""What a state knows that was replayed with changes which are not in the log yet."""

OF_LEARNING = ("learner", "queue", "held", "named", "_end")
"""What phases share if learning was kept between them."""

Shot = TypeVar("Shot")


class KeptState(NamedTuple):
    """The state after event `seq`. It knows every change of the past that the events up to `knows` brought: a replay
    for an event also keeps states from before that event. Nothing changes what it holds.
    """

    seq: int
    knows: int
    phases: list[State]
    """The latest first, without their learners."""
    learned: list[dict[str, Any] | None]
    """The arrays of each phase's learner; None where that is the learner of the phase before it."""

    @property
    def hash(self) -> bytes:
        return self.phases[0].hash

    @property
    def size(self) -> int:
        """About how many bytes are its own."""
        arrays = sum(each.nbytes for learned in self.learned if learned is not None for each in learned.values())
        return arrays + sum(map(_size, self.phases))

    def restored(self) -> State:
        """The state again, which events may change."""
        before: Any = None
        for phase, arrays in zip(reversed(self.phases), reversed(self.learned), strict=True):
            made = _copied(phase)
            made.before, made.earlier = before, [] if before is None else before.phases
            if arrays is None:
                vars(made).update({name: getattr(before, name) for name in OF_LEARNING})
            else:
                made.learner = make_learner(made.study.rules)
                made.learner.restore({name: each.copy() for name, each in arrays.items()})
            made.watch.learner = made.learner
            before = made
        return before


def kept_state(state: State, knows: int = 0) -> KeptState:
    """The state as it is now; `knows` if it knows more than the events up to its own brought."""
    phases = state.phases
    learned = [None if each.kept else _arrays(each) for each in phases]
    return KeptState(state.seq, max(knows, state.seq), [_copied(each) for each in phases], learned)


def keep(state: State, knows: int = 0) -> None:
    """Keep a state. The next is due later the larger it is."""
    kept = kept_state(state, knows)
    state.snapshots = [kept, *thinned(state.seq, state.snapshots, lambda each: each.seq, KEPT_EVENTS)]
    state.next_shot = state.seq + max(KEPT_EVENTS, kept.size // KEPT_BYTES)


def half_way(state: State, upto: int) -> int:
    """Where a replay keeps its next state: those that are closer together would soon be thinned out."""
    return state.seq + max(KEPT_EVENTS, (upto - state.seq) // 2)


def placed(kept: list[KeptState], knows: int) -> list[KeptState]:
    """States that were replayed with changes, when the last of these is the event `knows`."""
    return [each._replace(knows=knows) if each.knows == NOT_YET else each for each in kept]


def thinned(seq: int, shots: list[Shot], place: Callable[[Shot], int], unit: int) -> list[Shot]:
    """Of states before `seq`, the latest first, the oldest for each doubling of age, so that it can age further."""
    return list({((seq - place(shot)) // unit).bit_length(): shot for shot in shots}.values())


def _arrays(state: State) -> dict[str, Any]:
    return {name: np.array(value, order="C") for name, value in state.learner.state().items()}


def _copied(phase: State) -> State:
    """A phase with containers of its own, without the learner and what it shares with the phase before it."""
    left = OF_LEARNING if phase.kept else ("learner",)
    made, watch = object.__new__(State), copy(phase.watch)
    vars(made).update(
        {
            name: value.copy() if isinstance(value, (list, dict, deque, Scatter)) else value
            for name, value in vars(phase).items()
            if name not in left
        }
    )
    vars(watch).pop("learner", None)
    made.before, made.earlier, made.snapshots, made.watch = None, [], [], watch
    return made


def _size(phase: State) -> int:
    waiting = len(phase.open) + len(phase.expired) + (0 if phase.kept else len(phase.held) + len(phase.named))
    return PHASE_BYTES + ROUND_BYTES * waiting
