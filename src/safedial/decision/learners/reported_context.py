"""The check of an outcome that is reported by its context, for learners that must know its round."""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.errors import InvalidInput, require


def check_reported(policy: str, context: Any, kept: Any, *, round: int, decisions: int) -> None:
    """The context must be the one `kept` for its round, if any is; round 0 is history, allowed only before the first
    decision.
    """
    rule = "is reported though no round is open; was it reported already?"
    way_out = "give history before the first decision"
    require(round > 0 or decisions == 0, "context", context.tolist(), rule, way_out)
    if kept is not None and not np.array_equal(kept, context):
        raise InvalidInput(
            f"context: differs from that of round {round} (the oldest open round, or the one you named), and "
            f"{policy} must know the round; report the Decision itself, or give round=..."
        )
