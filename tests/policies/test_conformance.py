"""One list of all policies × one list of claims."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from safedial import POLICIES, Agent, InvalidInput, check_policy, make_policy
from safedial.bounds import estimate
from safedial.bounds.estimate import Prediction
from safedial.policies.classes import features, kernel, linear
from safedial.policies.linear import Linear
from safedial.policies.policy import Asked
from safedial.simulation.check_policy import CLAIMS, SPEC_CLAIMS, SPECS, predictions
from tests.conftest import make_spec

CONFIGURATIONS = [
    ("hp_ucb", {}),
    ("hp_ucb", {"radius": "paper"}),
    ("hp_ucb", {"clip": False}),
    ("hp_probe", {}),
    ("hp_probe", {"probe": 0.01}),
    ("hp_probe", {"probe": 0}),
    ("hp_probe", {"radius": "paper", "clip": True}),
    ("hp_probe", {"radius": "self-normalised"}),
    ("hp_ucb", {"radius": "noise-adaptive"}),
    ("on_expectation", {}),
    ("on_expectation", {"radius": "paper"}),
    ("epsilon_greedy", {}),
    ("epsilon_greedy", {"radius": "paper", "epsilon": 0.2, "learn_from": "exploring"}),
    ("thompson", {}),
    ("thompson", {"scale": 0.0}),
    ("clairvoyant", {}),
    ("fixed", {}),
    ("hp_bayes", {}),
    ("fixed", {"clip": False}),
    ("hp_conformal", {}),
    ("hp_conformal", {"start_dose": 0.05, "probe": 0.01, "groups": "none"}),
    ("hp_student", {}),
    ("hp_student", {"guarantee": "tolerance", "probe": "sqrt"}),
    ("hp_student", {"guarantee": "anytime", "start_dose": 0.05, "mixture_ridge": 3.0}),
    ("nonlinear_hp_ucb", {}),
    ("nonlinear_hp_ucb", {"cost_class": kernel("polynomial:1,0", norm=1.0), "reward_class": linear()}),
    ("nonlinear_hp_probe", {}),
    ("nonlinear_hp_probe", {"cost_class": features(None, misspecification=0.1), "probe": 0.1, "clip": False}),
]
TIGHT = ("self-normalised", "noise-adaptive")
"""Radii that need more than the six numbers below; tests/rounds/test_radius_state.py compares agent and batch."""
LINEAR = [
    (name, options)
    for name, options in CONFIGURATIONS
    if isinstance(make_policy(name, **options), Linear) and options.get("radius") not in TIGHT
]
FIRST = {number for number, (name, _) in enumerate(CONFIGURATIONS) if name not in dict(CONFIGURATIONS[:number])}
each_policy = pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(*case, id=f"{case[0]}-{number}", marks=[] if number in FIRST else [pytest.mark.slow])
        for number, case in enumerate(CONFIGURATIONS)
    ],
)
"""Each policy once is quick and portable: its options choose among rules that have tests of their own."""


each_linear_policy = pytest.mark.parametrize(
    ("name", "options"), LINEAR, ids=[f"{name}-{number}" for number, (name, _) in enumerate(LINEAR)]
)


def test_the_list_names_every_policy():
    assert {name for name, _ in CONFIGURATIONS} == set(POLICIES)
    assert len(POLICIES) == 12


@each_policy
def test_every_policy_meets_every_claim(name, options, capsys):
    report = check_policy(lambda: make_policy(name, **options))
    assert report.failures == {}
    assert report.checks + len(report.not_applicable) == len(CLAIMS) + len(SPEC_CLAIMS) * len(SPECS) == 45
    linear_and_certified = (name, options) in LINEAR and name not in ("on_expectation", "clairvoyant")
    assert report.checks >= (38 if linear_and_certified else 6)
    assert f"{report.checks} checks ran, 0 failed" in capsys.readouterr().out
    held = "in a simulation no dose exceeds what the true cost allows (plain)"
    assert (held in report.not_applicable) == (make_policy(name, **options).guarantee != "certified")


@pytest.mark.parametrize(
    ("name", "options"), [next(case for case in LINEAR if case[0] == name) for name in dict(LINEAR)]
)
def test_jax_under_jit_chooses_the_same(name, options):
    """Under every spec, compiled as one program: compiling takes most of the time."""
    seen, coin = predictions(60)
    specs, policy = [make_spec(**changes) for changes in SPECS.values()], make_policy(name, **options)

    @jax.jit
    def decide(values, toss):
        there = Prediction(*values, 4)
        return [policy.decide(there, spec, Asked(None, there.norm, 3.0, 0.0, toss))[1] for spec in specs]

    found = decide([jnp.asarray(value) for value in seen[:6]], jnp.asarray(coin))
    for spec, there in zip(specs, found, strict=True):
        _, whole = policy.decide(seen, spec, Asked(None, seen.norm, 3.0, 0.0, coin))
        np.testing.assert_allclose(np.asarray(there), whole, atol=1e-13)


@each_linear_policy
def test_a_bound_that_is_not_a_number_gives_no_dose(name, options):
    policy = make_policy(name, **options)
    _, given = policy.decide(Prediction(*(float("nan"),) * 6, 4), make_spec(), Asked(None, 1.0, 2.0, 0.0, 0.9))
    if name != "fixed" or options.get("clip", True):
        assert given == 0.0


def test_a_policy_that_cannot_run_online_says_so():
    with pytest.raises(InvalidInput, match="cannot run online"):
        Agent(3, make_spec(), policy="clairvoyant")
    with pytest.raises(InvalidInput, match="guarantee"):
        Agent(3, make_spec(), policy="hp_conformal")


@each_linear_policy
def test_the_agent_chooses_what_core_chooses(name, options):
    """The online path is core's rule on certified numbers: equal up to their slack."""
    policy = make_policy(name, **options)
    if policy.knows_truth or policy.randomised:
        return
    spec = make_spec(reward_noise=0.2, cost_noise=0.2)
    agent, state = Agent(3, spec, policy=policy), estimate.init(3, ridge=spec.ridge)
    rng = np.random.default_rng(6)
    for number in range(1, 120):
        context = rng.standard_normal(3)
        context /= np.linalg.norm(context) * 1.001
        decision = agent.ask(context)
        seen = estimate.predict(state, context)
        _, given = policy.decide(seen, spec, Asked(context, seen.norm, float(number)))
        assert decision.action == pytest.approx(float(given), abs=1e-9)
        assert decision.action <= float(given) * (1 + 1e-12)
        outcome = rng.normal(0.1, 0.2, 2)
        if decision.intensity > 0:
            state = estimate.update(state, seen, outcome[0], outcome[1], np.float64(1.0))
        agent.tell(context, decision.action, *(outcome * decision.intensity).tolist())


