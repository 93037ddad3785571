"""The conformal bound against its definition, computed from scratch."""

import numpy as np
import pytest

from safedial import make_policy
from safedial.bounds.ranks import places
from safedial.policies.conformal_rounds import FIRST_FIT, Rounds, Setup
from tests.conftest import make_spec


def filled(setup, count, dim, seed, ridge=0.7, batch=()):
    """Rounds with random contexts and outcomes, refitted at the end."""
    rng = np.random.default_rng(seed)
    state = Rounds(dim, ridge=ridge, batch=batch, setup=setup)
    for _ in range(count):
        context = rng.standard_normal((*batch, dim))
        noise = rng.standard_normal((2, *batch))
        state.append(context, context[..., 0] + noise[0], context.sum(axis=-1) + noise[1])
    state.refit()
    return state, rng.standard_normal((*batch, dim))


def ridge_coef(rows, targets, ridge):
    return np.linalg.solve(rows.T @ rows + ridge * np.eye(rows.shape[1]), rows.T @ targets)


def brute_force(state, context, risk):
    """sup{y : (context, y) conforms}, by refitting with the new round for many y; no closed form."""
    count, ridge = state.count, state.ridge
    rows, reward, cost = state.context[:count], state.reward[:count], state.cost[:count]
    apart = rows[0:count:2]
    benefit = ridge_coef(apart, reward[0:count:2], ridge)
    held = np.arange(1, count, 2)
    group = held[(rows[held] @ benefit >= 0) == (context @ benefit >= 0)]
    kept, top = (int(part) for part in places(group.size, risk))
    if top == 0:
        return np.inf
    group = group[group.size - kept :]

    def scores(y):
        everything, targets = np.vstack([rows, context]), np.append(cost, y)
        return targets - everything @ ridge_coef(everything, targets, ridge)

    low, high = scores(0.0), scores(1.0)
    start, slope = low[group] - low[-1], (high - low)[group] - (high - low)[-1]
    crossings = np.sort(-start / slope)
    between = np.concatenate([[crossings[0] - 1], (crossings[1:] + crossings[:-1]) / 2, [crossings[-1] + 1]])
    conforms = []
    for y in between:
        found = scores(y)
        conforms.append(np.sum(found[group] >= found[-1]) >= top)
    if conforms[-1] or not any(conforms):
        return np.inf
    return crossings[np.flatnonzero(conforms)[-1]]


@pytest.mark.portable
def test_full_conformal_equals_its_definition(count):
    finite = 0
    for seed in range(count(200, 600)):
        rng = np.random.default_rng([seed, 7])
        dim, ridge, risk = (
            int(rng.integers(1, 5)),
            float(rng.choice([0.05, 1.0, 5.0])),
            float(rng.choice([0.15, 0.3, 0.6])),
        )
        setup = Setup()
        state, context = filled(setup, int(rng.integers(20, 60)), dim, seed, ridge)
        context = context * float(rng.choice([0.5, 1.0, 30.0]))
        policy = make_policy("hp_conformal")
        seen = policy.predict(state, context)
        found = policy.decide(seen, make_spec(violation_risk=risk), round=1.0, coin=0.5).bounds.cost_upper
        expected = brute_force(state, context, risk)
        assert np.isfinite(found) == np.isfinite(expected), seed
        if np.isfinite(found):
            finite += 1
            assert abs(found - expected) <= 1e-9 * (1 + abs(expected)), seed
    assert finite > 100


def test_a_batch_equals_its_elements():
    whole, context = filled(Setup(), 90, 3, 5, batch=(1, 4))
    spec = make_spec(violation_risk=np.array([0.1, 0.3])[:, None])
    found = bound(whole, context, spec)
    for seed in range(4):
        alone = Rounds(3, ridge=0.7)
        for step in range(90):
            alone.append(*(getattr(whole, name)[0, seed, step] for name in ("context", "reward", "cost")))
        alone.refit()
        for row, risk in enumerate((0.1, 0.3)):
            single = bound(alone, context[0, seed], make_spec(violation_risk=risk))
            assert single == pytest.approx(found[row, seed], rel=1e-9)


def bound(state, context, spec):
    policy = make_policy("hp_conformal")
    return policy.decide(policy.predict(state, context), spec, round=1.0, coin=0.5).bounds.cost_upper


