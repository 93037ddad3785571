"""The monitor over a log is the agent's own monitor; its two figures are within what is asked."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from benchmarks.checks_power import SPEC, played
from benchmarks.monitor_power import bench_monitor
from safedial import Agent, InvalidInput
from safedial.tools.checks import watch_log
from tests.conftest import make_spec


@pytest.mark.parametrize("changes", [
    {"guarantee": "joint"},
    {"cost_sensor_noise": 0.05},
    {"cost_sensor_noise": 0.05, "threshold_on": "true"},
])  # fmt: skip
def test_the_log_is_watched_as_an_agent_watches_itself(changes):
    spec = replace(SPEC, violation_risk=0.3, estimation_risk=0.1, **changes)
    log = played(1, 150, spec)
    agent = Agent(3, spec)
    for index in range(150):
        decision = agent.ask(log.context[index])
        agent.tell(
            log.context[index],
            min(decision.action, log.action[index]),
            log.reward[index],
            log.cost[index],
            round=index + 1,
        )
    watch = watch_log(log, spec)
    assert watch.violations == agent.violations
    assert watch.evidence[-1] == pytest.approx(agent.evidence, rel=1e-9)


def test_rounds_that_the_guarantee_does_not_cover_are_left_out():
    log = played(2, 50)
    advised, baseline = log.advised.copy(), log.baseline_cost.copy()
    advised[:10] = 0.5 * log.action[:10]
    baseline[10:15] = 0.7
    watch = watch_log(replace(log, advised=advised, baseline_cost=baseline), SPEC)
    assert watch.left_out == 15
    assert watch.to_dict()["rounds"] == 35
    assert "No alarm" in watch.verdict()
    unsaid = watch_log(replace(log, advised=np.full(50, np.nan)), SPEC)
    assert unsaid.left_out == 0
    with pytest.raises(InvalidInput, match="no round that the guarantee covers"):
        watch_log(replace(log, advised=np.zeros(50)), SPEC)


def test_the_first_alarm_stands():
    log = played(3, 200)
    cost = log.cost.copy()
    cost[50:60] = 2.0
    watch = watch_log(replace(log, cost=cost), SPEC)
    assert 51 <= watch.alarm_round <= 60
    assert watch.evidence[-1] < 1.0 / watch.level
    assert f"ALARM at round {watch.alarm_round}" in watch.verdict()


def test_false_alarms_and_detection_are_as_asked(count):
    """False alarms ≤ 0.01 (this test's own false-alarm level: 1e-6); three times the risk within a median of 500."""
    runs = count(400, 2000)
    report = bench_monitor(runs=runs, rounds=count(500, 2000))
    false = round(report["false_alarms"] * runs)
    assert binomtest(false, runs, 0.01, alternative="greater").pvalue > 1e-6
    assert report["median_rounds_to_alarm"] <= 500
    assert report["caught"] > 0.9


def test_what_cannot_be_watched_is_said():
    with pytest.raises(InvalidInput, match="too few"):
        watch_log(played(4, 20), make_spec(guarantee="conformal"))
    with pytest.raises(InvalidInput, match="level"):
        watch_log(played(4, 20), SPEC, level=1.5)
