"""The simulated battery: seeded, hotter than linear in the current, with a memory; and agents in its loop."""

import sys

import numpy as np
import pytest

from benchmarks.figures.battery_loop import alarm_round, by_band, noise_round, run_loop
from benchmarks.worlds.battery import COOLING, HEAT, BatteryWorld
from safedial import Agent, InvalidInput, SafetySpec, hp_probe
from safedial.core.dose import Dose, identity, power
from safedial.decision.units import Dial
from safedial.errors import MissingExtra

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


def test_the_highest_temperature_of_a_step_is_at_one_of_its_ends():
    world = BatteryWorld(step_seconds=5.0, temperature_noise=0.0)
    for actions in ([1.0] * 24 + [0.3] * 24, [0.2] * 24 + [0.9] * 24, [0.5] * 24 + [0.0] * 24):
        battery = world.start(1)
        costs = [battery.step(action).cost for action in actions]
        assert max(costs[23:]) <= max(costs[23], costs[-1]) + 0.01 / HEAT


def test_contexts_keep_their_norm_and_spent_cells_are_exchanged():
    battery = BatteryWorld(largest_current=8.0).start(0)
    for action in np.random.default_rng(1).random(150):
        assert np.linalg.norm(battery.context) <= 1.0
        step = battery.step(float(action))
        assert np.isfinite(step[:5]).all()
    assert battery.cell > 5


def test_violations_and_what_led_to_them_are_recorded():
    hot = Agent(6, spec(threshold=0.02, promise="conformal", cost_noise=None), start_action=0.6)
    played = run_loop(hot, BatteryWorld(), 60, 0)
    assert sum(each.violated for each in played) > 10
    assert all(each.violated == (each.cost > 0.02) for each in played)
    assert {each.promise for each in played} <= {"declared", "conformal", "none"}


def test_a_certified_agent_in_the_loop_is_certified_and_its_residuals_are_its_own():
    agent = Agent(6, spec(cost_sensor_noise=0.01, reward_sensor_noise=0.01), dose=Dose(identity(), power(2.0)))
    told = []
    played = run_loop(agent, BatteryWorld(), 80, 0, carry_over=True, progress=told.append)
    assert sum(told) == 80
    assert all(each.promise == "certified" for each in played)
    assert not played[0].predicted
    assert played[0].residual == played[0].cost
    assert alarm_round(played) is None
    assert noise_round(played) is None
    assert sum(band.rounds for band in by_band(played)) == 79
    assert played[1].baseline_cost == pytest.approx(played[0].cost * np.exp(-1.2))


def test_micro_doses_divide_the_heat_that_is_left_and_the_monitor_notices():
    exact = BatteryWorld(temperature_noise=0.0, energy_noise=0.0)
    played = run_loop(Agent(6, spec(), policy=hp_probe()), exact, 900, 0, resume_noise=True)
    alarmed = alarm_round(played)
    assert alarmed is not None
    assert {each.limit for each in played[alarmed:]} == {"alarm"}
    assert np.mean([each.violated for each in played[:alarmed]]) > 0.05
    assert 1 <= (noise_round(played) or 0) < alarmed
    told = run_loop(Agent(6, spec(), policy=hp_probe()), exact, 900, 0, carry_over=True)
    assert alarm_round(told) is None
    assert not any(each.violated for each in told)


def test_the_noise_that_micro_doses_seem_to_have_stops_the_agent_before_any_violation():
    played = run_loop(Agent(6, spec(), policy="hp_probe"), BatteryWorld(), 150, 0)
    stopped = alarm_round(played)
    assert stopped is not None
    assert noise_round(played) == stopped
    assert {each.limit for each in played[stopped:]} == {"noise_broken"}
    assert not any(each.violated for each in played)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step_seconds", 7.0),
        ("step_seconds", "a minute"),
        ("largest_current", 0.0),
        ("largest_current", True),
        ("ambient", (30.0, 10.0)),
        ("resistance", (1.0,)),
        ("capacity", (0.9, 1.2)),
        ("temperature_noise", -0.1),
        ("energy_noise", float("nan")),
    ],
)
def test_a_world_that_cannot_be_is_refused_by_name(name, value):
    with pytest.raises(InvalidInput, match=rf"{name} = .*must"):
        BatteryWorld(**{name: value})


@pytest.mark.parametrize("action", [-0.1, 1.1, float("nan"), "full"])
def test_an_action_outside_the_dial_is_refused(action):
    battery = QUIET.start(0)
    with pytest.raises(InvalidInput, match=r"action = .*must be a number in \[0, 1\]"):
        battery.step(action)


def test_without_the_simulator_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "progpy.models", None)
    with pytest.raises(MissingExtra, match=r'pip install .*\[battery\]"'):
        QUIET.start(0)


def test_a_loop_of_unlike_parts_is_refused():
    agent = Agent(6, spec())
    with pytest.raises(InvalidInput, match=r"seed = -1: must be a whole number >= 0"):
        run_loop(agent, BatteryWorld(), 10, -1)
    with pytest.raises(InvalidInput, match=r"rounds = 0: must be a whole number >= 1"):
        run_loop(agent, BatteryWorld(), 0, 0)
    with pytest.raises(InvalidInput, match=r"agent = .*dimension 6"):
        run_loop(Agent(5, spec()), BatteryWorld(), 10, 0)
    with pytest.raises(InvalidInput, match=r"agent = .*plain dial"):
        run_loop(Agent(6, spec(), dial=Dial(high=4.0)), BatteryWorld(), 10, 0)
    with pytest.raises(InvalidInput, match=r"world = .*BatteryWorld"):
        run_loop(agent, "battery", 10, 0)
    with pytest.raises(InvalidInput, match=r"agent = .*must be an Agent"):
        run_loop("agent", BatteryWorld(), 10, 0)
