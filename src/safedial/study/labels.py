"""A study's own names and units in the sentences of its certificates."""

from __future__ import annotations

import re
from collections.abc import Mapping


def labelled(words: str, labels: Mapping[str, str]) -> str:
    """Words of this package with what a study calls its cost and its reward, and with their units.

    >>> labelled("P(cost > 20) <= 0.1, whatever earlier costs were", {"cost": "trough", "cost_unit": "mg/l"})
    'P(trough > 20 mg/l) <= 0.1, whatever earlier trough values were'
    """
    for word in ("cost", "reward"):
        name, unit = labels.get(word, word), labels.get(f"{word}_unit")
        if unit:
            words = re.sub(rf"\b{word} ([<>]=? )?[-+.e\d]*\d", lambda found, unit=unit: f"{found[0]} {unit}", words)
        if name != word:
            words = re.sub(rf"\b{word}s\b", lambda _, name=name: f"{name} values", words)
            words = re.sub(rf"\b{word}\b", lambda _, name=name: name, words)
    return words
