"""Studies of a store: create, open, list and find them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.policies import Policy
from safedial.study.database import reading, writing
from safedial.study.errors import StudyError
from safedial.study.event import FORMAT, mark_of
from safedial.study.ids import NAME, no_decision, read_id
from safedial.study.log import add_study, find_study, lock_store, read_event, study_names
from safedial.study.replay_log import Source
from safedial.study.requests import actor_name
from safedial.study.spec import check_fallback, own_policy, read_spec
from safedial.study.state import State
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.transaction import StudyTransaction


def create_study(
    name: str,
    spec: SafetySpec | Mapping[str, Any] | None = None,
    *,
    storage: str | Store,
    load_if_exists: bool = False,
    actor: str | None = None,
    **more: Any,
) -> Study:
    """Create a study, or open an existing one. Choices worth a second thought cause a warning.

    Args:
        name: letters, digits, - and _.
        spec: the promise and everything else that is fixed for the study's life, as a mapping of plain values; or a
            `SafetySpec`, with the rest (`dim`, `policy`, `dose`, `dial`, `features`, `guard`, `learning_order`, …) as
            arguments.
            Your own policy, `Policy(..., learner=MyLearner)`, can run a study in Python: the log keeps its name and its
            plain options, and you give the policy again whenever you open the study.
        storage: sqlite:///file.db or postgresql://user@host/database, or an open `Store`.
        load_if_exists: open a study of that name if there is one; a given specification must match its own.
    """
    given = spec.stated() if isinstance(spec, SafetySpec) else {} if spec is None else spec
    require(isinstance(given, Mapping), "spec", type(given).__name__, "must be a SafetySpec or a mapping")
    opening = {"storage": storage, "load_if_exists": load_if_exists, "actor": actor}
    made, notes = make_study(name, {**given, **more}, **opening)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    return made


def make_study(
    name: str,
    whole: Mapping[str, Any],
    *,
    storage: str | Store,
    load_if_exists: bool,
    actor: str | None,
) -> tuple[Study, list[str]]:
    """`create_study`, with its warnings as a list."""
    require(
        isinstance(name, str) and NAME.fullmatch(name), "name", name, "must be letters, digits, - and _, at most 64"
    )
    with _store(storage) as store:
        notes = _created(store, name, whole, actor_name(actor))
        if notes is None and not load_if_exists:
            raise StudyError(
                "study_exists",
                f"name = {name!r}: there already is such a study; load_if_exists=True, or --load-if-exists, opens it",
            )
        opened = Study(store, name, actor=actor, policy=own_policy(whole))
        opened.created = notes is not None
        if notes is None and whole:
            same = read_spec(whole, quiet=True).fields == opened.spec.fields
            way_out = "a changed promise needs a new study, or `amend`, with a reason"
            require(same, "spec", name, "differs from the study's own", way_out)
        return opened, notes or []


def open_study(
    name: str,
    *,
    storage: str | Store,
    actor: str | None = None,
    policy: Policy | None = None,
) -> Study:
    """Open an existing study; `policy` is the one it was created with, if that is your own."""
    with _store(storage, create=False) as store:
        return Study(store, name, actor=actor, policy=policy)


@contextmanager
def _store(storage: str | Store, *, create: bool = True) -> Iterator[Store]:
    """An open store, or the one at a URL, which is closed again if what follows fails."""
    if isinstance(storage, Store):
        yield storage
        return
    store = Store(storage, create=create)
    try:
        yield store
    except BaseException:
        store.close()
        raise


def list_studies(store: Store) -> list[dict[str, Any]]:
    """Name and number of events of every study in a store."""
    with reading(store.engine) as connection:
        return [{"name": name, "events": seq} for _, name, seq in study_names(connection)]


def checkpoint_store(store: Store) -> dict[str, Any]:
    """A checkpoint of every study as of now, {"studies": [...]}; keep it elsewhere, for `verify_store`."""
    with reading(store.engine) as connection:
        ends = [
            (name, *(read_event(connection, study, each) for each in (1, seq)))
            for study, name, seq in study_names(connection)
        ]
    return {"studies": [mark_of(name, last, first) for name, first, last in ends if last is not None]}


def find_decision(store: Store, decision_id: str, *, actor: str | None = None) -> tuple[Study, int]:
    """The study of a decision, and its seq there."""
    found = read_id(decision_id)
    try:
        return Study(store, found.study, actor=actor), found.seq
    except StudyError as error:
        raise no_decision(decision_id) if error.code == "unknown_study" else error from error


def _created(store: Store, name: str, fields: Mapping[str, Any], actor: str) -> list[str] | None:
    """Create the study. Returns warnings, or None if it exists. Creations wait for each other."""
    with writing(store.engine) as connection:
        lock_store(connection)
        if find_study(connection, name) is not None:
            return None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = read_spec(fields)
        check_fallback(fields, made)
        transaction = StudyTransaction(
            Source(connection, add_study(connection, name), name, own_policy(fields)), State(made)
        )
        spec = {"name": name, "format": FORMAT, "spec": made.fields}
        transaction.append("study_created", spec, actor=actor)
        transaction.flush()
    rules, notes = made.rules, [str(each.message) for each in caught]
    if fields.get("fallback_action") is None and rules.fallback_action == rules.dial.low:
        nothing = rules.dial.text(rules.fallback_action)
        notes.append(
            f"if the study stops, it advises {nothing} to everybody: state fallback_action if that is not safe"
        )
    return notes
