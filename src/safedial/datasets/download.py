"""Download one file over HTTP: an interruption loses nothing, and a partial file is never mistaken for a whole one.

Bytes go to `<name>.partial`. A later call requests the rest (an HTTP range), and the file gets its name only when it is
complete and has the expected SHA-256. An interrupted download is kept; a complete but wrong one is removed, because no
later call could repair it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Literal, NoReturn
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from safedial.errors import InvalidInput, require

Progress = Callable[[int, int | None], None]
CHUNK = 1 << 18
WAIT = 60.0  # seconds without a byte


def download(
    url: str, path: Path, *, sha256: str | None = None, progress: Progress | None = None, attempts: int = 3
) -> str:
    """Download `url` to `path` and return its SHA-256, continuing where an earlier call stopped.

    Args:
        url: an http or https address.
        path: where the whole file goes; its `.partial` is beside it.
        sha256: the SHA-256 it must have, in hexadecimal; None accepts any and leaves the check to the caller.
        progress: called with the bytes so far and the total (None while unknown).
        attempts: how often a broken connection is retried.

    Raises:
        InvalidInput: for a problem with the address, the network, the disk or the checksum; the message says which.
    """
    require(re.match(r"https?://", url), "url", url, "must begin with http:// or https://")
    wanted = None if sha256 is None else sha256.strip().lower()
    require(wanted is None or re.fullmatch(r"[0-9a-f]{64}", wanted), "sha256", sha256, "must be 64 hexadecimal digits")
    partial = path.with_name(path.name + ".partial")
    trouble = ""
    for _ in range(attempts):
        try:
            if _pull(url, partial, progress):
                break
            trouble = "the connection ended early"
        except HTTPError as error:
            error.close()
            raise InvalidInput(f"url = {url!r}: the server answers {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:
            trouble = str(getattr(error, "reason", None) or error)
    else:
        size = partial.stat().st_size if partial.is_file() else 0
        way_out = f"{size:,} bytes are kept: run it again to continue"
        raise InvalidInput(f"url = {url!r}: could not be downloaded ({trouble}); {way_out}")
    found = file_sha256(partial)
    if wanted not in (None, found):
        partial.unlink()
        rule = f"the SHA-256 of the download is {found}, not {wanted}; it is removed"
        raise InvalidInput(f"url = {url!r}: {rule}; run it again, or give --sha256 of the file you trust")
    os.replace(partial, path)
    return found


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pull(url: str, partial: Path, progress: Progress | None) -> bool:
    """Append the missing bytes to `partial`; True if the server says that it is complete."""
    have = partial.stat().st_size if partial.is_file() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310 -- http(s) only, checked
    try:
        response = urlopen(request, timeout=WAIT)  # noqa: S310 -- as above
    except HTTPError as error:
        if error.code != 416 or not have:
            raise
        whole = _total(error.headers.get("Content-Range"))
        error.close()
        if whole == have:
            return True
        partial.unlink()  # longer than the server's file: another file's bytes
        return False
    with response:
        sent = response.headers.get("Content-Range") or ""
        goes_on = response.status == 206 and sent.startswith(f"bytes {have}-")
        if response.status == 206 and not goes_on:
            partial.unlink()
            return False
        done = have if goes_on else 0
        length = response.headers.get("Content-Length")
        total = _total(sent) if goes_on else int(length) if length else None
        with _opened(partial, "ab" if goes_on else "wb") as write:
            if progress:
                progress(done, total)
            while chunk := response.read1(CHUNK):
                write(chunk)
                done += len(chunk)
                if progress:
                    progress(done, total)
    return total is None or done == total


@contextmanager
def _opened(path: Path, mode: Literal["ab", "wb"]) -> Iterator[Callable[[bytes], None]]:
    """A function that appends bytes to a file, so that disk errors are distinct from network errors."""

    def refuse(error: OSError) -> NoReturn:
        raise InvalidInput(f"{path}: cannot be written ({error.strerror or error})") from error

    def write(chunk: bytes) -> None:
        try:
            file.write(chunk)
        except OSError as error:
            refuse(error)

    try:
        file = path.open(mode, buffering=0)
    except OSError as error:
        refuse(error)
    with file:
        yield write


def _total(content_range: str | None) -> int | None:
    """The length of the whole file in a Content-Range header."""
    last = (content_range or "").rpartition("/")[2]
    return int(last) if last.isdigit() else None
