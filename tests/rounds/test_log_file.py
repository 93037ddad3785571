"""Logs: read with their columns checked, written digit for digit, made by a simulation."""

import re

import numpy as np
import pytest

from safedial import Agent, InvalidInput, LinearWorld, hill, identity, make_policy, power
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose
from safedial.rounds.log_file import log_text, parse_log, read_log
from safedial.simulation.results import logged_simulation, simulated_log
from tests.conftest import make_spec

TEXT = "round,x1,x2,action,reward,cost\n1,0.1,0.2,0.5,0.3,0.4\n2,0.3,0.4,1,0.5,-0.6\n"


def test_a_log_is_written_and_read_back_digit_for_digit(tmp_path):
    world = LinearWorld(dim=3, baseline_cost=0.1)
    log = simulated_log("hp_probe", world, make_spec(cost_sensor_noise=0.05), rounds=300, dose=hill(0.3))
    (tmp_path / "log.csv").write_text(log_text(log))
    again = read_log(tmp_path / "log.csv")
    for name in ("context", "action", "reward", "cost", "round", "advised", "baseline_cost"):
        np.testing.assert_array_equal(getattr(again, name), getattr(log, name))


@pytest.mark.parametrize("contexts", ["iid", "adversarial"])
def test_a_simulated_log_holds_the_outcomes_that_were_counted(contexts):
    spec, dose = make_spec(violation_risk=0.2, estimation_risk=0.1, cost_sensor_noise=0.1), Dose(hill(0.4), power(1.5))
    log, result = logged_simulation(
        "hp_ucb", LinearWorld(dim=2, contexts=contexts), spec, rounds=600, seeds=2, dose=dose
    )
    assert (log.cost > 0.5).sum() == result.violations[0, 0] > 0
    assert (log.action > 0).sum() == result.informative_rounds[0, 0]


def test_an_agent_that_is_told_a_simulated_log_advises_the_same():
    spec = make_spec(cost_noise=0.3, reward_noise=0.3)
    log = simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=200, dose=hill(0.4))
    agent = Agent(3, spec, policy=make_policy("hp_probe"), dose=hill(0.4))
    for context, action, reward, cost in zip(log.context, log.action, log.reward, log.cost, strict=True):
        decision = agent.ask(context)
        assert decision.action == pytest.approx(action, rel=1e-9)
        agent.tell(decision, reward=reward, cost=cost)


def test_contexts_are_the_named_columns_in_the_named_order():
    assert parse_log(TEXT).context.tolist() == [[0.1, 0.2], [0.3, 0.4]]
    assert parse_log(TEXT, context_columns=["x2"]).names == ("x2",)
    features = Features(names=("x2", "x1"), center=(0.2, 0), scale=(2, 1), intercept=True)
    log = parse_log(TEXT, features=features)
    np.testing.assert_allclose(log.context, [[0, 0.1, 1], [0.1, 0.3, 1]])
    assert log.names == ("x2", "x1", "intercept")
    assert log.rows(slice(1)).round.tolist() == [1]


def test_a_log_is_written_in_the_units_in_which_it_is_read():
    units = {"features": Features(names=("age", "dose"), center=(50, 1), scale=(30, 4)), "dial": Dial(low=2, high=20)}
    log = parse_log(log_text(parse_log(TEXT), **units), **units)
    assert log.names == ("age", "dose")
    for name in ("context", "action", "reward", "cost"):
        np.testing.assert_allclose(getattr(log, name), getattr(parse_log(TEXT), name), rtol=1e-12)
    features = Features(names=("x2", "x1"), intercept=True)
    again = parse_log(log_text(parse_log(TEXT, features=features), features=features), features=features)
    assert again.context.tolist() == [[0.2, 0.1, 1], [0.4, 0.3, 1]]
    with pytest.raises(InvalidInput, match="has an intercept, but the last part of these contexts is not 1"):
        log_text(parse_log(TEXT), features=Features(names=("age",), intercept=True))


