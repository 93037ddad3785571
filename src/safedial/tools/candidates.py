"""What a user vouches for, the policies to choose from, and what each would earn in the user's plan.

An answer to one of five questions vouches for assumptions, by name. What is not answered is not vouched for. A policy
has a line in `CANDIDATES`; it is offered if the user vouches for what it needs and it takes the user's kind of cost;
where not, `refusal` says why. All are compared at the same risk in a round, in simulations of the plan on the same
rounds.

The world is the user's: dimension, rounds, risk, noise, S and L as stated or assumed; contexts drift where rounds are
not exchangeable, and means bend where they are not linear. With a bracket it is a world of doses and tolerances, as in
`safedial plan`. Shares are of the reward of a clairvoyant that knows the truth and the law of the noise, at the same
risk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from safedial.errors import is_number, is_whole, require
from safedial.model.brackets import Growth
from safedial.model.costs import Cost, read_costs
from safedial.model.dial import Features
from safedial.model.dose import Dose, identity
from safedial.model.guarantee import GUARANTEES
from safedial.model.namespace import Array
from safedial.model.spec import CONSTANTS, VIOLATION_SHARE, SafetySpec
from safedial.policies import Policy
from safedial.policies.classes import binary
from safedial.rounds.rules import open_options
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from safedial.simulation.run import Simulation, simulate
from safedial.simulation.world import World
from safedial.stats import seed_interval, violation_interval
from safedial.tools.tolerances import TOLERANCE, bracket_scenarios, in_scales

ASSUMPTIONS = {
    "exact_curve": "exact curve",
    "growth": "bracket",
    "linear": "linear cost",
    "constants": "constants",
    "gaussian": "Gaussian noise",
    "exchangeable": "exchangeable rounds",
    "start": "safe start",
}
"""What a guarantee may rest on, in short."""

MEANING = {
    "exact_curve": "the cost is in proportion to a dose curve that is known exactly",
    "growth": "a unit's cost never falls when the dial rises, and changes between two known rates (growth bracket)",
    "linear": "the mean cost is linear in the context (for costs of 0 or 1, its log-odds are)",
    "constants": "upper bounds on the noise (κ) and on the norms of coefficients (S) and contexts (L) are known",
    "gaussian": "the cost's noise is Gaussian, independent and of one size, and contexts do not follow past costs",
    "exchangeable": "rounds are as if drawn at random, without drift or carry-over",
    "start": "you declare a start safe for everyone: a share of the dial or, with a bracket, of the base",
}
"""The same in full."""


class Question(NamedTuple):
    """A question, and its answers with the assumptions that each vouches for; the first is that of a user who does not
    answer. `supported` is the answer that a pilot supports where nothing in it contradicts it.
    """

    text: str
    answers: dict[str, tuple[str, ...]]
    supported: str


QUESTIONS = {
    "curve": Question(
        "How does the cost of one unit change with the dial?",
        {"unknown": (), "exact": ("exact_curve",), "bracket": ("growth",)},
        "exact",
    ),
    "noise": Question(
        "What do you know of the cost's noise?",
        {"unknown": (), "constants": ("constants",), "gaussian": ("gaussian",), "both": ("constants", "gaussian")},
        "constants",
    ),
    "linear": Question(
        "Is the mean cost linear in the context (for costs of 0 or 1: the log-odds)?",
        {"no": (), "yes": ("linear",)},
        "yes",
    ),
    "exchangeable": Question(
        "Are rounds exchangeable: as if drawn at random, without drift or carry-over?",
        {"no": (), "yes": ("exchangeable",)},
        "yes",
    ),
    "cost": Question("What is measured as the cost?", {"measured": (), "zero-one": (), "several": ()}, "measured"),
}
"""By the names of the arguments of `choose` and of the options of `safedial choose`."""


def read_answers(given: Mapping[str, Any], *, pilot: bool = False) -> dict[str, str]:
    """An answer to every question; True and False are yes and no, None is not answered.

    >>> read_answers({"curve": "exact", "linear": True})["linear"]
    'yes'
    """
    found = {}
    for name, question in QUESTIONS.items():
        answer = given.get(name)
        if answer is None:
            answer = question.supported if pilot else next(iter(question.answers))
        elif isinstance(answer, bool):
            answer = "yes" if answer else "no"
        rule = "must be one of " + ", ".join(question.answers)
        require(answer in question.answers, name, given.get(name), rule, question.text)
        found[name] = answer
    return found


def vouched(answers: Mapping[str, str]) -> tuple[str, ...]:
    """The assumptions that these answers vouch for."""
    return tuple(each for name, question in QUESTIONS.items() for each in question.answers[answers[name]])


# --- One user's situation

ODDS = "odds"
"""The odds of an event at the full dial in context 0, for costs of 0 or 1."""

MOST_ROUNDS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Checked; `choose` documents the fields.

    Attributes:
        answers: to every question. vouched: the assumptions that they vouch for, and that no pilot contradicts.
        against: by assumption, what a pilot found against it. supported: assumptions taken from a pilot's silence.
        constants: stated where they are vouched for, else assumed. proposed: those that come from a pilot.
    """

    answers: Mapping[str, str]
    vouched: tuple[str, ...]
    threshold: float | None
    risk: float
    rounds: int
    dim: int
    start: float | None
    growth: Growth | None
    costs: Mapping[str, Cost] | None
    base: str
    constants: Mapping[str, float]
    dose: Dose
    against: Mapping[str, str] = field(default_factory=dict)
    supported: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", dict(self.constants))
        self._check_plan()
        self._check_costs()
        known = (*CONSTANTS, ODDS, *TOLERANCE)
        for name, value in self.constants.items():
            require(name in known, "constants", name, "is not one of " + ", ".join(known))
            require(is_number(value) and value > 0.0, name, value, "must be a number > 0")
        if self.stated:
            lacking = [name for name in self.place.needed(self) if name not in self.constants]
            way_out = "state them, or answer that you cannot (noise='unknown' or 'gaussian')"
            require(not lacking, "constants", lacking, "are missing: you say that you can state them", way_out)

    def _check_plan(self) -> None:
        require(is_number(self.risk) and 0.0 < self.risk < 0.5, "risk", self.risk, "must lie between 0 and 0.5")
        for name in ("rounds", "dim"):
            value = getattr(self, name)
            require(is_whole(value), name, value, "must be a whole number >= 1")
        require(
            self.rounds <= MOST_ROUNDS, "rounds", self.rounds, f"must be at most {MOST_ROUNDS:,}: all are simulated"
        )
        start = self.start
        rule = "must be a number in (0, 1]: a share of the dial or, with a bracket, of the base"
        require(start is None or (is_number(start) and 0.0 < start <= 1.0), "start", start, rule)

    def _check_costs(self) -> None:
        if self.several:
            limited = self.threshold is not None
            require(not limited, "threshold", self.threshold, "does not go with several costs: each has its own")
            object.__setattr__(self, "costs", read_costs(self.costs, GUARANTEES[self.place.guarantee(self)]))
            return
        require(self.costs is None, "costs", self.costs, "are for cost='several'")
        self.place.check(self)
        event = not self.zero_one or self.threshold < 1.0  # pyright: ignore[reportOptionalOperand] -- a number
        require(event, "threshold", self.threshold, "must be below 1 where costs are 0 or 1", "0.5 means: no event")

    @property
    def several(self) -> bool:
        return self.answers["cost"] == "several"

    @property
    def zero_one(self) -> bool:
        return self.answers["cost"] == "zero-one"

    @property
    def place(self) -> Proportional | Bracketed:
        """How costs change with the dial, and where that is simulated."""
        known = {*self.vouched, *self.against}
        return next((place for name, place in PLACES.items() if name in known), PROPORTIONAL)

    @property
    def stated(self) -> bool:
        """Whether the constants of the simulated world are vouched for, and so stated."""
        return "constants" in self.vouched and self.place.takes_constants

    @property
    def assumed(self) -> dict[str, float]:
        """What the forecast needs and nobody vouches for: as given, or usual numbers in proportion to the threshold."""
        if self.stated:
            return {}
        size = 1.0 if self.threshold is None or self.zero_one else self.threshold
        usual = {"reward_noise": 0.6 * size, "cost_noise": 0.6 * size, "coefficient_bound": 2.0 * size}
        usual |= {"context_bound": 1.0, ODDS: 0.25, **TOLERANCE}
        return {name: self.constants.get(name, usual[name]) for name in self.place.needed(self)}

    @property
    def facts(self) -> frozenset[str]:
        """What policies may rest on."""
        return frozenset(self.vouched) | ({"start"} if self.start is not None else set())


