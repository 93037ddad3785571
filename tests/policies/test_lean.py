"""HP-Conformal without sign groups: definition, guarantee, and where it ends.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import LinearWorld, make_policy, simulate
from safedial.bounds.ranks import places
from safedial.policies import guaranteed_risk
from tests.conftest import make_spec
from tests.policies.conformal_states import add, ask, conformal, filled, played, upper
from tests.policies.test_frozen import ridge_coef

LEVEL = 1e-6
LEAN = {"groups": "none"}
RISK = 0.1


def at_most(members, risk):
    return binomtest(int(members.sum()), members.size, risk, alternative="greater").pvalue > LEVEL


def exceeds(members, risk):
    return binomtest(int(members.sum()), members.size, risk, alternative="greater").pvalue < LEVEL


def by_refitting(state, context, risk, ridge):
    """sup{y : (context, y) conforms}: every round trains and calibrates, and each candidate y is refitted."""
    rows, cost = state.rounds.rows("context"), state.rounds.rows("cost")
    kept, top = (int(part) for part in places(state.count, risk))
    group = np.arange(state.count)[state.count - kept :]

    def scores(y):
        everything, targets = np.vstack([rows, context]), np.append(cost, y)
        return targets - everything @ ridge_coef(everything, targets, ridge)

    low, high = scores(0.0), scores(1.0)
    slope = (high - low)[group] - (high - low)[-1]
    crossings = np.sort(-(low[group] - low[-1]) / slope)
    between = np.concatenate([[crossings[0] - 1], (crossings[1:] + crossings[:-1]) / 2, [crossings[-1] + 1]])
    conforms = [np.sum(found[group] >= found[-1]) >= top for found in map(scores, between)]
    return np.inf if conforms[-1] or not any(conforms) else crossings[np.flatnonzero(conforms)[-1]]


def test_without_sign_groups_every_round_trains_and_calibrates(count):
    finite = 0
    for seed in range(count(60, 300)):
        rng = np.random.default_rng([seed, 8])
        risk, ridge = float(rng.choice([0.1, 0.3])), float(rng.choice([0.05, 1.0]))
        policy, state, context = filled(int(rng.integers(20, 60)), 3, seed, ridge=ridge, risk=risk, **LEAN)
        context = context * float(rng.choice([0.5, 1.0, 30.0]))
        found = upper(policy, state, context)
        expected = by_refitting(state, context, risk, ridge)
        assert np.isfinite(found) == np.isfinite(expected), seed
        if np.isfinite(found):
            finite += 1
            assert abs(found - expected) <= 1e-9 * (1 + abs(expected)), seed
        reward = context @ ridge_coef(state.rounds.rows("context"), state.rounds.rows("reward"), ridge)
        assert ask(policy, state, context).index == pytest.approx(reward), "r̂ is fitted to all rounds too"
    assert finite > 40


def drawn(seeds, last, related=0.0, spread=None):
    """Contexts (last, 1, seeds, 3), R/g and C/g; reward noise is `related` to the cost's, costs may spread with x."""
    rng = np.random.default_rng(seeds + last)
    context = rng.standard_normal((last, 1, seeds, 3))
    noise = rng.standard_normal((2, last, 1, seeds))
    wide = 1.0 if spread is None else spread(context)
    gain = related * noise[1] + np.sqrt(1.0 - related**2) * noise[0]
    return context, context[..., 0] + gain, 0.5 * context[..., 1] + wide * noise[1]


TIMES = (8, 12, 20, 21, 40, 120)


def test_every_round_keeps_the_guarantee_from_the_first_on(count):
    """The reward's noise is the cost's, with its sign turned: which doses are full depends on past costs."""
    spec = make_spec(violation_risk=RISK)
    policy = conformal(3, spec, groups="none", probe=1.0)
    assert guaranteed_risk(policy, spec) == RISK
    over = []
    for _, intensity, cost in played(policy, drawn(count(1500, 20_000), TIMES[-1], related=-1.0), TIMES):
        assert np.all(intensity > 0.0), "a round without a dose would teach nothing"
        violated = intensity * cost > spec.threshold
        over.append(violated.mean())
        assert at_most(violated, RISK), (len(over), violated.mean())
    assert over[-1] > 0.03, "the test is not idle"


def test_the_guarantee_without_sign_groups_is_over_all_rounds_and_not_among_those_expected_to_benefit(count):
    """Costs spread widely where benefit is expected: 2δ there and none elsewhere is δ over all."""
    spec = make_spec(violation_risk=RISK)
    data = drawn(count(1500, 20_000), 120, spread=lambda x: np.where(x[..., 0] > 0.0, 2.0, 0.2))
    rates = {}
    for groups in ("sign", "none"):
        policy = conformal(3, spec, groups=groups, probe=1.0)
        for bound, _, cost in played(policy, data, (120,)):
            above, benefit = cost > bound.numbers["cost_upper"], bound.index >= 0.0
            assert at_most(above, RISK), groups
            rates[groups] = above[benefit]
    assert at_most(rates["sign"], RISK)
    assert exceeds(rates["none"], 1.2 * RISK), "a guarantee over all rounds says nothing about a part of them"


def test_a_user_group_keeps_its_own_guarantee_without_sign_groups(count):
    spec = make_spec(violation_risk=RISK)
    data = drawn(count(600, 20_000), 100, spread=lambda x: np.where(x[..., 2] > 0.0, 2.0, 0.2))
    data[0][..., 2] = np.sign(data[0][..., 2])
    policy = conformal(3, spec, **LEAN, group=2, probe=1.0)
    for bound, _, cost in played(policy, data, (100,)):
        assert set(np.unique(bound.memo)) == {0, 2}
        for code in (0, 2):
            assert at_most((cost > bound.numbers["cost_upper"])[bound.memo == code], RISK)


def test_the_watch_finds_a_drift_and_is_silent_without_one(count):
    """Rounds to which the watched predictor was fitted are not compared, though every round trains the bound."""
    policy = conformal(3, **LEAN)
    for seeds, rise in ((20, 4.0), (count(200, 3000), 0.0)):
        context, reward, cost = drawn(seeds, 160)
        cost[80:] += rise
        state = policy.init((1, seeds))
        for told in zip(context, reward, cost, strict=True):
            policy.begin(state, None)
            add(policy, state, *told)
        alarmed = policy.evidence(state)["drift"].crossed
        assert np.all(alarmed) if rise else at_most(alarmed, 0.01)


@pytest.mark.parametrize(("dim", "share", "early"), [(5, 0.98, 0.8), (10, 0.968, 0.7)])
def test_it_earns_what_was_guaranteed_for_it(dim, share, early, count):
    """`benchmarks/conformal_lean.py` prints it; the first 800 rounds earn less, because they learn most."""
    rounds, seeds, least = count((500, 3, early), (10_000, 20, share))
    policy = make_policy("hp_conformal", **LEAN, probe=0.001)
    run = simulate(policy, LinearWorld(dim=dim), make_spec(violation_risk=0.02), rounds=rounds, seeds=seeds)
    assert run.reward.sum() / run.exact_clairvoyant_reward.sum() >= least
    assert binomtest(int(run.violations.sum()), rounds * seeds, 0.02, alternative="greater").pvalue > LEVEL