def test_actions_may_be_in_the_dials_units():
    text = TEXT.replace(",1,0.5,-0.6", ",20,0.5,-0.6")
    np.testing.assert_allclose(parse_log(text, dial=Dial(high=20)).action, [0.025, 1])


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (TEXT, "", "empty"),
        (TEXT, TEXT.splitlines()[0], "too few rows"),
        ("action", "dose", "rename the one with the setting that was given to 'action'"),
        (",", ";", "with commas between cells"),
        ("cost", "costs", "cost"),
        ("x2", "x1", "the same name"),
        ("0.5,0.3", "1.5,0.3", r"line 2, column 'action' = 1.5.*0 and 1"),
        ("0.3,0.4\n2", "0.3,nan\n2", "line 2, column 'cost'.*every outcome"),
        ("0.1,0.2", "inf,0.2", "line 2, column 'x1'"),
        ("0.1,0.2", "Ann,0.2", "does not describe the case, leave this column out, or name .*--context-columns"),
        ("0.1,0.2", ",0.2", "'x1' = '': must be a finite number; fill it in, or name .*--context-columns"),
        ("0.1,0.2", "0.1,0.2,0.3", "line 2"),
        ("\n2,", "\n1,", "must increase"),
    ],
)
def test_a_bad_log_is_refused_with_row_and_column(old, new, named):
    with pytest.raises(InvalidInput, match=named):
        parse_log(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("cell", "column", "named"),
    [
        ("12,0", "cost", "it has a decimal comma: write 12.0"),
        ("<2.0", "cost", "below a detection limit: write the limit itself, 2.0"),
        (">80", "cost", "above a measuring limit: write the limit itself, 80, if that is beyond your threshold"),
        ("pending", "cost", "it is text: write the number that was measured, or leave the cell empty"),
    ],
)
def test_a_cell_that_is_no_number_says_what_to_write(cell, column, named):
    row = {"weight": "70", "action": "0.5", "cost": "3"}
    text = "weight,action,cost\n70,0.5,3\n\n" + ",".join(f'"{each}"' for each in (row | {column: cell}).values()) + "\n"
    with pytest.raises(InvalidInput, match=rf"log line 4, column '{column}' = '{cell}': .*{re.escape(named)}"):
        parse_log(text, needs=("action", "cost"), also=("cost",))


def test_all_columns_with_empty_cells_are_named_at_once():
    text = "age,weight,action,reward,cost\n" + "50,,0.5,0,1\n" * 8 + ",70,0.5,0,\n"
    told = ".*Also: column 'weight' = '', lines 2, 3, 4, 5, 6 and 3 more; column 'cost' = '', line 10$"
    with pytest.raises(InvalidInput, match=told):
        parse_log(text)


def test_context_columns_must_be_there_and_not_be_outcomes():
    with pytest.raises(InvalidInput, match="weight"):
        parse_log(TEXT, context_columns=["weight"])
    with pytest.raises(InvalidInput, match="outcome"):
        parse_log(TEXT, context_columns=["cost"])
    with pytest.raises(InvalidInput, match=r"none\.csv"):
        read_log("none.csv")


def test_a_studys_export_is_a_log_up_to_the_first_unknown_outcome(tmp_path):
    from safedial.study.manage import create_study
    from safedial.tools.checks import watch_log

    spec = make_spec(cost_noise=0.3, reward_noise=0.3)
    features = Features(names=("age",), center=(50,), scale=(50,), intercept=False)
    study = create_study(
        "trial", spec, dim=1, features=features, storage=f"sqlite:///{tmp_path / 'trial.db'}", dial=Dial(high=20)
    )
    decisions = [study.ask([age]) for age in (60, 70, 80, 90, 95)]
    study.tell(decisions[0].id, reward=0.1, cost=0.05)
    study.tell(decisions[1].id, reward=0.2, cost=0.06, applied_action=0.5 * decisions[1].action)
    study.tell(decisions[2].id, reward=0.3, cost=0.07, applied_action=20.0)
    study.tell(decisions[4].id, reward=0.4, cost=0.08)
    study.export(tmp_path / "trial.csv")
    log = read_log(tmp_path / "trial.csv", features=features, dial=Dial(high=20))
    assert log.prefix.cost.tolist() == [0.05, 0.06, 0.07]
    assert (log.cost.tolist(), log.unseen.tolist()) == ([0.05, 0.06, 0.07, 0.08], [4.0])
    np.testing.assert_allclose(log.prefix.context[:, 0], [0.2, 0.4, 0.6])
    np.testing.assert_allclose(log.action[1], 0.5 * log.advised[1])
    assert log.action[2] == 1.0
    watch = watch_log(log, spec)
    assert (watch.left_out, watch.unseen, len(watch.rounds)) == (1, 1, 4)
    rescaled = watch_log(log, spec, dose=identity())
    assert (rescaled.left_out, len(rescaled.rounds)) == (0, 5), (
        "with the dose curve an override is judged at the advice"
    )


def test_rounds_of_an_export_without_a_guarantee_or_a_free_outcome_are_marked():
    heads = "decision_id,seq,round,action,applied_action,status,guarantee,reward,cost,baseline_cost,context.x0\n"
    rows = "a.1,1,,,0.3,imported,imported,0.1,0.2,0,0.5\na.2,2,1,0.4,0.4,throttled,certified,0.1,0.9,0,0.6\n"
    rows += "a.3,3,2,0,,nothing given,certified,,,0.1,0.7\na.4,4,3,0.5,0.5,known,certified,0.1,0.2,0,0.8\n"
    log = parse_log(heads + rows)
    assert log.round.tolist() == [0, 1, 2, 3]
    assert log.names == ("x0",)
    assert log.advised.tolist() == [-np.inf, -np.inf, 0.0, 0.5]
    assert log.action.tolist() == [0.3, 0.0, 0.0, 0.5]
    assert log.cost.tolist() == [0.2, 0.9, 0.1, 0.2]
    with pytest.raises(InvalidInput, match="known outcome"):
        parse_log(heads + "a.2,2,1,0.4,,open,certified,,,0,0.6\n")
