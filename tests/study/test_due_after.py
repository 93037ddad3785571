"""Deadlines for outcomes, and what a study calls its measurements: shown, never part of a decision."""

import json
import time

import pytest

from safedial.cli.study_output import with_age
from safedial.errors import InvalidInput
from safedial.service.charts import Wanted, rows_page
from safedial.service.timeline import Track
from safedial.study import study_spec
from safedial.study.manage import create_study
from safedial.study.store import Store
from safedial.study.study_spec import read_spec
from tests.program import run
from tests.study.conftest import SPEC

SECOND = 1 / 3600


def test_an_outcome_that_is_open_for_longer_than_due_after_is_overdue_and_stops_nothing(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        study = create_study("trial", {**SPEC, "guard": {"due_after": 0.05 * SECOND}}, storage=store)
        made = [study.ask([0.3, 0.3]) for _ in range(3)]
        study.tell(made[0].id, reward=0.1, cost=0.1)
        time.sleep(0.06)
        status = study.status()
        assert (status["overdue"], status["open"], status["stop_reason"]) == (2, 2, "")
        assert "T" in status["overdue_since"] > status["oldest_open"]
        assert with_age(status)["overdue_since"].endswith("hours ago")
        made.append(study.ask([0.3, 0.3]))
        assert made[-1].guarantee == "certified"
        for each in made[1:]:
            study.tell(each.id, reward=0.1, cost=0.1)
        assert study.status()["overdue"] == 0
        told = run("study", "status", "trial", "--storage", f"sqlite:///{tmp_path}/trial.db", "--json")
        assert json.loads(told.stdout)["overdue"] == 0


def test_without_due_after_the_deadline_is_the_one_that_stops_the_study(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        study = create_study("trial", {**SPEC, "guard": {"max_open_hours": 0.05 * SECOND}}, storage=store)
        study.ask([0.3, 0.3])
        time.sleep(0.06)
        assert study.status()["overdue"] == 1
        plain = create_study("plain", SPEC, storage=store)
        plain.ask([0.3, 0.3])
        assert (plain.status()["overdue"], plain.status()["overdue_since"]) == (0, None)


@pytest.mark.parametrize("hours", [0, -1, "a day", float("nan"), True])
def test_a_deadline_is_a_positive_number_of_hours(hours):
    with pytest.raises(InvalidInput, match=r"guard\.due_after"):
        read_spec({**SPEC, "guard": {"due_after": hours}})


def test_a_deadline_after_the_stop_is_refused():
    with pytest.raises(InvalidInput, match=r"guard\.due_after = 48\.0: must be at most max_open_hours"):
        read_spec({**SPEC, "guard": {"due_after": 48, "max_open_hours": 24}})


def test_a_spec_that_states_neither_is_written_without_them():
    assert "due_after" not in read_spec(SPEC).fields["guard"]
    assert "due_after" not in read_spec({**SPEC, "guard": {"due_after": None}}).fields["guard"]
    assert "labels" not in read_spec({**SPEC, "labels": {}}).fields
    stated = read_spec({**SPEC, "labels": {"cost": "trough"}, "guard": {"due_after": 24}}).fields
    assert (stated["labels"], stated["guard"]["due_after"]) == ({"cost": "trough"}, 24)
    assert read_spec(stated).fields == stated


COSTS = {"heat": {"threshold": 0.5, "noise": 0.2}, "load": {"threshold": 0.5, "noise": 0.2}}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("trough", "labels = 'trough': must be an object"),
        ({"price": "trough"}, "labels = 'price': is not a label; choose from cost, cost_unit"),
        ({"cost": ""}, r"labels\.cost = '': must be printable text of 1 to 40"),
        ({"cost": 7}, r"labels\.cost = 7: must be printable"),
        ({"unit": "pa\ntient"}, r"labels\.unit = .*: must be printable"),
        ({"reward": "x" * 41}, r"labels\.reward = .*: must be printable"),
    ],
)
def test_bad_labels_are_refused_by_name(labels, words):
    with pytest.raises(InvalidInput, match=words):
        read_spec({**SPEC, "labels": labels})


def test_several_costs_have_names_of_their_own():
    several = {name: value for name, value in SPEC.items() if name not in ("threshold", "cost_noise")} | {
        "costs": COSTS
    }
    with pytest.raises(InvalidInput, match=r"labels\.cost_unit = 'mg/l': is for one cost"):
        read_spec({**several, "labels": {"cost_unit": "mg/l"}})
    assert read_spec({**several, "labels": {"unit": "patient"}}).fields["labels"] == {"unit": "patient"}


@pytest.mark.parametrize("name", ["due_after", "max_open_hours"])
def test_hours_that_no_calendar_holds_are_refused(name):
    with pytest.raises(
        InvalidInput, match=rf"guard\.{name} = 100000000.0: must be > 0 and at most 1000000 hours; leave"
    ):
        read_spec({**SPEC, "guard": {name: 1e8}}, quiet=True)


def test_the_page_shows_no_due_date_that_no_calendar_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(study_spec, "MOST_HOURS", 1e300)
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        study = create_study("trial", {**SPEC, "fallback_action": 0.1, "guard": {"due_after": 1e8}}, storage=store)
        study.ask([0.3, 0.2])
        track = Track(study)
        track.refresh()
        assert rows_page(track, None, 5, Wanted())["rows"][0]["due_at"] is None
