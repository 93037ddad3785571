"""Every row of the bad-input table, over HTTP: the right answer, nothing written, no value of the caller's in it."""

import json
import resource
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.parse

import pytest

from safedial.service.app_state import Limits
from safedial.service.client import Client
from safedial.service.server import running
from safedial.study import database
from safedial.study.store import Store
from safedial.study.study import Study
from tests.service.conftest import Caller
from tests.study.conftest import SPEC
from tests.study.postgres import Server

MARK = 0.7654321


def events(service, study="trial"):
    return service.get(f"/v1/studies/{study}/events").json()["next_seq"] - 1


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" + "0" * 400, '"0.1"', "true"])
def test_what_is_no_finite_number_is_422_and_is_not_repeated(service, word):
    before = events(service)
    answer = service.post("/v1/studies/trial/decisions", f'{{"context": [{MARK}, {word}]}}'.encode())
    assert (answer.status, answer.code) == (422, "not_finite")
    assert str(MARK).encode() not in answer.content
    decision = service.ask("trial", [0.5, 0.1]).json()["id"]
    for field in ("reward", "cost", "applied_action"):
        values = {"reward": "0.1", "cost": "0.1", field: word}
        body = "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"
        answer = service.post(f"/v1/decisions/{decision}/outcome", body.encode())
        assert (answer.status, answer.code) == (422, "not_finite"), field
    assert events(service) == before + 1


@pytest.mark.parametrize(
    ("context", "code"),
    [
        ([MARK], "wrong_dimension"),
        ([[MARK, 0.1]], "wrong_dimension"),
        (MARK, "wrong_dimension"),
        ("0.1,0.2", "wrong_dimension"),
        ([MARK, MARK], "context_out_of_bounds"),
    ],
)
def test_a_context_of_another_shape_or_size_is_422(service, context, code):
    answer = service.ask("trial", context)
    assert (answer.status, answer.code) == (422, code)
    assert str(MARK).encode() not in answer.content
    assert events(service) == 1


def test_missing_and_unknown_features_are_422_and_order_does_not_matter(service, store):
    features = {"names": ["age", "weight"], "center": [50, 70], "scale": [100, 100]}
    assert Study.create("named", {**SPEC, "features": features}, storage=store).spec.rules.dim == 2
    for context in ({"age": MARK}, {"age": MARK, "weight": 70, "height": 1}, {"age": MARK, "Weight": 70}):
        answer = service.ask("named", context)
        assert (answer.status, answer.code) == (422, "wrong_features")
        assert str(MARK).encode() not in answer.content
        detail = answer.json()["detail"]
        assert ("missing: weight" in detail) == ("weight" not in context)
        assert "the features are age, weight" in detail
        assert "height" not in detail, "a name that only the caller knows may be a value"
    answer = service.ask("named", {"age": MARK, "weight": f"{MARK}"})
    assert (answer.status, answer.code) == (422, "not_finite")
    assert answer.json()["detail"] == "context['weight']: must be a number, not text"
    assert answer.json()["field"] == "context"
    assert str(MARK).encode() not in answer.content
    one = service.ask("named", {"age": 65, "weight": 60}).json()
    two = service.ask("named", {"weight": 60, "age": 65}).json()
    assert one["certificate"]["context"] == two["certificate"]["context"]


BAD_SPECIFICATIONS = ({"threshold": -1}, {"dim": 10**9}, {"policy": ["hp_ucb"]}, {"dose": []}, {"guard": {"stop": 3}})


@pytest.mark.parametrize("changes", BAD_SPECIFICATIONS)
def test_a_bad_specification_is_422_and_makes_no_study(service, changes):
    answer = service.post("/v1/studies", {"name": "bad", "spec": {**SPEC, **changes}})
    assert answer.status == 422, answer
    assert answer.code in ("invalid_input", "not_finite")
    assert [row["name"] for row in service.get("/v1/studies").json()["studies"]] == ["trial"]


@pytest.mark.parametrize("name", ["", "../x", 7])
def test_a_bad_name_is_422(service, name):
    assert service.post("/v1/studies", {"name": name, "spec": SPEC}).status == 422