def test_rescoring_at_a_refit_equals_computing_from_scratch():
    state, _ = filled(Setup(), 151, 3, 3)
    rows, held = state.context[0:151:2], state.context[1:151:2]
    cost_coef = ridge_coef(rows, state.cost[0:151:2], 0.7)
    benefit = ridge_coef(rows, state.reward[0:151:2], 0.7)
    scores = state.cost[1:151:2] - held @ cost_coef
    np.testing.assert_allclose(state.frozen.scores, scores, atol=1e-12)
    assert state.frozen.scored.tolist() == (held @ benefit >= 0).tolist()


def test_a_round_that_is_not_known_scores_infinity_and_does_not_train():
    state = Rounds(1, ridge=1.0)
    for step in range(FIRST_FIT):
        state.append(np.ones(1), 1.0, np.inf if step in (2, 3) else 1.0)
    state.refit()
    frozen = state.frozen
    assert np.isinf(frozen.scores).tolist() == np.isinf(frozen.residual).tolist() == [False, True] + 8 * [False]
    assert frozen.sizes.tolist() == [0, 10, 0]
    assert frozen.cost(np.ones((1, 1)))[0] == pytest.approx(9 / 10)
    assert frozen.coef[0] == pytest.approx(18 / 19)
    assert bound(state, np.ones(1), make_spec(violation_risk=0.1)) == np.inf, "the largest of 9 is not known"


def test_an_outcome_that_comes_late_counts_from_the_next_refit_on():
    state = Rounds(1, ridge=1.0)
    for step in range(FIRST_FIT):
        state.append(np.ones(1), 1.0, np.inf if step == 5 else 1.0)
    state.refit()
    state.fill(5, 1.0, 1.0)
    assert np.isinf(state.frozen.scores).sum() == 1
    state.refit()
    assert np.isinf(state.frozen.scores).sum() == 0


def test_what_leaves_the_window_is_forgotten():
    state, _ = filled(Setup(window=100), 240, 2, 0)
    assert (state.count, state.dropped, state.cost.shape[-1] <= 200) == (240, 140, True)
    assert state.frozen.scores.size == 50
    assert state.next_fit == 250
    state.fill(3, 0.0, 0.0)
    assert state.count == 240
    short = Rounds(2, ridge=0.7, setup=Setup(window=100))
    rows = [getattr(state, name)[:100] for name in ("context", "reward", "cost")]
    for row in zip(*rows, strict=True):
        short.append(*row)
    short.refit()
    np.testing.assert_allclose(short.frozen.scores, state.frozen.scores, atol=1e-12)


def test_a_lag_leaves_the_latest_rounds_out():
    state, _ = filled(Setup(lag=30), 100, 2, 0)
    assert (state.fitted, state.frozen.scores.size, state.known.size) == (70, 35, 70)
    early, _ = filled(Setup(), 70, 2, 0)
    np.testing.assert_allclose(state.frozen.scores, early.frozen.scores)


def test_many_labels_are_remarked_on_and_a_faulty_group_is_named():
    from safedial import InvalidInput

    state = Rounds(1, ridge=1.0, setup=Setup(group=0))
    for value in range(99):
        state.append(np.array([float(value)]), 0.0, 0.0)
    with pytest.warns(UserWarning, match="100 labels"):
        state.append(np.array([99.0]), 0.0, 0.0)
    state.refit()
    with pytest.raises(InvalidInput, match="KeyError"):
        Rounds(1, ridge=1.0, setup=Setup(group=lambda _: {}["x"])).append(np.ones(1), 0.0, 0.0)


def test_labels_are_texts_or_numbers():
    from safedial import InvalidInput

    for label in (None, float("nan"), [1]):
        with pytest.raises(InvalidInput, match="group"):
            Rounds(1, ridge=1.0, setup=Setup(group=lambda _, label=label: label)).append(np.ones(1), 0.0, 0.0)
    state = Rounds(2, ridge=1.0, setup=Setup(group=1))
    for value in (3.0, 1.0, 3.0):
        state.append(np.array([0.0, value]), 0.0, 0.0)
    assert state.label[:3].tolist() == [0, 1, 0]
    assert state.label_of(np.array([0.0, 9.0]), learn=False) == 2
    numbers = Rounds(1, ridge=1.0, setup=Setup(group=lambda x: x[0] > 0))
    numbers.append(np.ones(1), 0.0, 0.0)
    assert numbers.labels == {True: 0}
