"""Access keys: 256 random bits, shown once, stored as their SHA-256. Making and revoking one is an event of the store.

A key is `sd_ID_SECRET`. Roles: `read` sees, `observe` reports outcomes, `decide` asks as well, `admin` does everything.
A key may be limited to one study. Any number may live at once, so that a new one can take over before the old one goes.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from typing import Any, NamedTuple

from safedial.errors import require
from safedial.study.database import reading, writing
from safedial.study.errors import StudyError
from safedial.study.event import Event, canonical, digest, moment, now
from safedial.study.load import Source
from safedial.study.log import append_events, lock_head, read_events
from safedial.study.schema import STORE_LOG, STORE_NAME, keys, sa
from safedial.study.store import Store
from safedial.study.verify import Report, verify_log

ROLES = ("read", "observe", "decide", "admin")


class Key(NamedTuple):
    """A key as the store knows it; the secret itself is nowhere."""

    id: str
    role: str
    study: str
    created: int
    revoked: int | None

    def to_dict(self) -> dict[str, Any]:
        revoked = None if self.revoked is None else moment(self.revoked)
        return {**self._asdict(), "created": moment(self.created), "revoked": revoked}


def create_key(store: Store, role: str, *, study: str = "", reason: str, actor: str) -> tuple[str, Key]:
    """A new key, (the key itself, shown only here; its record)."""
    require(role in ROLES, "role", role, "must be one of " + ", ".join(ROLES))
    if study:
        store.find(study)
    _check_reason(reason)
    name, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    text = f"sd_{name}_{secret}"
    made = Key(name, role, study, now(), None)
    with writing(store.engine) as connection:
        head = lock_head(connection, STORE_LOG)
        values = {**made._asdict(), "hash": hash_key(text)}
        connection.execute(keys.insert().values(**values))
        body = {"id": name, "role": role, "study": study, "hash": hash_key(text).hex()}
        _append(connection, head, "key_created", body, made.created, actor, reason)
    return text, made


def revoke_key(store: Store, key_id: str, *, reason: str, actor: str) -> Key:
    """From now on the key opens nothing."""
    _check_reason(reason)
    with writing(store.engine) as connection:
        head = lock_head(connection, STORE_LOG)
        found = _find(connection, keys.c.id == str(key_id))
        if found is None:
            raise StudyError("unknown_key", f"key_id = {str(key_id)[:40]!r}: there is no such key")
        require(found.revoked is None, "key_id", key_id, "was revoked already")
        at = now()
        connection.execute(keys.update().where(keys.c.id == found.id).values(revoked=at))
        _append(connection, head, "key_revoked", {"id": found.id}, at, actor, reason)
    return found._replace(revoked=at)


def find_key_record(store: Store, text: str) -> Key | None:
    """The live key that this text is, or None."""
    with reading(store.engine) as connection:
        found = _find(connection, keys.c.hash == hash_key(str(text)))
    return found if found is not None and found.revoked is None else None


def list_keys(store: Store) -> list[Key]:
    """Every key ever made, revoked ones too."""
    with reading(store.engine) as connection:
        rows = connection.execute(sa.select(*_COLUMNS).order_by(keys.c.created, keys.c.id))
        return [Key(*row) for row in rows]


def verify_keys(store: Store) -> Report:
    """Check the store's own log, and that the keys in use are those that it made and has not revoked."""
    with reading(store.engine) as connection:
        report = verify_log(Source(connection, STORE_LOG, STORE_NAME), recompute=False)
        events = list(read_events(connection, STORE_LOG)) if report.ok else []
        rows = connection.execute(sa.select(*_COLUMNS, keys.c.hash)).all()
    made: dict[str, tuple[Any, ...]] = {}
    said = {}
    for event in events:
        body = event.fields()
        said[body["id"]] = event.seq
        if event.kind == "key_created":
            made[body["id"]] = (body["id"], body["role"], body["study"], event.at, None, bytes.fromhex(body["hash"]))
        else:
            known = made.get(body["id"], (None,) * 6)
            made[body["id"]] = (*known[:4], event.at, known[5])
    used = {row[0]: tuple(row) for row in rows}
    odd = sorted(name for name in made.keys() | used.keys() if made.get(name) != used.get(name))
    if not report.ok or not odd:
        return report
    return replace(report, ok=False, first_bad=said.get(odd[0]), problem=f"key {odd[0]} is not what the log says of it")


def hash_key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


_COLUMNS = (keys.c.id, keys.c.role, keys.c.study, keys.c.created, keys.c.revoked)


def _find(connection: Any, condition: Any) -> Key | None:
    row = connection.execute(sa.select(*_COLUMNS).where(condition)).one_or_none()
    return None if row is None else Key(*row)


def _append(connection: Any, head: Any, kind: str, body: dict[str, Any], at: int, actor: str, reason: str) -> None:
    new = (head.seq + 1, kind, 0, at, actor, reason, canonical(body))
    append_events(connection, STORE_LOG, [Event(*new, digest(head.hash, STORE_NAME, new))])


def _check_reason(reason: Any) -> None:
    stated = isinstance(reason, str) and reason.strip()
    require(stated, "reason", reason, "must say why, in words", code="reason_required")
