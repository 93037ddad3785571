"""Studies: ask and tell over an append-only event log, on SQLite or PostgreSQL.

    ask ─► StudyTransaction ─► decide_next(state) ─► event ─► commit ─► answer
                  ▲                                    │
            update_state(state, event) ◄───────────────┘

Read event, state, reducer, replay_log, transaction, store, operations and study in this order; then database (checks of
the file at each write) and verify (checks afterwards).
"""
