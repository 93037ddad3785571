"""Self-contained HTML pages: of a check, of a plan, and the parts that all pages share."""