def test_only_a_policy_that_proves_it_calls_itself_realized():
    guarantees = {name: make_policy(name).guarantee for name in POLICIES}
    assert guarantees.pop("on_expectation") == "expected"
    assert guarantees.pop("hp_conformal") == "conformal"
    assert guarantees.pop("hp_student") == "student"
    assert guarantees.pop("hp_bayes") == "bayesian"
    assert set(guarantees.values()) == {"certified"}


@pytest.mark.parametrize(
    ("name", "options", "rule"),
    [
        ("hp_ucb", {"radius": "tight"}, "radius"),
        ("hp_ucb", {"probe": 0.1}, "probe"),
        ("hp_ucb", {"clip": "no"}, "clip"),
        ("hp_probe", {"probe": 1.5}, "probe"),
        ("hp_probe", {"probe": "cube"}, "probe"),
        ("hp_probe", {"probe": True}, "probe"),
        ("epsilon_greedy", {"epsilon": -0.1}, "epsilon"),
        ("epsilon_greedy", {"learn_from": "some"}, "learn_from"),
        ("thompson", {"scale": float("inf")}, "scale"),
        ("nothing_like_it", {}, "choose from"),
        ("hp_probe", {"radios": "paper"}, r"no option 'radios'; did you mean 'radius'\?"),
        ("hp_probe", {"fallback_action": 5}, r"no option 'fallback_action'; .*Agent\(fallback_action"),
        ("fixed", {"radius": "paper"}, "no option 'radius'; it has clip"),
        ("nonlinear_hp_probe", {"cost_class": "kernel"}, "cost_class"),
        ("nonlinear_hp_probe", {"reward_class": 3}, "reward_class"),
        ("nonlinear_hp_probe", {"clip": None}, "clip"),
        ("nonlinear_hp_probe", {"probe": 2}, "probe"),
        ("hp_conformal", {"start_dose": 0.0}, "start_dose"),
        ("hp_conformal", {"start_dose": True}, "start_dose"),
        ("hp_conformal", {"probe": 0}, "probe"),
        ("hp_conformal", {"probe": "cube"}, "probe"),
        ("hp_conformal", {"window": 10}, "window"),
        ("hp_student", {"guarantee": "joint"}, "guarantee"),
        ("hp_student", {"start_dose": 1.5}, "start_dose"),
        ("hp_student", {"probe": 0}, "probe"),
        ("hp_student", {"lag": -1}, "lag"),
        ("hp_student", {"mixture_ridge": 0}, "mixture_ridge"),
        ("hp_student", {"mixture_shape": float("inf")}, "mixture_shape"),
    ],
)
def test_a_wrong_option_is_refused_by_name(name, options, rule):
    with pytest.raises(InvalidInput, match=rule):
        make_policy(name, **options)


def test_options_rebuild_the_policy():
    for name, options in CONFIGURATIONS:
        policy = make_policy(name, **options)
        again = make_policy(policy.name, **policy.options)
        assert again.options == policy.options
