"""The policy of an Agent or a study that names none follows from what is stated; the certificate says why."""

import pytest

from safedial import Agent, Cost, SafetySpec, create_study, growth, hp_ucb, open_study

CONSTANTS = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}
RISK = {"violation_risk": 0.05}
COSTS = {"level": Cost(threshold=20, growth=growth.relative(0.7, 1.4, floor=2))}
STATED = {
    "hp_probe": ({"threshold": 0.5, "total_risk": 0.05, **CONSTANTS}, "upper bounds on the noise"),
    "hp_student": ({"threshold": 0.5, **RISK, "promise": "student"}, "Gaussian"),
    "hp_conformal": ({"threshold": 0.5, **RISK, "promise": "conformal"}, "exchangeable"),
    "hp_shield": ({"costs": COSTS, **RISK, "promise": "bracket"}, "a growth bracket"),
}


@pytest.mark.parametrize("name", STATED)
def test_the_default_policy_follows_from_what_is_stated_and_the_certificate_says_why(name):
    fields, why = STATED[name]
    start = {} if name == "hp_probe" else {"start_action": 0.05}
    agent = Agent(2, SafetySpec(**fields), **start)
    decision = agent.decide([0.6, 0.3], **({"proposal": 0.2} if name == "hp_shield" else {}))
    assert agent.policy.name == name
    reason = decision.certificate["policy_reason"]
    assert reason.startswith(f"{name}, because")
    assert why in reason
    assert f"Policy: {reason}." in str(decision.explain())


def test_a_policy_that_was_named_is_said_to_be():
    fields, _ = STATED["hp_probe"]
    reason = Agent(2, SafetySpec(**fields), policy=hp_ucb()).decide([0.6, 0.3]).certificate["policy_reason"]
    assert reason.startswith("hp_ucb, because it was named; hp_probe is the default where upper bounds")


def test_a_study_that_states_a_bracket_runs_hp_shield_and_the_log_remembers_why(tmp_path):
    bracket = growth.relative(0.7, 1.4, floor=2).to_dict()
    fields = {"dim": 1, "threshold": 20, **RISK, "promise": "bracket", "growth": bracket, "start_scale": 0.25}
    storage = f"sqlite:///{tmp_path}/s.db"
    study = create_study("s", storage=storage, fallback_action=0, **fields)
    asked = study.ask([0.5], proposal=0.4)
    assert asked.certificate["policy"]["base"] == "proposal"
    assert asked.certificate["policy_reason"].startswith("hp_shield, because a growth bracket is stated")
    assert open_study("s", storage=storage).decision(asked.id).certificate == asked.certificate
    again = create_study("s", storage=storage, fallback_action=0, **fields, load_if_exists=True)
    assert again.verify().ok
