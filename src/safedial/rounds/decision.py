"""A decision, made from a policy's choice by pure functions, and the rule that set its action.

An infinite bound (nothing is known yet) is null in JSON. `rounds.certificate` has its certificate and explanation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.bounds.rounding import round_down
from safedial.errors import require
from safedial.io import card, named_values
from safedial.model.dial import Dial
from safedial.model.guarantee import GUARANTEES
from safedial.policies.policy import INTENSITY_ROUNDING, Bound, Decided, Terms, plain
from safedial.rounds.outcome import Asked
from safedial.rounds.rules import Rules


class Found(NamedTuple):
    """What a policy found and chose, as plain values in its own unit.

    Attributes:
        index: benefit is expected where it is ≥ 0.
        largest: [0, largest] keeps the guarantee.
        chosen: what it chose, at most `largest`.
        ready: False where nothing is known yet, and `largest` is a start.
        certified: False where not even 0 keeps the guarantee.
        refuted: whether the data contradict the spec.
        limit: a key of `LIMITS`, where something of the policy's own set `largest` or `chosen`.
    """

    index: Any
    largest: float
    chosen: float
    ready: bool = True
    certified: bool = True
    refuted: bool = False
    limit: str = ""


# --- A decision


class Text(str):
    """A string that also prints line by line at a Python prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Certificate(dict[str, Any]):
    """A certificate: plain values, and a short table in a notebook."""

    def _repr_html_(self) -> str:
        text, said = Dial(**self["dial"]).text, GUARANTEES[self["guarantee"]]
        rows = {
            "set the dial to": text(self["action"]),
            f"largest {said.word} setting": self["safe_action"] and text(self["safe_action"]),
            "what set it": LIMITS[self["limit"]],
            "guarantee": self["statement"],
            "policy": self["policy"]["name"],
        }
        rests = ["The guarantee holds if:", *(f"- {text}" for text in self["assumptions"])] if said.claimed else []
        return card(f"Decision {self.get('id', self['round'])}", named_values(rows), rests)


class Decision(NamedTuple):
    """One advised action.

    Attributes:
        action: what to set the dial to, in the dial's own units.
        intensity: g_c(action) in [0, 1], the cost's share of a full dose.
        safe_action: the largest setting that keeps the guarantee, or None if nothing is certified.
        round: the decision's number, from 1.
        found, numbers: what the policy found, and the plain numbers behind it.
        guarantee: the guarantee for this action: "certified", "conformal", "declared" (you declared the dose safe) or
            "none".
        fallback_reason: "" or a key of `LIMITS`: why nothing is certified and the fallback is advised.
        preview: True for an answer of `Agent.preview`, which decides nothing.
        limiter: "" or a key of `LIMITS`: which of the study's own limits lowered the action.
        extrapolated: the features outside their stated ranges, as the caller allowed.
        proposal: the setting that came with the question, or None.
    """

    action: float
    intensity: float
    safe_action: float | None
    round: int
    guarantee: str
    context: NDArray[np.float64]
    found: Found
    numbers: dict[str, Any]
    baseline_cost: float
    fallback_reason: str
    rules: Rules
    preview: bool = False
    limiter: str = ""
    extrapolated: tuple[str, ...] = ()
    proposal: float | None = None

    def __repr__(self) -> str:
        action = self.rules.dial.text(self.action)
        safe = "None" if self.safe_action is None else self.rules.dial.text(self.safe_action)
        return f"Decision(round={self.round}, action={action}, safe_action={safe}, guarantee={self.guarantee!r})"

    @property
    def certified(self) -> bool:
        """Whether a guarantee from the stated constants holds for this action, given the assumptions."""
        return GUARANTEES[self.guarantee].from_constants

    @property
    def plain(self) -> Decided:
        """As the plain values that a policy's `terms` is given."""
        found = self.found
        return Decided(
            number=self.round,
            baseline=self.baseline_cost,
            index=found.index,
            largest=found.largest,
            chosen=found.chosen,
            action=self.action,
            ready=found.ready,
            guarantee=self.guarantee,
            limit=self.limit,
            reason=self.fallback_reason,
            numbers=self.numbers,
        )

    @property
    def terms(self) -> Terms:
        """The words of its certificate."""
        return self.rules.policy.terms(self.plain)

    @property
    def safe_intensity(self) -> float:
        """The largest intensity that keeps the guarantee."""
        largest = self.found.largest
        return intensity_of(self.rules, largest) if self.rules.policy.unit == "setting" else largest

    @property
    def limit(self) -> str:
        """The rule that set the action: a key of `LIMITS`."""
        return _limit(self)

    @property
    def proposal_answer(self) -> str:
        """Whether the proposal was "granted", "lowered" or "raised"; "" without one. `limit` says why."""
        return proposal_answer(self.proposal, self.action)

    @property
    def certificate(self) -> Certificate:
        """Every number and assumption behind the action, as plain values."""
        from safedial.rounds.certificate import certificate

        return certificate(self)

    def _repr_html_(self) -> str:
        return self.certificate._repr_html_()

    def explain(self) -> Text:
        """The certificate in plain words."""
        from safedial.rounds.certificate import explain

        return Text(explain(self))


