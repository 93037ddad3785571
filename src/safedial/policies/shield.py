"""HP-Shield: the realized-cost guarantee from monotonicity and a growth bracket, not from an exact dose curve.

Each past round tells a lower bound on the scale it would have tolerated (`bounds.tolerated`). The count rule
(`bounds.count_rule`) plays the largest scale at which at most m − 1 of the latest n rounds would have exceeded:

1. a base gives each context a setting (a protocol's, or a learned one), and a scale λ makes a_λ = λ times the base;
2. T̂_i = sup{λ : the bracket's bound on round i's cost at a_λ(X_i) is at most τ};
3. λ̂ = the m-th smallest T̂ of the latest n rounds, limited by the climb limit; a_λ̂(X_t), or less, is played;
4. where nothing can be said, the start, a share of the protocol's setting that the user declares safe.

P(C_t > τ) ≤ δ in every round, for exchangeable rounds with costs that do not fall when the setting rises and that keep
to the bracket. If a unit breaks the bracket with probability q, and the start exceeds with probability p₀: δ + q + p₀.
Needs no constants, no linearity, no light tails, no exact curve and no probing. Does not give: validity for drifting
contexts (`adapt` gives a long-run rate), or given the past rounds (`confidence` does, at one t).

A learned base is refitted when there are a tenth more rounds, on all rounds so far, and calibrates only on rounds after
its fit (`policies.shield_rounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from safedial.bounds.choice import Choice
from safedial.bounds.confidence import Bounds
from safedial.bounds.count_rule import CLIMB, check_rate
from safedial.bounds.safe_set import SafeSet
from safedial.errors import is_number, is_whole, require
from safedial.model.brackets import WRITTEN, Growth, growth_from_dict
from safedial.model.namespace import Array
from safedial.model.spec import SafetySpec
from safedial.policies.policy import Policy
from safedial.policies.shield_rounds import ONE, Setup, ShieldBatch, stated_costs

START_SCALE = 0.25
"""The share of the protocol's setting at which a simulation starts."""


class Outlook(NamedTuple):
    """What a round knows before its outcome: its context, (lanes, d), and the rounds so far."""

    context: Array
    rounds: ShieldBatch


