"""HP-Student in an Agent: the bound of least squares from scratch, late and missing outcomes, evidence, files."""

import math

import numpy as np
import pytest
from scipy.stats import t as student_t

from safedial import Agent, Dial, InvalidInput, SafetySpec, hp_student
from safedial.bounds.t_laws import tolerance_factor

RISKS = {"threshold": 0.5, "violation_risk": 0.05, "guarantee": "student"}
COEF = np.array([0.3, -0.2, 0.1])


def make_agent(start_action=0.05, spec=None, **options):
    return Agent(3, SafetySpec(**(spec or RISKS)), policy=hp_student(**options), start_action=start_action)


def outcome(rng, context, decision, size=0.2):
    noise = size * rng.standard_normal(2)
    return {"reward": decision.intensity * (0.5 + noise[0]), "cost": decision.intensity * (context @ COEF + noise[1])}


def play(agent, rounds, seed=0, size=0.2):
    """Decide and report; returns contexts, C/g, decisions."""
    rng, rows = np.random.default_rng(seed), []
    for _ in range(rounds):
        context = rng.standard_normal(3)
        decision = agent.ask(context)
        told = outcome(rng, context, decision, size)
        agent.tell(decision, **told)
        rows.append((context, told["cost"] / decision.intensity, decision))
    return [np.array(part) if index < 2 else list(part) for index, part in enumerate(zip(*rows, strict=True))]


def upper_from_scratch(contexts, costs, context, risk=0.05):
    coef, squares, rank, _ = np.linalg.lstsq(contexts, costs, rcond=None)
    degrees = len(costs) - rank
    width = context @ np.linalg.solve(contexts.T @ contexts, context)
    return context @ coef + student_t.ppf(1 - risk, degrees) * math.sqrt(squares[0] / degrees * (1 + width))


@pytest.mark.parametrize("lag", [0, 3])
def test_every_decision_is_that_of_least_squares_from_scratch_on_the_rounds_before_the_lag(lag):
    agent = make_agent(lag=lag)
    contexts, costs, decisions = play(agent, 30)
    for number, decision in enumerate(decisions):
        used = number - lag
        if used < 5:
            assert decision.limit == "start_dose"
            assert (decision.action, decision.guarantee) == (0.05, "declared")
            continue
        upper = upper_from_scratch(contexts[:used], costs[:used], contexts[number])
        assert decision.guarantee == "student"
        assert decision.certificate["cost_upper"] == pytest.approx(upper, abs=1e-8)
        assert decision.certificate["cost_upper"] >= upper - 1e-12
        assert decision.safe_action == pytest.approx(1.0 if upper <= 0.5 else 0.5 / upper, abs=1e-7)
        assert decision.certificate["model"]["informative_rounds"] == used
    assert agent.informative_rounds == 30
    np.testing.assert_allclose(agent.cost_coef, np.linalg.lstsq(contexts[: 30 - lag], costs[: 30 - lag])[0], rtol=1e-9)
    assert agent.reward_coef.shape == (3,)


def test_while_a_needed_round_is_open_the_start_dose_is_given():
    agent, rng = make_agent(lag=1), np.random.default_rng(1)
    play(agent, 12)
    late = agent.ask(context := rng.standard_normal(3))
    within = agent.ask(rng.standard_normal(3))
    assert within.guarantee == "student"  # one open round is allowed for
    beyond = agent.ask(rng.standard_normal(3))
    assert (beyond.limit, beyond.action, beyond.guarantee) == ("open_rounds", 0.05, "declared")
    agent.tell(late, **outcome(rng, context, late))
    agent.tell(within, **outcome(rng, within.context, within))
    assert agent.preview(rng.standard_normal(3)).guarantee == "student"
    assert agent.ask(rng.standard_normal(3)).guarantee == "student"


def test_a_lost_round_keeps_the_start_dose_until_the_rounds_are_forgotten_and_a_vouched_one_is_left_out():
    agent, rng = make_agent(), np.random.default_rng(2)
    play(agent, 10)
    agent.tell(agent.ask(rng.standard_normal(3)), applied_action=0, reward=0, cost=0, unrelated=True)
    decision = agent.ask(rng.standard_normal(3))
    assert decision.guarantee == "student"
    assert decision.certificate["model"]["informative_rounds"] == 10
    agent.tell(decision, applied_action=0, reward=0, cost=0)
    decision = agent.ask(rng.standard_normal(3))
    assert (decision.limit, decision.certificate["lost_rounds"]) == ("open_rounds", 1)
    agent.resume(forget=True, unrelated=True)
    assert (agent.informative_rounds, agent.ask(rng.standard_normal(3)).limit) == (0, "start_dose")
    agent.resume(forget=True, unrelated=True)
    assert play(agent, 6)[2][-1].guarantee == "student"


