"""Algorithm 2: the linear case is the linear policy, certified classes keep the guarantee, heuristics have none."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, InvalidInput, make_policy
from safedial.model.dose import as_dose
from safedial.policies import nonlinear_hp_probe, nonlinear_hp_ucb
from safedial.policies.classes import FunctionClass, Interval, binary, features, finite, kernel, linear
from safedial.policies.policy import Asked, Task
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.nonlinear_worlds import NonlinearWorld, waves
from safedial.simulation.results import guarantee_holds, summary
from safedial.simulation.run import simulate
from tests.conftest import make_spec


@pytest.mark.parametrize(
    ("plain", "options", "classes"),
    [
        ("hp_ucb", {"radius": "paper"}, {"cost_class": linear(radius="paper"), "clip": False}),
        ("hp_probe", {"probe": 0.05}, {"probe": 0.05}),
        ("hp_probe", {}, {"cost_class": linear(), "reward_class": linear()}),
    ],
)
def test_the_linear_class_through_this_path_is_the_linear_policy(plain, options, classes):
    spec = make_spec(coefficient_bound=1.3, context_bound=0.9, ridge=0.7, cost_noise=0.4, threshold=[0.2, 0.8])
    world = LinearWorld(dim=4)
    mine = simulate(make_policy(f"nonlinear_{plain}", **classes), world, spec, rounds=400, seeds=3)
    theirs = simulate(make_policy(plain, **options), world, spec, rounds=400, seeds=3)
    for name in ("reward", "regret", "violations", "informative_rounds", "regret_curve"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), rtol=0, atol=1e-9)


class Mine(kernel):
    """A class of one's own, about which nothing is proved."""

    name, label = "mine", "heuristic"


def first_bound(policy, spec, context, baseline=0.0):
    """The bound of one lane before any round."""
    made = policy.on(Task(dim=2, spec=spec, dose=as_dose(None)))
    return made.bound(made.init((1, 1)), Asked(context, np.linalg.norm(context, axis=-1), 1.0, baseline))


OWN = {
    "finite": (finite(waves(2, 200)), NonlinearWorld(kind="finite", dim=2, functions=200)),
    "finite-paper": (finite(waves(2, 200), radius="paper"), NonlinearWorld(kind="finite", dim=2, functions=200)),
    "kernel": (kernel(), NonlinearWorld(kind="kernel", dim=2)),
    "features": (features(None, misspecification=0.01), LinearWorld(dim=2)),
    "binary": (binary(norm=1.0, odds=0.25), NonlinearWorld(kind="logistic", dim=2)),
}


@pytest.mark.parametrize("policy", [nonlinear_hp_ucb, nonlinear_hp_probe])
@pytest.mark.parametrize("name", OWN)
def test_violations_stay_within_the_guaranteed_risk(name, policy, count):
    """P(C > τ) ≤ δ + δ′ for every certified class in a world it contains; level 1e-6 a case."""
    class_, world = OWN[name]
    spec = make_spec(threshold=0.3, violation_risk=0.1, estimation_risk=0.05, cost_noise=0.3, reward_noise=0.3)
    seeds, rounds = count(12, 100), count(120, 300)
    run = simulate(policy(cost_class=class_), world, spec, rounds=rounds, seeds=seeds)
    assert binomtest(int(run.violations.sum()), seeds * rounds, 0.15, alternative="greater").pvalue > 1e-6
    assert run.informative_rounds.mean() > rounds / 10


def test_the_first_action_is_algorithm_2s():
    """1 in place of S·L, in every context, until an outcome is known; with the clip, what the class allows there."""
    spec, class_ = make_spec(), finite(lambda x: 0.2 * waves(2, 30)(x))
    context = np.array([[[0.1, 0.2]]])
    for clip, bound in ((False, 1.0), (True, 0.2)):
        policy = nonlinear_hp_ucb(cost_class=class_, clip=clip)
        intensity = first_bound(policy, spec, context).largest
        assert intensity == pytest.approx(0.5 / (bound + np.sqrt(2 * np.log(100))), rel=1e-2)


def test_reward_and_cost_may_have_classes_of_their_own():
    policy = nonlinear_hp_probe(cost_class=kernel(), reward_class=finite(waves(2, 50)))
    run = simulate(policy, NonlinearWorld(kind="kernel", dim=2), make_spec(), rounds=30, seeds=2)
    assert run.informative_rounds.min() == 30
    assert policy.guarantee == "certified"
    heuristic = Mine()
    assert nonlinear_hp_ucb(cost_class=kernel(), reward_class=heuristic).guarantee == "certified"
    assert nonlinear_hp_ucb(cost_class=heuristic, reward_class=kernel()).guarantee == "heuristic"


