"""The store's own log: the studies and keys that were created, and checkpoints of the whole store.

It is a hash chain like a study's (event.py), with id 0. So it shows if a study or a key was removed or smuggled in, and
one checkpoint of this log, kept elsewhere, covers the heads of all studies at that time.

`study_created` states the id and name of a study and the hash of its first event, `key_created` and `key_revoked` a key
(keys.py), `checkpoint` the heads of all studies, SEQ:HASH.

Stores from before version 2 of the rules have studies that are not in it; only a checkpoint records those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from safedial.checkpoints import Checkpoint, read_marks
from safedial.study.database import reading, writing
from safedial.study.event import Event, mark_of, next_event, now
from safedial.study.event_kinds import EVENT_KINDS
from safedial.study.log import append_events, lock_head, read_event, read_events, read_head, study_names
from safedial.study.replay_log import Source
from safedial.study.schema import STORE_LOG, STORE_NAME, keys, sa
from safedial.study.store import Store
from safedial.study.verify import Report, verify_log


def append_to_store(
    connection: Any, kind: str, body: dict[str, Any], *, actor: str, reason: str = "", at: int | None = None
) -> Event:
    """Append one event to the store's own log, whose head stays locked until the transaction ends."""
    head = lock_head(connection, STORE_LOG)
    at = now() if at is None else at
    event = next_event(head, STORE_NAME, kind, body, at=at, actor=actor, reason=reason)
    append_events(connection, STORE_LOG, [event])
    return event


def checkpoint_store(store: Store, *, reason: str = "", actor: str) -> dict[str, Any]:
    """Write a checkpoint with the heads of all studies to the store's log; keep the answer elsewhere."""
    with writing(store.engine) as connection:
        lock_head(connection, STORE_LOG)
        heads = {name: read_head(connection, study) for study, name, _ in study_names(connection)}
        body = {"heads": {name: f"{head.seq}:{head.hash.hex()}" for name, head in heads.items()}}
        event = append_to_store(connection, "checkpoint", body, actor=actor, reason=reason)
        first = event if event.seq == 1 else read_event(connection, STORE_LOG, 1)
    return mark_of(STORE_NAME, event, first)


def verify_store(store: Store, *, checkpoint: Checkpoint | None = None) -> Report:
    """Check the store's own log, and that the keys and studies are those that it records.

    Args:
        checkpoint: of the store's log. Anyone who can write to the database can add a key together with its event. So
            a key that was made or revoked after the checkpoint is a problem: making one prints the newer checkpoint.
    """
    with reading(store.engine) as connection:
        report = verify_log(Source(connection, STORE_LOG, STORE_NAME), checkpoint=checkpoint, recompute=False)
        if not report.ok:
            return report
        events = list(read_events(connection, STORE_LOG))
        problems = [*_keys(connection, events), *_studies(connection, events)]
    since = max(read_marks(checkpoint, STORE_NAME), default=None)
    if since is not None:
        problems += list(_new_keys(events, since))
    if not problems:
        return report
    seq, words = problems[0]
    return replace(report, ok=False, first_bad=seq, problem=words)


def _new_keys(events: Iterable[Event], since: int) -> Iterator[tuple[int | None, str]]:
    for event in events:
        act = EVENT_KINDS[event.kind].key_act
        if event.seq > since and act:
            yield event.seq, f"{act} key {event.fields()['id']} after the checkpoint; whoever did so has a newer one"


def _keys(connection: Any, events: Iterable[Event]) -> Iterator[tuple[int | None, str]]:
    """Keys that differ from what the log says about them."""
    made: dict[str, tuple[Any, ...]] = {}
    said = {}
    for event in events:
        act = EVENT_KINDS[event.kind].key_act
        if act:
            body = event.fields()
            name = body["id"]
            said[name] = event.seq
            known = made.get(name, (None,) * 6)
            made[name] = (
                (name, body["role"], body["study"], event.at, None, bytes.fromhex(body["hash"]))
                if act == "made"
                else (*known[:4], event.at, known[5])
            )
    columns = (keys.c.id, keys.c.role, keys.c.study, keys.c.created, keys.c.revoked, keys.c.hash)
    used = {row[0]: tuple(row) for row in connection.execute(sa.select(*columns))}
    for name in sorted(made.keys() | used.keys()):
        if made.get(name) != used.get(name):
            yield said.get(name), f"key {name} differs from what the log says about it"


def _studies(connection: Any, events: Iterable[Event]) -> Iterator[tuple[int | None, str]]:
    """Studies that are missing, smuggled in, or differ from the log and its checkpoints."""
    there = {name: study for study, name, _ in study_names(connection)}
    known = set()
    for event in events:
        body = event.fields()
        marks = body.get("heads", {})
        if EVENT_KINDS[event.kind].creates_study:
            known.add(body["name"])
            marks = {body["name"]: f"1:{body['hash']}"}
        for name, mark in marks.items():
            ((seq, right),) = read_marks(mark, name).items()
            found = read_event(connection, there[name], seq) if name in there else None
            if found is None or found.hash != right:
                words = "is not the one that was created" if name in there else "is gone"
                yield event.seq, f"records the study {name}, which {words}"
    for name, study in there.items():
        first = read_event(connection, study, 1)
        if name not in known and (first is None or first.fields().get("rules", 1) > 1):
            yield None, f"the study {name} is not in the store's log"
