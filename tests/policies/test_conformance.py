"""One list of all policies × one list of claims."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safedial import POLICIES, Agent, InvalidInput, LinearWorld, make_policy, simulate
from safedial.core import estimate
from safedial.core.estimate import Prediction
from tests.conftest import make_spec

CONFIGURATIONS = [
    ("hp_ucb", {}),
    ("hp_ucb", {"radius": "paper"}),
    ("hp_ucb", {"radius": "determinant", "clip": False}),
    ("hp_probe", {}),
    ("hp_probe", {"probe": 0.01}),
    ("hp_probe", {"probe": 0}),
    ("hp_probe", {"radius": "paper", "clip": True}),
    ("on_expectation", {}),
    ("on_expectation", {"radius": "paper"}),
    ("epsilon_greedy", {}),
    ("epsilon_greedy", {"radius": "paper", "epsilon": 0.2, "learn_from": "exploring"}),
    ("thompson", {}),
    ("thompson", {"scale": 0.0}),
    ("clairvoyant", {}),
    ("fixed", {}),
    ("fixed", {"clip": False}),
]
SPECS = {
    "plain": {},
    "joint": {"promise": "joint"},
    "sensor": {"cost_sensor_noise": 0.05, "reward_sensor_noise": 0.1},
    "dependent": {"cost_sensor_noise": 0.05, "sensor_dependent": True},
}
each_policy = pytest.mark.parametrize(
    ("name", "options"), CONFIGURATIONS, ids=[f"{name}-{number}" for number, (name, _) in enumerate(CONFIGURATIONS)]
)
each_spec = pytest.mark.parametrize("changes", SPECS.values(), ids=SPECS)


def test_the_list_names_every_policy():
    assert {name for name, _ in CONFIGURATIONS} == set(POLICIES)
    assert len(POLICIES) == 7


def random_predictions(number=400, seed=0):
    rng = np.random.default_rng(seed)
    norm = rng.uniform(0.05, 1.0, number)
    return Prediction(
        rng.normal(0, 0.5, number),
        rng.normal(0, 0.7, number),
        norm * rng.uniform(0.01, 1.0, number),
        norm,
        rng.uniform(0, 40, number),
        rng.integers(0, 3000, number).astype(float),
        4,
    ), rng.random(number)


@each_policy
@each_spec
def test_the_intensity_lies_between_0_and_the_safe_intensity(name, options, changes):
    seen, coin = random_predictions()
    choice = make_policy(name, **options).decide(seen, make_spec(**changes), round=7.0, coin=coin)
    intensity, safe = np.asarray(choice.intensity), np.asarray(choice.safe.intensity)
    assert np.all(intensity >= 0.0)
    assert np.all(intensity <= safe)
    assert np.all(safe <= 1.0)


@each_policy
@each_spec
def test_a_batch_a_loop_of_floats_and_jax_under_jit_choose_the_same(name, options, changes):
    seen, coin = random_predictions(60)
    spec, policy = make_spec(**changes), make_policy(name, **options)
    whole = policy.decide(seen, spec, round=3.0, coin=coin)
    loop = [
        policy.decide(Prediction(*(float(v[i]) for v in seen[:6]), 4), spec, round=3.0, coin=float(coin[i])).intensity
        for i in range(60)
    ]
    np.testing.assert_allclose(loop, whole.intensity, atol=1e-14)

    @jax.jit
    def decide(values, toss):
        return policy.decide(Prediction(*values, 4), spec, round=3.0, coin=toss).intensity

    there = decide([jnp.asarray(value) for value in seen[:6]], jnp.asarray(coin))
    np.testing.assert_allclose(np.asarray(there), whole.intensity, atol=1e-13)


@each_policy
def test_a_higher_baseline_cost_never_raises_the_dose_and_too_high_a_one_stops_it(name, options):
    seen, coin = random_predictions()
    policy, spec = make_policy(name, **options), make_spec()
    none, some, all_of_it = (
        policy.decide(seen, spec, round=2.0, coin=coin, baseline_cost=cost) for cost in (0.0, 0.3, 0.6)
    )
    assert np.all(some.intensity <= none.intensity)
    assert np.all(np.asarray(all_of_it.intensity) == 0.0)
    assert not np.any(all_of_it.safe.certified)


@each_policy
def test_a_bound_that_is_not_a_number_gives_no_dose(name, options):
    policy = make_policy(name, **options)
    broken = Prediction(*(float("nan"),) * 6, 4)
    choice = policy.decide(broken, make_spec(), round=2.0, coin=0.9)
    if name != "fixed" or options.get("clip", True):
        assert choice.intensity == 0.0


@each_policy
def test_results_do_not_depend_on_how_seeds_are_batched(name, options):
    world, spec = LinearWorld(dim=3), make_spec()
    policy = make_policy(name, **options)
    together = simulate(policy, world, spec, rounds=300, seeds=[4, 0, 7])
    for column, seed in enumerate([4, 0, 7]):
        alone = simulate(policy, world, spec, rounds=300, seeds=[seed])
        np.testing.assert_allclose(together.regret[:, column], alone.regret[:, 0], atol=1e-9)
        np.testing.assert_array_equal(together.violations[:, column], alone.violations[:, 0])


@each_policy
def test_thresholds_in_one_batch_equal_thresholds_one_by_one(name, options):
    world, policy = LinearWorld(dim=3), make_policy(name, **options)
    together = simulate(policy, world, make_spec(threshold=[0.1, 0.9]), rounds=300, seeds=3)
    for row, threshold in enumerate([0.1, 0.9]):
        alone = simulate(policy, world, make_spec(threshold=threshold), rounds=300, seeds=3)
        for field in ("regret", "reward", "violations", "informative_rounds", "clairvoyant_reward"):
            np.testing.assert_array_equal(getattr(together, field)[row], getattr(alone, field)[0])


@each_policy
def test_zero_intensity_leaves_the_state_as_it_was(name, options):
    policy = make_policy(name, **options)
    if policy.knows_truth:
        with pytest.raises(InvalidInput, match="cannot run online"):
            Agent(3, make_spec(), policy=policy)
        return
    if options.get("learn_from") == "exploring":
        return
    agent = Agent(3, make_spec(), policy=policy)
    agent.update([0.1, 0.2, 0.3], 0.5, 0.2, 0.1)
    before = {key: value.copy() for key, value in agent._learner.state().items()}
    agent.update([0.3, 0.2, 0.3], 0.0, 0.0, 0.0)
    for key, value in agent._learner.state().items():
        np.testing.assert_array_equal(value, before[key])


@each_policy
def test_save_and_load_give_the_same_decisions_bit_for_bit(name, options, tmp_path):
    policy = make_policy(name, **options)
    if policy.knows_truth or options.get("learn_from") == "exploring":
        return
    rng = np.random.default_rng(5)
    agent = Agent(3, make_spec(), policy=policy, seed=11)
    contexts = rng.standard_normal((60, 3)) / 5
    for context in contexts[:40]:
        decision = agent.decide(context)
        agent.update(context, decision.action, float(rng.normal()) * decision.intensity, 0.1 * decision.intensity)
    agent.save(tmp_path / "agent")
    twin = Agent.load(tmp_path / "agent")
    for context in contexts[40:]:
        here, there = agent.decide(context), twin.decide(context)
        assert here.action == there.action
        assert here.certificate == there.certificate
        for each in (agent, twin):
            each.update(context, here.action, 0.2, 0.1)
    for key, value in agent._learner.state().items():
        np.testing.assert_array_equal(value, twin._learner.state()[key])


@each_policy
def test_the_agent_chooses_what_core_chooses(name, options):
    """The online path is core's rule on certified numbers: equal up to their slack."""
    policy = make_policy(name, **options)
    if policy.knows_truth or policy.randomised:
        return
    spec = make_spec(reward_noise=0.2, cost_noise=0.2)
    agent, state = Agent(3, spec, policy=policy), estimate.init(3, ridge=spec.ridge)
    rng = np.random.default_rng(6)
    for number in range(1, 120):
        context = rng.standard_normal(3)
        context /= np.linalg.norm(context) * 1.001
        decision = agent.decide(context)
        seen = policy.predict(state, context)
        choice = policy.decide(seen, spec, round=float(number), coin=0.5)
        assert decision.action == pytest.approx(float(choice.intensity), abs=1e-9)
        assert decision.action <= float(choice.intensity)
        outcome = rng.normal(0.1, 0.2, 2)
        if decision.intensity > 0:
            state = estimate.update(state, seen, outcome[0], outcome[1], np.float64(1.0))
        agent.update(context, decision.action, *(outcome * decision.intensity).tolist())


