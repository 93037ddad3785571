"""`safedial study`: ask and tell from a shell, on the same log that Python and the service use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.study_output import (
    Format,
    JsonFlag,
    Storage,
    after_import,
    print_answer,
    read_context,
    read_cost,
    read_fields,
    read_pairs,
    receipt_words,
    verify_words,
    with_age,
    without_outcome,
)

study = typer.Typer(no_args_is_help=True, help="Run a study: an append-only log of decisions and outcomes.")

Name = Annotated[str, typer.Argument(help="The study's name.")]
DecisionId = Annotated[str, typer.Argument(help="The decision's id, as `ask` printed it.")]
Reason = Annotated[str, typer.Option(help="The reason, in words.")]


@contextmanager
def opened(storage: str, name: str | None = None) -> Iterator[Any]:
    """The store, or one of its studies; `name` may be a decision's id."""
    from safedial.study import Store, find_decision, open_study

    with Store(storage, create=False) as store:
        if name is None:
            yield store
        else:
            yield find_decision(store, name)[0] if "." in name else open_study(name, storage=store)


@study.command()
def create(
    name: Name,
    storage: Storage,
    *,
    spec: Annotated[Path | None, typer.Option(help="A spec file: TOML, or JSON with all fields of a study.")] = None,
    field: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE, a field of the specification; may be repeated.")
    ] = None,
    load_if_exists: Annotated[bool, typer.Option(help="Open the study if it exists.")] = False,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Create a study: --set dim=2 --set threshold=0.5 …, or --spec FILE."""
    from safedial.study import Store
    from safedial.study.manage import make_study

    with Store(storage) as store:
        fields = read_fields(spec, field)
        made, notes = make_study(name, fields, storage=store, load_if_exists=load_if_exists, actor=None)
        answer = {"name": made.name, "spec": made.spec.fields, "warnings": notes}
        for note in notes:
            typer.echo(f"safedial: warning: {note}", err=True)
        print_answer(answer, format, json, f"Study {name} is ready.")


@study.command("list")
def list_(storage: Storage, format: Format = "table", json: JsonFlag = False) -> None:
    """List the studies of a store."""
    from safedial.study import list_studies

    with opened(storage) as store:
        print_answer({"studies": list_studies(store)}, format, json)


@study.command()
def ask(
    name: Name,
    context: Annotated[str, typer.Argument(help="0.6,0.3 or JSON: a list, or an object of features.")],
    storage: Storage,
    *,
    key: Annotated[
        str | None, typer.Option(help="For example the visit. The same key always gets the same decision.")
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
        float | None, typer.Option(help="hp_shield: the proposed or requested setting, where it takes one.")
    ] = None,
    unit: Annotated[
        str | None, typer.Option(help="hp_shield: the label of who gets it, where it keeps levels.")
    ] = None,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Advise an action for a context."""
    with opened(storage, name) as found:
        given = {"allow_extrapolation": allow_extrapolation, "proposal": proposal, "unit": unit}
        noted = {"key": key, "meta": read_pairs("--meta", meta)}
        decision = found.ask(read_context(context), baseline_cost=baseline_cost, **noted, **given)
        print_answer(decision.to_dict(), format, json, str(decision.explain()))


