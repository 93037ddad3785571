"""Open, late and missing outcomes neither blind the watch of HP-Conformal, HP-Shield and HP-Student nor raise false
alarms. The control is a policy to which every outcome is reported at once.
"""

import numpy as np
import pytest
from scipy.stats import binom

from safedial.policies.bets import PATIENCE, Bets
from safedial.policies.conformal import calibrates
from safedial.rounds.outcome import Outcome, normalise
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.test_throttled import KINDS, START, learning_of, opened, play, rules_of


class Rounds:
    """A policy of one kind, told of each round's outcome `late` rounds after its decision, or never (None)."""

    def __init__(self, kind, seed=3):
        self.learning, self.rng, self.count, self.due = learning_of(kind), np.random.default_rng(seed), 0, []

    def round(self, noise, late=0):
        learning, context = self.learning, np.array([1.0, self.rng.uniform(-1.0, 1.0)])
        place, costs = opened(learning, context), 0.5 * (0.5 + noise)
        told = {"first": costs, "second": 0.1 * costs} if learning.rules.spec.costs else costs
        sample = normalise(learning.rules, Outcome(0.5, 0.1, told), context)
        if late is not None:
            self.due.append((self.count + late, context, sample, place))
        for when, *report in [each for each in self.due if each[0] <= self.count]:
            self.due.remove((when, *report))
            learning.learn(report[0], 1.0, *report[1:])
        self.count += 1
        return place

    def usual(self, rounds):
        for _ in range(rounds):
            self.round(0.1 * self.rng.standard_normal())

    def rounds_to_alarm(self, *, first_open=False, late=0, most=100):
        """How many rounds far above the others raise the alarm."""
        for number in range(1, most + 1):
            self.round(1.5 + self.rng.uniform(), late=None if number == 1 and first_open else late)
            if self.learning.stop_rule:
                return number
        return most + 1


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_one_open_outcome_does_not_blind_the_alarm(kind, before):
    control, blinded = Rounds(kind), Rounds(kind)
    control.usual(KINDS[kind] + before)
    blinded.usual(KINDS[kind] + before)
    assert blinded.rounds_to_alarm(first_open=True) <= min(90, control.rounds_to_alarm()) + 10


def test_a_study_with_one_open_outcome_stops_and_verifies(tmp_path):
    spec, policy = rules_of("student")
    rng = np.random.default_rng(3)
    with Store(f"sqlite:///{tmp_path}/study.db") as store:
        study = Study.create("trial", spec, dim=2, policy=policy, start_action=START, storage=store)
        for number in range(35):
            decision = study.ask([1.0, rng.uniform(-1.0, 1.0)])
            noise = 0.1 * rng.standard_normal() if number < 20 else 1.5 + rng.uniform()
            if number != 19:
                study.tell(decision.id, reward=0.1, cost=decision.intensity * (0.5 + noise))
        assert study.status()["stop_reason"] == "student_drift"
        assert study.verify().ok


MISSING = {
    "never reported": lambda learning, place: None,
    "lost": lambda learning, place: learning.lose(place),
}


@pytest.mark.slow
@pytest.mark.parametrize("half", ["high", "low"])
@pytest.mark.parametrize("end", MISSING)
def test_outcomes_that_are_missing_because_of_what_they_were_raise_no_alarm(count, end, half):
    """Exchangeable rounds. In the first 300 the high outcomes are missing, or in the last 150 the low ones; all others
    are reported. The evidence reaches 100 with probability at most 0.01. If it did so in just that share of the runs,
    more of them than the binomial quantile would show it with probability at most 1e-6.
    """
    runs, crossed = count(12, 200), 0
    for seed in range(runs):
        rounds, rng = Rounds("conformal", seed), np.random.default_rng([seed, 1])
        for number in range(450):
            noise = 0.1 * rng.standard_normal()
            gone = (number < 300 and noise > 0.05) if half == "high" else (number >= 300 and noise < 0.05)
            place = rounds.round(noise, late=None if gone else 0)
            if gone:
                MISSING[end](rounds.learning, place)
        crossed += rounds.learning.stop_rule != ""
    assert crossed <= binom.isf(1e-6, runs, 0.01)


