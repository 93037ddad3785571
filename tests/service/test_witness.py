"""Each client is a witness: it remembers the last event that it saw, and refuses a service whose log lacks it."""

import json
import logging
import shutil
import socket
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from safedial.errors import InvalidInput
from safedial.service.client import CHECKED_SECONDS, Client, ForkedLog
from safedial.service.server import running
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC


@contextmanager
def service(path):
    with Store(f"sqlite:///{path}") as store, running(store) as url:
        yield url


@contextmanager
def client(url, heads=None, **more):
    made = Client(url, heads=heads, pause=0.01, **more)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def forked(tmp_path):
    """Two stores with the same first five events, and a file of heads at event 7 of the first."""
    one, two, heads = tmp_path / "one.db", tmp_path / "two.db", tmp_path / "heads.json"
    with Store(f"sqlite:///{one}") as store:
        study = Study.create("trial", SPEC, storage=store)
        for _ in range(2):
            study.tell(study.ask([0.1, 0.2]).id, reward=0.1, cost=0.1)
    shutil.copy(one, two)
    with service(one) as url, client(url, heads) as made:
        made.tell(made.ask("trial", [0.1, 0.2]).id, reward=0.1, cost=0.1)
        assert made.heads.get("trial").seq == 7
    return one, two, heads


def test_a_client_whose_connection_was_closed_meanwhile_checks_the_log_on_the_next_one(forked):
    one, _, heads = forked
    with service(one) as url, client(url, heads) as made:
        made.studies()
        made._local.connection.sock.shutdown(socket.SHUT_RDWR)
        assert made.study("trial")["seq"] == 7


def test_a_client_remembers_the_last_event_in_memory_and_in_its_file(forked):
    one, _, heads = forked
    before = json.loads(heads.read_text())["trial"]
    with service(one) as url, client(url, heads) as made:
        assert str(made.heads.get("trial")) == before
        advice = made.ask("trial", [0.3, 0.2], key="k")
        assert made.ask("trial", [0.3, 0.2], key="k").replayed
        assert json.loads(heads.read_text()) == {"trial": f"{advice.seq}:{advice.hash}"}
        status = made.study("trial")
        assert str(made.heads.get("trial")) == f"{status['seq']}:{status['hash']}"
        assert made.verify("trial")["ok"]
        made.void(advice.id, reason="never given", unrelated=True)
        made.create_study("trial", SPEC)
        assert made.heads.get("trial").seq == 9


@pytest.mark.parametrize("grown", [0, 10], ids=["shorter", "longer"])
def test_a_service_that_forked_is_refused_and_nothing_is_written_there(forked, grown, caplog):
    _, two, heads = forked
    with Store(f"sqlite:///{two}") as store:
        study = Study.open("trial", storage=store)
        for _ in range(grown):
            study.ask([0.2, 0.2])
        last = study.status()["seq"]
        waiting = study.ask([0.2, 0.1]).id if grown else "trial.4"
    with service(two) as url, client(url, heads, fallback_action=0.05) as made:
        with caplog.at_level(logging.ERROR):
            advice = made.ask("trial", [0.3, 0.2])
        assert (advice.action, advice.fallback) == (0.05, True)
        assert "event 7, which this client saw, is not in the service's log" in advice.reason
        assert "restored or rewritten" in caplog.text
        for call in (
            lambda: made.tell(waiting, reward=0.1, cost=0.1),
            lambda: made.resume("trial", "why not"),
            lambda: made.study("trial"),
            lambda: made.verify("trial"),
            lambda: made.create_study("trial", SPEC),
        ):
            with pytest.raises(ForkedLog, match="not in the service's log"):
                call()
        with client(url) as stranger:
            assert stranger.study("trial")["seq"] == last + bool(grown)
        made.heads.forget("trial")
        assert not made.ask("trial", [0.3, 0.2]).fallback


def test_a_service_without_the_study_is_refused_too(forked, tmp_path):
    with service(tmp_path / "new.db") as url, client(url, forked[2]) as made:
        with pytest.raises(ForkedLog, match="not in the service's log"):
            made.create_study("trial", SPEC)
        assert made.studies() == []


