"""Dose-response worlds: what they draw is what they say, and their clairvoyant exceeds exactly as often as it may.

Level: each statistical assertion fails with probability below 1e-6 if the world is right; seeds are fixed.
"""

import json

import numpy as np
import pytest
from scipy.stats import binomtest, kstest, lognorm
from typer.testing import CliRunner

from safedial import Cost, InvalidInput, SafetySpec, growth, make_policy, simulate
from safedial.cli import make_app
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.results import guarantee_holds, simulated_log, summary
from safedial.simulation.sweeps import build, parse_grid, run_cell, sweep_rows, write_cell
from safedial.simulation.world import Exposure, generators
from safedial.simulation.worlds import world_from_dict

LEVEL = 1e-6
SPEC = SafetySpec(threshold=2.0, violation_risk=0.05, guarantee="bracket")
SHIELD = {"base": 0, "growth": growth.relative(0.7, 1.4, floor=0.5), "start_scale": 0.1}
WORLDS = {
    "power": DoseResponseWorld(low=0.7, high=1.4),
    "hinge": DoseResponseWorld(curve="hinge", low=2.0, high=30.0, knee=0.9),
    "baseline": DoseResponseWorld(curve="hinge", low=5.0, high=5.0),
    "binary": DoseResponseWorld(curve="binary"),
    "heavy": DoseResponseWorld(tails="t2", least=0.1),
    "told": DoseResponseWorld(effect=0.6, dim=4),
    "patients": DoseResponseWorld(units=6, dim=3, effect=0.2),
    "drift": DoseResponseWorld(fall=0.5, after=40),
}


def spec_of(world, **changes):
    return SafetySpec(
        **{"threshold": 0.5 if world.curve == "binary" else 2.0, "violation_risk": 0.05} | changes, guarantee="bracket"
    )


def exposure(world, spec, *, rounds=300, seeds=20):
    """A chunk of rounds without settings, as the simulation would hold it."""
    rngs = generators(range(seeds))
    truth, draws = world.draw_truth(spec, rngs), world.draw_chunk(spec, rngs, rounds)
    noise = draws.reward_noise, draws.cost_noise, draws.reward_sensor, draws.cost_sensor
    means = world.means(spec, truth, draws.context)
    return Exposure(draws.context, *means, np.zeros(means[0].shape), np.zeros(means[0].shape), *noise)


def at(setting, shown):
    setting = np.broadcast_to(setting, shown.cost_mean.shape)
    return shown._replace(reward_intensity=setting, cost_intensity=setting)


@pytest.mark.parametrize("name", WORLDS)
def test_draws_do_not_depend_on_batching_or_chunks(name):
    world = WORLDS[name]
    whole = world.draw_chunk(SPEC, generators([7, 8]), 60)
    rngs = generators([8])
    parts = [world.draw_chunk(SPEC, rngs, size, done) for size, done in ((3, 0), (40, 3), (17, 43))]
    for field in whole._fields:
        joined = np.concatenate([getattr(part, field) for part in parts])[:, 0]
        np.testing.assert_array_equal(joined, getattr(whole, field)[:, 1])


@pytest.mark.parametrize("name", WORLDS)
def test_the_clairvoyant_exceeds_exactly_as_often_as_it_may(name):
    world = WORLDS[name]
    run = simulate("clairvoyant", world, spec_of(world), rounds=150, seeds=100)
    assert binomtest(int(run.violations.sum()), 15_000, 0.05).pvalue > LEVEL
    assert np.all(run.regret == 0.0)
    np.testing.assert_allclose(run.exact_clairvoyant_reward, run.clairvoyant_reward)