def test_a_dose_that_the_baseline_excludes_was_withheld_because_of_the_context():
    agent, rng = make_agent(), np.random.default_rng(3)
    play(agent, 10)
    none = agent.ask(rng.standard_normal(3), baseline_cost=0.7)
    assert (none.guarantee, none.action) == ("none", 0.0)
    agent.tell(none, reward=0, cost=0.7)
    some = agent.ask(np.array([0.3, 1.0, 0.2]), baseline_cost=0.2)
    assert some.guarantee == "student"
    agent.tell(some, **outcome(rng, some.context, some))
    low, high = (agent.preview([0.9, -1, 0.2], baseline_cost=cost).safe_action for cost in (0.3, 0.1))
    assert low < high


def test_history_counts_and_reports_must_fit_their_rounds():
    agent, rng = make_agent(), np.random.default_rng(4)
    contexts = rng.standard_normal((8, 3))
    for context in contexts:
        agent.tell(context, 0.1, reward=0.05, cost=0.1 * float(context @ COEF + 0.2 * rng.standard_normal()))
    agent.tell(contexts[0], 0.0, reward=0.0, cost=0.6, baseline_cost=0.6)
    with pytest.raises(InvalidInput, match=r"action = 0.0: was given, in a round before the first decision"):
        agent.tell(contexts[0], 0.0, reward=0.0, cost=0.0)
    with pytest.raises(InvalidInput, match=r"row 1: action = 0.0: was given, .* else leave out the whole past"):
        agent.tell_many(contexts[:2], [0.1, 0.0], [0.05, 0.0], [0.1, 0.0])
    assert agent.ask(contexts[0]).numbers["rounds"] == 8
    anytime = make_agent(spec=RISKS | {"estimation_risk": 0.01}, guarantee="anytime")
    anytime.tell(contexts[0], 0.0, reward=0.0, cost=0.0)
    with pytest.raises(InvalidInput, match="differs from that of round 1"):
        agent.tell(contexts[1], 0.1, reward=0.0, cost=0.0)
    agent.tell(contexts[0], 0.1, reward=0.0, cost=0.0)
    with pytest.raises(InvalidInput, match="no round is open"):
        agent.tell(contexts[0], 0.1, reward=0.0, cost=0.0)


def test_costs_that_rise_stop_the_agent_and_a_person_resumes_it():
    agent, rng = make_agent(), np.random.default_rng(5)
    play(agent, 60)
    assert agent.evidence < 100
    for _ in range(12):
        context = rng.standard_normal(3)
        decision = agent.ask(context)
        agent.tell(decision, reward=0.0, cost=decision.intensity * float(context @ COEF + 1.0))
    assert agent.stop_reason == "student_drift"
    stopped = agent.ask(rng.standard_normal(3))
    assert (stopped.action, stopped.guarantee, stopped.limit) == (0.05, "none", "student_drift")
    agent.tell(stopped, **outcome(rng, stopped.context, stopped))
    agent.resume()
    assert (agent.stop_reason, agent.evidence) == ("", 1.0)
    assert agent.ask(rng.standard_normal(3)).guarantee == "student"


def test_evidence_is_fair_under_gaussian_noise():
    """The share of 200 studies whose evidence ever reaches 20 is at most 1/20; false-alarm level 1e-6: 27 or fewer."""
    from safedial.bounds import least_squares, ranks
    from safedial.bounds.t_laws import t_survival

    rng, lanes = np.random.default_rng(6), 200
    fit, capital, most = least_squares.init(2, (lanes,)), ranks.init((lanes,)), np.zeros(lanes)
    for _ in range(150):
        context, cost = rng.standard_normal((lanes, 2)), rng.standard_normal(lanes)
        seen = least_squares.predict(fit, context)
        if np.all(seen.ready):
            size = (cost - seen.cost) / (seen.spread * np.sqrt((1 + seen.width**2) / seen.degrees))
            capital = ranks.update(capital, t_survival(seen.degrees, size))
            most = np.maximum(most, ranks.evidence(capital))
        fit = least_squares.update(fit, seen, cost, cost)
    assert np.sum(most >= 20) <= 27


ANYTIME = {**RISKS, "estimation_risk": 0.01}


