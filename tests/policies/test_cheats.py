"""What `check_policy` reports: claims that do not apply, and policies that are broken or cheat."""

from dataclasses import replace

import numpy as np
import pytest

from safedial import InvalidInput, check_policy, make_policy
from safedial.policies.classes import features
from safedial.simulation.check_policy import NotApplicable, _checks
from tests.policies.own_linear import Changed, Disguised, Mine, Misled


def is_caught(factory, claim=""):
    """Whether `check_policy` would report a failure of a claim whose name contains these words; it runs no further."""
    named = [(name, check) for name, check in _checks(factory(), factory) if claim in name]
    assert named, claim
    return any(fails(check) for _, check in reversed(named))  # the short ones come last


def fails(check):
    try:
        check()
    except NotApplicable:
        return False
    except Exception:
        return True
    return False


def test_a_claim_that_says_nothing_is_named_with_the_reason(capsys):
    check_policy(lambda: make_policy("hp_conformal"))
    told = capsys.readouterr().out
    assert "not applicable: no dose exceeds what a known cost allows (every spec): its guarantee is 'conformal'" in told
    assert "between 0 and the safe intensity (sensor): sensor noise = (0.1, 0.05): must be 0 for hp_conformal" in told
    narrow = check_policy(lambda: make_policy("nonlinear_hp_ucb", cost_class=features(np.sin)), quiet=True)
    assert "cost class is not known" in narrow.not_applicable["violations stay within the guaranteed risk"]
    late = check_policy(lambda: make_policy("hp_conformal", start_dose=0.9), quiet=True)
    assert "start is not safe" in late.not_applicable["violations stay within the guaranteed risk"]


def everything(bound, asked):
    return bound._replace(largest=0.0 * asked.norm + 1.0)


def greedy(bound, asked):
    return bound._replace(largest=np.minimum(1.5 * bound.largest, 1.0))


def all_of_it(dose, bound, asked):
    return bound.largest


def half_as_much_again(dose, bound, asked):
    return 1.5 * bound.largest


def one_less(dose, bound, asked):
    return dose - 1.0


def by_chance(dose, bound, asked):
    return dose * np.random.default_rng().random()


def failing(bound, asked):
    return 1 / 0


def made(policy, *, disguised):
    """A factory of the policy; disguised it says that it keeps a state of its own, and is the same."""
    return lambda: Disguised(of=policy) if disguised else policy


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"give": half_as_much_again}, "between 0 and the safe"),
        ({"give": one_less}, "between 0 and the safe"),
        ({"allow": everything, "give": all_of_it}, "known cost allows"),
        ({"give": by_chance}, "batch"),
        ({"allow": failing}, "batch"),
    ],
)
def test_a_broken_policy_is_caught(changes, claim):
    assert is_caught(made(Changed(**changes), disguised=False), claim)


@pytest.mark.parametrize(
    ("changes", "claims"),
    [
        ({"give": half_as_much_again}, ["between 0 and the safe"]),
        ({"give": one_less}, ["between 0 and the safe"]),
        ({"allow": greedy, "give": all_of_it}, ["true cost allows", "norms allow"]),
        (
            {"allow": everything, "give": all_of_it},
            ["violations stay within", "higher baseline", "true cost allows"],
        ),
    ],
)
def test_a_broken_policy_in_disguise_is_caught(changes, claims):
    """Hiding the linear estimate makes claims not applicable; those that are left must be enough."""
    for claim in claims:
        assert is_caught(made(Changed(**changes), disguised=True), claim), claim


@pytest.mark.parametrize("policy", [Changed(), Misled()], ids=["changed", "misled"])
def test_the_same_policies_unbroken_meet_every_claim(policy):
    """Else what is caught above and below could be a fault of the test's."""
    report = check_policy(made(policy, disguised=False), quiet=True)
    assert (report.checks, report.failures) == (44, {})


def test_a_policy_with_a_state_of_its_own_is_watched_in_simulations():
    report = check_policy(made(Mine(), disguised=True), quiet=True)
    assert report.failures == {}
    assert report.checks == 30
    assert all("known cost" in claim or "loop of floats" in claim for claim in list(report.not_applicable)[1:])


def test_a_spec_that_every_simulation_refuses_is_a_failure():
    """Else a policy could refuse whatever would show it."""

    def refusing(bound, asked):
        raise InvalidInput("I do not want to")

    report = check_policy(made(Changed(allow=refusing), disguised=True), quiet=True)
    assert "the intensity lies between 0 and the safe intensity (plain)" in report.failures


@pytest.mark.parametrize(
    "changes",
    [
        {"asked_of": lambda asked: asked._replace(baseline=asked.baseline / 2)},
        {"asked_of": lambda asked: asked._replace(number=1.0)},
        {"spec_of": lambda spec: replace(spec, cost_sensor_noise=0.0)},
        {"spec_of": lambda spec: replace(spec, guarantee="certified")},
        {"spec_of": lambda spec: replace(spec, cost_noise=spec.reward_noise)},
        {"spec_of": lambda spec: replace(spec, coefficient_bound=1.0)},
        {"seen_of": lambda seen: seen._replace(width=seen.width / 10)},
        {"seen_of": lambda seen: seen._replace(width=0.0 * seen.width)},
    ],
)
@pytest.mark.parametrize("disguised", [False, True], ids=["open", "disguised"])
def test_a_cheat_is_caught(changes, disguised):
    assert is_caught(made(Misled(**changes), disguised=disguised))


@pytest.mark.parametrize(
    "is_late",
    [
        lambda bound, asked: asked.number > 1000,
        lambda bound, asked: bound.memo.informative_rounds > 3000,
    ],
)
def test_a_cheat_that_waits_is_caught_with_the_linear_estimate(is_late):
    def tenfold(bound, asked):
        more = np.minimum(10.0 * bound.largest, 1.0)
        return bound._replace(largest=np.where(is_late(bound, asked), more, bound.largest))

    assert is_caught(made(Changed(allow=tenfold), disguised=False))


def test_only_a_factory_can_be_checked():
    for wrong in (None, make_policy("hp_ucb"), lambda: "policy"):
        with pytest.raises(InvalidInput, match=r"factory|no such policy"):
            check_policy(wrong)
