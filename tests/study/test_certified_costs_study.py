"""Several certified costs in a study: it decides as an Agent does, from its log alone, and each cost has its name."""

import json
import math

import numpy as np
import pytest

from safedial import Agent, Cost, Dial, SafetySpec, power
from safedial.bounds import monitor
from safedial.errors import InvalidInput
from safedial.service.charts import series
from safedial.service.timeline import Track
from safedial.study.manage import create_study, open_study
from safedial.study.reducer import body_of, decide_next, noted_in, question_of
from safedial.study.replay_log import Source, replay
from safedial.study.snapshot import pack, unpack
from safedial.study.store import Store
from safedial.study.verify import Agreement

COSTS = {"load": Cost(threshold=1.5, noise=0.1, curve=power(2.0)), "heat": Cost(threshold=2, noise=0.2, unit="C")}
STATED = {"violation_risk": 0.02, "estimation_risk": 0.01, "reward_noise": 0.1, "coefficient_bound": 3}
SPEC = SafetySpec(costs=COSTS, **STATED, context_bound=1)
DIAL = Dial(high=10, unit="mg")


def outcome(rng, context, action, size=1.0):
    share, noise = action / 10.0, size * rng.standard_normal(2)
    heat = share * (context @ [1.0, 2.0] + 0.2 * noise[0])
    load = share**2 * (context @ [2.0, 1.0] + 0.1 * (0.8 * noise[0] + 0.6 * noise[1]))
    return {"reward": share * float(context @ [0.5, 0.2]), "cost": {"heat": float(heat), "load": float(load)}}


def draw(rng):
    return np.array([rng.uniform(-0.7, 0.7), rng.uniform(0.0, 0.7)])


@pytest.fixture(autouse=True)
def quiet(recwarn):
    """Studies without a fallback warn that they would advise nothing; it is not the matter here."""


@pytest.fixture
def shelf(tmp_path):
    with Store(f"sqlite:///{tmp_path}/study.db") as opened:
        yield opened


def make(store, name="trial", spec=SPEC, **more):
    return create_study(name, spec, dim=2, dial=DIAL, storage=store, actor="tester", **more)


def state_of(study):
    return study._write(lambda transaction: transaction.state, True)


def seen_by_the_page(study):
    track = Track(study)
    track.refresh()
    return track


@pytest.mark.parametrize("policy", ["hp_probe", "hp_ucb"])
@pytest.mark.parametrize("guarantee", ["certified", "joint"])
def test_a_study_and_an_agent_that_get_the_same_rounds_decide_the_same(shelf, policy, guarantee):
    """Lowered, raised, void, expired and corrected outcomes included."""
    spec = SafetySpec(costs=COSTS, guarantee=guarantee, **STATED, context_bound=1)
    study = make(shelf, spec=spec, policy=policy)
    rules = study.spec.rules
    agent = Agent(2, rules.spec, policy=rules.policy, dial=DIAL)  # a log has costs in alphabetical order
    rng = np.random.default_rng(3)
    for number in range(60):
        context = draw(rng)
        advice, own = study.ask(context.tolist()), agent.ask(context)
        assert (advice.action, advice.safe_action, advice.guarantee) == (own.action, own.safe_action, own.guarantee)
        mine, theirs = own.certificate, advice.certificate
        for part in ("statement", "risk", "least", "costs", "limit"):
            assert json.loads(json.dumps(mine[part])) == json.loads(json.dumps(theirs[part]))
        kind = number % 10
        given = min(own.action * {4: 0.8, 5: 1.2}.get(kind, 1.0), 10.0)
        told = outcome(rng, context, given)
        if kind in (2, 7):
            (study.void if kind == 2 else study.expire)(advice.id, reason="the lab was closed", unrelated=True)
            agent.tell(own, reward=None, cost=None, unrelated=True)
            continue
        if kind == 8:
            study.tell(advice.id, reward=told["reward"], cost={**told["cost"], "heat": 1.01 * told["cost"]["heat"]})
            study.correct(advice.id, **told, reason="typing error")
        else:
            study.tell(advice.id, **told, applied_action=given)
        agent.tell(own, applied_action=given, **told)
    assert study.status()["informative_rounds"] == agent.informative_rounds == 48
    assert study.status()["evidence"] == agent.evidence
    assert study.status()["noise_evidence"] == agent.noise_evidence
    assert study.verify().ok
    state = state_of(study)
    assert pack(unpack(study.spec, pack(state))) == pack(state)
    assert open_study("trial", storage=shelf).state_digest() == study.state_digest()


