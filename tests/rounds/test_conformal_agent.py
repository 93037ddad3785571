"""The Agent under the conformal guarantee: its start, its certificate, its groups, its alarm, its refusals."""

import json

import numpy as np
import pytest

from safedial import Agent, Dial, Features, InvalidInput, SafetySpec, hill, make_policy
from safedial.model.dose import Dose, identity
from safedial.policies.policy import KNOWN, Asked, Task, Told
from tests.conftest import make_spec
from tests.rounds.conformal_rounds import DIM, conformal_spec, outcome, taught

LEVELS = Dial(low=0, high=10, levels=(1.0, 5.0))


CONSTANTS = {"reward_noise": 1.0, "cost_noise": 1.0, "coefficient_bound": 2.0, "estimation_risk": 0.01}
KINDS = {
    "sign groups": {"start_dose": 0.05},
    "no sign groups": {"groups": "none", "start_dose": 0.05},
    "no sign groups, constants": {"groups": "none"},
}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_an_agent_decides_as_the_simulator_would(options):
    policy, spec = make_policy("hp_conformal", **options, reach=None, probe=0.01), conformal_spec(**CONSTANTS)
    agent = Agent(DIM, spec, policy=policy)
    lanes, rng = policy.on(Task(dim=DIM, spec=spec, dose=Dose(identity(), identity()))), np.random.default_rng(5)
    state = lanes.init((1, 1))
    for number in range(1, 160):
        context = rng.standard_normal(DIM)
        cost, reward = context.sum() + rng.standard_normal(), context[0] + rng.standard_normal()
        decision = agent.ask(context)
        asked = Asked(context[None, None], np.linalg.norm(context), float(number))
        lanes.begin(state, asked)
        bound = lanes.bound(state, asked)
        assert decision.intensity == pytest.approx(float(lanes.choose(bound, asked)[0, 0]), rel=1e-9)
        agent.tell(decision, reward=reward * decision.intensity, cost=cost * decision.intensity)
        lanes.open(state, asked, bound, decision.intensity)
        told = Told(KNOWN, reward, cost, np.ones((1, 1)), cost, 0.0, decision.action, decision.intensity, context)
        lanes.tell(state, number - 1, told)
    assert agent.evidence == pytest.approx(float(lanes.evidence(state)["drift"].value[0, 0]), rel=1e-6)


def test_constants_can_certify_the_start():
    spec = conformal_spec(cost_noise=0.3, coefficient_bound=1.0)
    agent = Agent(DIM, spec)
    decision = agent.ask([0.3, 0.4, 0.0])
    assert decision.certified
    assert decision.action == pytest.approx(0.5 / (0.5 + 0.3 * np.sqrt(2 * np.log(10))))
    assert "start-up" in decision.explain()
    assert agent.policy.options["start_dose"] is None
    assert decision.certificate["guarantee"] == "certified"
    assert decision.certificate["model"]["rounds_at_refit"] == 0


def test_the_certificate_states_guarantee_group_rank_and_what_voids_it():
    agent, _ = taught(300)
    decision = agent.ask([1.0, 0.0, 0.0])
    told = decision.certificate
    json.dumps(told)
    group = told["group"]
    assert told["guarantee"] == "conformal"
    assert told["holds"]
    assert group["benefit_expected"]
    assert 10 <= group["used"] <= group["calibration_rounds"]
    assert group["rank_from_top"] / (group["used"] + 1) <= 0.1 + 1e-12
    assert group["rank"] == group["used"] + 1 - group["rank_from_top"]
    words = decision.explain()
    for part in ("exchangeable", "calibration rounds of its group", "smallest of the latest", "P(cost > 0.5) <= 0.1"):
        assert part in words
    assert told["safe_intensity"] == pytest.approx(min(1.0, 0.5 / told["cost_upper"]))
    assert told["holds"]
    assert not Agent(DIM, conformal_spec(), start_action=0.1).ask([0.0, 0.0, 0.0]).certificate["holds"]
    assert "depends neither on contexts" in words


def test_a_decision_keeps_its_numbers_when_rounds_go_on():
    agent, _ = taught(300)
    decision = agent.ask([1.0, 0.0, 0.0])
    before = json.dumps(decision.certificate)
    taught(200, agent, seed=9)
    assert json.dumps(decision.certificate) == before


def test_a_baseline_cost_is_shown_in_the_arithmetic_and_a_probe_too():
    agent, _ = taught(300)
    assert "(0.5 less the baseline cost 0.1)" in agent.ask([2.0, 2.0, 2.0], baseline_cost=0.1).explain()
    refused = agent.ask([-1.0, 0.0, 0.0])
    assert refused.limit == "probe"
    assert "This decision gives 0.001 of it" in refused.explain()
    assert "since" in agent.ask([0.05, -3.0, 0.0]).explain()
    over = agent.ask([0.1, 0.0, 0.0], baseline_cost=0.6)
    assert (over.guarantee, over.limit, over.action) == ("none", "no_certified_action", 0.0)
    assert over.certificate["assumptions"] == []


