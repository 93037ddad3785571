"""The one file of the golden answers that knows the package's names."""

from __future__ import annotations

# ---- Below this line: studies and tools. Above it: agents and simulations. ----
