import numpy as np
import pytest

import safedial.simulation.loop as batch
from safedial import Dose, InvalidInput, LinearWorld, hill, identity, make_policy, power, simulate, tabulated
from safedial.paper.regret import regret_bound
from safedial.policies import rows_learn_alike
from safedial.simulation.results import summary
from safedial.stats import violation_interval
from tests.conftest import make_spec
from tests.policies.own_linear import Mine


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_results_do_not_depend_on_the_chunk(chunk, monkeypatch):
    settings = {"rounds": 333, "seeds": 4}
    whole = simulate(make_policy("hp_probe"), LinearWorld(dim=3), make_spec(), **settings)
    monkeypatch.setattr(batch.Batch, "step", chunk)
    parts = simulate(make_policy("hp_probe"), LinearWorld(dim=3), make_spec(), **settings)
    np.testing.assert_array_equal(parts.violations, whole.violations)
    np.testing.assert_allclose(parts.regret_curve, whole.regret_curve, atol=1e-10)
    np.testing.assert_array_equal(parts.checkpoints, whole.checkpoints)


@pytest.mark.parametrize("name", ["hp_ucb", "hp_probe", "epsilon_greedy", "on_expectation"])
def test_sharing_one_estimate_over_thresholds_changes_nothing(name, monkeypatch):
    spec = make_spec(threshold=[0.1, 0.5, 3.0])
    shared = simulate(make_policy(name), LinearWorld(dim=3), spec, rounds=400, seeds=3)
    monkeypatch.setattr(batch, "rows_learn_alike", lambda *arguments: False)
    apart = simulate(make_policy(name), LinearWorld(dim=3), spec, rounds=400, seeds=3)
    for field in ("violations", "informative_rounds"):
        np.testing.assert_array_equal(getattr(shared, field), getattr(apart, field))
    for field in ("regret", "reward"):
        np.testing.assert_allclose(getattr(shared, field), getattr(apart, field), rtol=0.0, atol=1e-9)


def test_where_doses_can_teach_rows_learn_apart():
    straight, ucb = Dose.of(identity()), make_policy("hp_ucb")
    assert rows_learn_alike(ucb, make_spec(), straight, 0.0)
    assert not rows_learn_alike(ucb, make_spec(cost_sensor_noise=0.1), straight, 0.0)
    assert not rows_learn_alike(ucb, make_spec(), straight, 0.1)
    assert not rows_learn_alike(ucb, make_spec(estimation_risk=[0.1, 0.2]), straight, 0.0)
    assert not rows_learn_alike(ucb, make_spec(), Dose.of(power(1e-3)), 0.0)
    assert not rows_learn_alike(Mine(), make_spec(), straight, 0.0), "a stranger's may differ"
    spec = make_spec(threshold=[0.2, 0.6], cost_sensor_noise=0.02)
    both = simulate(make_policy("hp_ucb"), LinearWorld(dim=3), spec, rounds=300, seeds=2)
    alone = simulate(
        make_policy("hp_ucb"), LinearWorld(dim=3), make_spec(threshold=0.6, cost_sensor_noise=0.02), rounds=300, seeds=2
    )
    np.testing.assert_allclose(both.regret[1], alone.regret[0], rtol=0.0, atol=1e-9)


def test_the_adversary_sends_what_the_learner_underestimates():
    excess = {}

    for contexts in ("iid", "adversarial"):
        seen = []

        def watch(round, seen=seen):
            cost = np.vecdot(round.context, round.truth.cost_coef)
            seen.append((cost - round.bound.memo.cost) / round.bound.memo.width)

        world = LinearWorld(dim=4, contexts=contexts)
        simulate(
            make_policy("hp_probe"),
            world,
            make_spec(threshold=[0.2, 0.5], cost_noise=0.3),
            rounds=300,
            seeds=10,
            observe=watch,
        )
        excess[contexts] = float(np.mean(seen))
    assert excess["adversarial"] > excess["iid"] + 0.1


def test_identity_as_a_curve_and_as_a_table_agree():
    spec = make_spec()
    straight = Dose.of(tabulated([0, 0.5, 1], [0, 0.5, 1]))
    plain = simulate(make_policy("hp_ucb"), LinearWorld(dim=3), spec, rounds=300, seeds=3)
    curved = simulate(make_policy("hp_ucb"), LinearWorld(dim=3), spec, rounds=300, seeds=3, dose=straight)
    np.testing.assert_allclose(curved.regret, plain.regret, atol=1e-9)


