"""The result of `choose`: policies that may be used, ranked, and those that may not, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safedial.choosing.candidates import Made
from safedial.choosing.earnings import Forecast
from safedial.choosing.questions import ASSUMPTIONS, MEANING
from safedial.choosing.situation import Situation
from safedial.core.spec import SafetySpec
from safedial.decision.rules import write_parts
from safedial.decision.units import Features
from safedial.errors import require
from safedial.notebook import card, data_frame
from safedial.policies import Policy
from safedial.specfile import SpecFile

if TYPE_CHECKING:
    from pandas import DataFrame

HEADS = ("policy", "share", "95 %", "8 of 10 studies", "excesses", "attainable", "rests on")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A policy that may be used.

    Attributes:
        name: the policy, with the options that tell it from its others.
        policy, spec: for an `Agent`; the spec states nothing that was only assumed.
        promises: the promise in words. rests: the assumptions behind it, by name.
        forecast: None where it cannot be simulated.
    """

    name: str
    policy: Policy
    spec: SafetySpec
    promises: str
    rests: tuple[str, ...]
    forecast: Forecast | None

    def row(self) -> dict[str, Any]:
        """Plain values."""
        told: dict[str, Any] = {} if self.forecast is None else self.forecast._asdict()
        told.pop("curve", None)
        return {"policy": self.name, "promises": self.promises, "rests_on": list(self.rests), **told}


def offered(made: Made, user: Situation, found: Forecast | None) -> Offer:
    """The offer of a candidate with its forecast."""
    event = "any cost beyond its limit" if user.several else f"cost > {user.threshold:g}"
    if made.policy.options.get("direction") == "below":
        event = f"cost < {user.threshold:g}"
    numbers = {
        "risk": user.risk,
        "rounds": user.rounds,
        "mean": user.risk * user.rounds,
        "once": made.spec.estimation_risk or 0.0,
    }
    used = tuple(next(name for name in need.split("|") if name in user.facts) for need in made.candidate.needs)
    words = made.candidate.promise + ("" if user.several else made.candidate.in_all)
    promises = words.format(event=event, **numbers)
    return Offer(
        name=made.name, policy=made.policy, spec=made.spec, promises=promises, rests=used, forecast=found
    )  # fmt: skip


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

    frame = to_frame

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
        features = Features(names=(user.base,)) if user.bracketed and user.base != "proposal" else None
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
            lines = [*self._expected(self.best), *self.taken(), *self._promises()]
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

    def _promises(self) -> list[str]:
        alike: dict[str, list[str]] = {}
        for each in self.offers:
            rests = ", ".join(ASSUMPTIONS[name] for name in each.rests)
            alike.setdefault(f"{each.promises}. It rests on: {rests}.", []).append(each.name)
        return ["What is promised:", *(f"- {'; '.join(names)}: {words}" for words, names in alike.items())]

    def _unforecast(self) -> list[str]:
        names = [each.name for each in self.offers if each.forecast is None]
        return (
            [f"Without a forecast, since a simulation needs the noise of each cost: {', '.join(names)}."]
            if names
            else []
        )

    def _assumed(self) -> list[str]:
        told = ", ".join(f"{name} = {value:g}" for name, value in self.user.assumed.items()) if self.offers else ""
        drifts = "" if self.user.bracketed or "exchangeable" in self.user.vouched else " The simulated contexts drift."
        words = f"Assumed, not stated: {told}.{drifts} The forecast depends on this; the promise does not."
        stated = ", ".join(f"{name} = {self.user.constants[name]:g}" for name in self.user.proposed)
        judged = f"Stated as the pilot proposes, for you to judge: {stated}. The promise of some depends on them."
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
