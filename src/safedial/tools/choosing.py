"""Choosing a policy: from what a user can vouch for, a ranked list with what each guarantees, rests on and would earn.

answers, plan, pilot ─► Situation ─► CANDIDATES: offered, or refused with the reason ─► simulations ─► Ranking

A pilot gives numbers for the forecast. It can contradict an assumption, never vouch for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from safedial.errors import require
from safedial.io import card, data_frame
from safedial.model.brackets import Growth
from safedial.model.costs import Cost
from safedial.model.dose import Dose, DoseCurve, as_dose
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.policies import POLICIES, Policy, as_policy, make_policy
from safedial.rounds.log_file import Log
from safedial.rounds.rules import write_parts
from safedial.rounds.specfile import SpecFile
from safedial.stats import Seeds, as_seeds
from safedial.tools.calibration import calibrate
from safedial.tools.candidates import (
    ASSUMPTIONS,
    CANDIDATES,
    MEANING,
    QUESTIONS,
    Candidate,
    Forecast,
    Situation,
    best,
    forecast,
    read_answers,
    refusal,
    scene,
    vouched,
)
from safedial.tools.checks import LEVEL, check_log
from safedial.tools.dose_fit import families

if TYPE_CHECKING:
    from pandas import DataFrame

RESAMPLES = 20

CERTIFIED: dict[str, str] = {"norms": "constants", "noise": "constants", "tails": "constants", "linearity": "linear"}
CERTIFIED |= {"drift": "linear", "dose_curve": "exact_curve"}
EXCHANGEABLE: dict[str, str] = dict.fromkeys(("exchangeability", "contexts", "carry_over"), "exchangeable")
GAUSSIAN: dict[str, str] = dict.fromkeys(("residuals", "normality", "equal_variance", "contexts"), "gaussian")
"""Which assumption each check of a log concerns, by the guarantee that is checked."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Constants, dose curve and dimension from a pilot, and, for each assumption, what contradicts it."""

    constants: Mapping[str, float] = field(default_factory=dict)
    dose: Dose | None = None
    dim: int | None = None
    against: Mapping[str, str] = field(default_factory=dict)


def read_pilot(pilot: Log, *, threshold: Any, risk: Any, dose: Any = None) -> Evidence:
    """Calibrate on the pilot, and check it."""
    rule = "must be one number for a pilot: its checks are of one cost"
    require(threshold is not None, "threshold", threshold, rule)
    stated = None if dose is None else as_dose(dose)
    family = "auto" if stated is None else stated.cost.name
    found = calibrate(pilot, curve=family if family in families(pilot.action) else "auto", resamples=RESAMPLES)
    constants: dict[str, Any] = {name: found.proposals[name].value for name in CONSTANTS}
    curve = found.dose if stated is None else stated
    common: dict[str, Any] = {"threshold": threshold, "total_risk": risk}
    families_of = (
        (SafetySpec(**common, **constants), CERTIFIED),
        (SafetySpec(**common, guarantee="conformal"), EXCHANGEABLE),
        (SafetySpec(**common, guarantee="student"), GAUSSIAN),
    )
    against: dict[str, str] = {}
    for spec, concerns in families_of:
        for each in check_log(pilot, spec, dose=curve, level=LEVEL / len(families_of))[1]:
            if each.flagged and each.name in concerns:
                against[concerns[each.name]] = f"{each.title}. {each.found}"
    if found.problem and stated is None:
        against["exact_curve"] = found.problem
    return Evidence(constants=constants, dose=curve, dim=found.dim, against=against)


# --- The result of `choose`

