"""A policy's state is a record of arrays: the columns that grow with the rounds, and the one codec for all states.

A state is any object whose public attributes are arrays, numbers, text, None, named tuples, `Table`s, dicts and lists
of these, or states. Attributes that begin with "_" are caches: they are neither saved nor compared, and whoever reads
one must be able to make it again. So saving is `pack`, a digest is `digest`, and a copy is `copy.deepcopy`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from safedial.errors import InvalidInput, refusal, require

FIRST_ROOM = 64
"""The rounds that a new table has room for."""


class Table:
    """Columns (*lanes, rounds, ...), one row for each round in order of decision; they grow by doubling.

    Rows beyond `count` hold the fill values, so `append` writes nothing: a new round is *unknown*, and unknown must be
    the pessimistic value of each column. `first` is the number of the first row that is still kept (`cut`).
    """

    def __init__(self, lanes: tuple[int, ...], **columns: Any) -> None:
        """Each column is its fill value, or (fill value, shape of one row)."""
        self._lanes, self._room, self.count, self.first = lanes, 0, 0, 0
        self._fills = {name: fill if isinstance(fill, tuple) else (fill, ()) for name, fill in columns.items()}
        self._grow(FIRST_ROOM)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A column, with room for rounds to come."""

    def append(self) -> int:
        """One more round. Returns its row."""
        if self.count == self._room:
            self._grow(2 * self._room)
        self.count += 1
        return self.count - 1

    def extend(self, rows: int) -> None:
        """So many rows more."""
        self.reserve(self.count + rows)
        self.count += rows

    def at(self, name: str, row: int) -> Any:
        """A copy of the value of each lane, in one row; a plain number where there is one lane."""
        column = getattr(self, name)
        return column[..., row].copy() if self._lanes else column.item(row)

    def rows(self, name: str) -> Any:
        """A column's rows so far, (*lanes, count, ...)."""
        return getattr(self, name)[self._rows(self.count)]

    def cut(self, rows: int) -> None:
        """Forget the first `rows` rows; the place of a round is then `first` more than its row."""
        if rows <= 0:
            return
        kept = self.count - rows
        for name, (fill, _) in self._fills.items():
            column = getattr(self, name)
            begin = (slice(None),) * len(self._lanes)
            column[(*begin, slice(0, kept))] = column[(*begin, slice(rows, self.count))].copy()
            column[(*begin, slice(kept, self.count))] = fill
        self.count, self.first = kept, self.first + rows

    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(self._fills)

    def reserve(self, rows: int) -> None:
        """Have room for so many rows."""
        room = self._room
        while room < rows:
            room *= 2
        if room > self._room:
            self._grow(room)

    def _rows(self, stop: int) -> tuple[slice, ...]:
        return (*(slice(None),) * len(self._lanes), slice(0, stop))

    def _grow(self, room: int) -> None:
        for name, (fill, shape) in self._fills.items():
            column = np.full((*self._lanes, room, *shape), fill, dtype=np.asarray(fill).dtype)
            if self._room:
                column[self._rows(self._room)] = getattr(self, name)
            setattr(self, name, column)
        self._room = room


