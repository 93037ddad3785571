"""The page for a ward: its own names and units, accessible (axe-core), used by keyboard alone, printed on one page."""

import base64
import hashlib
import json
import re
import time
from pathlib import Path

import pytest

from safedial.service.server import running
from safedial.service.timeline import FRESH_SECONDS
from safedial.study.keys import create_key
from safedial.study.store import Store
from safedial.study.study import Study
from tests.service.browser import Browser
from tests.service.conftest import Caller
from tests.study.conftest import SPEC

pytestmark = pytest.mark.slow

AXE = Path(__file__).parent / "axe.min.js"
AXE_SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
"""axe-core 4.14.0 by Deque Systems under the Mozilla Public License 2.0, as in its npm package."""

HOUR = 1 / 3600
VANCOMYCIN = {
    **{"guarantee": "bracket", "threshold": 20, "violation_risk": 0.2, "fallback_action": 500},
    "policy": {
        **{"name": "hp_shield", "base": "protocol", "chooser": "request", "start_scale": 0.5},
        "growth": {"growth": "relative", "low": 0.7, "high": 1.4, "floor": 1},
    },
    "dial": {"high": 4000, "unit": "mg/day"},
    "features": {"names": ["protocol", "weight"], "units": {"protocol": "mg/day", "weight": "kg"}},
    "labels": {"cost": "trough", "cost_unit": "mg/l", "reward": "attainment", "reward_unit": "%", "unit": "patient"},
    "guard": {"due_after": 0.2 * HOUR, "stop": {"violations": 3, "of_last": 50}},
}
VIEWS = ("", "vancomycin", "vancomycin:units", "vancomycin/P-1", "vancomycin:health", "vancomycin:trail")


@pytest.fixture(scope="module")
def browser():
    opened = Browser()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    """(service, study): proposals granted and lowered, a void, a correction, a resume, an overdue outcome, a stop."""
    with Store(f"sqlite:///{tmp_path_factory.mktemp('ward')}/trial.db") as store:
        study = Study.create("vancomycin", VANCOMYCIN, storage=store, actor="dr.weber")
        for number in range(24):
            made = study.ask(
                {"protocol": 1500, "weight": 80 + number},
                **{"proposal": 700 + 40 * number, "unit": f"P-{number % 4}", "visit": f"day {number // 4 + 1}"},
                actor="ward 3",
            )
            if number == 5:
                study.void(made.id, reason="sample lost", unrelated=True, actor="lab")
            elif number != 20:
                high = number in (9, 10, 11, 21, 22, 23)
                study.tell(made.id, reward=70, cost=22 if high else 8 + number % 3, actor="lab")
            if number == 7:
                study.correct(made.id, cost=9.5, reason="wrong line", actor="lab")
            if number == 11:
                study.resume("assay recalibrated", actor="dr.weber")
        time.sleep(0.25)
        with running(store) as url:
            yield Caller(url), study


def shown(browser, url, place, **look):
    browser.look(1280, 900, **look)
    browser.open("about:blank#")
    browser.console.clear()
    browser.open(f"{url}/#{place}")
    browser.until("document.getElementById('live').className", wanted=lambda name: name.endswith("on"))


def text(browser, name):
    return browser.run(f"document.getElementById('{name}').innerText").replace("\u00a0", " ")


def complaints(browser, rules=None):
    """What axe-core finds serious or critical on the page as it is."""
    options = {"resultTypes": ["violations"]} | ({"runOnly": {"type": "rule", "values": rules}} if rules else {})
    found = json.loads(
        browser.run(f"axe.run(document, {json.dumps(options)}).then((told) => JSON.stringify(told.violations))")
    )
    bad = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"][:120] for node in each["nodes"][:5]]) for each in bad]


