"""Regressors of the user's, from which HP-Shield learns a base."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from safedial import InvalidInput
from safedial.policies.shield_rounds import fit_own, try_out


class Odd:
    """A regressor with a fault."""

    def __init__(self, answer, fit_fails=False):
        self.answer, self.fit_fails = answer, fit_fails

    def fit(self, rows, target):
        if self.fit_fails:
            raise RuntimeError("no luck\nat all")

    def predict(self, rows):
        return self.answer(rows)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (object(), "fit"),
        (Odd(lambda rows: rows), "shape"),
        (Odd(lambda rows: np.zeros((len(rows), 1))), "shape"),
        (Odd(lambda rows: ["a"] * len(rows)), "type"),
        (Odd(lambda rows: np.zeros(len(rows)), fit_fails=True), "no luck"),
        (Odd(lambda rows: rows[99]), "failed on a trial"),
        (LinearRegression, "fit"),
    ],
)
def test_a_regressor_that_cannot_work_is_refused_before_the_first_round(model, named):
    with pytest.raises(InvalidInput, match=named) as caught:
        try_out(model, 3)
    assert "regressor" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fit_that_fails_later_leaves_predictions_unknown():
    rows = np.random.default_rng(0).standard_normal((80, 2))
    with pytest.warns(UserWarning, match="fit failed"):
        fitted = fit_own(Odd(None, fit_fails=True), rows, np.ones(80), lambda contexts: contexts[..., 0])
    assert np.isnan(fitted(rows[:3])).all()
