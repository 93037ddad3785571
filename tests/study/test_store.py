"""Copies, keys, tables, history, schema and format, and what URLs may say."""

import csv
import io
import json
import threading

import pytest

from safedial.errors import InvalidInput
from safedial.study.database import events, meta, open_engine, parse_url, reading, sa, writing
from safedial.study.event import START, next_event
from safedial.study.keys import create_key, hash_key, list_keys, live_keys, revoke_key
from safedial.study.manage import backup
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from tests.study.conftest import SPEC, id_at


def fill(study, rounds=6):
    for number in range(rounds):
        study.tell(study.ask([0.1 * number, 0.2], key=str(number)).id, reward=0.1, cost=0.1)


def test_a_live_store_is_copied_and_the_copy_goes_on(store, study, tmp_path):
    fill(study)
    create_key(store, "decide", reason="for the ward", actor="admin")
    stop = threading.Event()

    def go_on():
        while not stop.is_set():
            study.ask([0.1, 0.1])

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        made = backup(store, tmp_path / "copy.db")
    finally:
        stop.set()
        writer.join()
    assert made["studies"] == 1
    assert study.verify(checkpoint=made["heads"]["trial"]).ok
    with Store(f"sqlite:///{tmp_path}/copy.db") as copy:
        again = Study.open("trial", storage=copy)
        assert again.verify(checkpoint=made["heads"]["trial"]).ok
        assert again.ask([0.0, 0.2], key="0").seq == 2
        assert [key.role for key in list_keys(copy)] == ["decide"]
        again.ask([0.3, 0.3])
        assert again.verify().ok
    with pytest.raises(InvalidInput, match="exists already"):
        backup(store, tmp_path / "copy.db")


def test_a_copy_is_restored_into_postgresql(lite, postgres):
    fill(lite)
    digest = lite.state_digest()
    url = postgres.url()
    made = backup(lite.store, url)
    assert made["events"] == lite.status()["seq"]
    with Store(url) as copy:
        again = Study.open("trial", storage=copy)
        assert again.state_digest() == digest
        assert again.verify().ok
        Study.create("another", SPEC, storage=copy).ask([0.1, 0.1])
    with pytest.raises(InvalidInput, match="has studies or keys already"):
        backup(lite.store, url)


def test_only_the_hashes_of_keys_are_kept_with_who_made_and_revoked_them_and_why(store, study):
    text, made = create_key(store, "decide", study="trial", reason="for the ward", actor="admin")
    assert live_keys(store) == {hash_key(text): made}
    revoked = revoke_key(store, made.id, reason="left the ward", actor="admin")
    assert live_keys(store) == {}
    assert list_keys(store) == [revoked]
    assert revoked.to_dict()["revoked"].endswith("Z")
    with pytest.raises(InvalidInput, match="revoked already"):
        revoke_key(store, made.id, reason="again", actor="admin")
    with pytest.raises(StudyError, match="no such key"):
        revoke_key(store, "none", reason="x", actor="admin")
    with pytest.raises(StudyError, match="no such study"):
        create_key(store, "decide", study="none", reason="x", actor="admin")
    with pytest.raises(InvalidInput, match="must state a reason"):
        create_key(store, "decide", reason=" ", actor="admin")
    with pytest.raises(InvalidInput, match="must be one of"):
        create_key(store, "king", reason="x", actor="admin")
    assert (revoked.created_by, revoked.created_reason) == ("admin", "for the ward")
    assert (revoked.revoked_by, revoked.revoked_reason) == ("admin", "left the ward")
    with reading(store.engine) as connection:
        held = connection.execute(sa.text("SELECT * FROM keys")).fetchall()
    assert len(held) == 1
    assert text.split("_", 2)[2] not in str(held), "a secret may have underscores of its own"


def test_a_copy_goes_into_no_store_that_has_keys(lite, postgres):
    with Store(url := postgres.url()) as other:
        create_key(other, "decide", reason="for the ward", actor="admin")
    with pytest.raises(InvalidInput, match="has studies or keys already"):
        backup(lite.store, url)


def test_history_is_imported_whole_before_the_first_decision(store, tmp_path):
    spec = {**SPEC, "features": {"names": ["age", "weight"], "center": [50, 70], "scale": [100, 100]}}
    study = Study.create("warm", spec, storage=store)
    rows = [{"age": 40 + n, "weight": 60 + n, "action": 0.5, "reward": 0.1, "cost": 0.05 * n} for n in range(8)]
    path = tmp_path / "past.csv"
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows([*rows, {**rows[0], "cost": "many"}])
    with pytest.raises(InvalidInput, match=r"row 9: cost = 'many'"):
        study.import_history(path)
    assert study.status()["imported"] == 0
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert study.import_history(path) == 8
    assert study.status()["informative_rounds"] == 8
    decision = study.ask({"age": 44, "weight": 66})
    assert decision.certificate["imported"] == 8
    assert any("complete and unselected" in words for words in decision.certificate["assumptions"])
    with pytest.raises(InvalidInput, match="before the first one"):
        study.import_history(rows)
    assert study.verify().ok
    assert [row["status"] for row in study.rows()][-2:] == ["imported", "open"]