def proposal_answer(proposal: float | None, action: float) -> str:
    """What became of a proposal; "" without one. An action within rounding of it grants it.

    >>> [proposal_answer(6.5, action) for action in (6.5, 4.0, 7.0)], proposal_answer(None, 4.0)
    (['granted', 'lowered', 'raised'], '')
    """
    if proposal is None:
        return ""
    if math.isclose(action, proposal, rel_tol=1e-9):
        return "granted"
    return "lowered" if action < proposal else "raised"


def guarantee_of(rules: Rules, found: Found, numbers: Mapping[str, Any], fallback_reason: str) -> str:
    """The guarantee of a decision: "none" for a fallback; of the start where nothing is known yet."""
    if fallback_reason:
        return "none"
    if found.limit == "lowest_level":  # above what the bound allows: as safe as the start was declared to be
        return "declared"
    given = GUARANTEES[rules.policy.guarantee]
    if found.ready and numbers.get("cost_upper", 0.0) is not None:
        return given.given
    return given.start if rules.start_action is None else "declared"


def is_watched(guarantee: str, *, given: bool, counts: bool) -> bool:
    """Whether an outcome may contradict a guarantee; where violations do not count, also if nothing was given."""
    return GUARANTEES[guarantee].claimed and (given or not counts)


LIMITS = {
    # A study's log stores the sentence of the rule that stopped it, so the sentences up to "stop_rule" must not change.
    "drift": "the costs of new rounds lie higher among those of the calibration rounds before them than exchangeable "
    "rounds would, and on these the conformal guarantee rests, so the fallback is advised until a person resumes",
    "bracket_drift": "rounds exceed at settings that the rounds before them tolerated, more than exchangeable rounds "
    "within the bracket would, so the fallback is advised until a person resumes",
    "student_drift": "costs lie above their predictions more than Gaussian noise of one size allows, and on this the "
    "Student bound rests, so the fallback is advised until a person resumes",
    "start_refuted": "costs exceeded the threshold at the declared start more often than the risk allows, so the start "
    "is not safe, and the fallback, or the dial's low end where the fallback is that start, is advised until a person "
    "resumes",
    "alarm": "costs exceeded the threshold more often than guaranteed, so the fallback is advised until a person "
    "resumes",
    "assumption_broken": "the data contradict the stated norms (costs or rewards lie outside what they allow), "
    "so the fallback is advised",
    "noise_broken": "outcomes scatter more than the stated noise allows, "
    "so the fallback is advised until a person resumes",
    "no_certified_action": "the known baseline cost or the sensor noise alone exceeds what the threshold allows, "
    "so no action, not even zero, keeps the guarantee",
    "too_many_open": "too many outcomes are open, so the fallback is advised until a person resumes",
    "too_many_void": "too many rounds are void or expired, so the fallback is advised until a person resumes",
    "too_many_unwatched": "too many rounds ended without an outcome that shows whether the guarantee was kept, "
    "so the fallback is advised until a person resumes",
    "outcome_overdue": "an outcome has been open for longer than the study allows, "
    "so the fallback is advised until a person resumes",
    "stop_rule": "the study's stop rule was met, so the fallback is advised until a person resumes",
    "mask": "the study's rules give no dose to a context like this one",
    "cap": "the study's rules cap the setting for a context like this one",
    "step_up": "the study limits the step up from the previous decision",
    "no_expected_benefit": "no benefit is expected here, so nothing is given",
    "below_lowest_level": "the chosen setting lies below the dial's lowest level, so nothing is given "
    "and nothing can be learned from this round",
    "exploration": "a coin chose the cautious first-round setting, to explore",
    "probe": "no benefit is expected here, so only a small probe is given, to learn",
    "lowest_level": "the conformal bound lies below the dial's lowest level, so that level is given: it is "
    "at most the start dose that you declared safe",
    "level": "the dial's levels: the next level up is above the safe setting",
    "full_dose": "the end of the dial: the largest setting is allowed",
    "cost_bound": "the cost bound: a higher setting could break the guarantee",
    "conformal_bound": "the conformal bound: a higher setting could break the guarantee",
    "student_bound": "the Student bound: a higher setting could break the guarantee",
    "reach": "the reach: a higher setting lies too far beyond those tried so far; a guard, not a proof",
    "no_information": "costs carry no information because too many have the same value, so the start dose is used; "
    "report the measured quantity, not its excess over a limit",
    "forgotten": "earlier rounds were forgotten for a reason that may be related to outcomes, and may arise again, so "
    "the start dose is used and nothing more is guaranteed",
    "open_rounds": "rounds that this decision needs have no outcome yet, so the start dose is used",
    "start_dose": "too little is known about rounds like this one, so the start dose is used",
    "count_rule": "the count rule: at a higher setting too many of the past rounds could have broken the threshold",
    "climb_limit": "the climb limit: a higher setting is too far beyond those of the last rounds; a guard, not a proof",
    "request": "the request: no more was asked for",
    "largest_reward": "the predicted reward, which is largest at this setting",
    "start_only": "no benefit is expected here, so only the start is given",
    "shield_start": "the start: too few outcomes are known, or too many rounds tolerate no more than the start",
    "unproved_bound": "the bound on the mean cost, which nothing proves",
    "posterior_bound": "the posterior's bound, averaged over a prior; nothing is proved for any single truth",
    "mean_bound": "the bound on the mean cost; the realized cost is not bounded",
}


