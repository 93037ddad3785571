"""Migrate a store of an earlier version: verify it, copy it, upgrade its tables, verify it again.

Events are never rewritten, and a study keeps the rules it was created with, so every hash stays what it was: the second
verification must find the heads of the first one on the chains.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safedial.errors import require
from safedial.study.backup import backup, new_target
from safedial.study.database import is_read_only, parse_url, reading, writing
from safedial.study.errors import StoreUnavailable, StudyError
from safedial.study.log import find_study, study_names
from safedial.study.replay_log import Source
from safedial.study.schema import SCHEMA, prepare, version
from safedial.study.store import Store
from safedial.study.store_log import verify_store
from safedial.study.verify import Report, verify_log
from safedial.study.verify_parts import verify_study

NOT_CHECKED = "was not checked"
"""How `verify` begins its problem with a study whose policy is its author's own Python code."""


def migrate(
    storage: str,
    copy: str | Path | None = None,
    *,
    announce: Callable[[str], None] = lambda _: None,
    path: dict[int, list[Any]] | None = None,
    newest: int = SCHEMA,
) -> dict[str, Any]:
    """Bring a store to the newest schema. A broken store is refused and stays as it is. A store that has this schema
    is verified and nothing else, unless a copy is named; "copy" is then None in the answer.

    Args:
        copy: where the copy of the store before goes: a new SQLite file, or the URL of an empty store. For a SQLite
            store it is by default `trial-before-migration.db` beside `trial.db`.
        announce: is told each step, before it begins.
        path, newest: the upgrades and the schema to reach (`schema.prepare`).
    """
    with Store(storage, create=False, upgrade=False) as store:
        with reading(store.engine) as connection:
            found = version(connection)
        current, made = found == newest and copy is None, None
        target = "" if current else _target(storage, copy)
        if not current and is_read_only(store.engine):
            raise StoreUnavailable("storage: can only be read here; copy the store to a writable folder")
        after = before = _verified(store, [], announce, "nothing was changed; restore a backup")
        if not current:
            announce(f"copying to {target}")
            made = backup(store, target)["target"]
            announce(f"upgrading the tables from schema {found} to {newest}")
            with writing(store.engine) as connection:
                prepare(connection, path, newest)
            after = _verified(store, before, announce, f"the store as it was is at {made}")
    rows = [{"name": name, "events": report.events, "head": f"{report.seq}:{report.hash}"} for name, report in after]
    return {"schema_before": found, "schema": newest, "copy": made, "studies": rows[1:], "store": rows[0]}


def _target(storage: str, copy: str | Path | None) -> str:
    """Where the copy goes; nothing may be there."""
    url = parse_url(storage)
    file, lite = Path(str(url.database)), copy is not None or url.drivername.startswith("sqlite")
    require(lite, "copy", copy, "is needed for PostgreSQL", "name a new SQLite file, or the URL of an empty store")
    target = str(file.with_name(f"{file.stem}-before-migration{file.suffix}") if copy is None else copy)
    new_target(target)
    return target


def _verified(
    store: Store, before: list[tuple[str, Report]], announce: Callable[[str], None], way_out: str
) -> list[tuple[str, Report]]:
    """Verify the store's own log and every study; the heads of `before` must be on their chains."""
    marks = {name: f"{report.seq}:{report.hash}" for name, report in before}
    announce("verifying the store's own log")
    found = [("", verify_store(store, checkpoint=marks.get("")))]
    with reading(store.engine) as connection:
        names = study_names(connection)
    for _, name, events in names:
        announce(f"verifying {name}, {events} events")
        report = verify_study(store, name, checkpoint=marks.get(name), workers=os.cpu_count() or 1)
        if report.problem.startswith(NOT_CHECKED):
            report = _chain(store, name, marks.get(name))
        found.append((name, report))
    bad = next((report for _, report in found if not report.ok), None)
    if bad is not None:
        raise StudyError("log_broken", f"storage: event {bad.first_bad} of {bad.study!r} {bad.problem}; {way_out}")
    return found


def _chain(store: Store, name: str, mark: str | None) -> Report:
    """The chain alone, where only the author of a study's policy can compute its decisions again."""
    with reading(store.engine) as connection:
        study = find_study(connection, name) or 0
        return verify_log(Source(connection, study, name), checkpoint=mark, recompute=False)
