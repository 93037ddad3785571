"""A state as bytes and back, bit for bit, without pickle: a line of JSON, then the bytes of the arrays it lists.

The same state gives the same bytes in any process, so their SHA-256 identifies the state.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from safedial.study.event import canonical, orjson
from safedial.study.state import State
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import StudySpec

FORMAT = 1
OWN = ("seq", "stop_reason", "new_decisions", "corrected_violations", "resumes", "rounds_before", "amendments")
"""What a study's state has beside its rounds."""

EARLIER = "before."
"""What the arrays of an earlier phase begin with. If learning was kept, what was learned, and what waits, is there."""


def pack(state: State) -> bytes:
    """Everything the next event needs."""
    head, plain = _contents(state)
    head["arrays"] = [[name, value.dtype.str, list(value.shape)] for name, value in plain.items()]
    return b"".join([canonical(head).encode(), b"\n", *(np.ascontiguousarray(each).data for each in plain.values())])


def _contents(state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """(plain values, arrays) of a state, with those of the phases before it."""
    told, arrays = state.packed(learned=not state.kept)
    head = {"format": FORMAT, "hash": state.hash.hex(), "since": state.study.since, "rounds": told}
    head |= {name: getattr(state, name) for name in OWN}
    plain = {name: np.asarray(value) for name, value in arrays.items()} | {"recent": np.array(state.recent, dtype=bool)}
    if state.before is not None:
        earlier, its_arrays = _contents(state.before)
        head |= {"kept": state.kept, "before": earlier}
        plain |= {f"{EARLIER}{name}": value for name, value in its_arrays.items()}
    return head, plain


def unpacked(study: StudySpec, content: bytes) -> State | None:
    """`unpack`, or None if the bytes are not a snapshot of this study; the log is then replayed without it."""
    try:
        return unpack(study, content)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def parts(content: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """(plain values, arrays) of a snapshot."""
    line, _, rest = content.partition(b"\n")
    head = orjson.loads(line)
    if head["format"] != FORMAT:
        raise StudyError("wrong_schema", f"snapshot: has format {head['format']}; this safedial reads {FORMAT}")
    arrays: dict[str, Any] = {}
    at = 0
    for name, kind, shape in head["arrays"]:
        dtype = np.dtype(kind)
        size = int(np.prod(shape)) * dtype.itemsize
        arrays[name] = np.frombuffer(rest, dtype, count=int(np.prod(shape)), offset=at).reshape(shape).copy()
        at += size
    return head, arrays


def unpack(study: StudySpec, content: bytes) -> State:
    """The state that `pack` wrote, for the same study."""
    return _state(study, *parts(content))


def _state(study: StudySpec, head: dict[str, Any], arrays: dict[str, Any]) -> State:
    """The state of `_contents`; `study` is its specification, or one that came of it by amendments."""
    study = {spec.since: spec for spec in study.chain}[head["since"]]
    before = None
    if "before" in head:
        start = len(EARLIER)
        its_arrays = {name[start:]: value for name, value in arrays.items() if name.startswith(EARLIER)}
        before = _state(study, head["before"], its_arrays)
    state = State(study, before, kept=head.get("kept", False))
    for name in OWN:
        setattr(state, name, head[name])
    state.hash = bytes.fromhex(head["hash"])
    state.restore(head["rounds"], arrays, learned=not state.kept)
    state.recent.extend(arrays["recent"].tolist())
    return state


def state_digest(state: State) -> str:
    """The SHA-256 of a state: equal exactly if the states are."""
    return hashlib.sha256(pack(state)).hexdigest()