def test_an_unknown_decision_or_study_is_404(service, store):
    Study.create("other", SPEC, storage=store)
    outcome = {"reward": 0.1, "cost": 0.1}
    for decision in ("trial.99", "trial.1", "other.2", "nobody.2", "trial", "trial.x", "trial.-1", "7", "trial.2e0"):
        answer = service.post(f"/v1/decisions/{decision}/outcome", outcome)
        assert (answer.status, answer.code) == (404, "unknown_decision"), decision
        assert service.get(f"/v1/decisions/{decision}").status == 404
    assert service.ask("nobody", [0.1, 0.1]).code == "unknown_study"
    for path in ("", "/events", "/verify", "/series", "/decisions"):
        assert service.get(f"/v1/studies/nobody{path}").status == 404
    for name in ("a%00b", "%C3%A9", "_store", "a%2Fb", "x" * 100):
        assert service.get(f"/v1/studies/{name}").status == service.get(f"/v1/decisions/{name}.2").status == 404


def test_too_large_too_deep_and_broken_bodies_are_refused(service):
    path = "/v1/studies/trial/decisions"
    large = json.dumps({"context": [MARK] * 40_000}).encode()
    answer = service.post(path, large)
    assert (answer.status, answer.code, answer.headers["connection"]) == (413, "too_large", "close")
    for deep in (b"[" * 100_000, b'{"context":' * 250 + b"1" + b"}" * 250):
        assert service.post(path, deep).code == "too_deep"
    for deep in (b'{"context":' * 50 + b"1" + b"}" * 50, b'{"context": ' + b"[" * 20 + b"]" * 20 + b"}"):
        assert service.post(path, deep).code == "wrong_dimension"
    whole = json.dumps({"name": "deep", "spec": SPEC}).encode()
    for name in (b"labels", b"guard", b"dial", b"policy", b"unheard_of"):
        deep = b'"%b": %b%b}}' % (name, b'{"a": [' * 90, b"]}" * 90)
        answer = service.post("/v1/studies", whole[:-2] + b", " + deep)
        assert answer.status == 422, (name, answer)
    for broken in (b"", b"{", b"context", b'{"context": [0.1, .2]}', b"\xff\xfe", b'{"context": [1,]}', b"\x00"):
        assert (service.post(path, broken).status, service.post(path, broken).code) == (400, "malformed"), broken
    for odd in (b"[]", b"7", b"null", b'"x"', b"{}", b'{"contexts": [0.1, 0.1]}', b'{"context": [0.1, 0.1], "x": 1}'):
        assert service.post(path, odd).status == 422, odd
    assert service.post(path, b"{}", Content_Type="text/plain").code == "not_json"
    assert events(service) == 1


