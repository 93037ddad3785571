"""The operator page in headless Chromium: the API's numbers, live, readable, silent, and nothing from elsewhere."""

import csv
import json
import time
from contextlib import suppress

import numpy as np
import pytest

from safedial.rounds.outcome import STATUSES
from safedial.service.client import Client
from safedial.service.server import running
from safedial.service.timeline import CODE, Track
from safedial.stats import violation_interval
from safedial.study.keys import create_key
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.study_errors import StudyError
from tests.service.browser import Browser
from tests.service.conftest import Caller
from tests.study.conftest import SPEC

CERTIFICATE = (
    "document.getElementById('certificate').offsetHeight > 0 && document.querySelector('#certificate .big') !== null"
)
NUMBERS = ("decisions", "outcomes", "violations", "open", "evidence")
COUNTED = (
    *("decisions", "outcomes", "violations", "open", "expired", "void", "stop_reason"),
    *("waits_for", "waiting", "frozen", "unwatched", "resumes", "oldest_open", "overdue", "overdue_since"),
)


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture
def page(browser):
    browser.look(1200, 1000)
    browser.open("about:blank#")  # and then clear: the page of the test before may have missed its service
    browser.console.clear()
    browser.requests.clear()
    return browser


def fill(service, rounds, study="trial"):
    """Decisions with outcomes, an override, a violation, a correction, a void and an open one."""
    for number in range(rounds):
        decision = service.ask(study, [0.05 * (number % 9), 0.3]).json()
        cost = 0.6 if number == 3 else 0.1 + 0.01 * (number % 7)
        applied = decision["action"] / 2 if number % 5 == 0 else None
        body = {"reward": 0.1, "cost": cost, "applied_action": applied}
        if number == 7:
            service.post(f"/v1/decisions/{decision['id']}/void", {"reason": "device was off", "unrelated": True})
        elif number < rounds - 2:
            service.post(f"/v1/decisions/{decision['id']}/outcome", body)
        if number == 4:
            service.post(f"/v1/decisions/{decision['id']}/correction", {"cost": 0.55, "reason": "typing error"})


def shown(browser):
    values = browser.run(
        f"JSON.stringify({json.dumps(NUMBERS)}.map((id) => document.getElementById(id).dataset.value))"
    )
    return dict(zip(NUMBERS, map(float, json.loads(values)), strict=True))


def stated(service, study="trial"):
    state = service.get(f"/v1/studies/{study}").json()
    return {name: float(state[name]) for name in NUMBERS}


@pytest.mark.slow
def test_the_page_shows_the_numbers_of_the_api_and_follows_them_without_a_reload(service, page):
    fill(service, 30)
    page.open(f"{service.url}/#trial")
    page.until("document.body.dataset.seq", wanted=lambda seq: seq and int(seq) >= 60)
    assert shown(page) == pytest.approx(stated(service))
    assert page.run("document.querySelectorAll('.charts svg path').length") >= 4
    mark = page.run("window.mark = Math.random()")
    decision = service.ask("trial", [0.4, 0.1]).json()["id"]
    page.until("document.getElementById('decisions').dataset.value", wanted=lambda value: value == "31")
    service.post(f"/v1/decisions/{decision}/outcome", {"reward": 0.1, "cost": 0.1})
    page.until("document.getElementById('outcomes').dataset.value", wanted=lambda value: value == "28")
    assert shown(page) == pytest.approx(stated(service))
    assert page.run("window.mark") == mark
    assert page.console == []
    assert {url.split("/")[2] for url in page.requests if not url.startswith("data:")} == {service.url.split("/")[2]}


@pytest.mark.slow
def test_a_click_opens_the_certificate_in_plain_words(service, page):
    fill(service, 12)
    page.open(f"{service.url}/#trial")
    row = page.until("document.querySelector('#rows tr:last-child')?.dataset.id")
    page.run("document.querySelector('#rows tr:last-child').click()")
    page.until(CERTIFICATE)
    text = page.run("document.getElementById('certificate').textContent")
    assert row in text
    for line in service.get(f"/v1/decisions/{row}").json()["explanation"].split("\n"):
        assert line.strip().removeprefix("- ") in text
    assert "by local: cost 0.1, reward 0.1" in text
    shown_actions = page.run(
        "JSON.stringify([...document.querySelectorAll('#rows tr')].map((row) => row.cells[5].innerText))"
    )
    stored = [each["action"] for each in service.get("/v1/studies/trial/decisions?limit=15").json()["rows"]]
    for words, action in zip(json.loads(shown_actions), stored, strict=True):
        assert action * 0.999 - 1e-12 <= float(words) <= action, "rounded down, as on the certificate"
    assert page.console == []