@pytest.mark.parametrize("name", WORLDS)
def test_costs_rise_with_the_setting_and_cross_the_threshold_at_the_tolerance(name):
    world = WORLDS[name]
    spec = spec_of(world)
    shown, grid = exposure(world, spec), np.linspace(0.0, 1.0, 21)
    costs = np.stack([world.outcome(spec, at(setting, shown)).cost for setting in grid])
    assert np.all(np.diff(costs, axis=0) >= 0.0)
    over = costs > spec.threshold
    uniform = shown.cost_noise[..., 0]
    best = world.exact_intensity(spec, shown)
    np.testing.assert_array_equal(
        world.outcome(spec, at(best, shown)).cost > spec.threshold, (uniform < 0.05) & (best < 1.0)
    )
    assert over[-1].mean() > 0.9
    assert not over[0].any()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("power", growth.relative(0.7, 1.4, floor=0.001), growth.relative(0.8, 1.2, floor=0.001)),
        ("hinge", growth.additive(2, 30), growth.additive(4, 20)),
    ],
)
def test_each_unit_keeps_to_its_bracket_and_to_no_narrower_one(name, right, wrong):
    world, rng = WORLDS[name], np.random.default_rng(1)
    shown = exposure(world, SPEC)
    given, other = rng.uniform(0.01, 0.8, (2, *shown.cost_mean.shape))
    seen, true = (world.outcome(SPEC, at(setting, shown)).cost for setting in (given, other))
    for bracket, holds in ((right, True), (wrong, False)):
        bound = bracket.bound(seen, given, other, threshold=SPEC.threshold)
        assert np.all(true <= bound + 1e-9 * (1.0 + np.abs(bound))) == holds


def test_of_several_costs_any_may_bind_and_the_clairvoyant_is_as_exact():
    bracket = growth.additive(2, 30)
    costs = {
        "trough": Cost(threshold=20.0, growth=bracket),
        "glucose": Cost(threshold=70.0, growth=bracket, direction="below"),
        "auc": Cost(threshold=-3.0, growth=bracket),
    }
    spec, world = SafetySpec(costs=costs, violation_risk=0.05, guarantee="bracket"), WORLDS["hinge"]
    shown = exposure(world, spec)
    best = at(world.exact_intensity(spec, shown) * 1.2, shown)
    outcome = world.outcome(spec, best).cost
    over = np.stack([each.exceeded(outcome[name]) for name, each in costs.items()])
    assert np.all(over.sum(axis=(1, 2)) > 20), "each of them binds somewhere"
    given, other = (np.full(shown.cost_mean.shape, setting) for setting in (0.1, 0.4))
    for name, each in costs.items():
        seen, true = (world.outcome(spec, at(setting, shown)).cost[name] for setting in (given, other))
        assert np.all(each.exceeded(true) <= (each.tolerated(seen, given) < other)), "the bound is below the tolerance"
    played = []
    run = simulate("clairvoyant", world, spec, rounds=150, seeds=100, record=played.append)
    assert binomtest(int(run.violations.sum()), 15_000, 0.05).pvalue > LEVEL
    assert set(played[0].cost) == set(costs)
    assert summary(run)["threshold"] == {"trough": 20.0, "glucose": 70.0, "auc": -3.0}
    with pytest.raises(InvalidInput, match="have no log"):
        simulated_log("clairvoyant", world, spec, rounds=3)


