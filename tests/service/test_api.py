"""What the service answers: the whole way of a decision, idempotency, one commit for many, errors in one form."""

import asyncio
import json
import logging
import math
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from safedial.service import routes
from safedial.service.app import make_app
from safedial.service.client import Client
from safedial.service.problem import STATUS, WORDS
from safedial.service.server import running
from safedial.study.database import sa, writing
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import MEANINGS
from tests.service.conftest import Caller
from tests.study.conftest import SPEC


def test_a_study_is_created_asked_told_corrected_made_void_and_verified(service):
    made = service.post("/v1/studies", {"name": "infusion", "spec": SPEC})
    assert (made.status, made.json()["decisions"], made.json()["spec"]["threshold"]) == (201, 0, 0.5)
    decision = service.ask("infusion", [0.6, 0.3])
    body = decision.json()
    assert (decision.status, body["id"], body["seq"]) == (201, f"infusion.2.{body['hash'][:8]}", 2)
    named = {
        "id",
        "seq",
        "hash",
        "action",
        "intensity",
        "safe_action",
        "certificate",
        "replayed",
        "stop_reason",
        "amended",
    }
    assert set(body) == named
    told = service.post(f"/v1/decisions/{body['id']}/outcome", {"reward": 0.1, "cost": 0.2, "applied_action": 0.1})
    assert (told.status, told.json()["decision_id"], told.json()["seq"]) == (201, body["id"], 3)
    changed = service.post(f"/v1/decisions/{body['id']}/correction", {"cost": 0.1, "reason": "typing error"})
    assert (changed.status, changed.json()["seq"]) == (201, 4)
    second = service.ask("infusion", [0.1, 0.1]).json()["id"]
    gone = service.post(f"/v1/decisions/{second}/void", {"reason": "device was off", "unrelated": True})
    assert gone.status == 201
    whole = service.get(f"/v1/decisions/{body['id']}").json()
    assert [event["kind"] for event in whole["events"]] == ["outcome", "correction"]
    assert whole["action"] == body["action"]
    assert "This holds if:" in whole["explanation"]
    assert service.get("/v1/studies/infusion/verify").json()["ok"]
    assert {row["name"] for row in service.get("/v1/studies").json()["studies"]} == {"trial", "infusion"}


def test_proposals_and_several_costs_over_http(service):
    policy = {"name": "hp_shield", "base": "proposal", "growth": {"growth": "additive", "low": 0, "high": 1}}
    spec = {
        "dim": 1,
        "guarantee": "bracket",
        "threshold": 2,
        "violation_risk": 0.5,
        "policy": policy,
        "start_action": 1,
    }
    spec["dial"] = {"high": 9}
    assert service.post("/v1/studies", {"name": "doses", "spec": spec}).status == 201
    client = Client(service.url)
    first = client.ask("doses", [0.5], proposal=3, key="visit-1")
    assert (first.action, first.certificate["proposal"]) == (1.0, 3.0)
    assert client.ask("doses", [0.5], proposal=3, key="visit-1").replayed
    client.tell(first.id, reward=0, cost=0.5)
    client.tell(client.ask("doses", [0.5], proposal=3).id, reward=0, cost=3.0)
    count = client.ask("doses", [0.5], proposal=3).certificate["count"]
    assert count["exceeding"] == [row["id"] for row in service.get("/v1/studies/doses/decisions").json()["rows"][1:2]]
    answer = service.post("/v1/studies/doses/decisions", {"context": [0.5], "proposal": "three"})
    assert (answer.status, answer.json()["field"]) == (422, "proposal")
    assert client.verify("doses")["ok"]
    costs = {
        "heat": {"threshold": 2, "growth": policy.pop("growth")},
        "load": {"threshold": 5, "growth": {"growth": "additive", "low": 0, "high": 2}},
    }
    two = {name: value for name, value in spec.items() if name != "threshold"} | {"costs": costs}
    client.create_study("two", two)
    name = client.ask("two", [0.5], proposal=3).id
    odd = service.post(f"/v1/decisions/{name}/outcome", {"reward": 0, "cost": {"heat": 1}})
    assert (odd.status, odd.json()["field"]) == (422, "cost")
    client.tell(name, reward=0, cost={"heat": 1, "load": None})
    client.correct(name, cost={"heat": 1, "load": 7}, reason="came later")
    row = service.get("/v1/studies/two/decisions").json()["rows"][0]
    assert (row["cost"], row["violated"]) == ({"heat": 1.0, "load": 7.0}, True)
    client.close()


