"""HP-Conformal: the realized-cost guarantee without constants, for exchangeable rounds.

With a probe in every round, (X_t, R_t/g_r, C_t/g_c) does not depend on the doses. So if rounds are exchangeable (in
practice: i.i.d. patients, no carry-over), these triples are exchangeable despite the adaptive doses, and conformal
prediction applies:

1. Some rounds, chosen by number, train a predictor r̂ of R/g; the others calibrate, in groups by the sign of r̂(x) (and
   the user's groups). Every round with a known outcome trains ĉ, ridge regression of C/g.
2. Both are refitted whenever the rounds have grown by a tenth; until the next refit nothing changes.
3. For a new round in a group with n calibration rounds, U(x) is the largest cost per unit y with which it conforms:
   after a ridge fit that includes (x, y) its residual is not among the m largest of the latest n′ of them
   (bounds.ranks.places). Then P(C/g > U) ≤ δ, and with z_safe = 1 if U ≤ 0 else min(1, τ/U) P(C > τ) ≤ δ, within each
   group.
4. If there is no bound (too few rounds, a group never seen, a number that is not finite), the dose is `start_dose`,
   which the user declares safe, or, without one, the first-round dose that the constants certify.

With groups="none" the sign makes no groups. The guarantee is then over all rounds, and not within those expected to
benefit; r̂ only says how much of the safe dose is given, so it is fitted to all rounds, and every round trains and
calibrates.

A calibration round without a known outcome (open, void, or without a dose) scores +∞, because dropping it would bias
the scores; such a round does not train. A round that is void for an unrelated reason is left out.

Three options are guards that agents and studies set; by default they are off, as in simulations: `reach` keeps the dose
near those already tried, `history` says whether rounds from before the first decision calibrate, and `least_dose` is
the lowest positive level of a dial with levels. All but the last only lower a dose, and none is part of the proof.

Needs: exchangeable rounds, exact dose curves, no sensor noise, every applied dose above 0. Does not need: linearity,
κ, S, L, or light tails. Does not give: validity for drifting or adversarial contexts, or given the calibration data.
docs/conformal.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, Literal, NamedTuple

import numpy as np

from safedial.bounds.choice import Choice, choose
from safedial.bounds.confidence import Bounds
from safedial.bounds.safe_set import SafeSet, largest_safe_intensity
from safedial.errors import is_number, is_whole, require
from safedial.model.namespace import namespace
from safedial.model.spec import SafetySpec
from safedial.policies.baselines import fixed
from safedial.policies.conformal_rounds import Rounds, Setup, upper
from safedial.policies.policy import Policy, check_probe, check_start_dose, probe_share

UNSTATED: Any = object()
"""An option that is not set: it is off, and an agent or a study sets its own default."""


class Unstated(float):
    """A number that the user did not state, so that an agent or a study may set its own default."""


PROBE = Unstated(0.01)
LEAN_PROBE = 0.001
"""The default probes: in simulations, and in agents and new studies."""


class Outlook(NamedTuple):
    """What is known before a round's outcome: predictions at the context, its group, and the rounds so far."""

    reward: Any
    cost: Any
    norm: Any
    code: Any
    context: Any
    rounds: Rounds