def test_axe_finds_nothing_serious_on_any_view_in_light_and_dark(browser, ward):
    source = AXE.read_bytes()
    assert hashlib.sha256(source).hexdigest() == AXE_SHA256
    service, study = ward
    shown(browser, service.url, "")
    browser.run(source.decode())
    for place in (*VIEWS, study.trail()[-2]["decision_id"]):
        browser.look(1280, 900)
        if place:
            browser.run(f"location.hash = {json.dumps(place)}")
            browser.until("arrived && document.activeElement.tagName", wanted=lambda name: name == "H2")
        assert complaints(browser) == [], place
        browser.look(1280, 900, dark=True)
        assert complaints(browser, ["color-contrast"]) == [], f"{place}, dark"
        browser.look(390, 844, phone=True)
        assert browser.run("document.documentElement.scrollWidth") <= 390, place
    browser.look(1280, 900)
    browser.run("show('sign-in')")
    assert complaints(browser) == [], "the form for a key"
    assert browser.console == []
    browser.run("show('study'); document.querySelector('#print').textContent = ''")
    assert [each for each, _ in complaints(browser)] == ["button-name"], "axe sees what is wrong"
    browser.open(f"{service.url}/docs")
    browser.until("document.querySelectorAll('details').length", wanted=lambda count: count >= 14)
    browser.run(source.decode())
    assert complaints(browser) == [], "the API page"


def test_names_and_units_of_the_study_stand_on_every_axis_and_in_every_sentence(browser, ward):
    service, study = ward
    shown(browser, service.url, "vancomycin:health")
    browser.until("document.querySelectorAll('#health svg').length", wanted=lambda count: count == 5)
    values = browser.run("[...document.querySelectorAll('#health svg .value-name')].map((each) => each.textContent)")
    assert values == [
        "setting (mg/day)",
        "trough (mg/l)",
        "share",
        "evidence, 1 at the start",
        "attainment, summed (%)",
    ]
    labels = browser.run("[...document.querySelectorAll('#health svg')].map((each) => each.getAttribute('aria-label'))")
    assert labels[1].startswith("Measured trough: trough (mg/l) by decision number. Latest: mean ")
    said = text(browser, "main")
    assert "the trough is above 20 mg/l with probability at most 20 %" in said
    assert not re.search(r"\bcosts?\b|\breward\b|\bunits?\b|[α-ωΣ]", said), said
    shown(browser, service.url, "vancomycin/P-1")
    assert text(browser, "unit-title") == "Patient P-1"
    assert "6 decisions, 5 outcomes known, 2 above the limit: 40 % (95 %: " in text(browser, "unit-counts")
    assert "22 mg/l" in text(browser, "rows")
    guaranteed = [row["decision_id"] for row in study.rows() if row["guarantee"] == "bracket"]
    shown(browser, service.url, guaranteed[-1])
    browser.until("document.getElementById('rests') !== null")
    browser.run("document.getElementById('rests').open = true")
    said = text(browser, "certificate")
    assert "In this round the trough is above 20 mg/l with probability at most 20 %: of the latest " in said
    assert not re.search(r"\bcosts?\b|\breward\b|[α-ωΣ]", said), said


def test_now_says_the_advice_why_and_what_to_do_next_and_announces_new_advice(browser, store):
    study = Study.create("vancomycin", {**VANCOMYCIN, "guard": {"due_after": 24}}, storage=store)
    with running(store) as url:
        shown(browser, url, "vancomycin")
        assert "Ask for the first decision." in text(browser, "now")
        study.ask({"protocol": 1500, "weight": 80}, proposal=1400, unit="P-4", visit="day 1")
        browser.run("tick()")
        browser.until("document.getElementById('now-advice').innerText", wanted=lambda words: words)
        said = text(browser, "now")
        for words in ("For patient P-4, day 1", "750 mg/day", "1400 mg/day was proposed: lowered to 750 mg/day."):
            assert words in said
        assert "so the start setting is given." in said
        assert "Apply 750 mg/day. Then report the trough by " in said
        made = study.ask({"protocol": 1600, "weight": 80}, proposal=600, unit="P-5", visit="day 1")
        browser.run("tick()")
        heard = browser.until("document.getElementById('news').textContent", wanted=lambda words: words)
        assert heard.replace("\u00a0", " ") == "New advice for patient P-5, day 1: 600 mg/day."
        study.tell(made.id, reward=60, cost=25)
        browser.run("tick()")
        browser.until("document.getElementById('now-next').innerText", wanted=lambda words: "Nothing" in words)
        assert "the outcome is reported; it was above the limit" in text(browser, "now")


KEYS = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}


def press(browser, key):
    extra = {"text": "\r"} if key == "Enter" else {}
    for kind in ("keyDown", "keyUp"):
        more = extra if kind == "keyDown" else {}
        browser.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **more)


