"""The regret analysis, checked on every trace: its two lemmas, the elliptic potential, Theorem 2, the order in T."""

import numpy as np
import pytest

from safedial import InvalidInput, LinearWorld, make_policy, simulate
from safedial.bounds.safe_set import safe_set
from safedial.paper.regret import potential_bound, regret_bound
from tests.conftest import make_spec

pytestmark = pytest.mark.slow


class Lemmas:
    """Checks Lemmas reg_first_term_bound and reg_sec_term_bound in each round, wherever their event holds."""

    def __init__(self, spec):
        self.spec, self.checked, self.contained = spec, 0, 0

    def __call__(self, round):
        spec = self.spec
        reward = np.vecdot(round.context, round.truth.reward_coef)
        cost = np.vecdot(round.context, round.truth.cost_coef)
        numbers, played = round.bound.numbers, round.given.intensity
        reward_upper, cost_upper = numbers["reward_upper"], numbers["cost_upper"]
        feasible = safe_set(cost, spec, round=round.number).intensity
        best = np.where(reward >= 0, feasible, 0.0)
        auxiliary = np.where(reward_upper >= 0, feasible, 0.0)
        reward_holds, cost_holds = reward <= reward_upper, cost <= cost_upper
        first = (best - auxiliary) * reward <= auxiliary * (reward_upper - reward) + 1e-12
        price = spec.coefficient_bound * spec.context_bound / spec.threshold
        second = (auxiliary - played) * reward <= price * (cost_upper - cost) + 1e-12
        assert np.all(first | ~reward_holds)
        assert np.all(second | ~cost_holds)
        assert np.all((round.given.largest <= feasible + 1e-12) | ~cost_holds), "Lemma feasibleSet"
        self.checked += int((reward_holds & cost_holds).sum())


@pytest.mark.parametrize("contexts", ["iid", "adversarial"])
@pytest.mark.parametrize("radius", ["paper", "mixture"])
@pytest.mark.parametrize("threshold", [0.1, 1.5])
def test_both_terms_of_the_decomposition_obey_their_lemmas_on_every_trace(radius, threshold, contexts):
    spec = make_spec(threshold=threshold, cost_noise=0.3, reward_noise=0.3)
    watch = Lemmas(spec)
    policy = make_policy("hp_ucb", radius=radius)
    simulate(policy, LinearWorld(dim=4, contexts=contexts), spec, rounds=500, seeds=20, observe=watch)
    assert watch.checked > 0.99 * 500 * 20


@pytest.mark.parametrize("ridge", [0.01, 1.0, 10.0])
def test_the_elliptic_potential_is_bounded_over_informative_rounds(ridge):
    spec, totals = make_spec(ridge=ridge), np.zeros((2, 20))
    last = {}

    def watch(round):
        played = round.given.intensity[0] > 0
        totals[0] += np.where(played, np.minimum(1.0, round.bound.memo.width[0] ** 2), 0.0)
        totals[1] += np.where(played, round.bound.memo.width[0] ** 2, 0.0)
        last["volume"] = round.state.sums.log_det[0]

    simulate(make_policy("hp_ucb"), LinearWorld(dim=4), spec, rounds=1000, seeds=20, observe=watch)
    final = np.log1p(np.minimum(1.0, spec.context_bound**2 / ridge))
    assert np.all(totals[0] <= 2 * (last["volume"] + final))
    assert np.all(totals[0] <= potential_bound(4, 1000, spec))
    if ridge == 0.01:
        printed = 4 * np.log1p(1000 / 4)
        assert np.all(totals[1] > printed), "the lemma as printed, without λ and the minimum, does not hold here"


@pytest.mark.parametrize(("dim", "threshold", "ridge", "radius"), [
    (2, 0.5, 1.0, "paper"),
    (5, 0.1, 0.2, "mixture"),
    (10, 1.0, 4.0, "mixture"),
])  # fmt: skip
def test_theorem_2_with_its_constants_is_never_exceeded(dim, threshold, ridge, radius, count):
    spec = make_spec(threshold=threshold, ridge=ridge)
    policy = make_policy("hp_ucb", radius=radius)
    run = simulate(policy, LinearWorld(dim=dim), spec, rounds=count(3000, 30_000), seeds=count(20, 200))
    limit = regret_bound(dim, run.checkpoints, spec, radius=radius)
    assert np.all(run.regret_curve[:, 0] <= limit[:, None])


def test_theorem_2_says_nothing_about_sensor_noise():
    with pytest.raises(InvalidInput, match="sensor noise"):
        regret_bound(2, 10, make_spec(cost_sensor_noise=0.1))


def test_hp_probe_earns_most_of_what_optimism_gives_away():
    world, spec = LinearWorld(dim=10), make_spec()
    regret = {
        name: simulate(make_policy(policy, **options), world, spec, rounds=10_000, seeds=10).regret.mean()
        for name, policy, options in [
            ("paper", "hp_ucb", {"radius": "paper"}),
            ("mixture", "hp_ucb", {}),
            ("probe", "hp_probe", {}),
        ]
    }
    assert regret["paper"] == pytest.approx(180, abs=10)
    assert regret["mixture"] == pytest.approx(136, abs=10)
    assert regret["probe"] <= 45


@pytest.mark.parametrize(("name", "slope"), [("hp_ucb", 0.5), ("hp_probe", 0.6)])
def test_regret_grows_no_faster_than_the_theorem_says(name, slope, count):
    rounds = count(60_000, 1_000_000)
    run = simulate(make_policy(name), LinearWorld(dim=5), make_spec(), rounds=rounds, seeds=count(4, 8))
    curve = run.regret_curve[:, 0].mean(axis=-1)
    early = curve[np.searchsorted(run.checkpoints, rounds // 10)]
    assert np.log10(curve[-1] / early) <= slope
