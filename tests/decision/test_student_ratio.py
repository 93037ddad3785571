"""HP-Student with a known ratio of variances: weighted least squares from scratch, exactness, Agent, study, log."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest
from scipy.stats import t as student_t

from safedial import Agent, Features, InvalidInput, SafetySpec, check_log, create_study, hp_student
from safedial.core import least_squares
from safedial.core.student import cost_upper, noise_root
from safedial.decision.learners.variance_ratio import ratio_of
from safedial.rounds_io import Log
from safedial.study import Store

SPEC = SafetySpec(threshold=0.5, violation_risk=0.05, promise="student")
ANYTIME = SafetySpec(threshold=0.5, violation_risk=0.05, estimation_risk=0.01, promise="student")
COEF = np.array([0.3, -0.2, 0.1])


def ratio(context):
    return np.where(context[..., 0] > 0.0, 4.0, 1.0)


def play(agent, rounds, seed=0, of=ratio):
    rng, rows = np.random.default_rng(seed), []
    for _ in range(rounds):
        context = np.append(rng.standard_normal(2), 1.0)
        decision = agent.decide(context)
        noise = 0.2 * rng.standard_normal(2) * math.sqrt(of(context))
        costs = decision.intensity * (context @ COEF + noise[1])
        agent.update(decision, reward=decision.intensity * (0.5 + noise[0]), cost=costs)
        rows.append((context, costs / decision.intensity, decision))
    return rows


def test_every_bound_is_that_of_weighted_least_squares_from_scratch():
    rows = play(Agent(3, SPEC, policy=hp_student(noise_ratio=ratio), start_action=0.05), 25)
    contexts, costs = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    h = ratio(contexts)
    for number in range(5, 25):
        x, decision = contexts[number], rows[number][2]
        rows_x, rows_y = (
            part / np.sqrt(h[:number]).reshape(-1, *[1] * (part.ndim - 1))
            for part in (contexts[:number], costs[:number])
        )
        coef, squares, *_ = np.linalg.lstsq(rows_x, rows_y, rcond=None)
        width = x @ np.linalg.solve(rows_x.T @ rows_x, x)
        noise = math.sqrt(squares[0] / (number - 3) * (h[number] + width))
        upper = x @ coef + student_t.ppf(0.95, number - 3) * noise
        facts = decision.certificate
        assert facts["cost_upper"] == pytest.approx(upper, abs=1e-8)
        assert facts["cost_upper"] >= upper - 1e-12
        assert facts["model"].get("noise_ratio", 1.0) == pytest.approx(h[number])
        assert facts["model"]["cost"] == pytest.approx(x @ coef, abs=1e-8)
    assert any("ratio of variances" in line for line in facts["assumptions"])
    assert "sqrt(4 +" in rows[int(np.flatnonzero(h[5:] > 1)[0]) + 5][2].explain()


@pytest.mark.parametrize("promise", ["per_round", "tolerance", "anytime"])
def test_where_the_noise_is_larger_the_risk_is_kept_too_and_ignoring_it_breaks_the_promise(count, promise):
    """P(Y > U) for h = 4 at round 9 against δ (exactly δ per round); false-alarm level 1e-6."""
    anytime, rng = promise == "anytime", np.random.default_rng(1)
    lanes = count(600, 6000) if anytime else count(6000, 60_000)
    policy, plain = hp_student(promise=promise, noise_ratio=ratio), hp_student()
    states = [each.init(3, ridge=1.0, batch=(lanes,)) for each in (policy, plain)]
    for _ in range(40 if anytime else 9):
        context = np.concatenate([rng.standard_normal((lanes, 2)), np.ones((lanes, 1))], axis=-1)
        cost = rng.standard_normal(lanes) * np.sqrt(ratio(context))
        seen = [each.predict(state, context) for each, state in zip((policy, plain), states, strict=True)]
        states = [
            each.update(state, told, cost, cost, np.ones(lanes))
            for each, state, told in zip((policy, plain), states, seen, strict=True)
        ]
    large = ratio(context) > 1.0
    over = (cost > seen[0].root * cost_upper(seen[0], promise, 0.05, 0.01))[large]
    assert binomtest(int(over.sum()), over.size, 0.05, alternative="greater").pvalue > 1e-6
    if promise == "per_round":
        assert binomtest(int(over.sum()), over.size, 0.05, alternative="less").pvalue > 1e-6
        ignored = (cost > cost_upper(seen[1], promise, 0.05))[large]
        assert binomtest(int(ignored.sum()), ignored.size, 0.05, alternative="greater").pvalue < 1e-6


def test_a_feature_may_hold_the_ratio_in_its_own_units_in_an_agent_a_study_and_a_file(tmp_path):
    features = Features(names=("age", "spread"), center=(50.0, 2.0), scale=(10.0, 0.5))
    policy = hp_student(noise_ratio="spread")
    rules = {"policy": policy, "features": features, "start_action": 0.05}
    agent, rng = Agent(2, SPEC, **rules), np.random.default_rng(2)
    with Store(f"sqlite:///{tmp_path}/study.db") as store:
        study = create_study("one", SPEC, dim=2, storage=store, **rules)
        for _ in range(14):
            raw = {"age": float(rng.normal(50, 10)), "spread": float(rng.uniform(1, 3))}
            own, advice = agent.decide(raw), study.ask(raw)
            assert own.action == advice.action
            assert own.certificate["model"].get("noise_ratio", 1.0) == pytest.approx(raw["spread"])
            told = {"reward": 0.1 * own.intensity, "cost": own.intensity * float(0.1 + 0.1 * rng.standard_normal())}
            agent.update(own, **told)
            study.tell(advice.id, **told)
        assert own.promise == "student"
        assert study.verify().ok
        with pytest.raises(InvalidInput, match="noise_ratio"):
            agent.decide({"age": 50, "spread": -1})
        with pytest.raises(InvalidInput, match="cannot be stored in a log"):
            create_study("two", SPEC, dim=2, storage=store, policy=hp_student(noise_ratio=ratio), start_action=0.1)
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").preview(raw).action == agent.preview(raw).action
    with pytest.raises(InvalidInput, match="must be one of the features; there are none"):
        Agent(2, SPEC, policy=policy, start_action=0.05)
    with pytest.raises(InvalidInput, match="must be a column's number"):
        hp_student(noise_ratio=1.5)
    for wrong in (2, "spread"):
        with pytest.raises(InvalidInput, match=r"must be a column of the context, from 0 to 1"):
            hp_student(noise_ratio=wrong).init(2, ridge=1.0)
    with pytest.raises(InvalidInput, match=r"must be a column of the context, from 0 to 1"):
        Agent(2, SPEC, policy=hp_student(noise_ratio=2), start_action=0.05)
    own = Agent(3, SPEC, policy=hp_student(noise_ratio=ratio), start_action=0.05)
    own.save(tmp_path / "own")
    with pytest.raises(InvalidInput, match="noise_ratio"):
        Agent.load(tmp_path / "own")
    assert Agent.load(tmp_path / "own", policy=hp_student(noise_ratio=ratio)).dim == 3


def test_a_log_with_the_ratio_is_quiet_and_without_it_is_flagged():
    rng = np.random.default_rng(3)
    context = np.column_stack([rng.standard_normal((300, 2)), np.ones(300)])
    action = np.full(300, 0.1)
    cost = 0.1 * (context @ COEF + rng.standard_normal(300) * np.exp(0.8 * context[:, 0]))
    log = Log(names=("a", "b", "one"), context=context, action=action, reward=action, cost=cost,
              round=np.arange(1.0, 301), advised=action, baseline_cost=np.zeros(300))  # fmt: skip
    stated = hp_student(noise_ratio=lambda x: np.exp(1.6 * x[..., 0]))
    assert [each.name for each in check_log(log, SPEC, policy=stated)[1] if each.flagged] == []
    assert "equal_variance" in [each.name for each in check_log(log, SPEC)[1] if each.flagged]


def test_the_ratio_is_a_column_or_a_function():
    context = np.array([[1.0, 4.0], [2.0, 9.0]])
    assert noise_root(1, context).tolist() == [2.0, 3.0]
    assert noise_root(lambda x: x[..., 0] ** 2, context[1]) == 2.0
    for wrong in (0.0, math.nan, math.inf):
        with pytest.raises(InvalidInput, match="noise_ratio"):
            noise_root(0, np.array([wrong]))
    fit = least_squares.init(2)
    assert least_squares.predict(fit, context[0]).root == 1.0


@pytest.mark.parametrize("ratio", [lambda x: 1 / 0, lambda x: None, lambda x: "much", lambda x: x, lambda x: -1.0, 1])
def test_a_ratio_that_is_no_positive_number_is_refused_and_nothing_is_learned(ratio):
    spec = SafetySpec(threshold=0.5, violation_risk=0.05, promise="student")
    agent = Agent(2, spec, policy=hp_student(noise_ratio=ratio), start_action=0.05)
    for call in (
        lambda: agent.update([1.0, 0.0], 0.1, 0.0, 0.0),
        lambda: agent.update_many([[1.0, 2.0], [1.0, 0.0]], actions=[0.1, 0.1], rewards=[0, 0], costs=[0.01, 0.02]),
        lambda: agent.decide([1.0, 0.0]),
    ):
        with pytest.raises(InvalidInput, match="noise_ratio"):
            call()
    assert agent.informative_rounds == 0


@pytest.mark.parametrize("promise", ["per_round", "anytime"])
def test_a_number_stands_for_the_same_raw_value_as_the_name_of_its_feature(promise):
    features = Features(names=("age", "readings"), center=(50, 3), scale=(10, 4), intercept=True)
    agents = [
        Agent(3, ANYTIME, policy=hp_student(promise=promise, noise_ratio=each), features=features, start_action=0.05)
        for each in ("readings", 1)
    ]
    rng = np.random.default_rng(3)
    for _ in range(40):
        context, noise = [rng.uniform(30, 70), rng.uniform(1, 9)], 0.1 * rng.standard_normal(2)
        decisions = [agent.decide(context) for agent in agents]
        assert decisions[0].action == decisions[1].action
        assert decisions[0].prediction.root == pytest.approx(math.sqrt(context[1]))
        for agent, decision in zip(agents, decisions, strict=True):
            agent.update(decision, reward=decision.intensity * noise[0], cost=decision.intensity * noise[1])
    assert ratio_of(1, 3, None) == 1
    with pytest.raises(InvalidInput, match="noise_ratio = 2: is the intercept, which is always 1"):
        Agent(3, ANYTIME, policy=hp_student(noise_ratio=2), features=features, start_action=0.05)
