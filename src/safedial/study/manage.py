"""Studies of a store: list and find them; and copy a live store.

SQLite is copied by its online backup, PostgreSQL (or between the two) row by row. Both read one moment of the store and
block no writer. The copy is itself a store: `verify` reads it, and copying it back into an empty PostgreSQL database
restores it. (`pg_dump` works too.)
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from safedial.errors import require
from safedial.io import replacing
from safedial.study.answer import no_decision, read_id
from safedial.study.database import TABLES, create_private, meta, parse_url, reading, sa, studies, unavailable, writing
from safedial.study.event import mark_of
from safedial.study.keys import retire_keys
from safedial.study.log import CHUNK, read_event, study_names
from safedial.study.replay_log import Source
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from safedial.study.verify import verify_log


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


# --- Copy a live store


def backup(store: Store, target: str | Path) -> dict[str, Any]:
    """Copy everything to a new SQLite file, or to an empty store at a URL, and check the copy's hash chains. Its access
    keys are revoked: one that was revoked since must not come back with it.
    """
    url, file = new_target(target)
    if file is not None and store.engine.dialect.name == "sqlite":
        _copy_file(store, file)
    else:
        with Store(url) as copy:
            _copy_rows(store, copy)
    with Store(url) as copy:
        retire_keys(copy)
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
