import jax.numpy as jnp
import numpy as np
import pytest

from safedial.policies.policy import Bound, probed
from tests.conftest import make_spec


@pytest.mark.parametrize(
    ("index", "probe", "least", "intensity"),
    [
        (0.0, 0.0, 0.0, 0.4),
        (-1.0, 0.0, 0.0, 0.0),
        (-1.0, 0.1, 0.0, 0.04),
        (-1.0, 0.1, 0.2, 0.2),
        (-1.0, 0.1, 0.9, 0.4),
        (-1.0, 0.0, 0.2, 0.0),
        (1.0, 0.1, 0.9, 0.4),
    ],
)
def test_the_choice_in_each_case(index, probe, least, intensity):
    assert probed(Bound(index, 0.4, {}), probe, least) == pytest.approx(intensity)
    for array in (np.array, jnp.array):
        chosen = probed(Bound(array([index]), array([0.4]), {}), probe, least)
        assert float(chosen[0]) == pytest.approx(intensity)


def test_a_probe_is_as_strong_as_the_noisier_sensor_needs():
    assert make_spec().least_informative is None
    spec = make_spec(reward_sensor_noise=0.2, cost_sensor_noise=0.1, cost_noise=0.25)
    assert spec.least_informative == pytest.approx(0.4)
