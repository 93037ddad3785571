"""Amendments: each part of a log is judged by its own rules, and the later part is as a study of its own."""

import csv
import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from safedial import Agent, InvalidInput, SafetySpec, growth
from safedial.study import transaction
from safedial.study.amendment import amended_spec, keeps_learning, new_fields
from safedial.study.event import canonical, next_event
from safedial.study.log import read_snapshot, snapshot_seqs
from safedial.study.manage import create_study, open_study
from safedial.study.replay_log import Source, replay
from safedial.study.snapshot import pack, unpack
from safedial.study.store import Store
from safedial.study.study_errors import StudyError
from safedial.study.study_spec import read_spec
from safedial.study.verify import verify_log, verify_study
from tests.policies.own_linear import MyProbe
from tests.study.conftest import SPEC

WORDS = {"reason": "the laboratory changed its method", "actor": "Dr. Lee"}
SHIELD = {
    "dim": 2,
    "threshold": 1.0,
    "violation_risk": 0.2,
    "guarantee": "bracket",
    "policy": {"name": "hp_shield", "base": "proposal", "growth": growth.relative(0.7, 1.4, floor=0.5).to_dict()},
    "start_action": 0.2,
}
SEVERAL = {
    **{name: value for name, value in SPEC.items() if name not in ("threshold", "cost_noise")},
    "costs": {"heat": {"threshold": 0.5, "noise": 0.3}, "wear": {"threshold": 0.8, "noise": 0.2}},
}
AFTER = {
    "noise": {**SPEC, "cost_noise": 0.2},
    "joint": {**SPEC, "guarantee": "joint", "threshold": 0.6},
    "policy": {**SPEC, "policy": "hp_ucb", "learning_order": "arrival"},
    "dial": {**SPEC, "dial": {"high": 20.0, "unit": "mg"}},
    "bracket": SHIELD,
    "costs": SEVERAL,
}


@pytest.fixture(autouse=True)
def quiet(recwarn):
    """Studies without a fallback warn that they would advise nothing; it is not the matter here."""


def outcome(study, number, share):
    """A reproducible outcome of a decision at a share of the dial, in the form that the study takes."""
    rng = np.random.default_rng(number)
    cost = share * (0.2 + 0.1 * rng.standard_normal())
    costs = study.spec.rules.spec.costs
    return {"reward": 0.3 * share, "cost": cost if costs is None else dict.fromkeys(costs, cost)}


def contexts(count, seed=0):
    return np.random.default_rng(seed).uniform(-0.6, 0.6, (count, 2)).tolist()


def live(study, rounds, start=0):
    """Ask and tell; the decisions."""
    made = []
    for number, context in enumerate(rounds, start):
        proposes = study.spec.rules.policy.name == "hp_shield"
        made.append(study.ask(context, proposal=0.4 if proposes else None))
        high = study.spec.rules.dial.high
        study.tell(made[-1].id, **outcome(study, number, made[-1].action / high))
    return made


