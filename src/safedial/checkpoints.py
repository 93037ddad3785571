"""Checkpoints: the last event of a log by its seq and hash, for a second system to keep.

Whoever owns a database can rewrite a log with all its hashes, but not a checkpoint that is kept elsewhere. As a file it
is a JSON object, {"study", "seq", "hash", "first", "at"}; `first` is the hash of the study's first event. It may be
signed with an Ed25519 key, which shows that the holder of the key made it; this needs the extra `sign`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safedial.errors import InvalidInput, import_extra, require

SIGNED = ("study", "seq", "hash", "first", "at")
"""What a signature covers."""

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
    text = given if isinstance(given, str) else _read("checkpoint", given).decode("utf-8", "replace")
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
    """The hashes, by seq, that the log of a study must have; refused if the checkpoint is of another study."""
    if given is None:
        return {}
    loaded = load_checkpoint(given)
    if isinstance(loaded, str):
        seq, _, name = loaded.partition(":")
        loaded = {"seq": seq, "hash": name}
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


def signer(key_file: str | os.PathLike[str] | None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Adds to a checkpoint its signature and the public key, from a PEM file with an Ed25519 private key; without a
    file it adds nothing.
    """
    if key_file is None:
        return lambda mark: mark
    serialization = import_extra("cryptography.hazmat.primitives.serialization", "sign")
    key = _key(key_file, "sign_with", lambda content: serialization.load_pem_private_key(content, None))
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return lambda mark: {**mark, "public_key": public.hex(), "signature": key.sign(_message(mark)).hex()}


def check_signature(given: Checkpoint, public_key: str | os.PathLike[str]) -> None:
    """Refuse a checkpoint that the holder of the key did not sign; `public_key` is a PEM file that you trust."""
    serialization = import_extra("cryptography.hazmat.primitives.serialization", "sign")
    invalid = import_extra("cryptography.exceptions", "sign").InvalidSignature
    key = _key(public_key, "public_key", serialization.load_pem_public_key)
    loaded = load_checkpoint(given)
    mark = {} if isinstance(loaded, str) else loaded
    way_out = "leave public_key out, or give the signed one, a file as Path(FILE)"
    require("signature" in mark, "checkpoint", str(given)[:80], "has no signature", way_out)
    try:
        key.verify(bytes.fromhex(mark["signature"]), _message(mark))
    except (invalid, TypeError, ValueError):
        words = "its signature is not that of this public key"
        raise InvalidInput(f"checkpoint: {words}", "bad_signature", public=f"checkpoint: {words}") from None


def _message(mark: Mapping[str, Any]) -> bytes:
    fields = {name: mark.get(name) for name in SIGNED}
    return b"safedial checkpoint\n" + json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def _key(path: str | os.PathLike[str], argument: str, load: Any) -> Any:
    ed25519, content = import_extra("cryptography.hazmat.primitives.asymmetric.ed25519", "sign"), _read(argument, path)
    try:
        key = load(content)
    except (TypeError, ValueError) as error:
        key = error
    proper = isinstance(key, (ed25519.Ed25519PrivateKey, ed25519.Ed25519PublicKey))
    way_out = "openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out public.pem"
    require(proper, argument, str(path), "must be a PEM file with an Ed25519 key that has no password", way_out)
    return key


def _read(argument: str, path: str | os.PathLike[str]) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{argument} = {str(path)!r}: cannot be read ({error.strerror})") from error
