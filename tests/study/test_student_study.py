"""HP-Student in a study: it decides as an Agent does, from its log alone; lost rounds, resumes, the page."""

import json

import numpy as np
import pytest

from safedial import Agent, InvalidInput, SafetySpec, hp_student
from safedial.study.manage import create_study, open_study
from safedial.study.reducer import body_of, decide_next, noted_in, question_of
from safedial.study.replay_log import Source, replay
from safedial.study.snapshot import pack, unpack
from safedial.study.store import Store
from safedial.study.study_errors import StudyError
from safedial.study.verify import Agreement
from tests.study.conftest import id_at

RISKS = {"threshold": 0.5, "violation_risk": 0.05, "estimation_risk": 0.01, "guarantee": "student"}
COEF = np.array([0.3, -0.2, 0.1])


@pytest.fixture
def shelf(tmp_path):
    with Store(f"sqlite:///{tmp_path}/study.db") as opened:
        yield opened


def make(store, name="trial", guard=None, **options):
    more = {} if guard is None else {"guard": guard}
    fields = {"dim": 3, **RISKS, "policy": {"name": "hp_student", **options}, "start_action": 0.05, **more}
    return create_study(name, fields, storage=store, actor="tester")


def outcome(rng, decision, context, size=0.2):
    noise = size * rng.standard_normal(2)
    gain, harm = decision.intensity * (0.5 + noise[0]), decision.intensity * (context @ COEF + noise[1])
    return {"reward": float(gain), "cost": float(harm)}


def play(study, count, seed=0, rise=0.0):
    rng, last = np.random.default_rng(seed), None
    for _ in range(count):
        context = rng.standard_normal(3)
        last = study.ask(context.tolist())
        told = outcome(rng, last, context)
        study.tell(last.id, **(told | {"cost": told["cost"] + rise * last.intensity}))
    return last


def state_of(study):
    return study._write(lambda transaction: transaction.state, True)


@pytest.mark.parametrize("kind", ["per_round", "tolerance", "anytime"])
def test_a_study_and_an_agent_that_get_the_same_rounds_decide_the_same(shelf, kind):
    """Late, lowered, withheld, void, expired and corrected outcomes included."""
    options = {"guarantee": kind, "lag": 2, "mixture_ridge": 3.0}
    study = make(shelf, **options)
    agent = Agent(3, SafetySpec(**RISKS), policy=hp_student(**options), start_action=0.05)
    rng, late, guarantees = np.random.default_rng(3), None, set()
    for number in range(70 if kind == "anytime" else 40):
        context = rng.standard_normal(3)
        advice, own = study.ask(context.tolist()), agent.ask(context)
        assert (advice.action, advice.safe_action, advice.guarantee) == (own.action, own.safe_action, own.guarantee)
        guarantees.add(own.guarantee)
        if number % 6 == 0:
            facts, told = own.certificate, advice.certificate
            assert facts["assumptions"] == told["assumptions"][: len(facts["assumptions"])]
            assert all(facts[name] == told[name] for name in ("statement", "model", "cost_upper", "limit"))
        turn, known = number % 10, outcome(rng, own, context)
        if turn == 1:
            late = advice, own, known
        elif turn in (2, 7):
            (study.void if turn == 2 else study.expire)(advice.id, reason="the lab was closed", unrelated=True)
            agent.tell(own, applied_action=0.0, reward=0.0, cost=0.0, unrelated=True)
        elif turn == 8:
            study.tell(advice.id, reward=known["reward"], cost=9.0)
            study.correct(advice.id, cost=known["cost"], reason="typing error")
            agent.tell(own, **known)
        else:
            given = own.action * (0.8 if turn == 4 else 1.0)
            study.tell(advice.id, **known, applied_action=given)
            agent.tell(own, applied_action=given, **known)
        if turn == 3:
            agent.tell(late[1], **late[2])
            study.tell(late[0].id, **late[2])
    assert guarantees == {"declared", "student"}
    assert study.status()["informative_rounds"] == agent.informative_rounds
    assert study.status()["evidence"] == agent.evidence
    assert study.verify().ok
    state = state_of(study)
    assert pack(unpack(study.spec, pack(state))) == pack(state)
    with Store(shelf.storage) as other:
        assert open_study("trial", storage=other).state_digest() == study.state_digest()


@pytest.mark.parametrize("unrelated", [True, False])
@pytest.mark.parametrize("lose", ["void", "void after the outcome", "throttled", "nothing applied"])
def test_a_lost_round_keeps_the_start_dose_until_rounds_are_forgotten_for_an_unrelated_reason(shelf, lose, unrelated):
    study = make(shelf)
    assert play(study, 12).guarantee == "student"
    decision = study.ask([0.1, 0.2, 0.3])
    if lose == "void":
        study.void(decision.id, reason="felt ill")
    elif lose == "throttled":
        study.tell(decision.id, reward=0.1, cost=0.1, applied_action=0.5 * decision.action, throttled=True)
    elif lose == "nothing applied":
        study.tell(decision.id, reward=0.0, cost=0.0, applied_action=0.0)
    else:
        study.tell(decision.id, reward=0.0, cost=0.0)
        study.void(decision.id, reason="felt ill")
    held = study.ask([0.1, 0.2, 0.3])
    assert (held.guarantee, held.action, held.limit, held.certificate["lost_rounds"]) == (
        "declared",
        0.05,
        "open_rounds",
        1,
    )
    with pytest.raises(InvalidInput, match="nothing to resume"):
        study.resume("go on")
    study.resume("a new start", forget=True, unrelated=unrelated)
    study.tell(held.id, reward=0.0, cost=0.01)  # from before: it teaches nothing
    assert study.status()["informative_rounds"] == 0
    again = play(study, 6, seed=1)
    assert again.guarantee == ("student" if unrelated else "declared")
    assert again.certificate["model"]["informative_rounds"] == 5
    assert ("earlier rounds were forgotten, and nobody vouched" in study.explain(again.id)) == (not unrelated)
    assert "Started again without the earlier rounds on" in study.explain(again.id)
    assert study.verify().ok