AT_START = ("start_dose", "no_information", "open_rounds", "forgotten", "shield_start")
"""The keys of `LIMITS` that say why a start is given."""


def _limit(decision: Decision) -> str:
    found, policy = decision.found, decision.rules.policy
    if told := decision.fallback_reason or decision.limiter:
        return told
    if policy.unit == "setting" and found.limit:  # it speaks of what the dial can be set to
        return found.limit
    if found.chosen == 0.0 and found.largest > 0.0:
        return "no_expected_benefit"
    if decision.intensity == 0.0 and found.chosen > 0.0:
        return "below_lowest_level"
    if decision.numbers.get("exploring"):
        return "exploration"
    if found.chosen < found.largest:
        return "probe"
    if found.limit and found.limit not in AT_START:
        return found.limit
    if decision.rules.dial.levels and decision.intensity < found.chosen * (1.0 - 1e-9):
        return "level"
    if found.limit:
        return found.limit
    return "full_dose" if found.chosen >= 1.0 else GUARANTEES[policy.guarantee].limit


# --- From a policy's bound to a decision in the dial's units, by pure functions

START_UNSAFE = ("no_certified_action", "start_refuted")


def decide(
    rules: Rules, asked: Asked, bound: Bound, chosen: Any, *, number: int, stop_reason: str = "", starts: Any = None
) -> Decision:
    """Decision `number`: the setting that the policy chooses, or the fallback if nothing can be guaranteed.

    `stop_reason` is "" or a key of `LIMITS`: the rule that stopped the study or agent until a person resumes it.
    `starts` is how many decisions were given the start so far, where that is shown.
    """
    found = Found(
        float(bound.index), float(bound.largest), float(chosen), bool(bound.ready), bool(bound.certified),
        bool(bound.refuted), bound.limit,
    )  # fmt: skip
    numbers = bound.numbers
    if not rules.policy.plain_numbers:
        numbers = {name: plain(value) for name, value in numbers.items()}
    if starts is not None:
        numbers["starts"] = starts
    fallback_reason = stop_reason or ("assumption_broken" if found.refuted else "")
    if not fallback_reason and not found.certified:
        fallback_reason = "no_certified_action"
    if not fallback_reason:
        found = checked_choice(rules, found)
    if fallback_reason:
        safe_setting, setting = None, rules.fallback_action
        if fallback_reason in START_UNSAFE and setting == rules.start_action:
            # The start dose was declared safe without this baseline cost, or has proved unsafe: it is no fallback here.
            setting = rules.dial.low
    elif rules.policy.unit == "setting":
        setting, safe_setting = found.chosen, found.largest
    else:
        setting, safe_setting = settings_of(rules, found)
    guarantee = guarantee_of(rules, found, numbers, fallback_reason)
    given = (setting, intensity_of(rules, setting), safe_setting, number, guarantee, asked.vector, found, numbers)
    return Decision(
        *given, asked.baseline_cost, fallback_reason, rules, extrapolated=asked.extrapolated, proposal=asked.proposal
    )