def test_a_heuristic_class_reports_its_rate_and_never_says_certified():
    policy = nonlinear_hp_probe(cost_class=Mine())
    run = simulate(policy, NonlinearWorld(kind="dose-toxicity", dim=2), make_spec(), rounds=12, seeds=1)
    report = summary(run)
    assert report["guaranteed_risk"] is None
    assert report["violation_rate"] >= 0.0
    assert "certified" not in str({key: value for key, value in report.items() if key != "uncertified_rounds"})


def test_a_guarantee_is_stated_only_where_the_truth_lies_in_the_class():
    kernel_world, finite_world = NonlinearWorld(kind="kernel", dim=2), NonlinearWorld(kind="finite", dim=2)
    logistic = NonlinearWorld(kind="logistic", dim=2)
    cases = [
        (nonlinear_hp_ucb(cost_class=kernel()), kernel_world, True),
        (nonlinear_hp_ucb(cost_class=kernel(norm=1.0)), kernel_world, False),
        (nonlinear_hp_ucb(cost_class=kernel("rbf:0.6")), kernel_world, False),
        (nonlinear_hp_ucb(cost_class=kernel()), finite_world, False),
        (nonlinear_hp_ucb(cost_class=finite(waves(2, 1000))), finite_world, True),
        (nonlinear_hp_ucb(cost_class=kernel(bound=0.5)), kernel_world, False),
        (nonlinear_hp_ucb(cost_class=finite(waves(2, 999))), finite_world, False),
        (nonlinear_hp_ucb(cost_class=finite([np.sin])), finite_world, False),
        (nonlinear_hp_ucb(cost_class=features(waves(2, 1000))), finite_world, False),
        (nonlinear_hp_ucb(cost_class=binary(odds=0.25)), logistic, True),
        (nonlinear_hp_ucb(cost_class=binary(odds=0.2)), logistic, False),
        (nonlinear_hp_ucb(), kernel_world, False),
        (nonlinear_hp_ucb(), LinearWorld(dim=2), True),
        (nonlinear_hp_ucb(cost_class=features(None, misspecification=0.1)), LinearWorld(dim=2), True),
        (nonlinear_hp_ucb(cost_class=features(None, bound=0.9)), LinearWorld(dim=2), False),
        (nonlinear_hp_ucb(cost_class=features(np.sin)), LinearWorld(dim=2), False),
        (nonlinear_hp_ucb(cost_class=kernel("polynomial:1,0", norm=1.0)), LinearWorld(dim=2), True),
        (nonlinear_hp_ucb(cost_class=kernel("polynomial:1,0", norm=0.9)), LinearWorld(dim=2), False),
        (nonlinear_hp_ucb(cost_class=finite(waves(2, 1000))), LinearWorld(dim=2), False),
        (nonlinear_hp_ucb(), LinearWorld(dim=2, mean="sine"), False),
        (make_policy("hp_conformal"), LinearWorld(dim=2), True),
        (make_policy("hp_conformal"), LinearWorld(dim=2, noise="student-t3", mean="sine"), True),
        (make_policy("hp_conformal"), kernel_world, False),
        (make_policy("hp_conformal", start_dose=0.1), kernel_world, True),
        (make_policy("hp_conformal", start_dose=0.4), kernel_world, False),
        (make_policy("hp_conformal", start_dose=0.1), logistic, False),
        (make_policy("hp_ucb"), kernel_world, False),
        (make_policy("hp_ucb"), logistic, False),
        (make_policy("fixed"), kernel_world, False),
        (make_policy("clairvoyant"), kernel_world, True),
        (make_policy("clairvoyant", binary_cost=True), logistic, True),
        (make_policy("fixed"), logistic, False),
    ]
    for policy, world, stated in cases:
        assert guarantee_holds(policy, world, make_spec()) is stated, (policy.name, policy.options, world)
    short = nonlinear_hp_ucb(cost_class=binary(norm=0.5, odds=0.25))
    assert not guarantee_holds(short, logistic, make_spec(coefficient_bound=1.0))
    assert guarantee_holds(short, logistic, make_spec(coefficient_bound=0.5))


def test_without_a_bound_the_first_action_takes_the_norms():
    policy = nonlinear_hp_ucb(cost_class=kernel(bound=None, norm=2.0), clip=False)
    assert first_bound(policy, make_spec(), np.zeros((1, 1, 2))).numbers["cost_upper"] == 2.0


@pytest.mark.parametrize("size", [0.1, 10.0])
@pytest.mark.parametrize("misspecification", [0.0, 0.2])
def test_before_the_first_outcome_no_feature_map_can_break_a_certified_bound(size, misspecification):
    """L bounds ‖x‖ and not ‖φ(x)‖: with φ(x) = 10x the certificate said 1 where the mean was 9, in every round before
    the first outcome. The truth here is the worst of the class: ⟨φ(x), θ⟩ + ε with θ along φ(x).
    """
    class_ = features(lambda x: size * x, misspecification=misspecification, bound=None)
    for make in (nonlinear_hp_ucb, nonlinear_hp_probe):
        agent = Agent(2, make_spec(cost_noise=0.1, reward_noise=0.1), policy=make(cost_class=class_, clip=False))
        for context in ([0.6, 0.7], [0.0, 0.3], [-0.9, 0.1]):
            decision = agent.ask(context)
            worst = size * np.linalg.norm(context) + misspecification
            assert decision.certified
            assert decision.certificate["cost_upper"] >= worst * (1 - 1e-12)
            margin = decision.certificate["noise_margin"]
            assert decision.intensity * (worst + margin) <= agent.spec.threshold * (1 + 1e-12)