def test_each_of_several_costs_can_rise_as_its_own_bracket_says():
    """Within the brackets at places from 0 to 1, and beyond them above 1; the binding one has the tolerance."""
    brackets = {"trough": growth.relative(0.7, 1.4, floor=1.0), "glucose": growth.additive(0, 30)}
    costs = {name: Cost(threshold=2.0, growth=bracket) for name, bracket in brackets.items()}
    spec = SafetySpec(costs=costs, violation_risk=0.05, guarantee="bracket")
    policy = make_policy("hp_shield", base=0, start_scale=0.1)
    for places, holds in (((0.0, 1.0), True), ((0.0, 0.0), True), ((1.25, 1.25), False)):
        world = DoseResponseWorld(curve="stated", low=places[0], high=places[1], least=0.1)
        shown = exposure(world, spec)
        given, other = (np.full(shown.cost_mean.shape, setting) for setting in (0.1, 0.4))
        broken = False
        for name, each in costs.items():
            seen, true = (world.outcome(spec, at(setting, shown)).cost[name] for setting in (given, other))
            broken |= bool(np.any(each.exceeded(true) & (each.tolerated(seen, given) >= other)))
        assert broken != holds
        assert guarantee_holds(policy, world, spec) == holds
        best = world.outcome(spec, at(world.exact_intensity(spec, shown), shown)).cost
        over = np.any([each.exceeded(best[name]) for name, each in costs.items()], axis=0)
        assert binomtest(int(over.sum()), over.size, 0.05).pvalue > LEVEL
    with pytest.raises(InvalidInput, match="curve = 'stated': needs costs in the spec"):
        world.outcome(SPEC, shown)
    by_feature = {"glucose": Cost(threshold=2.0, growth=growth.additive(0, "steepest"))}
    with pytest.raises(InvalidInput, match="must be relative or additive, with numbers"):
        world.outcome(SafetySpec(costs=by_feature, violation_risk=0.05, guarantee="bracket"), shown)


def test_tolerances_have_the_stated_law_given_context_and_patient():
    world = DoseResponseWorld(dim=5, effect=0.4, units=3, spread=0.3)
    shown = exposure(world, SPEC, rounds=1500, seeds=4)
    tolerance = shown.cost_intensity + world._tolerance(shown, shown.cost_noise[..., 0])
    ratio = tolerance / shown.context[..., 0] / np.exp(shown.cost_mean)
    assert kstest(ratio.ravel(), lognorm(0.3).cdf).pvalue > LEVEL
    assert np.all(np.abs(shown.context[..., 1:4]) <= 1.0)
    assert set(np.unique(shown.context[..., 4])) == {0.0, 1.0, 2.0}
    for seed in range(4):  # the same patient, the same features: the same middle
        for patient in range(3):
            rows = shown.context[:, seed, 4] == patient
            design = np.column_stack([np.ones(rows.sum()), shown.context[rows, seed, 1:4]])
            fit, *_ = np.linalg.lstsq(design, shown.cost_mean[rows, seed])
            np.testing.assert_allclose(design @ fit, shown.cost_mean[rows, seed], atol=1e-9)
            assert np.linalg.norm(fit[1:]) / 3**0.5 == pytest.approx(0.4)


def test_outcomes_lost_at_random_are_left_out_and_teach_nothing():
    lost = simulate(make_policy("hp_shield", **SHIELD), DoseResponseWorld(missing=0.2), SPEC, rounds=100, seeds=50)
    share = 1.0 - lost.informative_rounds.mean() / 100
    assert share == pytest.approx(0.2, abs=0.03)
    whole = simulate(make_policy("hp_shield", **SHIELD), DoseResponseWorld(), SPEC, rounds=100, seeds=50)
    assert 0.8 < lost.reward.mean() / whole.reward.mean() < 1.0, "a lost round costs a round, and no more"


def test_the_guarantee_is_proved_where_the_bracket_and_the_start_hold_and_nowhere_else():
    policy = make_policy("hp_shield", **SHIELD)
    kept = DoseResponseWorld(low=0.7, high=1.4, least=0.1)
    assert guarantee_holds(policy, kept, SPEC)
    assert summary(simulate(policy, kept, SPEC, rounds=30, seeds=2))["guaranteed_risk"] == 0.05
    for broken in (
        DoseResponseWorld(low=0.7, high=1.5, least=0.1),
        DoseResponseWorld(low=0.7, high=1.4),
        DoseResponseWorld(low=0.7, high=1.4, least=0.1, fall=0.9, after=10),
        DoseResponseWorld(curve="hinge", least=0.1),
    ):
        assert not guarantee_holds(policy, broken, SPEC)
    assert not guarantee_holds(make_policy("hp_probe"), kept, SPEC)
    additive = make_policy("hp_shield", **SHIELD | {"growth": growth.additive(0, 20)})
    assert guarantee_holds(additive, DoseResponseWorld(curve="hinge", high=20.0, least=0.1), SPEC)