def test_a_body_without_a_stated_length_is_counted_as_it_comes(service):
    host, port = urllib.parse.urlsplit(service.url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        head = "POST /v1/studies/trial/decisions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        wire.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        for _ in range(5):
            wire.sendall(b"10000\r\n" + b"1" * 0x10000 + b"\r\n")
        assert wire.recv(100).startswith(b"HTTP/1.1 413")


def test_a_slow_body_is_408(store):
    Study.create("trial", SPEC, storage=store)
    with running(store, limits=Limits(body_seconds=0.2)) as url:
        host, port = urllib.parse.urlsplit(url).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as wire:
            head = "POST /v1/studies/trial/decisions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            wire.sendall(f'{head}Content-Length: 24\r\n\r\n{{"context"'.encode())
            answer = b"".join(iter(lambda: wire.recv(2000), b""))
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"slow_body" in answer
        assert Caller(url).ask("trial", [0.1, 0.1]).status == 201


def unavailable(answer):
    return (answer.status, answer.code, int(answer.headers["retry-after"]) >= 1) == (503, "store_unavailable", True)


def test_a_locked_store_is_503_with_retry_after_and_recovers(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.2)
    path = tmp_path / "trial.db"
    with Store(f"sqlite:///{path}") as store:
        Study.create("trial", SPEC, storage=store)
        with running(store) as url:
            service = Caller(url)
            first = service.ask("trial", [0.5, 0.1]).json()["id"]
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            assert unavailable(service.ask("trial", [0.5, 0.1]))
            assert unavailable(service.post(f"/v1/decisions/{first}/outcome", {"reward": 0.1, "cost": 0.1}))
            assert service.get("/v1/studies/trial/events").status == 200
            other.execute("ROLLBACK")
            other.close()
            assert service.post(f"/v1/decisions/{first}/outcome", {"reward": 0.1, "cost": 0.1}).status == 201
            assert service.get("/v1/studies/trial/verify").json()["ok"]


def test_a_full_store_is_503_and_keeps_what_it_had(service, store):
    from safedial.study.database import sa

    def small(connection, _):
        connection.execute("PRAGMA max_page_count=40")

    sa.event.listen(store.engine, "connect", small)
    store.engine.dispose()
    acknowledged = []
    for _ in range(200):
        answer = service.ask("trial", [0.5, 0.1])
        if answer.status != 201:
            break
        acknowledged.append(answer.json()["seq"])
    assert unavailable(answer)
    report = service.get("/v1/studies/trial/verify").json()
    assert (report["ok"], report["seq"]) == (True, acknowledged[-1])


def test_a_store_whose_file_is_gone_is_503(service, tmp_path):
    assert service.ask("trial", [0.5, 0.1]).status == 201
    for file in tmp_path.glob("trial.db*"):
        file.rename(file.with_name(f"moved-{file.name}"))
    assert unavailable(service.ask("trial", [0.5, 0.1]))
    for file in tmp_path.glob("moved-*"):
        file.rename(file.with_name(file.name.removeprefix("moved-")))
    assert service.ask("trial", [0.5, 0.1]).json()["seq"] == 3


@pytest.mark.slow
def test_a_database_server_that_is_gone_is_503():
    server = Server()
    with Store(server.url()) as store:
        Study.create("trial", SPEC, storage=store)
        with running(store) as url:
            service = Caller(url)
            assert service.ask("trial", [0.5, 0.1]).status == 201
            server.stop()
            started = time.monotonic()
            assert unavailable(service.ask("trial", [0.5, 0.1]))
            assert unavailable(service.get("/readyz"))
            assert service.get("/healthz").status == 200
            assert time.monotonic() - started < 20


@pytest.mark.slow
def test_a_full_disk_is_not_ready_until_there_is_room_again(tmp_path):
    """The process may write files of so many bytes and no more; then the limit is lifted."""
    limit = 400_000
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--storage", f"sqlite:///{tmp_path}/trial.db", "--port", str(port)]
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    server = subprocess.Popen([sys.executable, "-m", "safedial", *words], stderr=subprocess.DEVNULL)
    try:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, hard))
        client = Client(f"http://127.0.0.1:{port}", retries=100, pause=0.02, timeout=20)
        client.create_study("trial", SPEC)
        client.close()
        service = Caller(f"http://127.0.0.1:{port}")
        assert service.get("/readyz").status == 200
        answers = (service.ask("trial", [0.1, 0.1]) for _ in range(500))
        assert unavailable(next(answer for answer in answers if answer.status != 201))
        assert unavailable(service.get("/readyz"))
        assert service.get("/healthz").status == 200
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert service.ask("trial", [0.1, 0.1]).status == 201
        assert service.get("/readyz").status == 200
        assert service.get("/v1/studies/trial/verify").json()["ok"]
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count memory differently")
def test_a_service_with_too_little_memory_says_so_and_does_not_start(tmp_path):
    """The process may have 100 MB more than what it has when it is ready to start."""
    words = ["serve", "--storage", f"sqlite:///{tmp_path}/trial.db"]
    program = (
        "import resource, re; from safedial.cli import main; import safedial.service.server; "
        "size = int(re.search(r'VmSize:\\s+(\\d+)', open('/proc/self/status').read())[1]) * 1024 + 100_000_000; "
        "resource.setrlimit(resource.RLIMIT_AS, (size, size)); main()"
    )
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "memory" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_unit_a_visit_told_twice_and_another_study_s_checkpoint_change_nothing(service, store):
    asked = {"context": [0.1, 0.1], "unit": "P-1", "visit": "day 1"}
    first = service.post("/v1/studies/trial/decisions", asked).json()
    outcome = f"/v1/decisions/{first['id']}/outcome"
    assert service.post(outcome, {"reward": 0.1, "cost": 0.1}).status == 201
    other = Study.create("other", SPEC, storage=store).checkpoint("elsewhere")
    before, events = service.get("/v1/studies/trial").json(), service.get("/v1/studies/trial/events").content
    for answer, code, words in (
        (service.get("/v1/studies/trial/units/P-2"), "unknown_unit", ""),
        (service.get("/v1/studies/trial/decisions?unit=P-2"), "unknown_unit", ""),
        (service.get("/v1/studies/trial/decisions?unit=P-1&visit=day%202"), "unknown_visit", ""),
        (service.post("/v1/studies/trial/decisions", asked), "visit_taken", first["id"]),
        (service.post(outcome, {"reward": 0.1, "cost": 0.2}), "conflict", "correction"),
        (
            service.get(f"/v1/studies/trial/verify?checkpoint={urllib.parse.quote(json.dumps(other))}"),
            "other_study",
            "'other'",
        ),
        (
            service.get("/v1/studies/trial/verify?checkpoint=%7B"),
            "invalid_input",
            "checkpoint: must hold the JSON object",
        ),
    ):
        assert answer.code == code
        assert words in str(answer.json()), code
    assert service.post(outcome, {"reward": 0.1, "cost": 0.1}).status == 200, "the same again is no error"
    assert service.get("/v1/studies/trial").json() == before
    assert service.get("/v1/studies/trial/events").content == events


