"""Amendments over HTTP, with the client, from the command line and on the page: refused as one sentence, made once."""

import json

import numpy as np
import pytest

from safedial.errors import InvalidInput
from safedial.service.charts import counts, series
from safedial.service.client import Client
from safedial.service.server import running
from safedial.service.timeline import Track
from safedial.study.database import sa, writing
from safedial.study.store import Store
from safedial.study.study import Study
from tests.service.conftest import Caller
from tests.study.conftest import SPEC
from tests.study.test_cli import study  # noqa: F401 -- a fixture

PATH = "/v1/studies/trial/amendment"
WHY = {"reason": "a new guideline"}


def test_an_amendment_is_made_once_and_every_later_decision_says_so(service):
    before = service.ask("trial", [0.1, 0.1]).json()
    body = {**WHY, "changes": {"threshold": 0.6}, "from_round": 2}
    made = service.post(PATH, body, idempotency_key="a")
    assert made.status == 201
    assert (made.json()["replayed"], len(made.json()["hash"])) == (False, 64)
    again = service.post(PATH, body, idempotency_key="a")
    assert (again.status, again.headers["idempotent-replayed"]) == (200, "true")
    assert again.json() == {**made.json(), "replayed": True}
    assert service.post(PATH, {**body, "changes": {"threshold": 0.7}}, idempotency_key="a").code == "key_reused"
    state = service.get("/v1/studies/trial").json()
    assert (state["spec"]["threshold"], state["amendments"], state["decisions"]) == (0.6, 1, 1)
    after = service.ask("trial", [0.1, 0.1]).json()
    assert after["certificate"]["amended"][0]["seq"] == made.json()["seq"]
    assert service.get(f"/v1/decisions/{before['id']}").json()["certificate"] == before["certificate"]
    event = service.get("/v1/studies/trial/events?from_seq=3&limit=1").json()["events"][0]
    assert (event["kind"], event["reason"], event["decision_id"]) == ("amended", WHY["reason"], None)
    assert service.get("/v1/studies/trial/verify").json()["ok"]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"changes": {"threshold": 0.6}}, "invalid_input", "reason"),
        ({"changes": {"threshold": 0.6}, "reason": " "}, "reason_required", ""),
        ({"changes": {"threshold": 0.6}, "from_round": "two", **WHY}, "invalid_input", "from_round"),
        ({"changes": {"policy": {"name": ["x"]}}, **WHY}, "invalid_input", ""),
        ({"changes": {"threshold": 0.6}, "more": 1, **WHY}, "invalid_input", ""),
    ],
)
def test_a_refused_amendment_is_a_422_and_changes_nothing(service, body, code, words):
    service.ask("trial", [0.1, 0.1])
    before = service.get("/v1/studies/trial").json()
    answer = service.post(PATH, body)
    assert (answer.status, answer.code) == (422, code), answer
    assert words in json.dumps(answer.json())
    assert service.get("/v1/studies/trial").json() == before


def test_the_client_amends_and_goes_on_as_a_witness(service):
    client = Client(service.url)
    client.ask("trial", [0.1, 0.1])
    made = client.amend("trial", changes={"threshold": 0.7}, keep_learning=False, **WHY)
    assert client.study("trial")["hash"] == made["hash"]
    assert client.ask("trial", [0.1, 0.1]).certificate["amended"][0]["keep_learning"] is False
    client.amend("trial", {**SPEC, "threshold": 0.8}, from_round=3, **WHY)
    with pytest.raises(InvalidInput, match="in the past"):
        client.amend("trial", changes={"threshold": 0.9}, from_round=1, **WHY)
    assert client.study("trial")["spec"]["threshold"] == 0.8
    client.close()


