"""Save files: a zip of plain arrays and one JSON header, no pickle, with a digest over all of it.

The file is written beside its destination and moved into place, so a crash leaves the old file or the new one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from safedial.errors import InvalidInput

FORMAT = "safedial-agent"
FORMAT_VERSION = 1


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write atomically. Floats in the header keep every bit (JSON holds their shortest exact form)."""
    header = {"format": FORMAT, "format_version": FORMAT_VERSION, **header}
    text = json.dumps(header, allow_nan=False, sort_keys=True)
    buffer = io.BytesIO()
    digest = _digest(text, arrays)
    np.savez(buffer, header=np.array(text), digest=np.array(digest), **arrays)
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and arrays of a file that `write` made; anything else is refused with the reason."""
    if not os.path.exists(path):
        raise InvalidInput(f"path = {str(path)!r}: there is no such file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        text, digest = str(arrays.pop("header")), str(arrays.pop("digest"))
        header = json.loads(text)
    except (ValueError, KeyError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"path = {str(path)!r}: is damaged, or not a safedial save file ({error})") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InvalidInput(f"path = {str(path)!r}: is not a safedial save file")
    if header.get("format_version") != FORMAT_VERSION:
        found = header.get("format_version")
        raise InvalidInput(
            f"path = {str(path)!r}: has format version {found}, this safedial reads version {FORMAT_VERSION}"
        )
    if digest != _digest(text, arrays):
        raise InvalidInput(f"path = {str(path)!r}: was altered after it was saved (its digest does not match)")
    return header, arrays


def _digest(text: str, arrays: dict[str, Any]) -> str:
    """SHA-256 over the header and, in order of name, each array's name, type, shape and bytes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        digest.update(f"|{name}|{array.dtype.str}|{array.shape}|".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