@pytest.mark.parametrize(
    "context", [[[1, [2]], 0], [[[1], 2], [3]], [[], 0.1], [{}, 0.1], [None, 0.1], [[0.1, [0.2, [0.3]]], 0.1]]
)
def test_a_context_of_lists_of_different_depths_is_422_and_no_fault(service, context):
    answer = service.ask("trial", context)
    assert (answer.status, answer.json()["field"]) == (422, "context")


def test_every_refused_request_says_what_is_wrong_with_it(service, store):
    """The refusal's `detail`, without the caller's values."""
    features = {"names": ["age", "weight"], "center": [50, 70], "scale": [100, 100]}
    Study.create("named", {**SPEC, "features": features}, storage=store)
    decision = service.ask("trial", [0.5, 0.1]).json()["id"]
    path, ask = f"/v1/decisions/{decision}/outcome", "/v1/studies/trial/decisions"
    good = {"context": [0.1, 0.1]}
    refused = [
        service.post(ask, {"context": [MARK]}),
        service.post(ask, {"context": [MARK, MARK]}),
        service.post(ask, {"context": [MARK, "x"]}),
        service.post(ask, {"context": f"{MARK}"}),
        service.post(ask, b'{"context": [0.1, NaN]}'),
        service.post(ask, b'{"context": [0.1, 0.1], "baseline_cost": NaN}'),
        service.post(ask, {**good, "baseline_cost": -MARK}),
        service.post(ask, {**good, "baseline_cost": "x"}),
        service.post(ask, {**good, "proposal": MARK}),
        service.post(ask, {**good, "unit": "  "}),
        service.post(ask, {**good, "unit": ""}),
        service.post(ask, {**good, "unit": "x" * 300}),
        service.post(ask, {**good, "meta": {"a b": MARK}}),
        service.post(ask, {**good, "meta": {"a": [MARK]}}),
        service.post(ask, {**good, "allow_extrapolation": 1}),
        service.post("/v1/studies/named/decisions", {"context": {"age": f"{MARK}", "weight": 70}}),
        service.post(path, {"reward": 0.1}),
        service.post(path, {"cost": 0.1}),
        service.post(path, {"reward": 0.1, "cost": {"heat": MARK}}),
        service.post(path, {"reward": 0.1, "cost": 0.1, "applied_action": 9}),
        service.post(path, {"reward": 0.1, "cost": 0.1, "observed_at": f"{MARK}"}),
        service.post(path, {"reward": 0.1, "cost": 0.1, "throttled": "no"}),
        service.post(path, {"reward": 0.1, "cost": 0.1, "x": MARK}),
        service.post(path.replace("outcome", "void"), {"reason": " "}),
        service.post("/v1/studies", {"name": "bad", "spec": {**SPEC, "threshold": -1}}),
        service.post("/v1/studies", {"name": "bad name", "spec": SPEC}),
        service.post("/v1/studies/trial/resume", {"reason": "x", "forget": True}),
        service.post("/v1/studies/trial/amendment", {"reason": "x"}),
        service.get("/v1/studies/trial/events?from_seq=x"),
    ]
    silent = [number for number, answer in enumerate(refused) if answer.status == 422 and "detail" not in answer.json()]
    assert silent == []
    assert [number for number, answer in enumerate(refused) if answer.status not in (409, 422)] == []
    for answer in refused:
        assert str(MARK).encode() not in answer.content, answer
