"""Keys and roles: what each may do, rotation, revocation, the rate, and the open door on loopback."""

import pytest

from safedial.errors import InvalidInput
from safedial.service import access
from safedial.service.app_state import Limits
from safedial.service.server import running, serve
from safedial.study.keys import create_key, revoke_key
from safedial.study.store import Store
from safedial.study.study import Study
from tests.service.conftest import Caller
from tests.study.conftest import SPEC


def make(store, role, study=""):
    return create_key(store, role, study=study, reason="test", actor="tester")


@pytest.fixture
def two(store):
    """Two studies, and a server whose keys are asked for every time."""
    for name in ("trial", "other"):
        Study.create(name, SPEC, storage=store)
    with running(store) as url:
        yield url


def deeds(caller, decision):
    """What a caller gets for each kind of request, on a decision that has its outcome."""
    outcome = {"reward": 0.1, "cost": 0.1}
    return {
        "read": caller.get("/v1/studies/trial").status,
        "events": caller.get("/v1/studies/trial/events").status,
        "metrics": caller.get("/metrics").status,
        "decide": caller.ask("trial", [0.1, 0.1]).status,
        "observe": caller.post(f"/v1/decisions/{decision}/outcome", outcome).status,
        "create": caller.post("/v1/studies", {"name": "trial", "spec": SPEC}).status,
        "resume": caller.post("/v1/studies/trial/resume", {"reason": "x"}).status,
        "amend": caller.post("/v1/studies/trial/amendment", {"reason": "x", "changes": {}}).status,
    }


def test_each_role_may_do_its_part_and_no_more(two, store):
    admin = Caller(two, make(store, "admin")[0])
    decision = admin.ask("trial", [0.1, 0.1]).json()["id"]
    assert admin.post(f"/v1/decisions/{decision}/outcome", {"reward": 0.1, "cost": 0.1}).status == 201
    seen = {"read": 200, "events": 200, "metrics": 200}
    may = {
        "read": {**seen, "decide": 403, "observe": 403, "create": 403, "resume": 403, "amend": 403},
        "observe": {**seen, "decide": 403, "observe": 200, "create": 403, "resume": 403, "amend": 403},
        "decide": {**seen, "decide": 201, "observe": 200, "create": 403, "resume": 403, "amend": 403},
        "admin": {**seen, "decide": 201, "observe": 200, "create": 409, "resume": 422, "amend": 422},
    }
    for role, expected in may.items():
        assert deeds(Caller(two, make(store, role)[0]), decision) == expected, role


def test_a_key_for_one_study_opens_no_other(two, store):
    caller = Caller(two, make(store, "admin", "trial")[0])
    assert b'study="other"' in Caller(two, make(store, "read")[0]).get("/metrics").content
    assert caller.ask("trial", [0.1, 0.1]).status == 201
    assert caller.ask("other", [0.1, 0.1]).code == "forbidden"
    assert caller.ask("nobody", [0.1, 0.1]).code == "forbidden"
    assert caller.get("/v1/decisions/other.1").code == "forbidden"
    assert caller.post("/v1/studies", {"name": "new", "spec": SPEC}).code == "forbidden"
    assert [row["name"] for row in caller.get("/v1/studies").json()["studies"]] == ["trial"]
    text = caller.get("/metrics").content
    assert b'study="trial"' in text
    assert b'study="other"' not in text


def test_without_keys_loopback_is_open_and_the_first_key_shuts_the_door(two, store, monkeypatch):
    monkeypatch.setattr(access, "FRESH_SECONDS", 0.0)
    nobody = Caller(two)
    assert nobody.ask("trial", [0.1, 0.1]).status == 201
    assert nobody.get("/v1/studies", Host="evil.example").code == "unauthenticated"
    for name in ("Forwarded", "X_Forwarded_For", "X_Real_IP", "Via"):
        assert nobody.get("/v1/studies", **{name: "127.0.0.1"}).code == "unauthenticated", name
    _, record = make(store, "read")
    answer = nobody.ask("trial", [0.1, 0.1])
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    revoke_key(store, record.id, reason="test", actor="tester")
    assert nobody.ask("trial", [0.1, 0.1]).status == 401
    assert nobody.get("/healthz").status == nobody.get("/").status == 200


def test_a_new_key_takes_over_before_the_old_one_goes(two, store, monkeypatch):
    monkeypatch.setattr(access, "FRESH_SECONDS", 0.0)
    old, record = make(store, "decide")
    new, _ = make(store, "decide")
    assert [Caller(two, key).ask("trial", [0.1, 0.1]).status for key in (old, new)] == [201, 201]
    revoke_key(store, record.id, reason="rotation", actor="tester")
    assert [Caller(two, key).ask("trial", [0.1, 0.1]).status for key in (old, new)] == [401, 201]


@pytest.mark.parametrize("words", ["Basic abc", "Bearer", "Bearer  ", "sd_x", "Bearer sd_0_wrong", "Bearer é"])
def test_what_is_no_key_is_401(two, store, words):
    make(store, "admin")
    assert Caller(two).send("GET", "/v1/studies", Authorization=words.encode("latin-1")).code == "unauthenticated"


def test_the_log_names_the_key_that_acted_and_never_the_key_itself(two, store):
    text, record = make(store, "decide")
    caller = Caller(two, text)
    caller.ask("trial", [0.1, 0.1])
    events = caller.get("/v1/studies/trial/events").content.decode()
    assert f'"actor":"key:{record.id}"' in events
    assert text.split("_", 2)[2] not in events


def test_a_caller_above_its_rate_is_429(store):
    Study.create("trial", SPEC, storage=store)
    with running(store, limits=Limits(rate=0.001, burst=3)) as url:
        answers = [Caller(url).get("/v1/studies/trial") for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].headers["retry-after"] == "1"


def test_another_address_than_loopback_needs_a_key_first(tmp_path):
    storage = f"sqlite:///{tmp_path}/trial.db"
    with pytest.raises(InvalidInput, match="needs keys"):
        serve(storage, host="0.0.0.0")  # noqa: S104 -- refused
    with Store(storage) as store:
        make(store, "read")
        access.refuse_open_address(store, "0.0.0.0")  # noqa: S104 -- nothing is bound
