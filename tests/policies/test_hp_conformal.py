"""HP-Conformal, split form: what is frozen, what is scored, and the promise itself in every world.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import InvalidInput, LinearWorld, make_policy, simulate
from safedial.core.conformal import rank
from safedial.policies.hp_conformal import Rounds
from tests.conftest import make_spec

LEVEL = 1e-6
WORLDS = {
    "gaussian": {},
    "student-t3": {"noise": "student-t3"},
    "exponential": {"noise": "exponential"},
    "context-scale": {"noise": "context-scale"},
    "sine": {"mean": "sine"},
}
RISKS = [0.02, 0.05, 0.2]
TIMES = (50, 100, 200, 1000)


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_each_round_violates_at_most_as_often_as_promised_within_each_group(world, count):
    seeds, last = count(1500, 6000), TIMES[-1]
    benefit = {}

    def watch(round):
        if round.number in TIMES:
            benefit[round.number] = round.choice.reward_index[0] >= 0.0

    spec = make_spec(violation_risk=RISKS, threshold=0.5)
    policy = make_policy("hp_conformal", start_dose=1e-3, probe=0.5)
    run = simulate(policy, LinearWorld(dim=4, **world), spec, rounds=last, seeds=seeds, points=last, observe=watch)
    violated = np.diff(run.violations_curve, axis=0, prepend=0.0)
    for time in TIMES:
        for row, risk in enumerate(RISKS):
            for group in (True, False):
                members = violated[time - 1, row][benefit[time] == group]
                chance = binomtest(int(members.sum()), members.size, risk, alternative="greater").pvalue
                assert chance > LEVEL, (time, risk, group, members.mean())


def test_the_promise_is_not_idle_where_doses_are_full():
    """The test above can fail: full doses violate nearly as often as they may."""
    spec = make_spec(violation_risk=0.2)
    run = simulate(make_policy("hp_conformal", probe=0.01), LinearWorld(dim=4), spec, rounds=2000, seeds=50)
    assert 0.17 < run.full_dose_violations.sum() / run.full_dose_rounds.sum() <= 0.205


@pytest.mark.parametrize(("dim", "share"), [(5, 0.94), (10, 0.90)])
def test_it_earns_most_of_what_one_who_knows_all_would(dim, share, count):
    spec = make_spec(violation_risk=0.02)
    run = simulate(
        make_policy("hp_conformal", probe=0.01), LinearWorld(dim=dim), spec, rounds=10_000, seeds=count(20, 60)
    )
    assert run.reward.sum() / run.exact_clairvoyant_reward.sum() >= share
    assert run.full_dose_violations.sum() / run.full_dose_rounds.sum() <= 0.021


def test_rescoring_at_a_refit_equals_computing_from_scratch():
    rng = np.random.default_rng(3)
    state = Rounds(3, ridge=0.7, batch=(1, 4))
    contexts, rewards, costs = rng.standard_normal((150, 1, 4, 3)), *rng.standard_normal((2, 150, 1, 4))
    fits = []
    for step in range(150):
        before = state.next_fit
        state.append(contexts[step], rewards[step], costs[step])
        if state.next_fit != before:
            fits.append(state.count)
    assert fits[0] == 20
    assert all(later == max(earlier + 1, int(np.ceil(1.1 * earlier))) for earlier, later in pairwise(fits))
    seen = fits[-1]
    for seed in range(4):
        rows, held = contexts[0:seen:2, 0, seed], contexts[1:seen:2, 0, seed]
        gram = rows.T @ rows + 0.7 * np.eye(3)
        cost_coef = np.linalg.solve(gram, rows.T @ costs[0:seen:2, 0, seed])
        reward_coef = np.linalg.solve(gram, rows.T @ rewards[0:seen:2, 0, seed])
        scores, benefit = costs[1:seen:2, 0, seed] - held @ cost_coef, held @ reward_coef >= 0
        for group in (0, 1):
            expected = np.sort(scores[benefit == bool(group)])
            assert state.sizes[0, seed, group] == expected.size
            np.testing.assert_allclose(state.scores[0, seed, group, : expected.size], expected, atol=1e-12)


def test_a_round_that_was_given_nothing_scores_infinity_and_does_not_train():
    state = Rounds(1, ridge=1.0, batch=(1, 1))
    for step in range(20):
        state.append(np.ones((1, 1, 1)), np.ones((1, 1)), np.full((1, 1), np.inf if step in (2, 3) else 1.0))
    assert np.isinf(state.scores[0, 0, 1, 9])
    assert state.sizes[0, 0].tolist() == [0, 10]
    assert state.cost_coef[0, 0, 0] == pytest.approx(9 / 10)


def test_until_a_group_has_scores_enough_the_start_dose_is_played():
    spec = make_spec(violation_risk=0.05)
    played = []
    policy = make_policy("hp_conformal", start_dose=0.07, probe=1.0)
    simulate(
        policy,
        LinearWorld(dim=3),
        spec,
        rounds=60,
        seeds=5,
        observe=lambda seen: played.append(seen.choice.intensity[0]),
    )
    assert np.all(np.array(played[:38]) == 0.07), "19 calibration rounds need 38 rounds at least"
    certified = []
    simulate(
        make_policy("hp_conformal"), LinearWorld(dim=3), spec, rounds=5, seeds=2,
        observe=lambda seen: certified.append(seen.choice.safe.intensity[0]),
    )  # fmt: skip
    np.testing.assert_allclose(certified, spec.threshold / (1.0 + spec.tail))


def test_a_surer_rank_violates_less():
    spec = make_spec(violation_risk=0.1)
    plain, sure = (
        simulate(make_policy("hp_conformal", probe=0.01, confidence=c), LinearWorld(dim=3), spec, rounds=1500, seeds=40)
        for c in (None, 0.95)
    )
    assert sure.full_dose_violations.sum() < plain.full_dose_violations.sum()
    assert sure.reward.sum() < plain.reward.sum()
    assert rank(500, 0.1) < 500


@pytest.mark.parametrize(
    ("world", "changes", "named"),
    [
        ({"contexts": "adversarial"}, {}, "exchangeable"),
        ({}, {"promise": "joint"}, "promise"),
        ({}, {"cost_sensor_noise": 0.1}, "sensor"),
    ],
)
def test_what_it_cannot_promise_is_refused(world, changes, named):
    with pytest.raises(InvalidInput, match=named):
        simulate("hp_conformal", LinearWorld(dim=3, **world), make_spec(**changes), rounds=5, seeds=1)
