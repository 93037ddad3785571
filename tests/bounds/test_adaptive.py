"""The adaptive count rule: its long-run bound on sequences made to break it, late ones too."""

from itertools import product

import numpy as np
import pytest

from safedial.bounds.count_rule import adapted, adapted_rank, excess_bound, window
from tests.lanes import Windows

RISK = 0.05


def adversary(kind, step, rank, rng):
    """Whether a round exceeds: at its worst wherever the rule acts, after a quiet stretch, or at random."""
    if kind == "always":
        return rank > 0
    if kind == "patient":
        return rank > 0 and step % 400 > 300
    return rank > 0 and rng.random() < 0.4


@pytest.mark.parametrize("late", [1, 30])
@pytest.mark.parametrize("rate", [0.005, 0.05])
@pytest.mark.parametrize("kind", ["always", "patient", "random"])
def test_no_sequence_exceeds_more_often_than_the_bound(kind, rate, late):
    """The rule acts from the first round on; outcomes become known `late` rounds after they were played."""
    rng = np.random.default_rng(1)
    level, excesses, known, waiting = RISK, 0, 0, []
    worst = -np.inf
    for step in range(3000):
        size, rank = window(200 + step, RISK)
        waiting.append(adversary(kind, step, adapted_rank(level, size, rank), rng))
        if len(waiting) >= late:
            exceeded = waiting.pop(0)
            level = adapted(level, exceeded, risk=RISK, rate=rate)
            excesses, known = excesses + exceeded, known + 1
            assert level <= RISK
            assert excesses <= excess_bound(known, risk=RISK, rate=rate, open_at_once=late) + 1e-9
            worst = max(worst, excesses - RISK * known)
    if kind == "always":
        slack = excess_bound(0, risk=RISK, rate=rate, open_at_once=late)
        assert worst > 0.85 * slack - 1.0, "the bound is nearly reached, so it is not true for a trivial reason"


@pytest.mark.parametrize(("risk", "rate"), [(0.2, 0.1), (0.3, 0.3), (0.05, 0.02), (0.4, 1.0)])
@pytest.mark.parametrize("late", [1, 2, 4])
def test_no_sequence_of_12_rounds_exceeds_more_often_than_the_bound(risk, rate, late):
    """All 4,096 of them; a round that is played while the level is at or below 0 gets the start."""
    rounds = 12
    bits = np.array(list(product([False, True], repeat=rounds)))
    level, waiting = np.full(len(bits), risk), []
    excesses, known, at_start, room = np.zeros(len(bits)), 0, np.zeros(len(bits)), np.full(len(bits), np.inf)
    for step in range(rounds + late - 1):
        if step < rounds:
            waiting.append((bits[:, step], level <= 0.0))
        if step >= late - 1:
            exceeded, start = waiting.pop(0)
            excesses, known, at_start = excesses + exceeded, known + 1, at_start + (exceeded & start)
            level = adapted(level, exceeded, risk=risk, rate=rate)
            bound = excess_bound(known, risk=risk, rate=rate, open_at_once=late, at_start=at_start)
            assert np.all(excesses <= bound + 1e-9)
            room = np.minimum(room, bound - excesses)
    assert room.min() < 1.0, "one excess more would break it"


@pytest.mark.parametrize("late", [3, 8])
def test_the_bound_holds_with_outcomes_that_come_late_in_any_order(late):
    """Four sequences, each with outcomes up to `late` of its own rounds later."""
    rng, labels, rate = np.random.default_rng(5), 4, 0.1
    levels, excesses, known, opened = np.full(labels, RISK), np.zeros(labels), np.zeros(labels), np.ones(labels)
    waiting = [[] for _ in range(labels)]
    for step in range(4000):
        label = int(rng.integers(labels)) if step % 500 < 250 else 0
        played = adapted_rank(float(levels[label]), 99, 5) > 0
        waiting[label].append(bool(played and (label < 2 or rng.random() < 0.3)))
        opened[label] = max(opened[label], len(waiting[label]))
        while waiting[label] and (len(waiting[label]) >= late or rng.random() < 0.3):
            exceeded = waiting[label].pop(int(rng.integers(len(waiting[label]))))
            levels[label] = adapted(levels[label], exceeded, risk=RISK, rate=rate)
            excesses[label], known[label] = excesses[label] + exceeded, known[label] + 1
            assert (
                excesses[label] <= excess_bound(known[label], risk=RISK, rate=rate, open_at_once=opened[label]) + 1e-9
            )
    assert np.all(known > 300)
    assert excesses[0] > RISK * known[0], "it presses against the bound"


def test_excesses_at_the_start_have_a_term_of_their_own():
    level, excesses, at_start, rng = RISK, 0, 0, np.random.default_rng(2)
    for step in range(2000):
        size, rank = window(step, RISK)
        start = adapted_rank(level, size, rank) == 0
        exceeded = bool(rng.random() < (0.2 if start else 0.5))
        excesses, at_start = excesses + exceeded, at_start + (start and exceeded)
        level = adapted(level, exceeded, risk=RISK, rate=0.02)
        assert excesses <= excess_bound(step + 1, risk=RISK, rate=0.02, at_start=at_start) + 1e-9
    assert at_start > 10
    assert excesses > excess_bound(2000, risk=RISK, rate=0.02), "without that term the bound fails"


def test_after_a_shift_the_adaptive_rule_exceeds_less():
    """Tolerances fall by a third at round 300: over the next 100 rounds, plain against adaptive, 200 seeds."""
    tolerance = np.random.default_rng(4).lognormal(0.0, 0.3, (400, 200))
    tolerance[300:] *= 2.0 / 3.0
    late = {}
    for rate in (None, 0.01):
        rounds, level, late[rate] = Windows(200, RISK), np.full(200, RISK), 0
        for step, limit in enumerate(tolerance):
            exceeded = limit < rounds.scales(level=level)
            level = level if rate is None else adapted(level, exceeded, risk=RISK, rate=rate)
            rounds.append(limit)
            late[rate] += exceeded.sum() if step >= 300 else 0
    assert late[0.01] < 0.65 * late[None]


def test_a_clip_keeps_an_easy_stretch_from_raising_the_level():
    level = RISK
    for _ in range(1000):
        level = adapted(level, False, risk=RISK, rate=0.01)
    assert level == RISK
    assert adapted(np.array([0.05, 0.01]), np.array([True, False]), risk=RISK, rate=0.01) == pytest.approx(
        [0.0405, 0.0105]
    )
    assert adapted_rank(np.array([0.05, 0.0405, -1.0]), 99, 5).tolist() == [5, 4, 0]
