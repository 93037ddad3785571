"""Progress of long work: a bar on the command line, nothing elsewhere.

A result says what a notebook shows of it: a title, rows, notes. The HTML has no scripts, and everything in it is
escaped, because names, units and reasons are a user's own text.

Files: text and tables that are written whole or not at all, save files, and the provenance of a result.

A save file begins with one line that names the format and the digest of the rest; then comes a zip of plain arrays and
a JSON header, without pickle. The digest covers every byte after the first line and is checked before anything is
parsed, so a truncated or altered file is refused as a whole.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from safedial.errors import InvalidInput, import_extra, require
from safedial.version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame

Advance = Callable[[int], None]
"""Called with the number of steps just finished."""

Bar = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a bar from its title and the total number of steps."""


@contextmanager
def no_bar(title: str, total: int) -> Iterator[Advance]:
    """A bar that shows nothing.

    >>> with no_bar("Table 1", 10) as advance:
    ...     advance(1)
    """
    yield lambda steps: None


@contextmanager
def late_bar(bar: Bar, title: Callable[[int], str]) -> Iterator[Callable[[int, int | None], None]]:
    """A bar that opens when the total is known, for work that reports (steps done so far, total or None).

    >>> with late_bar(no_bar, lambda total: f"{total} texts") as report:
    ...     report(0, None)
    ...     report(3, 10)
    """
    opened: list[Advance] = []
    before = 0
    with ExitStack() as stack:

        def report(done: int, total: int | None) -> None:
            nonlocal before
            if not opened and total:
                opened.append(stack.enter_context(bar(title(total), total)))
            if opened:
                opened[0](done - before)
                before = done

        yield report


# --- How results look in a notebook, and how they become pandas tables

MOST_ROWS = 12
"""A notebook shows no more rows of a table."""


def data_frame(rows: Any) -> DataFrame:
    """Rows (mappings), or columns by name, as a pandas table. Without pandas the error says how to install it."""
    return import_extra("pandas", "data").DataFrame(rows if isinstance(rows, Mapping) else list(rows))


def html_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def card(title: str, rows: Iterable[Mapping[str, Any]] = (), notes: Iterable[str] = ()) -> str:
    """A title, a short table and notes, as HTML for a notebook. Notes that begin with "- " belong to the one above.

    >>> print(card("One <round>", [{"round": 1, "cost": 0.123456}], ["a note", "It holds if:", "- no drift"]))
    <div><strong>One &lt;round&gt;</strong><table><thead><tr><th>round</th><th>cost</th></tr></thead><tbody><tr><td>\
1</td><td>0.1235</td></tr></tbody></table><ul><li>a note</li><li>It holds if:<ul><li>no drift</li></ul></li></ul></div>
    """
    shown, told = list(islice(rows, MOST_ROWS + 1)), list(notes)
    if len(shown) > MOST_ROWS:
        told = [f"The first {MOST_ROWS} rows; to_frame() has all of them.", *told]
    heads = list(dict.fromkeys(name for row in shown for name in row))
    lines = [[plain_text(row.get(name)) for name in heads] for row in shown[:MOST_ROWS]]
    table = html_table([name.replace("_", " ") for name in heads], lines) if lines else ""
    return f"<div><strong>{html.escape(title)}</strong>{table}{_list(told)}</div>"


def _list(notes: Sequence[str]) -> str:
    """Notes as a list, in which those that begin with "- " are lists below."""
    starts = [place for place, text in enumerate(notes) if place == 0 or not text.startswith("- ")]
    items = (
        f"<li>{html.escape(notes[start])}{_list([text[2:] for text in notes[start + 1 : end]])}</li>"
        for start, end in zip(starts, [*starts[1:], len(notes)], strict=True)
    )
    return f"<ul>{''.join(items)}</ul>" if notes else ""


