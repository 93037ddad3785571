"""The decision service: studies over HTTP.

    connection ─► access (key, role, bucket) ─► body (size, time, schema) ─► study ─► commit ─► answer
                                                                              │
    page ◄─ charts ◄─ timeline (read from the log, beside the writer) ◄───────┘

Read connections, problem, access, schemas, routes, app in this order; then timeline and charts for the page.
"""
