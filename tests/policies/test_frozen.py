"""The conformal bound against its definition, computed from scratch."""

import numpy as np
import pytest

from safedial import InvalidInput
from safedial.bounds.conforming import calibration
from safedial.bounds.ranks import places
from safedial.policies import table
from safedial.policies.conformal import FIRST_FIT
from tests.conftest import make_spec
from tests.policies.conformal_states import add, ask, conformal, filled, refit, tell, upper


def ridge_coef(rows, targets, ridge):
    return np.linalg.solve(rows.T @ rows + ridge * np.eye(rows.shape[1]), rows.T @ targets)


def brute_force(state, context, risk, ridge):
    """sup{y : (context, y) conforms}, by refitting with the new round for many y; no closed form."""
    count = state.count
    rows, reward, cost = (state.rounds.rows(name) for name in ("context", "reward", "cost"))
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
        policy, state, context = filled(int(rng.integers(20, 60)), dim, seed, ridge=ridge, risk=risk)
        context = context * float(rng.choice([0.5, 1.0, 30.0]))
        found = upper(policy, state, context)
        expected = brute_force(state, context, risk, ridge)
        assert np.isfinite(found) == np.isfinite(expected), seed
        if np.isfinite(found):
            finite += 1
            assert abs(found - expected) <= 1e-9 * (1 + abs(expected)), seed
    assert finite > 100


def test_lanes_equal_single_lanes_in_their_bounds():
    risks = np.array([0.1, 0.3])[:, None]
    lanes, state, context = filled(90, 3, 5, lanes=(1, 4), risk=risks)
    found = upper(lanes, state, context)
    for seed in range(4):
        for row, risk in enumerate((0.1, 0.3)):
            policy = conformal(3, make_spec(ridge=0.7, violation_risk=risk))
            alone = policy.init()
            for step in range(90):
                parts = (getattr(state.rounds, name)[0, seed, step] for name in ("context", "reward", "cost"))
                add(policy, alone, *parts)
            refit(policy, alone)
            assert upper(policy, alone, context[0, seed]) == pytest.approx(found[row, seed], rel=1e-9)


def test_lanes_with_rounds_of_their_own_fate_are_single_lanes():
    """Lost, left-out and late rounds of each lane, labels, a window and a lag: bounds and evidence are the same."""
    options = {"group": 0, "window": 100, "lag": 3}
    policy, rng, seeds = conformal(2, make_spec(violation_risk=0.3), **options), np.random.default_rng(6), 5
    state, alone = policy.init((seeds,)), [policy.init() for _ in range(seeds)]
    late = []
    for number in range(330):
        context = np.stack([rng.integers(0, 2, seeds), rng.standard_normal(seeds)], axis=-1).astype(float)
        outcome = context.sum(axis=-1) + rng.standard_normal(seeds) + 0.01 * number
        fate = rng.choice(["known", "lost", "left", "late"], seeds, p=[0.85, 0.05, 0.05, 0.05])
        for each in (state, *alone):
            policy.begin(each, None)
        bound = ask(policy, state, context, number + 1.0)
        for lane, each in enumerate(alone):
            one = ask(policy, each, context[lane], number + 1.0)
            assert one.numbers["cost_upper"] == pytest.approx(bound.numbers["cost_upper"][lane], rel=1e-9)
            told = {"known": fate[lane] == "known", "left": fate[lane] == "left"}
            add(policy, each, context[lane], outcome[lane], outcome[lane], **told)
        add(policy, state, context, outcome, outcome, known=fate == "known", left=fate == "left")
        late += [
            (number + 1 + int(rng.integers(40)), number, lane, outcome[lane]) for lane in np.flatnonzero(fate == "late")
        ]
        for when, place, lane, cost in [each for each in late if each[0] <= number]:
            late.remove((when, place, lane, cost))
            tell(policy, alone[lane], place, cost, cost)
            tell(policy, state, place, cost, cost, known=np.arange(seeds) == lane)
    for each in (state, *alone):
        refit(policy, each)  # rounds that one lane only has heard of later count alike
    found = policy.evidence(state)["drift"].value
    np.testing.assert_allclose(found, [policy.evidence(each)["drift"].value for each in alone], rtol=1e-9)
    assert np.any(found != 1.0)


def test_many_groups_are_bounded_as_few_ones():
    rng = np.random.default_rng(0)
    rows, residual = rng.standard_normal((2, 60, 3)), rng.standard_normal((2, 60))
    codes = rng.integers(-1, 2, (2, 60))
    parts = {"risk": np.array([[0.2]])}
    few = calibration(np.eye(3), np.ones((2, 3)), rows, residual, codes, **parts)
    many = calibration(np.eye(3), np.ones((2, 3)), rows, residual, np.where(codes == 1, 20, codes), **parts)
    context = 30.0 * rng.standard_normal((2, 3))  # so long that some slopes are negative
    for x in (context, context / 100.0):
        found = few.upper(x, code=np.array([0, 1])), many.upper(x, code=np.array([0, 20]))
        np.testing.assert_array_equal(*found)
    assert np.all(np.isinf(many.upper(context, code=np.array([7, 99]))))


