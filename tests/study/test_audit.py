"""What a reader of the audit trail must be able to trust: no forged lines, and with a checkpoint no rewritten and no
lost studies.
"""

import json
import time

import pytest
from typer.testing import CliRunner

from safedial.cli import make_app
from safedial.study.database import sa
from safedial.study.event import Event, digest
from safedial.study.log import append_events, read_events
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC

FORGED = "typing error)\n  2025-01-31T14:05:00.000000Z voided by the board (never given): unrelated True"
HIDDEN = ("\n", "\r", "\x1b", "\x9b", "\x7f", "\u2028", "\u2029", "\u202e", "\u2066")


def run(*words):
    done = CliRunner().invoke(make_app(), [str(word) for word in words])
    return done.exit_code, done.stdout


@pytest.fixture
def told(lite):
    """A study whose reasons and actors hold what could pass for lines of our own."""
    decision = lite.ask([0.3, 0.1])
    lite.tell(decision.id, reward=0.1, cost=0.1, actor="nurse\n  forged by the actor")
    lite.correct(decision.id, cost=0.2, reason=FORGED)
    lite.correct(decision.id, cost=0.3, reason="".join(HIDDEN) + "می‌خواهم", actor="\x1b[2K")
    return lite, decision


def test_no_reason_or_actor_forges_a_line_of_the_explanation(told):
    study, decision = told
    lines = str(study.explain(decision.id)).split("\n")
    assert sum("nurse\\n  forged by the actor" in line for line in lines) == 1
    assert len([line for line in lines if line.lstrip().startswith("20")]) == 3
    assert not any(hidden in line for line in lines for hidden in HIDDEN)
    assert "می‌خواهم" in lines[-1], "what some scripts are written with stays"


def test_no_unit_or_feature_forges_a_line_of_the_explanation(lite):
    forged = "mg\n  2025-01-31 voided by the board"
    features = {"names": ["age\n  forged", "weight"], "center": [50, 70], "scale": [100, 100]}
    spec = {**SPEC, "features": features, "dial": {"high": 20, "unit": forged}}
    study = Study.create("named", spec, storage=lite.store)
    lines = str(study.explain(study.ask([65, 90]).id)).split("\n")
    assert not any(line.lstrip().startswith(("2025", "forged")) for line in lines)


@pytest.mark.parametrize("words", [["explain", "--format", "table"], ["explain", "--json"]])
def test_no_text_of_others_reaches_a_terminal_as_control_characters(told, words):
    study, decision = told
    code, out = run("study", words[0], decision.id, *words[1:], "--storage", study.store.storage)
    assert code == 0
    assert not any(hidden in out for hidden in HIDDEN[1:])
    if "--json" in words:
        assert json.loads(out)["events"][1]["reason"] == FORGED, "what is stored stays as it is"


def remove(store, name):
    with store.engine.begin() as connection:
        where = {"name": name}
        study = connection.execute(sa.text("SELECT id FROM studies WHERE name = :name"), where).scalar()
        for table, column in (("events", "study_id"), ("snapshots", "study_id"), ("studies", "id")):
            words = f"DELETE FROM {table} WHERE {column} = :study"  # noqa: S608 -- fixed
            connection.execute(sa.text(words), {"study": study})


def test_a_checkpoint_of_the_store_finds_rewritten_and_removed_studies(storage, tmp_path):
    from safedial.study.manage import checkpoint_store
    from safedial.study.verify import verify_store, verify_study

    with Store(storage) as store:
        for name in ("first", "second"):
            Study.create(name, SPEC, storage=store).ask([0.1, 0.1])
        mark = checkpoint_store(store)
        Study.create("later", SPEC, storage=store)
        assert all(report.ok for report in verify_store(store, checkpoint=mark))
        with store.engine.begin() as connection:
            one, two = read_events(connection, 2)
            told = (*two[:4], "somebody else", *two[5:7])
            connection.execute(sa.text("DELETE FROM events WHERE study_id = 2"))
            append_events(connection, 2, [one, Event(*told, digest(one.hash, "second", told))])
        assert verify_study(store, "second").ok, "a log rewritten with fresh hashes"
        told = {report.study: report.problem for report in verify_store(store, checkpoint=mark)}
        assert told == {"first": "", "second": "does not match the checkpoint", "later": ""}
        remove(store, "second")
        assert all(report.ok for report in verify_store(store)), "without a checkpoint nothing misses it"
        told = {report.study: report.problem for report in verify_store(store, checkpoint=mark)}
        assert "the store does not hold it" in told["second"]
    (tmp_path / "mark.json").write_text(json.dumps(mark))
    code, out = run("study", "verify", "--storage", storage, "--checkpoint", tmp_path / "mark.json")
    assert (code, "second: event 1 is missing" in out, "first: 2 events" in out) == (1, True, True)
    assert run("study", "checkpoint", "--storage", storage)[0] == 0


def test_a_clock_that_goes_back_is_noted_and_is_no_error(lite, monkeypatch):
    for _ in range(3):
        lite.ask([0.1, 0.1])
    real = time.time_ns
    assert lite.status().get("notes") == []
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    assert "3600 s after this clock's time" in lite.status()["notes"][0]
    lite.ask([0.1, 0.1])
    assert lite.status()["notes"] == []
    monkeypatch.setattr(time, "time_ns", real)
    report = lite.verify()
    assert (report.ok, report.clock_back, report.clock_back_at) == (True, 1, 5)
    code, out = run("study", "verify", "trial", "--storage", lite.store.storage)
    assert (code, "Events dated earlier than the event before them: 1; the first is 5." in out) == (0, True)
