"""A plan's numbers are those of the simulations behind it, and the guarantee holds where it is said to."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Dial, InvalidInput, LinearWorld, SafetySpec, hill, make_policy, nonlinear_hp_probe, simulate
from safedial.bounds.margin import noise_margin
from safedial.model.dose import as_dose
from safedial.policies.classes import finite, kernel
from safedial.simulation import engines
from safedial.simulation import world as noises
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.loop import Batch, Setting
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from safedial.simulation.results import simulated_log
from safedial.simulation.world import NOISES, generators
from safedial.tools.planning import plan
from safedial.tools.scenarios import SCENARIOS, forecast, guarantee_kept, scenarios_for, scenarios_in
from tests.conftest import make_spec

SPEC = make_spec(violation_risk=0.045, estimation_risk=0.005, reward_noise=0.3, cost_noise=0.3)
TIGHT = make_spec(violation_risk=0.015, estimation_risk=0.005, reward_noise=0.1, cost_noise=0.1, threshold=0.3)
BY_NAME = {each.name: each for each in SCENARIOS}


def played(name, **options):
    given = {"dim": 3, "dose": as_dose(hill(0.4)), "rounds": 300, "seeds": 20} | options
    return forecast(BY_NAME[name], make_policy("hp_probe"), SPEC, **given)


class Quiet(LinearWorld):
    """A linear world of one's own, without noise and only with the constants that are given."""

    def draw_noise(self, stream, spec, rngs, rounds):
        return np.zeros((len(rngs[stream]), rounds))


class Fussy(LinearWorld):
    """A world that refuses other constants than those of SPEC."""

    def draw_truth(self, spec, rngs):
        assert spec.coefficient_bound == SPEC.coefficient_bound
        return super().draw_truth(spec, rngs)


def test_in_a_world_of_ones_own_scenarios_change_what_it_uses():
    every = ["as stated", "milder truth", "noise 2 κ", "norm 2 S"]
    assert [each.name for each in scenarios_in(LinearWorld(dim=2), SPEC)] == every
    assert scenarios_in(LinearWorld(dim=2, contexts="adversarial"), SPEC) == scenarios_in(LinearWorld(dim=2), SPEC)
    bounded = replace(SPEC, margin="bounded", noise_low=-0.4, noise_high=0.4)
    assert [each.name for each in scenarios_in(NonlinearWorld(kind="finite", dim=2), bounded)] == every[:3]
    given = {"rounds": 20, "seeds": 2, "world": Quiet(dim=2)}
    found = plan("hp_ucb", SPEC, **given)
    assert [row["scenario"] for row in found.table] == ["as stated", "milder truth", "norm 2 S"]
    assert found.left_out == ("noise 2 κ",)
    assert plan("hp_ucb", SPEC, **given, scenarios=SCENARIOS[:1]).left_out == ()
    assert [each.name for each in scenarios_in(Fussy(dim=2), SPEC)] == every
    none = DoseResponseWorld(curve="power")
    assert [each.name for each in scenarios_in(none, SPEC)] == every[:1]


def known(world, spec, **options):
    """The exact clairvoyant's reward at the whole risk, in the rounds of hp_probe, whose doses teach nothing else."""
    whole = replace(spec, violation_risk=spec.guaranteed_risk)
    return simulate(make_policy("hp_probe"), world, whole, **options).exact_clairvoyant_reward.sum()


@pytest.mark.parametrize("name", ["as stated", "worst contexts", "bent mean"])
def test_the_quantities_are_those_of_simulate(name):
    world = LinearWorld(dim=3, **BY_NAME[name].world)
    options = {"rounds": 300, "seeds": 20, "dose": hill(0.4)}
    run = simulate(make_policy("hp_probe"), world, SPEC, **options)
    found = played(name).quantities
    assert found["violations"] == pytest.approx(run.violations.mean())
    assert found["reward_share"] == pytest.approx(run.reward.sum() / known(world, SPEC, **options), rel=1e-9)


def test_a_baseline_cost_is_played_and_known():
    world = LinearWorld(dim=3, baseline_cost=0.2)
    options = {"rounds": 300, "seeds": 20, "dose": hill(0.4)}
    run = simulate(make_policy("hp_probe"), world, SPEC, **options)
    found, without = played("as stated", baseline_cost=0.2).quantities, played("as stated").quantities
    assert found["violations"] == pytest.approx(run.violations.mean())
    assert found["reward_share"] == pytest.approx(run.reward.sum() / known(world, SPEC, **options), rel=1e-9)
    assert found["first_dose"] < 0.7 * without["first_dose"]
    whole = plan("hp_probe", SPEC, dim=3, rounds=50, seeds=4, baseline_cost=0.2, scenarios=SCENARIOS[:1])
    assert whole.baseline_cost == 0.2


