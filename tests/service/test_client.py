"""The client: the way of a decision, retries that cannot decide twice, and an action when the service is away."""

import http.server
import json
import logging
import socket
import threading

import pytest

from safedial.errors import InvalidInput
from safedial.service.client import Advice, Client, ServiceUnavailable
from safedial.service.server import running
from tests.study.conftest import SPEC


@pytest.fixture
def client(store):
    with running(store) as url:
        made = Client(url)
        made.create_study("trial", SPEC)
        yield made
        made.close()


def test_a_client_asks_tells_corrects_and_explains(client):
    advice = client.ask("trial", [0.5, 0.1], key="visit-1")
    assert advice._replace(replayed=True) == client.ask("trial", [0.5, 0.1], key="visit-1")
    assert not advice.fallback
    told = client.tell(advice.id, reward=0.1, cost=0.2)
    assert (told["decision_id"], told["seq"], len(told["hash"])) == (advice.id, 3, 64)
    assert client.correct(advice.id, reason="typing error", cost=0.1)["seq"] == 4
    second = client.ask("trial", [0.1, 0.1])
    client.void(second.id, reason="device was off", unrelated=True)
    assert "This holds if" in client.explain(advice.id)
    assert client.study("trial")["void"] == 1
    assert client.verify("trial")["ok"]
    assert client.studies()[0]["name"] == "trial"
    assert client.create_study("trial", SPEC)["decisions"] == 2


def test_a_reward_of_nothing_is_sent_and_none_may_be_left_out_where_no_policy_reads_it(client):
    client.tell(client.ask("trial", [0.5, 0.1]).id, reward=0.0, cost=0.2)
    with pytest.raises(InvalidInput, match="reward"):
        client.tell(client.ask("trial", [0.5, 0.1]).id, cost=0.2)
    growth = {"growth": "additive", "low": 0.0, "high": 1.0}
    shield = {"dim": 1, "threshold": 0.5, "violation_risk": 0.1, "guarantee": "bracket", "start_action": 0.1}
    policy = {"name": "hp_shield", "base": "proposal", "growth": growth}
    client.create_study("ward", {**shield, "fallback_action": 0.1, "policy": policy})
    advice = client.ask("ward", [0.5], proposal=0.4)
    assert client.tell(advice.id, cost=0.2)["decision_id"] == advice.id
    assert client.verify("ward")["ok"]


def test_a_refused_request_raises_and_is_not_covered_up(client):
    for context, code in (
        ([0.9, 0.9], "context_out_of_bounds"),
        ([0.1], "wrong_dimension"),
        ([float("nan")] * 2, "not_finite"),
    ):
        with pytest.raises(InvalidInput) as refused:
            client.ask("trial", context)
        assert refused.value.code == code
    with pytest.raises(InvalidInput, match="reason"):
        client.resume("trial", " ")


def test_a_service_that_is_away_gives_the_fallback_action_and_says_so(caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}", retries=1, pause=0.01, fallback_action=0.05)
    with caplog.at_level(logging.WARNING):
        advice = client.ask("trial", [0.5, 0.1])
    assert (advice.action, advice.id, advice.fallback) == (0.05, None, True)
    assert "fallback action 0.05" in caplog.text
    assert "ConnectionRefusedError" in advice.reason
    with pytest.raises(ServiceUnavailable, match="after 2 attempts"):
        client.tell("trial.2", reward=0.1, cost=0.1)
    assert Client(f"http://127.0.0.1:{port}", retries=0).ask("trial", [0.5]).action == 0.0


def test_a_service_that_hangs_is_given_up_in_time():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = Client(f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout=0.1, retries=1, pause=0.01)
        assert client.ask("trial", [0.5, 0.1]) == Advice(
            0.0, None, None, None, None, None, True, f"{client!r}: TimeoutError, after 2 attempts"
        )


