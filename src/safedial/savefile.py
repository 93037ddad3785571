"""Save files: one line that names the format and the digest of the rest; then a zip of plain arrays and a JSON header.

No pickle. The digest covers every byte behind the first line and is checked before anything is parsed, so a truncated
or altered file is refused whole. A file is written beside its destination and moved into place: a crash leaves the old
file or the new one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from safedial.errors import InvalidInput


def write(
    path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, Any], *, form: str, version: int
) -> None:
    """Write atomically. Floats in the header keep every bit (JSON holds their shortest exact form)."""
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array(json.dumps(header, allow_nan=False)), **arrays)
    content = buffer.getbuffer()
    first_line = f"{form} {version} {hashlib.sha256(content).hexdigest()}\n"
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(first_line.encode("ascii"))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise InvalidInput(f"path = {str(path)!r}: cannot be written ({error.strerror or error})") from error


def read(path: str | os.PathLike[str], *, form: str, version: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and arrays of a file that `write` made; anything else is refused with the reason."""
    try:
        first_line, _, content = Path(path).read_bytes().partition(b"\n")
    except OSError as error:
        raise InvalidInput(f"path = {str(path)!r}: cannot be read ({error.strerror})") from error
    name, found, digest = ([*first_line.split(b" "), b"", b""])[:3]
    if name != form.encode():
        raise InvalidInput(
            f"path = {str(path)!r}: is not a safedial save file of the form {form}, or its beginning is damaged"
        )
    if found != str(version).encode():
        text = found.decode("ascii", "replace")
        raise InvalidInput(f"path = {str(path)!r}: has format version {text}; this safedial reads {version}")
    if digest != hashlib.sha256(content).hexdigest().encode():
        raise InvalidInput(f"path = {str(path)!r}: was truncated or altered after it was saved (wrong digest)")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(str(arrays.pop("header"))), arrays