def test_the_anytime_guarantee_uses_the_longest_known_prefix():
    agent, rng = make_agent(spec=ANYTIME, guarantee="anytime", mixture_ridge=3.0), np.random.default_rng(7)
    first = play(agent, 20)[2][-1]
    assert (first.guarantee, first.safe_action) == ("declared", 0.05)
    play(agent, 60, seed=1)
    late = agent.ask(rng.standard_normal(3))
    for _ in range(5):
        decision = agent.ask(rng.standard_normal(3))
        assert decision.guarantee == "student"
        assert decision.certificate["model"]["informative_rounds"] == 80
        agent.tell(decision, **outcome(rng, decision.context, decision))
    agent.tell(late, **outcome(rng, late.context, late))
    decision = agent.ask(rng.standard_normal(3))
    assert decision.certificate["model"]["informative_rounds"] == 86
    words = "with probability 0.99, in all rounds at once, P(cost > 0.5) <= 0.05 in this round given the past"
    assert decision.certificate["statement"].startswith(words)
    assert decision.certificate["risk"]["estimation_risk"] == 0.01


def test_the_anytime_guarantee_counts_costs_above_its_bound():
    agent, rng = make_agent(spec=ANYTIME, guarantee="anytime", mixture_ridge=3.0), np.random.default_rng(8)
    play(agent, 80)
    agent.resume()
    for number in range(6):
        decision = agent.ask(rng.standard_normal(3))
        agent.tell(decision, reward=0.0, cost=9.0**number * decision.intensity)
    assert agent.stop_reason == "alarm"


@pytest.mark.parametrize("guarantee", ["anytime", "per_round"])
def test_a_zero_that_the_agent_itself_advised_while_stopped_is_left_out_where_the_bound_allows_it(guarantee):
    spec = SafetySpec(**ANYTIME)
    agents = [
        Agent(3, spec, policy=hp_student(guarantee=guarantee), start_action=0.05, fallback_action=0.0) for _ in range(2)
    ]
    for agent in agents:
        play(agent, 60)
    agents[0]._stop_reason = "alarm"
    for number in range(3):
        decision = agents[0].ask([9.0, float(number), 1.0])
        assert decision.action == 0.0
        agents[0].tell(decision, reward=0.0, cost=0.0)
    agents[0].resume()
    decisions = [agent.ask([0.1, 0.2, 0.3]) for agent in agents]
    if guarantee == "anytime":
        assert decisions[0].certificate["cost_upper"] == decisions[1].certificate["cost_upper"]
        assert decisions[0].numbers["lost"] == 0
    else:
        assert (decisions[0].limit, decisions[0].numbers["lost"]) == ("open_rounds", 3)


def test_only_a_zero_of_its_own_is_left_out_without_a_word():
    """Not a dose that was advised and withheld. A zero of its own has no outcome to lose."""
    agent = make_agent(spec=ANYTIME, guarantee="anytime")
    play(agent, 40)
    agent.tell(agent.ask([0.1, 0.2, 0.3]), applied_action=0.0, reward=0.0, cost=0.0)
    assert agent.ask([0.1, 0.2, 0.3]).numbers["lost"] == 1
    stopped = Agent(
        3, SafetySpec(**ANYTIME), policy=hp_student(guarantee="anytime"), start_action=0.05, fallback_action=0.0
    )
    stopped._stop_reason = "alarm"
    stopped.tell(stopped.ask([0.1, 0.2, 0.3]), unrelated=False)
    assert stopped.ask([0.1, 0.2, 0.3]).numbers["lost"] == 0


def test_the_tolerance_guarantee_has_the_noncentral_quantile():
    agent = make_agent(spec=ANYTIME, guarantee="tolerance")
    decision = play(agent, 20)[2][-1]
    model = decision.certificate["model"]
    factor = float(tolerance_factor(model["degrees_of_freedom"], model["width"], 0.05, 0.01))
    assert decision.certificate["cost_upper"] == pytest.approx(model["cost"] + model["noise"] * factor, rel=1e-12)
    assert "with probability 0.99 over the past rounds" in decision.certificate["statement"]