def test_a_round_that_is_late_holds_the_start_dose_and_an_expired_one_may_still_come(shelf):
    study = make(shelf)
    play(study, 12)
    late = study.ask([0.1, 0.2, 0.3])
    assert (study.ask([0.1, 0.2, 0.3]).limit, study.status()["open"]) == ("open_rounds", 2)
    waiting = study.ask([0.4, 0.2, 0.3])
    assert "2 rounds that this decision needs are still open (lag 0)" in waiting.explain()
    study.expire([late.id], reason="three weeks")
    assert study.ask([0.1, 0.2, 0.3]).limit == "open_rounds"
    study.tell(late.id, reward=0.0, cost=0.0)
    for seq in (26, 27, 30):
        study.void(id_at(study, seq) if seq != 30 else study.ask([1.0, 0.0, 0.0]).id, reason="test", unrelated=True)
    assert study.verify().ok


def test_rounds_without_a_dose_by_the_baseline_or_a_mask_are_left_out(shelf):
    mask = {"caps": [{"name": "too young", "when": {"0": {"max": -2.0}}, "limit": 0}]}
    study = make(shelf, guard=mask)
    play(study, 12)
    assert study.ask([0.1, 0.2, 0.3], baseline_cost=0.7).action == 0.0
    assert study.ask([-3.0, 0.2, 0.3]).action == 0.0
    assert study.ask([0.1, 0.2, 0.3]).guarantee == "student"
    assert study.verify().ok


@pytest.mark.parametrize("guarantee", ["per_round", "anytime"])
def test_a_pause_without_doses_ends_with_a_new_start_and_harms_no_anytime_guarantee(shelf, guarantee):
    fields = {"dim": 3, **RISKS, "start_action": 0.05, "fallback_action": 0.0, "guard": {"stop": {"decisions": 50}}}
    study = create_study("paused", fields | {"policy": {"name": "hp_student", "guarantee": guarantee}}, storage=shelf)
    play(study, 50)
    assert (study.ask([0.1, 0.2, 0.3]).action, study.status()["stop_reason"]) == (0.0, "stop_rule")
    study.resume("looked at it")
    held = study.ask([0.1, 0.2, 0.3])
    found = held.guarantee, held.certificate["lost_rounds"]
    assert found == (("student", 0) if guarantee == "anytime" else ("declared", 1))
    assert study.verify().ok


def test_costs_that_rise_stop_the_study_and_a_person_resumes_it(shelf):
    study = make(shelf)
    play(study, 60)
    while not study.status()["stop_reason"]:
        play(study, 1, seed=study.status()["seq"], rise=1.0)
    assert study.status()["stop_reason"] == "student_drift"
    stopped = study.ask([0.1, 0.2, 0.3])
    assert (stopped.guarantee, stopped.action, stopped.limit) == ("none", 0.05, "student_drift")
    study.resume("a new batch")
    assert study.status()["evidence"] == 1.0
    assert study.verify().ok


def test_imported_rounds_count_and_the_anytime_guarantee_has_its_own_alarm(shelf):
    study = make(shelf, guarantee="anytime", mixture_ridge=3.0)
    rng = np.random.default_rng(5)
    rows = [
        dict(zip(("x0", "x1", "x2"), x.tolist(), strict=True))
        | {"action": 0.1, "reward": 0.0, "cost": 0.1 * float(x @ COEF + 0.2 * rng.standard_normal())}
        for x in rng.standard_normal((80, 3))
    ]
    study.import_history(rows)
    first = study.ask([0.1, 0.2, 0.3])
    assert (first.guarantee, first.certificate["model"]["informative_rounds"]) == ("student", 80)
    study.tell(first.id, reward=0.0, cost=0.0)
    for number in range(8):
        decision = study.ask([0.1, 0.2, 0.3])
        study.tell(decision.id, reward=0.0, cost=9.0**number * decision.intensity)
    assert study.status()["stop_reason"] == "alarm"
    study.resume("found it")
    assert study.status()["evidence"] == 1.0
    assert study.verify().ok


def test_a_log_of_another_processor_agrees_up_to_rounding_and_a_changed_one_does_not(shelf):
    study = make(shelf)
    last = play(study, 61)
    with study.store.engine.connect() as connection:
        state = replay(Source(connection, study._id, "trial"), study.spec, last.seq - 1, stored=())
    asked, raw = question_of(state, last.body), last.body["context"]
    again = body_of(decide_next(state, asked, raw)[0], raw, state, noted_in(last.body))
    assert last.body["numbers"]["cost"] != 0.0
    for share, agrees in ((1e-13, True), (1e-4, False)):
        body = json.loads(json.dumps(last.body))
        body["numbers"]["cost"] *= 1.0 + share
        assert Agreement().on_decision(state, asked, again, body) == agrees


def test_what_has_no_proof_is_refused(shelf):
    with pytest.raises(InvalidInput, match="which rounds get none must not depend on outcomes"):
        create_study("one", {"dim": 3, **RISKS, "start_action": 0.5, "dial": {"levels": [0, 0.5, 1]}}, storage=shelf)
    with pytest.raises(InvalidInput, match="start_action"):
        create_study("one", {"dim": 3, **RISKS}, storage=shelf)
    with pytest.raises(StudyError):
        open_study("one", storage=shelf)