def test_visits_metadata_ranges_and_doses_of_nothing_over_http(service):
    features = {"names": ["age", "weight"], "scale": [200, 200], "ranges": {"age": [0, 120]}}
    guard = {"max_unwatched": 0.25, "max_open_hours": 48}
    spec = {**SPEC, "features": features, "guard": guard, "baseline_range": [0, 0.2]}
    made = service.post("/v1/studies", {"name": "ward", "spec": spec}).json()
    assert made["warnings"] == [
        "if the study stops, it advises 0 to everybody: state fallback_action if that is not safe"
    ]
    assert made["spec"]["guard"]["max_open_hours"] == 48
    stated = service.post("/v1/studies", {"name": "stated", "spec": {**spec, "fallback_action": 0}})
    assert stated.json()["warnings"] == []
    path, context = "/v1/studies/ward/decisions", {"age": 65, "weight": 90}
    body = {"context": context, "meta": {"patient": "P-04", "first": True}}
    decision = service.post(path, body, Idempotency_Key="visit-17").json()
    assert (decision["certificate"]["key"], decision["certificate"]["meta"]) == ("visit-17", body["meta"])
    assert service.post(path, body, Idempotency_Key="visit-17").json() == {**decision, "replayed": True}
    assert service.post(path, {"context": context}, Idempotency_Key="visit-17").code == "key_reused"
    odd = service.post(path, {**body, "meta": {"patient": ["P-04"]}})
    assert (odd.status, odd.code, odd.json()["field"]) == (422, "invalid_input", "meta")
    far = {"context": {"age": 617, "weight": 90}}
    refused = service.post(path, far)
    assert (refused.status, refused.code, refused.json()["field"]) == (422, "out_of_range", "context")
    assert "age must lie between 0 and 120" in refused.json()["detail"]
    assert b"617" not in refused.content
    near = {"context": {"age": 125, "weight": 90}, "allow_extrapolation": True}
    assert service.post(path, near).json()["certificate"]["extrapolated"] == ["age"]
    assert service.post(path, {**body, "baseline_cost": 0.3}).status == 422
    outcome = {"reward": 0, "cost": 0, "applied_action": 0, "unrelated": True}
    assert service.post(f"/v1/decisions/{decision['id']}/outcome", outcome).status == 201
    state = service.get("/v1/studies/ward").json()
    assert (state["void"], state["frozen"], state["unwatched"], state["resumes"]) == (1, False, 0, 0)
    assert state["oldest_open"]
    document = service.get("/openapi.json").json()["components"]["schemas"]
    assert {"meta", "allow_extrapolation"} <= document["Ask"]["properties"].keys()
    assert "unrelated" in document["Outcome"]["properties"]
    assert {"max_unwatched", "max_open_hours"} <= document["Guard"]["properties"].keys()
    assert "baseline_range" in document["Spec"]["properties"]


def test_events_come_in_pages_from_an_inclusive_seq(service):
    for number in range(5):
        service.ask("trial", [0.1 * number, 0.1])
    first = service.get("/v1/studies/trial/events?from_seq=1&limit=4").json()
    rest = service.get(f"/v1/studies/trial/events?from_seq={first['next_seq']}").json()
    assert [event["seq"] for event in first["events"] + rest["events"]] == [1, 2, 3, 4, 5, 6]
    assert rest["next_seq"] == 7
    event = rest["events"][0]
    assert set(event) == {"seq", "kind", "decision_id", "at", "actor", "reason", "body", "hash"}
    assert isinstance(event["body"], dict)
    assert service.get("/v1/studies/trial/events?from_seq=99").json() == {"events": [], "next_seq": 99}
    for odd in ("x", "-1", "1.5", "9" * 30):
        assert service.get(f"/v1/studies/trial/events?from_seq={odd}").status == 422