@pytest.mark.parametrize("kind", AFTER)
def test_an_amended_study_advises_as_two_studies_cut_at_the_amendment(lite, kind):
    """Late outcomes and corrections of the first part arrive during the second and change nothing in it."""
    earlier = create_study("earlier", SPEC, storage=lite.store)
    later = create_study("later", AFTER[kind], storage=lite.store)
    rounds = contexts(24)
    both = [(live(study, rounds[:10]), study.ask(rounds[10])) for study in (lite, earlier)]
    lite.amend(AFTER[kind], keep_learning=False, **WORDS)
    assert [each.action for each in both[0][0]] == [each.action for each in both[1][0]]
    for number in range(11, 24):
        ours, theirs = (live(study, rounds[number : number + 1], number)[0] for study in (lite, later))
        assert (ours.action, ours.safe_action, ours.guarantee) == (theirs.action, theirs.safe_action, theirs.guarantee)
        assert ours.decision.round == theirs.decision.round == number - 10
        if number in (14, 17):
            for study, (made, late) in zip((lite, earlier), both, strict=True):
                if number == 14:
                    study.tell(late.id, reward=0.1, cost=0.2)
                    study.correct(made[3].id, cost=0.05, reason="typing error")
                else:
                    study.correct(made[4].id, applied_action=0.5 * made[4].action, reason="typing error")
                    study.void(made[5].id, reason="wrong patient", unrelated=True)
    told, cut = lite.status(), (earlier.status(), later.status())
    for name in ("decisions", "outcomes", "violations", "open", "void", "unwatched"):
        assert told[name] == cut[0][name] + cut[1][name], name
    assert (told["evidence"], told["informative_rounds"]) == (cut[1]["evidence"], cut[1]["informative_rounds"])
    assert (told["amendments"], told["since_round"]) == (1, 12)
    assert lite.verify().ok
    assert lite.verify().inexact == 0
    first, second = (list(study.rows()) for study in (earlier, later))
    same = ("action", "violated", "status", "round", "reward", *(name for name in first[0] if "cost" in name))
    for row, cut in zip(lite.rows(), [*first, *second], strict=True):
        assert {name: row.get(name) for name in same} == {name: cut.get(name) for name in same}
        assert row["phase"] == 1 + (row["seq"] > lite.spec.since)


@pytest.mark.parametrize("guarantee", ["certified", "joint"])
def test_kept_learning_advises_as_an_agent_that_has_the_new_threshold_and_all_rounds(lite, guarantee):
    """An outcome from before the amendment that is open holds up the learning after it, as without an amendment."""
    study = create_study("kept", {**SPEC, "guarantee": guarantee}, storage=lite.store)
    spec = {name: value for name, value in SPEC.items() if name != "dim"} | {"guarantee": guarantee, "threshold": 0.7}
    seen = []

    def expected(context):
        agent = Agent(2, SafetySpec(**spec))
        for each, _, _ in seen:
            agent.ask(each)
        for number, (each, action, given) in enumerate(seen, 1):
            if given is None:
                break
            agent.tell(each, action, given["reward"], given["cost"], round=number)
        return agent.preview(context)

    for number, context in enumerate(contexts(24)):
        decision = study.ask(context)
        if number > 10:
            other = expected(context)
            assert (decision.action, decision.decision.round) == (other.action, other.round)
        seen.append([context, decision.action, None if number == 9 else outcome(study, number, decision.action)])
        if number == 9:
            late = decision
        else:
            study.tell(decision.id, **seen[-1][2])
        if number == 10:
            study.amend(changes={"threshold": 0.7}, keep_learning=True, **WORDS)
        elif number == 17:
            study.tell(late.id, **outcome(study, 9, late.action))
            seen[9][2] = outcome(study, 9, late.action)
    facts = decision.certificate
    assert study.status()["informative_rounds"] == 24
    assert any("from before the amendment" in words for words in facts["assumptions"])
    assert facts["amended"][0]["keep_learning"] is True
    assert study.verify().ok


CONFORMAL = {"dim": 2, "guarantee": "conformal", "threshold": 0.5, "violation_risk": 0.2, "start_action": 0.3}
KEPT = {
    "certified": SPEC,
    "several": SEVERAL,
    "conformal": CONFORMAL,
    "student": {**CONFORMAL, "guarantee": "student"},
    "bracket": SHIELD,
}


@pytest.mark.parametrize("kind", KEPT)
def test_other_limits_of_the_guard_change_no_advice(lite, kind):
    """What was learned is kept, whatever learns: the study advises as one that was never amended."""
    ours, theirs = (create_study(name, KEPT[kind], storage=lite.store) for name in ("ours", "theirs"))
    rounds = contexts(16)
    for study in (ours, theirs):
        live(study, rounds[:8])
    late = [study.ask(rounds[8], proposal=0.4 if kind == "bracket" else None) for study in (ours, theirs)]
    ours.amend(changes={"guard": {"max_open": 99, "max_void": 3}}, keep_learning=True, **WORDS)
    made = [live(study, rounds[9:12], 9) for study in (ours, theirs)]
    for study, decision in zip((ours, theirs), late, strict=True):
        study.tell(decision.id, **outcome(study, 8, decision.action))
    state = ours._run(lambda transaction: transaction.state)
    assert pack(unpack(ours.spec, pack(state))) == pack(state)
    for each, study in zip(made, (ours, theirs), strict=True):
        each += live(study, rounds[12:], 12)
    for one, other in zip(*made, strict=True):
        assert (one.action, one.safe_action, one.guarantee) == (other.action, other.safe_action, other.guarantee)
        assert (one.decision.round, one.decision.found) == (other.decision.round, other.decision.found)
    assert ours.verify().ok