# --- How costs change with the dial, and where a plan is simulated


class Scene(NamedTuple):
    """A policy as it is simulated."""

    policy: Policy
    world: World
    spec: SafetySpec
    dose: Dose


LINE = Dose.of(identity())


class Proportional:
    """In proportion to a dose curve: linear worlds, or a logistic one for costs of 0 or 1."""

    takes_constants = True

    def needed(self, user: Situation) -> tuple[str, ...]:
        """The constants of the simulated world."""
        kept = CONSTANTS if not user.several else tuple(name for name in CONSTANTS if name != "cost_noise")
        return (*kept, ODDS) if user.zero_one else kept

    def guarantee(self, user: Situation) -> str:
        """The guarantee whose rules several costs must meet."""
        return "certified" if "constants" in user.vouched else "student"

    def check(self, user: Situation) -> None:
        """Check the limit on a single cost."""
        positive = is_number(user.threshold) and user.threshold > 0.0  # pyright: ignore[reportOptionalOperand] -- a number
        require(positive, "threshold", user.threshold, "must be a number > 0", "the largest cost you accept")

    def features(self, user: Situation) -> Features | None:
        """The features that a spec file must have."""
        return None

    def drifts(self, user: Situation) -> bool:
        """Whether the simulated contexts drift."""
        return "exchangeable" not in user.vouched

    def whole(self, spec: SafetySpec, user: Situation) -> SafetySpec:
        """The spec by which an all-knowing policy plays: at the whole risk."""
        risks: dict[str, Any] = {"violation_risk": user.risk, "estimation_risk": user.risk}
        return SafetySpec(**{name: getattr(spec, name) for name in ("threshold", "costs", *CONSTANTS)}, **risks)

    def scene(self, policy: Policy, stated: SafetySpec, user: Situation) -> Scene | None:
        """How a policy is simulated; None where its several costs cannot be."""
        if any(cost.noise is None for cost in (stated.costs or {}).values()):
            return None
        known = {**user.constants, **user.assumed}
        lacking = [name for name in self.needed(user) if name != ODDS and getattr(stated, name) is None]
        spec = replace(stated, **{name: known[name] for name in lacking})
        if user.zero_one:
            return Scene(policy, NonlinearWorld(kind="logistic", dim=user.dim, odds=known[ODDS]), spec, user.dose)
        contexts = "drift" if self.drifts(user) else "iid"
        mean = "linear" if "linear" in user.vouched else "sine"
        return Scene(policy, LinearWorld(dim=user.dim, contexts=contexts, mean=mean), spec, user.dose)


