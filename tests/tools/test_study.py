"""A study is evaluated with its delays, voids, overrides, alarms and coins: its own policy repeats it."""

from dataclasses import replace

import numpy as np
import pytest

from safedial import InvalidInput, Study, evaluate
from tests.policies.own_linear import MyThompson
from tests.tools.test_reproduction import CONSTANTS, SPEC, rounds_of

STUDIES = {
    "hp_probe": {"policy": "hp_probe"},
    "hp_ucb": {"policy": "hp_ucb"},
    "hp_conformal": {"policy": "hp_conformal", "guarantee": "conformal", "start_action": 0.1},
    "hp_student": {"policy": "hp_student", "guarantee": "student", "start_action": 0.1, "lag": 5},
    "hp_shield": {"base": "proposal", "growth": {"growth": "relative", "low": 0.7, "high": 1.4, "floor": 0.05},
                  "start_scale": 0.05, "guarantee": "bracket"},
}  # fmt: skip


def made(name, folder, **more):
    fields = {
        "dim": 3,
        "threshold": 0.5,
        "violation_risk": 0.15,
        "fallback_action": 0.0,
        **STUDIES.get(name, {}),
        **more,
    }
    if fields.get("guarantee") != "bracket":
        fields |= CONSTANTS
    if "guarantee" not in fields:
        fields["estimation_risk"] = 0.05
    return Study.create("trial", fields, storage=f"sqlite:///{folder}/trial.db")


def run(study, count, *, seed=0, lag=3, odd=True, scale=1.0):
    """Rounds with late outcomes and, if `odd`, an override, voids, an expiry and a withheld dose."""
    contexts, rewards, costs = rounds_of(count, seed)
    proposes = study.spec.rules.policy.options.get("base") == "proposal"
    waiting = []

    def tell(place, decision):
        kind = place % 17 if odd and decision.action > 0.0 else 0  # without a dose no outcome is waited for
        if kind == 5:
            study.void(decision.id, reason="wrong sample", unrelated=True)
        elif kind == 9:
            study.expire([decision.id], reason="lost in the post", unrelated=True)
        elif decision.action > 0.0:
            withheld = kind == 13 and study.spec.rules.policy.name != "hp_student"
            applied = 0.7 * decision.action if kind == 3 else 0.0 if withheld else decision.action
            values = {"reward": applied * rewards[place], "cost": applied * scale * costs[place]}
            study.tell(decision.id, **values, applied_action=applied, unrelated=withheld)

    for place, context in enumerate(contexts):
        asked = {"proposal": 0.8} if proposes else {}
        waiting.append((place, study.ask(context, unit=f"p{place % 4}", visit=f"{seed}.{place}", **asked)))
        if len(waiting) > lag and (place % 2 or lag == 0):
            for index in (1, 0)[-len(waiting) :]:
                tell(*waiting.pop(index))
        if place % 10 == 9 and study.status()["stop_reason"]:
            study.resume("a person looked")
    return study


def agrees(found, study):
    rows = [row for row in study.rows() if row["round"] is not None]
    np.testing.assert_allclose(found.played.advised, [row["action"] for row in rows], rtol=0, atol=1e-12)
    assert found.scores.over.tolist() == [bool(row["violated"]) for row in rows]


@pytest.mark.parametrize("name", STUDIES)
def test_a_studys_own_policy_repeats_it(name, tmp_path):
    study = run(made(name, tmp_path, violation_risk=0.3), 50)
    (found,) = evaluate(study).policies
    assert np.unique(found.played.advised).size > 2
    agrees(found, study)
    study.export(tmp_path / "trial.jsonl")
    (read,) = evaluate(tmp_path / "trial.jsonl", study.spec.rules.policy.name).policies
    np.testing.assert_array_equal(read.played.advised, found.played.advised)
    study.store.close()


def test_alarms_and_resumes_of_a_study_are_repeated(tmp_path):
    study = run(made("hp_probe", tmp_path, violation_risk=0.01, estimation_risk=0.01), 40, odd=False, scale=5.0)
    assert study.status()["resumes"] > 0
    (found,) = evaluate(study).policies
    assert found.played.stop_reason
    assert found.scores.over.sum() > 2
    agrees(found, study)
    study.store.close()


def test_the_coins_of_a_study_are_those_of_its_log(tmp_path):
    study = Study.create(
        "trial", SPEC, dim=3, policy=MyThompson(), storage=f"sqlite:///{tmp_path}/trial.db", fallback_action=0
    )
    run(study, 40)
    (found,) = evaluate(study).policies
    agrees(found, study)
    study.store.close()


def test_another_policy_does_on_a_study_what_its_own_study_would_have_done(tmp_path):
    (tmp_path / "other").mkdir()
    study, other = made("hp_probe", tmp_path), made("hp_ucb", tmp_path / "other")
    run(study, 40, odd=False)
    run(other, 40, odd=False)
    (found,) = evaluate(study, "hp_ucb").policies
    rows = list(other.rows())
    np.testing.assert_allclose(found.played.advised, [row["action"] for row in rows], rtol=0, atol=1e-9)
    known = found.known & (found.played.advised > 0)
    assert known.sum() > 30
    assert [bool(row["violated"]) for row, told in zip(rows, known, strict=True) if told] == found.scores.over[
        known
    ].tolist()
    study.store.close(), other.store.close()