def test_an_answer_lost_on_the_way_is_not_decided_twice(client):
    """A relay passes the first request on and cuts the wire before the answer; the retry gets the same decision."""
    target = client._parts.port
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as relay:

        def pass_on():
            for number in range(2):
                near, _ = relay.accept()
                with near, socket.create_connection(("127.0.0.1", target)) as far:
                    request = b""
                    while not request.endswith(b"}"):
                        request += near.recv(65536)
                    far.sendall(request)
                    answer = b""
                    while not answer.endswith(b"}}"):
                        answer += far.recv(65536)
                    seen.append(answer)
                    if number:
                        near.sendall(answer)

        thread = threading.Thread(target=pass_on)
        thread.start()
        lossy = Client(f"http://127.0.0.1:{relay.getsockname()[1]}", pause=0.01)
        advice = lossy.ask("trial", [0.5, 0.1])
        thread.join()
        lossy.close()
    assert (advice.seq, advice.replayed, len(seen)) == (2, True, 2)
    assert client.study("trial")["decisions"] == 1


@pytest.mark.parametrize("settings", [{"url": "ftp://x"}, {"url": "x"}, {"timeout": 0}, {"retries": -1}])
def test_bad_settings_are_refused(settings):
    with pytest.raises(InvalidInput):
        Client(**{"url": "http://127.0.0.1:1", **settings})


@pytest.mark.parametrize(
    ("status", "page"),
    [(200, b"<html>sign in</html>"), (200, b"[]"), (200, b'{"status": "ok"}'), (302, b""), (204, b"")],
)
def test_what_answers_in_the_place_of_the_service_gives_the_fallback_action(status, page):
    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(status)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        client = Client(f"http://127.0.0.1:{proxy.server_port}", retries=1, pause=0.01, fallback_action=0.05)
        advice = client.ask("trial", [0.5, 0.1])
        assert (advice.action, advice.id, advice.fallback) == (0.05, None, True)
        client.close()
        proxy.shutdown()


# --- Answers of a service that errs or lies


@pytest.fixture
def lying(monkeypatch):
    """A client whose service answers with what the test names."""
    client = Client("http://127.0.0.1:1", retries=0, fallback_action=0.05)
    said = {}
    monkeypatch.setattr(client, "_once", lambda *_: (said["status"], said["text"]))
    return client, said


def advised(action, /, **changes):
    dial = {"low": 0, "high": 1, "unit": "", "levels": None}
    certificate = {"action": action, "dial": dial, **changes}
    given = {"id": "trial.2.00000000", "seq": 2, "hash": "00", "action": action, "intensity": 0.5, "safe_action": 0.5}
    return {**given, "certificate": certificate, "replayed": False, "stop_reason": ""}


@pytest.mark.parametrize("action", [float("nan"), float("inf"), "0.5", True, None, 1e9, -0.1, [0.5], 10**400])
def test_what_is_no_setting_of_the_dial_is_no_advice(lying, action):
    client, said = lying
    said |= {"status": 201, "text": json.dumps(advised(0.5)).encode()}
    assert client.ask("trial", [0.1]).action == 0.5
    client.heads.forget("trial")
    said["text"] = json.dumps(advised(action)).encode()
    advice = client.ask("trial", [0.1])
    assert (advice.action, advice.fallback) == (0.05, True)


def test_an_action_other_than_its_certificate_s_is_no_advice(lying):
    client, said = lying
    for changes in ({"action": 0.4}, {"dial": None}, {"dial": {"low": 0, "high": "1"}}):
        said |= {"status": 201, "text": json.dumps(advised(0.5, **changes)).encode()}
        assert client.ask("trial", [0.1]).fallback


def test_an_answer_nested_too_deeply_is_no_answer(lying):
    client, said = lying
    said |= {"status": 201, "text": b'{"action":' * 100_000}
    assert client.ask("trial", [0.1]).fallback
    said["status"] = 422
    with pytest.raises(InvalidInput, match="no further words"):
        client.ask("trial", [0.1])


@pytest.mark.parametrize("key", ["visit-日", "visité", "Ω" * 200])
def test_a_key_may_have_any_letters(client, key):
    first = client.ask("trial", [0.1, 0.1], key=key)
    assert (first.certificate["key"], first.fallback) == (key, False)
    assert client.ask("trial", [0.1, 0.1], key=key) == first._replace(replayed=True)


@pytest.mark.parametrize("key", ["a\nb", "a\x00", "", "x" * 201])
def test_a_key_that_no_header_can_carry_is_refused(client, key):
    with pytest.raises(InvalidInput, match="key"):
        client.ask("trial", [0.1, 0.1], key=key)