def test_the_same_key_and_body_give_the_stored_answer_and_another_body_is_refused(service):
    first = service.ask("trial", [0.5, 0.1], Idempotency_Key="visit-17")
    again = service.ask("trial", [0.5, 0.1], Idempotency_Key="visit-17")
    assert (again.status, again.json()) == (first.status, {**first.json(), "replayed": True})
    other = service.ask("trial", [0.5, 0.2], Idempotency_Key="visit-17")
    assert (other.status, other.code) == (422, "key_reused")
    assert service.get("/v1/studies/trial").json()["decisions"] == 1
    assert service.ask("trial", [0.5, 0.1], Idempotency_Key="x" * 300).status == 422
    path = f"/v1/decisions/{first.json()['id']}/correction"
    service.post(f"/v1/decisions/{first.json()['id']}/outcome", {"reward": 0.1, "cost": 0.1})
    fix = {"cost": 0.2, "reason": "typing error"}
    assert [service.post(path, fix, Idempotency_Key="fix").status for _ in range(2)] == [201, 200]
    new = {"name": "again", "spec": SPEC}
    assert [service.post("/v1/studies", new, Idempotency_Key="a").status for _ in range(2)] == [201, 201]
    assert service.post("/v1/studies", new).code == "study_exists"
    changed = {"name": "again", "spec": {**SPEC, "threshold": 0.9}}
    assert service.post("/v1/studies", changed, Idempotency_Key="a").status == 422


def test_an_outcome_twice_is_200_and_another_is_409_with_the_way_to_a_correction(service):
    decision = service.ask("trial", [0.5, 0.1]).json()["id"]
    path = f"/v1/decisions/{decision}/outcome"
    answers = [service.post(path, {"reward": 0.1, "cost": 0.1}) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 200]
    assert answers[1].json() == {**answers[0].json(), "replayed": True}
    other = service.post(path, {"reward": 0.1, "cost": 0.2})
    assert (other.status, other.code) == (409, "conflict")
    assert f"/v1/decisions/{decision}/correction" in other.json()["detail"]


def test_a_stopped_study_advises_the_fallback_and_says_why_until_it_is_resumed(service, store):
    Study.create("strict", {**SPEC, "guard": {"stop": {"violations": 1, "of_last": 10}}}, storage=store)
    decision = service.ask("strict", [0.5, 0.1]).json()["id"]
    service.post(f"/v1/decisions/{decision}/outcome", {"reward": 0.1, "cost": 0.55})
    stopped = service.ask("strict", [0.5, 0.1]).json()
    assert (stopped["action"], stopped["certificate"]["guarantee"]) == (0.0, "none")
    assert "stop rule" in stopped["certificate"]["statement"]
    assert service.get("/v1/studies/strict").json()["stop_reason"] == "stop_rule"
    other = service.post("/v1/studies/strict/resume", {"reason": "reviewed by the board", "rule": "drift"})
    assert (other.status, "the study is stopped by" in other.json()["detail"]) == (409, True)
    assert service.post("/v1/studies/strict/resume", {"reason": "reviewed by the board"}).status == 201
    assert service.ask("strict", [0.5, 0.1]).json()["action"] > 0


def test_many_callers_at_once_get_gap_free_seqs(service):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: service.ask("trial", [0.01 * number, 0.1]), range(64)))
    assert sorted(answer.json()["seq"] for answer in answers) == list(range(2, 66))
    assert service.get("/v1/studies/trial/verify").json()["ok"]


def test_health_readiness_and_metrics(service, monkeypatch):
    monkeypatch.setattr("safedial.service.timeline.FRESH_SECONDS", 0.0)
    decision = service.ask("trial", [0.5, 0.1]).json()["id"]
    service.post(f"/v1/decisions/{decision}/outcome", {"reward": 0.1, "cost": 0.9})
    assert service.get("/healthz").json()["status"] == "ok"
    assert service.get("/readyz").json()["status"] == "ready"
    text = service.get("/metrics").content.decode()
    assert 'safedial_study_violations{study="trial"} 1.0' in text
    assert 'route="/v1/studies/{name}/decisions",status="201"' in text
    evidence = service.get("/v1/studies/trial").json()["evidence"]
    line = next(line for line in text.splitlines() if line.startswith("safedial_study_evidence"))
    assert math.isclose(float(line.split()[-1]), evidence)


