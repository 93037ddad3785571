"""`safedial study`: ask and tell from a shell, on the same log that Python and the service use."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.output import print_table, progress_bar, shown
from safedial.cli.study_output import (
    Answer,
    DecisionId,
    Name,
    Reason,
    Storage,
    after_import,
    answering,
    opened,
    print_fields,
    read_context,
    read_cost,
    read_fields,
    read_pairs,
    receipt_words,
    resumed_words,
    verify_words,
    with_age,
    with_named_wait,
    without_outcome,
)
from safedial.errors import InvalidInput, require


def verify(
    storage: Storage,
    name: Annotated[str, typer.Argument(help="The study's name; none for the whole store.")] = "",
    *,
    checkpoint: Annotated[
        str | None, typer.Option(help="SEQ:HASH, as `checkpoint` printed it, or the file that it wrote.")
    ] = None,
) -> Answer:
    """Check the log, its hash chain and every decision; without a name, those of all studies.

    Exit status 1, with the first bad seq, if they do not agree.
    """
    from safedial.study.manage import list_studies
    from safedial.study.verify import verify_store, verify_study

    kept = _kept(checkpoint)
    with opened(storage) as store:
        size = sum(each["events"] for each in list_studies(store) if name in ("", each["name"]))
        with progress_bar(f"verifying {name or 'all studies'}", size) as advance:
            if name:
                reports = [verify_study(store, name, checkpoint=kept, progress=advance)]
            else:
                reports = verify_store(store, checkpoint=kept, progress=advance)
    ok = all(report.ok for report in reports)
    answer = reports[0].to_dict() if name else {"ok": ok, "reports": [report.to_dict() for report in reports]}
    return answer, "\n".join(verify_words(report) for report in reports)


def _kept(words: str | None) -> Any:
    """A checkpoint from SEQ:HASH, or from a file."""
    from safedial.study.checkpoints import load_checkpoint

    return words if words is None or re.fullmatch(r"\d+:[0-9a-f]*", words) else load_checkpoint(Path(words))


def export(
    name: Name,
    path: Annotated[Path, typer.Argument(help="Decisions to .csv or .parquet; every event to .jsonl.")],
    storage: Storage,
) -> Answer:
    """Write a study to a file."""
    with opened(storage, name) as found:
        return {"file": str(found.export(path))}, f"Written:\n  {path}"


def checkpoint(
    storage: Storage,
    name: Annotated[str, typer.Argument(help="The study's name; none for the whole store.")] = "",
    reason: Reason = "",
    *,
    out: Annotated[Path | None, typer.Option(help="A file for a second system to keep, JSON.")] = None,
) -> Answer:
    """Print SEQ:HASH to keep elsewhere: `verify --checkpoint` then detects any later change to earlier events.

    Without a name, that of every study, which no log records.
    """
    from safedial.io import write_json
    from safedial.study.manage import checkpoint_store

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
    return mark, "\n".join(words)


def check_target(out: Path, name: str) -> None:
    """Refuse a file that cannot be written, or that is not an earlier checkpoint of the same log."""
    from safedial.study.checkpoints import load_checkpoint

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
) -> Answer:
    """Copy a store while it is in use, and check the copy."""
    from safedial.study.manage import backup as copy

    with opened(storage) as store:
        made = copy(store, target)
        return (
            made,
            f"{made['studies']} studies, {made['events']} events copied to {made['target']} and checked. \
Access keys do not work in the copy: make new ones after a restore.",
        )


def units(
    name: Name,
    storage: Storage,
    *,
    unit: Annotated[str, typer.Argument(help="One unit, for its course; none for all units.")] = "",
) -> Answer:
    """List the units of a study, with their own counts of excesses, or show the course of one."""
    with opened(storage, name) as found:
        told = found.unit(unit) if unit else {"units": found.units()}
    return told, partial(_print_units, name, told)


def _print_units(name: str, told: dict[str, Any]) -> None:
    """The counts of units, or of one with its course."""
    counts = told.get("units", [told])
    heads = ("unit", "decisions", "outcomes", "violations", "share, 95 % interval")
    rows = [
        (each["unit"], *(shown(each[head]) for head in heads[1:4]), "{:.3f}–{:.3f}".format(*each["interval"]))
        for each in counts
    ]
    print_table(name, heads, rows)
    if "course" in told:
        names = ("visit", "at", "action", "applied_action", "reward", "cost", "status")
        heads = tuple(each.removesuffix("_action") for each in names)
        course = [[_cell(each, row.get(each)) for each in names] for row in told["course"]]
        print_table(f"Course of {told['unit']}", heads, course)
        typer.echo("The guarantee is about rounds, whosever they are; it states nothing for one unit alone.")


def waiting(name: Name, storage: Storage) -> Answer:
    """List the decisions without an outcome yet, the oldest first, with the ids that `tell` takes."""
    from safedial.study.event import moment

    with opened(storage, name) as found:
        bodies = {row["decision_id"]: (row["at"], found.decision(row["decision_id"]).body) for row in found.waiting()}
    names = ("unit", "visit", "key", "action")
    rows = [
        {"decision_id": each, "at": moment(at), **{one: body.get(one) for one in names}}
        for each, (at, body) in bodies.items()
    ]
    names = [one for one in rows[0] if any(row[one] is not None for row in rows)] if rows else []
    shown = [[_cell(one, row[one]) for one in names] for row in rows]
    heads = [one.removesuffix("_id") for one in names]
    table = partial(print_table, f"{name}: decisions without an outcome yet", heads, shown)
    return {"waiting": rows}, table if rows else "No decision waits for an outcome."


def _cell(name: str, value: Any) -> str:
    from safedial.model.dial import rounded_down

    if value is None:
        return ""
    if name == "at":
        return str(value)[:16].replace("T", " ")
    if name == "action":
        return rounded_down(float(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# --- `safedial study`

study = typer.Typer(no_args_is_help=True)


def command(run: Callable[..., Answer]) -> None:
    """Add a command under its own name."""
    study.command(run.__name__.rstrip("_"))(answering(run))


@command
def create(
    name: Name,
    storage: Storage,
    *,
    spec: Annotated[Path | None, typer.Option(help="A spec file: TOML, or JSON with all fields of a study.")] = None,
    field: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE, a field of the specification; may be repeated.")
    ] = None,
    load_if_exists: Annotated[bool, typer.Option(help="Open the study if it exists.")] = False,
) -> Answer:
    """Create a study: --set dim=2 --set threshold=0.5 …, or --spec FILE."""
    from safedial.study.store import Store
    from safedial.study.study import Study

    with Store(storage) as store:
        fields = read_fields(spec, field)
        made = Study.create(name, fields, storage=store, load_if_exists=load_if_exists, quiet=True)
        answer = {"name": made.name, "spec": made.spec.fields, "warnings": made.warnings}
        for note in made.warnings:
            typer.echo(f"safedial: warning: {note}", err=True)
        return answer, f"Study {name} is ready."


@command
def list_(storage: Storage) -> Answer:
    """List the studies of a store."""
    from safedial.study.manage import list_studies

    with opened(storage) as store:
        found = list_studies(store)
    rows = [(row["name"], shown(row["events"])) for row in found]
    return {"studies": found}, partial(print_table, "Studies", ("name", "events"), rows)


@command
def ask(
    name: Name,
    context: Annotated[str, typer.Argument(help="0.6,0.3 or JSON: a list, or an object of features.")],
    storage: Storage,
    *,
    key: Annotated[
        str | None, typer.Option(help="A name for the request. The same key gets the same decision for 30 days.")
    ] = None,
    meta: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, stored with the decision; may be repeated.")
    ] = None,
    baseline_cost: Annotated[float, typer.Option(help="The known cost without any action.")] = 0.0,
    allow_extrapolation: Annotated[
        bool,
        typer.Option(
            "--allow-extrapolation", help="Accept features outside their stated ranges, and mark the decision."
        ),
    ] = False,
    proposal: Annotated[
        float | None, typer.Option(help="The proposed or requested setting, where the policy takes one.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Who gets it, for example a patient.")] = None,
    visit: Annotated[str | None, typer.Option(help="The visit. A unit's visit has one decision.")] = None,
) -> Answer:
    """Advise an action for a context."""
    with opened(storage, name) as found:
        given = {"allow_extrapolation": allow_extrapolation, "proposal": proposal, "unit": unit, "visit": visit}
        noted = {"key": key, "meta": read_pairs("--meta", meta)}
        decision = found.ask(
            read_context(context, found.spec.rules.features), baseline_cost=baseline_cost, **noted, **given
        )
        return decision.to_dict(), str(decision.explain())


@command
def tell(
    decision_id: DecisionId,
    storage: Storage,
    *,
    cost: Annotated[
        list[str], typer.Option(help="The cost, as measured; NAME=VALUE for each where there are several.")
    ],
    reward: Annotated[
        float | None,
        typer.Option(help="The reward, as measured; may be left out where the policy does not choose by it."),
    ] = None,
    applied_action: Annotated[
        float | None, typer.Option(help="The setting that was applied, if it differs from the advice.")
    ] = None,
    observed_at: Annotated[
        str | None, typer.Option(help="When it was measured, ISO 8601: 2025-01-31T14:05:00Z.")
    ] = None,
    throttled: Annotated[bool, typer.Option(help="The setting was lowered or stopped because of the outcome.")] = False,
    unrelated: Annotated[
        bool,
        typer.Option("--unrelated", help="Nothing was applied, for a reason that has nothing to do with the outcome."),
    ] = False,
) -> Answer:
    """Report the outcome of a decision."""
    with opened(storage, decision_id=decision_id) as found:
        receipt = found.tell(
            decision_id,
            reward=reward,
            cost=read_cost(cost),
            applied_action=applied_action,
            observed_at=observed_at,
            throttled=throttled,
            unrelated=unrelated,
        )
        after = " " + without_outcome(found.spec, decision_id, unrelated=False, final=True) if throttled else ""
        return receipt.to_dict(), f"{receipt_words(receipt)}{after}"


@command
def correct(
    decision_id: DecisionId,
    storage: Storage,
    *,
    reason: Reason,
    reward: Annotated[float | None, typer.Option(help="The correct reward.")] = None,
    cost: Annotated[
        list[str] | None, typer.Option(help="The correct cost; NAME=VALUE for each where there are several.")
    ] = None,
    applied_action: Annotated[float | None, typer.Option(help="The setting that was really applied.")] = None,
) -> Answer:
    """Correct values of a reported outcome."""
    with opened(storage, decision_id=decision_id) as found:
        receipt = found.correct(
            decision_id, reason=reason, reward=reward, cost=read_cost(cost), applied_action=applied_action
        )
        return receipt.to_dict(), receipt_words(receipt)


@command
def void(
    decision_id: DecisionId,
    storage: Storage,
    *,
    reason: Reason,
    unrelated: Annotated[bool, typer.Option(help="The reason has nothing to do with the outcome.")] = False,
) -> Answer:
    """Declare a round void. Unless its reason is unrelated to the outcome, certified policies and HP-Student learn
    nothing from this round on; the others take it for the worst. It cannot be undone or changed later.
    """
    with opened(storage, decision_id=decision_id) as found:
        receipt = found.void(decision_id, reason=reason, unrelated=unrelated)
        after = without_outcome(found.spec, decision_id, unrelated=unrelated, final=True)
        return receipt.to_dict(), f"{receipt_words(receipt)} {after}"


@command
def expire(
    decision_id: DecisionId,
    storage: Storage,
    *,
    reason: Reason,
    unrelated: Annotated[bool, typer.Option(help="The reason has nothing to do with the outcome.")] = False,
) -> Answer:
    """Stop waiting for an outcome. Unless the reason is unrelated to it, a certified study learns nothing more until
    the outcome is reported.
    """
    with opened(storage, decision_id=decision_id) as found:
        (receipt,) = found.expire(decision_id, reason=reason, unrelated=unrelated)
        after = without_outcome(found.spec, decision_id, unrelated=unrelated, final=False)
        return receipt.to_dict(), f"{receipt_words(receipt)} {after}"


@command
def resume(
    name: Name,
    storage: Storage,
    *,
    reason: Reason,
    rule: Annotated[str | None, typer.Option(help="Refuse unless this rule has stopped the study.")] = None,
    forget: Annotated[
        bool, typer.Option(help="Where no constants are stated: restart without the earlier rounds.")
    ] = False,
    unrelated: Annotated[
        bool,
        typer.Option(help="With --forget: its reason has nothing to do with outcomes, which some guarantees need."),
    ] = False,
) -> Answer:
    """Clear an alarm, so that the study advises as usual again."""
    with opened(storage, name) as found:
        receipt = found.resume(reason, rule=rule, forget=forget, unrelated=unrelated)
        return receipt.to_dict(), f"{receipt_words(receipt)} {resumed_words(receipt)}"


@command
def amend(
    name: Name,
    storage: Storage,
    *,
    reason: Reason,
    spec: Annotated[Path | None, typer.Option(help="A spec file with the whole new specification.")] = None,
    field: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE, a field that changes; may be repeated.")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="The same as --set threshold=VALUE.")] = None,
    from_round: Annotated[
        int | None, typer.Option(help="Refuse the amendment unless it begins with this round.")
    ] = None,
    keep_learning: Annotated[
        bool | None,
        typer.Option(
            "--keep-learning/--start-again",
            help="Keep what was learned (refused where no proof allows it), or start again. Default: keep if proved.",
        ),
    ] = None,
    key: Annotated[str | None, typer.Option(help="A name for the request, which is then carried out once.")] = None,
) -> Answer:
    """Change the specification from the next decision on: --threshold 0.6, --set …, or --spec FILE."""
    with opened(storage, name) as found:
        changed = [*(field or []), *([] if threshold is None else [f"threshold={threshold!r}"])]
        given = {"spec": read_fields(spec, changed)} if spec else {"changes": read_fields(None, changed)}
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            receipt = found.amend(**given, reason=reason, from_round=from_round, keep_learning=keep_learning, key=key)
        for note in notes:
            typer.echo(f"safedial: warning: {note.message}", err=True)
        (event,) = found.events(receipt.seq, 1)["events"]
        words = f"{receipt_words(receipt)} Amended from round {event['body']['from_round']} on."
        after = "What was learned is kept." if event["body"]["keep_learning"] else "Learning starts again."
        return receipt.to_dict(), f"{words} {after}"


@command
def import_(
    name: Name,
    path: Annotated[Path, typer.Argument(help="Past rounds, .csv or .parquet: features, action, reward, cost.")],
    storage: Storage,
    *,
    reason: Reason = "warm start",
) -> Answer:
    """Import past rounds before the first decision: all of them or none."""
    with opened(storage, name) as found:
        count = found.import_history(path, reason=reason)
        words = f"{count} rounds imported. {after_import(found.spec)}"
        return {"name": name, "imported": count}, words


@command
def explain(decision_id: DecisionId, storage: Storage) -> Answer:
    """Explain why an action was advised, and what its outcome was."""
    with opened(storage, decision_id=decision_id) as found:
        answer = {**found.decision(decision_id).to_dict(), "events": found.about(decision_id)}
        return answer, str(found.explain(decision_id))


@command
def status(name: Name, storage: Storage) -> Answer:
    """Print counts, the monitor's evidence, and whether and why the study stopped."""
    with opened(storage, name) as found:
        told = found.status()
        return told, partial(print_fields, with_named_wait(found, with_age(told)))


for each in (waiting, verify, export, checkpoint, backup, units):
    command(each)