class Bracketed:
    """Between two known rates: a world of doses and tolerances, as in a plan."""

    takes_constants = False

    def needed(self, user: Situation) -> tuple[str, ...]:
        """What is assumed of tolerances."""
        return tuple(TOLERANCE)

    def guarantee(self, user: Situation) -> str:
        """The guarantee whose rules several costs must meet."""
        return "bracket"

    def check(self, user: Situation) -> None:
        """Check the limit on a single cost, of any sign, and its bracket."""
        limited, growth = is_number(user.threshold), user.growth
        require(limited, "threshold", user.threshold, "must be a number > 0", "the largest cost you accept")
        way_out = "for example relative from 0.7 to 1.4 above a floor of 2 or, for costs of 0 or 1, spread"
        known = isinstance(growth, Growth)
        require(known, "growth", growth, "is missing: you say that you know a bracket", way_out)
        fits = user.zero_one == (growth is not None and growth.name == "spread")
        require(fits, "growth", growth, "spread is for costs of 0 or 1, and only spread is", way_out)

    def features(self, user: Situation) -> Features | None:
        """The features that a spec file must have: the base."""
        return Features(names=(user.base,)) if user.base != "proposal" else None

    def drifts(self, user: Situation) -> bool:
        """Whether the simulated contexts drift."""
        return False

    def whole(self, spec: SafetySpec, user: Situation) -> SafetySpec:
        """The spec by which an all-knowing policy plays."""
        return spec

    def scene(self, policy: Policy, stated: SafetySpec, user: Situation) -> Scene | None:
        """How a policy is simulated."""
        policy, spec = in_scales(policy, stated, user.assumed)
        return Scene(policy, DoseResponseWorld(**bracket_scenarios(policy, spec, user.assumed)[0].world), spec, LINE)


PROPORTIONAL, PLACES = Proportional(), {"growth": Bracketed()}
"""By the assumption about one unit's curve; proportional where there is none, or an exact curve."""


