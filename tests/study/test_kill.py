"""kill -9, at named places and at random: nothing acknowledged is lost, and the log verifies after each."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from safedial.study import Store, create_study, failpoints, open_study
from tests.study.conftest import SPEC
from tests.study.worker import FORK, acknowledged, work

LOOSE = {**SPEC, "guard": {"alarm_level": 1e-9}}


def check(url, acks):
    """Every acknowledged event is in the log as it was acknowledged, and the log is whole; how many there are."""
    with Store(url) as store:
        study = open_study("trial", storage=store)
        report = study.verify()
        assert report.ok, report
        events = {}
        page = {"next_seq": 1, "events": [None]}
        while page["events"]:
            page = study.events(page["next_seq"], 10_000)
            events |= {event["seq"]: event for event in page["events"]}
    told = acknowledged(acks)
    for kind, seq, value in told:
        assert events[seq]["kind"] == kind
        about, body = events[seq]["decision_id"], events[seq]["body"]
        stated = body["spec"]["threshold"] if kind == "amended" else body.get("action")
        assert (stated if about is None else int(about.split(".")[1])) == value
    return len(told)


def prepare(url):
    with Store(url) as store:
        create_study("trial", LOOSE, storage=store)


@pytest.mark.parametrize("place", failpoints.PLACES)
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
    words = f"from tests.study.test_kill import prepare; prepare({url!r})"
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


def kill_at_random(url, tmp_path, *, kills, workers):
    prepare(url)
    acks, dice = str(tmp_path / "acks"), random.Random(7)  # noqa: S311 -- a test's dice
    seen = 0
    for turn in range(kills):
        running = [FORK.Process(target=work, args=(url, acks, workers * turn + n)) for n in range(workers)]
        for worker in running:
            worker.start()
        until = time.monotonic() + 60
        while len(acknowledged(acks)) < seen + 5 * workers and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 0.1))
        for worker in running:
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
        now = check(url, acks)
        assert now > seen
        seen = now
