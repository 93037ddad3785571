"""A decision, and the rule that set its action. `certificates` holds its certificate and explanation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.promise import PROMISES
from safedial.decision.rules import Rules
from safedial.decision.units import Dial
from safedial.notebook import card, named_values


class Text(str):
    """A string that also prints line by line at a Python prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Certificate(dict[str, Any]):
    """A certificate: plain values, and a short table in a notebook."""

    def _repr_html_(self) -> str:
        text, claimed = Dial(**self["dial"]).text, PROMISES[self["promise"]].claimed
        rows = {
            "set the dial to": text(self["action"]),
            f"largest {'safe' if claimed else 'allowed'} setting": self["safe_action"] and text(self["safe_action"]),
            "what set it": LIMITS[self["limit"]],
            "promise": self["statement"],
            "policy": self["policy"]["name"],
        }
        rests = ["The promise holds if:", *(f"- {text}" for text in self["assumptions"])] if claimed else []
        return card(f"Decision {self.get('id', self['round'])}", named_values(rows), rests)


class Decision(NamedTuple):
    """One advised action.

    Attributes:
        action: what to set the dial to, in the dial's own units.
        intensity: g_c(action) in [0, 1], the cost's share of a full dose.
        safe_action: the largest setting that keeps the promise, or None if nothing is certified.
        round: the decision's number, from 1.
        certified: whether the certified promise on the realized cost holds for this action, given the assumptions.
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
    certified: bool
    context: NDArray[np.float64]
    prediction: Any
    choice: Choice
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
        return f"Decision(round={self.round}, action={action}, safe_action={safe}, promise={self.promise!r})"

    @property
    def promise(self) -> str:
        """The promise for this action: "certified", "conformal", "declared" (you declared the dose safe) or "none"."""
        if self.fallback_reason:
            return "none"
        promise = promise_of(self.rules, self.choice)
        raised = PROMISES[promise].exchangeable and self.rules.learner.guarded(self) == "lowest_level"
        return "declared" if raised else promise

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
        from safedial.decision.certificates.certified import certificate

        return certificate(self)

    def _repr_html_(self) -> str:
        return self.certificate._repr_html_()

    def explain(self) -> Text:
        """The certificate in plain words."""
        from safedial.decision.certificates.certified import explain

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


def promise_of(rules: Rules, choice: Choice) -> str:
    """The promise behind a choice that needs no fallback."""
    promise = PROMISES[rules.policy.promise]
    if math.isfinite(choice.bounds.cost_upper):
        return promise.given
    return promise.start if rules.start_action is None else "declared"


LIMITS = {
    # A study's log stores the sentence of the rule that stopped it, so the sentences up to "stop_rule" must not change.
    "drift": "the costs of new rounds lie higher among those of the calibration rounds before them than exchangeable "
    "rounds would, and on these the conformal promise rests, so the fallback is advised until a person resumes",
    "bracket_drift": "rounds exceed at settings that the rounds before them tolerated, more than exchangeable rounds "
    "within the bracket would, so the fallback is advised until a person resumes",
    "student_drift": "costs lie above their predictions more than Gaussian noise of one size allows, and on this the "
    "Student bound rests, so the fallback is advised until a person resumes",
    "start_refuted": "costs exceeded the threshold at the declared start more often than the risk allows, so the start "
    "is not safe, and the fallback, or the dial's low end where the fallback is that start, is advised until a person "
    "resumes",
    "alarm": "costs exceeded the threshold more often than promised, so the fallback is advised until a person resumes",
    "assumption_broken": "the data contradict the stated norms (costs or rewards lie outside what they allow), "
    "so the fallback is advised",
    "noise_broken": "outcomes scatter more than the stated noise allows, "
    "so the fallback is advised until a person resumes",
    "no_certified_action": "the known baseline cost or the sensor noise alone exceeds what the threshold allows, "
    "so no action, not even zero, keeps the promise",
    "too_many_open": "too many outcomes are open, so the fallback is advised until a person resumes",
    "too_many_void": "too many rounds are void or expired, so the fallback is advised until a person resumes",
    "too_many_unwatched": "too many rounds ended without an outcome that shows whether the promise was kept, "
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
    "cost_bound": "the cost bound: a higher setting could break the promise",
    "conformal_bound": "the conformal bound: a higher setting could break the promise",
    "student_bound": "the Student bound: a higher setting could break the promise",
    "reach": "the reach: a higher setting lies too far beyond those tried so far; a guard, not a proof",
    "no_information": "costs carry no information because too many have the same value, so the start dose is used; "
    "report the measured quantity, not its excess over a limit",
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


def _limit(decision: Decision) -> str:
    choice, dial, learner = decision.choice, decision.rules.dial, decision.rules.learner
    if told := decision.fallback_reason or decision.limiter or learner.chosen(decision):
        return told
    if choice.intensity == 0.0 and choice.safe.intensity > 0.0:
        return "no_expected_benefit"
    if decision.intensity == 0.0 and choice.intensity > 0.0:
        return "below_lowest_level"
    if choice.exploring:
        return "exploration"
    if choice.intensity < choice.safe.intensity:
        return "probe"
    if guard := learner.guarded(decision):
        return guard
    if dial.levels and decision.intensity < choice.intensity * (1.0 - 1e-9):
        return "level"
    if start := learner.start_limit(decision):
        return start
    if choice.intensity >= 1.0:
        return "full_dose"
    return PROMISES[decision.rules.policy.promise].limit
