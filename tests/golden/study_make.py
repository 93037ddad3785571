"""The answers of studies and tools: `answers_of` plays a case, `made` also checks that it lies on no edge."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.golden.study_cases import STUDIES
from tests.golden.study_numbers import choices, dumped, plain, worst
from tests.golden.study_script import Study
from tests.golden.tools_cases import TOOLS

ANSWERS = Path(__file__).parent / "answers"
CASES = {**{f"study_{name}": name for name in STUDIES}, **{f"tools_{name}": name for name in TOOLS}}
"""Every case, by the name of its file."""
SLIGHTLY, MORE = 1e-12, 1e-8
"""Inputs moved by such shares change no answer beyond the tolerance, and no choice."""


def answers_of(file: str, *, moved: float = 0.0) -> Any:
    """What the package answers to a case, with its inputs moved a little."""
    name = CASES[file]
    with tempfile.TemporaryDirectory() as folder:
        if file.startswith("study_"):
            played = Study(folder, name, STUDIES[name].stated, moved=moved)
            STUDIES[name].play(played)
            return played.answers(STUDIES[name].certificates)
        return TOOLS[name](Path(folder), moved)


def recorded(file: str) -> Any:
    return json.loads((ANSWERS / f"{file}.json").read_text(encoding="utf-8"))


def made(file: str) -> str:
    """The text of a case's answers; refused where they hang on rounding."""
    answers = answers_of(file)
    told = plain(answers)
    apart, where = worst(answers_of(file, moved=SLIGHTLY), told)
    if apart > 1.0:
        raise ValueError(f"{file}: inputs moved by {SLIGHTLY:g} move {where}; choose another seed")
    apart, where = worst(choices(answers_of(file, moved=MORE)), plain(choices(answers)))
    if apart > 0.0:
        raise ValueError(f"{file}: inputs moved by {MORE:g} change {where}; choose another seed")
    return dumped(told) + "\n"


def main(names: list[str]) -> None:
    """Write the answers that are missing, and those that are named after --replace."""
    named = [name for name in names if name != "--replace"]
    for file in named or CASES:
        path = ANSWERS / f"{file}.json"
        if "--replace" in names or not path.exists():
            path.write_text(made(file), encoding="utf-8")
            print(f"{file}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