def test_a_preview_is_what_the_decision_will_be():
    agent, rng = taught(0)
    for _ in range(120):
        context = rng.standard_normal(DIM) / 2
        seen = agent.preview(context)
        decision = agent.ask(context)
        assert (seen.action, seen.guarantee) == (decision.action, decision.guarantee)
        agent.tell(decision, **outcome(rng, context, decision.intensity))


def test_a_certified_start_falls_back_to_what_the_constants_certify():
    spec = conformal_spec(cost_noise=0.3, coefficient_bound=1.0, context_bound=2.0)
    assert Agent(DIM, spec)._rules.fallback_action == pytest.approx(0.5 / (2.0 + 0.3 * np.sqrt(2 * np.log(10))))
    assert Agent(DIM, conformal_spec(cost_noise=0.3, coefficient_bound=1.0))._rules.fallback_action == 0.0


def test_a_group_never_seen_gets_the_start_dose():
    features = Features(names=("age", "weight"), center=(50, 70), scale=(20, 20), intercept=True)
    agent = Agent(
        3, conformal_spec(), features=features, policy=make_policy("hp_conformal", group="age"), start_action=0.05
    )
    rng = np.random.default_rng(0)
    for _ in range(400):
        raw = {"age": float(rng.choice([30, 60])), "weight": float(70 + 20 * rng.standard_normal())}
        decision = agent.ask(raw)
        agent.tell(decision, **outcome(rng, decision.context, decision.intensity))
    assert agent.ask({"age": 30, "weight": 70}).guarantee == "conformal"
    new = agent.ask({"age": 90, "weight": 70})
    assert (new.guarantee, new.action, new.limit) == ("declared", 0.05, "start_dose")
    assert "0 calibration rounds" in new.explain()
    assert "age = 90)" in new.explain()
    agent.tell(new, reward=0.0, cost=0.0)
    assert agent.ask({"age": 90, "weight": 70}).guarantee == "declared"


def test_drift_is_found_and_a_person_decides():
    agent, rng = taught(600)
    assert (agent.evidence < 100, agent.alarmed) == (True, False)
    for _ in range(300):
        context = rng.standard_normal(DIM) / 2
        decision = agent.ask(context)
        agent.tell(decision, reward=0.0, cost=decision.intensity * (3.0 + 0.1 * rng.standard_normal()))
    assert agent.alarmed
    doubtful = agent.ask([1.0, 0.0, 0.0])
    assert (doubtful.limit, doubtful.guarantee, doubtful.action) == ("drift", "none", 0.05)
    assert "exchangeable" in doubtful.explain()
    agent.resume()
    assert not agent.alarmed
    assert agent.evidence == pytest.approx(1.0)
    assert agent.ask([1.0, 0.0, 0.0]).guarantee == "conformal"
    agent.resume(forget=True)
    assert agent.ask([1.0, 0.0, 0.0]).guarantee == "declared"
    assert agent.informative_rounds == 0


def test_a_certified_agent_has_nothing_to_forget():
    with pytest.raises(InvalidInput, match="forget"):
        Agent(DIM, make_spec()).resume(forget=True)


def test_coefficients_are_those_of_the_predictors():
    agent, _ = taught(0)
    assert agent.reward_coef.tolist() == [0.0] * DIM
    agent, _ = taught(800)
    np.testing.assert_allclose(agent.cost_coef, [0.3, 0.5, 0.1], atol=0.15)
    np.testing.assert_allclose(agent.reward_coef, [0.9, 0.1, 0.0], atol=0.15)


def test_a_dial_with_units_and_levels(tmp_path):
    dial = Dial(low=0.0, high=100.0, unit="mg", levels=(0.0, 5.0, 10.0, 50.0, 100.0))
    made = {"dial": dial, "dose": hill(0.5), "start_action": 5.0}
    agent, _ = taught(300, Agent(DIM, conformal_spec(), **made))
    first = Agent(DIM, conformal_spec(), policy=make_policy("hp_conformal", probe=0.2), **made).ask([0.1, 0.1, 0.1])
    assert first.action == 5.0
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    again.resume(forget=True)
    assert again.ask([0.1, 0.1, 0.1]).action == 5.0
    assert agent.ask([1.0, -1.0, 0.0]).action in (5.0, 10.0, 50.0, 100.0)


