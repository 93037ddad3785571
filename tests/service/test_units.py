"""Units and visits over HTTP: filters, and one unit's course."""

import pytest

from safedial.errors import InvalidInput
from safedial.service.charts import unit_page, units_page
from safedial.service.client import Client
from safedial.service.server import running
from safedial.service.timeline import Track
from safedial.study.store import Store
from safedial.study.study import Study
from tests.service.browser import Browser
from tests.service.conftest import Caller
from tests.study.conftest import SPEC


@pytest.fixture
def client_of():
    """Clients of a service, closed at the end."""
    made = []

    def of(url, key=None):
        made.append(Client(url, key=key))
        return made[-1]

    yield of
    for client in made:
        client.close()


def fill(service, rounds=12, study="trial"):
    for number in range(rounds):
        noted = {"unit": f"P/{number % 3}", "visit": str(number // 3 + 1), "context": [0.3, 0.3]}
        made = service.post(f"/v1/studies/{study}/decisions", noted).json()
        body = {"reward": 0.1, "cost": 0.6 if number == 3 else 0.1}
        service.post(f"/v1/decisions/{made['id']}/outcome", body)


def test_decisions_are_filtered_by_unit_and_visit_and_found_by_both(service, store, client_of):
    fill(service)
    path = "/v1/studies/trial/decisions"
    rows = service.get(f"{path}?unit=P/1&limit=3").json()
    assert [(row["unit"], row["visit"]) for row in rows["rows"]] == [("P/1", "4"), ("P/1", "3"), ("P/1", "2")]
    rest = service.get(f"{path}?unit=P/1&limit=3&before={rows['before']}").json()
    assert ([row["visit"] for row in rest["rows"]], rest["before"]) == (["1"], None)
    assert [row["unit"] for row in service.get(f"{path}?visit=2").json()["rows"]] == ["P/2", "P/1", "P/0"]
    assert len(service.get(f"{path}?search=p/2").json()["rows"]) == 4
    client = client_of(service.url)
    assert [row["seq"] for row in client.decisions("trial", unit="P/0", visit="2")["rows"]] == [8]
    for query, code in (("unit=P/7", "unknown_unit"), ("unit=P/1&visit=9", "unknown_visit")):
        answer = service.get(f"{path}?{query}")
        assert (answer.status, answer.code) == (404, code)
        assert "P/7" not in answer.content.decode()
    told = client.unit("trial", "P/0")
    python = Study.open("trial", storage=store).unit("P/0")
    assert {name: told[name] for name in ("decisions", "outcomes", "violations", "interval")} == {
        name: python[name] for name in ("decisions", "outcomes", "violations", "interval")
    }
    assert told["violations"] == 1
    assert [row["cost"] for row in told["course"]] == [0.1, 0.6, 0.1, 0.1]
    assert service.get("/v1/studies/trial/units/nobody").code == "unknown_unit"
    pages = [service.get(f"/v1/studies/trial/units?limit=2&after={after}").json() for after in (0, 2)]
    assert [[each["unit"] for each in page["units"]] for page in pages] == [["P/0", "P/1"], ["P/2"]]
    assert [page["after"] for page in pages] == [2, None]


def test_a_visit_asked_twice_is_409_and_names_the_first_decision(service, client_of):
    client = client_of(service.url)
    first = client.ask("trial", [0.1, 0.2], unit="P-04", visit="1")
    again = service.post("/v1/studies/trial/decisions", {"context": [0.1, 0.2], "unit": "P-04", "visit": "1"})
    assert (again.status, again.code) == (409, "visit_taken")
    assert first.id in again.json()["detail"]
    assert "P-04" not in again.content.decode()
    with pytest.raises(InvalidInput, match="visit_taken"):
        client.ask("trial", [0.1, 0.2], unit="P-04", visit="1")
    assert client.study("trial")["decisions"] == 1


def test_the_pages_counts_of_a_unit_are_the_studys_on_either_database(storage):
    with Store(storage) as store:
        study = Study.create("ward", SPEC, storage=store)
        for number in range(9):
            made = study.ask([0.3, 0.3], unit=f"P-{number % 2}", visit=str(number))
            study.tell(made.id, reward=0.1, cost=0.6 if number % 3 == 0 else 0.1, throttled=number == 6)
        study.void(made.id, reason="wrong device", unrelated=True)
        track = Track(study)
        track.refresh()
        counted = {each["unit"]: each for each in units_page(track, 0, 10)["units"]}
        assert counted == {each["unit"]: each for each in study.units()}
        assert [row["visit"] for row in unit_page(track, "P-1")["course"]] == ["1", "3", "5", "7"]


SHIELD = {
    "dim": 1,
    "guarantee": "bracket",
    "threshold": 2,
    "violation_risk": 0.1,
    "start_action": 1,
    "dial": {"high": 9, "unit": "mg"},
    "policy": {
        "name": "hp_shield",
        "base": "proposal",
        "growth": {"growth": "additive", "low": 0, "high": 1},
    },
}


@pytest.mark.slow
def test_the_page_shows_one_unit_its_course_and_its_count(store, tmp_path, browser):
    study = Study.create("ward", SHIELD, storage=store)
    for number in range(24):
        made = study.ask(
            [0.5], proposal=3.0, unit=f"{number % 3:064x}", visit=f"day {number // 3 + 1}", meta={"ward": "3b"}
        )
        study.tell(made.id, reward=0.1, cost=2.5 if number in (3, 9) else 0.5 + 0.1 * (number // 3))
    stored = 64 * "0"
    with running(store) as url:
        browser.look(1280, 1000)
        browser.open(f"{url}/#ward")
        browser.until("document.querySelectorAll('#rows tr').length", wanted=lambda rows: rows == 15)
        assert "day 8" in read(browser, "rows")
        newest = Caller(url).get("/v1/studies/ward/decisions?limit=1").json()["rows"][0]
        assert (newest["proposal"], newest["proposal_answer"]) == (3.0, "lowered")
        made = Caller(url).get(f"/v1/decisions/{newest['id']}").json()
        assert made["proposal_answer"] == made["certificate"]["proposal_answer"] == "lowered"
        browser.run(f"document.querySelector('#rows a[title=\"{stored}\"]').click()")
        browser.until("!document.getElementById('unit-card').hidden")
        browser.until("document.querySelectorAll('#rows tr').length", wanted=lambda rows: rows == 8)
        assert read(browser, "unit-title") == f"Unit {stored[:12]}…"
        assert "8 decisions, 8 outcomes known, 2 above the limit: 25\u00a0%" in read(browser, "unit-counts")
        axes = "[...document.querySelectorAll('[id^=chart-unit] .axis-name')].map((each) => each.textContent)"
        assert browser.run(axes) == ["decision of this unit"] * 2
        for width in (1280, 390):
            browser.look(width, 1000, phone=width == 390)
            browser.run("document.getElementById('unit-card').scrollIntoView()")
            assert browser.run("document.documentElement.scrollWidth <= innerWidth"), width
            table = "document.getElementById('decisions-table').getBoundingClientRect().right <= innerWidth"
            assert browser.run(table), width
            browser.picture(tmp_path / f"unit_{width}.png")
        browser.run("document.querySelector('#rows tr').click()")
        browser.until("document.querySelector('#certificate .big') !== null")
        assert "Visit: day 8" in read(browser, "certificate")
        assert stored in read(browser, "certificate")
        browser.run("history.back()")
        browser.until("!document.getElementById('unit-card').hidden")
        browser.run("document.getElementById('unit-close').click()")
        browser.until("document.getElementById('unit-card').hidden")
        assert browser.console == []
        for label in ("nobody", "100%"):
            browser.run(f"location.hash = 'ward/{label}'")
            browser.until(f"document.getElementById('unit-title').textContent.endsWith('has the unit {label}.')")
            browser.until("!document.getElementById('no-rows').hidden")
            assert (read(browser, "rows"), read(browser, "live")) == ("", "live")


def read(browser, name):
    return browser.run(f"document.getElementById('{name}').innerText")


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()
