"""Download one file over HTTP so that an interruption costs nothing and nothing half-written is taken for whole.

Bytes go to `<name>.partial`. A later call asks the server for the rest of it (an HTTP range), and the file takes its
name only when it is complete and its SHA-256 is the expected one. What an interruption leaves is kept; what is complete
and wrong is removed, because no later call could mend it.
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
    """Fetch `url` into `path` and return its SHA-256, going on where an earlier call stopped.

    Args:
        url: an http or https address.
        path: where the whole file goes. Its `.partial` lies beside it.
        sha256: what its SHA-256 must be, in hexadecimal; None accepts any and leaves the check to the caller.
        progress: called with the bytes at hand and the bytes in all (None while unknown).
        attempts: how often a broken connection is taken up again before giving up.

    Raises:
        InvalidInput: the address, the network, the disk or the checksum is at fault; the message says which.
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
        way_out = f"{size:,} bytes are kept: run it again to go on"
        raise InvalidInput(f"url = {url!r}: could not be downloaded ({trouble}); {way_out}")
    found = file_sha256(partial)
    if wanted not in (None, found):
        partial.unlink()
        rule = f"the SHA-256 of what came is {found}, not {wanted}; the download is removed"
        raise InvalidInput(f"url = {url!r}: {rule}; run it again, or give --sha256 of the file you trust")
    os.replace(partial, path)
    return found


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pull(url: str, partial: Path, progress: Progress | None) -> bool:
    """Add what is missing to `partial`; True when the server says that is all."""
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
    """A function that adds bytes to a file; trouble with the disk is told apart from trouble with the network."""

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
