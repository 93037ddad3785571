"""`safedial study`: ask and tell from a shell, on the same log that Python and the service use."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from safedial.cli.study_log import backup, checkpoint, export, units, verify, waiting
from safedial.cli.study_options import DecisionId, Format, JsonFlag, Name, Reason, Storage, opened
from safedial.cli.study_output import (
    after_import,
    print_answer,
    read_context,
    read_cost,
    read_fields,
    read_pairs,
    receipt_words,
    resumed_words,
    with_age,
    with_named_wait,
    without_outcome,
)

study = typer.Typer(no_args_is_help=True)


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
        float | None, typer.Option(help="hp_shield: the proposed or requested setting, where it takes one.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="Who gets it, for example a patient.")] = None,
    visit: Annotated[str | None, typer.Option(help="The visit. A unit's visit has one decision.")] = None,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Advise an action for a context."""
    with opened(storage, name) as found:
        given = {"allow_extrapolation": allow_extrapolation, "proposal": proposal, "unit": unit, "visit": visit}
        noted = {"key": key, "meta": read_pairs("--meta", meta)}
        decision = found.ask(
            read_context(context, found.spec.rules.features), baseline_cost=baseline_cost, **noted, **given
        )
        print_answer(decision.to_dict(), format, json, str(decision.explain()))


@study.command()
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
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
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
    with opened(storage, decision_id=decision_id) as found:
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
    """Declare a round void. Unless its reason is unrelated to the outcome, certified policies and HP-Student learn
    nothing from this round on; HP-Conformal and HP-Shield count it as exceeding. It cannot be undone or changed later.
    """
    with opened(storage, decision_id=decision_id) as found:
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
    with opened(storage, decision_id=decision_id) as found:
        (receipt,) = found.expire(decision_id, reason=reason, unrelated=unrelated)
        after = without_outcome(found.spec, decision_id, unrelated=unrelated, final=False)
        print_answer(receipt.to_dict(), format, json, f"{receipt_words(receipt)} {after}")


@study.command()
def resume(
    name: Name,
    storage: Storage,
    *,
    reason: Reason,
    rule: Annotated[str | None, typer.Option(help="Refuse unless this rule has stopped the study.")] = None,
    forget: Annotated[
        bool, typer.Option(help="hp_conformal, hp_shield, hp_student: restart without the earlier rounds.")
    ] = False,
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
    """Clear an alarm, so that the study advises as usual again."""
    with opened(storage, name) as found:
        receipt = found.resume(reason, rule=rule, forget=forget)
        print_answer(receipt.to_dict(), format, json, f"{receipt_words(receipt)} {resumed_words(receipt)}")


@study.command()
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
    format: Format = "table",
    json: JsonFlag = False,
) -> None:
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
        print_answer(receipt.to_dict(), format, json, f"{words} {after}")


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
    with opened(storage, decision_id=decision_id) as found:
        answer = {**found.decision(decision_id).to_dict(), "events": found.about(decision_id)}
        print_answer(answer, format, json, str(found.explain(decision_id)))


@study.command()
def status(name: Name, storage: Storage, format: Format = "table", json: JsonFlag = False) -> None:
    """Print counts, the monitor's evidence, and whether and why the study stopped."""
    with opened(storage, name) as found:
        told = found.status()
        words = told if json or format == "json" else with_named_wait(found, with_age(told))
        print_answer(words, format, json)


for command in (waiting, verify, export, checkpoint, backup, units):
    study.command()(command)
