"""Nested answers of studies and tools: how they are written, and how far they are from recorded ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

TOLERANCE, DIGITS = 1e-9, 12

FITTED = 1e-3
"""The tolerance of what an optimiser found, under names that begin with ~: it stops where a step changes the loss by
1e-9 of itself, with differences of 1e-5 for slopes, so that two processors stop up to about 1e-4 apart.
"""


def plain(answers: Any) -> Any:
    """Answers as they are written to a file: mappings, lists, words, and numbers with twelve digits."""
    if isinstance(answers, dict):
        return {str(name): plain(value) for name, value in answers.items()}
    if isinstance(answers, (list, tuple)):
        return [plain(each) for each in answers]
    if hasattr(answers, "tolist"):
        return plain(answers.tolist())
    if isinstance(answers, float):
        return float(f"{answers:.{DIGITS}g}") if math.isfinite(answers) else f"{answers:g}"
    return answers


def dumped(answers: Any, depth: int = 0) -> str:
    """JSON with a line for each row of a table."""
    if isinstance(answers, dict) and depth < 3 and any(isinstance(each, (dict, list)) for each in answers.values()):
        rows = [f"{json.dumps(name)}: {dumped(value, depth + 1)}" for name, value in answers.items()]
        return "{" + ",\n".join(rows) + "}"
    if isinstance(answers, list) and depth < 3 and any(isinstance(each, (dict, list)) for each in answers):
        return "[" + ",\n".join(dumped(each, depth + 1) for each in answers) + "]"
    return json.dumps(answers, ensure_ascii=False, separators=(",", ":"))


def differences(
    given: Any, recorded: Any, where: str = "", tolerance: float = TOLERANCE
) -> Iterator[tuple[float, str]]:
    """Every entry's distance from the recorded one in units of the tolerance, and where it is."""
    if isinstance(given, dict) and isinstance(recorded, dict):
        names = {str(name): value for name, value in given.items()}
        if sorted(names) != sorted(recorded):
            yield math.inf, f"{where}: has {sorted(names)}, recorded {sorted(recorded)}"
        for name in names.keys() & recorded.keys():
            loose = FITTED if name.startswith("~") else tolerance
            yield from differences(names[name], recorded[name], f"{where}.{name}", loose)
    elif isinstance(given, (list, tuple)) and isinstance(recorded, list):
        if len(given) != len(recorded):
            yield math.inf, f"{where}: {len(given)} entries, recorded {len(recorded)}"
        for place, pair in enumerate(zip(given, recorded, strict=False)):
            yield from differences(*pair, f"{where}[{place}]", tolerance)
    elif isinstance(given, (dict, list, tuple)) or isinstance(recorded, (dict, list)):
        yield math.inf, f"{where}: {given!r}, recorded {recorded!r}"
    else:
        yield apart(given, recorded, tolerance), f"{where}: {given!r}, recorded {recorded!r}"


def apart(given: Any, recorded: Any, tolerance: float) -> float:
    """How far two entries are apart in units of the tolerance, absolute or relative; ∞ where they are not alike."""
    given, recorded = plain(given), plain(recorded)
    number = [isinstance(each, (int, float)) and not isinstance(each, bool) for each in (given, recorded)]
    if not all(number):
        return 0.0 if given == recorded and type(given) is type(recorded) else math.inf
    return abs(given - recorded) / (tolerance * max(1.0, abs(recorded)))


def worst(given: Any, recorded: Any) -> tuple[float, str]:
    """The largest distance in units of the tolerance, and where it is."""
    return max(differences(given, recorded), default=(0.0, ""))


def choices(answers: Any) -> Any:
    """Answers without their real numbers: words, whole numbers, yes and no."""
    if isinstance(answers, dict):
        return {name: choices(value) for name, value in answers.items()}
    if isinstance(answers, (list, tuple)):
        return [choices(each) for each in answers]
    return "number" if isinstance(answers, float) and math.isfinite(answers) else answers