def test_the_command_line_amends_and_says_what_becomes_of_the_learning(study, tmp_path):  # noqa: F811 -- the fixture
    assert study("ask", "trial", "0.3,0.1")[0] == 0
    code, out, _ = study("amend", "trial", "--threshold", 0.6, "--reason", "a new guideline")
    assert code == 0
    assert out.startswith("Written: event 3 (3:")
    assert out.endswith(" Amended from round 2 on. What was learned is kept.\n")
    code, out, _ = study("amend", "trial", "--set", "cost_noise=0.2", "--reason", "a new guideline", "--json")
    assert (code, json.loads(out)["seq"]) == (0, 4)
    (tmp_path / "new.json").write_text(json.dumps({**SPEC, "threshold": 0.9}))
    words = ("--spec", tmp_path / "new.json", "--from-round", 2, "--start-again", "--reason", "a new guideline")
    assert "Learning starts again" in study("amend", "trial", *words)[1]
    assert study("verify", "trial")[0] == 0
    for wrong, complaint in (
        (("--threshold", 0.6, "--reason", " "), "must state a reason"),
        (("--threshold", 0.6), "--reason"),
        (("--set", "threshhold=0.6", "--reason", "x"), "unknown names"),
    ):
        code, out, err = study("amend", "trial", *wrong)
        assert (code, out) == (2, ""), wrong
        assert complaint in err
    assert json.loads(study("status", "trial", "--json")[1])["amendments"] == 3


@pytest.mark.parametrize("keep", [True, False])
def test_the_page_counts_each_part_by_its_own_rules(store, keep):
    spec, rng = {**SPEC, "guard": {"alarm_level": 1e-4}}, np.random.default_rng(3)
    trial = Study.create("calm", spec, storage=store)
    track = Track(trial)
    for number in range(24):
        made = trial.ask(rng.uniform(-0.6, 0.6, 2))
        if number % 5 and made.intensity > 0.0:
            trial.tell(made.id, reward=0.1, cost=float(rng.uniform(0.3, 0.7)))
        if number == 9:
            track.refresh()
            trial.amend(changes={"threshold": 0.65}, keep_learning=keep, **WHY)
    told = trial.status()
    track.refresh(fresh=True)
    assert [int(each.sum()) for each in track.judged] == [told["outcomes"], told["violations"]]
    assert counts(track, told)["overdue"] == 0
    trial.amend(changes={"threshold": None, "cost_noise": None, "costs": COSTS}, **WHY)
    made = trial.ask([0.3, 0.3])
    trial.tell(made.id, reward=0.1, cost={"heat": 0.7, "wear": 0.1})
    track.refresh(fresh=True)
    assert int(track.judged[1].sum()) == trial.status()["violations"] == told["violations"] + 1
    assert series(track, 100)["curves"]["costs"]["heat"][-1] == pytest.approx(1.4)


COSTS = {"heat": {"threshold": 0.5, "noise": 0.3}, "wear": {"threshold": 0.8, "noise": 0.2}}


def test_the_page_says_what_was_amended(service, store):
    trial = Study.open("trial", storage=store)
    trial.ask([0.1, 0.1])
    trial.amend(changes={"threshold": 0.65}, **WHY)
    track = Track(trial)
    track.refresh()
    drawn = series(track, 100)
    assert (drawn["threshold"], len(drawn["amendments"])) == (0.65, 1)


@pytest.mark.parametrize("kind", ["study_created", "amended"])
def test_a_changed_specification_is_found_over_http_and_spares_the_other_studies(storage, kind):
    with Store(storage) as store:
        for name in ("trial", "other"):
            study = Study.create(name, {**SPEC, "fallback_action": 0.1}, storage=store)
            study.amend(changes={"threshold": 0.6}, **WHY)
            study.ask([0.3, 0.2])
        with writing(store.engine) as connection:
            changed = "UPDATE events SET body = replace(body, '0.3', '0.4') WHERE kind = :kind AND study_id = :study"
            connection.execute(sa.text(changed), {"kind": kind, "study": store.find("other")})
    with Store(storage) as store, running(store) as url:
        service = Caller(url)
        found = service.get("/v1/studies/other/verify")
        assert (found.status, found.json()["ok"]) == (200, False)
        assert found.json()["first_bad"] == (1 if kind == "study_created" else 2)
        assert service.get("/v1/studies/none/verify").code == "unknown_study"
        assert service.get("/v1/studies/n%20ne/verify").code == "unknown_study"
        told = service.get("/metrics")
        assert told.status == 200
        assert b'safedial_study_decisions{study="trial"} 1.0' in told.content
        assert b'study="other"' not in told.content
