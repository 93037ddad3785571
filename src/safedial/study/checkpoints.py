"""Checkpoints: the last event of a log by its seq and hash, for a second system to keep.

Whoever owns a database can rewrite a log with all its hashes, but not a checkpoint that is kept elsewhere. As a file it
is a JSON object, {"study", "seq", "hash", "first", "at"}; `first` is the hash of the study's first event. That of a
store, {"studies": [...]}, has one for each study.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safedial.errors import InvalidInput, require

Checkpoint = Mapping[str, Any] | str | os.PathLike[str]
"""A checkpoint, its JSON or SEQ:HASH as text, or the path of its file (not as text)."""


def load_checkpoint(given: Checkpoint) -> Mapping[str, Any] | str:
    """A checkpoint in its fields; SEQ:HASH stays as it is.

    >>> load_checkpoint('{"study": "trial", "seq": 3, "hash": "0f"}')["seq"]
    3
    """
    if isinstance(given, Mapping):
        return given
    known = isinstance(given, (str, os.PathLike))
    require(known, "checkpoint", type(given).__name__, "must be SEQ:HASH, a mapping, JSON, or the path of a file")
    text = given if isinstance(given, str) else _read(given)
    if isinstance(given, str) and not given.lstrip().startswith("{"):
        return given
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        shown, rule = (
            "a text" if isinstance(given, str) else str(given),
            "must hold the JSON object that `checkpoint` wrote",
        )
        raise InvalidInput(f"checkpoint = {shown!r}: {rule}", public=f"checkpoint: {rule}")
    return found


def read_marks(given: Checkpoint | None, study: str) -> dict[int, bytes]:
    """The hashes, by seq, that the log of a study must have; refused if the checkpoint is of other studies."""
    if given is None:
        return {}
    loaded = load_checkpoint(given)
    if isinstance(loaded, str):
        seq, _, name = loaded.partition(":")
        loaded = {"seq": seq, "hash": name}
    elif "studies" in loaded:
        loaded = read_store_marks(loaded).get(study, {"study": "none of this name"})
    named = loaded.get("study", study)
    if named != study:
        words = f"is of another study, {str(named)[:80]!r}; this is {study!r}"
        raise InvalidInput(f"checkpoint: {words}", "other_study", public=f"checkpoint: {words}")
    try:
        first = {1: bytes.fromhex(loaded["first"])} if "first" in loaded else {}
        marks = first | {int(loaded["seq"]): bytes.fromhex(loaded["hash"])}
    except (KeyError, TypeError, ValueError, OverflowError):
        marks = {}
    if not marks or any(seq < 1 or len(name) != 32 for seq, name in marks.items()):
        rule = "must be SEQ:HASH, as `checkpoint` printed it, the JSON object that it wrote, or in Python Path(FILE)"
        raise InvalidInput(f"checkpoint = {str(given)[:80]!r}: {rule}", public=f"checkpoint: {rule}")
    return marks


def read_store_marks(given: Checkpoint | None) -> dict[str, Mapping[str, Any]]:
    """The checkpoint of each study, by its name, in that of a store."""
    loaded = {"studies": []} if given is None else load_checkpoint(given)
    marks = loaded.get("studies") if isinstance(loaded, Mapping) else None
    whole = isinstance(marks, list) and all(isinstance(each, Mapping) and "study" in each for each in marks)
    way_out = "name the study that it is of, or give what `checkpoint` without a name wrote"
    require(whole, "checkpoint", str(given)[:80], "is not of a whole store", way_out)
    return {str(each["study"]): each for each in marks or ()}


def _read(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise InvalidInput(f"checkpoint = {str(path)!r}: cannot be read ({error.strerror})") from error
