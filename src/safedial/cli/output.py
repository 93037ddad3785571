"""What a command prints: one JSON object or a table on stdout; progress and errors on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from safedial.errors import printable


def print_json(content: Any) -> None:
    """Print one JSON object and nothing else on stdout."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    if not text.isprintable():
        text = json.dumps(content, allow_nan=False)
    sys.stdout.write(text + "\n")


def print_pairs(title: str, pairs: dict[str, Any]) -> None:
    """A two-column table of names and values."""
    table = new_table(title, "", "")
    for name, value in pairs.items():
        table.add_row(name.replace("_", " "), shown(value))
    print_table(table)


def new_table(title: str, *columns: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=any(columns), box=SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def need_pictures(path: Any) -> None:
    """Before the work starts, refuse a picture that could not be drawn at its end."""
    from safedial.errors import import_extra

    if path:
        import_extra("matplotlib", "plot")


def print_table(table: Any) -> None:
    from rich.console import Console

    Console().print(table)


def shown(value: Any) -> str:
    """A value formatted for reading."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, list):
        return " to ".join(shown(item) for item in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


@contextmanager
def progress_bar(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr with the estimated time left. It disappears when done; without a terminal nothing is drawn."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(description, total=total)
        yield lambda step: progress.advance(task, step)