def shield_alarm(*, late=0, first_open=False, bets=None):
    """How many rounds below what all others tolerate raise the alarm of HP-Shield, each told `late` rounds later."""
    bets, rng, due = bets or Bets(late=False, hit_risk=0.1), np.random.default_rng(1), []
    for number in range(300):
        far = number >= 110
        told = {"up": 0.1} if far else {"low": rng.uniform(0.5, 1.0)}
        bets.open()
        if not (first_open and number == 110):
            due.append((number + late * far, number, told))
        while due and due[0][0] <= number:
            _, place, told = due.pop(0)
            bets.tell(place, **told)
        if bets.evidence().crossed:
            return number - 109
    return 300


def test_open_and_late_outcomes_do_not_blind_the_shield_s_alarm():
    control = shield_alarm()
    assert shield_alarm(first_open=True) <= control + 10
    assert [shield_alarm(late=late) - control for late in (15, 25, 90)] == [15, 25, 90]


def test_a_round_that_is_open_for_long_is_passed():
    bets = Bets(patience=2 + PATIENCE, late=False)
    bets.open()
    for _ in range(1, 300):
        bets.tell(bets.open(), low=0.5)
    assert (bets.evidence().value < 1.0, bets.next) == (True, 300)
    rounds = Rounds("conformal")
    rounds.usual(3000)
    first = rounds.count
    while not calibrates(rounds.count):
        rounds.round(0.0)
    rounds.round(0.0, late=None)
    rounds.usual(PATIENCE + 1)
    state = rounds.learning._state
    state.bets.settle()
    assert state.bets.next == rounds.count
    assert state.next_fit > rounds.count > first + PATIENCE


def test_late_outcomes_give_the_conformal_evidence_that_prompt_ones_give():
    prompt, late = Rounds("conformal"), Rounds("conformal")
    for number in range(400):
        noise = 0.1 * np.sin(7.0 * number)
        prompt.round(noise)
        late.round(noise, late=0 if number < 380 else 400 - 1 - number)
    assert late.learning._state.fitted <= 380
    assert late.learning.evidence == prompt.learning.evidence != 1.0


@pytest.mark.parametrize("kind", ["conformal", "student"])
def test_a_policy_with_open_rounds_goes_on_from_its_saved_state(kind):
    rounds, again = Rounds(kind), learning_of(kind)
    for number in range(240):
        noise = 0.1 * rounds.rng.standard_normal()
        rounds.round(noise, late=None if number % 9 == 5 else 4 * (number % 7 == 0) + 60 * (number % 31 == 0))
        if number > 100:
            again = learning_of(kind)
            again.restore(rounds.learning.state())
            assert again.evidence == rounds.learning.evidence


def test_a_round_that_is_left_out_late_is_no_member():
    rounds, other = Rounds("conformal"), Rounds("conformal")
    for each in (rounds, other):
        each.usual(60)
        while not calibrates(each.count):
            each.round(0.0)
        place = each.round(9.0, late=None)
        each.usual(60)
        if each is rounds:
            each.learning.leave_out(place)
        each.usual(30)
    assert rounds.learning.evidence != other.learning.evidence


@pytest.mark.parametrize("kind", ["conformal", "student"])
def test_rounds_from_before_a_resume_are_not_counted_again(kind):
    rounds = Rounds(kind)
    rounds.usual(KINDS[kind])
    assert rounds.rounds_to_alarm(first_open=True) <= 60
    rounds.learning.restart_evidence()
    assert (rounds.learning.evidence, rounds.learning.stop_rule) == (1.0, "")
    rounds.round(0.0)
    assert not rounds.learning.stop_rule


def test_rounds_from_before_a_resume_are_not_counted_again_by_the_shield():
    bets = Bets(late=False, hit_risk=0.1)
    shield_alarm(first_open=True, bets=bets)
    left, _ = bets.open(), bets.open()
    bets.leave_out(left)
    bets.restart()
    assert (bets.evidence().value, bool(bets.evidence().crossed)) == (1.0, False)
    bets.tell(bets.open(), low=0.7)
    assert not bets.evidence().crossed


def test_before_it_has_a_fit_a_policy_s_evidence_begins_anew_as_it_was():
    learning = learning_of("conformal")
    play(learning, 0.5, 0.0)
    learning.restart_evidence()
    assert learning.evidence == 1.0
