"""Noise that grows with the dose in any way: the special cases give the same numbers, the walk never passes the end."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binomtest

from safedial import Agent, Dial, InvalidInput, LinearWorld, SafetySpec, hill, make_policy, replay, simulate
from safedial.bounds.estimate import sample_weight
from safedial.bounds.safe_set import largest_safe_intensity, safe_set
from safedial.model.noise_scale import (
    largest_scaled_intensity,
    own_scale,
    power_scale,
    proportional,
    scaled_weight,
    with_any_sensor,
    with_sensor,
)
from tests.conftest import make_spec

LEVEL = 1e-6
numbers = {
    "upper": st.floats(-2, 2),
    "margin": st.floats(0.01, 4),
    "threshold": st.floats(0.01, 3),
    "ratio": st.floats(0.0, 2.0),
}


@given(**numbers)
def test_the_papers_and_the_sensors_safe_sets_are_special_cases(upper, margin, threshold, ratio):
    cases = [
        (proportional(), {}),
        (with_sensor(ratio), {"sensor_margin": ratio * margin}),
        (with_any_sensor(ratio), {"sensor_margin": ratio * margin, "sensor_dependent": True}),
    ]
    for scale, sensor in cases:
        if abs(threshold - sensor.get("sensor_margin", 0.0)) < 1e-9:
            continue
        closed = largest_safe_intensity(upper, margin, threshold=threshold, **sensor)
        walked, certified = largest_scaled_intensity(upper, margin, threshold=threshold, scale=scale, context=None)
        assert certified == closed.certified
        load = walked * upper + margin * scale.of(walked, None)
        assert load <= threshold or not certified
        assert walked == pytest.approx(closed.intensity, abs=1e-12) or _flat(
            upper, margin, threshold, walked, closed, scale
        )


def _flat(upper, margin, threshold, walked, closed, scale):
    """Where the load is flat near τ the root itself is ill-conditioned: then the loads agree instead."""
    here, there = (z * upper + margin * scale.of(z, None) for z in (walked, closed.intensity))
    return walked <= closed.intensity + 1e-12 and abs(here - there) <= 1e-12


@pytest.mark.parametrize("exponent", [0.5, 1.7, 3.0])
@pytest.mark.parametrize("upper", [-0.6, 0.0, 0.7])
def test_the_walk_ends_at_the_first_crossing(exponent, upper):
    def load(z):
        return z * upper + 2.0 * z**exponent

    walked, _ = largest_scaled_intensity(upper, 2.0, threshold=0.3, scale=power_scale(exponent), context=None)
    start = 1e-9 if upper >= 0 else (-upper / (2.0 * exponent)) ** (1 / (exponent - 1)) if exponent > 1 else 1e-9
    if exponent < 1 and upper < 0:
        assert np.all([load(z) <= 0.3 * (1 + 1e-12) for z in np.linspace(0, walked, 2000)])
    else:
        assert walked == pytest.approx(brentq(lambda z: load(z) - 0.3, start, 1.0, xtol=1e-15), abs=1e-12)


def test_every_smaller_dose_is_safe_too_where_the_load_rises_and_falls():
    """h jumps early: a larger dose would be safe again, but not all doses below it."""
    scale = own_scale(lambda z, _: np.where(np.asarray(z) > 0.2, 0.5, 0.0))
    walked, certified = largest_scaled_intensity(
        np.array([-1.0]), np.array([1.0]), threshold=np.array([0.1]), scale=scale, context=None
    )
    assert certified.all()
    assert walked[0] <= 0.2
    assert walked[0] == pytest.approx(0.2, abs=1e-12)


def test_a_batch_equals_its_members_and_a_bound_that_is_no_number_certifies_nothing():
    rng = np.random.default_rng(0)
    upper, margin, threshold = rng.normal(size=50), rng.uniform(0.1, 3, 50), rng.uniform(0.05, 2, 50)
    whole, sure = largest_scaled_intensity(upper, margin, threshold=threshold, scale=with_sensor(0.1), context=None)
    for index in range(50):
        one = largest_scaled_intensity(
            float(upper[index]),
            float(margin[index]),
            threshold=float(threshold[index]),
            scale=with_sensor(0.1),
            context=None,
        )
        assert one == (pytest.approx(float(whole[index]), abs=1e-12), sure[index])
    assert largest_scaled_intensity(math.nan, 1.0, threshold=0.5, scale=proportional(), context=None) == (0.0, False)


@given(st.floats(0.01, 1), st.floats(1e-6, 2))
def test_weights_are_the_sensors_weights(intensity, ratio):
    noise = 0.7
    for scale, dependent in [(with_sensor(ratio), False), (with_any_sensor(ratio), True)]:
        sensors = {"reward_sensor_noise": ratio * noise, "cost_sensor_noise": ratio * noise}
        spec = make_spec(reward_noise=noise, cost_noise=noise, sensor_dependent=dependent, **sensors)
        assert scaled_weight(scale, intensity, None) == pytest.approx(
            sample_weight(spec, intensity, intensity), rel=1e-12
        )
    assert scaled_weight(proportional(), intensity, None) == 1.0
    assert scaled_weight(with_sensor(ratio), 0.0, None) == 0.0


@pytest.mark.parametrize("policy", ["hp_probe", "clairvoyant"])
def test_the_papers_model_is_a_simulation_with_the_same_numbers(policy):
    world = LinearWorld(dim=3)
    plain = simulate(policy, world, make_spec(cost_noise=0.4), rounds=200, seeds=3, dose=hill(0.4))
    scaled = make_spec(cost_noise=0.4, noise_scale=proportional())
    same = simulate(policy, world, scaled, rounds=200, seeds=3, dose=hill(0.4))
    for name in ("reward", "regret", "violations", "informative_rounds", "clairvoyant_reward"):
        np.testing.assert_allclose(getattr(same, name), getattr(plain, name), rtol=1e-9, atol=1e-9)


def test_an_agent_with_a_scale_is_the_agent_with_the_sensor(tmp_path):
    noise, ratio = 0.3, 0.2
    sensors = {"reward_sensor_noise": noise * ratio, "cost_sensor_noise": noise * ratio}
    sensed = Agent(2, make_spec(cost_noise=noise, reward_noise=noise, **sensors), policy=make_policy("hp_ucb"))
    spec = make_spec(cost_noise=noise, reward_noise=noise, noise_scale=with_sensor(ratio))
    scaled = Agent(2, spec, policy=make_policy("hp_ucb"))
    rng = np.random.default_rng(1)
    for _ in range(80):
        context = rng.uniform(-0.7, 0.7, 2)
        left, right = sensed.ask(context), scaled.ask(context)
        assert left.action == pytest.approx(right.action, abs=1e-12)
        reward, cost = (rng.normal(0.1, 0.1, 2) * left.action).tolist()
        sensed.tell(left, reward=reward, cost=cost)
        scaled.tell(right, reward=reward, cost=cost)
    scaled.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").spec == spec
    assert any("h(z, x)" in line for line in right.certificate["assumptions"])


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "contexts"), [
    (power_scale(0.5), "iid"),
    (power_scale(2.0), "adversarial"),
    (own_scale(lambda z, x: z * (0.5 + np.abs(np.asarray(x)[..., 0])) + 0.05), "iid"),
    (own_scale(lambda z, x: z * (0.5 + np.abs(np.asarray(x)[..., 0])) + 0.05), "adversarial"),
])  # fmt: skip
def test_violations_stay_within_the_risk(scale, contexts, count):
    """Level 1e-6; seeds are fixed."""
    spec = make_spec(
        violation_risk=0.1,
        estimation_risk=0.02,
        cost_noise=0.3,
        reward_noise=0.3,
        threshold=[0.2, 1.0],
        noise_scale=scale,
    )
    run = simulate(
        make_policy("hp_probe"),
        LinearWorld(dim=3, contexts=contexts),
        spec,
        rounds=count(300, 3000),
        seeds=count(20, 100),
    )
    total = int(run.violations.sum())
    assert binomtest(total, run.violations.size * run.rounds, 0.12, alternative="greater").pvalue > LEVEL
    assert np.all(run.reward <= run.clairvoyant_reward + 1e-9)
    assert run.uncertified_rounds.sum() == 0


def test_a_scale_is_refused_where_it_does_not_hold_and_survives_a_file():
    spec = make_spec(noise_scale=power_scale(2.0))
    assert SafetySpec.from_dict(spec.to_dict()) == spec
    with pytest.raises(InvalidInput, match="radius"):
        Agent(2, spec, policy=make_policy("hp_ucb", radius="paper"))
    with pytest.raises(InvalidInput, match="radius"):
        simulate(make_policy("hp_ucb", radius="paper"), LinearWorld(dim=2), spec, rounds=2, seeds=1)
    with pytest.raises(InvalidInput, match="noise_scale"):
        replay("hp_ucb", np.ones((2, 2)) / 2, np.zeros(2), np.zeros(2), spec)
    with pytest.raises(InvalidInput, match="function"):
        own_scale(3.0)
    for silent in (0.0, np.nan, -1.0):
        spec_of_none = make_spec(noise_scale=own_scale(lambda z, _, silent=silent: silent * z + 0.0 * z))
        with pytest.raises(InvalidInput, match="must be a number > 0"):
            sample_weight(spec_of_none, 0.5, 0.5, None)
    assert safe_set(0.5, spec, round=1.0).intensity < safe_set(0.5, spec, round=1.0, on_expectation=True).intensity


def falling(z, x):
    return 0.02 + z * np.asarray(x)[..., 0]


@pytest.mark.parametrize("function", [
    lambda z, x: 1.0 - 0.5 * z,
    lambda z, x: np.where(np.asarray(z) > 0.5, 0.1, 0.2),
    lambda z, x: -0.1 + z,
    lambda z, x: np.nan * z,
])  # fmt: skip
def test_a_scale_that_falls_or_is_negative_is_refused(function):
    """The walk takes h at the end of a step for its largest value in it; where it falls, smaller doses are not safe."""
    spec = make_spec(noise_scale=own_scale(function))
    with pytest.raises(InvalidInput, match="noise_scale"):
        Agent(2, spec)
    with pytest.raises(InvalidInput, match="noise_scale"):
        simulate("hp_probe", LinearWorld(dim=2), spec, rounds=5, seeds=2)


def test_a_scale_that_falls_at_one_context_is_refused_there_and_nothing_changes():
    agent = Agent(2, make_spec(noise_scale=own_scale(falling)), policy="epsilon_greedy", seed=3)
    before = agent._rng.bit_generator.state
    with pytest.raises(InvalidInput, match="must not fall, and is"):
        agent.ask([-0.5, 0.3])
    with pytest.raises(InvalidInput, match="must not fall"):
        agent.tell([-0.5, 0.3], 0.1, 0.0, 0.0)
    assert agent.decisions == agent.informative_rounds == 0
    assert agent._rng.bit_generator.state == before
    assert agent.ask([0.5, 0.3]).certified
    with pytest.raises(InvalidInput, match="must not fall"):
        simulate("hp_probe", LinearWorld(dim=2), make_spec(noise_scale=own_scale(falling)), rounds=50, seeds=3)


def test_a_scale_may_be_flat_up_to_rounding():
    from safedial.model.noise_scale import check_rises

    check_rises(own_scale(lambda z, x: np.tanh(60.0 * np.asarray(z)) * (1.0 - 1e-15 * np.asarray(z))), np.zeros(2))


def test_a_scale_that_reads_the_context_goes_with_levels():
    """A level that the first safe dose does not reach is warned of; the warning looks at a context of norm L."""
    scale = own_scale(lambda z, x: z * (1.0 + abs(x[..., 0])))
    agent = Agent(2, make_spec(cost_noise=0.3, noise_scale=scale), dial=Dial(levels=[0.01, 0.5, 1.0]))
    assert agent.ask([0.3, 0.1]).action == 0.01
    with pytest.warns(UserWarning, match="the lowest level"):
        Agent(2, make_spec(noise_scale=scale), dial=Dial(levels=[0.9, 1.0]))


def test_an_agent_with_a_scale_of_ones_own_is_saved_and_loaded(tmp_path):
    def mine(z, x):
        return z * (1.0 + abs(x[..., 0]))

    def other(z, x):
        return z * (1.0 + 0.5 * abs(x[..., 0]))

    other.__name__ = "mine"
    agent = Agent(2, make_spec(noise_scale=own_scale(mine)))
    agent.tell([0.3, 0.1], 0.1, 0.05, 0.02)
    agent.save(tmp_path / "agent")
    twin = Agent.load(tmp_path / "agent", noise_scale=own_scale(mine))
    assert twin.ask([0.3, 0.2]).certificate == agent.ask([0.3, 0.2]).certificate
    with pytest.raises(InvalidInput, match=r"give it again: Agent.load\(path, noise_scale"):
        Agent.load(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="is the distance of this function from the saved one"):
        Agent.load(tmp_path / "agent", noise_scale=own_scale(other))
    for wrong in (own_scale(falling), with_sensor(0.1), mine):
        with pytest.raises(InvalidInput, match="must be the saved one"):
            Agent.load(tmp_path / "agent", noise_scale=wrong)
    Agent(2, make_spec(noise_scale=with_sensor(0.1))).save(tmp_path / "other")
    with pytest.raises(InvalidInput, match="leave it out"):
        Agent.load(tmp_path / "other", noise_scale=own_scale(mine))