class Growing(list[Any]):
    """A list of states that are made alike, as many as there came to be."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self.make = make

    def more(self) -> Any:
        """One more."""
        self.append(self.make())
        return self[-1]

    def __reduce__(self) -> tuple[Any, ...]:
        """For copies: a list is copied by its parts, and this one needs to know how to go on."""
        return Growing, (self.make,), None, iter(self)


def pack(state: Any, path: str = "") -> dict[str, np.ndarray]:
    """A state as arrays by path: what a save file, a snapshot and a digest hold.

    >>> pack({"seen": 2, "sums": np.zeros(2)})
    {'seen': array(2), 'sums': array([0., 0.])}
    """
    if state is None:
        return {}
    if isinstance(state, np.ndarray | np.generic | int | float | str):
        array = np.asarray(state)
        return {path: array} if array.dtype.kind != "O" else _refuse(path, state)
    if isinstance(state, Table):
        counts = {f"{path}.count": np.asarray(state.count), f"{path}.first": np.asarray(state.first)}
        return counts | {f"{path}.{name}": state.rows(name) for name in state.columns()}
    found: dict[str, np.ndarray] = {f"{path}.count": np.asarray(len(state))} if isinstance(state, Growing) else {}
    for name, part in _parts(state, path):
        found |= pack(part, f"{path}.{name}" if path else name)
    return found


def unpack(state: Any, arrays: dict[str, Any], path: str = "") -> Any:
    """`pack` undone, onto a state that `init` made: the state with these arrays. A state with a method `restored` is
    told when it is whole, to refuse what does not fit to it.
    """
    if state is None:
        return None
    try:
        made = _unpacked(state, arrays, path)
    except KeyError as error:
        raise InvalidInput(f"state: has no {error.args[0]!r}, which this policy's state needs") from error
    if hasattr(made, "restored"):
        made.restored()
    return made


def digest(state: Any) -> str:
    """SHA-256 of a state, the same after a replay bit for bit."""
    found = hashlib.sha256()
    for path, array in sorted(pack(state).items()):
        found.update(f"{path}{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _unpacked(state: Any, arrays: dict[str, Any], path: str) -> Any:
    if isinstance(state, np.ndarray):
        # A matrix in column order stays in it: BLAS writes into such arrays in place.
        order = "C" if state.flags.c_contiguous else "F"
        return np.array(arrays[path], dtype=state.dtype, order=order)
    if isinstance(state, bool | int | float | str | np.generic):
        return type(state)(np.asarray(arrays[path])[()])
    if isinstance(state, Table):
        state.count, state.first = (int(arrays[f"{path}.{name}"]) for name in ("count", "first"))
        state.reserve(state.count)
        for name in state.columns():
            state.rows(name)[...] = arrays[f"{path}.{name}"]
        return state
    while isinstance(state, Growing) and len(state) < int(arrays[f"{path}.count"]):
        state.more()
    parts = {
        name: None if part is None else _unpacked(part, arrays, f"{path}.{name}" if path else name)
        for name, part in _parts(state)
    }
    if isinstance(state, tuple):
        return state._replace(**parts)  # pyright: ignore[reportAttributeAccessIssue] -- states hold named tuples only
    if isinstance(state, list):
        state[:] = parts.values()
        return state
    if isinstance(state, dict):
        return {**state, **parts}
    for name, part in parts.items():
        object.__setattr__(state, name, part)  # a dataclass may be frozen
    return state


def kinds(packed: dict[str, np.ndarray]) -> dict[str, str]:
    """The kind and shape of each array of a packed state."""
    return {path: f"{array.dtype}{list(array.shape)}" for path, array in packed.items()}


def check_given_back(state: Any, packed: dict[str, np.ndarray]) -> None:
    """Refuse a packed state that unpacked onto `state`, which `init` made, would be another one."""
    made, wanted = kinds(pack(state)), kinds(packed)
    try:
        made = kinds(pack(unpack(state, packed)))
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
    other = next((path for path, kind in wanted.items() if made.get(path) != kind), None)
    rule, way_out = (
        "is not as `init` made it, so no file holds it",
        "let `init` make every part, with its kind for good",
    )
    require(other is None, f"state: {other}", wanted.get(other or ""), rule, way_out)


def _refuse(path: str, state: Any) -> Any:
    rule = "must be an array, a number, a text, None, or a list, dict, NamedTuple or dataclass of these"
    raise refusal(f"state: {path}", state, rule, "or a cache, whose name begins with '_'")


def _parts(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    named = hasattr(state, "_fields") if isinstance(state, tuple) else hasattr(state, "__dict__")
    if not (isinstance(state, list | dict) or (named and not callable(state))):
        _refuse(path, state)
    if isinstance(state, dict) and not all(isinstance(name, str) for name in state):
        _refuse(path, state)
    if isinstance(state, tuple):
        pairs: Any = zip(state._fields, state, strict=True)  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(state, list):
        pairs = ((str(place), part) for place, part in enumerate(state))
    else:
        pairs = (state if isinstance(state, dict) else vars(state)).items()
    return ((name, part) for name, part in pairs if not name.startswith("_"))
