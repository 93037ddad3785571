import jax.numpy as jnp
import numpy as np
import pytest

from safedial.model.namespace import FLOATS, is_zero, namespace, normal_quantile


def test_each_library_is_recognised_whatever_scalars_stand_beside_it():
    assert namespace(1.0, 2, True) is FLOATS
    assert namespace(np.float64(1.0), 2.0) is np
    assert namespace(np.ones(2), 1.0, np.float64(2)) is np
    assert namespace(jnp.ones(2), np.float64(1.0), 2.0).__name__.startswith("jax")


def test_floats_offer_what_arrays_do():
    for name in ("where", "logical_and", "logical_or", "minimum", "maximum"):
        arguments = (True, 1.0, 2.0) if name == "where" else (True, False) if "logical" in name else (1.0, 2.0)
        assert getattr(FLOATS, name)(*arguments) == getattr(np, name)(*arguments)


def test_only_the_plain_number_zero_is_absent():
    assert is_zero(0.0)
    assert is_zero(0)
    assert not is_zero(1e-300)
    assert not is_zero(np.zeros(2))


def test_the_normal_quantile_in_each_library():
    for values in (0.975, np.array([0.975]), jnp.array([0.975])):
        assert float(np.asarray(normal_quantile(values)).ravel()[0]) == pytest.approx(1.959964, abs=1e-6)
