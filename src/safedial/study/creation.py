"""A new study's first event, and the store that a study is in."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from safedial.study.database import writing
from safedial.study.event import FORMAT
from safedial.study.log import add_study, find_study, lock_store
from safedial.study.replay_log import Source
from safedial.study.state import State
from safedial.study.store import Store
from safedial.study.study_spec import check_fallback, own_policy, read_spec
from safedial.study.transaction import StudyTransaction


@contextmanager
def opened_store(storage: str | Store, *, create: bool = True) -> Iterator[Store]:
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


def create_log(store: Store, name: str, fields: Mapping[str, Any], actor: str) -> list[str] | None:
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
