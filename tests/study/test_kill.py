"""kill -9, at named places and at random: nothing acknowledged is lost, and the log verifies after each."""

import os
import signal
import subprocess
import sys

import pytest

from safedial.study import study_errors
from tests.study.killing import check, kill_at_random, prepare
from tests.study.worker import FORK, work

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("place", study_errors.PLACES)
def test_a_kill_at_a_named_place_loses_nothing(storage, tmp_path, place):
    prepare(storage)
    acks = str(tmp_path / "acks")
    times = 1 if place == "snapshot_written" else 12
    worker = FORK.Process(target=work, args=(storage, acks, 1, f"{place}:{times}"))
    if place == "snapshot_written":
        worker = FORK.Process(target=work_with_snapshots, args=(storage, acks, place))
    worker.start()
    worker.join(60)
    assert worker.exitcode == -signal.SIGKILL
    assert check(storage, acks) > 0


def work_with_snapshots(url, acks, place):
    from safedial.study import transaction

    transaction.SNAPSHOT_EVENTS = 50
    work(url, acks, 1, place)


def test_the_environment_names_a_place_too(tmp_path):
    url = f"sqlite:///{tmp_path}/trial.db"
    words = f"from tests.study.killing import prepare; prepare({url!r})"
    run = [sys.executable, "-c", words]
    killed = subprocess.run(run, env={**os.environ, "SAFEDIAL_CRASH_AT": "inserted"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert subprocess.run(run, check=False).returncode == 0
    assert check(url, str(tmp_path / "none")) == 0


def test_random_kills_lose_nothing_on_sqlite(tmp_path, count):
    url = f"sqlite:///{tmp_path}/trial.db"
    kill_at_random(url, tmp_path, kills=count(6, 100), workers=1)


def test_random_kills_of_two_workers_lose_nothing_on_postgresql(postgres, tmp_path, count):
    kill_at_random(postgres.url(), tmp_path, kills=count(4, 50), workers=2)


def test_random_kills_of_a_service_lose_nothing_and_every_client_s_last_event_is_there(tmp_path):
    """The small form of `make soak`."""
    kill_at_random(f"sqlite:///{tmp_path}/trial.db", tmp_path, kills=2, workers=1, served=True)


def test_random_kills_of_two_services_on_postgresql_lose_nothing(postgres, tmp_path, count):
    kill_at_random(postgres.url(), tmp_path, kills=count(2, 20), workers=2, served=True)
