"""HP-Student with either=True: the smaller of two doses, the guarantee if either assumption holds, and when it
stops.
"""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import (
    Agent,
    Cost,
    InvalidInput,
    LinearWorld,
    SafetySpec,
    create_study,
    hp_conformal,
    hp_student,
)
from safedial.model.dose import as_dose
from safedial.policies.policy import KNOWN, Asked, Task, Told
from safedial.simulation.results import guarantee_holds
from safedial.study.manage import open_study
from safedial.study.store import Store
from tests.conftest import make_spec

SPEC = SafetySpec(threshold=0.5, violation_risk=0.2, guarantee="student")
COEF = np.array([0.3, -0.2])


def make_agent(**options):
    return Agent(2, SPEC, policy=hp_student(either=True, **options), start_action=0.05)


def play(agent, rounds, seed=0, draw=lambda rng: rng.standard_normal(), rise=0.0):
    rng, made = np.random.default_rng(seed), []
    for _ in range(rounds):
        context = rng.standard_normal(2)
        decision = agent.ask(context)
        cost = decision.intensity * (context @ COEF + 0.2 * draw(rng) + rise)
        agent.tell(decision, reward=decision.intensity * 0.5, cost=float(cost))
        made.append(decision)
    return made


def test_the_dose_is_the_smaller_of_both_and_the_start_until_both_have_a_bound():
    both, one = make_agent(), Agent(2, SPEC, policy=hp_student(), start_action=0.05)
    plain = SafetySpec(threshold=0.5, violation_risk=0.2, guarantee="conformal")
    conformal = hp_conformal(groups="none", start_dose=0.05, probe=0.001, reach=None, history="calibrate")
    two = Agent(2, plain, policy=conformal, start_action=0.05)
    rng, met = np.random.default_rng(1), set()
    for _ in range(60):
        context = rng.standard_normal(2)
        noise = float(0.2 * rng.standard_normal())
        foreseen = both.preview(context)
        decisions = [agent.ask(context) for agent in (both, one, two)]
        assert foreseen.safe_action == decisions[0].safe_action
        own, student, other = decisions
        ready = student.guarantee == "student" and other.guarantee == "conformal"
        met.add(ready)
        assert own.guarantee == ("student" if ready else "declared")
        if ready:
            assert own.safe_action == pytest.approx(min(student.safe_action, other.safe_action), rel=1e-9)
            assert own.certificate["conformal"]["cost_upper"] == pytest.approx(
                other.certificate["cost_upper"], rel=1e-9
            )
        else:
            assert own.safe_action == 0.05
        for agent, decision in zip((both, one, two), decisions, strict=True):
            agent.tell(decision, reward=0.5 * decision.intensity, cost=decision.intensity * (context @ COEF + noise))
    assert met == {True, False}
    facts = own.certificate
    assert (
        facts["statement"]
        == "P(cost > 0.5) <= 0.2 in this round, for Gaussian noise of any size, or for exchangeable rounds"
    )


def test_excesses_of_the_larger_bound_are_rare_under_either_assumption(count):
    """Y > U at round 60: exponential noise (exchangeable, not Gaussian) and a mean that drifts along with its contexts
    (Gaussian and linear, not exchangeable); false-alarm level 1e-6.
    """
    lanes, rng = count(800, 8000), np.random.default_rng(2)
    task = Task(dim=2, spec=make_spec(violation_risk=0.1), dose=as_dose(None))
    policy, alone = (hp_student(either=either, start_dose=0.1).on(task) for either in (True, False))
    for gaussian in (True, False):
        both, one = policy.init((lanes,), watch=False), alone.init((lanes,), watch=False)
        for number in range(60):
            context = rng.standard_normal((lanes, 2)) + (0.2 * number if gaussian else 0.0)
            noise = rng.standard_normal(lanes) if gaussian else rng.exponential(size=lanes) - 1.0
            cost = context @ np.array([1.0, 1.0]) + noise
            asked = Asked(context, np.linalg.norm(context, axis=1), number + 1.0)
            uppers = []
            for each, state in ((policy, both), (alone, one)):
                each.begin(state, asked)
                bound = each.bound(state, asked)
                each.open(state, asked, bound, np.full(lanes, 0.1))
                fate, ones = np.full(lanes, KNOWN), np.ones(lanes)
                each.tell(state, number, Told(fate, cost, cost, ones, 0.1 * cost, 0.0, 0.1, 0.1, context))
                uppers.append(bound.numbers["cost_upper"])
        assert np.all(np.isfinite(uppers[0]))
        assert binomtest(int(np.sum(cost > uppers[0])), lanes, 0.1, alternative="greater").pvalue > 1e-6
        assert np.all(uppers[0] >= uppers[1])


