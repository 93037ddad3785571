"""Choosing a policy: from what a user can vouch for, a ranked list with what each promises, rests on and would earn.

answers, plan, pilot ─► Situation ─► CANDIDATES: offered, or refused with the reason ─► simulations ─► Ranking
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from safedial.choosing.candidates import CANDIDATES, Candidate, made, refusal
from safedial.choosing.earnings import best, forecast, scene
from safedial.choosing.pilot import Evidence, read_pilot
from safedial.choosing.questions import ASSUMPTIONS, QUESTIONS, read_answers, vouched
from safedial.choosing.ranking import Offer, Ranking, offered
from safedial.choosing.situation import Situation
from safedial.core.brackets import Growth
from safedial.core.dose import Dose, DoseCurve, as_dose
from safedial.core.promise import PROMISES
from safedial.core.tolerated import Cost
from safedial.errors import require
from safedial.policies import POLICIES, as_policy
from safedial.rounds_io import Log
from safedial.seeds import Seeds, as_seeds

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
    silent = {name for name in QUESTIONS if given[name] is None} if pilot is not None else set()
    user = Situation(
        answers=answers,
        vouched=tuple(name for name in claimed if name not in evidence.against),
        against={name: why for name, why in evidence.against.items() if name in claimed},
        supported=vouched({name: answers[name] if name in silent else _first(name) for name in QUESTIONS}),
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
    possible = [made(candidate, user) for candidate, why in reasons if not why]
    offers, known = [], None
    for each in possible:
        found, played = None, scene(each.policy, each.spec, user)
        if played is not None:
            # All of a user's policies play in one world.
            known = best(played, user, seeds=which) if known is None else known
            tell = progress and _telling(progress, each.name, user.rounds * len(possible))
            found = forecast(played, known, user, seeds=which, progress=tell)
        offers.append(offered(each, user, found))
    offers.sort(key=lambda each: -each.forecast.share if each.forecast else 1.0)
    return Ranking(
        offers=tuple(offers),
        refused=_refused(reasons),
        user=user,
        seeds=len(which),
    )


def _refused(reasons: Sequence[tuple[Candidate, str]]) -> dict[str, str]:
    """Why policies are not offered: by policy, the first of its reasons, if it is offered in no form."""
    found = {candidate.policy: why for candidate, why in reversed(reasons)}
    used = {candidate.policy for candidate, why in reasons if not why}
    named = dict.fromkeys(candidate.policy for candidate, _ in reasons if candidate.policy not in used)
    unproved = (name for name in POLICIES if not PROMISES[as_policy(name).promise].proved)
    return {name: found[name] for name in named} | dict.fromkeys(unproved, UNPROVED)


def _telling(progress: Callable[[str, float], None], name: str, total: int) -> Callable[[int], None]:
    return lambda step: progress(name, step / total)


def _first(name: str) -> str:
    return next(iter(QUESTIONS[name].answers))


__all__ = ["ASSUMPTIONS", "CANDIDATES", "QUESTIONS", "Offer", "Ranking", "Situation", "choose", "rank"]
