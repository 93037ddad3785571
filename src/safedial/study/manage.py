"""Studies of a store: create, open, list and find them; and copy a live store.

SQLite is copied by its online backup, PostgreSQL (or between the two) row by row. Both read one moment of the store and
block no writer. The copy is itself a store: `verify` reads it, and copying it back into an empty PostgreSQL database
restores it. (`pg_dump` works too.)
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from safedial.errors import require
from safedial.io import replacing
from safedial.model.spec import SafetySpec
from safedial.policies import Policy, as_policy
from safedial.study.answer import NAME, no_decision, read_id
from safedial.study.database import TABLES, create_private, meta, parse_url, reading, sa, studies, unavailable, writing
from safedial.study.event import FORMAT, mark_of
from safedial.study.log import CHUNK, add_study, find_study, lock_store, read_event, study_names
from safedial.study.replay_log import Source
from safedial.study.requests import actor_name
from safedial.study.state import State
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import check_fallback, own_policy, read_spec
from safedial.study.transaction import StudyTransaction
from safedial.study.verify import check_own_policy, verify_log


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
        spec: the guarantee and everything else that is fixed for the study's life, as a mapping of plain values; or a
            `SafetySpec`, with the rest (`dim`, `policy`, `dose`, `dial`, `features`, `guard`, `learning_order`, …) as
            arguments.
            Your own `Policy` can run a study in Python: the log keeps its name and its plain options, and you give the
            policy again whenever you open the study.
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
            way_out = "a changed guarantee needs a new study, or `amend`, with a reason"
            require(same, "spec", name, "differs from the study's own", way_out)
        return opened, notes or []


def open_study(
    name: str,
    *,
    storage: str | Store,
    actor: str | None = None,
    policy: Policy | None = None,
) -> Study:
    """Open an existing study; `policy` is the one it was created with, if that is your own. It must take the latest
    decision of the log again.
    """
    given = None if policy is None else as_policy(policy)
    with _store(storage, create=False) as store:
        opened = Study(store, name, actor=actor, policy=given)
        if given is not None:
            with reading(store.engine) as connection:
                check_own_policy(Source(connection, store.find(name), name, given))
        return opened


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


def find_decision(store: Store, decision_id: str) -> tuple[Study, int]:
    """The study of a decision, and its seq there."""
    found = read_id(decision_id)
    try:
        return Study(store, found.study), found.seq
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


# --- Copy a live store


def backup(store: Store, target: str | Path) -> dict[str, Any]:
    """Copy everything to a new SQLite file, or to an empty store at a URL, and check the copy's hash chains."""
    url, file = new_target(target)
    if file is not None and store.engine.dialect.name == "sqlite":
        _copy_file(store, file)
    else:
        with Store(url) as copy:
            _copy_rows(store, copy)
    with Store(url) as copy, reading(copy.engine) as connection:
        logs = connection.execute(sa.select(studies.c.id, studies.c.name).order_by(studies.c.id)).fetchall()
        reports = [verify_log(Source(connection, study, name), recompute=False) for study, name in logs]
    bad = next((report for report in reports if not report.ok), None)
    if bad is not None:
        raise StudyError(
            "log_broken", f"target: the copy of {bad.study!r} is incomplete: event {bad.first_bad} {bad.problem}"
        )
    return {
        "target": parse_url(url).render_as_string(hide_password=True),
        "studies": len(reports),
        "events": sum(report.events for report in reports),
        "heads": {report.study: f"{report.seq}:{report.hash}" for report in reports if report.seq},
    }


def new_target(target: str | Path) -> tuple[str, Path | None]:
    """The URL of a copy, and its file if it is on SQLite; a file that exists is refused."""
    url = str(target) if "://" in str(target) else f"sqlite:///{target}"
    file = Path(str(parse_url(url).database)) if parse_url(url).drivername.startswith("sqlite") else None
    require(file is None or not file.exists(), "target", str(target), "exists already", "name a new file")
    return url, file


def _copy_file(store: Store, file: Path) -> None:
    raw = store.engine.raw_connection()
    try:
        with replacing(file) as partial:
            create_private(partial)
            with unavailable(store.engine), closing(sqlite3.connect(partial)) as copy:
                raw.driver_connection.backup(copy)
            with open(partial, "rb") as written:
                os.fsync(written.fileno())
    except (OSError, sqlite3.Error) as error:
        raise StudyError("store_unavailable", f"target = {str(file)!r}: cannot be written ({error})") from error
    finally:
        raw.close()


def _copy_rows(store: Store, copy: Store) -> None:
    with reading(store.engine) as source, writing(copy.engine) as target:
        copied = [table for table in TABLES if table is not meta]
        empty = all(target.execute(sa.select(table).limit(1)).first() is None for table in copied)
        require(empty, "target", str(copy), "has studies or keys already", "name an empty store")
        for table in copied:
            _copy_table(source, target, table)


def _copy_table(source: Any, target: Any, table: Any) -> None:
    key = list(table.primary_key.columns)
    rows = source.execution_options(yield_per=CHUNK).execute(sa.select(table).order_by(*key))
    for part in rows.mappings().partitions():
        target.execute(table.insert(), [dict(row) for row in part])