def tab_to(browser, wanted):
    """Tab until the focus is where an expression of `here` holds, and visible."""
    for _ in range(120):
        press(browser, "Tab")
        if browser.run(f"(() => {{ const here = document.activeElement; return Boolean({wanted}); }})()"):
            style = browser.run("getComputedStyle(document.activeElement).outlineStyle")
            assert style == "solid", f"the focus on {wanted} is not visible"
            return
    raise AssertionError(f"the keyboard does not reach {wanted}")


def type_in(browser, words):
    browser.send("Input.insertText", text=words)


def test_five_tasks_by_keyboard_alone(browser, ward):
    service, study = ward
    shown(browser, service.url, "vancomycin")
    browser.run("window.printed = 0; window.print = () => { window.printed += 1; }; undefined")
    tab_to(browser, "here.className === 'skip'")
    press(browser, "Enter")
    assert browser.run("document.activeElement.id") == "main"

    # A patient's last certificate: search, then the first row's link.
    tab_to(browser, "here.id === 'search'")
    type_in(browser, "P-2")
    browser.until("document.querySelectorAll('#rows tr').length", wanted=lambda rows: rows == 6)
    tab_to(browser, "here.closest('#rows')")
    press(browser, "Enter")
    browser.until("document.activeElement.id", wanted=lambda name: name == "certificate-title")
    browser.until("document.querySelector('#certificate .big')?.innerText")
    assert text(browser, "certificate-title") == "Visit: day 6"

    # Print it.
    tab_to(browser, "here.id === 'views' || here.closest('#views')")
    tab_to(browser, "here.id === 'print'")
    press(browser, "Enter")
    assert browser.run("window.printed") == 1

    # Why a proposal was lowered.
    said = text(browser, "certificate")
    assert re.search(r"\d+ mg/day was proposed: lowered to \d[\d.]* mg/day\.\s+Why this setting\s+\S", said)

    # What is overdue, and since when.
    browser.run("document.querySelector('.skip').focus()")
    tab_to(browser, "here.dataset.view === 'health'")
    press(browser, "Enter")
    browser.until("document.activeElement.id", wanted=lambda name: name == "health-title")
    assert "1 outcome overdue, the first since " in text(browser, "notes")
    assert "P-0" in browser.until("document.getElementById('overdue-rows').innerText")

    # Resume, with a reason: an empty one is not sent.
    assert study.status()["stop_reason"] == "stop_rule"
    browser.run("document.querySelector('.skip').focus()")
    tab_to(browser, "here.id === 'resume-reason'")
    type_in(browser, "levels checked by hand")
    tab_to(browser, "here.tagName === 'BUTTON'")
    press(browser, "Enter")
    browser.until("document.getElementById('why').hidden")
    assert browser.run("document.activeElement.id") == "health-title"
    assert text(browser, "news") == "The study is resumed."
    last = study.trail()[0]
    assert (last["kind"], last["reason"], last["body"]["rule"]) == ("resumed", "levels checked by hand", "stop_rule")
    assert browser.console == []


def test_the_page_says_that_a_resumed_study_has_stopped_again(browser, store):
    study = Study.create("blocked", {**SPEC, "guard": {"max_open": 1}}, storage=store)
    for _ in range(3):
        study.ask([0.1, 0.1])
    with running(store) as url:
        shown(browser, url, "blocked:health")
        tab_to(browser, "here.id === 'resume-reason'")
        type_in(browser, "looked at it")
        tab_to(browser, "here.tagName === 'BUTTON'")
        press(browser, "Enter")
        news = browser.until("document.getElementById('news').textContent", wanted=lambda words: "resumed" in words)
    assert news == "The study was resumed and has stopped again at once: Too many outcomes are open."
    assert study.status()["stop_reason"] == "too_many_open"


def test_a_chart_is_read_with_the_arrow_keys(browser, ward):
    service, _ = ward
    shown(browser, service.url, "vancomycin/P-1")
    tab_to(browser, "here.closest('#chart-unit-cost')")
    press(browser, "ArrowLeft")
    legend = "document.querySelector('#chart-unit-cost .legend').innerText"
    assert "trough 22" in browser.run(legend)
    assert "day 6" in browser.run(legend)
    press(browser, "Enter")
    browser.until("document.activeElement.id", wanted=lambda name: name == "certificate-title")


