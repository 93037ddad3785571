"""Files written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from safedial.errors import InvalidInput


def write_text(path: Path, text: str) -> Path:
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file whole: beside its place first, then moved there."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written ({error.strerror or error})") from error
    return path


def read_text(path: str | os.PathLike[str], argument: str, way_out: str = "") -> str:
    """The text of a file, or a sentence that says which argument could not be read and why.

    >>> read_text("no_such_file.toml", "spec")
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: spec = 'no_such_file.toml': cannot be read (No such file or directory)
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{argument} = {str(path)!r}: is not UTF-8 text ({error.reason})") from error
    except OSError as error:
        words = f"; {way_out}" if way_out else ""
        raise InvalidInput(f"{argument} = {str(path)!r}: cannot be read ({error.strerror or error}){words}") from error
