"""Doses that the context guides are caught, and doses that it does not guide are left alone, at the stated level.

Tests of a level have a false-alarm level of 1e-6 of their own; seeds are fixed.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from benchmarks.checks_power import SPEC, doses_by_context, played
from safedial.tools.checks import check_log
from safedial.tools.linear_checks import FIRST, assignment


def doses(kind, rng, rounds):
    """Doses that know nothing of the context, some of them with a trend or with few levels."""
    if kind == "levels":
        return rng.choice([0.1, 0.25, 0.5, 1.0], rounds)
    if kind == "skewed":
        return np.exp(rng.normal(-1.5, 0.7, rounds))
    if kind == "trend":
        return np.linspace(0.1, 0.9, rounds) + 0.05 * rng.uniform(-1, 1, rounds)
    return rng.uniform(0.05, 1.0, rounds)


def found(log):
    return next(each for each in check_log(log, SPEC)[1] if each.name == "confounding")


@pytest.mark.parametrize("kind", ["uniform", "levels", "skewed", "trend"])
def test_doses_chosen_without_the_context_are_flagged_at_most_at_the_level(kind, count):
    runs, level = count(150, 2000), 0.2
    flagged = 0
    for seed in range(runs):
        rng = np.random.default_rng([seed, 5])
        context = rng.standard_t(3, (120, 3)) if seed % 2 else rng.normal(size=(120, 3))
        flagged += assignment(context, doses(kind, rng, 120)).log_evidence.max() >= np.log(1.0 / level)
    assert binomtest(flagged, runs, level, alternative="greater").pvalue > 1e-6


def test_swapping_the_doses_of_a_pair_makes_its_two_bets_add_up_to_two():
    """The identity behind the level: with one boldness, the factor of a pair and of the swapped pair sum to 2."""
    rng = np.random.default_rng(0)
    context, action = rng.normal(size=(FIRST + 2, 2)), rng.uniform(size=FIRST + 2)
    swapped = action.copy()
    swapped[-2:] = action[:-3:-1]
    one, other = (np.exp(assignment(context, each).log_evidence[-1]) for each in (action, swapped))
    assert one + other == pytest.approx(2.0, abs=1e-12)
    assert one != pytest.approx(1.0, abs=1e-6)


def test_a_pilot_dosed_by_a_rule_is_flagged_whatever_the_rule_leaves_to_chance(count):
    rng = np.random.default_rng(1)
    for _ in range(count(5, 50)):
        weight = rng.normal(size=(120, 1))
        for spread in (0.0, 0.05, 0.5):
            action = 0.5 + 0.5 * weight[:, 0] + spread * rng.normal(size=120)
            assert assignment(weight, action).log_evidence.max() > np.log(20)


def test_the_feature_that_guides_the_doses_is_named_and_its_share_is_said():
    log = found(doses_by_context(0, 200))
    assert log.flagged
    assert "x1 the most" in log.found
    assert 0.6 < log.details["explained"] < 0.95


def test_doses_with_advice_on_record_are_no_pilot():
    log = doses_by_context(1, 200)
    quiet = found(replace(log, advised=log.action))
    assert not quiet.flagged
    assert quiet.found == "Advice is on record for every round."
    assert quiet.curve.tolist() == [1.0] * len(quiet.curve)
    mixed = np.where(np.arange(200) < 100, log.action, np.nan)
    assert found(replace(log, advised=mixed)).details["without_advice"] == 100
    assert not found(played(2, 200)).flagged


def test_contexts_or_doses_that_never_vary_show_nothing():
    rng = np.random.default_rng(2)
    for context, action in ((np.ones((40, 2)), rng.uniform(size=40)), (rng.normal(size=(40, 2)), np.full(40, 0.5))):
        same = assignment(context, action)
        assert (same.explained, same.strongest) == (0.0, -1)
        np.testing.assert_allclose(same.log_evidence, 0.0, atol=1e-12)