def named_values(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each value, under its name."""
    return [{"": name.replace("_", " "), " ": value} for name, value in values.items()]


def plain_text(value: Any) -> str:
    """A value as a cell shows it.

    >>> plain_text(0.123456), plain_text(True), plain_text(None), plain_text(["a", 2]), plain_text({"auc": 600.0})
    ('0.1235', 'yes', '', 'a, 2', 'auc 600')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain_text(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(plain_text, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# --- Files


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it replaces `path` at the end, or is removed on failure."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> Path:
    return write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a whole file or nothing: to a temporary file first, then moved into place."""
    try:
        with replacing(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written ({error.strerror or error})") from error
    return path


def read_text(path: str | os.PathLike[str], argument: str) -> str:
    """The text of a file, or an error that says which argument could not be read and why.

    >>> read_text("no_such_file.toml", "spec")
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: spec = 'no_such_file.toml': cannot be read (No such file or directory)
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{argument} = {str(path)!r}: is not UTF-8 text ({error.reason}); save it as UTF-8"
        ) from error
    except OSError as error:
        raise InvalidInput(f"{argument} = {str(path)!r}: cannot be read ({error.strerror or error})") from error


FORMAT = 1
"""The format of all save files, in their first line."""


def write_archive(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, Any], *, form: str) -> None:
    """Write atomically. Floats in the header keep every bit (JSON holds their shortest exact form)."""
    buffer = io.BytesIO()
    np.savez(buffer, header=np.array(json.dumps(header, allow_nan=False)), **arrays)
    content = buffer.getbuffer()
    first_line = f"{form} {FORMAT} {hashlib.sha256(content).hexdigest()}\n"
    try:
        with replacing(Path(path)) as partial, open(partial, "wb") as file:
            file.write(first_line.encode("ascii"))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InvalidInput(f"path = {str(path)!r}: cannot be written ({error.strerror or error})") from error


def read_archive(path: str | os.PathLike[str], *, form: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and arrays of a file from `write_archive`; any other file is refused with a reason."""
    try:
        first_line, _, content = Path(path).read_bytes().partition(b"\n")
    except OSError as error:
        raise InvalidInput(f"path = {str(path)!r}: cannot be read ({error.strerror})") from error
    name, found, digest = ([*first_line.split(b" "), b"", b""])[:3]
    if name != form.encode():
        raise InvalidInput(
            f"path = {str(path)!r}: is not a safedial save file of the form {form}, or its beginning is damaged"
        )
    if found != str(FORMAT).encode():
        text = found.decode("ascii", "replace")
        raise InvalidInput(f"path = {str(path)!r}: has format {text}; this safedial reads {FORMAT}")
    if digest != hashlib.sha256(content).hexdigest().encode():
        raise InvalidInput(f"path = {str(path)!r}: was truncated or altered after it was saved (wrong digest)")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(str(arrays.pop("header"))), arrays


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A CSV file with the keys of all rows as columns; a row without one has nothing there."""
    text, columns = io.StringIO(), {name: None for row in rows for name in row}
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_text(path, text.getvalue())


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a file from `write_rows`: numbers as floats, True and False as booleans, the rest as text."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: cannot be read ({error}); run safedial reproduce first") from error
    whole = rows and all(None not in row and None not in row.values() for row in rows)
    require(whole, "file", str(path), "is cut short or empty", "run safedial reproduce again")
    return rows


def _value(text: str | None) -> Any:
    if text is None:
        return None
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text)
    except ValueError:
        return text


def provenance(settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Everything needed to repeat a run and to judge its timing."""
    return {
        "settings": settings,
        "seconds": round(seconds, 3),
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {
            "safedial": __version__,
            "python": platform.python_version(),
            **{name: version_of(name) for name in ("numpy", "scipy", *(("jax",) if "jax" in sys.modules else ()))},
        },
        "commit": _commit(),
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
        "command": ["safedial", *sys.argv[1:]],
    }


def output_folder(path: str | os.PathLike[str]) -> Path:
    """Create the folder, or say why it is not writable."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{os.getpid()}.writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InvalidInput(f"out = {str(folder)!r}: cannot be written to ({error.strerror}); choose another") from error
    return folder


@contextmanager
def folder_for(path: str | os.PathLike[str]) -> Iterator[Path]:
    """`output_folder`; if what follows fails, the folders that were made for it go again unless they hold something."""
    made = [each for each in (Path(path), *Path(path).parents) if not each.exists()]
    folder = output_folder(path)
    try:
        yield folder
    except BaseException:
        for each in made:
            with suppress(OSError):
                each.rmdir()
        raise


def write_json(path: Path, content: Any) -> Path:
    return write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _commit() -> str | None:
    """The commit of the checkout that contains this package, or None outside a checkout."""
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