def test_rescoring_at_a_refit_equals_computing_from_scratch():
    _, state, _ = filled(151, 3, 3)
    context, cost, reward = (state.rounds.rows(name) for name in ("context", "cost", "reward"))
    rows, held = context[0:151:2], context[1:151:2]
    benefit = ridge_coef(rows, reward[0:151:2], 0.7)
    scores = cost[1:151:2] - held @ ridge_coef(rows, cost[0:151:2], 0.7)
    bets = state.bets.rounds
    np.testing.assert_allclose(bets.low[1:151:2], -scores, atol=1e-12)
    assert bets.group[1:151:2].tolist() == (held @ benefit >= 0).tolist()
    assert not bets.member[0:151:2].any()


def test_a_round_that_is_not_known_scores_infinity_and_does_not_train():
    policy = conformal(1)
    state = policy.init()
    for step in range(FIRST_FIT):
        add(policy, state, np.ones(1), 1.0, 1.0, known=step not in (2, 3))
    refit(policy, state)
    held = state.rounds.code[:FIRST_FIT] >= 0
    residual = state.rounds.residual[:FIRST_FIT][held]
    assert (
        np.isinf(residual).tolist() == np.isinf(state.bets.rounds.low[1:20:2]).tolist() == [False, True] + 8 * [False]
    )
    assert state.cost[0] == pytest.approx(9 / 10)
    assert state.coef[0] == pytest.approx(18 / 19)
    found = ask(policy, state, np.ones(1))
    assert found.numbers["size"] == 10
    assert found.numbers["cost_upper"] == np.inf, "the largest of 9 is not known"
    assert (found.ready, found.limit, found.numbers["unknown"]) == (False, "start_dose", 1)


def test_an_outcome_that_comes_late_counts_from_the_next_refit_on():
    policy = conformal(1)
    state = policy.init()
    for step in range(FIRST_FIT):
        add(policy, state, np.ones(1), 1.0, 1.0, known=step != 5)
    refit(policy, state)
    tell(policy, state, 5, 1.0, 1.0)
    held = state.rounds.code[:FIRST_FIT] >= 0
    assert np.isinf(state.rounds.residual[:FIRST_FIT][held]).sum() == 1
    refit(policy, state)
    assert np.isinf(state.rounds.residual[:FIRST_FIT][held]).sum() == 0


def test_what_leaves_the_window_is_forgotten():
    policy, state, context = filled(240, 2, 0, window=100)
    assert (state.count, state.rounds.first, state.rounds.count) == (240, 140, 100)
    assert int((state.rounds.rows("code") >= 0).sum()) == 50
    assert state.next_fit == 250
    before = table.digest(state)
    tell(policy, state, 3, 0.0, 0.0)
    assert table.digest(state) == before
    short = policy.init()
    for row in zip(*(state.rounds.rows(name) for name in ("context", "reward", "cost")), strict=True):
        add(policy, short, *row)
    refit(policy, short)
    assert upper(policy, short, context) == pytest.approx(upper(policy, state, context), rel=1e-12)


def test_a_lag_leaves_the_latest_rounds_out():
    policy, state, context = filled(100, 2, 0, lag=30)
    assert (state.fitted, int((state.rounds.rows("code") >= 0).sum())) == (70, 35)
    early, before, _ = filled(70, 2, 0)
    assert upper(policy, state, context) == pytest.approx(upper(early, before, context), rel=1e-12)


def test_many_labels_are_remarked_on_and_a_faulty_group_is_named():
    policy = conformal(1, group=0)
    state = policy.init()
    for value in range(99):
        add(policy, state, [float(value)])
    with pytest.warns(UserWarning, match="100 labels"):
        add(policy, state, [99.0])
    refit(policy, state)
    faulty = conformal(1, group=lambda _: {}["x"])
    with pytest.raises(InvalidInput, match="KeyError"):
        add(faulty, faulty.init(), np.ones(1))


def test_labels_are_texts_or_numbers():
    for label in (None, float("nan"), [1]):
        policy = conformal(1, group=lambda _, label=label: label)
        with pytest.raises(InvalidInput, match="group"):
            add(policy, policy.init(), np.ones(1))
    policy = conformal(2, group=1)
    state = policy.init()
    for value in (3.0, 1.0, 3.0):
        add(policy, state, [0.0, value])
    assert state.rounds.rows("label").tolist() == [0, 1, 0]
    assert ask(policy, state, [0.0, 9.0]).memo // 2 == 2, "one past the last"
    again = table.unpack(policy.init(), table.pack(state))
    assert ask(policy, again, [0.0, 1.0]).memo // 2 == 1
    flags = conformal(1, group=lambda x: x[0] > 0)
    state = flags.init()
    add(flags, state, np.ones(1))
    assert state.labels == "[true]"


def test_a_state_without_a_watch_bounds_alike_and_has_no_evidence():
    policy, rng = conformal(2, make_spec(violation_risk=0.2)), np.random.default_rng(2)
    watched, bare = policy.init((3,)), policy.init((3,), watch=False)
    for number in range(70):
        context, cost = rng.standard_normal((3, 2)), rng.standard_normal(3)
        for state in (watched, bare):
            policy.begin(state, None)
            add(policy, state, context, cost, cost, known=np.full(3, number % 9 > 0), left=number % 9 == 0)
    np.testing.assert_array_equal(upper(policy, watched, np.ones((3, 2))), upper(policy, bare, np.ones((3, 2))))
    policy.restart(bare)
    assert policy.evidence(bare) == {}
    assert policy.evidence(policy.init()) == {}, "nothing is fitted yet"
