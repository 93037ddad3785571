"""The package answers as it is recorded that it answers: agents, simulations and the paper's Table 1."""

from __future__ import annotations

import json

import pytest

from tests.golden import make
from tests.golden.cases import agents, totals
from tests.golden.numbers import differences, dumped, plain, read, written

COUNTS = {"agents": 192, "totals": 114, "table1": 2}
"""How many cases there are. One may go only with the option that it is about."""


def require_same(name, answers):
    apart, where = differences(answers, make.recorded(name))
    assert apart <= 1.0, f"{name}: {where}"


@pytest.mark.parametrize("name", agents.CASES)
def test_an_agent_answers_as_recorded(name):
    require_same(f"agents/{name}", make.answers(f"agents/{name}"))


@pytest.mark.parametrize("name", totals.CASES)
def test_a_simulation_adds_up_as_recorded(name):
    require_same(f"totals/{name}", make.answers(f"totals/{name}"))


@pytest.mark.parametrize("name", make.TABLE1)
def test_table_1_counts_as_recorded(name):
    require_same(f"table1/{name}", make.answers(f"table1/{name}"))


@pytest.mark.parametrize("name", totals.JAX)
def test_a_compiled_simulation_adds_up_as_recorded(name):
    answers = make.total(name, engine="jax")
    told = make.recorded(f"totals/{name}")
    told["numbers"] = {key: told["numbers"][key] for key in answers["numbers"]}
    assert len(told["numbers"]) >= 11
    apart, where = differences(answers, told)
    assert apart <= 1.0, f"{name}: {where}"


def test_no_case_has_vanished():
    for kind, (names, _) in make.KINDS.items():
        assert len(names) == COUNTS[kind], kind
        stored = {place.stem for place in (make.FOLDER / kind).glob("*.json")}
        assert stored == set(names), kind


def test_the_cases_show_what_they_are_for():
    """Late rounds and drift are no use where nothing happens: agents stop, for every reason there is, and go on."""
    stops, reasons, promises, ended = set(), set(), set(), 0
    for name in agents.CASES:
        told = make.recorded(f"agents/{name}")
        stops |= set(told["numbers"]["stops"][1::2])
        reasons |= set(read(told["columns"]["reason"]))
        promises |= set(read(told["columns"]["promise"]))
        ended += told["numbers"]["learning ended"]
    assert stops == {"violations", "noise", "drift", "start"}
    assert reasons == {None, "refuted", "impossible", *stops}
    assert promises == {"constants", "exchangeable", "bracket", "gaussian", "declared", "none"}
    assert ended > 50


def test_a_recorded_number_is_compared_and_kept(monkeypatch, capsys):
    """A difference of 2e-9 is seen, one of 5e-10 is not; `make` does not overwrite what differs."""
    name = "agents/ucb-paper"
    true = make.answers(name)
    for change, seen in ((5e-10, False), (2e-9, True)):
        moved = {**true, "columns": {key: list(column) for key, column in true["columns"].items()}}
        moved["columns"]["action"][200] += change
        assert (differences(moved, make.recorded(name))[0] > 1.0) is seen
    before = make.path_of(name).read_text()
    monkeypatch.setattr(make, "answers", lambda *_: moved)
    assert make.main([name, "--robust"]) == 1
    assert "--replace" in capsys.readouterr().out
    assert make.main([name]) == 0
    assert make.path_of(name).read_text() == before


def test_a_discrete_choice_is_compared():
    name = "agents/shield-levels"
    for column, value in (("reason", "drift"), ("promise", "none"), ("safe", None)):
        answers = make.answers(name)
        answers["columns"][column][17] = value
        assert differences(answers, make.recorded(name))[0] > 1.0, column


def test_columns_are_read_as_they_were_written():
    action = [0.25, 0.5, 0.5, 0.5, 12.345678901, None, None, 1e-14]
    other = [0.25, 0.5, "word", True, 12.345678901, None, 3.0, 3.0]
    line = written(other, action)
    assert read(written(action)) == [0.25, 0.5, 0.5, 0.5, 12.345678901, None, None, 0.0]
    assert read(line, read(written(action))) == [0.25, 0.5, "word", "yes", 12.345678901, None, 3.0, 3.0]
    assert json.loads(dumped(plain({"columns": {"action": action}, "numbers": {"count": 3, "coef": (0.5, 2.0)}})))
