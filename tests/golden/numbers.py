"""How golden answers are written and compared.

A column has an entry for every round, or for every so many, and is written as one line of words: a number to ten digits
after the point, or eleven in all; `-` for nothing; `.7` for seven times what it said before; `=7` for seven times the
setting that the same round advised; other words as they are.
"""

from __future__ import annotations

import json
import math

import numpy as np

TOLERANCE = 1e-9
DIGITS = 10


def word(value):
    if value is None:
        return "-"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value or "-"
    if isinstance(value, int | np.integer):
        return str(int(value))
    number = float(value)
    if abs(number) < 0.5 * 10.0**-DIGITS:
        return "0"
    if abs(number) < 1.0:
        return f"{number:.{DIGITS}f}".rstrip("0").rstrip(".")
    return f"{number:.{DIGITS + 1}g}"


def value_of(text):
    try:
        return float(text)
    except ValueError:
        return None if text == "-" else text


def written(column, leading=None):
    """A column as one line; `leading` is the column of advised settings, if this is another one for the same rounds."""
    words, lead = [word(value) for value in column], [word(value) for value in leading or []]
    short = []
    for place, each in enumerate(words):
        mark = ""
        if place and each == words[place - 1]:
            mark = "."
        if lead and len(each) > 1 and each == lead[place]:
            mark = "="
        if mark and short and short[-1][0] == mark:
            short[-1][1] += 1
        else:
            short.append([mark, 1] if mark else [each, 0])
    return " ".join(each if not count else each if count == 1 else f"{each}{count}" for each, count in short)


def read(line, leading=None):
    """The column that `written` wrote."""
    found = []
    for each in line.split(" ") if line else []:
        count = int(each[1:] or 1) if each[0] in ".=" else 1
        if each[0] == ".":
            found += [found[-1]] * count
        elif each[0] == "=":
            found += leading[len(found) : len(found) + count]
        else:
            found.append(value_of(each))
    return found


def differs(given, recorded, tolerance=TOLERANCE):
    """How far two entries are apart in units of the tolerance, ∞ where they are not alike."""
    given = value_of(word(given)) if not isinstance(given, float | int) or isinstance(given, bool) else float(given)
    if isinstance(given, float) and isinstance(recorded, float):
        if given == recorded or (math.isnan(given) and math.isnan(recorded)):
            return 0.0
        apart = abs(given - recorded) / (tolerance * max(1.0, abs(recorded)))
        return apart if math.isfinite(apart) else math.inf
    return 0.0 if given == recorded else math.inf


def plain(answers):
    """Answers as they are written to a file: columns as lines, numbers in as many digits."""
    columns = answers.get("columns", {})
    lead = columns.get("action")
    lines = {name: written(column, _leading(name, column, lead)) for name, column in columns.items()}
    return {"columns": lines, "numbers": {name: rounded(value) for name, value in answers["numbers"].items()}}


def _leading(name, column, lead):
    """The advised settings, for another column of the same rounds."""
    return lead if lead is not None and name != "action" and len(column) == len(lead) else None


def rounded(value):
    if isinstance(value, list | tuple | np.ndarray):
        return [rounded(each) for each in value]
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    return float(word(value)) if math.isfinite(value) else word(value)


def dumped(told):
    """JSON with a line for each column and number."""
    parts = []
    for part, held in told.items():
        rows = [f"  {json.dumps(name)}: {json.dumps(value, separators=(', ', ': '))}" for name, value in held.items()]
        body = ",\n".join(rows)
        parts.append(f'"{part}": {{\n{body}\n}}' if rows else f'"{part}": {{}}')
    return "{" + ",\n".join(parts) + "}\n"


def differences(answers, told, tolerance=TOLERANCE):
    """(the largest difference in units of the tolerance, where) of answers from recorded ones."""
    worst, where = 0.0, ""
    columns = answers.get("columns", {})
    same = sorted(columns) == sorted(told["columns"]) and sorted(answers["numbers"]) == sorted(told["numbers"])
    if not same:
        return math.inf, f"names: {sorted(columns)} {sorted(answers['numbers'])}"
    lead = None
    for name in sorted(columns, key=lambda name: name != "action"):
        given = columns[name]
        recorded = read(told["columns"][name], lead)
        lead = recorded if name == "action" else lead
        if len(recorded) != len(given):
            return math.inf, f"{name}: {len(given)} entries, {len(recorded)} recorded"
        for place, pair in enumerate(zip(given, recorded, strict=True)):
            apart = differs(*pair, tolerance)
            if apart > worst:
                worst, where = apart, f"{name}[{place}]: {pair[0]!r}, recorded {pair[1]!r}"
    for name, given in answers["numbers"].items():
        if len(flat(given)) != len(flat(told["numbers"][name])):
            return math.inf, f"{name}: {flat(given)}, recorded {flat(told['numbers'][name])}"
        for place, pair in enumerate(zip(flat(given), flat(told["numbers"][name]), strict=True)):
            apart = differs(pair[0], value_of(word(pair[1])), tolerance)
            if apart > worst:
                worst, where = apart, f"{name}[{place}]: {pair[0]!r}, recorded {pair[1]!r}"
    return worst, where


def flat(value):
    if isinstance(value, list | tuple | np.ndarray):
        return [each for part in value for each in flat(part)]
    return [value]