FREE = SafetySpec(threshold=0.5, guarantee="conformal", violation_risk=0.05)
WORLD = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1.0, "context_bound": 1.0}


def test_a_spec_without_constants_is_planned_in_an_assumed_world_and_says_so():
    policy = make_policy("hp_conformal", start_dose=0.1)
    found = plan(policy, FREE, dim=2, rounds=80, seeds=4, assumed=WORLD)
    stated = plan(policy, replace(FREE, **WORLD), dim=2, rounds=80, seeds=4)
    assert found.table[0]["scenario"] == "as assumed"
    assert [{**row, "scenario": ""} for row in found.table] == [{**row, "scenario": ""} for row in stated.table]
    assert "Assumed, not stated: reward_noise = 0.3" in " ".join(found.words())
    assert "Assumed" not in " ".join(stated.words())


@pytest.mark.parametrize(
    ("policy", "spec", "assumed", "named"),
    [
        ({"start_dose": 0.1}, FREE, {}, "reward_noise.*--reward-noise.*calibrate.*the guarantee does not"),
        ({"start_dose": 0.1}, FREE, {"cost_noise": 0.3}, "--coefficient-bound"),
        ({}, FREE, WORLD, "start_dose = None: is missing: assumed constants"),
        ({"start_dose": 0.1}, replace(FREE, **WORLD), {"cost_noise": 0.2}, "already stated"),
        ({"start_dose": 0.1}, FREE, {"ridge": 2.0}, "not constants"),
    ],
)
def test_what_a_forecast_lacks_is_said_with_the_way_to_give_it(policy, spec, assumed, named):
    with pytest.raises(InvalidInput, match=named):
        plan(make_policy("hp_conformal", **policy), spec, dim=2, rounds=20, seeds=2, assumed=assumed)


def test_small_doses_are_counted_and_the_option_behind_them_is_named():
    micro = make_policy("hp_probe", probe=0.01)
    found = plan(micro, SPEC, dim=3, rounds=200, seeds=10, scenarios=SCENARIOS[:1], dial=Dial(high=15, unit="U"))
    log = simulated_log(micro, LinearWorld(dim=3), SPEC, rounds=200)
    one = plan(micro, SPEC, dim=3, rounds=200, seeds=1, scenarios=SCENARIOS[:1])
    assert one.table[0]["small_doses"] == pytest.approx(np.mean(log.action < 0.02))
    words = " ".join(found.words())
    assert f"In {found.table[0]['small_doses']:.0%} of the rounds the dose is below 0.3 U" in words
    assert "probe = 1" in words
    quiet = plan(make_policy("hp_ucb"), SPEC, dim=3, rounds=50, seeds=4, scenarios=SCENARIOS[:1])
    assert "probe = 1" not in " ".join(quiet.words())


@pytest.mark.parametrize(
    "changes",
    [
        {"noise_scale": {"scale": "power_scale", "exponent": 0.7}},
        {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0, "margin_risk": 0.01},
        {"guarantee": "joint"},
    ],
)
def test_every_form_of_the_spec_can_be_planned(changes):
    spec = replace(SPEC, **changes)
    world = LinearWorld(dim=3, noise="truncated" if spec.margin == "bounded" else "gaussian")
    run = simulate(make_policy("hp_probe"), world, spec, rounds=100, seeds=5)
    row = plan(make_policy("hp_probe"), spec, dim=3, rounds=100, seeds=5).table[0]
    best = known(world, spec, rounds=100, seeds=5)
    assert row["reward_share"] == pytest.approx(run.reward.sum() / best, rel=1e-9)
    assert row["violations"] == pytest.approx(run.violations.mean())
    assert row["guaranteed_risk"] == pytest.approx(spec.guaranteed_risk)