def test_outcomes_wait_for_those_before_them_and_a_snapshot_keeps_each_cost(shelf):
    study, rng = make(shelf), np.random.default_rng(0)
    contexts = [draw(rng) for _ in range(6)]
    asked = [study.ask(context.tolist()) for context in contexts]
    told = [outcome(rng, *pair) for pair in zip(contexts, (each.action for each in asked), strict=True)]
    for number in (5, 3, 2):
        study.tell(asked[number].id, **told[number])
    study.void(asked[4].id, reason="the patient left", unrelated=True)
    state = state_of(study)
    assert (len(state.learning.held), state.learning.samples) == (4, 0)
    again = unpack(study.spec, pack(state))
    assert pack(again) == pack(state)
    assert again.learning.held[asked[3].seq][1] == state.learning.held[asked[3].seq][1]
    for number in (1, 0):
        study.tell(asked[number].id, **told[number])
    agent = Agent(2, SPEC, dial=DIAL)
    for number in (0, 1, 2, 3, 5):
        agent.tell(agent.ask(contexts[number]), applied_action=asked[number].action, **told[number])
    last = draw(rng)
    assert study.ask(last.tolist()).action == agent.ask(last).action
    assert study.verify().ok


def test_an_excess_of_any_cost_counts_once_also_where_it_was_throttled_or_is_void_now(shelf):
    noisy = {"heat": Cost(threshold=2, noise=5), "load": Cost(threshold=1.5, noise=5)}
    study = make(shelf, spec=SafetySpec(costs=noisy, **(STATED | {"violation_risk": 0.3}), context_bound=1))
    expected, rng, cases = monitor.init(), np.random.default_rng(3), {}
    fine = {"heat": 0.1, "load": 0.1}
    kinds = {
        3: ({"heat": 0.1, "load": 1.6}, {}),
        5: ({"heat": 2.1, "load": 1.6}, {}),
        7: ({"heat": 2.1, "load": None}, {"unrelated": True}),
        9: ({"heat": None, "load": 0.1}, {"unrelated": True}),
        11: ({"heat": 0.1, "load": 1.6}, {"throttled": True, "applied_action": 0.01}),
        13: (fine, {"throttled": True}),
        15: ({"heat": 0.1, "load": 12.0}, {"applied_action": 10.0}),
        17: ({"heat": 0.1, "load": 1.6}, {}),
    }
    for number in range(20):
        decision = study.ask(draw(rng).tolist())
        cost, more = kinds.get(number, (fine, {}))
        study.tell(decision.id, reward=0.0, cost=cost, **more)
        cases[number] = decision.id
        advised = 12.0 * decision.action / 10.0 > 1.5
        expected = monitor.update(expected, number in (3, 5, 7, 11, 17) or (number == 15 and advised), 0.3)
        if number == 17:
            study.void(decision.id, reason="the sample was mislabelled")
    status = study.status()
    assert status["evidence"] == pytest.approx(float(monitor.evidence(expected)))
    assert (status["unwatched"], status["violations"]) == (2, 6)
    assert [int(each.sum()) for each in seen_by_the_page(study).judged] == [status["outcomes"], 6]
    rows = {row["decision_id"]: row for row in study.rows()}
    assert [rows[cases[number]]["violated"] for number in (0, 3, 7, 9)] == [False, True, True, False]
    assert (rows[cases[3]]["cost_load"], rows[cases[3]]["threshold_heat"]) == (1.6, 2.0)
    shown = series(seen_by_the_page(study), 10)
    assert shown["costs"]["heat"] == {"threshold": 2.0, "below": False, "unit": ""}
    assert study.verify().ok