def hp_conformal(
    *,
    start_dose: float | None = None,
    groups: Literal["sign", "none"] = "sign",
    probe: float | Literal["sqrt"] = PROBE,
    group: int | str | Callable[[Any], Hashable] | None = None,
    window: int = 100_000,
    lag: int = 0,
    reach: float | None = UNSTATED,
    history: Literal["calibrate", "train"] = UNSTATED,
    least_dose: float | None = UNSTATED,
) -> Policy:
    """Play z_safe from the conformal bound if benefit is expected, else a probe of it; every round is informative.

    Args:
        start_dose: an intensity in (0, 1] that you declare safe for every context, used while there is no bound.
            None: the first-round dose certified by the spec's constants.
        groups: "sign", the default: the guarantee also holds among the rounds for which benefit is expected. "none": it
            is over all rounds and says nothing about those; every round then counts towards one bound.
        probe: as for `hp_probe`, but above 0: a round without a dose would have to count as a violation. By default
            0.001 in agents and new studies, 0.01 in simulations.
        group: the guarantee then also holds within each of your groups: the number of a context's column whose values
            are labels (or, for an Agent with features, its name), or a function from a context to a label.
        window: how many of the latest rounds are kept. It bounds memory and does not affect the guarantee, because it
            goes by number.
        lag: how many of the latest rounds a refit leaves out, because their outcomes may still arrive. An older round
            without an outcome counts against the guarantee.
        reach: a number > 1: the dose is at most this multiple of the 10th largest applied intensity with a known
            outcome (before ten of them: the start dose). The start dose is also used if costs carry no information: if
            more than a third of a group's known calibration rounds have the same measured cost. A guard against a dose
            curve that is wrong beyond the doses tried; not a proof. 2 in agents and new studies; None or not set: off.
        history: how rounds from before the first decision are used. "train": only for the predictors, so that nothing
            is assumed about them; the default in agents and new studies. "calibrate": also for calibration; they must
            then be exchangeable with later rounds; the default if not set.
        least_dose: the intensity of the dial's lowest level, at most `start_dose`, given instead of less: a round
            without a dose teaches nothing, and which rounds teach must not depend on outcomes. Agents and new studies
            set it for dials with levels.

    The guarantee, P(C_t > τ) ≤ δ in each round and within each group, needs no `estimation_risk`.

    Reference: this project, docs/conformal.md; full and Mondrian conformal prediction: Vovk, Gammerman and Shafer,
    "Algorithmic Learning in a Random World" (2005).
    """
    check_start_dose(start_dose)
    check_probe(probe, always=True)
    _check_rounds(group, window=window, lag=lag)
    stated = {"reach": reach, "history": history, "least_dose": least_dose}
    stated = {name: value for name, value in stated.items() if value is not UNSTATED}
    most, least = stated.get("reach"), stated.get("least_dose")
    _check_guards(most, stated.get("history", "calibrate"), least, start_dose)
    require(groups in ("sign", "none"), "groups", groups, "must be 'sign' or 'none'")
    trains = stated.get("history") == "train"
    setup = Setup(group, window, lag, trains, most is not None, groups == "sign")
    certified = fixed()

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...] = ()) -> Rounds:
        require(not isinstance(group, str), "group", group, "names a feature, which only an Agent with features knows")
        inside = not isinstance(group, int) or group < dim
        require(inside, "group", group, f"must be a column of a context of dimension {dim}", "columns count from 0")
        one = batch == () or most is None
        require(one, "reach", most, "is a guard for an Agent or a study", "leave it out of a simulation")
        return Rounds(dim, ridge=ridge, batch=batch, setup=setup)

    def predict(state: Rounds, context: Any) -> Outlook:
        norm = np.sqrt(np.vecdot(context, context))
        reward, cost = 0.0 * norm, 0.0 * norm
        if state.frozen is not None:
            one = context[..., None, :]
            reward, cost = (part(one)[..., 0] for part in state.frozen[:2])
        code = state.code(context, reward)
        if not state.batch:
            reward, cost, norm, code = float(reward), float(cost), float(norm), int(code)
        return Outlook(reward, cost, norm, code, context, state)

    def decide(prediction: Any, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        bound = cost_bound(prediction, spec)
        xp = namespace(bound)
        ready = bound < math.inf
        safe = largest_safe_intensity(xp.where(ready, bound, 0.0), 0.0, threshold=spec.threshold - baseline_cost)
        if start_dose is None:
            first = certified.decide(prediction, spec, round=round, coin=coin, baseline_cost=baseline_cost).safe
        else:
            first = SafeSet(xp.where(safe.certified, start_dose, 0.0), safe.certified)
        limit = None if most is None else reach_limit(prediction, most, first)
        intensity, sound = (xp.where(ready, *parts) for parts in zip(safe, first, strict=True))
        if limit is not None:
            intensity = xp.minimum(intensity, limit)
        if least is not None:
            intensity = xp.where(sound, xp.maximum(intensity, least), intensity)
        index = xp.where(prediction.reward > -math.inf, prediction.reward, -1.0)
        bounds = Bounds(prediction.reward, bound, 0.0, 0.0, False)
        return choose(index, SafeSet(intensity, sound), bounds, probe=probe_share(probe, round), least_probe=least)

    def update(state: Rounds, prediction: Any, reward: Any, cost: Any, weight: Any) -> Rounds:
        unseen = np.asarray(weight) <= 0.0
        state.append(prediction.context, np.where(unseen, 0.0, reward), np.where(unseen, np.inf, cost))
        if state.count >= state.next_fit:
            state.watch()
            state.refit()
        return state

    options = {"start_dose": start_dose, "groups": groups, "probe": probe, "group": group, "window": window, "lag": lag}
    own: Any = {"init": init, "predict": predict, "update": update}
    own["alarmed"] = lambda state: state.alarmed
    return Policy("hp_conformal", "HP-Conformal", "conformal", decide, options | stated, **own)


def cost_bound(prediction: Outlook, spec: SafetySpec) -> Any:
    """U(x), for each spec of a sweep; +∞ before the first refit and wherever there is no bound."""
    frozen = prediction.rounds.frozen
    if frozen is None:
        return prediction.cost + 0.0 * spec.violation_risk + math.inf
    return upper(frozen, prediction.context, code=prediction.code, risk=spec.violation_risk)


def reach_limit(prediction: Outlook, reach: float, start: SafeSet) -> Any:
    """`reach` times the 10th largest applied intensity with a known outcome, and never below the start dose."""
    tenth = prediction.rounds.tenth
    return start.intensity if tenth is None else max(start.intensity, reach * tenth)


def _check_guards(reach: Any, history: Any, least_dose: Any, start_dose: Any) -> None:
    more = reach is None or (is_number(reach) and 1.0 < reach < math.inf)
    require(more, "reach", reach, "must be a number > 1 or None", "2 doubles the dose at most")
    require(history in ("calibrate", "train"), "history", history, "must be 'calibrate' or 'train'")
    given = least_dose is None or (is_number(least_dose) and 0.0 < least_dose <= 1.0)
    require(given, "least_dose", least_dose, "must be a number in (0, 1] or None")
    within = least_dose is None or (start_dose is not None and least_dose <= start_dose)
    require(within, "least_dose", least_dose, f"must be at most start_dose = {start_dose}, which is declared safe")


def _check_rounds(group: Any, *, window: Any, lag: Any) -> None:
    known = group is None or is_whole(group, 0) or isinstance(group, str) or callable(group)
    require(known, "group", group, "must be a column's number, a feature's name or a function of a context")
    require(is_whole(window, 100), "window", window, "must be a whole number >= 100")
    require(is_whole(lag, 0) and lag <= window, "lag", lag, f"must be a whole number from 0 to window = {window}")
