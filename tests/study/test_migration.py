"""A store of an earlier version migrates with one command: verified before and after, and a copy stays."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from safedial import InvalidInput
from safedial.study import Store, create_study, list_studies, open_study, verify_study
from safedial.study.backup import backup
from safedial.study.database import reading
from safedial.study.errors import StudyError
from safedial.study.migration import migrate
from safedial.study.schema import SCHEMA, sa, version
from tests.program import run
from tests.recorded.write import restored
from tests.study.conftest import SPEC

RECORDED = Path(__file__).parents[1] / "recorded"
STEPS = {SCHEMA: [sa.text("ALTER TABLE studies ADD COLUMN note TEXT")]}


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request, tmp_path):
    """A store that the version before wrote, on SQLite and on PostgreSQL."""
    url = restored(RECORDED / "shield1", tmp_path / "old.db")
    if request.param == "sqlite":
        return url
    there = request.getfixturevalue("postgres").url()
    with Store(url) as store:
        backup(store, there)
    return there


def heads(url):
    with Store(url, upgrade=False) as store:
        return {each["name"]: verify_study(store, each["name"]).hash for each in list_studies(store)}


def schema_of(url):
    with Store(url, upgrade=False) as store, reading(store.engine) as connection:
        return version(connection)


def test_a_store_of_the_version_before_is_verified_copied_upgraded_and_verified_again(old, tmp_path):
    before, said, copy = heads(old), [], tmp_path / "copy.db"
    made = migrate(old, copy, announce=said.append, path=STEPS, newest=SCHEMA + 1)
    assert (made["schema_before"], made["schema"]) == (SCHEMA, SCHEMA + 1)
    assert {each["name"]: each["head"].partition(":")[2] for each in made["studies"]} == before
    assert [words.split()[0] for words in said] == ["verifying"] * (1 + len(before)) + ["copying", "upgrading"] + [
        "verifying"
    ] * (1 + len(before))
    assert (heads(f"sqlite:///{copy}"), schema_of(f"sqlite:///{copy}")) == (before, SCHEMA)
    with pytest.raises(StudyError, match=rf"has schema {SCHEMA + 1}.*upgrade"):
        Store(old)


def test_a_migrated_store_goes_on(old, tmp_path):
    migrate(old, tmp_path / "copy.db")
    with Store(old) as store:
        study = open_study(list_studies(store)[0]["name"], storage=store)
        study.checkpoint("after the migration")
        assert study.verify().ok


def test_the_command_migrates_and_says_where_the_copy_is(tmp_path):
    url = restored(RECORDED / "shield1", tmp_path / "ward.db")
    copy = tmp_path / "ward-before-migration.db"
    done = run("study", "migrate", "--storage", url, copy)
    assert done.returncode == 0, done.stderr
    assert "verified before and after" in done.stdout
    assert copy.name in done.stdout.replace("\n", "")
    assert heads(url) == heads(f"sqlite:///{copy}")
    again = run("study", "migrate", "--storage", url, copy)
    assert again.returncode == 2
    assert "exists already; name a new file" in again.stderr


def test_a_current_store_is_verified_and_left_as_it_is(tmp_path):
    url = restored(RECORDED / "certified1", tmp_path / "ward.db")
    done = run("study", "migrate", "--storage", url)
    assert (done.returncode, done.stdout.startswith("Already current")) == (0, True), done.stderr
    content = (tmp_path / "ward.db").read_bytes()
    assert (migrate(url)["copy"], (tmp_path / "ward.db").read_bytes()) == (None, content)
    assert [path.name for path in tmp_path.iterdir()] == ["ward.db"]


def test_a_migration_names_its_copy_beside_the_store(tmp_path):
    url = restored(RECORDED / "certified1", tmp_path / "ward.db")
    made = migrate(url, path=STEPS, newest=SCHEMA + 1)
    assert made["copy"] == f"sqlite:///{tmp_path / 'ward-before-migration.db'}"


def test_a_broken_store_is_refused_and_stays_as_it_is(tmp_path):
    url = restored(RECORDED / "shield1", tmp_path / "ward.db")
    with sqlite3.connect(tmp_path / "ward.db") as connection:
        connection.execute("UPDATE events SET reason = 'x' WHERE study_id = 1 AND seq = 9")
    connection.close()
    content = (tmp_path / "ward.db").read_bytes()
    with pytest.raises(StudyError, match=r"event 9 of '.*' does not match its hash; nothing was changed"):
        migrate(url)
    assert not (tmp_path / "ward-before-migration.db").exists()
    with Store(url, upgrade=False) as store, reading(store.engine) as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM events")).scalar()
    assert len((tmp_path / "ward.db").read_bytes()) == len(content)


def test_a_failed_upgrade_leaves_the_store_and_its_copy(old, tmp_path):
    before = heads(old)
    with pytest.raises(StudyError, match="storage: "):
        migrate(old, tmp_path / "copy.db", path={SCHEMA: [sa.text("CREATE TABLE broken (")]}, newest=SCHEMA + 1)
    assert (heads(old), schema_of(old)) == (before, SCHEMA)
    assert heads(f"sqlite:///{tmp_path}/copy.db") == before


def test_what_cannot_be_migrated_is_refused_in_one_sentence(tmp_path, postgres):
    with pytest.raises(StudyError, match="there is no such file"):
        migrate(f"sqlite:///{tmp_path}/none.db")
    sqlite3.connect(tmp_path / "other.db").close()
    with pytest.raises(StudyError, match="is not a safedial store"):
        migrate(f"sqlite:///{tmp_path}/other.db")
    Store(there := postgres.url()).close()
    assert migrate(there)["copy"] is None
    with pytest.raises(InvalidInput, match="copy = None: is needed for PostgreSQL"):
        migrate(there, path=STEPS, newest=SCHEMA + 1)
    url = f"sqlite:///{tmp_path}/trial.db"
    with Store(url) as store:
        create_study("trial", SPEC, storage=store)
    with pytest.raises(InvalidInput, match="exists already; name a new file"):
        migrate(url, tmp_path / "trial.db")
    shutil.copy(tmp_path / "trial.db", tmp_path / "taken.db")
    with pytest.raises(InvalidInput, match="exists already"):
        migrate(url, tmp_path / "taken.db")