def test_certificates_say_what_was_amended_and_earlier_ones_stay_as_they_are(lite):
    early = live(lite, contexts(3))[-1]
    before, words = early.certificate, str(early.explain())
    receipt = lite.amend(changes={"cost_noise": 0.2, "guard": {"max_open": 50}}, **WORDS)
    lite.amend(changes={"threshold": 0.6}, **WORDS)
    late = live(lite, contexts(2, seed=1))[-1]
    assert (lite.decision(early.id).certificate, str(lite.decision(early.id).explain())) == (before, words)
    facts = late.certificate
    assert [(each["from_round"], each["changed"], each["keep_learning"]) for each in facts["amended"]] == [
        (4, ["cost_noise", "guard"], False),
        (4, ["threshold"], True),
    ]
    assert facts["amended"][0]["seq"] == receipt.seq
    assert (facts["round"], lite.decision(late.id).certificate) == (2, facts)
    assert "Amended from round 4 of the study on" in late.explain()
    event = lite.events(receipt.seq, 1)["events"][0]
    assert (event["kind"], event["actor"], event["reason"]) == ("amended", WORDS["actor"], WORDS["reason"])
    assert (event["decision_id"], event["hash"], event["body"]["from_round"]) == (None, receipt.hash, 4)
    assert lite.spec.fields == event["body"]["spec"] | {"threshold": 0.6}
    assert lite.spec.fields["guard"]["max_unwatched"] == 0.25
    assert [each["decision_id"] for each in lite.trail(limit=2)] == [None, None]


def test_outcomes_from_before_an_amendment_still_stop_the_study(lite):
    open_ = [lite.ask(context) for context in contexts(12)]
    lite.amend(changes={"threshold": 20.0}, keep_learning=False, **WORDS)
    for each in open_:
        if not lite.status()["stop_reason"] and each.intensity > 0:
            lite.tell(each.id, reward=0.0, cost=10.0)
    assert lite.status()["stop_reason"] in ("alarm", "noise_broken")
    assert lite.status()["violations"] > 0
    assert lite.status()["evidence"] == 1.0
    alarm = lite.events(lite.status()["seq"], 1)["events"][0]
    assert alarm["kind"] == "alarm"
    while lite.status()["stop_reason"]:
        lite.resume("the old batch of sensors was at fault")
    assert lite.ask([0.1, 0.1]).decision.rules.spec.threshold == 20.0
    assert lite.verify().ok


def test_a_stopped_study_stays_stopped_until_it_is_resumed(lite):
    study = create_study("full", {**SPEC, "guard": {"max_open": 2}}, storage=lite.store)
    for context in contexts(3):
        study.ask(context)
    assert study.status()["stop_reason"] == "too_many_open"
    study.amend(changes={"guard": {"max_open": 4}}, **WORDS)
    assert study.status()["stop_reason"] == "too_many_open"
    study.resume("four are enough")
    assert study.ask([0.1, 0.2]).guarantee == "certified"
    assert study.status()["stop_reason"] == ""
    study.ask([0.1, 0.2])
    assert study.status()["stop_reason"] == "too_many_open"  # rounds before and after the amendment count together
    assert study.verify().ok


def test_a_lower_limit_on_open_outcomes_stops_the_study_at_once(lite):
    for context in contexts(3):
        lite.ask(context)
    receipt = lite.amend(changes={"guard": {"max_open": 2}}, **WORDS)
    assert lite.status()["stop_reason"] == "too_many_open"
    assert lite.status()["seq"] == receipt.seq + 1
    assert len(lite.waiting()) == lite.status()["open"] == 3
    assert lite.verify().ok


