"""One round, one life: the study, its export, the monitor, the checks and the page say the same of it."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from safedial import Agent, LinearWorld, SafetySpec, create_study, read_log, watch_log
from safedial.cli import make_app
from safedial.rounds.outcome import STATUSES
from safedial.service.timeline import Track
from safedial.simulation.results import simulated_log

SPEC = SafetySpec(threshold=0.5, total_risk=0.1, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1)


@pytest.fixture
def study(tmp_path):
    return create_study("trial", SPEC, dim=2, storage=f"sqlite:///{tmp_path}/trial.db")


def exported(study, tmp_path):
    study.export(tmp_path / "trial.csv")
    return read_log(tmp_path / "trial.csv")


@pytest.mark.parametrize("gone", ["void", "expire"])
def test_an_export_goes_on_behind_a_round_that_is_missing_for_an_unrelated_reason(study, tmp_path, gone):
    decisions = [study.ask([0.5, 0.1]) for _ in range(5)]
    getattr(study, gone)(decisions[1].id, unrelated=True, reason="the lab was closed")
    for decision in (decisions[0], *decisions[2:]):
        study.tell(decision.id, reward=0.1, cost=0.05)
    log = exported(study, tmp_path)
    assert len(log.prefix) == study.status()["informative_rounds"] == 4
    assert (len(log), log.unseen.tolist()) == (4, [2.0])


def test_the_monitor_of_an_export_alarms_where_the_study_does_whatever_is_open_or_void(study, tmp_path):
    first, second = study.ask([0.5, 0.1]), study.ask([0.5, 0.1])
    study.void(second.id, reason="the patient left")
    assert first.guarantee == "certified"
    while study.status()["stop_reason"] != "alarm":
        if study.status()["stop_reason"]:
            study.resume("the noise is what it is")
        study.tell(study.ask([0.5, 0.1]).id, reward=0.1, cost=9.0)
    watch = watch_log(exported(study, tmp_path), SPEC)
    assert watch.alarm_round is not None
    assert watch.unseen == 2
    assert watch.evidence[-1] == pytest.approx(study.status()["evidence"], rel=1e-9)


def test_an_override_reported_by_its_context_counts_as_one_reported_by_its_decision():
    by_decision, by_context, by_load = (Agent(2, SPEC) for _ in range(3))
    for _ in range(30):
        for agent in (by_decision, by_context, by_load):
            decision = agent.ask([0.5, 0.1])
            if agent is by_decision:
                agent.tell(decision, 1.0, reward=0.1, cost=0.6)
            elif agent is by_context:
                agent.tell([0.5, 0.1], 1.0, reward=0.1, cost=0.6)
            else:
                agent.tell_many([[0.5, 0.1]], [1.0], [0.1], [0.6])
    assert by_decision.evidence == by_context.evidence == by_load.evidence < 1.0
    assert not by_context.alarmed


def test_the_export_and_the_page_have_one_status_for_a_round(study, tmp_path):
    decisions = [study.ask([0.5, 0.1]) for _ in range(6)]
    study.expire([decisions[0].id], unrelated=True, reason="lost in the post")
    study.expire([decisions[1].id], unrelated=False, reason="overdue")
    study.void(decisions[2].id, reason="wrong patient")
    study.tell(decisions[3].id, reward=0.1, cost=0.1)
    study.correct(decisions[3].id, cost=0.2, reason="typing error")
    study.tell(decisions[4].id, reward=0.1, cost=0.1, throttled=True)
    track = Track(study)
    track.refresh()
    shown = [STATUSES[int(code)] for code in track.column("status")]
    study.export(tmp_path / "trial.csv")
    with open(tmp_path / "trial.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == shown
    assert shown == ["expired", "expired", "void", "corrected", "throttled", "open"]
    assert [row["unrelated"] for row in rows[:3]] == ["True", "False", "False"]


def test_a_simulated_log_can_be_imported_into_a_study(study, tmp_path):
    words = ["simulate", "--policy", "hp_ucb", "--dim", "2", "--rounds", "40", "--seeds", "1", "--threshold", "0.5"]
    done = CliRunner().invoke(make_app(), [*words, "--log", str(tmp_path / "log.csv")])
    assert done.exit_code == 0, done.output
    log = simulated_log("hp_ucb", LinearWorld(dim=2), SPEC, rounds=40)
    assert log.names == ("x1", "x2")
    assert study.import_history(tmp_path / "log.csv", reason="a pilot") == 40
    taken = [[float(row["context.x0"]), float(row["context.x1"])] for row in study.rows()]
    read = read_log(tmp_path / "log.csv")
    np.testing.assert_allclose(taken, read.context)
