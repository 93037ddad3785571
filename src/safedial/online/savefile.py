"""An agent's save file: its form and version, in the common frame of `safedial.savefile`."""

from __future__ import annotations

import os
from typing import Any

from safedial import savefile

FORMAT = "safedial-agent"
FORMAT_VERSION = 2


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, Any]) -> None:
    savefile.write(path, header, arrays, form=FORMAT, version=FORMAT_VERSION)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    return savefile.read(path, form=FORMAT, version=FORMAT_VERSION)