@pytest.mark.parametrize("guarantee", ["per_round", "anytime"])
def test_a_saved_agent_goes_on_bit_for_bit(tmp_path, guarantee):
    agent, rng = make_agent(spec=ANYTIME, guarantee=guarantee, lag=2), np.random.default_rng(9)
    play(agent, 50)
    late = [agent.ask(rng.standard_normal(3)) for _ in range(2)]
    agent.tell(late[1], **outcome(rng, late[1].context, late[1]))
    agent.save(tmp_path / "agent")
    for policy in (None, hp_student(guarantee=guarantee, lag=2)):
        twin = Agent.load(tmp_path / "agent", policy=policy)
        assert twin.evidence == agent.evidence
        for each in (agent, twin):
            each.tell(late[0].context, 0.03, reward=0.01, cost=0.02, round=late[0].round)
        context = rng.standard_normal(3)
        assert twin.ask(context).certificate == agent.ask(context).certificate
        agent = Agent.load(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="probe"):
        Agent.load(tmp_path / "agent", policy=hp_student(guarantee=guarantee, lag=2, probe=0.5))


def test_the_start_follows_from_the_constants_or_is_declared():
    constants = {"cost_noise": 0.2, "coefficient_bound": 1.0, "context_bound": 4.0}
    agent = make_agent(start_action=None, spec={**RISKS, **constants})
    first = agent.ask([1.0, 0.5, 0.2])
    assert first.guarantee == "certified"
    assert make_agent(start_action=None, start_dose=0.07).ask([1.0, 0.5, 0.2]).action == pytest.approx(0.07)
    assert np.all(make_agent().cost_coef == 0)
    declared = make_agent().ask([1.0, 0.5, 0.2])
    assert declared.guarantee == "declared"
    assert declared.certificate["model"]["condition"] is None
    with pytest.raises(InvalidInput, match="start_action"):
        make_agent(start_action=None)


def test_what_has_no_proof_online_is_refused():
    with pytest.raises(InvalidInput, match="which rounds get none must not depend on outcomes"):
        Agent(3, SafetySpec(**RISKS), dial=Dial(levels=[0, 0.5, 1]), start_action=0.5)
    with pytest.raises(InvalidInput, match="does not match policy hp_student"):
        Agent(3, SafetySpec(**{**RISKS, "guarantee": "conformal"}), policy=hp_student(), start_action=0.1)
    with pytest.raises(InvalidInput, match="does not match policy hp_probe"):
        Agent(3, SafetySpec(**RISKS), policy="hp_probe")
    with pytest.raises(InvalidInput, match="sensor noise"):
        make_agent(spec={**RISKS, "cost_sensor_noise": 0.1})


@pytest.mark.parametrize("guarantee", ["per_round", "anytime"])
def test_costs_without_any_scatter_prove_nothing_and_the_first_large_one_counts(guarantee):
    spec = {**RISKS, **({"estimation_risk": 0.01} if guarantee == "anytime" else {})}
    agent = make_agent(spec=spec, guarantee=guarantee)
    rng = np.random.default_rng(3)
    for _ in range(50):
        decision = agent.ask(rng.standard_normal(3))
        assert (decision.action <= 0.05, decision.guarantee) == (True, "declared")
        agent.tell(decision, reward=0.1, cost=0.0)
    agent.tell(agent.ask(rng.standard_normal(3)), reward=0.1, cost=50.0)
    assert agent.evidence > 100 or guarantee == "anytime"


@pytest.mark.parametrize("end", ["lost", "open"])
def test_one_lost_or_open_round_does_not_blind_an_anytime_guarantee(end, tmp_path):
    agent = make_agent(spec={**RISKS, "estimation_risk": 0.01}, guarantee="anytime")
    play(agent, 120)
    gone = agent.ask(np.ones(3))
    if end == "lost":
        agent.tell(gone, applied_action=0.0, reward=0.0, cost=0.0)
    agent.save(tmp_path / "agent")
    agent, rng = Agent.load(tmp_path / "agent"), np.random.default_rng(9)
    for _ in range(40):
        decision = agent.ask(rng.standard_normal(3))
        if agent.alarmed:
            break
        agent.tell(decision, reward=0.1, cost=3.0 * decision.intensity)
    assert agent.alarmed
    assert agent.stop_reason == "alarm"


def test_a_preview_changes_no_evidence():
    one, other, rng = make_agent(lag=3), make_agent(lag=3), np.random.default_rng(5)
    for _ in range(40):
        context = rng.standard_normal(3)
        for _ in range(2):
            one.preview(context)
        noise = 0.2 * rng.standard_normal()
        for agent in (one, other):
            decision = agent.ask(context)
            agent.tell(decision, reward=0.0, cost=decision.intensity * float(context @ COEF + noise))
        assert one.evidence == other.evidence
    assert one.evidence != 1.0