@pytest.mark.parametrize("corrected", [False, True])
def test_outcomes_above_the_threshold_count_on_in_the_stop_rule(lite, corrected):
    guard = {"stop": {"violations": 2, "of_last": 10}}
    study = create_study("strict", {**SPEC, "guard": guard}, storage=lite.store)
    first = study.ask([0.1] * SPEC["dim"])
    study.tell(first.id, reward=0.1, cost=SPEC["threshold"] + 0.01)
    study.amend(changes={"threshold": 2 * SPEC["threshold"]}, **WORDS)
    if corrected:
        study.correct(first.id, cost=0.1, reason="misread")
    study.tell(study.ask([0.1] * SPEC["dim"]).id, reward=0.1, cost=2 * SPEC["threshold"] + 0.01)
    assert study.status()["stop_reason"] == ("" if corrected else "stop_rule")
    assert study.verify().ok


def test_the_stop_rule_counts_on_and_rules_that_fired_before_are_resumed_there(lite):
    study = create_study("short", {**SPEC, "guard": {"stop": {"decisions": 3}}}, storage=lite.store)
    live(study, contexts(2))
    study.amend(changes={"guard": {"max_open": 9}}, **WORDS)
    live(study, contexts(1))
    assert study.status()["stop_reason"] == "stop_rule"
    study.amend(changes={"guard": {"stop": {"decisions": 5}}}, **WORDS)
    study.resume("five more")
    live(study, contexts(4))
    assert study.status()["stop_reason"] == ""
    live(study, contexts(1))
    assert study.status()["stop_reason"] == "stop_rule"
    assert study.verify().ok


@pytest.mark.parametrize("keep", [True, False])
def test_snapshots_restarts_and_replays_give_the_same_state(lite, keep, monkeypatch):
    monkeypatch.setattr(transaction, "SNAPSHOT_EVENTS", 15)
    made = live(lite, contexts(9))
    late = lite.ask([0.2, 0.1])
    lite.amend(changes={"threshold": 0.6}, keep_learning=keep, **WORDS)
    made += live(lite, contexts(9, seed=2))
    lite.amend(changes={"cost_noise": 0.25}, **WORDS)
    made += live(lite, contexts(9, seed=3))
    lite.correct(made[2].id, cost=0.01, reason="typing error")
    lite.correct(made[12].id, applied_action=0.9 * made[12].action, reason="typing error")
    lite.tell(late.id, reward=0.1, cost=0.1)
    lite.void(made[14].id, reason="wrong patient", unrelated=True)
    lite.amend(changes={"guard": {"stop": {"decisions": 5}}}, **WORDS)
    for seed in (4, 5):
        assert lite.status()["stop_reason"] == "stop_rule"
        lite.resume("five more")
        live(lite, contexts(5, seed=seed))
    report = lite.verify()
    assert (report.ok, report.inexact) == (True, 0), report
    state = lite._run(lambda transaction: transaction.state)
    assert pack(unpack(lite.spec, pack(state))) == pack(state)
    with lite.store.engine.connect() as connection:
        folded = replay(Source(connection, lite._id, "trial"), lite.spec, stored=())
        shots = snapshot_seqs(connection, lite._id)
        for seq, name in shots:  # as the parts of `verify` with several workers start
            start = unpack(lite.spec, read_snapshot(connection, lite._id, seq, name) or b"")
            assert verify_log(Source(connection, lite._id, "trial"), start=start).ok
    assert len(shots) > 2
    assert pack(folded) == pack(state)
    with Store(lite.store.storage) as store:
        again = open_study("trial", storage=store)
        assert again.state_digest() == lite.state_digest()
        assert again.ask([0.3, 0.3]).action == pytest.approx(lite.ask([0.3, 0.3]).action)
        assert again.spec.fields == lite.spec.fields