@pytest.mark.parametrize("direction", ["above", "below"])
def test_a_violation_is_judged_by_the_direction_of_the_policy(direction):
    """Costs of one threshold rise with the dose here, so a bracket of costs that must not fall below it is false."""
    world = DoseResponseWorld(curve="hinge", low=1.0, high=2.0, least=0.2)
    spec = spec_of(world, threshold=1.0)
    options = {"base": 0, "growth": growth.additive(1.0, 2.0), "start_scale": 0.2, "direction": direction}
    chunks = []
    run = simulate(make_policy("hp_shield", **options), world, spec, rounds=60, seeds=5, record=chunks.append)
    cost = np.concatenate([chunk.cost for chunk in chunks])
    over = (cost < 1.0 if direction == "below" else cost > 1.0).sum(axis=0)
    np.testing.assert_array_equal(run.violations, over)
    np.testing.assert_array_equal(run.violations_curve[-1], over)
    assert np.all(run.full_dose_violations <= over)
    assert over.sum() > 0
    assert guarantee_holds(run.policy, world, spec) == (direction == "above")
    assert summary(run)["guaranteed_risk"] == (0.05 if direction == "above" else None)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"curve": "line"}, "curve = 'line': must be one of power, hinge, binary"),
        ({"dim": 0}, "dim = 0: must be a whole number >= 1"),
        ({"units": 2}, "dim = 1: is too small for a protocol's setting, a label; at least 2"),
        ({"effect": 0.5}, "effect = 0.5: needs features, and dim = 1 has none"),
        ({"low": 2.0}, "low = 2.0: must be at most high = 1"),
        ({"high": 11}, "high = 11: must be at most 10 for a power"),
        ({"missing": 2}, "missing = 2: must be a number from 0 to 1"),
        ({"spread": True}, "spread = True: must be a number from 0 to 10"),
    ],
)
def test_fields_that_cannot_be_are_refused(fields, words):
    with pytest.raises(InvalidInput, match=words):
        DoseResponseWorld(**fields)


GRID = """
[sweep]
rounds = 30
seeds = 3
[spec]
threshold = 2.0
violation_risk = 0.05
guarantee = "bracket"
[world]
curve = ["power", "hinge"]
high = [1.0, 2.0]
[[policy]]
name = "hp_shield"
base = 0
growth = {growth = "relative", low = 0.7, high = 1.4, floor = 0.5}
"""


def test_a_sweep_and_the_command_line_take_it_by_name(tmp_path):
    cells = parse_grid(GRID).cells
    assert {(world.curve, world.high) for world in (build(cell)["world"] for cell in cells)} == {
        (curve, high) for curve in ("power", "hinge") for high in (1.0, 2.0)
    }
    (tmp_path / "cells").mkdir()
    write_cell(tmp_path, cells[0], run_cell(cells[0]))
    assert sweep_rows(tmp_path, parse_grid(GRID))[0]["curve"] == "power"
    world = WORLDS["patients"]
    assert world_from_dict(world.to_dict()) == world
    plain = (
        GRID.replace('["power", "hinge"]', '"power"')
        .replace("[1.0, 2.0]", "1.0")
        .replace("[world]", "[world]\ndim = 1")
    )
    (tmp_path / "spec.toml").write_text(plain)
    command = ["simulate", "--spec", str(tmp_path / "spec.toml"), "--rounds", "30", "--seeds", "2", "--json", "--world"]
    done = CliRunner().invoke(make_app(), [*command, "dose-response,curve=hinge,low=1,high=20,knee=0.5"])
    assert json.loads(done.stdout)["settings"]["world"]["knee"] == 0.5
    assert "hihg" in str(CliRunner().invoke(make_app(), [*command, "dose-response,hihg=2"]).exception)