HEADS = ("policy", "share", "95 %", "8 of 10 studies", "violations", "attainable", "rests on")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A policy that may be used.

    Attributes:
        name: the policy, with the options that tell it from its others.
        policy, spec: for an `Agent`; the spec states nothing that was only assumed.
        guarantees: the guarantee in words. rests: the assumptions behind it, by name.
        forecast: None where it cannot be simulated.
    """

    name: str
    policy: Policy
    spec: SafetySpec
    guarantees: str
    rests: tuple[str, ...]
    forecast: Forecast | None = None

    def row(self) -> dict[str, Any]:
        """Plain values."""
        told: dict[str, Any] = {} if self.forecast is None else self.forecast._asdict()
        told.pop("curve", None)
        return {"policy": self.name, "guarantees": self.guarantees, "rests_on": list(self.rests), **told}


USUAL = (None, "mixture", "per_round")
"""Options that tell no policy from its other forms."""


def offered(candidate: Candidate, user: Situation) -> Offer:
    """The offer of a candidate: its policy, and the spec that the user would state; no forecast yet."""
    stated = {"costs": user.costs} if user.several else {"threshold": user.threshold}
    policy = make_policy(candidate.policy, **candidate.options(user))
    spec = policy.fitted(SafetySpec(**stated, **candidate.spec(user)), user.dim)
    forms = [policy.options.get(option) for option in ("radius", "guarantee")]
    forms = ["Gaussian margin"] if spec.margin == "gaussian" else forms
    event = "any cost beyond its limit" if user.several else f"cost > {user.threshold:g}"
    if policy.options.get("direction") == "below":
        event = f"cost < {user.threshold:g}"
    numbers = {"risk": user.risk, "rounds": user.rounds, "mean": user.risk * user.rounds}
    words = candidate.guarantee + ("" if user.several else candidate.in_all)
    return Offer(
        name=", ".join([policy.name, *(each for each in forms if each not in USUAL)]),
        policy=policy,
        spec=spec,
        guarantees=words.format(event=event, **numbers, once=spec.estimation_risk or 0.0),
        rests=tuple(next(name for name in need.split("|") if name in user.facts) for need in candidate.needs),
    )


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Offers, the best first, and why the others are not offered.

    Attributes:
        offers: by expected share of the clairvoyant's reward; those without a forecast come last.
        refused: by policy, in words.
        user: the situation. seeds: how many studies were simulated for each.
    """

    offers: tuple[Offer, ...]
    refused: Mapping[str, str]
    user: Situation
    seeds: int

    @property
    def best(self) -> Offer:
        """The first offer."""
        way_out = "`refused` says what you would have to vouch for"
        require(self.offers, "offers", [], "what you vouch for supports no policy", way_out)
        return self.offers[0]

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each offer, as plain values."""
        return [{"rank": rank, **offer.row()} for rank, offer in enumerate(self.offers, start=1)]

    @property
    def curves(self) -> list[dict[str, Any]]:
        """The share up to some rounds, of each offer."""
        return [{"policy": each.name, **row} for each in self.offers if each.forecast for row in each.forecast.curve]

    def to_frame(self) -> DataFrame:
        """The table, as a pandas table."""
        return data_frame(self.table)

    def _repr_html_(self) -> str:
        return card(
            "Policies that you may use", (dict(zip(HEADS, row, strict=True)) for row in self.cells()), self.words()
        )

    def spec_file(self, rank: int = 1) -> SpecFile:
        """An offer as a spec file, for `safedial study create --spec` and `SpecFile.agent`."""
        self.best  # noqa: B018 -- refuses an empty ranking
        fits = isinstance(rank, int) and 1 <= rank <= len(self.offers)
        require(fits, "rank", rank, f"must be a whole number from 1 to {len(self.offers)}")
        offer, user = self.offers[rank - 1], self.user
        written: Any = write_parts({"policy": offer.policy})["policy"]
        kept = {name: value for name, value in written.items() if value is not None}
        features = user.place.features(user)
        dim = features.dim if features else user.dim
        return SpecFile(spec=offer.spec, dose=user.dose, dim=dim, policy=kept, features=features)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        user = self.user
        plan = {name: getattr(user, name) for name in ("threshold", "risk", "rounds", "dim", "start")}
        told = {"answers": dict(user.answers), "vouched": list(user.vouched), "against": dict(user.against)}
        numbers = {"constants": dict(user.constants), "assumed": user.assumed, "studies": self.seeds}
        return told | plan | numbers | {"offers": self.table, "refused": dict(self.refused), "words": self.words()}

    def words(self) -> list[str]:
        """The first offer, what was assumed, why others are not offered, and what the terms mean."""
        lines = ["No policy can be offered: what you vouch for supports none."]
        if self.offers:
            lines = [*self._expected(self.best), *self.taken(), *self._guarantees()]
        return [*lines, *self._unforecast(), *self._assumed(), *self._refusals(), *self._against(), *self._meanings()]

    def _expected(self, first: Offer) -> list[str]:
        if first.forecast is None:
            return [f"First: {first.name}."]
        told = first.forecast
        most = told.attainable_share
        words = " The reward is {:.0%} of what is attainable, since the sign of the reward must be learned."
        attained = "" if most is None else words.format(most)
        return [
            f"First: {first.name}. Over {self.user.rounds} rounds expect {told.share:.0%} of the reward of an "
            f"all-knowing policy (95 % interval {told.share_low:.1%} to {told.share_high:.1%}; eight of ten "
            f"studies between {told.study_low:.0%} and {told.study_high:.0%}), and a cost beyond its limit in "
            f"{told.rate:.2%} of the rounds.{attained}"
        ]

    def taken(self) -> list[str]:
        """What counts as vouched for because a pilot does not contradict it."""
        taken = ", ".join(ASSUMPTIONS[name] for name in self.user.supported if name in self.user.vouched)
        words = f"Taken as true because the pilot does not contradict it, and for you to judge: {taken}."
        return [words] if taken else []

    def _guarantees(self) -> list[str]:
        alike: dict[str, list[str]] = {}
        for each in self.offers:
            rests = ", ".join(ASSUMPTIONS[name] for name in each.rests)
            alike.setdefault(f"{each.guarantees}. It rests on: {rests}.", []).append(each.name)
        return ["What is guaranteed:", *(f"- {'; '.join(names)}: {words}" for words, names in alike.items())]

    def _unforecast(self) -> list[str]:
        names = [each.name for each in self.offers if each.forecast is None]
        return (
            [f"Without a forecast, since a simulation needs the noise of each cost: {', '.join(names)}."]
            if names
            else []
        )

    def _assumed(self) -> list[str]:
        told = ", ".join(f"{name} = {value:g}" for name, value in self.user.assumed.items()) if self.offers else ""
        drifts = " The simulated contexts drift." if self.user.place.drifts(self.user) else ""
        words = f"Assumed, not stated: {told}.{drifts} The forecast depends on this; the guarantee does not."
        stated = ", ".join(f"{name} = {self.user.constants[name]:g}" for name in self.user.proposed)
        judged = f"Stated as the pilot proposes, for you to judge: {stated}. The guarantee of some depends on them."
        return ([words] if told else []) + ([judged] if stated and not told and self.offers else [])

    def _refusals(self) -> list[str]:
        reasons: dict[str, list[str]] = {}
        for name, why in self.refused.items():
            reasons.setdefault(why, []).append(name)
        return ["Not offered:", *(f"- {', '.join(names)}: {why}." for why, names in reasons.items())]

    def _against(self) -> list[str]:
        return [f"The pilot contradicts {ASSUMPTIONS[name]}: {why}" for name, why in self.user.against.items()]

    def _meanings(self) -> list[str]:
        """The terms that were used."""
        shown = {name for each in self.offers for name in each.rests}
        shown |= {name for name, short in ASSUMPTIONS.items() if any(short in why for why in self.refused.values())}
        told = [f"- {ASSUMPTIONS[name]}: {words}." for name, words in MEANING.items() if name in shown]
        return ["In these words:", *told]

    def cells(self) -> list[tuple[str, ...]]:
        """The table formatted for reading, under `HEADS`."""
        return [
            (each.name, *_shown(each.forecast), ", ".join(ASSUMPTIONS[name] for name in each.rests))
            for each in self.offers
        ]

    def __repr__(self) -> str:
        return f"Ranking({', '.join(each.name for each in self.offers) or 'no offers'})"

    def __str__(self) -> str:
        rows = [HEADS, *self.cells()] if self.offers else []
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, *([""] if lines else []), *self.words()])


def _shown(found: Forecast | None) -> tuple[str, ...]:
    if found is None:
        return ("–",) * 5
    interval = f"{100 * found.share_low:.1f}–{found.share_high:.1%}"
    studies = f"{100 * found.study_low:.0f}–{found.study_high:.0%}"
    attained = "–" if found.attainable_share is None else f"{found.attainable_share:.1%}"
    return f"{found.share:.1%}", interval, studies, f"{found.rate:.2%}", attained


# --- Choosing a policy

UNPROVED = "nothing is proved about the realized cost"


def choose(
    pilot: Log | None = None,
    *,
    curve: Literal["unknown", "exact", "bracket"] | None = None,
    noise: Literal["unknown", "constants", "gaussian", "both"] | None = None,
    linear: bool | None = None,
    exchangeable: bool | None = None,
    cost: Literal["measured", "zero-one", "several"] | None = None,
    threshold: float | None = None,
    risk: float = 0.05,
    rounds: int = 300,
    dim: int | None = None,
    start: float | None = None,
    growth: Growth | None = None,
    costs: Mapping[str, Cost] | None = None,
    base: str = "proposal",
    constants: Mapping[str, float] | None = None,
    dose: DoseCurve | Dose | None = None,
    seeds: Seeds = 50,
    progress: Callable[[str, float], None] | None = None,
) -> Ranking:
    """Rank the policies whose assumptions you vouch for by what they would earn in your plan.

    Args:
        pilot: a log. It proposes constants and a dose curve where you give none, and what it contradicts is not
            vouched for. Questions that you leave open are then answered by "the pilot does not contradict it".
        curve: how the cost of one unit changes with the dial: "exact", in proportion to `dose`; "bracket", between the
            ends of `growth`; or "unknown".
        noise: what you know of the cost's noise: "constants", upper bounds; "gaussian", of one unknown size, with
            contexts that do not follow past costs; "both"; or "unknown".
        linear: whether the mean cost is linear in the context.
        exchangeable: whether rounds are as if drawn at random, without drift or carry-over.
        cost: "measured", a number; "zero-one"; or "several", the names in `costs`.
        threshold, risk: the limit on the cost, and the chance of an excess that you accept in a round.
        rounds, dim: of the plan: how many rounds, and the context's dimension (5, or the pilot's).
        start: a share of the dial or, with a bracket, of the base, that you declare safe for everyone.
        growth, base: the bracket, and the name of the feature with the protocol's setting.
        costs: several costs, each with a bracket or a noise.
        constants: `reward_noise`, `cost_noise`, `coefficient_bound`, `context_bound`; `odds` for costs of 0 or 1. They
            are stated where you vouch for them, and else assumed for the forecast only, as are `tolerance` and
            `tolerance_spread` of a bracket. Usual numbers in proportion to the threshold stand for missing ones.
        seeds: how many studies are simulated for each policy, or which.
        progress: called with a policy's name and the share of all simulations just finished.

    >>> from safedial import choose
    >>> known = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}
    >>> found = choose(curve="exact", linear=True, noise="gaussian", threshold=0.5, rounds=100, dim=3, start=0.05,
    ...                constants=known, seeds=10)
    >>> found.best.name, found.best.spec.cost_noise
    ('hp_student', None)
    """
    sound = constants is None or isinstance(constants, Mapping)
    require(sound, "constants", constants, "must map names of constants to numbers")
    given = {"curve": curve, "noise": noise, "linear": linear, "exchangeable": exchangeable, "cost": cost}
    answers = read_answers(given, pilot=pilot is not None)
    claimed, evidence = vouched(answers), Evidence()
    if pilot is not None:
        evidence = read_pilot(pilot, threshold=threshold, risk=risk, dose=dose)
    taken = {name: answers[name] for name in QUESTIONS if given[name] is None} if pilot is not None else {}
    user = Situation(
        answers=answers,
        vouched=tuple(name for name in claimed if name not in evidence.against),
        against={name: why for name, why in evidence.against.items() if name in claimed},
        supported=vouched(read_answers(taken)),
        threshold=threshold,
        risk=risk,
        rounds=rounds,
        dim=dim if dim is not None else evidence.dim or 5,
        start=start,
        growth=growth,
        costs=costs,
        base=base,
        constants={**evidence.constants, **(constants or {})},
        proposed=tuple(name for name in evidence.constants if name not in (constants or {})),
        dose=as_dose(dose if dose is not None else evidence.dose),
    )
    return rank(user, seeds=seeds, progress=progress)


def rank(user: Situation, *, seeds: Seeds = 50, progress: Callable[[str, float], None] | None = None) -> Ranking:
    """Simulate all policies that may be offered, and rank them."""
    which = as_seeds(seeds)
    reasons = [(candidate, refusal(candidate, user)) for candidate in CANDIDATES]
    offers, known = [offered(candidate, user) for candidate, why in reasons if not why], None
    total = user.rounds * len(offers)
    for place, each in enumerate(offers):
        played = scene(each.policy, each.spec, user)
        if played is not None:
            # All of a user's policies play in one world.
            known = best(played, user, seeds=which) if known is None else known
            tell = progress and (lambda step, name=each.name: progress(name, step / total))
            found = forecast(played, known, user, seeds=which, progress=tell)
            offers[place] = replace(each, forecast=found)
    offers.sort(key=lambda each: -each.forecast.share if each.forecast else 1.0)
    return Ranking(offers=tuple(offers), refused=_refused(reasons), user=user, seeds=len(which))


def _refused(reasons: Sequence[tuple[Candidate, str]]) -> dict[str, str]:
    """Why policies are not offered: by policy, the first of its reasons, if it is offered in no form."""
    found = {candidate.policy: why for candidate, why in reversed(reasons)}
    used = {candidate.policy for candidate, why in reasons if not why}
    named = dict.fromkeys(candidate.policy for candidate, _ in reasons if candidate.policy not in used)
    unproved = (name for name in POLICIES if not as_policy(name).needs)
    return {name: found[name] for name in named} | dict.fromkeys(unproved, UNPROVED)
