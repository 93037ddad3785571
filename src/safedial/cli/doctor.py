"""`safedial doctor`: what is installed, and what each missing extra would add."""

from __future__ import annotations

import platform
from importlib.util import find_spec
from typing import Any

import typer

from safedial.cli.output import Json, print_json, print_table
from safedial.errors import EXTRAS, how_to_install
from safedial.version import __version__


def doctor(json: Json = False) -> None:
    """List what is installed and what each missing extra would add."""
    report = diagnose()
    if json:
        print_json(report)
        return
    extras = report["extras"].items()
    rows = ((name, "installed" if extra["installed"] else "missing", extra["adds"]) for name, extra in extras)
    title = f"safedial {report['safedial']} on Python {report['python']}"
    print_table(title, ("extra", "state", "what it adds"), rows)
    missing = [name for name, extra in extras if not extra["installed"]]
    if missing:
        typer.echo(f"To add the missing extras: {how_to_install(*missing)}")
    if report["sqlite"]["warning"]:
        typer.echo(report["sqlite"]["warning"])


def diagnose() -> dict[str, Any]:
    """The versions of required packages, and the state of every extra."""
    import sqlite3
    from importlib.metadata import version

    return {
        "safedial": __version__,
        "python": platform.python_version(),
        "core": {name: version(name) for name in ("numpy", "scipy", "array-api-compat", "typer", "rich", "joblib")},
        "sqlite": {"version": sqlite3.sqlite_version, "warning": sqlite_warning(sqlite3.sqlite_version_info)},
        "extras": {
            name: {"installed": all(find_spec(module) is not None for module in modules), "adds": adds}
            for name, (modules, adds) in EXTRAS.items()
        },
    }


def sqlite_warning(version: tuple[int, ...]) -> str:
    """A warning if this version of SQLite has the WAL-reset fault (https://sqlite.org/wal.html#walresetbug).

    >>> [bool(sqlite_warning(version)) for version in ((3, 51, 2), (3, 51, 3), (3, 50, 7), (3, 44, 6), (3, 45, 0))]
    [True, False, False, False, True]
    """
    repaired = version >= (3, 51, 3) or any(fixed <= version < (3, fixed[1] + 1) for fixed in ((3, 50, 7), (3, 44, 6)))
    if repaired:
        return ""
    return (
        f"SQLite {'.'.join(map(str, version))} can, very rarely, corrupt a file that several connections write at the "
        "same time (the WAL-reset fault of 3.7.0 to 3.51.2; fixed in 3.51.3, 3.50.7 and 3.44.6). Until you upgrade, "
        "back up your SQLite stores and serve each with one worker, or use PostgreSQL."
    )
