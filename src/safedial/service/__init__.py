"""The decision service: studies over HTTP.

    request ─► access (key, role, bucket) ─► body (size, time, depth, numbers) ─► study ─► commit ─► answer
                                                                                   │
    page ◄─ series ◄─ track (read from the log, beside the writer) ◄───────────────┘

Read problem, body, access, routes, app in this order; then track and series for the page.
"""
