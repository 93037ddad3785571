"""HP-Shield in a study: it decides as an Agent does, from its log alone, and names rounds by their ids."""

import json
import math
import warnings

import numpy as np
import pytest
from scipy.stats import binom

from safedial import Agent, Cost, Dial, Features, InvalidInput, SafetySpec, growth, make_policy
from safedial.model.costs import shown_by
from safedial.policies.bets import Bets
from safedial.study import operations
from safedial.study.answer import read_id
from safedial.study.database import sa
from safedial.study.event import START, Event, canonical, digest
from safedial.study.log import append_events, read_events
from safedial.study.manage import create_study, open_study
from safedial.study.reducer import Noted
from safedial.study.requests import read_request
from safedial.study.snapshot import pack, state_digest, unpack
from safedial.study.store import Store
from safedial.study.study_errors import StudyError
from safedial.study.verify import verify_study

SPEC = SafetySpec(threshold=2.0, violation_risk=0.2, guarantee="bracket")
OPTIONS = {"base": "dose", "growth": growth.relative(0.7, 1.4, floor=0.5), "start_scale": 0.25}
RULES = {
    "dial": Dial(high=20.0, unit="U"),
    "features": Features(names=("dose", "weight"), center=(4.0, 70.0), scale=(2.0, 30.0)),
}
VARIANTS = {
    "protocol": {},
    "proposal": {"base": "proposal"},
    "learned": {"learned": True},
    "late": {"base": "proposal", "learned": True, "lag": 2, "adapt": 0.01},
    "groups": {"adapt": 0.01, "group": "weight", "chooser": "request"},
    "target": {"chooser": "target", "learned": True},
}


def shield(**options):
    return make_policy("hp_shield", **(OPTIONS | options))


def make(store, name="trial", spec=SPEC, guard=None, **options):
    more = {} if guard is None else {"guard": guard}
    rules = RULES | {
        name: options.pop(name) for name in ("dial", "dose", "start_action", "features") if name in options
    }
    return create_study(name, spec, dim=2, policy=shield(**options), storage=store, actor="tester", **rules, **more)


@pytest.fixture(autouse=True)
def quiet(recwarn):
    """Studies without a fallback warn that they would advise nothing; it is not the matter here."""


@pytest.fixture
def shelf(tmp_path):
    with Store(f"sqlite:///{tmp_path}/study.db") as opened:
        yield opened


def patient(rng, number):
    """A context, what a doctor would propose, and the cost of a setting."""
    dose = float(rng.uniform(2.0, 6.0))
    tolerated = dose * 1.2 * math.exp(0.3 * rng.standard_normal())
    context = {"dose": dose, "weight": float(rng.choice([50.0, 90.0]))}
    return context, round(dose * (1.0 + 0.1 * (number % 2)), 2), lambda setting: 2.0 * (setting / tolerated)


def more_of(options, proposal):
    """What a question brings beside its context."""
    proposed = options.get("base") == "proposal" or options.get("chooser") == "request"
    return {"proposal": proposal} if proposed else {}


def treat(study, count, seed=0, cost=lambda measured, number: measured):
    """Rounds with their outcomes; the decisions."""
    rng, made = np.random.default_rng(seed), []
    for number in range(count):
        context, proposal, harm = patient(rng, number)
        decision = study.ask(context, **more_of(study.spec.rules.policy.options, proposal))
        study.tell(decision.id, reward=0.0, cost=cost(harm(decision.action), number))
        made.append(decision)
    return made