def pages(browser):
    """How many A4 pages the present view prints on."""
    printed = browser.send("Page.printToPDF", preferCSSPageSize=True)["data"]
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", base64.b64decode(printed)))


def test_a_certificate_prints_on_one_page_however_much_stands_on_it(browser, store):
    names = [f"laboratory value {number}" for number in range(36)]
    wide = {**VANCOMYCIN, "features": {"names": ["protocol", *names], "units": {"protocol": "mg/day"}}, "guard": {}}
    study = Study.create("wide", wide, storage=store)
    given = {"protocol": 1500, **dict.fromkeys(names, 1.25)}
    meta = {f"note-{number}": "word " * 10 for number in range(20)}
    for number in range(25):
        made = study.ask(given, proposal=1400, unit="P-1", visit=f"day {number}", meta=meta)
        study.tell(made.id, reward=60, cost=5)
    for number in range(12):
        study.correct(made.id, cost=5 + 0.1 * number, reason="the laboratory sent another value, for a long reason")
    with running(store) as url:
        shown(browser, url, made.id)
        browser.until("document.querySelectorAll('#certificate-body p').length", wanted=lambda count: count > 14)
        assert pages(browser) == 1
        assert browser.run("document.body.className") == ""
        assert study.decision(made.id).hash in text(browser, "certificate")


def test_the_audit_trail_says_who_what_when_and_why_and_resumes_stand_out(browser, ward):
    service, study = ward
    shown(browser, service.url, "vancomycin:trail")
    browser.until("document.querySelectorAll('#trail-rows tr').length", wanted=lambda rows: rows >= 6)
    said = text(browser, "trail-rows")
    for words in ("Stopped. The study's stop rule was met.", "Resumed after: ", "dr.weber", "assay recalibrated"):
        assert words in said
    assert "Outcome corrected: trough 9.5 mg/l" in said
    assert "Round taken out (said to have nothing to do with the outcome), decision " in said
    loud = browser.run("[...document.querySelectorAll('#trail-rows .stands-out')].length")
    assert loud == sum(each["kind"] in ("alarm", "resumed") for each in study.trail())
    browser.run("document.getElementById('verify').click()")
    assert "all agree. Checkpoint " in browser.until(
        "document.getElementById('verified').innerText", wanted=lambda words: "agree" in words
    )
    browser.run("document.getElementById('trail-whole').click()")
    browser.until("document.getElementById('trail-rows').innerText.includes('Advised')")
    counts, status = service.get("/v1/studies/vancomycin/series").json()["counts"], study.status()
    assert (counts["overdue"], counts["overdue_since"]) == (status["overdue"], status["overdue_since"])
    assert status["overdue"] == 1
    answer = service.get("/v1/studies/vancomycin/trail?whole=1&limit=10").json()
    rest = service.get(f"/v1/studies/vancomycin/trail?whole=1&limit=500&before={answer['before']}").json()
    every = [each["seq"] for each in answer["events"] + rest["events"]]
    assert (every, rest["before"]) == (list(range(study.status()["seq"], 0, -1)), None)


def test_an_amendment_stands_out_in_the_trail_on_the_health_view_and_on_later_certificates(browser, store):
    study = Study.create("vancomycin", {**VANCOMYCIN, "guard": {}}, storage=store)
    first = study.ask({"protocol": 1500, "weight": 80}, proposal=600, unit="P-1", visit="day 1")
    study.tell(first.id, reward=0.5, cost=11.0)
    study.amend(changes={"threshold": 18, "guard": {"due_after": 0.1 * HOUR}}, reason="the ward's new limit")
    made = study.ask({"protocol": 1500, "weight": 80}, proposal=600, unit="P-2", visit="day 1")
    time.sleep(0.12)
    with running(store) as url:
        counts, status = Caller(url).get("/v1/studies/vancomycin/series").json()["counts"], study.status()
        assert counts["overdue"] == status["overdue"] == 1, "each by the deadline of its own decision"
        assert counts["overdue_since"] == status["overdue_since"]
        shown(browser, url, "vancomycin:trail")
        said = browser.until("document.querySelector('#trail-rows .stands-out')?.innerText")
        assert "Amended: other rules from here on (guard.due_after none → " in said
        assert f"threshold {VANCOMYCIN['threshold']} → 18)\tthe ward's new limit" in said
        shown(browser, url, "vancomycin:health")
        assert "Amended by a person once, the last time on " in text(browser, "notes")
        assert "the trough is above 18 mg/l" in text(browser, "guarantee")
        assert browser.run("document.querySelectorAll('#chart-cost .rule').length") == 2, "a limit for each phase"
        shown(browser, url, made.id)
        browser.until("document.querySelector('#certificate .big') !== null")
        assert re.search(
            r"amended by a person on .* for decisions after number \d+ \(.*threshold", text(browser, "certificate")
        )
        assert browser.console == []


