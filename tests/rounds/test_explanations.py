"""Every explanation holds what its certificate guarantees and assumes, and says how the bound was found.

The words of each case are those that only its kind of bound, or of start, has.
"""

import numpy as np
import pytest

from safedial import Agent, Cost, Dial, SafetySpec, hp_student, make_policy, nonlinear_hp_probe, power
from safedial.policies.classes import binary, kernel
from safedial.rounds.decision import LIMITS
from tests.conftest import make_spec

QUIET = {"cost_noise": 0.2, "reward_noise": 0.2}
BOUNDED = {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0, "margin_risk": 0.05, "violation_risk": 0.2}
STUDENT = SafetySpec(threshold=0.5, violation_risk=0.2, estimation_risk=0.01, guarantee="student")
START = SafetySpec(threshold=0.5, violation_risk=0.2, guarantee="student", cost_noise=0.2, coefficient_bound=1,
                   context_bound=4)  # fmt: skip
COSTS = {"heat": Cost(threshold=2, noise=0.2, unit="C"), "load": Cost(threshold=1.5, noise=0.1, curve=power(2.0))}
SEVERAL = SafetySpec(costs=COSTS, total_risk=0.03, reward_noise=0.1, coefficient_bound=3, context_bound=1)
TWO = SafetySpec(
    costs={"heat": Cost(threshold=0.5), "load": Cost(threshold=0.3)}, violation_risk=0.2, guarantee="student"
)


def told(agent, rounds=0, context=(0.5, 0.3), **asked):
    """The decision for a context after some rounds."""
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        here = rng.uniform(-0.6, 0.6, 2)
        decision = agent.ask(here)
        noise = 0.2 * float(rng.standard_normal())
        cost = float(rng.random() < 0.1) if agent.policy.zero_one else decision.intensity * (0.3 * here[0] + noise)
        costs = dict.fromkeys(agent.spec.costs, cost) if agent.spec.costs else cost
        agent.tell(decision, reward=decision.intensity * (here[1] + noise), cost=costs)
    return agent.ask(context, **asked)


def student(spec=STUDENT, **options):
    return Agent(2, spec, policy=hp_student(**options), start_action=0.05)


def lost():
    agent = student()
    agent.tell(agent.ask([0.5, 0.3]), applied_action=0.0, reward=0.0, cost=0.0)
    return agent


def waiting():
    agent = student(lag=1)
    told(agent, 12)
    agent.ask([0.1, 0.2])
    return agent


CASES = {
    "linear": (lambda: told(Agent(2, make_spec(**QUIET)), 60), "the part of the context that past rounds do not cover"),
    "mixture": (lambda: told(Agent(2, make_spec(**QUIET), policy=make_policy("hp_probe")), 200), "+ radius "),
    "cut": (lambda: told(Agent(2, make_spec(), policy=make_policy("hp_probe")), 3), "cut at what the norms allow, "),
    "norms": (lambda: told(Agent(2, make_spec(), policy="fixed")), "what the norms alone allow ("),
    "round one": (
        lambda: told(Agent(2, make_spec(), policy=make_policy("hp_ucb", clip=False)), context=(0.03, 0.04)),
        "what the norms alone allow, in round one",
    ),
    "learned noise": (lambda: told(Agent(2, make_spec(**BOUNDED))), "0.05 on learning the noise"),
    "joint": (lambda: told(Agent(2, make_spec(guarantee="joint"))), "in any round, ever"),
    "sensor": (
        lambda: told(Agent(2, make_spec(cost_sensor_noise=0.05)), baseline_cost=0.1),
        "less the baseline cost 0.1",
    ),
    "dependent sensor": (
        lambda: told(Agent(2, make_spec(cost_sensor_noise=0.05, sensor_dependent=True))),
        "The largest intensity: (0.5 - ",
    ),
    "true cost": (
        lambda: told(Agent(2, make_spec(cost_sensor_noise=0.05, threshold_on="true"))),
        "P(true cost > 0.5)",
    ),
    "uncertified": (lambda: told(Agent(2, make_spec()), baseline_cost=0.7), "WARNING"),
    "class": (
        lambda: told(Agent(2, make_spec(), policy=nonlinear_hp_probe(cost_class=kernel())), 8),
        "over the class kernel",
    ),
    "events": (
        lambda: told(
            Agent(2, make_spec(violation_risk=0.2), policy=nonlinear_hp_probe(cost_class=binary(odds=0.25))), 12
        ),
        "log-odds",
    ),
    "several": (
        lambda: told(Agent(2, SEVERAL, dial=Dial(high=10, unit="mg"))),
        "The smallest of the largest settings",
    ),
    "student": (lambda: told(student(), 20), "t quantile"),
    "tolerance": (lambda: told(student(guarantee="tolerance"), 20), "with probability 0.99 over the past rounds"),
    "anytime": (lambda: told(student(guarantee="anytime"), 20), "has no upper bound yet, after 20 rounds"),
    "anytime, later": (lambda: told(student(guarantee="anytime"), 90), "in all rounds at once"),
    "either": (lambda: told(student(either=True), 60), "the larger of the Student bound and the conformal one"),
    "either, earlier": (lambda: told(student(either=True), 6), "the conformal bound needs more rounds; there are 6"),
    "student's start": (lambda: told(student()), "none is proved yet"),
    "student's constants": (lambda: told(Agent(2, START)), "from the constants (start-up)"),
    "lost": (lambda: told(lost()), "resume with forget"),
    "open": (lambda: told(waiting()), "1 rounds that this decision needs are still open (lag 1)"),
    "students": (lambda: told(student(TWO), 20), "load: The bound"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_explanation_holds_what_the_certificate_guarantees_and_how_the_bound_was_found(name):
    make, words = CASES[name]
    decision = make()
    text, facts = decision.explain(), decision.certificate
    assert repr(text) == text
    assert facts["statement"] in text
    assert words in text
    assert decision.fallback_reason or all(line in text for line in [LIMITS[facts["limit"]], *facts["assumptions"]])
    assert facts["statement"] in decision._repr_html_().replace("&gt;", ">").replace("&lt;", "<")


def test_what_guarantees_nothing_on_the_realized_cost_never_says_safe():
    expected = told(Agent(2, make_spec(), policy="on_expectation"))
    assert (expected.certified, expected.certificate["guarantee"]) == (False, "none")
    assert "none on the realized cost" in expected.explain()
    assert "safe" not in expected.explain()
