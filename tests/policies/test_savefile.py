"""What a class learned is packed and unpacked to the last bit."""

import numpy as np
import pytest

from safedial.policies.classes import (
    CLASSES,
    Outcomes,
    binary,
    features,
    finite,
    kernel,
    linear,
)
from safedial.policies.classes.features import splines
from safedial.policies.table import pack, unpack
from safedial.simulation.nonlinear_worlds import waves
from tests.conftest import make_spec
from tests.policies.problems import learned, rounds_of

MADE = {
    "linear": linear(),
    "finite": finite(waves(2, 20)),
    "finite-paper": finite(waves(2, 20), radius="paper"),
    "kernel": kernel("rbf:0.5"),
    "features": features(splines(2)),
    "binary": binary(norm=2.0),
}


def test_the_list_names_every_class():
    assert {name.partition("-")[0] for name in MADE} == set(CLASSES)
    assert len(CLASSES) == 5


@pytest.mark.parametrize("class_", MADE.values(), ids=MADE)
def test_what_is_unpacked_goes_on_as_what_was_packed(class_):
    contexts, outcomes, weights = rounds_of(count=24)
    weights = np.ceil(weights)
    if class_.binary:
        outcomes = (outcomes > 0).astype(float)
    state = learned(class_, contexts[:12], outcomes, weights)
    twin = unpack(class_.init(2, ridge=1.0, targets=2), pack(state))
    for index in range(12, 24):
        ranges, after = [], []
        for each in (state, twin):
            view = class_.look(each, contexts[index])
            ranges.append(class_.bounds(view, 0, noise=0.3, spec=make_spec()))
            place = Outcomes(tuple(outcomes[:, index]), weights[index], np.float64(0.5))
            after.append(class_.update(each, view, place))
        state, twin = after
        assert all(np.array_equal(here, there) for here, there in zip(*ranges, strict=True))


@pytest.mark.parametrize("class_", MADE.values(), ids=MADE)
def test_weight_0_leaves_the_range_as_it_was(class_):
    contexts, outcomes, _ = rounds_of(count=10)
    outcomes = (outcomes > 0).astype(float)
    state = learned(class_, contexts, outcomes, np.ones(10))
    before = class_.bounds(class_.look(state, contexts[0]), 0, noise=0.3, spec=make_spec())
    view = class_.look(state, contexts[3])
    state = class_.update(state, view, Outcomes((np.float64(1.0), np.float64(1.0)), np.float64(0.0), np.float64(0.5)))
    after = class_.bounds(class_.look(state, contexts[0]), 0, noise=0.3, spec=make_spec())
    np.testing.assert_allclose([float(x) for x in after], [float(x) for x in before], atol=1e-12)


def test_a_description_is_plain_whatever_the_functions_are():
    described = finite([np.sin, np.cos], prior=(1.0, 2.0)).describe()
    assert (described["functions"], described["prior"]) == ("2 functions", [1.0, 2.0])
    assert features(splines(2)).describe()["transform"].startswith("splines:5")