@pytest.mark.slow
def test_decisions_are_paged(service, page):
    fill(service, 40)
    page.open(f"{service.url}/#trial")
    first = page.until("document.querySelector('#rows tr')?.dataset.id")
    page.run("document.getElementById('older').click()")
    page.until("document.querySelector('#rows tr')?.dataset.id", wanted=lambda name: name != first)
    seen = {first}
    before = None
    names = []
    while True:
        answer = service.get(f"/v1/studies/trial/decisions?limit=15{f'&before={before}' if before else ''}").json()
        names += [each["id"] for each in answer["rows"]]
        before = answer["before"]
        if before is None:
            break
    assert len(names) == len(set(names)) == 40
    assert seen <= set(names)


@pytest.mark.slow
def test_a_stopped_study_says_why_and_what_it_advises(service, store, page):
    Study.create("strict", {**SPEC, "guard": {"stop": {"violations": 1, "of_last": 10}}}, storage=store)
    fill(service, 6, "strict")
    page.open(f"{service.url}/#strict")
    page.until("!document.getElementById('why').hidden")
    words = page.run("document.getElementById('why').innerText")
    assert "This study is stopped, since " in words
    assert "stop rule was met" in words
    assert "0 is advised to everybody, and nothing is guaranteed" in words
    assert "stopped since" in page.run("document.getElementById('state').innerText")
    assert page.run("document.getElementById('evidence-note').innerText").endswith("not why the study stopped")
    page.open(f"{service.url}/")
    page.until("document.querySelectorAll('#cards .card').length", wanted=lambda count: count == 2)
    assert "stopped" in page.run("document.getElementById('cards').innerText")


@pytest.mark.slow
def test_the_page_asks_for_a_key_where_one_is_needed(store, page):
    Study.create("trial", SPEC, storage=store)
    key, _ = create_key(store, "read", reason="test", actor="tester")
    with running(store) as url:
        page.open(f"{url}/#trial")
        page.until("!document.getElementById('sign-in').hidden")
        page.run(f"document.getElementById('key').value = {json.dumps(key)}")
        page.run("document.getElementById('sign-in').requestSubmit()")
        page.until("document.body.dataset.seq")
        assert page.run("document.getElementById('decisions').innerText") == "0"


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_a_phone_and_follows_the_readers_colours(service, page, dark):
    fill(service, 12)
    page.look(390, 844, dark=dark, phone=True)
    page.open(f"{service.url}/#trial")
    page.until("document.body.dataset.seq")
    assert page.run("document.documentElement.scrollWidth") <= 390
    back = page.run("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(18, 22, 27)") is dark


@pytest.mark.slow
def test_the_api_page_works_offline(service, page):
    page.open(f"{service.url}/docs")
    page.until("document.querySelectorAll('details').length", wanted=lambda count: count >= 14)
    assert page.console == []
    assert all(url.startswith((service.url, "data:")) for url in page.requests)


def test_reading_the_page_writes_nothing(service):
    fill(service, 12)
    before = service.get("/v1/studies/trial/events").json()["next_seq"]
    answer = service.get("/v1/studies/trial/series?points=50")
    again = service.get("/v1/studies/trial/series?points=50", If_None_Match=answer.headers["etag"])
    assert (answer.status, again.status) == (200, 304)
    service.get("/v1/studies/trial/decisions")
    service.get("/metrics")
    assert service.get("/v1/studies/trial/events").json()["next_seq"] == before


