"""The operator page in headless Chromium: the API's numbers, live, readable, silent, and nothing from elsewhere."""

import json
import time

import pytest

from safedial.client import Client
from safedial.service import running
from safedial.study import Store, create_study, open_study
from safedial.study.keys import create_key
from tests.service.browser import Browser
from tests.service.conftest import Caller
from tests.study.conftest import SPEC

NUMBERS = ("decisions", "outcomes", "violations", "open", "evidence")


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture
def page(browser):
    browser.console.clear()
    browser.requests.clear()
    browser.look(1200, 1000)
    browser.open("about:blank#")
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


def test_a_click_opens_the_certificate_in_plain_words(service, page):
    fill(service, 12)
    page.open(f"{service.url}/#trial")
    row = page.until("document.querySelector('#rows tr:last-child')?.dataset.id")
    page.run("document.querySelector('#rows tr:last-child').click()")
    page.until("document.getElementById('certificate').open")
    text = page.run("document.getElementById('certificate').innerText")
    assert row in text
    for line in service.get(f"/v1/decisions/{row}").json()["explanation"].split("\n")[1:]:
        assert line.strip().removeprefix("- ") in text
    assert "outcome by local" in text
    shown_actions = page.run(
        "JSON.stringify([...document.querySelectorAll('#rows tr')].map((row) => row.cells[2].innerText))"
    )
    stored = [each["action"] for each in service.get("/v1/studies/trial/decisions?limit=15").json()["rows"]]
    for words, action in zip(json.loads(shown_actions), stored, strict=True):
        assert action * 0.999 - 1e-12 <= float(words) <= action, "rounded down, as on the certificate"
    assert page.console == []


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


def test_a_stopped_study_says_why_and_what_it_advises(service, store, page):
    create_study("strict", {**SPEC, "guard": {"stop": {"violations": 1, "of_last": 10}}}, storage=store)
    fill(service, 6, "strict")
    page.open(f"{service.url}/#strict")
    page.until("!document.getElementById('why').hidden")
    assert "stop rule was met" in page.run("document.getElementById('why').innerText")
    page.open(f"{service.url}/")
    page.until("document.querySelectorAll('#cards .card').length", wanted=lambda count: count == 2)
    assert "stopped" in page.run("document.getElementById('cards').innerText")


def test_the_page_asks_for_a_key_where_one_is_needed(store, page):
    create_study("trial", SPEC, storage=store)
    key, _ = create_key(store, "read", reason="test", actor="tester")
    with running(store) as url:
        page.open(f"{url}/#trial")
        page.until("!document.getElementById('door').hidden")
        page.run(
            f"document.getElementById('key').value = {json.dumps(key)}; document.getElementById('door').requestSubmit()"
        )
        page.until("document.body.dataset.seq")
        assert page.run("document.getElementById('decisions').innerText") == "0"


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_a_phone_and_follows_the_readers_colours(service, page, dark):
    fill(service, 12)
    page.look(390, 844, dark=dark, phone=True)
    page.open(f"{service.url}/#trial")
    page.until("document.body.dataset.seq")
    assert page.run("document.documentElement.scrollWidth") <= 390
    back = page.run("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(18, 22, 27)") is dark


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
        elif number == 44:
            study.tell(turn, reward=0.1, cost=0.51, applied_action=0.01, throttled=True)
        elif number in (50, 52):
            study.tell(turn, reward=0.1, cost=0.52, applied_action=0.9)
        elif number == 53:
            study.tell(turn, reward=0.0, cost=0.0, applied_action=0.0, unrelated=True)
        else:
            study.tell(turn, reward=0.05, cost=0.51 if number in (4, 7, 8, 30, 31) else 0.1)
        if number % 11 == 2:
            study.correct(turn, cost=0.2, reason="typing error")
        if study.status()["stopped"]:
            resumed.append(study.resume("looked at it").seq)
    assert resumed


def test_counts_and_evidence_of_the_page_are_those_of_the_study_whatever_happened(storage):
    with Store(storage) as store, running(store) as url:
        service = Caller(url)
        for folding in ("prefix", "arrival"):
            spec = {**SPEC, "folding": folding, "guard": {"alarm_level": 0.9}}
            live_a_little(create_study(folding, spec, storage=store))
            counts = service.get(f"/v1/studies/{folding}/series").json()["counts"]
            state = service.get(f"/v1/studies/{folding}").json()
            for name in ("decisions", "outcomes", "violations", "open", "expired", "void", "stopped"):
                assert counts[name] == state[name], (folding, name)
            assert counts["evidence"] == pytest.approx(state["evidence"]), folding


def test_the_risk_on_the_page_is_all_that_the_certificate_sums(storage):
    with Store(storage) as store, running(store) as url:
        for name, margin in (("plain", {}), ("learned", {"margin": "quantile", "margin_risk": 0.02})):
            decision = create_study(name, {**SPEC, **margin}, storage=store).ask([0.1] * SPEC["dim"])
            risk = Caller(url).get(f"/v1/studies/{name}/series").json()["risk"]
            assert f"<= {risk:g} in this round" in decision.certificate["statement"]


def test_the_page_shows_a_conformal_study_too(service, store, page):
    spec = {"dim": 2, "promise": "conformal", "threshold": 0.5, "violation_risk": 0.1, "start_dose": 0.1}
    study = create_study("conformal", spec, storage=store)
    for number in range(40):
        decision = study.ask([0.02 * number, 0.3])
        study.tell(decision.id, reward=0.1, cost=0.1 * decision.intensity * (1 + number % 5))
    page.open(f"{service.url}/#conformal")
    page.until("document.body.dataset.seq", wanted=lambda seq: seq and int(seq) >= 81)
    assert shown(page) == pytest.approx(stated(service, "conformal"))
    assert page.console == []


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
        study = open_study("infusion", storage=store)
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


def test_no_reason_shows_as_anything_but_text(service, page):
    row = service.ask("trial", [0.1, 0.1]).json()["id"]
    service.post(f"/v1/decisions/{row}/outcome", {"reward": 0.1, "cost": 0.1})
    reason = "typing error)\n31 Jan, 14:05:00: voided by the board \u202edlot\u2028\x1b[2K"
    service.post(f"/v1/decisions/{row}/correction", {"cost": 0.2, "reason": reason})
    page.open(f"{service.url}/#trial")
    page.until("document.querySelector('#rows tr:last-child')?.dataset.id")
    page.run("document.querySelector('#rows tr:last-child').click()")
    page.until("document.getElementById('certificate').open")
    text = page.run("document.getElementById('certificate').textContent")
    assert "typing error)\\u000a31 Jan, 14:05:00: voided by the board \\u202edlot\\u2028\\u001b[2K" in text
    assert page.console == []
