"""A state as bytes and back, bit for bit, without pickle: a line of JSON, then the bytes of the arrays it lists.

The same state gives the same bytes in any process, so their SHA-256 identifies the state.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from safedial.policies.estimates import dnrm2
from safedial.rounds import watch
from safedial.rounds.outcome import Round, Sample, joined
from safedial.rounds.rules import Rules
from safedial.study.event import canonical, orjson
from safedial.study.state import State
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import StudySpec

FORMAT = 1
WIDTH = len(Sample._fields)
COUNTS = ("seq", "rounds", "imported", "outcomes", "violations", "void", "new_decisions", "new_void")
FLAGS = ("frozen", "broken", "stop_reason", "last_action", "corrected_violations", "last_known")
LISTS = ("resumes", "rounds_before", "amendments")
EARLIER = "before."
"""What the arrays of an earlier phase begin with. If learning was kept, what was learned, and what waits, is there."""


def pack(state: State) -> bytes:
    """Everything the next event needs."""
    head, plain = _contents(state)
    head["arrays"] = [[name, value.dtype.str, list(value.shape)] for name, value in plain.items()]
    return b"".join([canonical(head).encode(), b"\n", *(np.ascontiguousarray(each).data for each in plain.values())])


def _contents(state: State) -> tuple[dict[str, Any], dict[str, Any]]:
    """(plain values, arrays) of a state, with those of the phases before it."""
    arrays = {
        **({} if state.kept else {f"learning.{name}": value for name, value in state.learning.state().items()}),
        **_waiting(state, "open", state.open),
        **_waiting(state, "expired", state.expired),
        **({} if state.kept else _learned_later(state)),
        "recent": np.array(state.recent, dtype=bool),
        "monitor": state.watch.packed(),
    }
    if state.study.rules.policy.names_rounds and not state.kept:
        parts = [name.split(".") for name in state.named]
        arrays["named.seqs"] = np.array([int(seq) for seq, _ in parts], dtype=np.int64)
        arrays["named.tags"] = np.array([tag for _, tag in parts], dtype="S8")
    plain = {name: np.asarray(value) for name, value in arrays.items()}
    head = {
        "format": FORMAT,
        "hash": state.hash.hex(),
        "since": state.study.since,
        **{name: getattr(owner, name) for owner, name in _plain_values(state)},
    }
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
    for owner, name in _plain_values(state):
        setattr(owner, name, head[name])
    state.hash = bytes.fromhex(head["hash"])
    if not state.kept:
        _restore_learned(state, arrays)
    state.open, state.expired = (_rounds(arrays, name) for name in ("open", "expired"))
    state.recent.extend(arrays["recent"].tolist())
    state.watch.unpack(arrays["monitor"])
    return state


def _restore_learned(state: State, arrays: dict[str, Any]) -> None:
    """What phases share if learning was kept between them."""
    state.learning.restore({name[9:]: value for name, value in arrays.items() if name.startswith("learning.")})
    held = _rounds(arrays, "held")
    fates, samples = arrays["held.fates"].tolist(), arrays["held.samples"].tolist()
    state.held = {
        seq: (round_, None if gone else _sample(state.study.rules, sample), lost)
        for (seq, round_), (gone, lost), sample in zip(held.items(), fates, samples, strict=True)
    }
    state.queue.extend(arrays["queue"].tolist())
    if state.study.rules.policy.names_rounds:
        named = zip(arrays["named.seqs"].tolist(), arrays["named.tags"].tolist(), strict=True)
        state.named = [f"{seq}.{tag.decode()}" for seq, tag in named]


def state_digest(state: State) -> str:
    """The SHA-256 of a state: equal exactly if the states are."""
    return hashlib.sha256(pack(state)).hexdigest()


def _plain_values(state: State) -> list[tuple[Any, str]]:
    """What is kept as plain values: (owner, attribute)."""
    own, watched = (*COUNTS, *FLAGS, *LISTS), (*watch.FLAGS, *watch.COUNTS)
    return [*((state, name) for name in own), *((state.watch, name) for name in watched)]


def _flat(rules: Rules, samples: list[Sample | None]) -> Any:
    """A row for each sample; those of several costs, which are known where a sample is held, side by side."""
    width = WIDTH * len(rules.parts or (1,))
    rows: list[Any] = [sample or (0.0,) * width for sample in samples]
    if rules.parts is not None:
        rows = [np.ravel(list(sample.cost.values())) if isinstance(sample, Sample) else sample for sample in rows]
    return np.array(rows, dtype=np.float64).reshape(-1, width)


def _sample(rules: Rules, row: list[float]) -> Sample:
    """The inverse of `_flat` for one row."""
    if rules.parts is None:
        return Sample(*row)
    return joined({name: Sample(*row[WIDTH * at : WIDTH * (at + 1)]) for at, name in enumerate(rules.parts)})


def _learned_later(state: State) -> dict[str, Any]:
    """What waits to be learned from."""
    held = list(state.held.items())
    fates = [(sample is None, lost) for _, (_, sample, lost) in held]
    return {
        **_waiting(state, "held", {seq: pair[0] for seq, pair in held}),
        "held.samples": _flat(state.study.rules, [sample for _, (_, sample, _) in held]),
        "held.fates": np.array(fates, dtype=bool).reshape(-1, 2),
        "queue": np.array(state.queue, dtype=np.int64),
    }


def _waiting(state: State, name: str, rounds: dict[int, Round]) -> dict[str, Any]:
    """Rounds as arrays, made field by field: many may be open."""
    fields: Any = zip(*rounds.values(), strict=True) if rounds else [()] * len(Round._fields)
    parts: Any = Round(*fields)
    places = [-2 if place is None else place for place in parts.place]
    return {
        f"{name}.numbers": np.array([list(rounds), parts.number, parts.watched, places], dtype=np.int64).T,
        f"{name}.values": np.array([parts.action, parts.baseline_cost], dtype=np.float64).T,
        f"{name}.contexts": np.concatenate([np.empty(0), *parts.context]).reshape(-1, state.study.rules.dim),
        f"{name}.times": np.array(parts.at, dtype=np.int64),
        f"{name}.tags": np.array(parts.tag, dtype="S8"),
    }


def _rounds(arrays: dict[str, Any], name: str) -> dict[int, Round]:
    numbers, values = arrays[f"{name}.numbers"].tolist(), arrays[f"{name}.values"].tolist()
    contexts, times = arrays[f"{name}.contexts"], arrays[f"{name}.times"].tolist()
    tags = [tag.decode() for tag in arrays[f"{name}.tags"].tolist()]
    found = {}
    for row, ((seq, number, watched, place), (action, baseline)) in enumerate(zip(numbers, values, strict=True)):
        vector = contexts[row].copy()
        place = None if place == -2 else place
        given = (number, place, action, baseline, bool(watched), vector, dnrm2(vector))
        found[seq] = Round(*given, times[row], tags[row])
    return found