def checked_choice(rules: Rules, found: Found) -> Found:
    """What was found. A choice beyond the policy's own bound is refused, and a bound beyond the dial's end, whoever
    wrote the policy; what rounding alone put there is cut.
    """
    low, high = (rules.dial.low, rules.dial.high) if rules.policy.unit == "setting" else (0.0, 1.0)
    if low <= found.chosen <= found.largest <= high and found.index == found.index:
        return found
    name, near = f"of policy {rules.policy.name!r}", INTENSITY_ROUNDING * (high - low)
    require(found.index == found.index, f"index {name}", found.index, "must be a number", "look at `bound`")
    inside = low - near <= found.largest <= high + near
    rule, way_out = f"must lie in [{low:g}, {high:g}]", "let `choose` return at most the bound's `largest`"
    require(inside, f"largest {name}", found.largest, rule, "look at `bound`")
    require(low - near <= found.chosen, f"choice {name}", found.chosen, f"must be at least {low:g}", way_out)
    rule = f"exceeds its own bound, {found.largest:g}"
    require(found.chosen <= found.largest + near, f"choice {name}", found.chosen, rule, way_out)
    largest = min(max(found.largest, low), high)
    return found._replace(largest=largest, chosen=min(max(found.chosen, low), largest))


def settings_of(rules: Rules, found: Found) -> tuple[float, float]:
    """The setting of a chosen intensity, and the largest safe one, in the dial's units."""
    safe_setting = setting = setting_of(rules, found.largest)
    if found.chosen != found.largest:
        setting = setting_of(rules, found.chosen)
    return setting, safe_setting


def intensity_of(rules: Rules, setting: float) -> float:
    """g_c at a setting: the cost's share of a full dose."""
    return setting if rules.is_identity else float(rules.dose.cost.effect(rules.dial.action(setting)))


def setting_of(rules: Rules, intensity: float) -> float:
    """The largest setting whose intensity is at most this one; a declared start dose keeps its declared setting.

    If the policy gives at least the lowest level, rounding must not turn a positive intensity into nothing.
    """
    if rules.start_action is not None and intensity == rules.policy.options.get("start_dose"):
        return rules.start_action
    if rules.is_identity:
        return round_down(intensity)
    curve, dial = rules.dose.cost, rules.dial
    action = float(curve.action(round_down(intensity, curve.error_units)))
    setting = action if dial.is_plain else dial.setting(action)
    least = rules.policy.start.least if setting == dial.low else None
    return setting if least is None else least