def test_a_margin_holds_only_where_the_noise_is_what_it_assumes():
    policy = make_policy("hp_probe")
    gaussian = replace(SPEC, margin="gaussian")
    kept = {each.name: guarantee_kept(policy, each, gaussian) for each in scenarios_for(policy, gaussian)}
    assert kept["as stated"]
    assert not kept["two-point noise"]
    for end, family in [(0.3, "rademacher"), (0.55, "uniform"), (0.7, "truncated")]:
        bounded = replace(SPEC, margin="bounded", noise_low=-end, noise_high=end)
        first = scenarios_for(policy, bounded)[0]
        assert first.world["noise"] == family
        assert "Gaussian noise" not in first.words or family == "truncated"
        assert guarantee_kept(policy, first, bounded)
    narrow = replace(SPEC, margin="bounded", noise_low=-0.1, noise_high=0.1)
    assert not any(guarantee_kept(policy, each, narrow) for each in scenarios_for(policy, narrow)[:1])


def test_what_is_learned_about_the_noise_goes_by_the_stated_constants_too():
    """Were past noise read with the world's own S, a truth of twice the norm would change what is learned."""
    learned = []
    stated = replace(SPEC, violation_risk=0.3, margin="bounded", noise_low=-1.0, noise_high=1.0, margin_risk=0.1)
    wide = replace(stated, coefficient_bound=2.0)
    for spec in (stated, wide):
        given = Setting(make_policy("hp_probe"), LinearWorld(dim=2), spec, as_dose(None), [0], 1, 1, stated=stated)
        estimate = Batch(given).policy.arithmetic
        state = estimate.init(2, ridge=1.0)
        for row in np.random.default_rng(0).normal(size=(200, 2)) * 0.5:
            seen = estimate.predict(state, row, np.linalg.norm(row))
            state = estimate.update(state, seen, 0.0, float(row[0]), 1.0)
        learned.append(estimate.predict(state, row, np.linalg.norm(row)).noise)
    assert learned[0] == learned[1] < np.inf


def test_a_truth_other_than_stated_changes_the_world_and_not_the_policy():
    first = {
        name: played(name, seeds=4).quantities["first_dose"] for name in ("as stated", "noise 2 κ", "milder truth")
    }
    assert len(set(first.values())) == 1
    assert played("noise 2 κ").quantities["violations"] > 5 * played("as stated").quantities["violations"]


def test_where_the_guarantee_is_said_to_hold_it_does(count):
    """Level 1e-6 for each scenario; seeds fixed."""
    found = plan("hp_ucb", SPEC, dim=3, rounds=200, seeds=count(40, 400))
    held = [row for row in found.table if row["guarantee_holds"]]
    assert len(held) == 5
    for row in held:
        total = found.rounds * found.seeds
        assert binomtest(round(row["violation_rate"] * total), total, 0.05, alternative="greater").pvalue > 1e-6
        assert row["guaranteed_risk"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (
            nonlinear_hp_probe(cost_class=finite(lambda x: np.stack([0.01 * x[..., 0], -0.01 * x[..., 0]], -1))),
            "as stated",
        ),
        (nonlinear_hp_probe(cost_class=kernel("rbf:2", norm=0.5)), "as stated"),
        (make_policy("hp_conformal"), "norm 2 S"),
        (make_policy("hp_conformal", start_dose=0.9), "as stated"),
    ],
    ids=["finite", "kernel", "certified start", "declared start"],
)
def test_no_guarantee_is_said_to_hold_where_the_class_or_the_start_is_wrong(policy, name):
    """Each exceeds what it would guarantee: the truth is not in the class, or the start rests on what is not so."""
    row = plan(policy, TIGHT, dim=3, rounds=100, seeds=20, scenarios=[BY_NAME[name]]).table[0]
    assert row["violation_rate"] > row["guaranteed_risk"]
    assert not row["guarantee_holds"]


def test_the_start_is_judged_by_the_world_it_is_in():
    """`hp_conformal` needs no constants once it has rounds enough; until then its dose must be safe where it is played:
    certified from constants that are not exceeded where it matters, or declared and low enough.
    """
    certified, low, high = (make_policy("hp_conformal", start_dose=dose) for dose in (None, 0.15, 0.3))
    kept = {each.name: [guarantee_kept(rule, each, SPEC) for rule in (certified, low, high)] for each in SCENARIOS}
    assert kept["as stated"] == [True, True, True]
    assert kept["heavy tails"] == kept["bent mean"] == [True, True, True]
    assert kept["noise 2 κ"] == [False, True, False]
    assert kept["norm 2 S"] == [False, True, False]
    assert kept["drifting contexts"] == kept["worst contexts"] == [False, False, False]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("risk", [0.01, 0.05, 0.3])
