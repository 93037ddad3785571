"""What HP-Shield says of a question that it refuses."""

from __future__ import annotations

from typing import Any

from safedial.decision.units import Dial
from safedial.errors import InvalidInput

GIVE_PROPOSAL = "give it with the question: proposal=..., on the command line --proposal"


def base_name(base: Any) -> str:
    """What an error calls the setting that is scaled."""
    if base == "proposal":
        return base
    return f"context[{base!r}]" if isinstance(base, (str, int)) else "base(context)"


def too_high(name: str, protocol: float, start: float, dial: Dial) -> InvalidInput:
    """The refusal of a base whose start the dial does not reach; most often the base is mistyped."""
    rule = "gives a start above the dial's end"
    way_out = "if it is right, state a dial that reaches further, in the base's unit, or a smaller start_scale"
    words = f"{name} = {protocol:g}: may be mistyped: it {rule} ({start:g}, above {dial.high:g}); {way_out}"
    return InvalidInput(words, public=f"{name}: may be mistyped: it {rule}; {way_out}")