def test_every_code_has_a_status_and_words():
    assert set(MEANINGS) <= set(STATUS)
    assert set(STATUS) == set(WORDS)


def test_unknown_addresses_and_methods_are_answered_in_the_same_form(service):
    assert service.get("/v2/studies").code == "not_found"
    assert service.send("DELETE", "/v1/studies/trial").code == "method_not_allowed"


def test_a_fault_of_ours_is_500_without_its_words_in_answer_or_log(store, caplog, monkeypatch):
    app, mark = make_app(store), str(0.7654 + 1)

    def fail(*_):
        raise RuntimeError(f"context {mark}")

    monkeypatch.setattr("safedial.service.app_state.Service.seen_by", fail)
    with running(store, app=app) as url:
        answer = Caller(url).get("/v1/studies")
    assert (answer.status, answer.code) == (500, "fault")
    assert "RuntimeError" in caplog.text
    assert mark not in caplog.text + answer.content.decode()


def test_no_secret_key_or_context_value_is_in_any_log_or_error(tmp_path, caplog, capfd):
    from safedial.study.keys import create_key

    caplog.set_level(logging.DEBUG)
    mark, secret = "0.7654321", "hunter2"
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        Study.create("trial", SPEC, storage=store)
        key, _ = create_key(store, "admin", reason="test", actor="tester")
        with running(store) as url:
            service = Caller(url, key)
            said = [
                service.ask("trial", context).content
                for context in ([float(mark)], [float(mark), "x"], [float(mark)] * 2, {"a": float(mark)}, secret, [[1]])
            ]
            said.append(service.post("/v1/studies/trial/decisions", f'{{"context": [{mark}, NaN]}}'.encode()).content)
            said.append(service.post("/v1/studies/trial/decisions", f'{{"{secret}": {mark}}}'.encode()).content)
            said.append(service.post("/v1/decisions/trial.9/outcome", {"reward": float(mark), "cost": secret}).content)
            said.append(Caller(url, f"sd_0000_{secret}").get("/v1/studies").content)
            good = service.ask("trial", [float(mark), 0.1]).json()["id"]
            said.append(service.post(f"/v1/decisions/{good}/outcome", {"reward": 1, "cost": secret}).content)
            said.append(service.get("/metrics").content)
    out, err = capfd.readouterr()
    everything = b"".join(said).decode() + caplog.text + out + err
    for word in (mark, secret, key, key.split("_", 2)[2]):
        assert word not in everything, word


def test_the_openapi_document_describes_every_route_and_needs_no_network(service):
    document = service.get("/openapi.json").json()
    listed = {
        "/v1/studies": {"get", "post"},
        "/v1/studies/{name}": {"get"},
        "/v1/studies/{name}/resume": {"post"},
        "/v1/studies/{name}/amendment": {"post"},
        "/v1/studies/{name}/decisions": {"get", "post"},
        "/v1/studies/{name}/events": {"get"},
        "/v1/studies/{name}/verify": {"get"},
        "/v1/decisions/{decision_id}": {"get"},
        "/v1/decisions/{decision_id}/outcome": {"post"},
        "/v1/decisions/{decision_id}/correction": {"post"},
        "/v1/decisions/{decision_id}/void": {"post"},
    }
    for path, methods in listed.items():
        assert set(document["paths"][path]) == methods, path
    text = json.dumps(document)
    for name in document["components"]["schemas"]:
        assert isinstance(name, str)
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert used <= set(document["components"]["schemas"])
    assert "https://" not in text.replace("https://json-schema.org", "")


def test_more_requests_than_may_wait_are_503(store):
    from safedial.service.app_state import Limits

    with running(store, limits=Limits(waiting=0)) as url:
        answer = Caller(url).get("/v1/studies")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "overloaded", "1")


