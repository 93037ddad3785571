"""Downloads NASA's randomized-usage archive, checks it, unpacks the `.mat` files, and records their origin.

The archive's checksum is not published, but those of its four `.mat` files are known from a public copy. So by default
the unpacked files are checked against these. With `sha256` the archive itself is checked, and its files are then
trusted. A file gets its name only when it is whole: it is unzipped, with its CRC, to a temporary file first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from safedial.datasets.battery.sources import data_folder
from safedial.datasets.download import Progress, download, file_sha256
from safedial.errors import InvalidInput, require
from safedial.io import write_text

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
