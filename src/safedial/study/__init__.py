"""Studies: ask and tell over an append-only event log, on SQLite or PostgreSQL.

    ask ─► StudyTransaction ─► decide_next(state) ─► event ─► commit ─► answer
                  ▲                                    │
            update_state(state, event) ◄───────────────┘

Read event, event_kinds, state, reducer, replay_log, transaction, store, ids, operations, study in this order; then
sqlite_file (checks of the file at each write), verify (checks afterwards).
"""

from __future__ import annotations

from safedial.study.answer import Receipt, StudyDecision
from safedial.study.errors import MEANINGS, StoreUnavailable, StudyError
from safedial.study.manage import checkpoint_store, create_study, find_decision, list_studies, open_study
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.verify_parts import verify_store, verify_study

__all__ = [
    "MEANINGS",
    "Receipt",
    "Store",
    "StoreUnavailable",
    "Study",
    "StudyDecision",
    "StudyError",
    "checkpoint_store",
    "create_study",
    "find_decision",
    "list_studies",
    "open_study",
    "verify_store",
    "verify_study",
]