def test_without_a_feature_map_the_first_bound_is_the_papers():
    agent = Agent(2, make_spec(), policy=nonlinear_hp_ucb(clip=False))
    assert agent.ask([0.3, 0.1]).certificate["cost_upper"] == pytest.approx(1.0, rel=1e-11)


def test_a_baseline_cost_beside_a_cost_of_0_or_1_is_refused():
    policy = nonlinear_hp_ucb(cost_class=binary())
    with pytest.raises(InvalidInput, match="baseline_cost"):
        first_bound(policy, make_spec(), np.zeros((1, 1, 2)), baseline=0.1)


def test_the_clairvoyant_of_a_logistic_world_violates_at_the_stated_risk():
    """Level 1e-6, two-sided bounds at δ: where it doses below 1 it takes all the risk there is."""
    spec = make_spec(violation_risk=0.2)
    policy = make_policy("clairvoyant", binary_cost=True)
    run = simulate(policy, NonlinearWorld(kind="logistic", dim=2, odds=1.0), spec, rounds=500, seeds=10)
    full, over = int(run.full_dose_rounds.sum()), int(run.full_dose_violations.sum())
    assert run.regret.max() == pytest.approx(0.0, abs=1e-9)
    assert binomtest(over, full, 0.2, alternative="greater").pvalue > 1e-6
    assert over / full > 0.1


@pytest.mark.parametrize(
    ("policy", "world", "changes", "rule"),
    [
        (nonlinear_hp_ucb(cost_class=binary()), LinearWorld(dim=2), {}, "0 or 1"),
        (nonlinear_hp_ucb(cost_class=binary()), NonlinearWorld(kind="logistic", dim=2), {"threshold": 1.5}, "below 1"),
        (
            nonlinear_hp_ucb(cost_class=binary()),
            NonlinearWorld(kind="logistic", dim=2),
            {"cost_sensor_noise": 0.1},
            "sensor",
        ),
        (make_policy("clairvoyant"), NonlinearWorld(kind="logistic", dim=2), {}, "binary_cost=True"),
        (nonlinear_hp_ucb(), LinearWorld(dim=2, contexts="adversarial"), {}, "linear learner"),
    ],
)
def test_a_policy_in_a_world_it_cannot_live_in_is_refused(policy, world, changes, rule):
    with pytest.raises(InvalidInput, match=rule):
        simulate(policy, world, make_spec(**changes), rounds=5, seeds=1)


def test_a_class_of_ones_own_that_lacks_methods_is_refused_by_their_names():
    class Half(FunctionClass):
        name, init, update = "half", kernel.init, kernel.update

    for argument in ("cost_class", "reward_class"):
        with pytest.raises(InvalidInput, match=f"{argument} = 'half': lacks look, bounds; define them"):
            nonlinear_hp_ucb(**{argument: Half()})
    with pytest.raises(InvalidInput, match="cost_class = 3: must be a function class"):
        nonlinear_hp_ucb(cost_class=3)


def test_a_class_of_ones_own_needs_only_four_methods():
    """Without a ceiling or a first bound of its own, what it finds is the bound."""

    class Mean(FunctionClass):
        name = "mean"

        def init(self, dim, *, ridge=None, batch=(), targets=2):
            return np.zeros((3, *batch))

        def look(self, state, context):
            return SimpleNamespace(informative_rounds=state[2], sums=state)

        def bounds(self, view, target, *, noise, spec):
            mean = view.sums[target] / np.maximum(view.informative_rounds, 1.0)
            return Interval(mean, mean - 1.0, mean + 1.0, np.zeros(mean.shape, dtype=bool))

        def update(self, state, view, outcomes):
            reward, cost = outcomes.targets
            return state + outcomes.weight * np.array(np.broadcast_arrays(reward, cost, np.ones(state.shape[1:])))

    policy = nonlinear_hp_probe(cost_class=Mean())
    run = simulate(policy, LinearWorld(dim=2), make_spec(), rounds=30, seeds=3)
    assert run.informative_rounds.min() == 30
    assert guarantee_holds(policy, LinearWorld(dim=2), make_spec()) is False
    assert not Mean().holds_linear(make_spec())
    assert policy.options["cost_class"].describe() == {"name": "mean", "label": "heuristic"}
    assert Mean().assumptions == (), "unless it states some"
    agent = Agent(2, make_spec(), policy=nonlinear_hp_ucb(cost_class=Mean(), clip=False))
    assert agent.ask([0.1, 0.2]).guarantee == "none"
