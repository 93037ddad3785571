"""The policies to choose from: what each needs, promises and is, in one user's situation.

One line for each in `CANDIDATES`. A policy is offered if the user vouches for what it needs and it takes the user's
kind of cost; where not, `refusal` says why. All are compared at the same risk in a round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from safedial.choosing.questions import ASSUMPTIONS
from safedial.choosing.situation import ODDS, Situation
from safedial.core.self_normalised import with_ridge
from safedial.core.spec import CONSTANTS, VIOLATION_SHARE, SafetySpec
from safedial.decision.defaults import open_options
from safedial.function_classes import binary
from safedial.policies import Policy, make_policy

EXACT = ("exact_curve", "linear", "constants")
STARTED = "start|constants"
MARGINAL = "P({event}) <= {risk:g} in every round, as seen before the study begins"
GIVEN = (
    "P({event}) <= {risk:g} in every round, whatever the contexts do and whatever happened in the rounds before, but "
    "for a chance of {once:g} that this fails in any round of the study"
)


class Candidate(NamedTuple):
    """One policy.

    Attributes:
        policy, options: its name and options; the options may depend on the situation.
        needs: the assumptions; "a|b" is one of both.
        costs: the kinds of cost that it takes, answers to the question `cost`.
        promise: in words; `in_all`: how many excesses it allows in all, for one cost.
        spec: what the user would state beside threshold or costs, and risk.
        most: the largest dimension for which it is fast enough.
    """

    policy: str
    needs: tuple[str, ...]
    promise: str
    spec: Callable[[Situation], dict[str, Any]]
    options: Callable[[Situation], dict[str, Any]] = lambda user: {}
    costs: tuple[str, ...] = ("measured",)
    most: int | None = None
    in_all: str = ""


class Made(NamedTuple):
    """A candidate in a situation: the policy, and the spec that the user would state."""

    candidate: Candidate
    policy: Policy
    spec: SafetySpec

    @property
    def name(self) -> str:
        """The policy, and what tells it from its other forms."""
        told = [self.policy.options.get(option) for option in ("radius", "promise")]
        told = ["Gaussian margin"] if self.spec.margin == "gaussian" else told
        return ", ".join([self.policy.name, *(each for each in told if each not in USUAL)])


USUAL = (None, "mixture", "per_round")


def made(candidate: Candidate, user: Situation) -> Made:
    """The candidate's policy and spec in this situation."""
    stated = {"costs": user.costs} if user.several else {"threshold": user.threshold}
    policy = make_policy(candidate.policy, **candidate.options(user))
    spec = with_ridge(SafetySpec(**stated, **candidate.spec(user)), policy.options.get("radius"), user.dim)
    return Made(candidate, policy, spec)


def refusal(candidate: Candidate, user: Situation) -> str:
    """Why a candidate is not offered; empty if it is."""
    kind = user.answers["cost"]
    if kind not in candidate.costs:
        return f"takes {' or '.join(KINDS[each] for each in candidate.costs)}, not {KINDS[kind]}"
    lacking = [need.split("|") for need in candidate.needs if not user.facts & set(need.split("|"))]
    if lacking:
        return "you would also have to vouch for " + ", ".join(
            " or ".join(ASSUMPTIONS[name] for name in need) for need in lacking
        )
    if candidate.most is not None and user.dim > candidate.most:
        return f"is too slow above dimension {candidate.most}"
    return ""


KINDS = {"measured": "a measured cost", "zero-one": "costs of 0 or 1", "several": "several costs"}


def _certified(user: Situation) -> dict[str, Any]:
    return _constants(user) | _split(user)


def _constants(user: Situation) -> dict[str, Any]:
    return {name: user.constants[name] for name in CONSTANTS if name != "cost_noise" or not user.several}


def _split(user: Situation) -> dict[str, Any]:
    """The risk in two parts, as `total_risk` splits it, with few digits."""
    part = round(VIOLATION_SHARE * user.risk, 12)
    return {"violation_risk": part, "estimation_risk": round(user.risk - part, 12)}


def _tight(user: Situation) -> dict[str, Any]:
    """What an agent or a study has by rule, which earns most under the same promise (docs/choosing.md)."""
    return open_options(SafetySpec(threshold=1, **_certified(user)), user.dim)


def _learning(promise: str) -> Callable[[Situation], dict[str, Any]]:
    """Of a policy that learns what it needs: constants only to certify a start, where none is declared."""

    def spec(user: Situation) -> dict[str, Any]:
        stated = _constants(user) if user.start is None else {}
        return {"promise": promise, "violation_risk": user.risk, **stated}

    return spec


def _start(user: Situation) -> dict[str, Any]:
    return {"start_dose": user.start}


def _bracket(user: Situation) -> dict[str, Any]:
    return {"base": user.base, "growth": user.growth, "start_scale": user.start}


CANDIDATES = (
    Candidate("hp_ucb", EXACT, GIVEN, _certified),
    Candidate("hp_probe", EXACT, GIVEN, _certified, costs=("measured", "several")),
    Candidate("hp_probe", EXACT, GIVEN, _certified, _tight),
    Candidate(
        "hp_probe",
        (*EXACT, "gaussian"),
        GIVEN,
        lambda user: _certified(user) | {"margin": "gaussian"},
        _tight,
    ),
    Candidate(
        "hp_student",
        ("exact_curve", "linear", "gaussian", STARTED),
        MARGINAL,
        _learning("student"),
        _start,
        costs=("measured", "several"),
        in_all=(
            "; in {rounds} rounds the number of excesses is at most binomial({rounds}, {risk:g}): {mean:g} on average"
        ),
    ),
    Candidate(
        "hp_student",
        ("exact_curve", "linear", "gaussian", STARTED),
        GIVEN,
        lambda user: _learning("student")(user) | _split(user),
        lambda user: _start(user) | {"promise": "anytime"},
    ),
    Candidate("hp_conformal", ("exact_curve", "exchangeable", STARTED), MARGINAL, _learning("conformal"), _start),
    Candidate(
        "hp_shield",
        ("growth", "exchangeable", "start"),
        MARGINAL + ", plus the share of units that break the bracket or do not tolerate the start",
        lambda user: {"promise": "bracket", "violation_risk": user.risk},
        _bracket,
        costs=("measured", "zero-one", "several"),
    ),
    Candidate(
        "nonlinear_hp_probe",
        EXACT,
        GIVEN,
        _certified,
        lambda user: {"cost_class": binary(norm=user.constants["coefficient_bound"], odds=user.constants[ODDS])},
        costs=("zero-one",),
    ),
)
"""Ties in the ranking keep this order."""