def live_a_little(study):
    """Delays, expiries, late outcomes, voids, a throttled round, corrections, alarms and resumes."""
    asked, resumed = [], []
    for number in range(60):
        asked.append(study.ask([0.05 * (number % 9), 0.3]).id)
        turn = asked.pop(0) if len(asked) > 3 or number % 3 else None
        if turn is None:
            continue
        if number % 17 == 5:
            study.expire([turn], reason="late", unrelated=number % 2 == 0)
            if number % 2:
                study.tell(turn, reward=0.1, cost=0.1)
        elif number % 13 == 6:
            study.void(turn, reason="off", unrelated=number < 30)
        elif number in (24, 44, 45):
            study.tell(turn, reward=0.1, cost=0.55 if number == 45 else 0.4, applied_action=0.01, throttled=number > 40)
        elif number in (20, 50):
            study.tell(turn, reward=0.0, cost=0.0, applied_action=0.0, unrelated=number == 20)
        elif number in (9, 33):
            study.tell(turn, reward=0.05, cost=0.9 if number == 9 else 0.51, applied_action=0.9)
        else:
            study.tell(turn, reward=0.05, cost=0.51 if number in (7, 8, 10, 11, 30, 31) else 0.1)
        if number % 11 == 2:
            study.correct(turn, cost=0.2, reason="typing error")
        if study.status()["stop_reason"]:
            resumed.append(study.resume("looked at it").seq)
    assert resumed


def test_counts_and_evidence_of_the_page_are_those_of_the_study_whatever_happened(storage):
    with Store(storage) as store, running(store) as url:
        service = Caller(url)
        for learning_order in ("prefix", "arrival"):
            spec = {**SPEC, "learning_order": learning_order, "guard": {"alarm_level": 0.9}, "fallback_action": 0.05}
            live_a_little(Study.create(learning_order, spec, storage=store))
            counted = service.get(f"/v1/studies/{learning_order}/series").json()["counts"]
            state = service.get(f"/v1/studies/{learning_order}").json()
            for name in COUNTED:
                assert counted[name] == state[name], (learning_order, name)
            assert counted["evidence"] == pytest.approx(state["evidence"]), learning_order
            assert state["unwatched"] > 1
            assert state["resumes"] > 0


def live_at_random(study, rng, steps=150):
    """Asks, and anything that can be said about a decision, at random; resumes at once."""
    waiting, said = [], []
    for _ in range(steps):
        if study.status()["stop_reason"] and rng.random() < 0.7:
            study.resume("looked at it")
        if not waiting or rng.random() < 0.4:
            given = {"baseline_cost": rng.choice([0.0, 0.0, 0.1, 0.55])}
            if study.spec.rules.policy.options.get("base") == "proposal":
                given = {"proposal": float(rng.uniform(0.2, 0.9))}
            asked = study.ask(rng.uniform(-0.5, 0.5, 2).tolist(), **given)
            if asked.intensity > 0.0:
                waiting.append(asked)
            continue
        turn, kind = waiting.pop(int(rng.integers(len(waiting)))), rng.random()
        if kind < 0.1:
            study.void(turn.id, reason="off", unrelated=bool(rng.random() < 0.7))
        elif kind < 0.2:
            study.expire([turn.id], reason="late", unrelated=bool(rng.random() < 0.5))
            if rng.random() < 0.3:
                said.append(turn)
        elif kind < 0.25:
            study.tell(turn.id, reward=0.0, cost=0.0, applied_action=0.0, unrelated=bool(rng.random() < 0.7))
        else:
            applied = [None, None, 0.5 * turn.action, min(1.0, 1.5 * turn.action)][int(rng.integers(4))]
            cost = float(rng.choice([0.1, 0.3, 0.52, 0.7]))
            study.tell(turn.id, reward=0.1, cost=cost, applied_action=applied, throttled=bool(rng.random() < 0.1))
            said.append(turn)
        if said and rng.random() < 0.15:
            again = said.pop(int(rng.integers(len(said))))
            with suppress(StudyError):  # an expired round has no outcome to correct
                study.correct(again.id, cost=float(rng.choice([0.1, 0.6])), reason="typing error")
                if rng.random() < 0.3:
                    study.void(again.id, reason="wrong patient", unrelated=bool(rng.random() < 0.5))


CONFORMAL = {"dim": 2, "guarantee": "conformal", "threshold": 0.5, "violation_risk": 0.2, "start_action": 0.3}
SHIELD = {
    **{"dim": 2, "guarantee": "bracket", "threshold": 0.5, "violation_risk": 0.2, "start_action": 0.3},
    "policy": {
        "name": "hp_shield",
        "base": "proposal",
        "growth": {"growth": "relative", "low": 0.7, "high": 1.4, "floor": 0.1},
    },
    "dial": {"high": 1, "levels": [0.2, 0.3, 0.5, 1.0]},
}