def test_one_log_is_verified_at_a_time_so_that_readers_cannot_hold_up_decisions(service, monkeypatch):
    began, end, verify = threading.Event(), threading.Event(), routes.verify_study

    def slow(store, name, **more):
        began.set()
        assert end.wait(30)
        return verify(store, name, **more)

    monkeypatch.setattr(routes, "verify_study", slow)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(service.get, "/v1/studies/trial/verify")
        assert began.wait(30)
        second = service.get("/v1/studies/trial/verify")
        assert (second.status, second.code, second.headers["retry-after"]) == (503, "overloaded", "1")
        assert service.ask("trial", [0.1, 0.1]).status == 201
        end.set()
        assert first.result().json()["ok"]
    assert service.get("/v1/studies/trial/verify").json()["ok"]


def test_readers_of_logs_rest_between_pages_while_others_are_answered(store):
    shared = make_app(store).service
    shared.waiting = 2
    spans = []

    def page():
        began = time.monotonic()
        time.sleep(0.05)
        spans.append((began, time.monotonic()))

    async def read():
        await shared.page(page)
        due = shared.rests_until
        await shared.page(page)
        return due

    due = asyncio.run(read())
    (began, ended), (again, _) = spans
    assert again >= due >= ended + 2.0 * (ended - began)


def test_a_reader_of_logs_alone_does_not_rest(store):
    shared = make_app(store).service
    shared.waiting, shared.rests_until = 1, time.monotonic() + 1e9
    assert asyncio.run(shared.page(lambda: "a page")) == "a page"


def test_nobody_on_the_way_may_keep_an_answer(service):
    asked = service.ask("trial", [0.1, 0.1])
    for answer in (asked, service.get(f"/v1/decisions/{asked.json()['id']}")):
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_a_checkpoint_kept_elsewhere_is_verified_over_http(service, store):
    from urllib.parse import quote

    from safedial.service.client import Client

    study = Study.create("trial", storage=store, load_if_exists=True)
    study.ask([0.1, 0.1])
    mark = study.checkpoint("for the safe")
    words = f"{mark['seq']}:{mark['hash']}"
    assert service.get(f"/v1/studies/trial/verify?checkpoint={quote(words)}").json()["ok"]
    other = f"{mark['seq']}:{'0' * 64}"
    report = service.get(f"/v1/studies/trial/verify?checkpoint={other}").json()
    assert (report["ok"], report["first_bad"]) == (False, mark["seq"])
    refused = service.get("/v1/studies/trial/verify?checkpoint=3")
    assert (refused.status, refused.code) == (422, "invalid_input")
    client = Client(service.url)
    assert client.verify("trial", checkpoint=words)["ok"]
    client.close()


def test_an_answer_given_again_is_marked_and_carries_the_present_stop(service, store):
    Study.create("strict", {**SPEC, "guard": {"stop": {"violations": 1, "of_last": 10}}}, storage=store)
    first = service.ask("strict", [0.5, 0.1], Idempotency_Key="visit-1")
    assert ("idempotent-replayed" in first.headers, first.json()["replayed"], first.json()["stop_reason"]) == (
        False,
        False,
        "",
    )
    path = f"/v1/decisions/{first.json()['id']}"
    outcome = service.post(f"{path}/outcome", {"reward": 0.1, "cost": 0.55})
    assert "idempotent-replayed" not in outcome.headers
    again = service.ask("strict", [0.5, 0.1], Idempotency_Key="visit-1")
    assert (again.status, again.headers["idempotent-replayed"]) == (201, "true")
    assert again.json() == {**first.json(), "replayed": True, "stop_reason": "stop_rule"}
    same = service.post(f"{path}/outcome", {"reward": 0.1, "cost": 0.55})
    assert (same.status, same.headers["idempotent-replayed"], same.json()["replayed"]) == (200, "true", True)
    new = {"name": "again", "spec": SPEC}
    made, known = (service.post("/v1/studies", new, Idempotency_Key="a") for _ in range(2))
    assert ("idempotent-replayed" in made.headers, known.headers["idempotent-replayed"]) == (False, "true")
    assert (made.json()["replayed"], known.json()["replayed"]) == (False, True)