@study.command()
def tell(
    decision_id: DecisionId,
    storage: Storage,
    *,
    reward: Annotated[float, typer.Option(help="The reward, as measured.")],
    cost: Annotated[
        list[str], typer.Option(help="The cost, as measured; NAME=VALUE for each where there are several.")
    ],
    applied_action: Annotated[
        float | None, typer.Option(help="The setting that was applied, if it differs from the advice.")
    ] = None,
    observed_at: Annotated[str | None, typer.Option(help="When it was measured, ISO 8601.")] = None,
    throttled: Annotated[bool, typer.Option(help="The setting was lowered or stopped because of the outcome.")] = False,
    unrelated: Annotated[
        bool,
        typer.Option("--unrelated", help="Nothing was applied, for a reason that has nothing to do with the outcome."),
    ] = False,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Report the outcome of a decision."""
    with opened(storage, decision_id) as found:
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
        print_answer(receipt.to_dict(), format, json, f"{receipt_words(receipt)}{after}")


@study.command()
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
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Correct values of a reported outcome."""
    with opened(storage, decision_id) as found:
        receipt = found.correct(
            decision_id, reason=reason, reward=reward, cost=read_cost(cost), applied_action=applied_action
        )
        print_answer(receipt.to_dict(), format, json, receipt_words(receipt))


@study.command()
def void(
    decision_id: DecisionId,
    storage: Storage,
    *,
    reason: Reason,
    unrelated: Annotated[bool, typer.Option(help="The reason has nothing to do with the outcome.")] = False,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Declare a round void. Unless the reason is unrelated to the outcome, the model stops learning before it."""
    with opened(storage, decision_id) as found:
        receipt = found.void(decision_id, reason=reason, unrelated=unrelated)
        after = without_outcome(found.spec, decision_id, unrelated=unrelated, final=True)
        print_answer(receipt.to_dict(), format, json, f"{receipt_words(receipt)} {after}")


@study.command()
def expire(
    decision_id: DecisionId,
    storage: Storage,
    *,
    reason: Reason,
    unrelated: Annotated[bool, typer.Option(help="The reason has nothing to do with the outcome.")] = False,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Stop waiting for an outcome. Unless the reason is unrelated to it, a certified study learns nothing more until
    the outcome is reported.
    """
    with opened(storage, decision_id) as found:
        (receipt,) = found.expire(decision_id, reason=reason, unrelated=unrelated)
        after = without_outcome(found.spec, decision_id, unrelated=unrelated, final=False)
        print_answer(receipt.to_dict(), format, json, f"{receipt_words(receipt)} {after}")


@study.command()
def resume(
    name: Name,
    storage: Storage,
    *,
    reason: Reason,
    forget: Annotated[
        bool, typer.Option(help="hp_conformal, hp_shield, hp_student: restart without the earlier rounds.")
    ] = False,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Clear an alarm, so that the study advises as usual again."""
    with opened(storage, name) as found:
        receipt = found.resume(reason, forget=forget)
        print_answer(receipt.to_dict(), format, json, f"Resumed: event {receipt.seq}.")


@study.command("import")
def import_(
    name: Name,
    path: Annotated[Path, typer.Argument(help="Past rounds, .csv or .parquet: features, action, reward, cost.")],
    storage: Storage,
    *,
    reason: Reason = "warm start",
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Import past rounds before the first decision: all of them or none."""
    with opened(storage, name) as found:
        count = found.import_history(path, reason=reason)
        words = f"{count} rounds imported. {after_import(found.spec)}"
        print_answer({"name": name, "imported": count}, format, json, words)


@study.command()
def explain(decision_id: DecisionId, storage: Storage, format: Format = "table", json: JsonFlag = False) -> None:
    """Explain why an action was advised, and what its outcome was."""
    with opened(storage, decision_id) as found:
        answer = {**found.decision(decision_id).to_dict(), "events": found.about(decision_id)}
        print_answer(answer, format, json, str(found.explain(decision_id)))


@study.command()
def status(name: Name, storage: Storage, format: Format = "table", json: JsonFlag = False) -> None:
    """Print counts, the monitor's evidence, and whether and why the study stopped."""
    with opened(storage, name) as found:
        told = found.status()
        print_answer(told if json or format == "json" else with_age(told), format, json)


@study.command()
def verify(
    storage: Storage,
    name: Annotated[str, typer.Argument(help="The study's name; none for the whole store.")] = "",
    checkpoint: Annotated[str | None, typer.Option(help="SEQ:HASH, as `checkpoint` printed it.")] = None,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Check the log, its hash chain and every decision; without a name, all studies and the store's own log.

    Exit status 1, with the first bad seq, if they do not agree.
    """
    from safedial.study import list_studies, verify_store

    with opened(storage) as store:
        sizes = {each["name"]: each["events"] for each in list_studies(store)}
        if name:
            reports = [_verified(store, name, sizes.get(name, 0), checkpoint)]
        else:
            reports = [verify_store(store, checkpoint=checkpoint)]
            reports += [_verified(store, each, size, None) for each, size in sizes.items()]
    ok = all(report.ok for report in reports)
    answer = reports[0].to_dict() if name else {"ok": ok, "reports": [report.to_dict() for report in reports]}
    print_answer(answer, format, json, "\n".join(verify_words(report) for report in reports))
    if not ok:
        raise typer.Exit(1)


def _verified(store: Any, name: str, size: int, checkpoint: str | None) -> Any:
    from safedial.cli.output import progress_bar
    from safedial.study import verify_study

    with progress_bar(f"verifying {name}", size) as advance:
        return verify_study(store, name, checkpoint=checkpoint, progress=advance, workers=os.cpu_count() or 1)


@study.command()
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


@study.command()
def checkpoint(
    storage: Storage,
    name: Annotated[str, typer.Argument(help="The study's name; none for the whole store.")] = "",
    reason: Reason = "",
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Print SEQ:HASH to keep elsewhere: `verify --checkpoint` then detects any later change to earlier events.

    Without a name, the checkpoint is of the store's own log, which records the latest event of every study.
    """
    from safedial.study import checkpoint_store
    from safedial.study.requests import actor_name

    with opened(storage, name or None) as found:
        mark = found.checkpoint(reason) if name else checkpoint_store(found, reason=reason, actor=actor_name(None))
        print_answer(mark, format, json, f"{mark['seq']}:{mark['hash']}")


@study.command()
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
