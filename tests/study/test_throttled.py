"""Throttled outcomes do not blind HP-Conformal and HP-Student: the alarm comes within ten rounds of the
control's, in which every outcome is reported as it is, and stays as rare as guaranteed where nothing is broken.
"""

import numpy as np
import pytest
from scipy.stats import binom

from safedial import Cost, SafetySpec, hp_conformal, hp_student
from safedial.policies.policy import Asked
from safedial.rounds.learning import Learning
from safedial.rounds.outcome import Outcome, for_the_watch, normalise
from safedial.rounds.rules import Rules
from safedial.study.store import Store
from safedial.study.study import Study

RISKS = {"threshold": 0.5, "violation_risk": 0.1, "estimation_risk": 0.01}
START = 0.05


@pytest.fixture
def shelf(tmp_path):
    with Store(f"sqlite:///{tmp_path}/study.db") as opened:
        yield opened


def rules_of(kind):
    guarantee, _, option = kind.partition(" ")
    spec = {**RISKS, "guarantee": guarantee}
    if option == "several":
        costs = {"first": Cost(threshold=0.5), "second": Cost(threshold=5.0)}
        spec = {name: value for name, value in spec.items() if name != "threshold"} | {"costs": costs}
    chosen = {"tolerance": {"guarantee": option}, "anytime": {"guarantee": option}, "either": {"either": True}}
    policy = hp_conformal() if guarantee == "conformal" else hp_student(**chosen.get(option, {}))
    return SafetySpec(**spec), policy


def learning_of(kind):
    spec, policy = rules_of(kind)
    fields = {"spec": spec, "policy": policy, "dim": 2, "start_action": START}
    return Learning(Rules.from_dict(fields))


def opened(learning, context):
    """The place of a new round, which is given 0.5."""
    asked = Asked(context, 1.0, 1.0)
    learning.policy.begin(learning._state, asked)
    return learning._open(asked, learning.policy.bound(learning._state, asked), 0.5)


def play(learning, quotient, context, given=None):
    """One round: C/g is `quotient`, at a setting of 0.5; where one is `given`, it was lowered to that."""
    rules, context = learning.rules, np.array([1.0, context])
    place, costs = opened(learning, context), (given or 0.5) * quotient
    told = {"first": costs, "second": 0.1 * costs} if rules.spec.costs else costs
    if given is None:
        learning.learn(context, 1.0, normalise(rules, Outcome(0.5, 0.1, told), context), place)
    else:
        learning.throttled(context, for_the_watch(rules, given, told, 0.0), place)
        learning.lose(place)


def rounds_to_alarm(kind, rounds, given=None):
    """How many rounds far above the others raise the alarm of a policy with `rounds` of them."""
    learning, rng = learning_of(kind), np.random.default_rng(3)
    for number in range(rounds + 40):
        before = number < rounds
        noise = 0.1 * rng.standard_normal() if before else 1.5 + rng.uniform()
        play(learning, 0.5 + noise, rng.uniform(-1.0, 1.0), None if before else given)
        if learning.stop_rule:
            return number + 1 - rounds
    return 41


KINDS = {"conformal": 110, "student": 30, "student tolerance": 30}
KINDS |= {"student anytime": 80, "student several": 30, "student either": 110}


@pytest.mark.parametrize("kind", KINDS)
def test_the_alarm_on_throttled_outcomes_comes_within_ten_rounds_of_the_control_s(kind):
    control = min(30, rounds_to_alarm(kind, KINDS[kind]))
    assert all(rounds_to_alarm(kind, KINDS[kind], given) <= control + 10 for given in (0.5, 0.4))


@pytest.mark.parametrize(("kind", "rounds"), [("conformal", 110), ("student", 20)])
def test_a_study_stops_on_throttled_outcomes_and_verifies(shelf, kind, rounds):
    spec, policy = rules_of(kind)
    rules = {"policy": policy, "start_action": START, "storage": shelf, "actor": "tester"}
    study, rng = Study.create("trial", spec, dim=2, **rules), np.random.default_rng(3)
    for number in range(rounds + 30):
        decision = study.ask([1.0, rng.uniform(-1.0, 1.0)])
        if number < rounds:
            study.tell(decision.id, reward=0.1, cost=decision.intensity * (0.5 + 0.1 * rng.standard_normal()))
        else:
            study.tell(decision.id, reward=0.1, cost=0.6 + 0.1 * rng.uniform(), applied_action=0.01, throttled=True)
    assert study.status()["stop_reason"] in ("drift", "student_drift")
    assert study.verify().ok


@pytest.mark.parametrize("kind", ["conformal", "student"])
def test_the_watch_stays_valid_where_high_outcomes_are_throttled(count, kind):
    """Rounds as assumed, of which the highest tenth are throttled, and only for that: the evidence reaches 100 with
    probability at most 0.01, and for HP-Student as much again. If it did so in just that share of the runs, more of
    them than the binomial quantile would show it with probability at most 1e-6.
    """
    rng, runs, crossed = np.random.default_rng(5), count(5, 300), 0
    for _ in range(runs):
        learning = learning_of(kind)
        for number in range(100):
            noise = 0.1 * rng.standard_normal()
            lowered = rng.uniform(0.1, 0.5) if number > 25 and noise > 0.13 else None
            play(learning, 0.5 + noise, rng.uniform(-1.0, 1.0), lowered)
        crossed += learning.stop_rule != ""
    assert crossed <= binom.isf(1e-6, runs, 0.02)


@pytest.mark.parametrize("kind", ["conformal", "student"])
def test_a_policy_with_throttled_rounds_goes_on_from_its_saved_state(kind):
    learning, again, rng = learning_of(kind), learning_of(kind), np.random.default_rng(7)
    for number in range(120):
        noise, context = 0.1 * rng.standard_normal(), rng.uniform(-1.0, 1.0)
        lowered = 0.3 if number > 30 and number % 3 == 0 else None
        play(learning, 0.5 + noise, context, lowered)
        if number == 80:
            again.restore(learning.state())
        elif number > 80:
            play(again, 0.5 + noise, context, lowered)
            assert again.evidence == learning.evidence
    assert learning.evidence != 1.0


def own_evidence(learning):
    """The evidence of each part of a policy."""
    found = (part.evidence(learning._state[name]) for name, part in learning.policy.parts.items())
    return [float(each.value) for rules in found for each in rules.values()]


def test_a_round_that_waits_no_longer_is_no_evidence_again():
    learning, rng = learning_of("student either"), np.random.default_rng(3)
    for _ in range(60):
        play(learning, 0.2 + 0.1 * rng.standard_normal(), rng.standard_normal())
    before = own_evidence(learning)
    told = for_the_watch(learning.rules, 0.5, 50.0, 0.0)
    learning.throttled(np.array([1.0, 0.0]), told, 3)
    assert own_evidence(learning) == before
