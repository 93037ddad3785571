"""Results in a notebook: short tables, escaped, without scripts, with the guarantee and its assumptions."""

import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from safedial import (
    Agent,
    Dial,
    Features,
    LinearWorld,
    MissingExtra,
    calibrate,
    calibrate_bracket,
    check_log,
    choose,
    create_study,
    evaluate,
    plan,
    replay,
    simulate,
    watch_log,
)
from safedial.errors import how_to_install
from safedial.io import MOST_ROWS, card
from safedial.rounds.log_file import Log
from safedial.simulation.results import simulated_log
from safedial.tools.scenarios import SCENARIOS
from tests.conftest import make_spec

ALLOWED = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}


class Reader(HTMLParser):
    """Tags that are closed in order, none but tables and lists, none with attributes."""

    def __init__(self, page: str):
        super().__init__()
        self.open, self.words = [], []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED
        assert not attrs
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def words(result) -> str:
    return " ".join(Reader(result._repr_html_()).words)


def test_a_table_is_short_and_says_where_the_rest_is():
    told = " ".join(Reader(card("Rows", ({"round": each} for each in range(1000)))).words)
    assert f" {MOST_ROWS - 1} " in told
    assert f" {MOST_ROWS} " not in told.partition("The first")[0]
    assert "to_frame() has all of them" in told


def test_a_users_text_is_escaped():
    agent = Agent(1, make_spec(), dial=Dial(unit="<script>mg"), features=Features(names=("dose",)))
    assert "<script>mg" in words(agent.ask({"dose": 0.5}))


def test_a_decision_and_its_certificate_show_the_guarantee_with_its_assumptions():
    decision = Agent(2, make_spec()).ask([0.6, 0.3])
    told = words(decision)
    assert told == words(decision.certificate)
    for part in (decision.certificate["statement"], "The guarantee holds if:", *decision.certificate["assumptions"]):
        assert part in told
    assert json.loads(json.dumps(decision.certificate)) == decision.certificate


def test_a_decision_without_a_guarantee_claims_nothing():
    told = words(Agent(2, make_spec(), policy="on_expectation").ask([0.6, 0.3]))
    assert "largest allowed setting" in told
    assert "none on the realized cost" in told
    assert "holds if" not in told


@pytest.mark.parametrize(
    ("policy", "means"), [("hp_probe", "It is true in this simulated world"), ("on_expectation", "Nothing is proved")]
)
def test_a_simulation_says_whether_its_guarantee_is_proved(policy, means):
    run = simulate(policy, LinearWorld(dim=2), make_spec(threshold=np.array([0.4, 0.5])), rounds=20, seeds=3)
    assert means in words(run)
    assert len(run.to_frame()) == 6
    assert run.to_frame().equals(run.to_frame())


def test_a_study_its_decisions_and_its_verification_have_tables(tmp_path):
    study = create_study("trial", make_spec(), storage=f"sqlite:///{tmp_path}/trial.db", dim=2)
    decision = study.ask([0.6, 0.3])
    study.tell(decision.id, reward=0.1, cost=0.05)
    assert "Decision trial" in words(decision)
    assert "The guarantee on the realized cost holds if what is stated is true" in words(study)
    assert "Log of trial: agrees" in words(study.verify())
    assert list(study.to_frame()["cost"]) == [0.05]
    study.store.close()


def test_reports_have_tables_and_frames():
    spec = make_spec()
    log = simulated_log("hp_probe", LinearWorld(dim=2), spec, rounds=120)
    found = plan("hp_probe", spec, dim=2, rounds=20, seeds=5, scenarios=SCENARIOS[:2])
    assert "as stated" in words(found)
    assert list(found.to_frame()["scenario"]) == [each.name for each in SCENARIOS[:2]]
    assert "No alarm" in words(watch_log(log, spec))
    assert "Linearity" in " ".join(words(each) for each in check_log(log, spec)[1])
    evaluation = evaluate(log, ["hp_probe", "hp_ucb"], spec=spec)
    assert "as logged" in words(evaluation)
    assert list(evaluation.to_frame()["policy"])[1:] == ["hp_probe", "hp_ucb"]
    played = replay("hp_probe", log.context, log.reward, log.cost, spec)
    assert "hp_probe" in words(played)
    assert len(played.to_frame()) == 120


def test_proposals_have_tables():
    rng = np.random.default_rng(0)
    dose, one = rng.uniform(0.1, 1.0, 100), np.ones(100)
    cost = 10 * dose * np.exp(0.3 * rng.standard_normal(100))
    numbers = {"round": np.arange(100), "advised": np.nan * one, "baseline_cost": 0 * one}
    pilot = Log(names=("one",), context=one[:, None], action=dose, reward=dose, cost=cost, **numbers)
    assert "cost_noise" in words(calibrate(pilot, resamples=5, curve="identity", outcomes=("cost",)))
    assert "the risk is δ + q" in words(calibrate_bracket(pilot, threshold=20))
    offers = choose(curve="exact", noise="gaussian", linear=True, threshold=0.5, rounds=20, dim=2, start=0.05, seeds=2)
    assert "hp_student" in words(offers)
    assert "What is guaranteed:" in words(offers)
    assert len(offers.to_frame()) == len(offers.offers)


def test_without_pandas_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    run = simulate("hp_probe", LinearWorld(dim=2), make_spec(), rounds=5, seeds=1)
    with pytest.raises(MissingExtra, match=re.escape(f"needs the package pandas: {how_to_install('data')}")):
        run.to_frame()
