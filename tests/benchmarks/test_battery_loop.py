"""The simulated battery: seeded, hotter than linear in the current, with a memory; and agents in its loop."""

import numpy as np
import pytest

from benchmarks.figures.battery_loop import alarm_round, by_band, noise_round, run_loop
from benchmarks.worlds.battery import COOLING, BatteryWorld
from safedial import Agent, SafetySpec
from safedial.model.dose import Dose, identity, power

QUIET = BatteryWorld(temperature_noise=0.0, energy_noise=0.0, ambient=(20.0, 20.0), resistance=(1, 1), capacity=(1, 1))


def spec(**changes):
    settings = {"threshold": 0.3, "total_risk": 0.05, "reward_noise": 0.08, "cost_noise": 0.08}
    return SafetySpec(**(settings | {"coefficient_bound": 2.5, "context_bound": 1.0} | changes))


def episode(seed, actions):
    battery = BatteryWorld().start(seed)
    return [(*battery.context, *battery.step(action)) for action in actions]


def test_the_same_seed_gives_the_same_episode_and_another_seed_another():
    actions = np.random.default_rng(0).random(40)
    assert episode(3, actions) == episode(3, actions)
    assert episode(3, actions) != episode(4, actions)


def test_heat_grows_faster_than_the_current_and_about_as_its_square():
    half, full = (QUIET.start(0).step(action).cost for action in (0.5, 1.0))
    assert full > 3.0 * half > 0.0
    assert full == pytest.approx(4.0 * half, rel=0.1)


def test_without_a_current_the_cell_cools_by_the_known_constant():
    battery = QUIET.start(0)
    warm = battery.step(1.0).cost
    expected = battery.carry_over
    assert expected == pytest.approx(warm * np.exp(-QUIET.step_seconds / COOLING))
    assert battery.step(0.0).cost == pytest.approx(expected, rel=0.06)


def test_a_certified_agent_in_the_loop_is_certified_and_its_residuals_are_its_own():
    agent = Agent(6, spec(cost_sensor_noise=0.01, reward_sensor_noise=0.01), dose=Dose(identity(), power(2.0)))
    told = []
    played = run_loop(agent, BatteryWorld(), 80, 0, carry_over=True, progress=told.append)
    assert sum(told) == 80
    assert all(each.guarantee == "certified" for each in played)
    assert not played[0].predicted
    assert played[0].residual == played[0].cost
    assert alarm_round(played) is None
    assert noise_round(played) is None
    assert sum(band.rounds for band in by_band(played)) == 79
    assert played[1].baseline_cost == pytest.approx(played[0].cost * np.exp(-1.2))
