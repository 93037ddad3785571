"""What a study may call its cost, its reward and its units, for the people who read it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from safedial.errors import require

LABELS = ("cost", "cost_unit", "reward", "reward_unit", "unit")
"""What the cost and the reward measure, in which units, and what a unit is."""
LONGEST_LABEL = 40


def read_labels(given: Any, *, several: bool) -> dict[str, str]:
    """The labels, checked; `several`: whether there are several costs, which have names and units of their own.

    >>> read_labels({"cost": "trough", "cost_unit": "mg/l", "unit": "patient"}, several=False)["cost"]
    'trough'
    """
    choose = "choose from " + ", ".join(LABELS)
    require(isinstance(given, Mapping), "labels", given, "must be an object of names", choose)
    for name, label in given.items():
        near = get_close_matches(str(name), LABELS, n=1)
        way_out = f"did you mean {near[0]!r}? C{choose[1:]}" if near else choose
        require(name in LABELS, "labels", name, "is not a label", way_out)
        fits = isinstance(label, str) and 0 < len(label.strip()) == len(label) <= LONGEST_LABEL and label.isprintable()
        require(fits, f"labels.{name}", label, f"must be printable text of 1 to {LONGEST_LABEL} characters")
        own = several and name.startswith("cost")
        require(not own, f"labels.{name}", label, "is for one cost", "several have names, and units in `costs`")
    return dict(given)