def test_another_process_learns_of_an_amendment_with_its_next_request(store):
    """It asks with a context that only the new specification allows, and reports by the rules of each decision."""
    ours = create_study("trial", SPEC, storage=store)
    with Store(store.storage) as elsewhere:
        theirs = open_study("trial", storage=elsewhere)
        early = theirs.ask([0.5, 0.5])
        with pytest.raises(InvalidInput, match="context"):
            theirs.ask([1.5, 1.5])
        ours.amend({**SEVERAL, "context_bound": 3.0}, **WORDS)
        late = theirs.ask([1.5, 1.5])
        assert len(late.certificate["amended"]) == 1
        theirs.tell(early.id, reward=0.1, cost=0.1)
        with pytest.raises(InvalidInput, match="cost"):
            theirs.tell(late.id, reward=0.1, cost=0.1)
        theirs.tell(late.id, reward=0.1, cost={"heat": 0.1, "wear": 0.1})
        theirs.correct(early.id, cost=0.2, reason="typing error")
        assert theirs.spec.fields == ours.spec.fields
        ours.amend(changes={"context_bound": 5.0}, **WORDS)
        last = ours.ask([3.0, 3.0])
        assert theirs.status()["amendments"] == 2
        assert theirs.spec.fields["context_bound"] == 5.0
        assert theirs.decision(last.id).certificate == ours.decision(last.id).certificate
        assert theirs.verify().ok


def test_an_export_has_the_thresholds_of_each_part(lite, tmp_path):
    live(lite, contexts(2))
    lite.amend(SEVERAL, **WORDS)
    live(lite, contexts(2))
    lite.export(tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["threshold"] for row in rows] == ["0.5", "0.5", "", ""]
    assert [row["threshold_heat"] for row in rows] == ["", "", "0.5", "0.5"]
    assert [row["phase"] for row in rows] == ["1", "1", "2", "2"]
    lite.export(tmp_path / "log.jsonl")
    assert '"kind": "amended"' in (tmp_path / "log.jsonl").read_text()
    lite.amend({**SPEC, "cost_noise": 0.2}, **WORDS)
    assert lite.ask([0.1, 0.1]).certificate["amended"][-1]["from_round"] == 5


def test_the_same_key_amends_once_even_after_another_amendment(lite):
    first = lite.amend(changes={"threshold": 0.6}, key="a", **WORDS)
    lite.amend(changes={"threshold": 0.7}, key="b", **WORDS)
    again = lite.amend(changes={"threshold": 0.6}, key="a", **WORDS)
    assert (again.created, again.seq, again.hash) == (False, first.seq, first.hash)
    assert lite.spec.fields["threshold"] == 0.7
    with pytest.raises(StudyError, match="another request"):
        lite.amend(changes={"threshold": 0.9}, key="a", **WORDS)
    assert lite.verify().ok


