"""HP-Conformal: what is frozen, what is scored, and the guarantee itself in every world.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, Dial, InvalidInput, LinearWorld, SafetySpec, make_policy, simulate
from safedial.policies.conformal import calibrates
from tests.conftest import make_spec
from tests.policies.conformal_states import conformal, drawn_world, played

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


def at_most(members, risk):
    return binomtest(int(members.sum()), members.size, risk, alternative="greater").pvalue > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_each_round_violates_at_most_as_often_as_guaranteed_within_each_group(world, count):
    """What is learned does not depend on the doses, so decisions are asked for at `TIMES` only."""
    spec = make_spec(violation_risk=np.array(RISKS)[:, None], threshold=0.5)
    policy = conformal(4, spec, probe=1.0)
    data = drawn_world(LinearWorld(dim=4, **world), spec, count(1500, 6000), TIMES[-1])
    for bound, intensity, cost in played(policy, data, TIMES):
        violated = intensity * cost > spec.threshold
        for row, risk in enumerate(RISKS):
            for group in (0, 1):
                members = violated[row][bound.memo[0] == group]
                assert at_most(members, risk), (risk, group, members.mean())


@pytest.mark.slow
def test_the_guarantee_holds_within_the_users_groups(count):
    spec = make_spec(violation_risk=0.1)
    world = LinearWorld(dim=3, noise="context-scale")
    policy = conformal(3, spec, probe=1.0, group=lambda x: "far" if x[0] > 0.5 else "near")
    for bound, intensity, cost in played(policy, drawn_world(world, spec, count(1500, 6000), 400), TIMES):
        violated = (intensity * cost > spec.threshold)[0]
        for group in range(4):
            assert at_most(violated[bound.memo[0] == group], 0.1), group
    assert violated.mean() > 0.05, "the test is not idle"


def test_a_dial_with_levels_keeps_the_guarantee_by_giving_its_lowest_one(count):
    """Noise is bounded, so that the start, 0.18 of at most 1 + √3, is as safe as it is declared to be."""
    risk, step, spec = 0.05, 0.18, make_spec(violation_risk=0.05)
    policy = conformal(3, spec, start_dose=step, least_dose=step)
    raised = 0
    data = drawn_world(LinearWorld(dim=3, noise="uniform"), spec, count(1500, 6000), 200)
    for bound, intensity, cost in played(policy, data, TIMES):
        level = np.maximum(step * np.floor(intensity / step + 1e-9), step)
        upper = bound.numbers["cost_upper"]
        raised += int(np.sum(np.isfinite(upper) & (upper * level > spec.threshold * (1 + 1e-9))))
        for group in (0, 1):
            assert at_most((level * cost > spec.threshold)[0][bound.memo[0] == group], risk), group
    assert raised > 10, "some bounds lie below the lowest level"


def test_the_simulator_plays_the_same_guarantee():
    """The test above can fail: full doses violate nearly as often as they may."""
    spec = make_spec(violation_risk=0.2, threshold=0.1)
    run = simulate("hp_conformal", LinearWorld(dim=4), spec, rounds=1500, seeds=50)
    assert 0.18 < run.full_dose_violations.sum() / run.full_dose_rounds.sum() <= 0.205
    assert not run.alarmed.any()


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "share"), [(5, 0.95), (10, 0.94)])
def test_it_earns_most_of_what_one_who_knows_all_would(dim, share, count):
    spec = make_spec(violation_risk=0.02)
    seeds = count(4, 60)
    run = simulate("hp_conformal", LinearWorld(dim=dim), spec, rounds=10_000, seeds=seeds)
    spread = 0.0 if seeds >= 20 else 0.03
    assert run.reward.sum() / run.exact_clairvoyant_reward.sum() >= share - spread
    assert run.full_dose_violations.sum() / run.full_dose_rounds.sum() <= 0.0215


def test_drift_breaks_the_guarantee_and_the_warning_says_so(count):
    spec = make_spec(violation_risk=0.05)
    world = LinearWorld(dim=5, noise="context-scale", contexts="drift")
    run = simulate("hp_conformal", world, spec, rounds=3000, seeds=count(60, 300), points=30)
    over, dosed = int(run.full_dose_violations.sum()), int(run.full_dose_rounds.sum())
    assert binomtest(over, dosed, 0.05, alternative="greater").pvalue < LEVEL, "the guarantee fails"
    assert run.alarmed.mean() > 0.9, "and the test of exchangeability finds it"


def test_the_warning_is_silent_where_rounds_are_exchangeable(count):
    spec = make_spec(violation_risk=0.05)
    seeds = count(300, 1500)
    run = simulate("hp_conformal", LinearWorld(dim=3, noise="student-t3"), spec, rounds=1000, seeds=seeds)
    assert binomtest(int(run.alarmed.sum()), seeds, 0.01, alternative="greater").pvalue > LEVEL


def test_until_a_group_has_scores_enough_the_start_dose_is_played():
    spec = make_spec(violation_risk=0.05)
    played = []
    policy = make_policy("hp_conformal", start_dose=0.07, probe=1.0)
    simulate(
        policy,
        LinearWorld(dim=3),
        spec,
        rounds=140,
        seeds=5,
        observe=lambda seen: played.append(seen.given.intensity[0]),
    )
    assert np.all(np.array(played[:38]) == 0.07), "19 calibration rounds need 38 rounds at least"
    assert np.all(np.array(played[-1]) != 0.07)
    certified = []
    simulate(
        make_policy("hp_conformal", probe="sqrt"), LinearWorld(dim=3), spec, rounds=5, seeds=2,
        observe=lambda seen: certified.append(seen.given.largest[0]),
    )  # fmt: skip
    np.testing.assert_allclose(certified, spec.threshold / (1.0 + spec.tail))


def test_a_risk_too_small_for_any_quantile_leaves_the_start_dose():
    spec, played = make_spec(violation_risk=1e-6), []
    policy = make_policy("hp_conformal", start_dose=0.07, probe=1.0)
    simulate(policy, LinearWorld(dim=2), spec, rounds=80, seeds=3, observe=lambda r: played.append(r.given.intensity))
    assert np.all(np.array(played) == 0.07)


def test_a_baseline_above_the_threshold_leaves_nothing():
    spec = make_spec(violation_risk=0.1)
    policy = make_policy("hp_conformal", start_dose=0.07)
    run = simulate(policy, LinearWorld(dim=2, baseline_cost=0.7), spec, rounds=60, seeds=3)
    assert run.uncertified_rounds.mean() == 60
    assert run.informative_rounds.sum() == 0


def test_which_rounds_calibrate_depends_on_their_number_alone():
    assert calibrates(np.arange(5)).tolist() == [False, True, False, True, False]
    late = calibrates(np.arange(396, 408)).tolist()
    assert late == [False, True, False, True, False, False, True, False, False, True, False, False]


@pytest.mark.parametrize(
    ("world", "changes", "named"),
    [
        ({"contexts": "adversarial"}, {}, "exchangeable"),
        ({}, {"guarantee": "joint"}, "guarantee"),
        ({}, {"cost_sensor_noise": 0.1}, "sensor"),
        ({}, {"guarantee": "conformal", "cost_noise": None}, "cost_noise"),
    ],
)
def test_what_it_cannot_guarantee_is_refused(world, changes, named):
    with pytest.raises(InvalidInput, match=named):
        simulate("hp_conformal", LinearWorld(dim=3, **world), make_spec(**changes), rounds=5, seeds=1)


def test_other_policies_refuse_a_conformal_guarantee():
    with pytest.raises(InvalidInput, match="guarantee"):
        simulate("hp_ucb", LinearWorld(dim=3), make_spec(guarantee="conformal"), rounds=5, seeds=1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"start_dose": 0.0}, "start_dose"),
        ({"start_dose": True}, "start_dose"),
        ({"probe": 0.0}, "probe"),
        ({"group": -1}, "group"),
        ({"group": 1.5}, "group"),
        ({"window": 10}, "window"),
        ({"lag": -1}, "lag"),
        ({"lag": 500, "window": 400}, "lag"),
        ({"groups": "signs"}, "groups"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, named):
    with pytest.raises(InvalidInput, match=named):
        make_policy("hp_conformal", **options)


@pytest.mark.parametrize("group", [7, "age"])
def test_a_group_that_is_no_column_is_refused(group):
    with pytest.raises(InvalidInput, match="group"):
        simulate(make_policy("hp_conformal", group=group), LinearWorld(dim=3), make_spec(), rounds=5, seeds=1)


def test_a_probe_that_is_no_level_is_warned_about():
    spec = SafetySpec(threshold=0.5, violation_risk=0.1, guarantee="conformal")
    policy = {"name": "hp_conformal", "probe": 0.05, "least_dose": None}
    with pytest.warns(UserWarning, match="lies below the dial's lowest level: such rounds get no dose"):
        Agent(2, spec, policy=policy, dial=Dial(levels=(0.2, 1.0)), start_action=0.2)