def test_parquet_comes_in_and_goes_out(lite, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {"x0": [0.1, 0.2], "x1": [0.3, 0.1], "action": [0.5, 0.4], "reward": [0.1, 0.1], "cost": [0.2, 0.1]}
    pq.write_table(pa.table(table), tmp_path / "past.parquet")
    assert lite.import_history(tmp_path / "past.parquet") == 2
    fill(lite, 3)
    out = pq.read_table(lite.export(tmp_path / "out.parquet")).to_pylist()
    assert [row["status"] for row in out] == ["imported", "imported", "known", "known", "known"]
    frame = lite.to_frame()
    assert list(frame["cost"]) == [row["cost"] for row in out]
    assert "context.x0" in frame
    other = Study.create("other", SPEC, storage=lite.store)
    other.import_history(tmp_path / "out.parquet")
    assert other.status()["imported"] == 5


def test_tables_and_the_whole_log_are_written(lite, tmp_path):
    fill(lite, 2)
    lite.correct(id_at(lite, 2), cost=0.3, reason="typing error")
    rows = list(csv.DictReader(io.StringIO(lite.export(tmp_path / "out.csv").read_text())))
    assert [(row["status"], row["cost"]) for row in rows] == [("corrected", "0.3"), ("known", "0.1")]
    events = [json.loads(line) for line in lite.export(tmp_path / "out.jsonl").read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(1, 7))
    assert events[-1]["reason"] == "typing error"
    with pytest.raises(InvalidInput, match="must end in"):
        lite.export(tmp_path / "out.xls")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no rows"),
        ([{"x0": 0.1, "action": 0.5, "reward": 1, "cost": 1}], "missing columns"),
        ([{"x0": 9, "x1": 0.1, "action": 0.5, "reward": 1, "cost": 1}], "norm"),
        ([{"context": [0.1, 0.1], "action": 7, "reward": 1, "cost": 1}], "between"),
        ([{"context": {"x0": 0.1, "x1": 0.2}, "action": 0.5, "reward": float("nan"), "cost": 1}], "finite"),
        ([[1, 2]], "mapping"),
        ("none.csv", "cannot be read"),
        ("none.txt", "must end in"),
    ],
)
def test_bad_history_is_refused(lite, rows, words):
    with pytest.raises(InvalidInput, match=words):
        lite.import_history(rows)
    assert lite.status()["seq"] == 1


def test_a_store_with_another_schema_is_refused(storage):
    Store(storage).close()
    engine = open_engine(storage)
    with writing(engine) as connection:
        connection.execute(meta.update().values(value="2"))
    engine.dispose()
    with pytest.raises(StudyError, match="has schema 2, and this safedial reads 1; open it with the version") as found:
        Store(storage)
    assert found.value.code == "wrong_schema"


@pytest.mark.parametrize("stated", [{}, {"format": 2}])
def test_a_log_with_another_format_is_refused(tmp_path, stated):
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        fields = Study.create("trial", SPEC, storage=store).spec.fields
        body = {"name": "trial", "spec": fields, **stated}
        first = next_event((0, START), "trial", "study_created", body, at=0, actor="", reason="")
        with writing(store.engine) as connection:
            changed = events.update().where(events.c.study_id == 1)
            connection.execute(changed.values(body=first.body, hash=first.hash, at=0, actor=""))
    with Store(store.storage) as store, pytest.raises(StudyError, match="this safedial reads format 1") as found:
        Study.open("trial", storage=store)
    assert found.value.code == "wrong_schema"


@pytest.mark.parametrize(
    "url", ["trial.db", "sqlite://", "sqlite:///:memory:", "mysql://a/b", "://", "postgresql://a:b@c:x/d"]
)
def test_a_storage_that_cannot_be_is_refused_without_its_password(url):
    with pytest.raises(InvalidInput) as refused:
        Store(url)
    assert ":b@" not in str(refused.value)


def test_passwords_are_never_shown(postgres):
    url = postgres.url().replace("@", ":secret@", 1)
    with Store(url) as store:
        assert "secret" not in repr(store)
        assert "secret" not in str(Study.create("trial", SPEC, storage=store))
    assert parse_url("postgres://u@h/d").drivername == "postgresql+psycopg"
    with pytest.raises(StudyError) as refused:
        Store("postgresql://postgres:secret@127.0.0.1:1/none")
    assert "secret" not in str(refused.value)


def test_the_events_of_a_decision_are_looked_up_not_searched_in_the_whole_log(lite):
    from safedial.study.log import _ABOUT

    fill(lite)
    with reading(lite.store.engine) as connection:
        plan = connection.execute(sa.text(f"EXPLAIN QUERY PLAN {_ABOUT}"), {"study": 1, "decision": 2}).fetchall()
    assert "events_about (study_id=? AND decision=?)" in str(plan)
    assert [event["kind"] for event in lite.about(id_at(lite, 2))] == ["outcome"]