def test_the_agent_stops_only_when_both_assumptions_look_broken(tmp_path):
    agent = make_agent()
    play(agent, 60)
    learner = agent._rounds.learning
    state = learner._state
    state["student"].watch.crossed = np.array(True)
    agent.resume()
    assert not state["student"].watch.crossed
    assert agent.evidence == 1.0
    play(agent, 40, seed=3, rise=1.5)
    assert agent.stop_reason == "student_drift"
    each = [part.evidence(state[name]) for name, part in learner.policy.parts.items()]
    assert agent.evidence == min(float(found.value) for rules in each for found in rules.values())
    agent.save(tmp_path / "agent")
    twin = Agent.load(tmp_path / "agent")
    for each in (agent, twin):
        each.resume()
    assert twin.ask([0.1, 0.2]).certificate == agent.ask([0.1, 0.2]).certificate
    agent.resume(forget=True)
    assert agent.ask([0.1, 0.2]).limit == "forgotten"


def test_a_study_starts_anew_and_is_read_back_with_both_bounds(tmp_path):
    rng = np.random.default_rng(5)
    with Store(f"sqlite:///{tmp_path}/study.db") as store:
        study = create_study("one", SPEC, dim=2, policy=hp_student(either=True), start_action=0.05, storage=store)
        for _ in range(12):
            context = rng.standard_normal(2)
            advice = study.ask(context.tolist())
            cost = float(advice.intensity * (context @ COEF + 0.2 * rng.standard_normal()))
            study.tell(advice.id, reward=0.5 * advice.intensity, cost=cost)
        late = study.ask([0.1, 0.2])
        study.resume("a new start", forget=True)
        study.tell(late.id, reward=0.0, cost=0.0)
        assert study.status()["informative_rounds"] == 0
        assert study.verify().ok
        digest = study.state_digest()
    with Store(f"sqlite:///{tmp_path}/study.db") as store:
        again = open_study("one", storage=store)
        assert again.state_digest() == digest
        assert again.decision(late.id).certificate == late.certificate


def test_what_has_no_proof_is_refused_and_where_it_is_proved():
    for guarantee in ("tolerance", "anytime"):
        with pytest.raises(InvalidInput, match="has no proof with either=True"):
            hp_student(guarantee=guarantee, either=True)
    with pytest.raises(InvalidInput, match="either"):
        hp_student(either=3)
    costs = {"heat": Cost(threshold=1), "load": Cost(threshold=2)}
    several = SafetySpec(costs=costs, violation_risk=0.1, guarantee="student")
    with pytest.raises(InvalidInput, match="takes one cost"):
        Agent(2, several, policy=hp_student(either=True), start_action=0.1)
    spec = make_spec(violation_risk=0.05)
    assert guarantee_holds(hp_student(either=True), LinearWorld(dim=2, noise="exponential"), spec)
    assert guarantee_holds(hp_student(either=True), LinearWorld(dim=2, contexts="drift"), spec)
    assert not guarantee_holds(hp_student(), LinearWorld(dim=2, noise="exponential"), spec)
