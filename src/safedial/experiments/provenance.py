"""Where a result came from: settings, versions, commit, machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safedial.errors import InvalidInput
from safedial.files import write_text
from safedial.version import __version__


def provenance(settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """All that is needed to repeat a run and to judge its timing."""
    return {
        "settings": settings,
        "seconds": round(seconds, 3),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "safedial": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scipy")},
        },
        "commit": _commit(),
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "command": ["safedial", *sys.argv[1:]],
    }


def output_folder(path: str | os.PathLike[str]) -> Path:
    """Make the folder, or say why it cannot be written to."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}.writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput(f"out = {str(folder)!r}: cannot be written to ({error.strerror}); choose another") from error
    return folder


def write_json(path: Path, content: Any) -> Path:
    return write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _commit() -> str | None:
    """The commit of the checkout this package runs from, or None outside one."""
    here = Path(__file__).parent
    try:
        asked = subprocess.run(  # noqa: S603 -- fixed words, no shell
            ["git", "-C", str(here), "rev-parse", "HEAD"],  # noqa: S607 -- whichever git the user has
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None