def test_a_corrected_outcome_counts_as_it_stands_and_is_a_doubt(tmp_path):
    study = made("hp_probe", tmp_path)
    first, second = study.ask([0.5, 0.1, 0.1]), study.ask([0.2, 0.1, 0.1])
    study.tell(first.id, reward=0.1, cost=0.9)
    study.tell(second.id, reward=0.1, cost=0.1)
    study.correct(first.id, cost=0.1, reason="typing error")
    found = evaluate(study)
    assert found.table()[1]["violations"] == 0
    assert [(each.name, each.rounds) for each in found.doubts] == [("corrections", 1)]
    study.store.close()


def test_an_export_as_csv_is_read_with_its_units_and_a_spec(tmp_path):
    study = run(made("hp_probe", tmp_path), 40, lag=0)
    study.export(tmp_path / "trial.csv")
    spec = study.spec.rules.spec
    found = evaluate(tmp_path / "trial.csv", "hp_probe", spec=spec)
    agrees(found.policies[0], study)
    assert {row["group"] for row in found.groups() if row["column"] == "unit"} == {"p0", "p1", "p2", "p3"}
    assert "visit" in found.rows(exceeding=False)[0]
    study.store.close()


def test_options_that_an_export_as_csv_does_not_have_are_named_where_they_matter(tmp_path):
    """A study that stated other options than the rule would choose."""
    stated_options = {"name": "hp_probe", "radius": "mixture"}
    study = run(made("", tmp_path, policy=stated_options, ridge=1.0, violation_risk=0.3), 50, lag=0)
    study.export(tmp_path / "trial.csv")
    stated = study.spec.rules.spec
    found = evaluate(tmp_path / "trial.csv", "hp_probe", spec=replace(stated, ridge=None))
    (doubt,) = [each for each in found.doubts if each.name == "options of the study"]
    assert "state what you left open" in doubt.words
    found = evaluate(tmp_path / "trial.csv", stated_options, spec=stated)
    agrees(found.policies[0], study)
    assert "options of the study" not in [each.name for each in found.doubts]
    study.store.close()


def test_an_amended_study_is_followed_by_its_own_policy_if_its_rounds_have_one_measure(tmp_path):
    study = run(made("hp_probe", tmp_path), 14, odd=False)
    study.amend(changes={"violation_risk": 0.05}, reason="a lower risk")
    run(study, 14, seed=1, odd=False)
    found = evaluate(study)
    agrees(found.policies[0], study)
    study.export(tmp_path / "trial.jsonl")
    (read,) = evaluate(tmp_path / "trial.jsonl").policies
    np.testing.assert_array_equal(read.played.advised, found.policies[0].played.advised)
    assert [each.rounds for each in evaluate(study, "hp_ucb").doubts if each.name == "amendments"] == [14]
    study.amend(changes={"threshold": 0.4}, reason="a lower threshold")
    with pytest.raises(InvalidInput, match=r"threshold = 0\.4: was amended.* own \(spec=\.\.\., --spec FILE\)"):
        evaluate(study)
    study.store.close()


def test_several_costs_of_which_one_is_missing_are_repeated(tmp_path):
    costs = {"a": {"threshold": 0.5, "noise": 0.3}, "b": {"threshold": 0.2, "noise": 0.3}}
    fields = {"dim": 3, "costs": costs, "violation_risk": 0.3, "estimation_risk": 0.1, "fallback_action": 0.0}
    fields |= {name: value for name, value in CONSTANTS.items() if name != "cost_noise"}
    study = Study.create("trial", fields, storage=f"sqlite:///{tmp_path}/trial.db")
    for place, (context, reward, cost) in enumerate(zip(*rounds_of(20), strict=True)):
        decision = study.ask(context)
        harm = {"a": decision.action * cost, "b": None if place == 9 else decision.action * cost}
        study.tell(decision.id, reward=decision.action * reward, cost=harm)
    found = evaluate(study)
    agrees(found.policies[0], study)
    assert [(each.name, each.rounds) for each in found.doubts] == [("unknown outcomes", 1)]
    study.export(tmp_path / "trial.csv")
    (read,) = evaluate(tmp_path / "trial.csv", "hp_probe", spec=study.spec.rules.spec).policies
    np.testing.assert_allclose(read.played.advised, found.policies[0].played.advised, rtol=0, atol=1e-12)
    study.store.close()


def test_a_void_hides_no_excess_and_is_not_learned_from(tmp_path):
    study = made("hp_ucb", tmp_path)
    for place, (context, reward, _) in enumerate(zip(*rounds_of(10), strict=True)):
        decision = study.ask(context)
        study.tell(decision.id, reward=decision.action * reward, cost=9.0 if place in (2, 6) else 0.1)
        if place in (2, 6, 8):
            study.void(decision.id, reason="wrong tube", unrelated=place == 2)
        if study.status()["stop_reason"]:
            study.resume("a person looked")
    found = evaluate(study)
    agrees(found.policies[0], study)
    for row in found.table():
        assert (row["rounds"], row["violations"], row["unknown"]) == (9, study.status()["violations"], 1)
    assert [row["logged_cost"] for row in found.rows()] == [9.0, 9.0]
    assert ("void rounds that exceeded", 2) in [(each.name, each.rounds) for each in found.doubts]
    assert found.policies[0].outcomes.told(2, found.policies[0].played.advised[2]) is None
    study.export(tmp_path / "trial.csv")
    assert evaluate(tmp_path / "trial.csv", "fixed", spec=SPEC).table()[0]["violations"] == 2
    study.store.close()