@pytest.mark.parametrize("kind", ["prefix", "arrival", "sensor", "joint", "conformal", "shield"])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_on_the_page_are_those_that_the_study_counts_in_random_lives(kind, seed, tmp_path):
    more = {"sensor": {"cost_sensor_noise": 0.02, "threshold_on": "true"}, "joint": {"guarantee": "joint"}}
    learning_order = "arrival" if kind == "arrival" else "prefix"
    own = {"conformal": CONFORMAL, "shield": SHIELD}
    # Costs at random soon refute the norms that the tighter default radius uses; a life needs guarantees to watch.
    spec = own.get(kind, {**SPEC, "radius": "mixture", "learning_order": learning_order, **more.get(kind, {})})
    guard = {"alarm_level": 0.4, "max_unwatched": 1.0}
    if kind == "shield":
        guard["caps"] = [{"when": {"0": {"max": -0.3}}, "limit": 0.1}]  # below the lowest level: gives nothing
    fallback = 0.2 if kind == "shield" else 0.1
    with Store(f"sqlite:///{tmp_path}/trial.db") as store:
        study = Study.create("trial", {**spec, "guard": guard, "fallback_action": fallback}, storage=store)
        live_at_random(study, np.random.default_rng(seed))
        track, state = Track(study), study.status()
        track.refresh()
        assert [int(each.sum()) for each in track.judged] == [state["outcomes"], state["violations"]]
        found = {status: int(track.has_status(code).sum()) for status, code in CODE.items()}
        study.export(tmp_path / "trial.csv")
        with open(tmp_path / "trial.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["status"] for row in rows] == [STATUSES[int(code)] for code in track.column("status")]
        # The study waits for no outcome that somebody vouched to be unrelated.
        awaited = [row["status"] == "expired" and row["unrelated"] != "True" for row in rows]
        assert (found["open"], sum(awaited)) == (state["open"], state["expired"])
        assert int(track.late().sum()) == state["overdue"]
        assert state["unwatched"] > 0


def test_the_risk_on_the_page_is_all_that_the_certificate_sums(storage):
    with Store(storage) as store, running(store) as url:
        learned = {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0, "margin_risk": 0.02}
        for name, margin in (("plain", {}), ("learned", learned)):
            decision = Study.create(name, {**SPEC, **margin}, storage=store).ask([0.1] * SPEC["dim"])
            risk = Caller(url).get(f"/v1/studies/{name}/series").json()["risk"]
            assert f"<= {risk:g} in this round" in decision.certificate["statement"]


def read(page, name):
    return page.run(f"document.getElementById('{name}').innerText")


@pytest.mark.slow
def test_the_page_shows_a_conformal_study_too(service, store, page):
    spec = {"dim": 2, "guarantee": "conformal", "threshold": 0.5, "violation_risk": 0.1, "start_dose": 0.1}
    study = Study.create("conformal", spec, storage=store)
    for number in range(40):
        decision = study.ask([0.02 * number, 0.3])
        cost = 0.6 if number in (5, 30) else 0.1 * decision.intensity * (1 + number % 5)
        study.tell(decision.id, reward=0.1, cost=cost)
    page.open(f"{service.url}/#conformal")
    page.until("document.body.dataset.seq", wanted=lambda seq: seq and int(seq) >= 81)
    assert shown(page) == pytest.approx(stated(service, "conformal"))
    assert read(page, "evidence-title") == "Evidence that rounds have changed"
    assert page.run("document.querySelectorAll('#chart-evidence svg path').length") == 1
    curve = service.get("/v1/studies/conformal/series").json()["curves"]
    bodies = [event["body"] for event in study.events()["events"] if event["kind"] == "decided"]
    assert curve["evidence"] == pytest.approx([body["evidence"] for body in bodies], rel=1e-5)
    low, high = violation_interval([2], 40)
    words = read(page, "evidence-count").replace("\u00a0", " ")
    assert f"2 of 40 outcomes, 5 % (95 %: {100 * low:.2g} % to {100 * high:.2g} %)" in words
    assert "shown and not tested" in words
    assert page.console == []


INSULIN = {
    **{"dim": 2, "guarantee": "bracket", "threshold": 70, "violation_risk": 0.2},
    "policy": {
        **{"name": "hp_shield", "base": "proposal", "direction": "below", "start_scale": 0.25},
        "growth": {"growth": "additive", "low": 4, "high": 60},
    },
    "dial": {"high": 25, "unit": "U"},
    "features": {"names": ["carbs", "glucose"], "units": {"glucose": "mg/dl"}},
}


@pytest.mark.slow
def test_the_page_shows_proposals_the_shield_s_sentence_and_what_set_the_dose(service, store, page):
    study = Study.create("insulin", INSULIN, storage=store)
    for number in range(30):
        rule = 3.0 + number % 7
        decision = study.ask({"carbs": 10 * rule, "glucose": 150}, proposal=rule, key=f"meal-{number}")
        lowest = 50.0 if number == 12 else 150 + 20 * rule - 30 * decision.action
        study.tell(decision.id, reward=0.0, cost=lowest)
    page.open(f"{service.url}/#insulin")
    page.until("document.body.dataset.seq", wanted=lambda seq: seq and int(seq) >= 61)
    assert shown(page) == pytest.approx(stated(service, "insulin"))
    assert read(page, "evidence-title") == "Evidence that rounds have changed"
    assert "below 70 with probability at most 20 %" in read(page, "guarantee").replace("\u00a0", " ")
    assert "below the limit: 3.3 %" in read(page, "violations-note").replace("\u00a0", " ")
    assert "proposed" in read(page, "chart-action")
    assert "expected beforehand" not in read(page, "chart-reward")
    curves = service.get("/v1/studies/insulin/series?points=30").json()["curves"]
    assert curves["proposed"][:3] == [3.0, 4.0, 5.0]
    assert min(cost for cost in curves["cost_max"]) == 50.0
    page.run("document.querySelector('#rows tr').click()")
    page.until(CERTIFICATE)
    text = page.run("document.getElementById('certificate').innerText").replace("\u00a0", " ")
    said = (
        "proposed\n4 U",
        "4 U was proposed: lowered to",
        "Why this setting\n\nAt a higher setting, too many of the past",
        "In this round the cost is below 70 with probability at most 20 %: ",
        "would have fallen below 70 at",
        "times the proposed setting",
    )
    for words in said:
        assert words in text
    assert page.console == []


@pytest.mark.slow
def test_the_page_shows_which_of_several_costs_is_near_its_limit(service, store, page):
    costs = {
        "trough": {"threshold": 20, "unit": "mg/l", "growth": {"growth": "relative", "low": 1, "high": 1, "floor": 1}},
        "glucose": {"threshold": 70, "direction": "below", "growth": INSULIN["policy"]["growth"]},
    }
    policy = {"name": "hp_shield", "base": "proposal", "start_scale": 0.25}
    spec = {name: value for name, value in INSULIN.items() if name != "threshold"} | {"costs": costs, "policy": policy}
    study = Study.create("two", spec, storage=store)
    told = [{"trough": 10, "glucose": 140}, {"trough": 25, "glucose": None}, {"trough": 10, "glucose": 35}]
    for cost in [*told, {"trough": 10, "glucose": None}]:
        study.tell(study.ask({"carbs": 60, "glucose": 150}, proposal=6).id, reward=0.0, cost=cost)
    page.open(f"{service.url}/#two")
    page.until("document.body.dataset.seq", wanted=lambda seq: seq and int(seq) >= 9)
    assert shown(page) == pytest.approx(stated(service, "two"))
    told = service.get("/v1/studies/two/series?points=10").json()
    assert told["counts"]["unwatched"] == study.status()["unwatched"] == 1
    assert told["curves"]["costs"] == {"trough": [0.5, 1.25, 0.5, 0.5], "glucose": [0.0, None, 1.5, None]}
    words = read(page, "guarantee").replace("\u00a0", " ")
    assert "the glucose is below 70 or the trough is above 20 mg/l with probability at most 20 %" in words
    assert "beyond a limit: 50 %" in read(page, "violations-note").replace("\u00a0", " ")
    legend = "[...document.querySelectorAll('#chart-cost .legend span')].map((each) => each.textContent)"
    assert page.run(legend) == ["glucose", "trough"]
    assert "glucose 35, trough 10" in read(page, "rows")
    page.run("document.querySelectorAll('#rows tr')[1].click()")
    page.until(CERTIFICATE)
    said = page.run("document.getElementById('certificate').innerText")
    assert "glucose 35, trough 10\u00a0mg/l." in said
    assert "reward" not in said, "nobody reported one, and the policy does not choose by it"
    both = {name: value for name, value in SPEC.items() if name not in ("threshold", "cost_noise")}
    both |= {"costs": {name: {"threshold": 0.5, "noise": 0.2} for name in ("heat", "load")}}
    study = Study.create("both", both, storage=store)
    for heat in (0.2, 0.6):
        study.tell(study.ask([0.5, 0.1]).id, reward=0.0, cost={"heat": heat, "load": 0.1})
    page.open(f"{service.url}/#both")
    page.until("document.body.dataset.seq", wanted=lambda seq: seq and int(seq) == 5)
    assert shown(page) == pytest.approx(stated(service, "both"))
    assert "the heat is above 0.5 or the load is above 0.5 with probability at most" in read(page, "guarantee")
    page.run("document.querySelectorAll('#rows tr')[0].click()")
    page.until(CERTIFICATE)
    text = page.run("document.getElementById('certificate').innerText")
    said = (
        "In this round the heat is above 0.5 or the load is above 0.5 with probability at most 10 %, if what is listed"
    )
    assert said in text.replace("\u00a0", " ")
    assert page.console == []


@pytest.mark.slow
def test_a_study_that_stays_at_its_start_dose_is_flagged(service, store, page):
    spec = {"dim": 2, "guarantee": "conformal", "threshold": 0.5, "violation_risk": 0.2, "start_action": 0.1}
    study = Study.create("start", spec, storage=store)
    for number in range(30):
        study.ask([0.02 * number, 0.3])
    page.open(f"{service.url}/#start")
    page.until("document.body.dataset.seq", wanted=lambda seq: seq and int(seq) >= 31)
    assert "At the start setting for the last 30 decisions: this is unusually long." in read(page, "notes")
    assert page.run("document.querySelector('#notes li').className") == "warn"


WARD = {
    **SPEC,
    "context_bound": 2.0,
    "dial": {"high": 20, "unit": "mg"},
    "features": {
        "names": ["age", "weight"],
        "center": [50, 70],
        "scale": [30, 40],
        "ranges": {"age": [0, 90]},
        "units": {"age": "years"},
    },
}
TRADE = ("τ", "intensity", "radius", "reward index", "exchangeab", "norm", "sub-Gaussian", "conformal", "-0.3")


@pytest.mark.slow
def test_the_page_speaks_of_visits_and_raw_values_in_words_a_ward_knows(service, store, page):
    study = Study.create("ward", WARD, storage=store)
    for number in range(20):
        meta = {"patient": f"P-{number % 4:02d}", "ward": "3b"}
        decision = study.ask({"age": 40 + number, "weight": 90}, key=f"visit-{number}", meta=meta)
        if number:
            study.tell(decision.id, reward=0.1, cost=0.1)
    far = study.ask({"age": 95, "weight": 90}, key="visit-20", allow_extrapolation=True)
    study.void(far.id, reason="never came", unrelated=True)
    page.open(f"{service.url}/#ward")
    page.until("document.querySelectorAll('#rows tr').length", wanted=lambda rows: rows == 15)
    text = page.run("document.querySelector('main').innerText")
    page.run("location.hash = 'ward:health'")
    text += page.until("document.getElementById('health').innerText")
    assert [word for word in TRADE if word in text] == []
    for words in ("visit-19", "patient P-03, ward 3b", "limit 0.5", "share of outcomes above the limit"):
        assert words.lower() in text.lower()
    assert "outcomes open, the oldest for" in read(page, "open-note")
    assert "1 round ended without an outcome that shows whether the guarantee was kept" in read(page, "notes")
    assert "Learning waits for the outcome of decision 2; 20 later rounds are not learned from" in read(page, "notes")
    axes = "[...document.querySelectorAll('.charts svg')].map((each) => each.querySelector('.axis-name').textContent)"
    assert set(page.run(axes)) == {"decision number"}
    page.run("location.hash = 'ward'")
    page.until("!document.getElementById('decisions-card').hidden && document.querySelectorAll('#rows tr').length")
    page.run("document.querySelectorAll('#rows tr')[1].click()")
    page.until(CERTIFICATE)
    text = page.run("document.getElementById('certificate').innerText")
    for words in ("Visit: visit-19", "P-03", "3b", "59 years", "90", "Why this setting", "What is guaranteed"):
        assert words in text
    assert [word for word in TRADE if word in text] == []
    page.run("history.back()")
    page.until("document.querySelectorAll('#rows tr').length && !document.getElementById('decisions-card').hidden")
    page.run("document.querySelector('#rows tr').click()")
    page.until("document.getElementById('certificate').innerText.includes('visit-20')")
    text = page.run("document.getElementById('certificate').innerText")
    assert "age lies outside the range stated for it; the caller allowed that" in text
    assert "taken out: never came (said to have nothing to do with the outcome)" in text
    assert page.console == []


@pytest.mark.slow
def test_a_visit_is_found_by_its_key_its_metadata_or_its_number(service, store, page):
    study = Study.create("ward", WARD, storage=store)
    for number in range(40):
        study.ask([50, 70], key=f"visit-{number}", meta={"patient": f"P-{number % 20:02d}"})
    study.ask([50, 70])
    found = {
        "visit-17": ["visit-17"],
        "p-07": ["visit-27", "visit-7"],
        "patient P-19": ["visit-39", "visit-19"],
        "visit-0": ["visit-0"],
        "42": [None],
        "nobody": [],
    }
    for words, keys in found.items():
        quoted = words.replace(" ", "%20")
        rows = service.get(f"/v1/studies/ward/decisions?search={quoted}").json()
        assert ([row["key"] for row in rows["rows"]], rows["before"]) == (keys, None), words
    first = service.get("/v1/studies/ward/decisions?search=visit&limit=25").json()
    rest = service.get(f"/v1/studies/ward/decisions?search=visit&limit=25&before={first['before']}").json()
    assert [len(first["rows"]), len(rest["rows"])] == [25, 15]
    page.open(f"{service.url}/#ward")
    page.until("document.querySelectorAll('#rows tr').length", wanted=lambda rows: rows == 15)
    page.run(
        "document.getElementById('search').value = 'P-07';"
        "document.getElementById('search').dispatchEvent(new Event('input'))"
    )
    page.until("document.querySelectorAll('#rows tr').length", wanted=lambda rows: rows == 2)
    assert "visit-27" in read(page, "rows")


@pytest.mark.slow
def test_an_alarm_that_was_taken_back_stays_on_the_page(service, store, page):
    study = Study.create("strict", {**SPEC, "guard": {"stop": {"violations": 1, "of_last": 10}}}, storage=store)
    study.tell(study.ask([0.3, 0.3]).id, reward=0.1, cost=0.51)
    study.resume("the pump was replaced")
    decision = study.ask([0.3, 0.3])
    page.open(f"{service.url}/#strict")
    page.until("document.body.dataset.seq", wanted=lambda seq: seq and int(seq) >= 6)
    assert page.run("document.getElementById('why').hidden")
    assert "Resumed by a person once" in read(page, "notes")
    assert "The study's stop rule was met." in read(page, "notes")
    page.run(f"openCertificate('{decision.id}')")
    page.until(CERTIFICATE)
    assert "The study was resumed by a person on" in read(page, "certificate")


@pytest.mark.slow
def test_a_study_stopped_by_its_alarm_shows_the_evidence_that_stopped_it(service, store, page):
    study = Study.create("alarmed", {**SPEC, "violation_risk": 0.01, "cost_noise": 0.6}, storage=store)
    while not study.status()["stop_reason"]:
        study.tell(study.ask([0.6, 0.6]).id, reward=0.1, cost=0.51)
    assert study.status()["stop_reason"] == "alarm"
    page.open(f"{service.url}/#alarmed")
    page.until("!document.getElementById('why').hidden")
    assert "Costs were above the limit more often than guaranteed." in read(page, "why")
    note = read(page, "evidence-note")
    assert "when the study stopped" in note
    assert "stops the study" not in note


@pytest.mark.slow
def test_a_demo_shows_its_page_within_ten_seconds_and_says_where_its_file_is(tmp_path):
    from safedial.service.demo import run_demo

    said, started = [], time.monotonic()

    def say(words):
        said.append((time.monotonic() - started, words))

    run_demo(say, folder=tmp_path / "demo", seconds=4, pace=50)
    first, last = said
    assert first[0] < 10
    assert "The operator page: http://127.0.0.1:" in first[1]
    assert str(tmp_path / "demo" / "demo.db") in last[1]
    with Store(f"sqlite:///{tmp_path}/demo/demo.db", create=False) as store:
        study = Study.open("infusion", storage=store)
        assert study.status()["outcomes"] > 50
        assert study.verify().ok


def test_a_client_can_be_shared_by_threads(service):
    from concurrent.futures import ThreadPoolExecutor

    client = Client(service.url)

    def ask(number):
        seq = client.ask("trial", [0.01 * number, 0.1]).seq
        client.close()
        return seq

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(ask, range(12))) == list(range(2, 14))