def test_every_201_carries_the_hash_of_its_event_so_that_each_client_is_a_witness(service):
    new = service.post("/v1/studies", {"name": "again", "spec": SPEC}).json()
    asked = service.ask("again", [0.5, 0.1]).json()
    told = service.post(f"/v1/decisions/{asked['id']}/outcome", {"reward": 0.1, "cost": 0.1}).json()
    fixed = service.post(f"/v1/decisions/{asked['id']}/correction", {"cost": 0.2, "reason": "typing error"}).json()
    gone = service.post(f"/v1/decisions/{asked['id']}/void", {"reason": "wrong patient", "unrelated": True}).json()
    hashes = [event["hash"] for event in service.get("/v1/studies/again/events").json()["events"]]
    for answer in (new, asked, told, fixed, gone):
        assert answer["hash"] == hashes[answer["seq"] - 1]
        checked = service.get(f"/v1/studies/again/verify?checkpoint={answer['seq']}:{answer['hash']}")
        assert checked.json()["ok"]


def test_the_id_of_a_decision_lost_in_a_restore_is_404_with_the_reason(service):
    asked = service.ask("trial", [0.5, 0.1]).json()["id"]
    lost = f"{asked[:-8]}0123abcd"
    answer = service.post(f"/v1/decisions/{lost}/outcome", {"reward": 0.1, "cost": 0.1})
    assert (answer.status, answer.code) == (404, "unknown_decision")
    assert "it was made before the store was restored" in answer.json()["detail"]
    assert service.get(f"/v1/decisions/{lost}").status == 404
    assert service.get(f"/v1/decisions/{asked}").status == 200


def test_the_service_is_ready_when_the_logs_were_read_and_not_before(store, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("trial", "broken"):
        Study.create(name, SPEC, storage=store)
    with writing(store.engine) as connection:
        connection.execute(sa.text("UPDATE events SET reason = 'x' WHERE study_id = 2 AND seq = 1"))
    service, prepare, seen = Caller(f"http://127.0.0.1:{port}"), Store.prepare, []

    def looked(self, name):
        for _ in range(1000):
            try:
                assert service.get("/healthz").status == 200
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        seen.append((name, service.get("/readyz").status))
        prepare(self, name)

    monkeypatch.setattr(Store, "prepare", looked)
    store._studies.clear()
    with running(store, port=port):
        assert service.get("/readyz").status == 200
    assert seen == [("trial", 503), ("broken", 503)]


def test_a_misspelt_name_in_a_query_is_refused_and_not_ignored(service):
    for path, takes in (
        ("/v1/studies/trial/verify?checkpont=3:dead", "it takes checkpoint"),
        ("/v1/studies/trial/decisions?patient=P-04", "it takes before, limit, overdue, search, unit, visit"),
        ("/v1/studies?name=trial", "it takes none"),
    ):
        answer = service.get(path)
        assert (answer.status, answer.code) == (422, "invalid_input")
        assert takes in answer.json()["detail"]
        assert "patient" not in answer.json()["detail"]
    assert service.get("/v1/studies/trial/decisions?limit=1").status == 200


def test_the_openapi_document_names_path_parameters_and_what_an_answer_is_sent_as(service):
    document = service.get("/openapi.json").json()
    lacking = []
    for path, operations in document["paths"].items():
        named = set(re.findall(r"{(\w+)}", path))
        for method, operation in operations.items():
            given = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
            if given != named or not all(
                each["required"] for each in operation.get("parameters", []) if each["in"] == "path"
            ):
                lacking.append((method, path))
            assert set(operation["responses"]["default"]["content"]) == {"application/problem+json"}, (method, path)
    assert lacking == []
    assert "text/plain" in str(document["paths"]["/metrics"]["get"]["responses"]["200"]["content"])


def test_a_refused_method_is_told_all_methods_of_the_address(service):
    for path, allowed in (
        ("/v1/studies", {"GET", "HEAD", "POST"}),
        ("/v1/studies/trial/decisions", {"GET", "HEAD", "POST"}),
        ("/v1/decisions/trial.2/outcome", {"POST"}),
        ("/", {"GET", "HEAD"}),
    ):
        answer = service.send("DELETE", path)
        assert (answer.code, set(answer.headers["allow"].split(", "))) == ("method_not_allowed", allowed)


def test_no_error_is_kept_or_guessed_at_on_the_way(service):
    for answer in (service.ask("trial", [9, 9]), service.get("/nowhere"), service.send("DELETE", "/v1/studies")):
        assert answer.code
        assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
