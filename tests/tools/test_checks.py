"""Every check is quiet at its level where the spec is true, and catches the world that breaks it with power ≥ 0.8.

The stated level: over all eight checks, the chance of any false flag in a log is at most 0.05. Tests of it have a
false-alarm level of 1e-6 of their own; seeds are fixed.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from benchmarks.checks_power import BREAKS, SPEC, played, slipped_digit
from safedial import InvalidInput, hill
from safedial.tools.checks import CHECKS, check_log, needed_evidence
from safedial.tools.linear_checks import read_residuals, shifts
from tests.conftest import make_spec


def flags(log, spec=SPEC, **options):
    return {each.name for each in check_log(log, spec, **options)[1] if each.flagged}


def test_there_is_a_world_for_every_check():
    assert {name for name, _, _ in BREAKS.values()} == set(CHECKS)
    assert len(CHECKS) == 8


@pytest.mark.slow
@pytest.mark.parametrize("world", BREAKS)
def test_a_broken_assumption_is_caught(world, count):
    name, maker, rounds = BREAKS[world]
    runs, needed = count(15, 100), needed_evidence(0.05)
    logs = (maker(seed, rounds) for seed in range(runs))
    caught = sum(CHECKS[name](read_residuals(log, SPEC), needed=needed).flagged for log in logs)
    assert caught >= 0.8 * runs


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "contexts"), [("gaussian", "iid"), ("rademacher", "adversarial")])
def test_where_the_spec_is_true_false_flags_stay_at_their_level(noise, contexts, count):
    runs = count(40, 1000)
    logs = (played(100 + seed, 200, noise=noise, contexts=contexts) for seed in range(runs))
    false = sum(bool(flags(log)) for log in logs)
    assert binomtest(false, runs, 0.05, alternative="greater").pvalue > 1e-6


@pytest.mark.slow
def test_at_a_level_of_one_half_clean_logs_are_still_mostly_quiet(count):
    """A level that flags can reach: each check alone stays within its part of it."""
    runs, level = count(60, 1000), 0.5
    found = [check_log(played(5000 + seed, 100), SPEC, level=level)[1] for seed in range(runs)]
    for index in range(len(CHECKS)):
        false = sum(findings[index].flagged for findings in found)
        assert binomtest(false, runs, level / len(CHECKS), alternative="greater").pvalue > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("changes", [
    {"cost_sensor_noise": 0.1, "reward_sensor_noise": 0.05},
    {"cost_sensor_noise": 0.1, "sensor_dependent": True},
    {"ridge": 0.05, "coefficient_bound": 2.0},
    {"noise_scale": {"scale": "power_scale", "exponent": 0.5}},
    {"context_bound": 30.0, "coefficient_bound": 0.1, "threshold": 2.0},
])  # fmt: skip
def test_a_true_spec_is_quiet_in_every_form_of_the_model(changes, count):
    spec = replace(SPEC, **changes)
    for seed in range(count(5, 50)):
        log = played(seed, 200, spec, dose=hill(0.4, 2.0), baseline_cost=0.05)
        assert flags(log, spec, dose=hill(0.4, 2.0)) == set()
        assert flags(log, spec, dose=hill(0.4, 2.0), target="reward") == set()


def test_a_gaussian_margin_is_held_to_gaussian_tails():
    """2 % of the noise at 3.4 κ: a κ-sub-Gaussian law allows 2.2 % beyond 3 κ, a Gaussian one 0.27 %."""
    rng, log = np.random.default_rng(8), played(8, 3000)
    noise = np.where(np.arange(3000) % 50 == 7, 3.4, 0.7) * rng.choice([-0.3, 0.3], 3000)
    log = replace(log, cost=log.action * (log.context @ [0.5, 0.5, 0.5] + noise))
    plain, gaussian = SPEC, replace(SPEC, margin="gaussian")
    evidence = [check_log(log, spec)[1][1].evidence for spec in (plain, gaussian)]
    assert evidence[1] > 1e3 * evidence[0]
    assert "tails" in flags(log, gaussian)


def test_a_bounded_margin_is_held_to_its_range():
    clean = replace(SPEC, margin="bounded", noise_low=-0.3 * 1.8, noise_high=0.3 * 1.8)
    log = played(9, 300, noise="uniform")
    assert flags(log, clean) == set()
    assert check_log(slipped_digit(9, 300), clean)[1][1].flagged


def test_the_reward_is_checked_as_a_family_of_its_own():
    spec = replace(SPEC, reward_noise=0.5)
    log = played(1, 400, spec)
    assert flags(log) == set()
    assert "tails" in flags(log, target="reward")


def test_residuals_are_taken_before_each_rounds_update():
    log = played(3, 60)
    rounds = read_residuals(log, SPEC)
    y = log.cost / log.action
    for index in (0, 1, 17, 59):
        past = log.context[:index]
        coef = np.linalg.solve(past.T @ past + np.eye(3), past.T @ y[:index])
        assert rounds.residual[index] == pytest.approx(y[index] - log.context[index] @ coef, abs=1e-9)
    changed = log.cost.copy()
    changed[30:] += 5.0
    other = read_residuals(replace(log, cost=changed), SPEC)
    np.testing.assert_allclose(other.fitted[:31], rounds.fitted[:31], rtol=0.0, atol=1e-12)


def test_leaving_out_a_round_moves_the_estimate_by_its_shift():
    rounds = read_residuals(played(4, 40), SPEC)
    moved = shifts(rounds)
    for index in (0, 13, 39):
        rest = np.delete(np.arange(40), index)
        rows, outcome = rounds.rows[rest], rounds.outcome[rest]
        coef = np.linalg.solve(rows.T @ rows + np.eye(3), rows.T @ outcome)
        change = rounds.coef - coef
        assert moved[index] ** 2 == pytest.approx(change @ rounds.gram @ change, rel=1e-6)


def test_the_odd_round_is_named():
    found = {each.name: each for each in check_log(slipped_digit(2, 300), SPEC)[1]}["influence"]
    assert found.flagged
    assert found.details["odd_rounds"] == [153]


def test_looking_early_with_the_planned_horizon_is_allowed():
    log = played(5, 200)
    assert flags(log.rows(slice(50)), horizon=200) == set()
    with pytest.raises(InvalidInput, match="horizon"):
        check_log(log, SPEC, horizon=100)


def test_rounds_without_a_dose_are_left_out_but_their_contexts_count():
    log = played(6, 60)
    action, context = log.action.copy(), log.context.copy()
    action[:20], context[5] = 0.0, 2.0
    rounds, findings = check_log(replace(log, action=action, context=context), SPEC)
    assert len(rounds) == 40
    assert findings[0].details["contexts_beyond"] == 1


@pytest.mark.parametrize(
    ("log", "changes", "named"),
    [
        (played(7, 10), {}, "too few"),
        (played(7, 30), {"target": "profit"}, "target"),
        (played(7, 30), {"level": 0.0}, "level"),
        (played(7, 30), {"spec": make_spec(guarantee="conformal", coefficient_bound=None)}, "too few"),
    ],
)
def test_what_cannot_be_checked_is_said(log, changes, named):
    with pytest.raises(InvalidInput, match=named):
        check_log(log, **({"spec": SPEC} | changes))


def test_every_look_at_a_growing_log_sees_the_same_bets():
    """Evidence at a round does not depend on the rounds after it: the looks of a study are looks at one process."""
    log = played(10, 160)
    longer, shorter = (check_log(part, SPEC, horizon=400)[1] for part in (log, log.rows(slice(80))))
    for late, early in zip(longer, shorter, strict=True):
        shared = np.flatnonzero(np.isin(late.rounds, early.rounds))
        again = np.flatnonzero(np.isin(early.rounds, late.rounds))
        assert shared.size > 10
        np.testing.assert_allclose(late.curve[shared], early.curve[again], rtol=1e-9)
