"""What the commands on logs share: their arguments, and reading a log according to its spec."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from safedial.rounds_io import Log
    from safedial.specfile import SpecFile

LogFile = Annotated[
    Path, typer.Argument(metavar="LOG.csv", help="One row per decision: context, action, reward, cost.")
]
SpecPath = Annotated[Path, typer.Option("--spec", help="The spec file to compare the log with.")]
Columns = Annotated[
    str | None, typer.Option(help="The context's columns, comma-separated. Default: all but the known columns.")
]
SeedsText = Annotated[str, typer.Option("--seeds", help="How many seeds: 0, 1, ...; or which: 0:100, or 3,5,9.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


def under(panel: str | None, text: str, *names: str) -> Any:
    """An option with its help text and heading. [Words] in brackets are escaped, because Rich reads them as markup."""
    return typer.Option(*names, help=re.sub(r"\[(?=[a-z])", r"\\[", text), rich_help_panel=panel)


def plain(text: str) -> Any:
    """An option without a heading of its own."""
    return under(None, text)


ENGINE = "The engine"
EngineName = Annotated[str, under(ENGINE, "numpy, jax (compiled; the extra jax), or auto: jax where it pays.")]
Device = Annotated[str | None, under(ENGINE, "jax: cpu or gpu [JAX's default].")]
Draws = Annotated[str, under(ENGINE, "jax: numpy for the same worlds, or counter: drawn on the device, fast on a GPU.")]
Dtype = Annotated[str, under(ENGINE, "jax: float64 or float32.")]


def read_inputs(log: Path, spec: Path, context_columns: str | None) -> tuple[Log, SpecFile]:
    """The log in the units of its spec file."""
    from safedial.core.promise import PROMISES
    from safedial.errors import require
    from safedial.rounds_io import read_log
    from safedial.specfile import load_spec

    file = load_spec(spec)
    options: Any = {"context_columns": split(context_columns), "features": file.features, "dial": file.dial}
    if PROMISES[file.spec.promise].bracketed:
        from safedial.diagnostics.bracket_rounds import log_columns

        options |= {"needs": ("action",), "also": log_columns(file.spec, file.policy or {})}
    told = read_log(log, **options)
    fits = file.dim is None or told.dim == file.dim
    way_out = "name the context's columns with --context-columns" if not fits else ""
    require(fits, "log", f"{told.dim} context columns", f"do not fit the spec file's dim = {file.dim}", way_out)
    return told, file


def split(columns: str | None) -> list[str] | None:
    return [name.strip() for name in columns.split(",")] if columns else None


def read_named(text: str, argument: str) -> dict[str, Any]:
    """A name and its options, written `name,option=value,...`.

    >>> read_named("hp_probe,radius=paper,probe=0.1,clip=false", "--policy")
    {'name': 'hp_probe', 'radius': 'paper', 'probe': 0.1, 'clip': False}
    """
    from safedial.errors import require

    name, *parts = (part.strip() for part in text.split(","))
    pairs = [part.partition("=") for part in parts if part]
    for option, equals, value in pairs:
        require(equals and value, argument, option, "must be written option=value", f"for example {name},{option}=1")
    return {"name": name} | {option: _plain_value(value) for option, _, value in pairs}


def _plain_value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text