def test_only_a_policy_that_proves_it_calls_itself_realized():
    promises = {name: make_policy(name).promise for name in POLICIES}
    assert promises.pop("on_expectation") == "expected"
    assert set(promises.values()) == {"realized"}


@pytest.mark.parametrize(
    ("name", "options", "rule"),
    [
        ("hp_ucb", {"radius": "tight"}, "radius"),
        ("hp_ucb", {"probe": 0.1}, "probe"),
        ("hp_probe", {"probe": 1.5}, "probe"),
        ("hp_probe", {"probe": "cube"}, "probe"),
        ("hp_probe", {"probe": True}, "probe"),
        ("epsilon_greedy", {"epsilon": -0.1}, "epsilon"),
        ("epsilon_greedy", {"learn_from": "some"}, "learn_from"),
        ("thompson", {"scale": float("inf")}, "scale"),
        ("nothing_like_it", {}, "choose from"),
    ],
)
def test_a_wrong_option_is_refused_by_name(name, options, rule):
    with pytest.raises(InvalidInput, match=rule):
        make_policy(name, **options)


def test_options_rebuild_the_policy():
    for name, options in CONFIGURATIONS:
        policy = make_policy(name, **options)
        again = make_policy(policy.name, **policy.options)
        assert again.options == policy.options
        assert dataclasses.is_dataclass(make_spec())