def test_a_store_that_is_exchanged_behind_the_same_address_is_noticed_at_the_next_connection(forked):
    one, two, _ = forked
    with service(one) as url, client(url) as made:
        made.ask("trial", [0.3, 0.2])
        with service(two) as other:
            made.close()  # the peer went away
            made._parts = urlsplit(other)
            assert made.ask("trial", [0.3, 0.2]).fallback


def test_a_proxy_that_turns_to_another_log_behind_one_connection_is_noticed_after_a_minute(forked, monkeypatch):
    """A kept connection is trusted for a while; here it leads to the other log from the second request on."""
    one, two, _ = forked
    with service(one) as url, client(url) as made, service(two) as other, client(other) as behind:
        made.ask("trial", [0.3, 0.2])
        monkeypatch.setattr(made, "_once", behind._once)
        monkeypatch.setattr("time.monotonic", lambda now=time.monotonic: now() + CHECKED_SECONDS)
        assert made.ask("trial", [0.3, 0.2]).fallback


def test_a_write_that_must_be_sent_again_is_not_sent_to_another_log(forked, monkeypatch):
    """The connection breaks while a request is under way, and the next one leads to the other log."""
    one, two, _ = forked
    with service(one) as url, client(url) as made, service(two) as other:
        made.ask("trial", [0.3, 0.2])
        before, sent = Study.open("trial", storage=f"sqlite:///{two}").status()["seq"], made._once

        def broken(method, *rest):
            monkeypatch.setattr(made, "_once", sent)
            made._parts = urlsplit(other)
            raise ConnectionResetError

        monkeypatch.setattr(made, "_once", broken)
        assert made.ask("trial", [0.3, 0.2]).fallback
        assert Study.open("trial", storage=f"sqlite:///{two}").status()["seq"] == before


def test_concurrent_answers_that_overtake_each_other_are_no_fork(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    with service(tmp_path / "one.db") as url, client(url, tmp_path / "heads.json") as made:
        made.create_study("trial", SPEC)

        def ask(number):
            advice = made.ask("trial", [0.01 * number, 0.1])
            made.close()
            return advice.fallback, advice.seq

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(ask, range(24)))
        assert {fallback for fallback, _ in answers} == {False}
        assert made.heads.get("trial").seq == max(seq for _, seq in answers) == 25


@pytest.mark.parametrize("content", ["[]", "{", '{"trial": 7}', '{"trial": "x:00"}', '{"trial": "7:zz"}'])
def test_a_file_that_holds_no_heads_is_refused(tmp_path, content):
    (tmp_path / "heads.json").write_text(content)
    with pytest.raises(InvalidInput, match="remove it to begin anew"):
        Client("http://127.0.0.1:1", heads=tmp_path / "heads.json")


def test_a_file_that_cannot_be_written_is_said_and_loses_no_answer(tmp_path, caplog):
    with service(tmp_path / "one.db") as url, client(url, tmp_path / "none" / "heads.json") as made:
        with caplog.at_level(logging.WARNING):
            assert made.create_study("trial", SPEC)["seq"] == 1
        assert "cannot be written" in caplog.text


def test_a_checkpoint_of_another_study_is_409_over_http(forked, tmp_path):
    one, two, _ = forked
    with Store(f"sqlite:///{one}") as store:
        mark = Study.open("trial", storage=store).checkpoint("for the safe")
        other = Study.create("other", SPEC, storage=store).checkpoint()
    (tmp_path / "mark.json").write_text(json.dumps(mark))
    with service(one) as url, client(url) as made:
        for kept in (mark, tmp_path / "mark.json", json.dumps(mark)):
            assert made.verify("trial", checkpoint=kept)["ok"]
        with pytest.raises(InvalidInput, match=r"409 other_study.*is of another study, 'other'; this is 'trial'"):
            made.verify("trial", checkpoint=other)
        with pytest.raises(InvalidInput, match="checkpoint"):
            made.verify("trial", checkpoint="/etc/passwd")
    with service(two) as url, client(url) as made:
        report = made.verify("trial", checkpoint=mark)
        assert (report["ok"], "a checkpoint was taken at 8" in report["problem"]) == (False, True)
