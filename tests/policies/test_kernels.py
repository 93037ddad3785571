"""Kernels are positive semi-definite, and their names say what they are."""

import numpy as np
import pytest
from sklearn.gaussian_process import kernels as outside

from safedial import InvalidInput
from safedial.policies.classes.kernel import Kernel, constant, matern32, matern52, parse_kernel, polynomial, rbf

POINTS = np.random.default_rng(0).uniform(-1, 1, (30, 3))


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (rbf(0.4), outside.RBF(0.4)),
        (matern32(0.7), outside.Matern(0.7, nu=1.5)),
        (matern52(0.7), outside.Matern(0.7, nu=2.5)),
        (polynomial(3, 0.5), outside.Exponentiation(outside.DotProduct(np.sqrt(0.5)), 3)),
        (rbf(0.4) + 0.3 * matern52(1.0), outside.RBF(0.4) + 0.3 * outside.Matern(1.0, nu=2.5)),
        (rbf(0.4) * polynomial(1), outside.RBF(0.4) * outside.DotProduct(1.0)),
    ],
    ids=str,
)
def test_kernels_are_those_of_scikit_learn(mine, theirs):
    np.testing.assert_allclose(mine(POINTS, POINTS[:7]), theirs(POINTS, POINTS[:7]), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(mine.diagonal(POINTS), np.diag(theirs(POINTS)), rtol=1e-12)
    assert np.linalg.eigvalsh(mine(POINTS, POINTS)).min() > -1e-10


@pytest.mark.parametrize("text", ["rbf:0.3", "matern32:1+rbf:2", "0.5*polynomial:2,0*rbf:1", "matern52:0.2+0.1"])
def test_a_name_gives_the_kernel_and_the_kernel_its_name(text):
    made = parse_kernel(text)
    assert str(parse_kernel(str(made))) == str(made)
    assert parse_kernel(made) is made
    np.testing.assert_array_equal(parse_kernel(str(made))(POINTS, POINTS), made(POINTS, POINTS))


def test_a_name_holds_every_digit():
    for kernel in (rbf(0.123456789), 1e20 * matern32(1 / 3), polynomial(2, 1e-7)):
        assert str(parse_kernel(str(kernel))) == str(kernel)
    assert str(rbf(0.123456789)) != str(rbf(0.123456788))


@pytest.mark.parametrize("kernel", [rbf, matern32, matern52])
def test_points_far_from_the_origin_are_told_apart(kernel):
    """Such as times in seconds: only differences matter, and these floats hold exactly."""
    near = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    far = near + np.array([2.0**31, -(2.0**30)])
    np.testing.assert_array_equal(kernel(1.0)(far, far), kernel(1.0)(near, near))


def test_a_product_with_a_sum_keeps_its_brackets():
    whole = (rbf(1.0) + constant(2.0)) * rbf(0.5)
    assert str(whole) == "(rbf:1+2)*rbf:0.5"
    np.testing.assert_allclose(whole(POINTS, POINTS), (rbf(1.0)(POINTS, POINTS) + 2.0) * rbf(0.5)(POINTS, POINTS))
    assert isinstance(2.0 * rbf(1.0), Kernel)


@pytest.mark.parametrize(
    "text", ["", None, "rfb:1", "rbf:x", "rbf:0", "rbf:1,2,3", "polynomial:1.5", "polynomial:2,-1", "-1"]
)
def test_a_name_that_is_no_kernel_is_refused(text):
    with pytest.raises(InvalidInput, match=r"kernel|length|degree|offset|constant"):
        parse_kernel(text)