def test_noise_beyond_what_one_cost_states_stops_the_study(shelf):
    study, rng = make(shelf), np.random.default_rng(0)
    for _ in range(60):
        context = draw(rng)
        decision = study.ask(context.tolist())
        study.tell(decision.id, **outcome(rng, context, decision.action, size=5.0))
    assert study.status()["stop_reason"] in ("noise_broken", "assumption_broken")
    assert study.verify().ok


def test_past_rounds_have_a_column_for_each_cost(shelf, tmp_path):
    rng, agent = np.random.default_rng(1), Agent(2, SPEC, dial=DIAL)
    rows = []
    for _ in range(30):
        context = draw(rng)
        told = outcome(rng, context, 2.0)
        agent.tell(context=context, applied_action=2.0, **told)
        rows.append({"x0": context[0], "x1": context[1], "action": 2.0, "reward": told["reward"]})
        rows[-1] |= {f"cost_{name}": value for name, value in told["cost"].items()}
    study = make(shelf)
    with pytest.raises(InvalidInput, match=r"row 1: cost_load = None: must be a number"):
        study.import_history([{**rows[0], "cost_load": None}])
    assert study.import_history(rows, reason="last year's rounds") == 30
    assert study.ask([0.3, 0.3]).action == agent.ask([0.3, 0.3]).action
    path = study.export(tmp_path / "log.csv")
    assert {"cost_heat", "cost_load", "threshold_load"} <= set(path.read_text().splitlines()[0].split(","))
    assert study.verify().ok


def test_a_log_of_another_processor_agrees_up_to_rounding_and_a_changed_one_does_not(shelf):
    study, rng = make(shelf), np.random.default_rng(2)
    for _ in range(20):
        context = draw(rng)
        decision = study.ask(context.tolist())
        study.tell(decision.id, **outcome(rng, context, decision.action))
    last = study.ask([0.3, 0.4])
    with study.store.engine.connect() as connection:
        source = Source(connection, study._id, "trial")
        state = replay(source, study.spec, last.seq - 1, stored=())
    asked, raw = question_of(state, last.body), last.body["context"]
    again = body_of(decide_next(state, asked, raw)[0], raw, state, noted_in(last.body))
    for cost, share, agrees in (("heat", 1e-13, True), ("heat", 1e-6, False), ("load", 1e-6, False)):
        body = json.loads(json.dumps(last.body))
        body["numbers"][f"{cost}.cost"] *= 1.0 + share
        assert Agreement().on_decision(state, asked, again, body) == agrees
    body = json.loads(json.dumps(last.body))
    body["numbers"]["heat.cost_upper"] *= 1.0 + 1e-6
    assert not Agreement().on_decision(state, asked, again, body)


def test_bad_outcomes_change_nothing(shelf):
    study = make(shelf)
    decision = study.ask([0.3, 0.3])
    before = study.state_digest()
    for cost, words in (
        (0.5, "cost = 0.5: must be a mapping with heat, load"),
        ({"heat": 0.5}, r"cost = \['load'\]: is missing"),
        ({"heat": 0.5, "load": math.inf}, r"cost\['load'\] = inf: must be a finite number"),
    ):
        with pytest.raises(InvalidInput, match=words):
            study.tell(decision.id, reward=0.0, cost=cost)
    with pytest.raises(InvalidInput, match=r"baseline_cost = 0\.1: cannot be combined with several costs"):
        study.ask([0.3, 0.3], baseline_cost=0.1)
    assert study.state_digest() == before
