"""Finds the battery data folder and the sources in it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from safedial.errors import InvalidInput, import_extra, require

FILES = {
    "rw26": "rw26_steps.parquet",
    "rw9_12": "rw9_12_excerpt_steps.parquet",
    "rw": "rw_steps.parquet",
    "b": "nasa_b_windows300s.parquet",
}
"""The parquet file of each source."""

MATS = {"rw_mat": r"RW\d+\.mat", "b_mat": r"B\d+\.mat"}
"""The names of NASA's own files of each source."""

CITATIONS = {
    "rw": "B. Bole, C. S. Kulkarni, M. Daigle, “Adaptation of an Electrochemistry-based Li-Ion Battery Model to "
    "Account for Deterioration Observed Under Randomized Use”, Annual Conference of the Prognostics and Health "
    "Management Society, 2014.",
    "b": "B. Saha, K. Goebel (2007), “Battery Data Set”, NASA Prognostics Data Repository, NASA Ames Research Center, "
    "Moffett Field, CA.",
}
"""What NASA asks users of the RW and of the B series to cite."""


def data_folder(folder: str | os.PathLike[str] | None = None, *, make: bool = False) -> Path:
    """The folder of the battery data: `folder`, else the environment variable SAFEDIAL_DATA."""
    given = folder or os.environ.get("SAFEDIAL_DATA")
    require(given, "data", None, "no data folder was given", "give --data DIR or set SAFEDIAL_DATA")
    path = Path(str(given))
    try:
        if make:
            path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"data = {str(path)!r}: cannot be made ({error.strerror}); choose another") from error
    way_out = "give --data DIR or set SAFEDIAL_DATA; `safedial battery fetch --data DIR` makes and fills one"
    require(path.is_dir(), "data", str(path), "there is no such folder", way_out)
    return path


def find_sources(folder: str | os.PathLike[str] | None = None) -> dict[str, list[Path]]:
    """The sources in a folder, each with its files, ordered by battery number."""
    path = data_folder(folder)
    found = {source: [path / name] for source, name in FILES.items() if (path / name).is_file()}
    for source, pattern in MATS.items():
        mats = [file for file in path.glob("*.mat") if re.fullmatch(pattern, file.name)]
        if mats:
            found[source] = sorted(mats, key=lambda file: int(re.sub(r"\D", "", file.stem)))
    return found


def load_steps(folder: str | os.PathLike[str] | None, source: str) -> Any:
    """The step table of any source, from parquet or from NASA's own files.

    Args:
        folder: the folder of the files; None: SAFEDIAL_DATA.
        source: "rw26", "rw9_12", "rw", "b" (parquet), "rw_mat" or "b_mat" (every RW…mat or B…mat file of the folder).
    """
    from safedial.datasets.battery.mat import read_mat
    from safedial.datasets.battery.parquet import read_steps

    if source in FILES:
        return read_steps(folder, source)
    require(source in MATS, "source", source, f"must be one of {', '.join([*FILES, *MATS])}")
    paths = find_sources(folder).get(source, [])
    way_out = "`safedial battery fetch` downloads NASA's"
    require(paths, "data", str(data_folder(folder)), f"holds no file named like {MATS[source]}", way_out)
    return import_extra("pandas", "data").concat([read_mat(path) for path in paths], ignore_index=True)
