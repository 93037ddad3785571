"""What is made of several policies answers for them, whatever it is asked."""

from dataclasses import dataclass
from typing import get_type_hints

import pytest

from safedial import Cost, SafetySpec, hp_probe, hp_student
from safedial.model.dose import as_dose
from safedial.policies.combine import Either, Smallest
from safedial.policies.linear import HPProbe
from safedial.policies.policy import Policy, Task
from tests.conftest import make_spec

COSTS = {"heat": Cost(threshold=1.0, noise=0.1), "load": Cost(threshold=2.0, noise=0.1)}
CERTIFIED = make_spec(threshold=None, cost_noise=None, costs=COSTS)
STUDENT = {"violation_risk": 0.1, "estimation_risk": 0.01, "guarantee": "student"}
SEVERAL = SafetySpec(costs={name: Cost(threshold=cost.threshold) for name, cost in COSTS.items()}, **STUDENT)

ITS_OWN = {"unit", "uncompiled", "recorded"}
"""What it has of its own: the form of its state, and of what it records."""


@dataclass(frozen=True, kw_only=True)
class Mine(HPProbe):
    name = "mine"
    randomised = True
    allows_past_zeros = False


@pytest.mark.parametrize(
    ("policy", "spec", "kind"),
    [
        (hp_probe(), CERTIFIED, Smallest),
        (Mine(), CERTIFIED, Smallest),
        (hp_student(), SEVERAL, Smallest),
        (hp_student(guarantee="tolerance"), SEVERAL, Smallest),
        (hp_student(guarantee="anytime"), SEVERAL, Smallest),
        (hp_student(either=True), SafetySpec(threshold=1.0, **STUDENT), Either),
    ],
)
def test_what_is_made_of_policies_answers_as_they_do(policy, spec, kind):
    made = policy.on(Task(dim=2, spec=spec, dose=as_dose(None)))
    assert type(made) is kind
    asked = {name for name, hint in get_type_hints(Policy).items() if "ClassVar" in str(hint)} - ITS_OWN
    for name in (*asked, "needs", "marginal", "is_own"):
        assert getattr(made, name) == getattr(policy, name), name
