"""`safedial study`: the commands that read a log: verify, export, checkpoint, backup, units, waiting."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.study_options import Format, JsonFlag, Name, Reason, Storage, opened
from safedial.cli.study_output import print_answer, verify_words


def verify(
    storage: Storage,
    name: Annotated[str, typer.Argument(help="The study's name; none for the whole store.")] = "",
    *,
    checkpoint: Annotated[
        str | None, typer.Option(help="SEQ:HASH, as `checkpoint` printed it, or the file that it wrote.")
    ] = None,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Check the log, its hash chain and every decision; without a name, those of all studies.

    Exit status 1, with the first bad seq, if they do not agree.
    """
    from safedial.cli.output import progress_bar
    from safedial.study import list_studies, verify_store, verify_study

    kept, more = _kept(checkpoint), {"workers": os.cpu_count() or 1}
    with opened(storage) as store:
        size = sum(each["events"] for each in list_studies(store) if name in ("", each["name"]))
        with progress_bar(f"verifying {name or 'all studies'}", size) as advance:
            if name:
                reports = [verify_study(store, name, checkpoint=kept, progress=advance, **more)]
            else:
                reports = verify_store(store, checkpoint=kept, progress=advance, **more)
    ok = all(report.ok for report in reports)
    answer = reports[0].to_dict() if name else {"ok": ok, "reports": [report.to_dict() for report in reports]}
    print_answer(answer, format, json, "\n".join(verify_words(report) for report in reports))
    if not ok:
        raise typer.Exit(1)


def _kept(words: str | None) -> Any:
    """A checkpoint from SEQ:HASH, or from a file."""
    from safedial.checkpoints import load_checkpoint

    return words if words is None or re.fullmatch(r"\d+:[0-9a-f]*", words) else load_checkpoint(Path(words))


def export(
    name: Name,
    path: Annotated[Path, typer.Argument(help="Decisions to .csv or .parquet; every event to .jsonl.")],
    storage: Storage,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Write a study to a file."""
    with opened(storage, name) as found:
        print_answer({"file": str(found.export(path))}, format, json, f"Written:\n  {path}")


def checkpoint(
    storage: Storage,
    name: Annotated[str, typer.Argument(help="The study's name; none for the whole store.")] = "",
    reason: Reason = "",
    *,
    out: Annotated[Path | None, typer.Option(help="A file for a second system to keep, JSON.")] = None,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Print SEQ:HASH to keep elsewhere: `verify --checkpoint` then detects any later change to earlier events.

    Without a name, that of every study, which no log records.
    """
    from safedial.errors import require
    from safedial.io import write_json
    from safedial.study import checkpoint_store

    require(name or not reason, "--reason", reason, "is for the log of a study", "name the study, or leave it out")
    if out is not None:
        check_target(out, name)
    with opened(storage, name or None) as found:
        mark = found.checkpoint(reason) if name else checkpoint_store(found)
    if out is not None:
        write_json(out, mark)
    words = [
        f"{each['seq']}:{each['hash']}" if name else f"{each['study']} {each['seq']}:{each['hash']}"
        for each in mark.get("studies", [mark])
    ]
    print_answer(mark, format, json, "\n".join(words))


def check_target(out: Path, name: str) -> None:
    """Refuse a file that cannot be written, or that is not an earlier checkpoint of the same log."""
    from safedial.checkpoints import load_checkpoint
    from safedial.errors import InvalidInput, require

    require(out.parent.is_dir(), "--out", str(out), "is in a folder that does not exist", "create the folder first")
    if out.exists():
        try:
            kept: Any = load_checkpoint(out)
        except InvalidInput:
            kept = {}
        same = isinstance(kept, Mapping) and (kept.get("study") == name if name else "studies" in kept)
        require(same, "--out", str(out), "holds something else than a checkpoint of this log", "name another file")


def backup(
    target: Annotated[str, typer.Argument(help="A new SQLite file, or the URL of an empty store.")],
    storage: Storage,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Copy a store while it is in use, and check the copy."""
    from safedial.study.backup import backup as copy

    with opened(storage) as store:
        made = copy(store, target)
        words = f"{made['studies']} studies, {made['events']} events copied to {made['target']} and checked."
        print_answer(made, format, json, words)


def units(
    name: Name,
    storage: Storage,
    *,
    unit: Annotated[str, typer.Argument(help="One unit, for its course; none for all units.")] = "",
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """List the units of a study, with their own counts of excesses, or show the course of one."""
    from safedial.cli.output import print_table, shown

    with opened(storage, name) as found:
        told = found.unit(unit) if unit else {"units": found.units()}
    if json or format == "json":
        print_answer(told, format, json)
        return
    counts = [told] if unit else told["units"]
    heads = ("unit", "decisions", "outcomes", "violations", "share, 95 % interval")
    rows = [
        (each["unit"], *(shown(each[head]) for head in heads[1:4]), "{:.3f}–{:.3f}".format(*each["interval"]))
        for each in counts
    ]
    print_table(name, heads, rows)
    if unit:
        names = ("visit", "at", "action", "applied_action", "reward", "cost", "status")
        heads = tuple(each.removesuffix("_action") for each in names)
        course = [[_cell(each, row.get(each)) for each in names] for row in told["course"]]
        print_table(f"Course of {told['unit']}", heads, course)
        typer.echo("The promise is about rounds, whosever they are; it states nothing for one unit alone.")


def waiting(name: Name, storage: Storage, format: Format = "table", json: JsonFlag = False) -> None:
    """List the decisions without an outcome yet, the oldest first, with the ids that `tell` takes."""
    from safedial.cli.output import print_table
    from safedial.study.event import moment

    with opened(storage, name) as found:
        bodies = {row["decision_id"]: (row["at"], found.decision(row["decision_id"]).body) for row in found.waiting()}
    names = ("unit", "visit", "key", "action")
    rows = [
        {"decision_id": each, "at": moment(at), **{one: body.get(one) for one in names}}
        for each, (at, body) in bodies.items()
    ]
    if json or format == "json" or not rows:
        print_answer({"waiting": rows}, format, json, "No decision waits for an outcome.")
        return
    names = [one for one in rows[0] if any(row[one] is not None for row in rows)]
    shown = [[_cell(one, row[one]) for one in names] for row in rows]
    print_table(f"{name}: decisions without an outcome yet", [one.removesuffix("_id") for one in names], shown)


def _cell(name: str, value: Any) -> str:
    from safedial.decision.units import rounded_down

    if value is None:
        return ""
    if name == "at":
        return str(value)[:16].replace("T", " ")
    if name == "action":
        return rounded_down(float(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
