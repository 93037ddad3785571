"""`safedial doctor`: what is installed, and what each missing extra would add."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from safedial.errors import EXTRAS, how_to_install


def doctor(json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False) -> None:
    """Say what is installed and what each missing extra would add."""
    from safedial.cli.output import new_table, print_json, print_table

    report = diagnose()
    if json:
        print_json(report)
        return
    table = new_table(f"safedial {report['safedial']} on Python {report['python']}", "extra", "state", "what it adds")
    for name, extra in report["extras"].items():
        table.add_row(name, "installed" if extra["installed"] else "missing", extra["adds"])
    print_table(table)
    missing = [name for name, extra in report["extras"].items() if not extra["installed"]]
    if missing:
        typer.echo(f"To add them: {how_to_install(*missing)}")


def diagnose() -> dict[str, Any]:
    """Versions of what is needed, and the state of every extra."""
    import platform
    from importlib.metadata import version
    from importlib.util import find_spec

    from safedial.version import __version__

    return {
        "safedial": __version__,
        "python": platform.python_version(),
        "core": {name: version(name) for name in ("numpy", "scipy", "array-api-compat", "typer", "rich", "joblib")},
        "extras": {
            name: {"installed": all(find_spec(module) is not None for module in modules), "adds": adds}
            for name, (modules, adds) in EXTRAS.items()
        },
    }