def test_the_dose_curve_of_the_cost_does_not_change_costs_and_the_rewards_own_curve_changes_rewards():
    spec, settings = make_spec(), {"rounds": 300, "seeds": 3}
    plain = simulate(make_policy("hp_ucb"), LinearWorld(dim=3), spec, **settings)
    same = simulate(make_policy("hp_ucb"), LinearWorld(dim=3), spec, dose=Dose.of(power(2.0)), **settings)
    other = simulate(make_policy("hp_ucb"), LinearWorld(dim=3), spec, dose=Dose(hill(0.2), power(2.0)), **settings)
    np.testing.assert_array_equal(same.violations, plain.violations)
    np.testing.assert_allclose(same.reward, plain.reward, atol=1e-9)
    assert np.all(np.abs(other.reward - plain.reward) > 1e-3)


def test_curves_end_at_the_totals_and_progress_adds_up():
    seen = []
    run = simulate(
        make_policy("hp_ucb"),
        LinearWorld(dim=3),
        make_spec(threshold=[0.1, 0.5]),
        rounds=700,
        seeds=2,
        progress=seen.append,
    )
    assert sum(seen) == 700
    assert run.checkpoints[-1] == 700
    np.testing.assert_array_equal(run.regret_curve[-1], run.regret)
    np.testing.assert_array_equal(run.violations_curve[-1], run.violations)
    np.testing.assert_allclose(run.clairvoyant_reward - run.reward, run.regret, atol=1e-9)
    assert np.all(np.diff(run.violations_curve, axis=0) >= 0)


def test_a_tidy_table_has_one_row_for_each_spec_and_seed():
    run = simulate(make_policy("hp_ucb"), LinearWorld(dim=3), make_spec(threshold=[0.1, 0.5]), rounds=50, seeds=[3, 9])
    table = run.to_frame()
    assert table[["threshold", "seed"]].to_numpy().tolist() == [[0.1, 3], [0.1, 9], [0.5, 3], [0.5, 9]]
    assert table["regret"].to_numpy() == pytest.approx(run.regret.ravel())


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"rounds": 0}, "rounds"),
        ({"rounds": 2.5}, "rounds"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [-1]}, "seeds"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"points": 0}, "points"),
        ({"spec": make_spec(threshold=[0.1, 0.2], violation_risk=[0.1, 0.2, 0.3])}, "unequal"),
        ({"seeds": "ab"}, "seeds"),
        ({"dose": "hill"}, "dose"),
    ],
)
def test_an_impossible_run_is_refused(wrong, rule):
    with pytest.raises(InvalidInput, match=rule):
        simulate("hp_ucb", LinearWorld(dim=3), **({"spec": make_spec(), "rounds": 5, "seeds": 2} | wrong))


def test_names_and_single_curves_will_do():
    by_name = simulate("hp_ucb", LinearWorld(dim=3), make_spec(), rounds=50, seeds=2, dose=power(2.0))
    by_hand = simulate(
        make_policy("hp_ucb"), LinearWorld(dim=3), make_spec(), rounds=50, seeds=2, dose=Dose.of(power(2.0))
    )
    np.testing.assert_array_equal(by_name.regret, by_hand.regret)
    assert "regret=" in repr(by_name)
    for wrong in ({"policy": "hp_usb"}, {"policy": None}, {"world": 3}, {"spec": 0.5}):
        arguments = {"policy": "hp_ucb", "world": LinearWorld(dim=3), "spec": make_spec()} | wrong
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            simulate(**arguments, rounds=5, seeds=1)


def test_measures_refuse_what_they_cannot_measure():
    with pytest.raises(InvalidInput, match="violations"):
        violation_interval([], 10)
    with pytest.raises(InvalidInput, match="radius"):
        regret_bound(3, 10, make_spec(), radius="x")


def test_only_thresholds_and_risks_may_be_swept_and_paper_needs_two_dimensions():
    with pytest.raises(InvalidInput, match="cost_noise"):
        simulate(make_policy("hp_ucb"), LinearWorld(dim=3), make_spec(cost_noise=[1.0, 2.0]), rounds=5, seeds=1)
    with pytest.raises(InvalidInput, match="dim = 1"):
        simulate(make_policy("hp_ucb", radius="paper"), LinearWorld(dim=1), make_spec(), rounds=5, seeds=1)


def test_the_interval_covers_at_its_level():
    rng, covered, runs = np.random.default_rng(0), 0, 400
    for _ in range(runs):
        rates = np.clip(rng.normal(0.1, 0.02, 8), 0, 1)
        low, high = violation_interval(rng.binomial(500, rates), 500)
        covered += low <= 0.1 <= high
    assert covered >= 0.92 * runs
    assert violation_interval([0], 100)[0] == 0.0
    assert violation_interval([0, 0, 0], 100)[1] > 0.0
    assert violation_interval([100], 100)[1] == pytest.approx(1.0)


def test_a_summary_names_the_row_it_is_of():
    run = simulate(make_policy("hp_ucb"), LinearWorld(dim=3), make_spec(threshold=[0.1, 0.5]), rounds=50, seeds=2)
    assert summary(run, row=1)["threshold"] == 0.5
    assert summary(run, row=1)["regret"] == pytest.approx(run.regret[1].mean())