REFUSED = [
    ({"changes": {"threshold": 0.6}, "reason": " "}, "must state a reason"),
    ({"changes": {"threshold": 0.6}, "from_round": 2}, "must be the next round, 4: it is in the past"),
    ({"changes": {"threshold": 0.6}, "from_round": 9}, "must be the next round, 4: no later"),
    ({"changes": {"threshold": 0.6}, "from_round": True}, "must be a whole number"),
    ({"changes": {"threshhold": 0.6}}, "unknown names"),
    ({"changes": {"guard": {"max_opne": 3}}}, "unknown rules"),
    ({"changes": {"threshold": -1.0}}, "threshold"),
    ({"changes": {"dim": 3}}, "dim = 3: cannot be amended"),
    ({"changes": {"features": {"names": ["a", "b"]}}}, "features = .*: cannot be amended"),
    ({"changes": {}}, "changes nothing"),
    ({"spec": 3}, "must be an object"),
    ({"spec": {"threshold": 0.6}}, "lacks these fields"),
    ({"spec": SPEC, "changes": {"threshold": 0.6}}, "but not both"),
    ({"changes": {"cost_noise": 0.2}, "keep_learning": True}, "keep_learning = True: has no proof here: .*cost_noise"),
    ({"changes": {"threshold": 0.6}, "keep_learning": "yes"}, "must be True, False or left out"),
    ({"changes": {"fallback_action": 0.9}}, "upper half of the dial"),
    ({"changes": {"policy": "greedy"}}, "policy"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_an_amendment_that_is_refused_changes_nothing(lite, given, words):
    live(lite, contexts(3))
    before, digest = lite.status(), lite.state_digest()
    with pytest.raises(InvalidInput, match=words):
        lite.amend(**{**WORDS, **given})
    assert (lite.status(), lite.state_digest(), lite.spec.fields["threshold"]) == (before, digest, 0.5)


def test_a_spec_alone_replaces_the_guarantee_and_leaves_the_rest(lite):
    lite.amend(changes={"guard": {"max_open": 50}, "policy": "hp_ucb"}, **WORDS)
    guarantee = {name: value for name, value in SPEC.items() if name != "dim"} | {"threshold": 0.9}
    lite.amend(SafetySpec(**guarantee), **WORDS)
    fields = lite.spec.fields
    assert (fields["threshold"], fields["policy"]["name"], fields["guard"]["max_open"]) == (0.9, "hp_ucb", 50)
    with pytest.raises(InvalidInput, match="differs from the study's own"):
        create_study("trial", SPEC, storage=lite.store, load_if_exists=True)


def test_what_learning_rests_on_is_refused_for_each_learner():
    """Guard rules that only stop a study change nothing that any learner knows; caps do, for those that are judged by
    which rounds they see.
    """
    stops, caps = {"guard": {"max_open": 7}}, {"guard": {"max_step": 0.3}}
    certified, shield = read_spec(SPEC), read_spec(SHIELD, quiet=True)
    noisy = read_spec({**SPEC, **LEARNED_NOISE}, quiet=True)
    for spec, changes, kept in (
        (certified, stops, True),
        (certified, caps, True),
        (certified, {"threshold": 0.9}, True),
        (certified, {"violation_risk": 0.04}, False),
        (certified, {"ridge": 2.0}, False),
        (certified, {"dial": {"high": 3.0}}, False),
        (shield, stops, True),
        (shield, caps, False),
        (shield, {"threshold": 2.0}, False),
        (noisy, stops, True),
        (noisy, {"threshold": 0.9}, False),
    ):
        after = amended_spec(spec, new_fields(spec, changes, whole=False))
        assert keeps_learning(spec, after) is kept, changes
        if changes is not stops:
            assert keeps_learning(spec, after, False) is False
        else:
            with pytest.raises(InvalidInput, match=r"keep_learning = False: starts learning again, though nothing"):
                keeps_learning(spec, after, False)


def test_an_own_policy_is_refused():
    with pytest.raises(InvalidInput, match="is your own"):
        amended_spec(read_spec(SPEC), {**SPEC, "policy": MyProbe()})


LEARNED_NOISE = {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0, "margin_risk": 0.01}
FORGED = [{"keep_learning": True}, {"from_round": 1}, {"spec": SPEC}]


@pytest.mark.parametrize("part", FORGED, ids=["keep_learning", "from_round", "spec"])
def test_verify_recomputes_an_amendment(lite, part):
    """A forged amendment, with a right hash, is found at its event, whatever follows."""
    live(lite, contexts(3))
    receipt = lite.amend(changes={"cost_noise": 0.2}, **WORDS)
    storage = lite.store.storage
    lite.store.close()
    with closing(sqlite3.connect(storage.removeprefix("sqlite:///"))) as file:
        (before,) = file.execute("SELECT hash FROM events WHERE seq = ?", (receipt.seq - 1,)).fetchone()
        at, body = file.execute("SELECT at, body FROM events WHERE seq = ?", (receipt.seq,)).fetchone()
        forged = next_event(
            (receipt.seq - 1, before), "trial", "amended", json.loads(body) | part, decision=1, at=at, **WORDS
        )
        file.execute("UPDATE events SET body = ?, hash = ? WHERE seq = ?", (forged.body, forged.hash, receipt.seq))
        file.execute("UPDATE studies SET head_hash = ? WHERE name = 'trial'", (forged.hash,))
        file.commit()
    with Store(storage) as store:
        report = verify_study(store, "trial")
    assert (report.ok, report.first_bad) == (False, receipt.seq), canonical(report.to_dict())
