"""What the commands of `safedial study` share: options, the study that they open, input from text, answers in words."""

from __future__ import annotations

import json as json_
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.output import print_json, print_pairs, wrapped
from safedial.errors import InvalidInput, printable, require
from safedial.model.guarantee import GUARANTEES


def _no_storage() -> str:
    """What happens where neither the option nor its variable is given."""
    way_out = "give --storage sqlite:///my.db, or set the variable: export SAFEDIAL_STORAGE=sqlite:///my.db"
    raise InvalidInput(f"--storage: is missing, it says which store to use; {way_out}")


Storage = Annotated[
    str,
    typer.Option(
        envvar="SAFEDIAL_STORAGE",
        default_factory=_no_storage,
        show_default="required",
        help="The store: a file, sqlite:///my.db, or a server, postgresql://…",
    ),
]
Name = Annotated[str, typer.Argument(help="The study's name.")]
DecisionId = Annotated[str, typer.Argument(help="The decision's id, as `ask` printed it and `waiting` lists it.")]
Reason = Annotated[str, typer.Option(help="The reason, in words.")]


@contextmanager
def opened(storage: str, name: str | None = None, *, decision_id: str | None = None) -> Iterator[Any]:
    """The store, or one of its studies, by its name or that of one of its decisions."""
    from safedial.study.manage import find_decision
    from safedial.study.store import Store
    from safedial.study.study import Study

    with Store(storage, create=False) as store:
        if decision_id is not None:
            yield find_decision(store, decision_id)[0]
        else:
            yield store if name is None else Study.open(name, storage=store)


# --- Input and output of `safedial study`


Answer = tuple[dict[str, Any], str | Callable[[], None]]
"""What a command answers: plain values, and the words, or what prints the table, that a person gets."""

FORMATS = {
    "format": ("table", Annotated[str, typer.Option(help="table or json.")]),
    "json": (False, Annotated[bool, typer.Option("--json", help="The same as --format json.")]),
}


def answering(command: Callable[..., Answer]) -> Callable[..., None]:
    """The command with the options of `FORMATS`; it prints its answer. An answer that is not `ok` exits with 1."""

    @wraps(command)
    def run(*, format: str, json: bool, **given: Any) -> None:
        require(format in ("table", "json"), "--format", format, "must be table or json")
        answer, told = command(**given)
        if json or format == "json":
            print_json(answer)
        else:
            typer.echo(wrapped(told)) if isinstance(told, str) else told()
        if answer.get("ok") is False:
            raise typer.Exit(1)

    kind = Parameter.KEYWORD_ONLY
    added = [Parameter(name, kind, default=each, annotation=hint) for name, (each, hint) in FORMATS.items()]
    vars(run)["__signature__"] = Signature([*signature(command, eval_str=True).parameters.values(), *added])
    return run


def print_fields(status: dict[str, Any]) -> None:
    """Names and values, without a title."""
    print_pairs("", {name: _short(value) for name, value in status.items()})


WITHOUT = {
    "gaussian noise": (
        "Until the outcome is reported the start dose is advised.",
        "From this round on the start dose is advised, because what is learned from the others could be biased. To "
        "start again without the earlier rounds: safedial study resume --forget --reason ...; an exact bound comes "
        "back only with --unrelated: the reason of the loss has nothing to do with outcomes.",
    ),
}
"""By what a guarantee rests on: what follows from a round without an outcome, while it may come, and for good."""


def without_outcome(spec: Any, decision_id: str, *, unrelated: bool, final: bool) -> str:
    """How a round without an outcome affects what the study learns, in words.

    Args:
        spec: the study's.
        unrelated: whether the reason is stated to have nothing to do with the outcome.
        final: whether the outcome can no longer come (void, throttled), or may come late (expired).
    """
    if unrelated:
        return "The study skips this round: you stated that the reason has nothing to do with its outcome."
    policy = spec.rules.policy
    for need, (open_, lost) in WITHOUT.items():
        if need in GUARANTEES[policy.guarantee].rests_on:
            return lost if final else open_
    if not policy.counts:
        return (
            "The round counts as if its cost were unbounded, which keeps doses low; a few such rounds can hold the "
            "study at its start dose."
        )
    if final:
        return "From this round on the study learns nothing more: leaving a round out could bias all that follows."
    if not spec.ordered:
        return "The study learns from its other rounds as before, and accepts this outcome if it is still reported."
    return (
        "From this round on the study learns nothing until the outcome is reported. If the reason has nothing to do "
        f"with the outcome, say so: safedial study void {decision_id} --unrelated --reason ..."
    )


def receipt_words(receipt: Any) -> str:
    """The event that was written, with its checkpoint."""
    return (
        f"{'Written' if receipt.created else 'Already recorded'}: event {receipt.seq} ({receipt.seq}:{receipt.hash})."
    )


def resumed_words(receipt: Any) -> str:
    """Whether a study goes on after it was resumed."""
    from safedial.rounds.decision import LIMITS

    if not receipt.stop_reason:
        return "The study is resumed."
    return (
        f"The study was resumed and has stopped again at once: {LIMITS[receipt.stop_reason]} ({receipt.stop_reason})."
    )