def hp_shield(
    *,
    base: int | str | Callable[..., Any],
    growth: Growth | Mapping[str, Any] | None = None,
    learned: bool = False,
    regressor: Any = None,
    start_scale: float | None = None,
    climb: float | None = CLIMB,
    confidence: float | None = None,
    adapt: float | None = None,
    chooser: Literal["largest", "request", "sign", "target"] = "largest",
    lag: int = 0,
    group: int | str | Callable[..., Any] | None = None,
    direction: Literal["above", "below"] = "above",
    levels: Sequence[float] | None = None,
    request: int | Callable[..., Any] | None = None,
) -> Policy:
    """Play the largest setting at which at most m − 1 of the latest n rounds would have exceeded.

    Args:
        base: the protocol's setting, > 0. In a simulation an intensity: the number of a context's column, or a
            function of contexts (..., d). For an Agent a setting in the dial's units: the name of a feature, a function
            of the raw features (a mapping by name, or the context where there are no names), or "proposal", a number
            that comes with each question; proposals must be exchangeable.
        growth: a bracket, per unit of the dial for an Agent. Only there it may name features. Left out where the spec
            states `costs`, which have brackets and directions of their own.
        learned: True: the base is learned from the rounds, with the protocol as its prior mean.
        regressor: None for ridge regression, or an Agent's: an object with fit(X, y) and predict(X) that learns, from
            contexts, the logarithm of the tolerated setting over the protocol's. It must be deterministic, for a loaded
            agent fits it again.
        start_scale: the share of the protocol's setting that you declare safe for every context; an Agent may be given
            a `start_action` instead. In a simulation a quarter by default.
        climb: how many times the largest recent scale may be used; None for no limit.
        confidence: None for a guarantee that is marginal over the past rounds, or the probability with which it is kept
            given them, at one t.
        adapt: None, or γ of the adaptive level.
        chooser: "largest": the cap; "sign": the start where the predicted reward is negative; "request":
            the proposal that comes with each question, in a simulation `request`, at most the cap, which any proposal
            may be; "target": the setting from the start to the cap at which the predicted reward is largest, for
            rewards that need not rise with the dose.
        lag: an Agent's only: how many of the latest rounds (of a group) do not count, so that outcomes may be late.
        group: the name of a feature, or a function of the context, whose value is the context's group; in a simulation,
            as `base`, a column or a function of contexts. Each group counts its own rounds, learns its own base and
            starts at its start: the guarantee holds in each.
        direction: "above": the cost must not exceed the threshold; "below": it must not fall below it.
        levels: a simulation's only: the intensities that can be played, where not all can; an Agent's dial has its own.
        request: a simulation's only: what is asked for with chooser="request", as `base`.

    The guarantee, P(C_t > τ) ≤ δ in each round, needs no `estimation_risk`. One threshold and one risk at a time.
    """
    bracket: Any = growth if growth is None or isinstance(growth, Growth) else growth_from_dict(growth)
    setup = _setup(base, learned=learned, start_scale=start_scale)
    _check(climb, confidence, adapt)
    _check_chooser(chooser, base, request)
    named = group is None or (isinstance(group, str) and group) or is_whole(group, 0) or callable(group)
    require(named, "group", group, "must be a feature's name, a column's number or a function of the context")
    require(regressor is None or learned, "regressor", regressor, "is for a learned base", "state learned=True")
    lag = _whole(lag)
    require(direction in ("above", "below"), "direction", direction, "must be 'above' or 'below'")
    marks = None if levels is None else tuple(map(float, levels))
    rise = marks is None or (marks and list(marks) == sorted({*marks}) and marks[0] > 0.0 and marks[-1] <= 1.0)
    require(rise, "levels", levels, "must be intensities that rise, above 0 and at most 1")
    setup = setup._replace(climb=climb, confidence=confidence, adapt=adapt, levels=marks, chooser=chooser)
    setup = setup._replace(request=_of_contexts(request), group=_of_contexts(group))

    def init(dim: int, *, ridge: Any, batch: tuple[int, ...] = (), spec: SafetySpec | None = None) -> ShieldBatch:
        several = None if spec is None else spec.costs
        require(bracket or several, "growth", growth, "is missing", f"state a bracket; {WRITTEN}")
        brackets = [each.growth for each in several.values()] if several else [bracket]
        named = [name for each in brackets for name in each.features]
        named += [each for each in (base, group) if isinstance(each, str)]
        rule = "are named, and only an Agent has names"
        require(not named, "base, growth, group", named, rule, "give columns and numbers")
        for name, value in (("lag", lag), ("regressor", regressor)):
            require(not value, name, value, "is for an Agent", "leave it out of a simulation")
        for name, value in (("base", base), ("group", group), ("request", request)):
            inside = not isinstance(value, int) or value < dim
            require(inside, name, value, f"must be a column of a context of dimension {dim}", "columns count from 0")
        asked = chooser != "request" or request is not None
        require(asked, "request", request, "is missing, and the chooser is 'request'", "give a column or a function")
        return ShieldBatch(dim, ridge=ridge, batch=batch, setup=setup)

    def predict(state: ShieldBatch, context: Any) -> Outlook:
        shape = (*state.batch, context.shape[-1])
        rows = (context if context.shape == shape else np.broadcast_to(context, shape)).reshape(state.lanes, -1)
        settings = setup.protocol(rows)
        require(np.all(settings > 0.0), "base", float(np.min(settings)), "must be a number > 0 in every context")
        return Outlook(rows, state)

    def decide(prediction: Any, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        if not isinstance(prediction, Outlook):  # an Agent's learner has chosen, in the dial's units
            return prediction.choice
        rounds, context = prediction.rounds, prediction.context
        if rounds.guarantee is None:
            costs = stated_costs(spec, options, baseline_cost=baseline_cost)
            rounds.state_guarantee(costs, float(np.squeeze(spec.violation_risk)))
        setting, start, scale = rounds.advise(context)
        chosen, index = rounds.chooser.choose(setting, start, context)
        chosen, setting, index, scale = (part.reshape(rounds.batch) for part in (chosen, setting, index, scale))
        bounds = Bounds(index, scale, 0.0, 0.0, False)
        return Choice(chosen, SafeSet(setting, np.full(rounds.batch, True)), bounds, index)

    def update(
        state: ShieldBatch,
        prediction: Any,
        reward: Any,
        cost: Any,
        weight: Any,
        *,
        intensity: Any,
        measured: Any = None,
        left_out: Any = None,
        reward_intensity: Any = None,
    ) -> ShieldBatch:
        def lanes(part: Any) -> Any:
            rows = np.asarray(part)
            return (rows if rows.shape == state.batch else np.broadcast_to(rows, state.batch)).reshape(-1)

        reward, cost, weight, applied = map(lanes, (reward, cost, weight, intensity))
        costs = measured if isinstance(measured, Mapping) else {ONE: cost * applied if measured is None else measured}
        costs = {name: lanes(each) for name, each in costs.items()}
        # A round that is given nothing has weight 0, though its cost is known.
        known = ((weight > 0.0) | (applied == 0.0)) & np.all(np.isfinite([cost, *costs.values()]), axis=0)
        reward = np.where(known, reward, 0.0)
        total = reward * (applied if reward_intensity is None else lanes(reward_intensity))
        told = applied, total, known, None if left_out is None else lanes(left_out)
        state.add(prediction.context, reward, told=told, costs=costs)
        return state

    options = {"base": base, "growth": bracket, "learned": learned, "start_scale": start_scale}
    options |= {"climb": climb, "confidence": confidence, "adapt": adapt, "chooser": chooser}
    options |= {"regressor": regressor, "group": group}
    options |= {"lag": lag, "direction": direction}
    options |= {} if marks is None else {"levels": marks}
    options |= {} if request is None else {"request": request}
    return Policy("hp_shield", "HP-Shield", "bracket", decide, options, init=init, predict=predict, update=update)


def _setup(base: Any, *, learned: Any, start_scale: Any) -> Setup:
    named = isinstance(base, str) and base != ""
    rule = "must be a column's number, a feature's name, 'proposal' or a function of contexts"
    require(is_whole(base, 0) or named or callable(base), "base", base, rule)
    require(learned in (True, False), "learned", learned, "must be True or False")
    share = start_scale is None or (is_number(start_scale) and 0.0 < start_scale <= 1.0)
    rule = "must be a number in (0, 1]"
    require(share, "start_scale", start_scale, rule, "state the share of the protocol's setting that is safe")
    start = START_SCALE if start_scale is None else float(start_scale)
    return Setup(_of_contexts(base), learned, start)


def _of_contexts(value: Any) -> Any:
    """A function of contexts (..., d): itself, or that of a column; None for what is not given, or has a name."""
    if isinstance(value, int):
        return lambda context: context[..., value]
    return value if callable(value) else None


def _check(climb: Any, confidence: Any, adapt: Any) -> None:
    more = climb is None or (is_number(climb) and climb > 1.0)
    require(more, "climb", climb, "must be a number > 1 or None", f"try {CLIMB}")
    share = confidence is None or (isinstance(confidence, float) and 0.0 < confidence < 1.0)
    require(share, "confidence", confidence, "must be a number in (0, 1) or None")
    if adapt is not None:
        check_rate(adapt, 0.05)


def _check_chooser(chooser: Any, base: Any, request: Any) -> None:
    known = ("largest", "request", "sign", "target")
    require(chooser in known, "chooser", chooser, "must be one of " + ", ".join(known))
    other = chooser != "request" or base != "proposal"
    way_out = "choose a protocol: the proposal is then only a request under its cap"
    require(other, "base", base, "is the proposal, which is the request already", way_out)
    given = request is None or ((is_whole(request, 0) or callable(request)) and chooser == "request")
    rule = "must be a column's number or a function of contexts, with chooser='request'"
    require(given, "request", request, rule)


def _whole(lag: Any) -> int:
    whole = isinstance(lag, (int, np.integer)) and not isinstance(lag, bool) and lag >= 0
    require(whole, "lag", lag, "must be a whole number >= 0", "how many rounds an outcome may take")
    return int(lag)
