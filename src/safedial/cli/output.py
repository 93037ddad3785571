"""What the commands share: arguments, reading a log according to its spec, and printing.

A command prints one JSON object or a table on stdout; progress and errors go to stderr.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safedial.errors import import_extra, printable, require

if TYPE_CHECKING:
    from safedial.rounds.log_file import Log
    from safedial.rounds.specfile import SpecFile

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
    from safedial.rounds.log_file import read_log
    from safedial.rounds.specfile import load_spec
    from safedial.tools.checks import test_of

    file = load_spec(spec)
    options: Any = {"context_columns": split(context_columns), "features": file.features, "dial": file.dial}
    told = read_log(log, **options, **test_of(file.spec).columns(file.spec, file.policy))
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


# --- What a command prints

LONGEST_WORD = 32
"""Letters of a word, such as a digest, that is not broken in a table too wide for the console."""


def wrapped(text: str, width: int | None = None) -> str:
    """Text whose lines fit a width, by default that of the terminal, each under its own indent; as it is where nobody
    looks on.

    >>> print(wrapped("Holds if:\\n  - contexts are bounded", 16))
    Holds if:
      - contexts are
        bounded
    """
    if width is None:
        if not sys.stdout.isatty():
            return text
        width = get_terminal_size().columns
    lines = []
    for line in text.splitlines():
        first = line[: len(line) - len(line.lstrip(" -"))]
        rest = " " * len(first) if "-" in first else f"{first}  "
        parts = wrap(line, width, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
        lines += parts or [""]
    return "\n".join(lines)


def print_json(content: Any) -> None:
    """Print one JSON object and nothing else on stdout."""
    text = dumps(content, ensure_ascii=False, allow_nan=False)
    if not text.isprintable():
        text = dumps(content, allow_nan=False)
    sys.stdout.write(text + "\n")


def print_pairs(title: str, pairs: dict[str, Any], json: bool = False) -> None:
    """A two-column table of names and values, or one JSON object."""
    if json:
        print_json(pairs)
    else:
        print_table(title, ("", ""), ((name.replace("_", " "), shown(value)) for name, value in pairs.items()))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table; the first column is aligned on the left, the others on the right. No number is ever cut: where the
    console is too narrow, columns break between words, and lines become longer than the console as a last resort.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console, rows = Console(markup=False, emoji=False), [list(row) for row in rows]
    table = Table(title=title, title_justify="left", show_header=any(columns), box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        # Values without heads, such as a hash, are not cut.
        table.add_column(
            column, justify="left" if number == 0 else "right", no_wrap=any(columns) or number == 0, overflow="fold"
        )
    for row in rows:
        table.add_row(*row)
    if any(columns):
        widths = _widths([columns, *rows], console.width - 3 * len(columns))
        for column, width in zip(table.columns, widths, strict=True):
            column.width, column.no_wrap = width, False
        console.width = max(console.width, sum(widths) + 3 * len(widths))
    console.print(table)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """The width of each column: what its cells need, less where that is more than the room and words can be parted."""
    from rich.cells import cell_len

    cells = list(zip(*rows, strict=True))
    widths = [max(map(cell_len, column)) for column in cells]
    least = [
        min(LONGEST_WORD, max(cell_len(word) for cell in column for word in cell.split() or [""])) for column in cells
    ]
    while sum(widths) > room:
        spare = [width - word for width, word in zip(widths, least, strict=True)]
        if max(spare) <= 0:
            break
        widths[spare.index(max(spare))] -= 1
    return widths


def print_written(paths: Iterable[Any]) -> None:
    """The files that were written; nothing if there are none."""
    lines = [f"  {path}" for path in paths if path]
    if lines:
        sys.stdout.write("\n".join(["Written:", *lines]) + "\n")


def need_pictures(path: Any) -> None:
    """Before the work starts, refuse a picture that could not be drawn at its end."""
    if path:
        import_extra("matplotlib", "plot")


def shown(value: Any) -> str:
    """A value formatted for reading."""
    if value is None or value in ("", []):
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, list):
        return " to ".join(shown(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr with the estimated time left. It disappears when done; without a terminal nothing is drawn."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: None
        return
    name, share = TextColumn("{task.description}"), TextColumn("{task.percentage:>3.0f} %")
    with Progress(name, BarColumn(), share, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda step: progress.advance(task, step)
