"""The files of an open SQLite store: removed, moved, overwritten, read-only. Nothing acknowledged is lost."""

import csv
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from safedial.study.database import writing
from safedial.study.manage import backup
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StoreUnavailable
from safedial.study.verify import verify_study
from tests.study.conftest import SPEC, id_at
from tests.study.worker import FORK, _acknowledge, acknowledged

MORE = 300
"""Further acknowledgements after which a writer that notices nothing is killed."""


@pytest.fixture
def file(tmp_path):
    """The path of a closed store with a short study in it."""
    path = tmp_path / "trial.db"
    with Store(f"sqlite:///{path}") as store:
        fill(Study.create("trial", SPEC, storage=store, actor="tester"), 3)
    return path


def fill(study, rounds):
    for number in range(rounds):
        study.tell(study.ask([0.1, 0.01 * (number % 50)]).id, reward=0.05, cost=0.05)


def keep_asking(url, acks):
    """Ask until refused, each answer written down as it comes; then wait to be killed."""
    file = os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Store(url) as store:
        study = Study.open("trial", storage=store, actor="worker")
        try:
            while True:
                decision = study.ask([0.1, 0.2])
                _acknowledge(file, "decided", decision.seq, decision.action)
        except StoreUnavailable:
            _acknowledge(file, "refused", 0, 0.0)
            time.sleep(60)


@pytest.mark.slow
@pytest.mark.parametrize("act", ["rm", "mv"])
def test_what_was_acknowledged_survives_the_loss_of_the_wal_and_a_kill(file, tmp_path, act):
    acks, wal = str(tmp_path / "acks"), file.with_name("trial.db-wal")
    writer = FORK.Process(target=keep_asking, args=(f"sqlite:///{file}", acks))
    writer.start()
    until = time.monotonic() + 60
    while len(acknowledged(acks)) < 50 and time.monotonic() < until:
        time.sleep(0.01)
    wal.unlink() if act == "rm" else wal.rename(tmp_path / "elsewhere")
    seen = len(acknowledged(acks))
    while len(acknowledged(acks)) < seen + MORE and time.monotonic() < until:
        if acknowledged(acks)[-1][0] == "refused":
            break
        time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    told = acknowledged(acks)
    with Store(f"sqlite:///{file}") as store:
        report = verify_study(store, "trial")
        events = Study.open("trial", storage=store).events(1, 10_000)["events"]
    assert report.ok, report
    assert {seq for kind, seq, _ in told if kind == "decided"} <= {event["seq"] for event in events}
    assert told[-1][0] == "refused"


def test_an_older_copy_over_the_live_file_is_refused(file, tmp_path):
    shutil.copy(file, tmp_path / "older.db")
    with Store(f"sqlite:///{file}") as store:
        study = Study.open("trial", storage=store)
        fill(study, 10)
        checkpoint(store)
        fill(study, 2)
        shutil.copyfile(tmp_path / "older.db", file)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="overwritten"):
                study.ask([0.1, 0.1])


def test_an_older_copy_of_the_same_size_is_refused_too(file, tmp_path):
    """Freed pages are used again, so that a file need not grow: the count in its header tells."""
    with Store(f"sqlite:///{file}") as store:
        study = Study.open("trial", storage=store)
        with store.engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE spare (content BLOB)")
            connection.exec_driver_sql("INSERT INTO spare VALUES (zeroblob(400000))")
            connection.exec_driver_sql("DROP TABLE spare")
        checkpoint(store)
        shutil.copy(file, tmp_path / "older.db")
        fill(study, 10)
        checkpoint(store)
        assert file.stat().st_size == (tmp_path / "older.db").stat().st_size
        study.ask([0.1, 0.1])
        shutil.copyfile(tmp_path / "older.db", file)
        with pytest.raises(StoreUnavailable, match="overwritten"):
            study.ask([0.1, 0.1])


@pytest.mark.parametrize("size", [0, 32 + 3 * 4120])
def test_a_wal_that_was_cut_is_refused(file, size):
    with Store(f"sqlite:///{file}") as store:
        study = Study.open("trial", storage=store)
        fill(study, 10)
        os.truncate(f"{file}-wal", size)
        with pytest.raises(StoreUnavailable, match="-wal was overwritten"):
            fill(study, 2)


def test_an_older_wal_over_the_live_one_is_refused(file, tmp_path):
    with Store(f"sqlite:///{file}") as store:
        study = Study.open("trial", storage=store)
        fill(study, 10)
        shutil.copy(f"{file}-wal", tmp_path / "older-wal")
        checkpoint(store)
        fill(study, 2)
        shutil.copyfile(tmp_path / "older-wal", f"{file}-wal")
        with pytest.raises(StoreUnavailable, match="-wal was overwritten"):
            study.ask([0.1, 0.1])


def test_a_removed_shm_is_refused(file):
    with Store(f"sqlite:///{file}") as store:
        study = Study.open("trial", storage=store)
        study.ask([0.1, 0.1])
        os.unlink(f"{file}-shm")
        with pytest.raises(StoreUnavailable, match="-shm was moved"):
            study.ask([0.1, 0.1])


