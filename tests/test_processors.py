"""What `make test-portable` sets took effect in this run, and what one processor wrote another verifies."""

import os
import shutil
import subprocess
import sys

import pytest

from safedial.study.database import sa
from safedial.study.event import START, Event, canonical, digest
from safedial.study.log import append_events, read_events
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.verify import verify_study
from tests.processors import AVAILABLE, CHOSEN, environment, shortfall
from tests.study.elsewhere import STUDIES


def test_this_run_computes_as_the_processor_it_was_told_to_be():
    chosen = os.environ.get(CHOSEN)
    assert chosen is None or shortfall(chosen) == []


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Stores, by the processor that wrote them."""
    folder = tmp_path_factory.mktemp("stores")
    for name in AVAILABLE:
        words = [sys.executable, "-m", "tests.study.elsewhere", f"sqlite:///{folder}/{name}.db"]
        subprocess.run(words, env=environment(name), check=True)
    return folder


@pytest.mark.slow
@pytest.mark.portable
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_that_another_processor_wrote_verifies_and_goes_on(written, tmp_path, name):
    inexact = {}
    for processor in AVAILABLE:
        with Store(f"sqlite:///{shutil.copy(written / f'{processor}.db', tmp_path)}") as store:
            study = Study.open(name, storage=store)
            report = study.verify()
            assert (processor, report.ok, report.problem) == (processor, True, "")
            inexact[processor] = report.inexact
            study.ask([0.1] * study.spec.rules.dim)
            assert study.verify().ok
    assert max(inexact.values()) > 0, "no setting made a difference"


def rewrite(storage, name, place, field, change):
    """Change a number of a decision, and make every hash anew, as the owner of the database can."""
    with Store(storage) as store, store.engine.begin() as connection:
        study, events, previous, seq = store.find(name), [], START, 0
        for event in read_events(connection, study):
            body = event.fields()
            if event.kind == "decided":
                place -= 1
                if place == 0:
                    seq, part = event.seq, body["numbers"] if field != "action" else body
                    part[field] *= 1.0 + change
            told = (*event[:6], canonical(body))
            events.append(Event(*told, digest(previous, name, told)))
            previous = events[-1].hash
        for table in ("events", "snapshots"):
            connection.execute(sa.text(f"DELETE FROM {table} WHERE study_id = {study}"))  # noqa: S608 -- names of ours
        append_events(connection, study, events)
    return seq


@pytest.mark.slow
@pytest.mark.portable
@pytest.mark.parametrize("name", ["dialled", "self-normalised", "stiff"])
@pytest.mark.parametrize(
    ("field", "change"), [("action", 1e-9), ("cost", 1e-4), ("width", 1e-4), ("log_det", 1e-4), ("reward", 1e-4)]
)
def test_a_number_changed_by_more_than_rounding_is_named_in_the_store_of_any_processor(
    written, tmp_path, name, field, change
):
    for processor in AVAILABLE:
        storage = f"sqlite:///{shutil.copy(written / f'{processor}.db', tmp_path)}"
        seq = rewrite(storage, name, 40, field, change)
        with Store(storage) as store:
            assert verify_study(store, name).first_bad == seq
