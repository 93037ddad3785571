"""What `check_policy` reports: claims that do not apply, and policies that are broken or cheat."""

import dataclasses

import numpy as np
import pytest

from safedial import InvalidInput, check_policy, make_policy
from safedial.bounds import estimate
from safedial.policies.classes import features
from safedial.simulation.check_policy import NotApplicable, _checks
from tests.policies.own_record import record


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


def everything(choice, seen):
    full = 0.0 * seen.norm + 1.0
    return choice._replace(intensity=full, safe=choice.safe._replace(intensity=full))


def sound_policy(disguised):
    """hp_ucb; disguised it says that it has a learner of its own, and is the same."""
    policy = record(make_policy("hp_ucb"))
    return policy._replace(init=lambda *sizes, **more: estimate.init(*sizes, **more)) if disguised else policy


def greedy(choice, seen):
    larger = np.minimum(1.5 * choice.safe.intensity, 1.0)
    return choice._replace(intensity=larger, safe=choice.safe._replace(intensity=larger))


def broken(change, disguised=False):
    """hp_ucb with its choice changed."""
    sound = sound_policy(disguised)

    def decide(prediction, spec, **arguments):
        return change(sound.decide(prediction, spec, **arguments), prediction)

    return lambda: sound._replace(name="broken", decide=decide)


@pytest.mark.parametrize(
    ("change", "claim"),
    [
        (lambda choice, seen: choice._replace(intensity=choice.safe.intensity * 1.1), "between 0 and the safe"),
        (lambda choice, seen: choice._replace(intensity=choice.intensity - 1.0), "between 0 and the safe"),
        (everything, "known cost allows"),
        (lambda choice, seen: choice._replace(intensity=choice.intensity * np.random.default_rng().random()), "batch"),
        (lambda choice, seen: 1 / 0, "batch"),
    ],
)  # fmt: skip
def test_a_broken_policy_is_caught(change, claim):
    assert is_caught(broken(change), claim)


@pytest.mark.parametrize(
    ("change", "claims"),
    [
        (lambda choice, seen: choice._replace(intensity=1.5 * choice.safe.intensity), ["between 0 and the safe"]),
        (lambda choice, seen: choice._replace(intensity=choice.intensity - 1.0), ["between 0 and the safe"]),
        (greedy, ["true cost allows", "norms allow"]),
        (everything, ["violations stay within", "higher baseline", "true cost allows"]),
    ],
)
def test_a_broken_policy_in_disguise_is_caught(change, claims):
    """Wrapping `init` made 29 of 35 checks vanish in silence, and a dose of 1.5 times the safe one passed."""
    for claim in claims:
        assert is_caught(broken(change, disguised=True), claim), claim


def test_a_policy_with_a_learner_of_its_own_is_watched_in_simulations():
    report = check_policy(lambda: sound_policy(disguised=True), quiet=True)
    assert report.failures == {}
    assert report.checks == 25
    assert all("known cost" in claim or "loop of floats" in claim for claim in list(report.not_applicable)[3:])


def test_a_spec_that_every_simulation_refuses_is_a_failure():
    """Else a policy could refuse whatever would show it."""

    def decide(*given, **more):
        raise InvalidInput("I do not want to")

    report = check_policy(lambda: sound_policy(disguised=True)._replace(decide=decide), quiet=True)
    assert "the intensity lies between 0 and the safe intensity (plain)" in report.failures


def tenfold(spec, wicked):
    return dataclasses.replace(spec, threshold=10 * spec.threshold) if wicked else spec


def cheat(disguised, **changes):
    """hp_ucb that decides under another spec, round or prediction than it is given."""
    sound = sound_policy(disguised)

    def decide(prediction, spec, *, round, coin, baseline_cost=0.0):
        told = {"prediction": prediction, "spec": spec, "round": round, "baseline_cost": baseline_cost}
        told |= {name: change(told) for name, change in changes.items()}
        return sound.decide(
            told["prediction"], told["spec"], round=told["round"], coin=coin, baseline_cost=told["baseline_cost"]
        )

    return lambda: sound._replace(name="cheat", decide=decide)


@pytest.mark.parametrize(
    "changes",
    [
        {"baseline_cost": lambda told: told["baseline_cost"] / 2},
        {"round": lambda told: 1.0},
        {"spec": lambda told: dataclasses.replace(told["spec"], cost_sensor_noise=0.0)},
        {"spec": lambda told: dataclasses.replace(told["spec"], guarantee="certified")},
        {"spec": lambda told: dataclasses.replace(told["spec"], cost_noise=told["spec"].reward_noise)},
        {"spec": lambda told: dataclasses.replace(told["spec"], coefficient_bound=1.0)},
        {"prediction": lambda told: told["prediction"]._replace(width=told["prediction"].width / 10)},
        {"prediction": lambda told: told["prediction"]._replace(width=0.0 * told["prediction"].width)},
    ],
)
@pytest.mark.parametrize("disguised", [False, True], ids=["open", "disguised"])
def test_a_cheat_is_caught(changes, disguised):
    assert is_caught(cheat(disguised, **changes))


@pytest.mark.parametrize(
    "wicked",
    [
        lambda told: told["round"] > 1000,
        lambda told: np.any(told["prediction"].informative_rounds > 3000),
    ],
)
def test_a_cheat_that_waits_is_caught_with_the_linear_learner(wicked):
    changes = {"spec": lambda told: tenfold(told["spec"], wicked(told))}
    assert is_caught(cheat(False, **changes))


def test_only_a_factory_can_be_checked():
    for wrong in (None, make_policy("hp_ucb"), lambda: "policy"):
        with pytest.raises(InvalidInput, match="factory"):
            check_policy(wrong)