@pytest.mark.parametrize("mode", ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
def test_checkpoints_of_another_program_are_no_loss(file, mode):
    """A copying tool, or a person, may run any checkpoint beside the service."""
    with Store(f"sqlite:///{file}") as store:
        study = Study.open("trial", storage=store)
        for _ in range(4):
            fill(study, 3)
            other = sqlite3.connect(file)
            other.execute(f"PRAGMA wal_checkpoint({mode})")
            other.close()
        assert study.verify().ok


def test_several_stores_of_one_process_share_a_file_and_close_in_any_order(file):
    url = f"sqlite:///{file}"
    first, second = Store(url), Store(url)
    fill(Study.open("trial", storage=first), 2)
    fill(Study.open("trial", storage=second), 2)
    first.close()
    locked = sqlite3.connect(file, timeout=0)
    with writing(second.engine), pytest.raises(sqlite3.OperationalError, match="locked"):
        locked.execute("BEGIN IMMEDIATE")
    locked.close()
    fill(Study.open("trial", storage=second), 2)
    assert verify_study(second, "trial").ok
    second.close()
    assert not os.path.exists(f"{file}-wal")


def test_a_look_at_the_status_writes_nothing(file):
    with Store(f"sqlite:///{file}") as store:
        study = Study.open("trial", storage=store)
        study.ask([0.1, 0.1])
        before = counted(store), os.stat(f"{file}-wal").st_size
        study.status()
        assert (counted(store), os.stat(f"{file}-wal").st_size) == before
        study.ask([0.1, 0.1])
        assert counted(store) == before[0] + 1


def test_the_count_of_writes_begins_again_behind_the_largest(file):
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {2**31 - 2}")
    connection.close()
    with Store(f"sqlite:///{file}") as store:
        study = Study.open("trial", storage=store)
        for _ in range(4):
            study.ask([0.1, 0.1])
            checkpoint(store)
        assert counted(store) == 3
        assert struct.unpack(">I", file.read_bytes()[60:64]) == (3,)


def checkpoint(store):
    with store.engine.connect() as connection:
        assert connection.connection.driver_connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0


def counted(store):
    with store.engine.connect() as connection:
        return connection.exec_driver_sql("PRAGMA user_version").scalar()


@pytest.fixture
def shelf():
    """A folder whose files, once put there, nobody but root may change."""
    folder = Path(tempfile.mkdtemp(prefix="safedial-shelf-"))
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


def put_away(folder, file, ends):
    for end in ends:
        shutil.copy(f"{file}{end}", folder / f"{file.name}{end}")
        (folder / f"{file.name}{end}").chmod(0o444)
    folder.chmod(0o555)
    return f"sqlite:///{folder}/{file.name}"


EACH = """
import contextlib, io, json, sys
from safedial.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv, out, err, code = ["safedial", "study", *words], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as done:
            code = done.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


def safedial(*commands):
    """What `safedial study` answers to one who may only read; root too, without its right to write everywhere. For each
    command, in one process: its exit code, its stdout and its stderr.
    """
    plain = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []
    words = json.dumps([list(map(str, command)) for command in commands])
    done = subprocess.run([*plain, sys.executable, "-c", EACH, words], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("ends", [[""], ["", "-wal", "-shm"]])
def test_a_store_on_a_medium_that_cannot_be_written_is_read_verified_and_exported(file, shelf, ends, tmp_path):
    with Store(f"sqlite:///{file}") as store:
        fill(Study.open("trial", storage=store), 2)
        first = id_at(Study.open("trial", storage=store), 2)
        if len(ends) == 1:
            store.close()
        url = put_away(shelf, file, ends)
    commands = [["list"], ["status", "trial"], ["explain", first], ["export", "trial", tmp_path / "out.csv"]]
    commands += [["verify", "trial"], ["ask", "trial", "[0.1, 0.1]"]]
    *read, verified, refused = safedial(*([*words, "--storage", url] for words in commands))
    assert [code for code, _, _ in read] == [0, 0, 0, 0], read
    assert "11 events, 5 decisions" in verified[1]
    assert (tmp_path / "out.csv").read_text().count("\n") == 1 + 5
    assert (refused[0], "readonly" in refused[2], refused[2].count("\n")) == (2, True, 1)


def test_a_wal_that_cannot_be_read_without_writing_is_named(file, shelf):
    with Store(f"sqlite:///{file}") as store:
        fill(Study.open("trial", storage=store), 2)
        url = put_away(shelf, file, ["", "-wal"])
    ((code, _, words),) = safedial(["verify", "trial", "--storage", url])
    assert (code, words.count("\n")) == (2, 1)
    assert "a -wal holds its last events; copy the file and its -wal" in words


@pytest.mark.skipif(sys.platform == "win32", reason="rights are others there")
def test_a_store_and_its_copies_are_for_their_owner_alone(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        Study.create("trial", SPEC, storage=store).ask([0.1, 0.1])
        backup(store, tmp_path / "copy.db")
        rights = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    assert rights == dict.fromkeys(("trial.db", "trial.db-wal", "trial.db-shm", "copy.db"), "0o600")


def test_a_table_has_no_formulas_of_those_who_wrote_labels(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        study = Study.create("trial", SPEC, storage=store)
        for label in ("=1+1", "+1", "-1", "@A1", "P-04"):
            study.ask([0.1, 0.1], key=label, unit=label, visit=label, meta={"note": label})
        with open(study.export(tmp_path / "log.csv"), newline="") as file:
            rows = list(csv.DictReader(file))
    for name in ("key", "unit", "visit", "meta.note"):
        assert [row[name] for row in rows] == ["'=1+1", "'+1", "'-1", "'@A1", "P-04"], name