# --- The policies to choose from: what each needs, guarantees and is, in one user's situation

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
        guarantee: in words; `in_all`: how many excesses it allows in all, for one cost.
        spec: what the user would state beside threshold or costs, and risk.
        most: the largest dimension for which it is fast enough.
    """

    policy: str
    needs: tuple[str, ...]
    guarantee: str
    spec: Callable[[Situation], dict[str, Any]]
    options: Callable[[Situation], dict[str, Any]] = lambda user: {}
    costs: tuple[str, ...] = ("measured",)
    most: int | None = None
    in_all: str = ""


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
    """What an agent or a study has by rule, which earns most under the same guarantee (docs/choosing.md)."""
    return open_options(SafetySpec(threshold=1, **_certified(user)), user.dim)


def _learning(guarantee: str) -> Callable[[Situation], dict[str, Any]]:
    """Of a policy that learns what it needs: constants only to certify a start, where none is declared."""

    def spec(user: Situation) -> dict[str, Any]:
        stated = _constants(user) if user.start is None else {}
        return {"guarantee": guarantee, "violation_risk": user.risk, **stated}

    return spec


def _start(user: Situation) -> dict[str, Any]:
    return {"start_dose": user.start}


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
        lambda user: _start(user) | {"guarantee": "anytime"},
    ),
    Candidate("hp_conformal", ("exact_curve", "exchangeable", STARTED), MARGINAL, _learning("conformal"), _start),
    Candidate(
        "hp_shield",
        ("growth", "exchangeable", "start"),
        MARGINAL + ", plus the share of units that break the bracket or do not tolerate the start",
        lambda user: {"guarantee": "bracket", "violation_risk": user.risk},
        lambda user: {"base": user.base, "growth": user.growth, "start_scale": user.start},
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


# --- What each policy would earn

POINTS = 40
STUDIES = (0.1, 0.9)
"""The quantiles over studies that are shown beside a mean."""


class Forecast(NamedTuple):
    """The expected share of the clairvoyant's reward with its 95 % interval, where eight of ten studies lie, the share
    of what is attainable by one who has the sign of the reward to learn (`simulation.attainable`; None: not known), the
    rate of excesses with its interval, and the share up to some rounds.
    """

    share: float
    share_low: float
    share_high: float
    study_low: float
    study_high: float
    attainable_share: float | None
    rate: float
    rate_low: float
    rate_high: float
    curve: list[dict[str, float]]

    def __repr__(self) -> str:
        return f"Forecast(share={self.share:.3f}, interval=({self.share_low:.3f}, {self.share_high:.3f}))"


def scene(policy: Policy, stated: SafetySpec, user: Situation) -> Scene | None:
    """How a policy under the user's spec is simulated; None where its several costs cannot be."""
    return user.place.scene(policy, stated, user)


def best(played: Scene, user: Situation, *, seeds: Any) -> Simulation:
    """The clairvoyant's rounds, at the whole risk."""
    spec = user.place.whole(played.spec, user)
    policy = played.world.clairvoyant()
    return simulate(policy, played.world, spec, rounds=user.rounds, seeds=seeds, dose=played.dose, points=POINTS)


def forecast(
    played: Scene, known: Simulation, user: Situation, *, seeds: Any, progress: Callable[[int], None] | None
) -> Forecast:
    """Simulate a scene; `known` is what was best in the same rounds."""
    options: Any = {"rounds": user.rounds, "seeds": seeds, "dose": played.dose, "points": POINTS}
    run = simulate(played.policy, played.world, played.spec, **options, progress=progress)
    earned, possible = run.reward_curve[:, 0], known.exact_clairvoyant_reward_curve[:, 0]
    shares = [_share(*each) for each in zip(earned, possible, strict=True)]
    named = ("share", "share_low", "share_high")
    curve = [
        {"round": int(at), **dict(zip(named, each, strict=True))}
        for at, each in zip(run.checkpoints, shares, strict=True)
    ]
    one = earned[-1] / np.maximum(possible[-1], 1e-300)
    low, high = (float(end) for end in np.quantile(one, STUDIES))
    most = known.attainable_reward
    attained = None if most is None else float(earned[-1].mean() / most[0].mean())
    rate = (float(run.violations.mean() / user.rounds), *violation_interval(run.violations, user.rounds))
    return Forecast(*shares[-1], low, high, attained, *rate, curve)


def _share(earned: Array, possible: Array) -> tuple[float, float, float]:
    """The ratio of two means over studies, and its 95 % interval (linearised, Student's t)."""
    total = max(float(possible.mean()), 1e-300)
    share = float(earned.mean()) / total
    low, high = seed_interval((earned - share * possible) / total)
    return share, share + low, share + high