def state_of(study):
    return study._write(lambda transaction: transaction.state, True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_study_and_an_agent_that_get_the_same_rounds_decide_the_same(shelf, variant):
    """Late, missing, lowered, withheld, void, expired and corrected outcomes included."""
    options = VARIANTS[variant]
    study = make(shelf, **options)
    agent = Agent(2, SPEC, policy=shield(**options), **RULES)
    rng, late, guarantees = np.random.default_rng(3), None, set()
    for number in range(60):
        context, proposal, harm = patient(rng, number)
        more = more_of(options, proposal)
        advice, own = study.ask(context, unit=f"P-{number % 2}", **more), agent.ask(context, **more)
        assert (advice.action, advice.safe_action, advice.guarantee) == (own.action, own.safe_action, own.guarantee)
        if number % 6 == 0:
            compare(study, own.certificate, advice.certificate)
        kind = number % 10
        given = own.action * (0.8 if kind == 4 else 1.0)
        gain = -((given - 3.0) ** 2)
        if kind == 1:
            late = advice, own, harm(given), gain
        elif kind == 3:
            agent.tell(late[1], reward=late[3], cost=late[2])
            study.tell(late[0].id, reward=late[3], cost=late[2])
        if kind in (2, 7):
            (study.void if kind == 2 else study.expire)(advice.id, reason="the lab was closed", unrelated=True)
            agent.tell(own, applied_action=0.0, reward=0.0, cost=0.0, unrelated=True)
        elif kind == 5:
            study.void(advice.id, reason="the patient left")
            agent.tell(own, unrelated=False)
        elif kind == 6:
            study.tell(advice.id, reward=0.0, cost=0.0, applied_action=0.0, unrelated=True)
            agent.tell(own, applied_action=0.0, reward=0.0, cost=0.0, unrelated=True)
        elif kind == 8:
            study.tell(advice.id, reward=gain, cost=9.0)
            study.correct(advice.id, cost=harm(given), reason="typing error")
            agent.tell(own, reward=gain, cost=harm(given))
        elif kind != 1:
            study.tell(advice.id, reward=gain, cost=harm(given), applied_action=given)
            agent.tell(own, applied_action=given, reward=gain, cost=harm(given))
        guarantees.add(own.guarantee)
    assert guarantees == {"declared", "bracket"}
    assert next(iter(study.rows())).get("unit") == "P-0"
    assert study.status()["informative_rounds"] == agent.informative_rounds
    assert study.status()["evidence"] == agent.evidence
    assert study.verify().ok
    state = state_of(study)
    assert pack(unpack(study.spec, pack(state))) == pack(state)


def compare(study, agent, told):
    """A study's certificate says what an Agent's does, with ids for numbers, and perhaps more assumptions."""
    known = state_of(study).learning.named
    numbers, ids = agent["count"].pop("exceeding"), told["count"].pop("exceeding")
    assert ids == [f"trial.{known[number - 1]}" for number in numbers]
    assert agent["assumptions"] == told["assumptions"][: len(agent["assumptions"])]
    for name in ("statement", "count", "scale", "base", "start", "bracket", "model", "adaptive", "limit"):
        assert agent[name] == told[name]


def test_the_certificate_of_a_past_decision_names_rounds_that_can_be_opened(shelf):
    study = make(shelf)
    decision = treat(study, 60)[-1]
    found = study.decision(decision.id)
    assert found.certificate == decision.certificate
    count = found.certificate["count"]
    assert len(count["exceeding"]) == count["would_exceed"] > 0
    words = study.explain(decision.id)
    assert all(name in words and study.decision(name).seq < decision.seq for name in count["exceeding"])
    assert "proposal" not in found.certificate


def test_a_log_names_the_latest_rounds_and_counts_all(shelf, monkeypatch):
    monkeypatch.setattr("safedial.study.reducer.NAMED", 2)
    study = make(shelf, spec=SafetySpec(threshold=2.0, violation_risk=0.5, guarantee="bracket"))
    count = treat(study, 40)[-1].certificate["count"]
    assert len(count["exceeding"]) == 2 < count["would_exceed"]


def test_the_body_holds_the_proposal_only_where_there_is_one(shelf):
    plain, proposed = make(shelf, "plain"), make(shelf, "proposed", base="proposal")
    context = {"dose": 4.0, "weight": 70.0}
    bodies = [study.ask(context, **more, key="1").body for study, more in ((plain, {}), (proposed, {"proposal": 4}))]
    assert "proposal" not in bodies[0]
    assert bodies[1]["proposal"] == 4.0
    for study, columns in ((plain, False), (proposed, True)):
        assert ("proposal" in next(iter(study.rows()))) == columns


def test_a_key_belongs_to_one_proposal(shelf):
    study = make(shelf, base="proposal")
    context = {"dose": 4.0, "weight": 70.0}
    first = study.ask(context, proposal=4, key="visit")
    assert study.ask(context, proposal=4.0, key="visit").id == first.id
    with pytest.raises(StudyError, match="key"):
        study.ask(context, proposal=5, key="visit")
    with pytest.raises(StudyError, match="key"):
        study.ask(context, proposal=4, meta={"proposal": 4.0}, key="visit")
    assert study.verify().ok


@pytest.mark.parametrize(
    ("given", "words"),
    [({}, "proposal.*missing"), ({"proposal": 0}, "proposal.*> 0"), ({"proposal": "six"}, "proposal"),
     ({"proposal": math.nan}, "proposal"), ({"proposal": 4, "unit": ""}, "unit.*must not be empty"),
     ({"proposal": 4, "unit": "P\n1"}, "unit.*printable"),
     ({"proposal": 4, "baseline_cost": 1.0}, "baseline_cost.*not for hp_shield")],
)  # fmt: skip
def test_a_bad_question_is_refused_and_changes_nothing(shelf, given, words):
    study = make(shelf, base="proposal")
    before = study.state_digest()
    with pytest.raises(InvalidInput, match=words):
        study.ask({"dose": 4.0, "weight": 70.0}, **given)
    assert study.state_digest() == before


def test_a_proposal_is_refused_where_it_is_no_base(shelf, tmp_path):
    with pytest.raises(InvalidInput, match="is not this policy's base"):
        make(shelf).ask({"dose": 4.0, "weight": 70.0}, proposal=4)
    certified = {"dim": 1, "threshold": 0.5, "total_risk": 0.02, "reward_noise": 1, "cost_noise": 1}
    other = create_study("other", certified | {"coefficient_bound": 1, "context_bound": 1}, storage=shelf)
    with pytest.raises(InvalidInput, match="is not for hp_probe"):
        other.ask([0.5], proposal=4)


def test_what_a_log_cannot_hold_is_refused(shelf):
    with pytest.raises(InvalidInput, match=r"base = .*which a log cannot hold"):
        make(shelf, base=lambda raw: raw["dose"])
    study = make(shelf)
    row = {"dose": 4, "weight": 70, "action": 1, "reward": 0, "cost": 1}
    with pytest.raises(InvalidInput, match="only from rounds that it decided"):
        study.import_history([row])
    assert study.status()["imported"] == 0


def test_the_spec_is_read_again_as_it_was_written(shelf):
    study = make(shelf, base="proposal", lag=3, climb=None)
    assert open_study("trial", storage=shelf).spec.fields == study.spec.fields
    assert create_study("trial", study.spec.fields, storage=shelf, load_if_exists=True).spec.fields == study.spec.fields
    assert study.spec.fields["policy"]["growth"]["high"] == 1.4


@pytest.mark.parametrize(
    ("number", "change"),
    [(1, {"proposal": 5.0}), (1, {"numbers": {"scale": 2.0}}), (30, {"numbers": {"exceeding": []}})],
)
def test_a_changed_decision_is_found_though_its_hashes_were_made_anew(tmp_path, number, change):
    storage = f"sqlite:///{tmp_path}/study.db"
    with Store(storage) as store:
        made = treat(make(store, base="proposal"), 30)
    with Store(storage) as store:
        rewrite(store, made[number - 1].seq, change)
        report = verify_study(store, "trial")
    assert (report.ok, report.first_bad) == (False, made[number - 1].seq)


def rewrite(store, seq, change):
    """Change the body of an event, and make every hash anew, as the owner of the database can."""
    with store.engine.begin() as connection:
        events, previous = [], START
        for event in read_events(connection, 1):
            body = event.fields()
            for name, value in change.items() if event.seq == seq else ():
                body[name] = {**body[name], **value} if isinstance(value, dict) else value
            told = (*event[:6], canonical(body))
            events.append(Event(*told, digest(previous, "trial", told)))
            previous = events[-1].hash
        connection.execute(sa.text("DELETE FROM events WHERE study_id = 1"))
        append_events(connection, 1, events)


def test_a_snapshot_continues_as_the_log_does(tmp_path, monkeypatch):
    monkeypatch.setattr("safedial.study.transaction.SNAPSHOT_EVENTS", 20)
    monkeypatch.setattr("safedial.study.transaction.SNAPSHOT_BYTES", 10_000)
    storage = f"sqlite:///{tmp_path}/study.db"
    with Store(storage) as store:
        study = make(store, base="proposal", learned=True)
        made = treat(study, 45)
        digest = study.state_digest()
        assert any(event["kind"] == "snapshot" for event in study.events()["events"])
    with Store(storage) as store:
        again = open_study("trial", storage=store)
        assert again.state_digest() == digest
        again.correct(made[3].id, cost=1.0, reason="typing error")
        fixed = state_digest(state_of(again))
        assert again.verify().ok
    with Store(storage) as store:
        assert open_study("trial", storage=store).state_digest() == fixed


def test_a_refuted_start_and_a_drift_stop_the_study_until_a_person_resumes(shelf):
    study = make(shelf, "start", start_scale=0.9)
    treat(study, 30, cost=lambda measured, number: 2.5)
    assert study.status()["stop_reason"] == "start_refuted"
    stopped = treat(study, 1)[0]
    assert (stopped.action, stopped.guarantee) == (0.0, "none")
    assert [each["decision_id"] for each in study.waiting()] == []
    study.resume("the protocol was lowered", forget=True)
    assert study.status()["stop_reason"] == ""
    assert treat(study, 1)[0].guarantee == "declared"
    assert study.verify().ok


def test_open_rounds_of_a_forgotten_past_teach_nothing(shelf):
    study = make(shelf, start_scale=0.9)
    told, vouched = (study.ask({"dose": 4.0, "weight": 70.0}) for _ in range(2))
    treat(study, 30, cost=lambda measured, number: 2.5)
    study.resume("another lab", forget=True)
    study.tell(told.id, reward=0.0, cost=0.1)
    study.void(vouched.id, reason="the lab was closed", unrelated=True)
    assert study.status()["informative_rounds"] == 0
    assert "bracket" in {decision.guarantee for decision in treat(study, 40)}
    assert study.verify().ok


def test_evidence_against_the_bracket_stops_a_study_and_a_resume_restarts_it(shelf):
    study = make(shelf)
    told = [(0.1, None)] * 110 + [(1000.0, 19.0)] * 20
    request = read_request(study.spec.rules, {"dose": 4.0, "weight": 70.0}, Noted())

    def at_once(transaction):
        for cost, applied in told:
            decision = operations.ask(transaction, lambda _, request=request: request, actor="tester")
            body = {"reward": 0.0, "cost": cost, "applied_action": applied, "throttled": False}
            operations.tell(transaction, read_id(decision.id), lambda _, body=body: body, actor="tester")

    study._write(at_once, True)
    assert (study.status()["stop_reason"], study.status()["evidence"] > 100.0) == ("bracket_drift", True)
    assert study.ask({"dose": 4.0, "weight": 70.0}).body["evidence"] > 100.0
    study.resume("another lab measured")
    assert (study.status()["stop_reason"], study.status()["evidence"]) == ("", 1.0)
    assert study.verify().ok


def test_violations_are_counted_on_the_side_that_is_stated(shelf, tmp_path):
    """Glucose must not fall below 70: a value of 50 is an excess, one of 150 is not."""
    study = make(
        shelf,
        spec=SafetySpec(threshold=70, violation_risk=0.2, guarantee="bracket"),
        growth=growth.additive(4, 60),
        direction="below",
    )
    first, second, third, fourth = (study.ask({"dose": 4.0, "weight": 70.0}) for _ in range(4))
    study.tell(first.id, reward=0.0, cost=150.0)
    study.tell(second.id, reward=0.0, cost=50.0)
    study.tell(third.id, reward=0.0, cost=60.0)
    study.correct(third.id, reward=0.0, cost=90.0, reason="typing error")
    study.tell(fourth.id, reward=0.0, cost=50.0, applied_action=19.0)
    assert (study.status()["violations"], study.status()["corrected_violations"]) == (2, 1)
    assert study.status()["unwatched"] == 1  # more was applied than advised: it says nothing about the guarantee
    assert [row["violated"] for row in study.rows()] == [False, True, False, True]


def test_contexts_that_a_mask_gives_nothing_are_left_out_whatever_was_learned(shelf):
    mask = {"caps": [{"name": "frail", "when": {"weight": {"max": 50}}, "limit": 0}]}
    study = make(shelf, guard=mask, growth=growth.additive(0.1, 4.0), dial=Dial(high=20, levels=(2, 4, 8, 20)))
    low = study.ask({"dose": 1.0, "weight": 45.0})
    assert (low.action, low.limit) == (0.0, "mask")
    rounds = state_of(study).learning._state.groups[0].rounds
    assert np.isnan(rounds.rows("limit")).tolist() == [True]
    assert study.waiting() == []


def test_a_round_that_is_given_the_dial_s_low_end_waits_for_its_outcome(shelf):
    """A start below the lowest level gives nothing, and an additive bracket learns from what follows."""
    dial = Dial(high=20, levels=(2, 4, 8, 20))
    study = make(shelf, growth=growth.additive(0.1, 0.5), dial=dial, start_scale=0.1, climb=None)
    actions = [each.action for each in treat(study, 25, cost=lambda measured, number: measured / 4)]
    assert actions[0] == 0.0 < actions[-1]
    assert study.status()["informative_rounds"] == 25
    assert {row["status"] for row in study.rows()} == {"known"}


def test_a_throttled_round_tolerates_nothing_and_an_excess_in_it_counts(shelf):
    study = make(shelf)
    decision = treat(study, 30)[-1]
    last = study.ask({"dose": 4.0, "weight": 70.0})
    study.tell(last.id, reward=0.0, cost=2.5, applied_action=0.5, throttled=True)
    before = study.status()
    assert decision.guarantee == "bracket"
    assert state_of(study).learning._state.groups[0].rounds.rows("limit")[-1] == -math.inf
    study.tell(study.ask({"dose": 4.0, "weight": 70.0}).id, reward=0.0, cost=1.5, applied_action=0.5, throttled=True)
    after = study.status()
    assert after["violations"] == before["violations"]
    assert after["unwatched"] == before["unwatched"] + 1
    void = study.ask({"dose": 4.0, "weight": 70.0})
    study.tell(void.id, reward=0.0, cost=2.5)
    study.void(void.id, reason="the wrong patient")
    assert study.status()["violations"] == after["violations"] + 1
    assert study.verify().ok


def rounds_to_stop(shelf, name, **told):
    """How many rounds above the threshold stop a study that has learned from thirty."""
    study, context = make(shelf, name, base="proposal"), {"dose": 4.0, "weight": 70.0}
    for number in range(30):
        decision = study.ask(context, proposal=4.0 + number % 3)
        study.tell(decision.id, reward=0.0, cost=0.3 * decision.action)
    for number in range(1, 60):
        decision = study.ask(context, proposal=4.0 + number % 3)
        study.tell(decision.id, reward=0.0, cost=3.0 + 0.1 * number, **told)
        if study.status()["stop_reason"]:
            assert study.verify().ok
            return number
    return 60


def test_a_throttled_round_above_the_advice_is_no_evidence_against_anything(shelf):
    study = make(shelf)
    treat(study, 30)
    before, last = study.status()["evidence"], study.ask({"dose": 4.0, "weight": 70.0})
    study.tell(last.id, reward=0.0, cost=9.0, applied_action=min(1.5 * last.action, 8.0), throttled=True)
    assert study.status()["evidence"] <= before


def test_throttled_outcomes_do_not_blind_the_shield_s_own_alarm(shelf):
    control = rounds_to_stop(shelf, "control")
    assert control < 40
    assert rounds_to_stop(shelf, "throttled", throttled=True) <= control + 10
    assert rounds_to_stop(shelf, "lowered", throttled=True, applied_action=0.01) <= control + 10


def test_the_shield_s_watch_stays_valid_where_every_excess_is_throttled(count):
    """Exchangeable rounds within the bracket, of which those that exceed are throttled, and only for that: the evidence
    reaches 100 in a run with probability at most 0.01. If it did so in just that share of the runs, more of them than
    the binomial quantile below would show it with probability at most 1e-6.
    """
    rng, runs = np.random.default_rng(5), count(30, 300)
    bracket = Cost(threshold=1.0, growth=growth.relative(0.7, 1.4, floor=0.1))
    crossed = 0
    for _ in range(runs):
        bets = Bets(late=False, hit_risk=0.3)
        for _ in range(100):
            tolerated, setting = rng.lognormal(0.0, 0.5), rng.uniform(0.2, 2.0)
            cost = (setting / tolerated) ** rng.uniform(0.7, 1.4)
            told = {"low": tolerated * rng.uniform(0.5, 1.0)}
            if cost > 1.0:
                upper, _ = shown_by({"cost": bracket}, {"cost": rng.uniform(1.0, cost)}, setting)
                assert upper >= tolerated
                told = {"up": upper}
            bets.tell(bets.open(), **told)
        crossed += bool(bets.evidence().crossed)
    assert crossed <= binom.isf(1e-6, runs, 0.01)


def test_a_study_runs_on_every_store(store):
    study = make(store, base="proposal")
    made = treat(study, 12)
    study.correct(made[2].id, cost=1.0, reason="typing error")
    assert study.verify().ok
    assert json.dumps(study.decision(made[-1].id).certificate)


TWO = SafetySpec(
    violation_risk=0.2,
    guarantee="bracket",
    costs={
        "trough": Cost(threshold=2.0, growth=growth.relative(0.7, 1.4, floor=0.5), unit="mg/l"),
        "glucose": Cost(threshold=70.0, growth=growth.additive(1, 30), direction="below"),
    },
)


def two_costs(harm, setting):
    return {"trough": harm(setting), "glucose": 250.0 - 25.0 * setting}


def test_several_costs_are_told_corrected_and_counted_as_an_agent_does(shelf):
    study = make(shelf, spec=TWO, growth=None)
    agent = Agent(2, TWO, policy=shield(growth=None), **RULES)
    rng, unknown = np.random.default_rng(5), 0
    for number in range(36):
        context, _, harm = patient(rng, number)
        advice, own = study.ask(context), agent.ask(context)
        assert (advice.action, advice.guarantee) == (own.action, own.guarantee)
        costs = two_costs(harm, own.action)
        if number % 9 == 4:
            costs["glucose"] = None
            unknown += 1
        vouched = number % 18 == 4
        study.tell(
            advice.id, reward=0.0, cost=costs if number % 7 else {"trough": 9.0, "glucose": 9.0}, unrelated=vouched
        )
        if number % 7 == 0:
            study.correct(advice.id, cost=costs, reason="typing error")
        agent.tell(own, reward=0.0, cost=costs, unrelated=vouched)
    assert advice.guarantee == "bracket"
    assert study.status()["evidence"] == agent.evidence
    assert study.status()["informative_rounds"] == agent.informative_rounds == 36 - unknown
    assert "fallen below 70 (glucose) or exceeded 2 mg/l (trough)" in advice.certificate["statement"]
    assert study.verify().ok
    assert "cost glucose" in study.explain(advice.id)
    told = [event["body"] for event in study.events()["events"] if event["kind"] == "outcome"]
    assert list(told[1]["cost"]) == ["glucose", "trough"]
    assert told[4]["cost"]["glucose"] is None


def test_a_table_has_a_column_for_each_cost(shelf, tmp_path):
    study = make(shelf, spec=TWO, growth=None)
    decisions = [study.ask({"dose": 4.0, "weight": 70.0}) for _ in range(3)]
    study.tell(decisions[0].id, reward=0.0, cost={"trough": 1, "glucose": 60})
    study.tell(decisions[1].id, reward=0.0, cost={"trough": 1, "glucose": math.nan})
    rows = list(study.rows())
    assert [(row["cost_trough"], row["cost_glucose"], row["violated"]) for row in rows] == [
        (1.0, 60.0, True), (1.0, None, False), (None, None, None)
    ]  # fmt: skip
    assert (rows[0]["threshold_trough"], "cost" in rows[0], "threshold" in rows[0]) == (2.0, False, False)
    status = study.status()
    assert (status["violations"], status["unwatched"]) == (1, 1)
    study.tell(decisions[2].id, reward=0.0, cost={"trough": 3, "glucose": None}, throttled=True)
    assert study.status()["unwatched"] == 1  # the trough shows that the guarantee was broken
    study.void(decisions[0].id, reason="the wrong patient")
    assert study.status()["violations"] == 2
    assert study.export(tmp_path / "two.csv").read_text().count("cost_glucose") == 1
    assert study.verify().ok


@pytest.mark.parametrize(
    ("cost", "words"),
    [(1.0, "mapping with glucose, trough"), ({"trough": 1}, "missing"), ({"trough": 1, "glucose": 1, "auc": 2}, "auc"),
     ({"trough": "one", "glucose": 1}, "cost.'trough'"), ({"trough": math.inf, "glucose": 1}, "finite")],
)  # fmt: skip
def test_costs_that_are_not_those_of_the_spec_are_refused_and_change_nothing(shelf, cost, words):
    study = make(shelf, spec=TWO, growth=None)
    decision = study.ask({"dose": 4.0, "weight": 70.0})
    before = study.state_digest()
    with pytest.raises(InvalidInput, match=words):
        study.tell(decision.id, reward=0.0, cost=cost)
    assert study.state_digest() == before
    study.tell(decision.id, reward=0.0, cost={"trough": 1.0, "glucose": 100.0})
    with pytest.raises(InvalidInput, match=words):
        study.correct(decision.id, cost=cost, reason="typing error")
    one = make(shelf, "one")
    with pytest.raises(InvalidInput, match="must be one number"):
        one.tell(one.ask({"dose": 4.0, "weight": 70.0}).id, reward=0.0, cost={"trough": 1.0})


def test_a_start_below_the_lowest_level_is_warned_about_and_explained(shelf):
    low = {"dial": Dial(high=20.0, unit="U", levels=(5.0, 10.0)), "growth": growth.additive(0, 0.01)}
    names, ranges = ("dose", "weight"), {"dose": (1.0, 16.0)}
    never = r"the largest start, 4 U, lies below the dial's lowest level: nothing is ever given, and so the climb limit"
    with pytest.warns(UserWarning, match=never):
        study = make(shelf, features=Features(names=names, ranges=ranges), **low)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_study("trial", storage=shelf)
        for other in ({}, {"ranges": {"weight": (0.0, 9.0)}}, {"ranges": {"dose": (1.0, 20.0)}}):
            Agent(
                2, SPEC, policy=shield(growth=low["growth"]), dial=low["dial"], features=Features(names=names, **other)
            )
        named = Features(names=names, ranges=ranges)
        Agent(2, SPEC, policy=shield(growth=low["growth"], climb=None), dial=low["dial"], features=named)
    assert [str(each.message) for each in caught] == []
    exact = Features(names=names, ranges={"dose": (1.0, 20.0)})
    agent = Agent(2, SPEC, policy=shield(), dial=low["dial"], features=exact)
    assert agent.ask({"dose": 20.0, "weight": 1.0}).action == 5.0  # a relative bracket, and a start at a level
    with pytest.raises(InvalidInput, match="lies below the dial's lowest level, and a relative bracket says nothing"):
        agent.ask({"dose": 19.99, "weight": 1.0})
    told = treat(study, 12)[-1]
    assert (told.action, told.limit) == (0.0, "climb_limit")
    assert "would have exceeded 2 at the start (given is the start, which" in told.certificate["statement"]
    assert "The start lies below the dial's lowest level, so nothing is given" in told.explain()


def test_void_rounds_are_assumed_to_be_unrelated_only_where_somebody_vouched(shelf):
    study, proved = make(shelf), 0
    for number in range(12):
        made = study.ask({"dose": 4.0, "weight": 70.0})
        rests = made.certificate["assumptions"]
        assert rests == study.decision(made.id).certificate["assumptions"]
        assert not [each for each in rests if each.startswith("rounds that were left out")]
        said = [each for each in rests if each.startswith("void rounds that somebody vouched for")]
        assert len(said) == (made.guarantee == "bracket"), "a declared start rests on no round"
        assert all(each.endswith("void rounds that nobody vouched for count as exceeding") for each in said)
        proved += len(said)
        if number == 1:
            study.void(made.id, reason="the sample was lost")
        else:
            study.tell(made.id, reward=0.0, cost=0.5)
    assert 0 < proved < 12
