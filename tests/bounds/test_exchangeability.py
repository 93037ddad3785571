"""Level: the evidence of exchangeable rounds ever reaches 100 with probability at most 0.01; seeds are fixed."""

import numpy as np
from scipy.stats import binomtest

from safedial.bounds import ranks


def test_false_alarms_are_as_rare_as_stated():
    rng = np.random.default_rng(0)
    runs = 3000
    capital, ever = ranks.init((runs,)), np.zeros(runs, dtype=bool)
    for _ in range(2000):
        capital = ranks.update(capital, rng.random(runs))
        ever |= ranks.alarm(capital)
    assert binomtest(int(ever.sum()), runs, 0.01, alternative="greater").pvalue > 1e-6


def test_each_bet_has_mean_at_most_one():
    chances = (np.arange(200_000) + 0.5) / 200_000
    start = ranks.init((200_000,))
    gain = ranks.update(start, chances).held / start.held
    assert np.all(gain.mean(axis=0) <= 1.0 + 2e-3), "the root's mean converges slowly on a grid"


def test_a_late_threefold_rate_is_found_soon():
    rng = np.random.default_rng(1)
    capital, ever, found = ranks.init((200,)), np.zeros(200, dtype=bool), 0
    for step in range(3000):
        chance = rng.random(200)
        if step >= 2000:
            small = rng.random(200) < 0.15
            chance = np.where(small, 0.05 * chance, 0.05 + 0.95 * chance)
        capital = ranks.update(capital, chance)
        before, ever = ever, ever | ranks.alarm(capital)
        if step >= 2000 and before.mean() < 0.5 <= ever.mean():
            found = step - 2000
    assert 0 < found < 400
    assert ever.mean() > 0.99


def test_a_p_value_that_is_not_known_changes_nothing_and_evidence_stays_finite():
    capital = ranks.update(ranks.init(), 0.3)
    same = ranks.update(capital, np.nan)
    assert np.array_equal(same.held, capital.held)
    assert same.seen == capital.seen == 1
    for _ in range(3000):
        capital = ranks.update(capital, 1e-5)
    assert np.isfinite(ranks.evidence(capital))
