import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safedial.bounds import estimate
from tests.conftest import make_spec
from tests.oracles import Ridge


def rounds(dim, number, seed=0):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((number, dim))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    return contexts, rng.standard_normal(number), rng.standard_normal(number), rng.random(number)


@pytest.mark.parametrize("ridge", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("dim", [1, 3, 8])
def test_the_incremental_estimate_equals_a_fresh_cholesky_to_1e_10(ridge, dim):
    contexts, rewards, costs, weights = rounds(dim, 500)
    fast, slow = estimate.init(dim, ridge=ridge), Ridge(dim, ridge)
    for context, reward, cost, weight in zip(contexts, rewards, costs, weights, strict=True):
        prediction = estimate.predict(fast, context)
        factor = np.linalg.cholesky(slow.gram)
        assert prediction.width == pytest.approx(np.linalg.norm(np.linalg.solve(factor, context)), abs=1e-10)
        fast = estimate.update(fast, prediction, reward, cost, weight)
        slow.update(context, reward, cost, weight)
    np.testing.assert_allclose(fast.inverse, np.linalg.inv(slow.gram), atol=1e-10)
    np.testing.assert_allclose(fast.reward_coef, slow.coef(slow.rewards), atol=1e-10)
    np.testing.assert_allclose(fast.cost_coef, slow.coef(slow.costs), atol=1e-10)
    assert fast.log_det == pytest.approx(np.linalg.slogdet(slow.gram / ridge)[1], abs=1e-10)
    assert fast.informative_rounds == 500


def test_a_batch_of_any_shape_equals_its_members():
    contexts, rewards, costs, weights = rounds(3, 24)
    batch = estimate.init(3, ridge=2.0, batch=(2, 3))
    singles = [estimate.init(3, ridge=2.0) for _ in range(6)]
    for step in range(4):
        part = slice(step * 6, step * 6 + 6)
        prediction = estimate.predict(batch, contexts[part].reshape(2, 3, 3))
        batch = estimate.update(batch, prediction, *(v[part].reshape(2, 3) for v in (rewards, costs, weights)))
        for index in range(6):
            row = step * 6 + index
            seen = estimate.predict(singles[index], contexts[row])
            singles[index] = estimate.update(singles[index], seen, rewards[row], costs[row], weights[row])
    for index, single in enumerate(singles):
        for whole, part in zip(batch, single, strict=True):
            np.testing.assert_allclose(np.reshape(whole, (6, *np.shape(part)))[index], part, atol=1e-15)


def test_jax_gives_the_same_numbers_under_jit():
    contexts, rewards, costs, weights = rounds(3, 20)
    on_numpy, on_jax = estimate.init(3, ridge=0.5), estimate.init(3, ridge=0.5, xp=jnp)

    @jax.jit
    def step(state, context, reward, cost, weight):
        return estimate.update(state, estimate.predict(state, context), reward, cost, weight)

    for row in zip(contexts, rewards, costs, weights, strict=True):
        on_numpy = estimate.update(on_numpy, estimate.predict(on_numpy, row[0]), *row[1:])
        on_jax = step(on_jax, *(jnp.asarray(value) for value in row))
    for left, right in zip(on_numpy, on_jax, strict=True):
        np.testing.assert_allclose(np.asarray(right), left, atol=1e-13)


def test_weight_zero_leaves_the_estimate_as_it_was():
    contexts, rewards, costs, _ = rounds(3, 2)
    state = estimate.update(
        estimate.init(3, ridge=1.0), estimate.predict(estimate.init(3, ridge=1.0), contexts[0]), 1.0, 2.0, np.float64(1)
    )
    same = estimate.update(state, estimate.predict(state, contexts[1]), rewards[1], costs[1], np.float64(0))
    for left, right in zip(state, same, strict=True):
        np.testing.assert_array_equal(left, right)


def test_the_weight_makes_sensor_noise_sub_gaussian_with_the_model_constant():
    spec = make_spec(cost_noise=0.5, cost_sensor_noise=0.2, reward_sensor_noise=0.1)
    intensity = 0.3
    weight = estimate.sample_weight(spec, intensity, intensity)
    variances = [1.0 + (0.1 / intensity) ** 2, 0.25 + (0.2 / intensity) ** 2]
    scaled = [weight * variances[0], weight * variances[1]]
    assert scaled[0] <= 1.0 + 1e-15
    assert scaled[1] <= 0.25 + 1e-15
    assert scaled[0] == pytest.approx(1.0) or scaled[1] == pytest.approx(0.25)
    dependent = make_spec(cost_noise=0.5, cost_sensor_noise=0.2, sensor_dependent=True)
    assert estimate.sample_weight(dependent, intensity, intensity) == pytest.approx(0.25 / (0.5 + 0.2 / intensity) ** 2)


def test_without_sensor_noise_the_weight_is_one_or_nothing():
    spec = make_spec()
    np.testing.assert_array_equal(
        estimate.sample_weight(spec, np.array([0.0, 0.1, 1.0]), np.array([0.0, 0.1, 1.0])), [0.0, 1.0, 1.0]
    )
    assert estimate.sample_weight(spec, 0.0, 0.5) == 0.0
