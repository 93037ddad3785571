"""Studies: ask and tell over an append-only event log, on SQLite or PostgreSQL.

    ask ─► StudyTransaction ─► decide_next(state) ─► event ─► commit ─► answer
                  ▲                                    │
            update_state(state, event) ◄───────────────┘

Read event, event_kinds, state, reducer, replay_log, transaction, store, ids, operations, study in this order; then
sqlite_file (checks of the file at each write), verify (checks afterwards).
"""