@pytest.mark.parametrize(
    ("spec", "arguments", "named"),
    [
        ({}, {}, "start_action = None"),
        ({"cost_noise": 1.0}, {}, "start_action = None"),
        ({}, {"start_action": 0.0}, "start_action"),
        ({}, {"start_action": 2.0}, "start_action"),
        ({}, {"start_action": "a"}, "start_action"),
        ({}, {"start_action": 0.2, "policy": make_policy("hp_conformal", start_dose=0.1)}, "above the policy's"),
        ({}, {"start_action": 0.1, "policy": "hp_ucb"}, "guarantee"),
        ({"cost_sensor_noise": 0.1}, {"start_action": 0.1}, "sensor"),
        ({}, {"start_action": 3.0, "dial": LEVELS}, "levels"),
        ({}, {"policy": make_policy("hp_conformal", start_dose=0.01), "dial": LEVELS}, "has no effect"),
        ({}, {"start_action": 0.1, "policy": make_policy("hp_conformal", group="age")}, "group"),
        ({}, {"start_action": 0.1, "policy": make_policy("hp_conformal", group=9)}, "group"),
        ({"guarantee": "guess"}, {}, "guarantee"),
    ],
)  # fmt: skip
def test_an_agent_that_cannot_start_is_refused(spec, arguments, named):
    with pytest.raises(InvalidInput, match=named):
        Agent(DIM, conformal_spec(**spec), **arguments)


def test_a_certified_spec_goes_with_certified_policies_only():
    with pytest.raises(InvalidInput, match="guarantee"):
        Agent(DIM, make_spec(), policy="hp_conformal")
    with pytest.raises(InvalidInput, match="start_action"):
        Agent(DIM, make_spec(), start_action=0.1)


def test_contexts_need_no_bound_but_must_be_finite():
    agent = Agent(DIM, conformal_spec(), start_action=0.1)
    agent.ask([1e9, 0.0, 0.0])
    for bad in ([np.nan, 0.0, 0.0], [np.inf, 0.0, 0.0], [1e200, 0.0, 0.0]):
        with pytest.raises(InvalidInput, match="context"):
            agent.ask(bad)
    assert agent.decisions == 1


def test_the_constants_may_be_left_out_of_a_conformal_spec_only():
    spec = conformal_spec(total_risk=0.1, violation_risk=None)
    assert (spec.violation_risk, spec.estimation_risk, spec.cost_noise) == (0.1, None, None)
    assert SafetySpec.from_dict(spec.to_dict()) == spec
    with pytest.raises(InvalidInput, match="guarantee='conformal'"):
        SafetySpec(threshold=0.5, total_risk=0.1)
    with pytest.raises(InvalidInput, match="lacks"):
        SafetySpec.from_dict({"threshold": 0.5, "total_risk": 0.1})


def test_a_loaded_agent_that_is_proved_says_no_warning(tmp_path):
    spec = SafetySpec(threshold=0.5, violation_risk=0.3, guarantee="conformal")
    agent = Agent(2, spec, policy=make_policy("hp_conformal"), start_action=0.1)
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").decisions == 0


def test_agents_probe_less_than_simulations_unless_it_is_stated(tmp_path):
    agent = Agent(DIM, conformal_spec(), start_action=0.05)
    assert agent.policy.options["probe"] == 0.001
    assert make_policy("hp_conformal").options["probe"] == "auto", "0.01 in simulations"
    for stated in (0.01, 0.2, "sqrt"):
        policy = make_policy("hp_conformal", probe=stated)
        assert Agent(DIM, conformal_spec(), policy=policy, start_action=0.05).policy.options["probe"] == stated
    policy = make_policy("hp_conformal", group=lambda x: "all")
    old = Agent(DIM, conformal_spec(), policy=make_policy("hp_conformal", probe=0.01, group=policy.options["group"]),
                start_action=0.05)  # fmt: skip
    old.save(tmp_path / "old")
    assert Agent.load(tmp_path / "old", policy=policy).policy.options["probe"] == 0.01, "as it was saved"
    with pytest.raises(InvalidInput, match="other options than the saved one: probe"):
        Agent.load(tmp_path / "old", policy=make_policy("hp_conformal", probe=0.1, group=policy.options["group"]))


def test_without_sign_groups_every_round_calibrates_and_the_guarantee_says_over_whom():
    policy = make_policy("hp_conformal", groups="none", reach=None)
    agent, _ = taught(24, Agent(DIM, conformal_spec(), policy=policy, start_action=0.05))
    decision = agent.ask([0.2, 0.1, 0.0])
    assert "over all rounds, not among those expected to benefit" in decision.explain()
    assert "of its group" not in decision.explain()
    assert decision.certificate["group"]["calibration_rounds"] == 22, "those of the last refit"


def test_a_users_group_is_named_without_sign_groups():
    options = {"groups": "none", "reach": None}
    policy = make_policy("hp_conformal", **options, group=lambda x: "far" if x[0] > 0.0 else "near")
    agent, _ = taught(60, Agent(DIM, conformal_spec(), policy=policy, start_action=0.05))
    words = agent.ask([0.5, 0.1, 0.0]).explain()
    assert "calibration rounds of its group (far)" in words
    assert "over all rounds of your group, not among those expected to benefit" in words