def verify_words(report: Any) -> str:
    """A report of `verify` in one sentence, with a note on clocks if needed."""
    if not report.ok:
        return printable(f"{report.study}: event {report.first_bad or '–'} {report.problem}")
    words = f"{report.study}: {report.events} events, {report.decisions} decisions recomputed; all agree."
    note = (
        f" Events dated earlier than the event before them: {report.clock_back}; the first is {report.clock_back_at}."
    )
    return f"{words}{note if report.clock_back else ''} Head {report.seq}:{report.hash}"


def after_import(spec: Any) -> str:
    """How a study uses imported rounds, and what that assumes, in words."""
    if spec.rules.policy.counts:
        return "The study learns from them. They must be complete and unselected, with doses fixed beforehand."
    if not spec.rules.policy.history_counts:
        return "They train the predictors. The bounds and the drift alarm use only this study's own rounds."
    return (
        "They count as rounds of this study, and the drift alarm compares its own rounds with them: they must come "
        "from the same patients, and the dose curve must be exact between their doses and the study's."
    )


def read_context(words: str, features: Any = None) -> Any:
    """0.6,0.3 or JSON, an object of the study's `features` if it has them."""
    text = words.strip()
    try:
        return json_.loads(text if text.startswith(("[", "{")) else f"[{text}]")
    except ValueError as error:
        names = ("age", "weight") if features is None else features.names
        example = json_.dumps(dict.fromkeys(names, 1), ensure_ascii=False)
        place = ""
        if text.startswith(("[", "{")) and isinstance(error, json_.JSONDecodeError):
            place = f" is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at character {error.pos + 1};"
        rule = f"context:{place} must be comma-separated numbers, or JSON such as '{example}'"
        raise InvalidInput(rule, "not_finite") from None


def read_fields(spec: Path | None, fields: list[str] | None) -> dict[str, Any]:
    """A study's specification from a file and from NAME=VALUE words, which override the file."""
    found = {} if spec is None else _from_file(spec)
    stated = read_pairs("--set", fields)
    return {**found, **{name.replace("-", "_"): value for name, value in stated.items()}}


def read_pairs(option: str, words: list[str] | None) -> dict[str, Any]:
    """Read NAME=VALUE words. A value is read as JSON if possible, else as text.

    >>> read_pairs("--meta", ["patient=P-04", "first=true", "ward=3"])
    {'patient': 'P-04', 'first': True, 'ward': 3}
    """
    found = {}
    for word in words or []:
        name, equals, text = word.partition("=")
        example = {"--meta": "ward=3b", "--cost": "trough=12"}.get(option, "dim=2")
        require(equals and name, option, word, "must be NAME=VALUE", f"for example {option} {example}")
        require(name not in found, option, word, f"gives {name} a second value", "give it once")
        found[name] = _read_value(text)
    return found


def read_cost(words: list[str] | None) -> Any:
    """One cost, or several as NAME=VALUE, null where one is not known.

    >>> read_cost(["0.4"]), read_cost(["trough=12", "auc=null"])
    (0.4, {'trough': 12, 'auc': None})
    """
    if words and "=" not in words[0]:
        require(len(words) == 1, "--cost", words, "must be one number, or NAME=VALUE for each cost")
        return _read_value(words[0])
    return read_pairs("--cost", words) or None


def with_age(status: dict[str, Any]) -> dict[str, Any]:
    """A study's status for a person, with the ages of the oldest open outcome and of the longest delay."""

    def aged(since: str) -> str:
        waited = (datetime.now(UTC) - datetime.fromisoformat(since)).total_seconds()
        return f"{since[:16].replace('T', ' ')} UTC, {waited / 3600:.1f} hours ago"

    times = {name: status[name] for name in ("oldest_open", "overdue_since") if status.get(name)}
    return {
        **status,
        "stop_reason": status["stop_reason"] or "none",
        **{name: aged(since) for name, since in times.items()},
    }


def with_named_wait(study: Any, status: dict[str, Any]) -> dict[str, Any]:
    """A study's status for a person: the decision that learning waits for by its id, not by its event's number."""
    from safedial.study.answer import id_of

    seq = status["waits_for"]
    named = None
    if seq is not None:
        (event,) = study.events(from_seq=seq, limit=1)["events"]
        named = str(id_of(study.name, seq, bytes.fromhex(event["hash"])))
    return {
        "learning_waits_for" if name == "waits_for" else name: named if name == "waits_for" else value
        for name, value in status.items()
    }


def _read_value(text: str) -> Any:
    """JSON, a number as people write it (.3), or the text itself.

    >>> _read_value("[1, 2]"), _read_value(".3"), _read_value("certified")
    ([1, 2], 0.3, 'certified')
    """
    for read in (json_.loads, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _from_file(path: Path) -> dict[str, Any]:
    if path.suffix.lower() != ".json":
        from safedial.rounds.specfile import load_spec

        file = load_spec(path)
        parts = {name: part for name, part in vars(file).items() if part is not None}
        return {**parts.pop("spec").stated(), **parts}
    from safedial.io import read_text

    try:
        found = json_.loads(read_text(path, "spec"))
    except ValueError as error:
        raise InvalidInput(f"spec = {str(path)!r}: is not valid JSON ({error})") from error
    require(isinstance(found, dict), "spec", str(path), "must hold one object")
    return found


def _short(value: Any) -> Any:
    return json_.dumps(value) if value and isinstance(value, (dict, list)) else value
