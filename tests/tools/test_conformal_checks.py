"""Logs of a conformal spec: what is checked, what is watched, and what is only counted."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, InvalidInput, LinearWorld, SafetySpec, check_log, make_policy, watch_log
from safedial.rounds.log_file import Log
from safedial.simulation.results import simulated_log
from safedial.tools.checks import CHECKS
from safedial.tools.checks_page import draw_monitor, write_checks
from safedial.tools.rank_checks import BETS, NOT_APPLICABLE
from tests.conftest import make_spec
from tests.program import run

SPEC = SafetySpec(threshold=0.5, violation_risk=0.05, guarantee="conformal")
POLICY = make_policy("hp_conformal", start_dose=0.05)
TOML = """
[spec]
threshold = 0.5
violation_risk = 0.05
guarantee = "conformal"
[world]
dim = 3
[[policy]]
name = "hp_conformal"
probe = 1.0
"""


def played(rounds=400, seed=0, **world):
    spec = make_spec(violation_risk=0.05)
    return simulated_log(POLICY, LinearWorld(dim=3, **world), spec, rounds=rounds, seed=seed)


def logged(costs, seed=0, action=0.1):
    """A log of standard contexts with these costs per unit of intensity."""
    rng, count = np.random.default_rng(seed), len(costs)
    context = np.column_stack([rng.standard_normal((count, 2)), np.ones(count)])
    action = np.full(count, action)
    return Log(
        names=("age", "weight", "one"), context=context, action=action, reward=action, cost=action * costs,
        round=np.arange(1.0, count + 1), advised=action, baseline_cost=np.zeros(count),
    )  # fmt: skip


def found(log, **options):
    return {each.name: each for each in check_log(log, SPEC, **options)[1]}


def test_the_checks_of_a_conformal_spec_need_no_constants_and_name_those_that_do():
    told = found(played())
    assert [name for name, each in told.items() if each.flagged] == []
    assert [name for name, each in told.items() if each.evidence is not None] == [
        "exchangeability", "contexts", "carry_over"
    ]  # fmt: skip
    assert {name for name, each in told.items() if each.word == "not applicable"} == set(NOT_APPLICABLE)
    assert set(CHECKS) <= set(told), "each check of a certified spec is run, or listed with the reason"
    assert "No noise constant" in told["tails"].means
    assert told["start"].details["start_rounds"] >= 38
    assert "in bands of the intensity" in told["dose_curve"].found
    json.dumps([each.to_dict() for each in told.values()])


@pytest.mark.slow
def test_false_flags_are_as_rare_as_stated(count):
    """At most one log in five at level 0.2; this test's own false-alarm level is 1e-6."""
    runs, rng = count(60, 300), np.random.default_rng(0)
    logs = (logged(rng.standard_t(3, 160), seed) for seed in range(runs))
    flagged = sum(any(each.flagged for each in check_log(log, SPEC, level=0.2)[1]) for log in logs)
    assert binomtest(flagged, runs, 0.2, alternative="greater").pvalue > 1e-6


def test_costs_that_rise_with_time_are_caught_and_the_monitor_says_when():
    rng = np.random.default_rng(1)
    costs = rng.random(600) + np.where(np.arange(600) < 300, 0.0, 2.0)
    told = found(logged(costs))
    assert told["exchangeability"].flagged
    watch = watch_log(logged(costs), SPEC)
    assert 300 < watch.alarm_round < 340
    assert f"ALARM at round {watch.alarm_round}" in watch.verdict()


def test_contexts_that_drift_are_caught_by_the_feature_that_does():
    log = logged(np.random.default_rng(0).random(300))
    drifting = log.context.copy()
    drifting[:, 1] += np.linspace(0.0, 3.0, 300)
    told = found(replace(log, context=drifting))
    assert told["contexts"].flagged
    assert told["contexts"].details["feature"] == "weight"
    assert not told["exchangeability"].flagged
    same = replace(log, context=np.ones((300, 3)))
    assert found(same)["contexts"].evidence == 1.0


def test_carry_over_is_caught_where_the_drift_test_sees_nothing():
    """Each cost keeps most of the one before; its distribution does not change."""
    rng, costs = np.random.default_rng(2), np.zeros(500)
    for index in range(1, 500):
        costs[index] = 0.8 * costs[index - 1] + 0.6 * rng.standard_normal()
    told = found(logged(3.0 + costs))
    assert told["carry_over"].flagged
    assert told["carry_over"].details["same_side"] > 0.7


def test_costs_without_information_raise_a_flag_with_the_way_out():
    costs = np.where(np.random.default_rng(0).random(200) < 0.6, 0.0, 1.0 + np.random.default_rng(1).random(200))
    told = found(logged(costs))["information"]
    assert told.flagged
    assert told.details["cost"] == 0.0
    assert "not its excess over a limit" in told.means
    assert found(logged(costs))["start"].details["start_rounds"] == 200