def test_a_certified_start_keeps_the_risk_in_every_noise_it_is_said_to(noise, risk, count):
    """The worst mean of the class, S‖x‖, and the dose that the constants certify: level 1e-6, seeds fixed."""
    spec = make_spec(violation_risk=risk)
    world, rng = LinearWorld(dim=4, noise=noise), np.random.default_rng(0)
    draws = world.draw_chunk(spec, {**generators([0]), "cost_noise": [rng]}, count(20_000, 200_000))
    size = float(noise_margin(spec, 1.0))
    over = int((draws.cost_noise > size).sum())
    said = bool(noises.exceeds_rarely(noise, size, risk))
    assert not said or binomtest(over, draws.cost_noise.size, risk, alternative="greater").pvalue > 1e-6
    assert said or (noise, risk) in {("exponential", 0.01), ("context-scale", 0.01)}


def test_every_number_of_the_curves_is_in_its_range():
    found = played("as stated")
    rounds = [row["round"] for row in found.curves]
    assert rounds[-1] == 300
    assert np.all(np.diff(rounds) > 0)
    for row in found.curves:
        assert 0.0 <= row["dose_low"] <= row["dose_high"] <= 1.0
    totals = [row["violations"] for row in found.curves]
    assert np.all(np.diff(totals) >= 0)
    assert totals[-1] == pytest.approx(found.quantities["violations"])


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"rounds": 0.5}, {"scenarios": []}])
def test_what_cannot_be_planned_is_said(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        plan("hp_probe", SPEC, **({"dim": 2, "rounds": 10} | wrong))


def test_an_alarm_of_a_baseline_that_guarantees_nothing_is_forecast():
    loud = plan("on_expectation", make_spec(violation_risk=0.01), dim=3, rounds=200, seeds=10, scenarios=SCENARIOS[:1])
    assert "nothing is guaranteed" in loud.words()[0]
    assert loud.table[0]["alarms"] > 0.5


def test_a_policy_that_earns_little_never_reaches_half():
    tight = make_spec(threshold=0.05, reward_noise=3.0, cost_noise=3.0, coefficient_bound=5.0, context_bound=1.0)
    found = plan("fixed", tight, dim=2, rounds=20, seeds=3, scenarios=[BY_NAME["milder truth"]])
    assert found.table[0]["half_reward_round"] is None


def test_hp_conformal_is_planned_without_an_adversary():
    policy = make_policy("hp_conformal")
    assert "worst contexts" not in {each.name for each in scenarios_for(policy, SPEC)}
    assert guarantee_kept(policy, BY_NAME["heavy tails"], SPEC)
    assert not guarantee_kept(policy, BY_NAME["drifting contexts"], SPEC)
    found = plan(policy, SPEC, dim=2, rounds=60, seeds=2, scenarios=[BY_NAME["noise 2 κ"]])
    assert found.table[0]["alarms"] is None
    assert found.table[0]["guaranteed_risk"] == pytest.approx(0.045)


def test_a_policy_with_a_state_of_its_own_is_planned_without_an_adversary():
    found = plan("nonlinear_hp_probe", SPEC, dim=2, rounds=20, seeds=2)
    assert len(found.table) == len(SCENARIOS) - 1


def test_both_engines_plan_alike_and_a_plan_says_which_played(monkeypatch):
    given = {"dim": 3, "rounds": 60, "seeds": 4}
    slow = plan("hp_probe", SPEC, **given)
    assert (slow.engine, slow.compile_seconds) == ("numpy", 0.0)  # too small to compile for
    monkeypatch.setattr(engines, "WORTHWHILE", 0.0)
    fast = plan("hp_probe", SPEC, **given)
    assert fast.engine == "jax"
    assert plan("hp_probe", SPEC, **given, scenarios=SCENARIOS[:1], device="cpu").engine == "jax"
    with pytest.raises(InvalidInput, match="device = 'cpu': is for engine jax only"):
        plan("hp_probe", SPEC, **given, engine="numpy", device="cpu")
    assert fast.compile_seconds > 0.0
    for one, other in zip(fast.table + fast.curves, slow.table + slow.curves, strict=True):
        numbers = [name for name in one if isinstance(one[name], float)]
        assert {**one, **dict.fromkeys(numbers)} == {**other, **dict.fromkeys(numbers)}
        np.testing.assert_allclose([one[name] for name in numbers], [other[name] for name in numbers], atol=1e-9)
    refused = make_spec(margin="bounded", noise_low=-1.0, noise_high=1.0, margin_risk=0.01)
    assert plan("hp_probe", refused, **given, scenarios=SCENARIOS[:1]).engine == "numpy"