def test_a_resume_needs_a_key_that_may(browser, store):
    study = Study.create("vancomycin", {**VANCOMYCIN, "guard": {"stop": {"decisions": 1}}}, storage=store)
    study.ask({"protocol": 1500, "weight": 80}, proposal=600)
    reads, admin = (create_key(store, role, reason="test", actor="tester")[0] for role in ("read", "admin"))
    with running(store) as url:
        browser.look(1280, 900)
        browser.open(f"{url}/#vancomycin:health")
        browser.run(f"sessionStorage.setItem('safedial-key', {json.dumps(reads)}); tick()")
        browser.until("!document.getElementById('resume').hidden")
        fill = "document.getElementById('resume-{}').value = {};"
        send = "document.getElementById('resume').requestSubmit();"
        browser.run(send)
        browser.run(fill.format("reason", "'checked'") + send)
        refused = browser.until("document.getElementById('resume-answer').innerText")
        assert refused == "Not resumed: this needs a key with the role admin."
        assert Study.open("vancomycin", storage=store).status()["stop_reason"]
        forget = "document.getElementById('resume-forget').click();"
        browser.run(fill.format("key", json.dumps(admin)) + forget + send)
        browser.until("document.getElementById('resume').hidden")
        assert study.trail()[0]["body"]["forget"]
        assert not Study.open("vancomycin", storage=store).status()["stop_reason"]
        assert browser.run("sessionStorage.getItem('safedial-key')") == reads


def test_units_are_found_by_a_part_of_their_label(ward):
    service, _ = ward
    assert [each["unit"] for each in service.get("/v1/studies/vancomycin/units?search=p-2").json()["units"]] == ["P-2"]
    first = service.get("/v1/studies/vancomycin/units?search=P&limit=3").json()
    assert ([each["unit"] for each in first["units"]], first["after"]) == (["P-0", "P-1", "P-2"], 3)
    rest = service.get("/v1/studies/vancomycin/units?search=P&limit=3&after=3").json()
    assert ([each["unit"] for each in rest["units"]], rest["after"]) == (["P-3"], None)
    assert service.get("/v1/studies/vancomycin/units?search=nobody").json() == {"units": [], "after": None}


def test_the_page_guarantees_nothing_while_only_the_declared_start_was_advised(browser, store):
    study = Study.create("vancomycin", {**VANCOMYCIN, "guard": {}}, storage=store)

    def said(url, place):
        time.sleep(FRESH_SECONDS)
        shown(browser, url, place)
        browser.look(390, 844, phone=True)
        assert browser.run("document.documentElement.scrollWidth") <= 390, place
        return text(browser, "main")

    with running(store) as url:
        for number in range(16):
            made = study.ask({"protocol": 1500, "weight": 80}, unit=f"P-{number}", proposal=2000)
            if made.to_dict()["certificate"]["guarantee"] != "declared":
                break
            if number < 2:
                for place in ("", "vancomycin", "vancomycin:health"):
                    words = said(url, place)
                    assert "Nothing is proved yet: the start setting rests on the team's own judgement." in words
                    assert "guaranteed at most" not in words
                    assert "The guarantee" not in words
            study.tell(made.id, cost=9)
        assert "attainment" not in said(url, "vancomycin:health"), "nobody reported it, and the policy does not read it"
        assert number > 3, "the study began at its start"
        assert "guaranteed at most 20 %" in said(url, "")
        for place in ("vancomycin", "vancomycin:health"):
            words = said(url, place)
            assert "The guarantee: in each round the trough is above 20 mg/l with probability at most 20 %" in words
            assert "Nothing is proved" not in words
        study.resume("another assay", forget=True)
        study.ask({"protocol": 1500, "weight": 80}, unit="P-1", proposal=2000)
        assert "Nothing is proved for the latest decision: it is the start setting" in said(url, "vancomycin")
