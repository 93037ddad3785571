"""Access keys: 256 random bits, shown once, stored as their SHA-256, with who created and revoked each, when and why.

A key is `sd_ID_SECRET`. Roles: `read`; `observe` also reports outcomes; `decide` also asks; `admin` does everything. A
key may be limited to one study. Any number may be valid at once, so that a new key can replace an old one smoothly.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, NamedTuple

from safedial.errors import require
from safedial.study.database import keys, reading, sa, writing
from safedial.study.event import moment, now
from safedial.study.log import lock_store
from safedial.study.requests import need_reason
from safedial.study.store import Store
from safedial.study.study_errors import StudyError

ROLES = ("read", "observe", "decide", "admin")


class Key(NamedTuple):
    """The record of a key; the secret itself is not stored."""

    id: str
    role: str
    study: str
    created: int
    created_by: str
    created_reason: str
    revoked: int | None = None
    revoked_by: str | None = None
    revoked_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        revoked = None if self.revoked is None else moment(self.revoked)
        return {**self._asdict(), "created": moment(self.created), "revoked": revoked}


def create_key(store: Store, role: str, *, study: str = "", reason: str, actor: str) -> tuple[str, Key]:
    """Create a key. Returns (the key itself, shown only here; its record)."""
    require(role in ROLES, "role", role, "must be one of " + ", ".join(ROLES))
    if study:
        store.find(study)
    need_reason(reason)
    name, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    text = f"sd_{name}_{secret}"
    made = Key(name, role, study, now(), actor, reason)
    with writing(store.engine) as connection:
        connection.execute(keys.insert().values(**made._asdict(), hash=hash_key(text)))
    return text, made


def revoke_key(store: Store, key_id: str, *, reason: str, actor: str) -> Key:
    """Revoke a key for good."""
    need_reason(reason)
    with writing(store.engine) as connection:
        lock_store(connection)
        found = _find(connection, keys.c.id == str(key_id))
        if found is None:
            raise StudyError("unknown_key", f"key_id = {str(key_id)[:40]!r}: there is no such key")
        require(found.revoked is None, "key_id", key_id, "is revoked already")
        revoked = {"revoked": now(), "revoked_by": actor, "revoked_reason": reason}
        connection.execute(keys.update().where(keys.c.id == found.id).values(**revoked))
    return found._replace(**revoked)


def retire_keys(copy: Store) -> None:
    """Revoke every key of a copy, which may be older than a revocation; where there is none, leave a revoked one, as it
    may be older than the first key too. So whoever serves a restored copy makes new keys.
    """
    stamp, words = now(), "made for a copy of the store; make a new key after a restore"
    gone = {"revoked": stamp, "revoked_by": "backup", "revoked_reason": words}
    mark = Key(secrets.token_hex(4), "read", "", stamp, "backup", words, *gone.values())
    with writing(copy.engine) as connection:
        connection.execute(keys.update().where(keys.c.revoked.is_(None)).values(**gone))
        if connection.execute(sa.select(keys.c.id).limit(1)).first() is None:
            connection.execute(keys.insert().values(**mark._asdict(), hash=secrets.token_bytes(32)))


def live_keys(store: Store) -> dict[bytes, Key]:
    """Every key that is not revoked, by its hash."""
    with reading(store.engine) as connection:
        rows = connection.execute(sa.select(keys.c.hash, *_COLUMNS).where(keys.c.revoked.is_(None)))
        return {bytes(name): Key(*row) for name, *row in rows}


def list_keys(store: Store) -> list[Key]:
    """Every key ever created, including revoked ones."""
    with reading(store.engine) as connection:
        rows = connection.execute(sa.select(*_COLUMNS).order_by(keys.c.created, keys.c.id))
        return [Key(*row) for row in rows]


def hash_key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


_COLUMNS = tuple(keys.c[name] for name in Key._fields)


def _find(connection: Any, condition: Any) -> Key | None:
    row = connection.execute(sa.select(*_COLUMNS).where(condition)).one_or_none()
    return None if row is None else Key(*row)
