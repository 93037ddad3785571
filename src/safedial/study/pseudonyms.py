"""Pseudonyms: a study may store the HMAC-SHA-256 of each unit's label in place of the label.

The key never enters the log. The first event holds a check value of it, so that another key is refused: under another
key one person would become two. Visits, metadata, keys and reasons are stored as they are given.
"""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safedial.errors import InvalidInput, require
from safedial.study.errors import StudyError

METHOD = "HMAC-SHA-256"
SHORTEST = 16
"""The fewest bytes of a key."""

WHERE = "env:NAME for an environment variable, or file:PATH"


def read_unit_key(given: str | bytes) -> bytes:
    """The key itself, or the one in an environment variable or a file; line ends after it do not count.

    >>> os.environ["WARD_KEY"] = "correct horse battery staple"
    >>> read_unit_key("env:WARD_KEY") == read_unit_key(b"correct horse battery staple")
    True
    """
    key = given if isinstance(given, bytes) else _named(given)
    rule = f"must have at least {SHORTEST} bytes"
    shown = "a key" if isinstance(given, bytes) else given
    require(len(key) >= SHORTEST, "unit_key", shown, rule, "python -c 'import secrets; print(secrets.token_hex())'")
    return key


def _named(given: Any) -> bytes:
    source, _, name = given.partition(":") if isinstance(given, str) else ("", "", "")
    # What is given may be the key itself, so an error does not repeat it.
    require(source in ("env", "file") and name, "unit_key", "...", f"must be {WHERE}")
    if source == "env":
        found = os.environ.get(name)
        require(found is not None, "unit_key", given, "names an environment variable that is not set")
        return str(found).encode().rstrip(b"\r\n")
    try:
        return Path(name).read_bytes().rstrip(b"\r\n")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"unit_key = {given!r}: cannot be read ({error})") from error


def pseudonym(key: bytes, unit: str) -> str:
    """What is stored in place of a unit's label.

    >>> pseudonym(b"correct horse battery staple", "P-04")[:16]
    '67ba444b2a2ae2e3'
    """
    return hmac.digest(key, unit.encode(), "sha256").hex()


PSEUDONYM = re.compile(r"[0-9a-f]{64}")
FEWEST_DIGITS = 8
"""By so many digits, or more, of its beginning a pseudonym may be called, if no other begins so."""


def check_label(unit: str) -> None:
    """Refuse a pseudonym where a label belongs: its own pseudonym would be another unit.

    The blanks around a label count as part of it, and nobody could see them in a pseudonym, so they are refused too.
    """
    rule = "is a pseudonym, which a decision cannot be asked for: one person would become two"
    require(not PSEUDONYM.fullmatch(unit), "unit", unit, rule, "give the unit's own label")


def shortens(digits: str, stored: str | None) -> bool:
    """Whether digits, perhaps with the sign for what was left out, begin a stored pseudonym.

    >>> [shortens(digits, "67ba444b2a2a" + "0" * 52) for digits in ("67ba444b2a2a…", "67ba444b", "67ba")]
    [True, True, False]
    """
    given = digits.removesuffix("…")
    return stored is not None and len(given) >= FEWEST_DIGITS and stored.startswith(given)


def check_value(key: bytes, study: str) -> str:
    """Tells one key from another. No label has a line end, so this is no unit's pseudonym."""
    return hmac.digest(key, f"safedial unit key\n{study}".encode(), "sha256").hex()


def first_event(key: bytes, study: str) -> dict[str, Any]:
    """What the first event of a study with pseudonyms holds."""
    return {"units": {"stored_as": METHOD, "key_check": check_value(key, study)}}


def matching_key(study: str, check: str, keys: Iterable[bytes], *, must: bool) -> bytes | None:
    """The key that a study was created with, if it is among these; if it `must` be and is not, that is an error.

    `check` is the check value in the study's first event, "" where it stores labels as they are.
    """
    given = list(keys)
    if not check:
        require(not (must and given), "unit_key", "...", f"is not for study {study!r}, which stores units as given")
        return None
    found = next((key for key in given if hmac.compare_digest(check_value(key, study), check)), None)
    if must and given and found is None:
        raise StudyError("unit_key", f"unit_key: is not the key that study {study!r} was created with")
    return found


def no_key(study: str) -> StudyError:
    words = f"is needed: study {study!r} stores pseudonyms of its units; give the key as {WHERE}"
    return StudyError("unit_key", f"unit_key: {words}", public="the service lacks the key of this study's pseudonyms")