def test_the_monitor_is_that_of_an_agent_and_excesses_are_counted_not_bet_on():
    rng = np.random.default_rng(3)
    agent = Agent(2, SPEC, start_action=0.05, policy=make_policy("hp_conformal", probe=1.0))
    rows = []
    for _ in range(300):
        context = rng.standard_normal(2)
        decision = agent.ask(context)
        gain, harm = decision.intensity * (context + rng.standard_normal(2))
        rows.append((*context, decision.action, gain, harm))
        agent.tell(decision, reward=gain, cost=harm)
    table = np.array(rows)
    log = Log(
        names=("a", "b"), context=table[:, :2], action=table[:, 2], reward=table[:, 3], cost=table[:, 4],
        round=np.arange(1.0, 301.0), advised=table[:, 2], baseline_cost=np.zeros(300),
    )  # fmt: skip
    watch = watch_log(log, SPEC)
    assert watch.evidence[-1] == pytest.approx(agent.evidence, rel=1e-6)
    assert watch.violations == agent.violations
    assert watch.start_rounds == agent.ask([0.0, 0.0]).certificate["start_rounds"]
    told = watch.to_dict()
    low, high = binomtest(watch.violations, 300).proportion_ci(0.95, method="exact")
    assert (told["violation_rate_low"], told["violation_rate_high"]) == (pytest.approx(low), pytest.approx(high))
    assert "The rate alone is no evidence: the guarantee is an average" in watch.verdict()
    assert "No alarm" in watch.verdict()


def test_many_excesses_without_a_drift_are_no_alarm():
    """Half of all costs exceed the threshold, from the first round to the last: exchangeable, and counted."""
    watch = watch_log(logged(10.0 * np.random.default_rng(0).random(400)), SPEC)
    assert watch.alarm_round is None
    assert watch.to_dict()["violation_rate_low"] > 0.4
    none = watch_log(logged(np.random.default_rng(0).random(60)), SPEC)
    assert none.interval[0] == 0.0
    assert watch_log(logged(9.0 + np.random.default_rng(0).random(60)), SPEC).interval[1] == 1.0


def test_rounds_without_a_dose_or_above_the_advice_do_not_count():
    log = logged(np.random.default_rng(0).random(100))
    action, advised = log.action.copy(), log.advised.copy()
    action[:10], advised[20:25] = 0.0, 0.05
    watch = watch_log(replace(log, action=action, advised=advised), SPEC)
    assert watch.left_out == 15
    assert found(replace(log, action=action))["start"].details["unknown"] == 10


def test_a_group_is_walked_through_by_its_features_name():
    log = logged(np.random.default_rng(0).random(200))
    context = log.context.copy()
    context[:, 0] = np.arange(200) // 2 % 2
    log = replace(log, context=context)
    policy = {"name": "hp_conformal", "group": "age", "start_dose": 0.05, "reach": 3.0}
    both, one = (watch_log(log, SPEC, policy=each).start_rounds for each in (policy, None))
    assert both > one, "each group needs rounds of its own"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"policy": {"name": "hp_probe"}}, "hp_probe"),
        ({"policy": {"name": "hp_conformal", "group": "height"}}, "height"),
        ({"target": "reward"}, "target"),
        ({"level": 2.0}, "level"),
    ],
)
def test_what_cannot_be_checked_is_said(options, named):
    with pytest.raises(InvalidInput, match=named):
        check_log(logged(np.random.default_rng(0).random(60)), SPEC, **options)


def test_a_log_that_covers_or_ranks_nothing_is_refused():
    log = logged(np.random.default_rng(0).random(60))
    with pytest.raises(InvalidInput, match="no round that the guarantee covers"):
        watch_log(replace(log, advised=np.zeros(60)), SPEC)
    late = {"name": "hp_conformal", "lag": 100}
    with pytest.raises(InvalidInput, match="no calibration round"):
        watch_log(log, SPEC, policy=late)
    with pytest.raises(InvalidInput, match="not finite"):
        watch_log(replace(log, cost=np.full(60, 1e308), action=np.full(60, 0.01)), SPEC)
    assert found(log, policy=late)["information"].details["known"] == 0


def test_the_page_and_the_picture(tmp_path):
    log = played(120)
    rounds, findings = check_log(log, SPEC)
    page = write_checks(tmp_path / "page.html", rounds, findings, log="log.csv", level=0.05).read_text()
    assert page.count("For the guarantee:") == BETS + 3 + len(NOT_APPLICABLE)
    assert "on average over calibration rounds" in page
    assert draw_monitor(watch_log(log, SPEC), tmp_path / "watch.png").read_bytes().startswith(b"\x89PNG")


def test_the_commands_take_a_conformal_spec(tmp_path):
    (tmp_path / "spec.toml").write_text(TOML)
    rng = np.random.default_rng(0)
    rows = ["a,b,c,action,reward,cost"]
    for _ in range(160):
        context = rng.standard_normal(3)
        rows.append(",".join(f"{value:.6g}" for value in (*context, 0.1, 0.1, 0.1 * rng.random())))
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    done = run("check", "log.csv", "--spec", "spec.toml", "--out", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "not applicable" in done.stdout
    assert "Carry-over" in done.stdout
    done = run("monitor", "log.csv", "--spec", "spec.toml", "--out", "watch.png", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["alarm_round"] is None
    assert (
        "no evidence: the guarantee is an average"
        in run("monitor", "log.csv", "--spec", "spec.toml", cwd=tmp_path).stdout
    )
