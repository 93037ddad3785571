"""The policy of an Agent or a study that names none follows from what is stated; the certificate says why."""

import pytest

from safedial import Agent, Cost, SafetySpec, growth

CONSTANTS = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}
RISK = {"violation_risk": 0.05}
COSTS = {"level": Cost(threshold=20, growth=growth.relative(0.7, 1.4, floor=2))}
STATED = {
    "hp_probe": ({"threshold": 0.5, "total_risk": 0.05, **CONSTANTS}, "upper bounds on the noise"),
    "hp_student": ({"threshold": 0.5, **RISK, "guarantee": "student"}, "Gaussian"),
    "hp_conformal": ({"threshold": 0.5, **RISK, "guarantee": "conformal"}, "exchangeable"),
    "hp_shield": ({"costs": COSTS, **RISK, "guarantee": "bracket"}, "a growth bracket"),
}


@pytest.mark.parametrize("name", STATED)
def test_the_default_policy_follows_from_what_is_stated_and_the_certificate_says_why(name):
    fields, why = STATED[name]
    start = {} if name == "hp_probe" else {"start_action": 0.05}
    agent = Agent(2, SafetySpec(**fields), **start)
    decision = agent.ask([0.6, 0.3], **({"proposal": 0.2} if name == "hp_shield" else {}))
    assert agent.policy.name == name
    reason = decision.certificate["policy_reason"]
    assert reason.startswith(f"{name}, because")
    assert why in reason
