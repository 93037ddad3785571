"""Every program in `examples/` runs, in small."""

import runpy
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_example_runs(program, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [program.name, "40"])
    runpy.run_path(str(program), run_name="__main__")
    assert capsys.readouterr().out


def test_there_are_examples():
    assert len(PROGRAMS) == 4
