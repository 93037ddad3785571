import numpy as np
import pytest

from safedial import InvalidInput, LinearWorld
from safedial.simulation.world import generators
from tests.conftest import make_spec


def test_coefficients_and_contexts_lie_on_their_spheres():
    spec, world = make_spec(coefficient_bound=2.0, context_bound=3.0), LinearWorld(dim=4)
    rngs = generators([0, 1])
    truth, draws = world.draw_truth(spec, rngs), world.draw_chunk(spec, rngs, 50)
    np.testing.assert_allclose(np.linalg.norm(truth.reward_coef, axis=-1), 2.0)
    np.testing.assert_allclose(np.linalg.norm(draws.context, axis=-1), 3.0)
    assert np.all(np.linalg.norm(draws.context, axis=-1) <= 3.0)


@pytest.mark.parametrize("contexts", ["iid", "adversarial", "drift"])
@pytest.mark.parametrize("noise", ["gaussian", "truncated"])
def test_a_seed_gives_the_same_rounds_however_they_are_chunked(contexts, noise):
    """Up to rounding: some BLAS kernels add the squares of a norm by where in memory they begin."""
    spec, world = make_spec(cost_sensor_noise=0.1), LinearWorld(dim=3, contexts=contexts, noise=noise)
    whole = world.draw_chunk(spec, generators([7, 8]), 20)
    rngs = generators([8])
    parts = [world.draw_chunk(spec, rngs, size, done) for size, done in ((3, 0), (16, 3), (1, 19))]
    for name in whole._fields:
        joined = np.concatenate([getattr(part, name)[:, 0] for part in parts])
        np.testing.assert_allclose(joined, getattr(whole, name)[:, 1], rtol=0.0, atol=1e-14)


def test_drifting_contexts_turn_towards_the_first_axis():
    world = LinearWorld(dim=4, contexts="drift")
    first = np.abs(world.draw_chunk(make_spec(), generators([0, 1]), 4000).context[:, :, 0])
    assert first[:200].mean() < 0.15 < 0.7 < first[-200:].mean()


def test_streams_are_independent_of_each_other():
    spec, world = make_spec(), LinearWorld(dim=2)
    draws = world.draw_chunk(spec, generators([0]), 5000)
    table = np.stack([draws.reward_noise[:, 0], draws.cost_noise[:, 0], draws.coin[:, 0], draws.context[:, 0, 0]])
    correlation = np.corrcoef(table) - np.eye(4)
    assert np.abs(correlation).max() < 6 / np.sqrt(5000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean": "cubic"},
        {"noise": "context-scale", "contexts": "adversarial"},
        {"dim": 0},
        {"dim": 2.5},
        {"dim": True},
        {"noise": "cauchy"},
        {"contexts": "kind"},
        {"baseline_cost": float("nan")},
    ],
)
def test_a_world_that_cannot_be_is_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        LinearWorld(**({"dim": 3} | wrong))
