"""`safedial study`: the commands that read a log: verify, export, checkpoint, backup, migrate, units, waiting."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.study_options import Format, JsonFlag, Name, Reason, Storage, UnitKey, opened
from safedial.cli.study_output import print_answer, verify_words


def verify(
    storage: Storage,
    name: Annotated[str, typer.Argument(help="The study's name; none for the whole store.")] = "",
    *,
    checkpoint: Annotated[
        str | None, typer.Option(help="SEQ:HASH, as `checkpoint` printed it, or the file that it wrote.")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="A PEM file: the Ed25519 key that must have signed the checkpoint.")
    ] = None,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Check the log, its hash chain and every decision; without a name, all studies and the store's own log.

    Exit status 1, with the first bad seq, if they do not agree.
    """
    from safedial.checkpoints import check_signature
    from safedial.study import list_studies, verify_store

    kept = _kept(checkpoint)
    if public_key is not None:
        check_signature(kept or "", public_key)
    with opened(storage) as store:
        sizes = {each["name"]: each["events"] for each in list_studies(store)}
        if name:
            reports = [_verified(store, name, sizes.get(name, 0), kept)]
        else:
            reports = [verify_store(store, checkpoint=kept)]
            reports += [_verified(store, each, size, None) for each, size in sizes.items()]
    ok = all(report.ok for report in reports)
    answer = reports[0].to_dict() if name else {"ok": ok, "reports": [report.to_dict() for report in reports]}
    print_answer(answer, format, json, "\n".join(verify_words(report) for report in reports))
    if isinstance(kept, Mapping) and "signature" in kept and public_key is None:
        typer.echo("safedial: the checkpoint is signed; --public-key checks its signature", err=True)
    if not ok:
        raise typer.Exit(1)


def _kept(words: str | None) -> Any:
    """A checkpoint from SEQ:HASH, or from a file."""
    from safedial.checkpoints import load_checkpoint

    return words if words is None or re.fullmatch(r"\d+:[0-9a-f]*", words) else load_checkpoint(Path(words))


def _verified(store: Any, name: str, size: int, checkpoint: Any) -> Any:
    from safedial.cli.output import progress_bar
    from safedial.study import verify_study

    with progress_bar(f"verifying {name}", size) as advance:
        return verify_study(store, name, checkpoint=checkpoint, progress=advance, workers=os.cpu_count() or 1)


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
    sign_with: Annotated[
        Path | None, typer.Option(help="A PEM file with an Ed25519 private key, to sign the file with.")
    ] = None,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Print SEQ:HASH to keep elsewhere: `verify --checkpoint` then detects any later change to earlier events.

    Without a name, the checkpoint is of the store's own log, which records the latest event of every study.
    """
    from safedial.checkpoints import signer
    from safedial.errors import require
    from safedial.io import write_json
    from safedial.study import checkpoint_store
    from safedial.study.requests import actor_name

    shown = out is not None or json or format == "json"
    require(shown or sign_with is None, "--sign-with", str(sign_with), "signs a file", "give --out FILE, or --json")
    signed = signer(sign_with)
    if out is not None:
        check_target(out, name)
    with opened(storage, name or None) as found:
        mark = found.checkpoint(reason) if name else checkpoint_store(found, reason=reason, actor=actor_name(None))
    mark = signed(mark)
    if out is not None:
        write_json(out, mark)
    print_answer(mark, format, json, f"{mark['seq']}:{mark['hash']}")


def check_target(out: Path, name: str) -> None:
    """Refuse a file that cannot be written, or that is not an earlier checkpoint of the same log."""
    from safedial.checkpoints import load_checkpoint
    from safedial.errors import InvalidInput, require
    from safedial.study.schema import STORE_NAME

    require(out.parent.is_dir(), "--out", str(out), "is in a folder that does not exist", "create the folder first")
    if out.exists():
        try:
            kept: Any = load_checkpoint(out)
        except InvalidInput:
            kept = {}
        same = kept.get("study") == (name or STORE_NAME)
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


def migrate(
    storage: Storage,
    copy: Annotated[
        str | None,
        typer.Argument(
            help="Where the copy goes: a new SQLite file (the default, beside the store), or an empty store."
        ),
    ] = None,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Bring a store of an earlier version to this one: verify, copy, upgrade, verify again. Stop its services first.

    No event changes, and each study keeps the rules it was created with. A store that is current already is verified
    and left as it is, unless you name a copy.
    """
    from safedial.study.migration import migrate as run

    made = run(storage, copy, announce=lambda words: typer.echo(f"safedial: {words}", err=True))
    events = sum(each["events"] for each in made["studies"])
    count = f"{len(made['studies'])} studies, {events} events verified"
    words = f"Already current (schema {made['schema']}), nothing to do. {count}; nothing was changed or copied."
    if made["copy"]:
        words = f"Schema {made['schema']} (it was {made['schema_before']}). {count} before and after. "
        words += f"The store as it was: {made['copy']}."
    print_answer(made, format, json, words)


def units(
    name: Name,
    storage: Storage,
    *,
    unit: Annotated[str, typer.Argument(help="One unit, for its course; none for all units.")] = "",
    unit_key: UnitKey = None,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """List the units of a study, with their own counts of excesses, or show the course of one."""
    from safedial.cli.output import print_table, shown

    with opened(storage, name, unit_key) as found:
        told = found.unit(unit) if unit else {"units": found.units()}
    if json or format == "json":
        print_answer(told, format, json)
        return
    counts = [told] if unit else told["units"]
    heads = ("unit", "decisions", "outcomes", "violations", "share, 95 % interval")
    rows = [
        (_short(each["unit"]), *(shown(each[head]) for head in heads[1:4]), "{:.3f}–{:.3f}".format(*each["interval"]))
        for each in counts
    ]
    print_table(name, heads, rows)
    if unit:
        names = ("visit", "at", "action", "applied_action", "reward", "cost", "status")
        heads = tuple(each.removesuffix("_action") for each in names)
        course = [[_cell(each, row.get(each)) for each in names] for row in told["course"]]
        print_table(f"Course of {_short(told['unit'])}", heads, course)
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


def _short(label: str) -> str:
    """A pseudonym by its first digits, by which `units` finds it too; --json has all of them."""
    from safedial.study.pseudonyms import PSEUDONYM

    return f"{label[:12]}…" if PSEUDONYM.fullmatch(label) else label


def _cell(name: str, value: Any) -> str:
    from safedial.decision.units import rounded_down

    if value is None:
        return ""
    if name == "unit":
        return _short(value)
    if name == "at":
        return str(value)[:16].replace("T", " ")
    if name == "action":
        return rounded_down(float(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
