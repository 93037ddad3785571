"""Downloads NASA's randomized-usage archive, checks it, unpacks the `.mat` files, and records their origin.

An interruption loses nothing, and a partial file is never mistaken for a whole one. Bytes go to `<name>.partial`; a
later call requests the rest (an HTTP range). A file gets its name only when it is whole and has the expected SHA-256. A
complete but wrong download is removed, because no later call could repair it.

The archive's checksum is not published, but those of its four `.mat` files are known from a public copy. So by default
the unpacked files are checked against these. With `sha256` the archive itself is checked, and its files are then
trusted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple, NoReturn
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from safedial.errors import InvalidInput, require
from safedial.io import write_text
from safedial.paper.battery_data import data_folder

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


# --- Downloads NASA's randomized-usage archive

ARCHIVE = (
    "https://zenodo.org/records/15277374/files/1.%20Battery_Uniform_Distribution_Charge_Discharge_DataSet_2Post.zip"
)
SUMS = {
    "RW9.mat": "8169a09a539f350dcffa51a3fa3865279c57d627e80c6ad4ba53960399bea4a1",
    "RW10.mat": "7c53dae256f93f161d19366e352d84f3be51ffe3cc63f096b03092f9d571fdd7",
    "RW11.mat": "2bf4342813c7977dea3020263540147dab90e58112bd029e7667fe82a5614992",
    "RW12.mat": "b69c3c006aaae292c0afd96e63be3afd944e244a486cc2e80d13ed96a0762103",
}
RECORD = "fetched.json"


class Fetched(NamedTuple):
    """The result of a fetch."""

    url: str
    sha256: str
    """The SHA-256 of the archive."""
    files: dict[str, dict[str, Any]]
    """The `bytes` and `sha256` of each `.mat` file."""
    downloaded: bool
    """False if all files were already there."""


def fetch_archive(
    folder: str | os.PathLike[str] | None = None,
    url: str = ARCHIVE,
    *,
    sha256: str | None = None,
    progress: Progress | None = None,
) -> Fetched:
    """Download the `.mat` files of the archive at `url` into `folder`, unless they are already there.

    Args:
        folder: the target folder, created if needed; None: SAFEDIAL_DATA.
        url: a zip archive with `.mat` files, at any depth, or with zip archives of them.
        sha256: the archive's checksum. Without it, files of the default archive are checked one by one.
        progress: called with the bytes so far and the total.

    Raises:
        InvalidInput: no network, a wrong checksum, a damaged archive, a full disk. No file is left half-written.
    """
    place = data_folder(folder, make=True)
    known = _recorded(place, url, sha256)
    if known:
        return known
    archive = place / f"archive-{hashlib.sha256(url.encode()).hexdigest()[:12]}.zip"
    found = file_sha256(archive) if archive.is_file() else None  # whole, left by an interrupted unpacking
    if found is None or (sha256 is not None and sha256.strip().lower() != found):
        found = download(url, archive, sha256=sha256, progress=progress)
    try:
        files = _unpack(archive, place, SUMS if url == ARCHIVE and sha256 is None else {})
    except InvalidInput:
        archive.unlink()
        raise
    except OSError as error:
        rule = f"cannot be written ({error.strerror or error}); the archive is kept"
        raise InvalidInput(f"data = {str(place)!r}: {rule}; make room and run it again") from error
    archive.unlink()
    _note(place, {"url": url, "sha256": found, "files": files})
    return Fetched(url, found, files, downloaded=True)


def _recorded(folder: Path, url: str, sha256: str | None) -> Fetched | None:
    """The result of an earlier fetch of the same archive, if every file still has its length."""
    record = read_records(folder).get(url)
    if record is None or (sha256 is not None and sha256.strip().lower() != record["sha256"]):
        return None
    for name, facts in record["files"].items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != facts["bytes"]:
            return None
    return Fetched(url, record["sha256"], record["files"], downloaded=False)


def read_records(folder: Path) -> dict[str, Any]:
    """The record of earlier fetches into the folder, by address; a damaged record counts as none."""
    try:
        records = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return {record["url"]: record for record in records if isinstance(record["files"], dict) and record["sha256"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _note(folder: Path, record: dict[str, Any]) -> None:
    records = read_records(folder) | {record["url"]: record}
    write_text(folder / RECORD, json.dumps(list(records.values()), indent=2) + "\n")


def _unpack(archive: Path, folder: Path, sums: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Unpack every `.mat` member to a temporary file, check them all, and only then move them into place."""
    partials: dict[str, Path] = {}
    try:
        with zipfile.ZipFile(archive) as outer:
            _extract(outer, folder, partials)
        require(partials, "url", archive.name, "the archive holds no .mat file", "give the address of NASA's archive")
        facts = {
            name: {"bytes": partial.stat().st_size, "sha256": file_sha256(partial)}
            for name, partial in partials.items()
        }
        for name, wanted in sums.items():
            found = facts.get(name, {}).get("sha256")
            rule = f"the SHA-256 of this file must be {wanted}; nothing was kept"
            require(found == wanted, name, found, rule, "fetch again, or give --sha256 of an archive you trust")
        for name, partial in partials.items():
            os.replace(partial, folder / name)
        return facts
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        rule = f"the archive is damaged or not a zip file ({error})"
        raise InvalidInput(f"url: {rule}; it is removed: fetch again") from error
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)


def _extract(archive: zipfile.ZipFile, folder: Path, partials: dict[str, Path], *, nested: bool = False) -> None:
    for member in archive.infolist():
        name = PurePosixPath(member.filename.replace("\\", "/")).name
        if name.startswith("._") or member.is_dir():
            continue
        if name.endswith(".zip") and not nested:
            with archive.open(member) as file, zipfile.ZipFile(file) as inner:
                _extract(inner, folder, partials, nested=True)
        elif name.endswith(".mat"):
            repeated = name in partials and partials[name].read_bytes() == archive.read(member)
            rule = "the archive holds two different files of this name"
            require(repeated or name not in partials, "url", name, rule, "unzip it by hand and choose")
            partials[name] = folder / f"{name}.partial"
            with archive.open(member) as file, partials[name].open("wb") as out:
                shutil.copyfileobj(file, out, 1 << 20)
