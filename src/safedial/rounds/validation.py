"""Checks of rules, contexts and columns, made once where they enter an agent or a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from safedial.bounds.rounding import NORM_SLACK
from safedial.errors import InvalidInput, refusal, require
from safedial.model.dial import Dial, Features, as_vector, real
from safedial.model.dose import as_dose
from safedial.model.namespace import Array
from safedial.model.noise_scale import check_rises
from safedial.model.spec import LARGEST, NUMBERS, SafetySpec
from safedial.policies.estimates import dnrm2
from safedial.policies.policy import Task
from safedial.policies.supports import check_supported
from safedial.rounds.decision import Decision
from safedial.rounds.outcome import Asked
from safedial.rounds.rules import Rules, by_rule, longest_context, split_rules

Result = TypeVar("Result")


def make_rules(
    *,
    dim: Any,
    spec: Any,
    policy: Any = None,
    dose: Any = None,
    dial: Any = None,
    features: Any = None,
    start_action: Any = None,
    fallback_action: Any = None,
    baseline_range: Any = None,
    world: frozenset[str] = frozenset(),
) -> Rules:
    """The rules of an agent or a study, checked; `world` is what is known of its rounds (`policies.supports`)."""
    whole = isinstance(dim, (int, np.integer)) and not isinstance(dim, bool) and dim >= 1
    way_out = "give dim, the number of values in a context, or features, which tell it"
    require(whole, "dim", dim, "must be a whole number >= 1", way_out)
    require(isinstance(spec, SafetySpec), "spec", spec, "must be a SafetySpec")
    for name in NUMBERS:
        require(np.ndim(getattr(spec, name)) == 0, name, getattr(spec, name), "must be one number for an Agent")
    if spec.noise_scale is not None:
        check_rises(spec.noise_scale, longest_context(int(dim), spec.context_bound))
    dial_ = Dial() if dial is None else dial
    require(isinstance(dial_, Dial), "dial", dial, "must be a Dial")
    require(features is None or isinstance(features, Features), "features", features, "must be a Features")
    if features is not None:
        require(features.dim == dim, "dim", dim, f"must equal the features' dimension, {features.dim}")
    curves = as_dose(dose)
    rule, spec = by_rule(policy, spec, int(dim))
    is_identity = dial_.is_plain and curves.cost.name == "identity"
    between = _baseline_range(baseline_range)
    start = None if start_action is None else real("start_action", start_action)
    task = Task(
        dim=int(dim), spec=spec, dose=curves, dial=dial_, features=features, start_action=start, live=True, world=world
    )
    check_supported(rule, task)
    made = rule.on(task)
    start, fallback, _ = made.start
    given = next((each for each in (fallback_action, fallback) if each is not None), None)
    rules = Rules(spec, made, curves, dial_, int(dim), _fallback(dial_, given), features, start, is_identity, between)
    return split_rules(rules)


def read_contexts(rules: Rules, contexts: Any) -> list[tuple[Array, float]]:
    """Each context of a list, an array or a table; an error names the row."""
    return [in_row(row, read_context, rules, context) for row, context in enumerate(context_rows(contexts))]


def read_question(
    rules: Rules,
    context: Any,
    baseline_cost: Any,
    allow_extrapolation: Any = False,
    proposal: Any = None,
) -> Asked:
    """What an agent is asked: the context, its baseline cost, and the proposal."""
    asked = read_new_context(rules, context, allow_extrapolation)
    if baseline := read_baseline(rules, baseline_cost):
        asked = asked._replace(baseline_cost=baseline)
    if proposal is None:
        return asked
    if not rules.policy.takes_proposal:
        raise refusal("proposal", proposal, f"is not for {rules.policy.name}", "leave it out")
    return asked._replace(proposal=real("proposal", proposal))


def read_questions(
    rules: Rules, contexts: Any, baseline_costs: Any, allow_extrapolation: Any, *, proposals: Any
) -> list[Asked]:
    """Several questions at once; an error names the row."""
    rows = context_rows(contexts)
    baselines = column("baseline_costs", baseline_costs, len(rows))
    given = [None] * len(rows) if proposals is None else listed("proposals", proposals, len(rows))
    return [
        in_row(row, read_question, rules, context, baseline, allow_extrapolation, proposal)
        for row, (context, baseline, proposal) in enumerate(zip(rows, baselines, given, strict=True))
    ]


def read_new_context(rules: Rules, context: Any, allow_extrapolation: Any = False) -> Asked:
    """The context of a new round; outside the stated ranges of its features it is refused, unless allowed."""
    if not isinstance(allow_extrapolation, bool):
        raise refusal("allow_extrapolation", allow_extrapolation, "must be True or False")
    features, outside = rules.features, ()
    if features is not None and features.ranges:
        context = features.values(context)
        outside = features.outside(context) if np.isfinite(context).all() else ()
        if outside and not allow_extrapolation:
            name = outside[0]
            low, high = features.ranges[name]
            rule = f"must lie between {low:g} and {high:g}, the range stated for it"
            way_out = "correct it, or set allow_extrapolation, which marks the decision"
            words = f"context[{name!r}] = {context[features.names.index(name)]:g}: {rule}; {way_out}"
            raise InvalidInput(words, "out_of_range", public=f"{name} {rule}; {way_out}")
    return Asked(*read_context(rules, context), outside)


def context_rows(contexts: Any) -> list[Any]:
    """The contexts of a list, an array or a table, one by one."""
    if hasattr(contexts, "columns") and hasattr(contexts, "to_dict"):
        contexts = contexts.to_dict("records")
    return listed("contexts", contexts)


def read_context(rules: Rules, context: Any, *, raw: bool = True) -> tuple[Array, float]:
    """The context as a new vector, and its norm; refused if it is not finite or longer than L."""
    if raw and rules.features is not None:
        vector = rules.features.transform(context)
    else:
        vector = as_vector(context, rules.dim, "context")
    norm = dnrm2(vector)
    if not norm <= context_limit(rules):
        _refuse_context(rules, vector, norm)
    if rules.spec.noise_scale is not None:
        check_rises(rules.spec.noise_scale, vector)
    return vector, norm


def context_limit(rules: Rules) -> float:
    """The largest norm of a context: L with room for rounding, or, without L, a size whose square is a float."""
    bound = rules.spec.context_bound
    return LARGEST if bound is None else bound * (1.0 + NORM_SLACK)


def _refuse_context(rules: Rules, vector: Array, norm: float) -> None:
    """Say what is wrong with a context that is not finite or too long, by the feature's name if it has one."""
    names = (*(rules.features.names if rules.features else range(rules.dim)), "intercept")
    bad = np.flatnonzero(~np.isfinite(vector))
    if bad.size:
        raise InvalidInput(f"context[{names[bad[0]]!r}] = {vector[bad[0]]}: must be a finite number", "not_finite")
    largest = int(np.argmax(np.abs(vector)))
    raise InvalidInput(
        f"context: has norm {norm:.6g}, must have norm at most context_bound = {context_limit(rules):g} "
        f"(its largest part is [{names[largest]!r}] = {vector[largest]:.4g}); scale the features, "
        "or state a larger bound at the start",
        "context_out_of_bounds",
    )


def check_decision(rules: Rules, open_rounds: Mapping[int, Any], decision: Decision) -> None:
    """A decision may be reported once, to the agent that made it."""
    if decision.preview:
        rule = "is a preview, not a decision"
    elif decision.rules is not rules:
        rule = "was made by another agent, or before this one was loaded"
    elif decision.round not in open_rounds:
        rule = "was reported already, or is too old"
    else:
        return
    raise refusal("decision", f"round {decision.round}", rule, "report a context, an action and round=... instead")


def listed(name: str, values: Any, count: int | None = None) -> list[Any]:
    """The values of a list, as many as there are contexts where `count` says how many."""
    require(np.iterable(values) and not isinstance(values, (str, Mapping)), name, values, "must be a list")
    items = list(values)
    rule = f"must have one value for each of {count} contexts"
    require(count is None or len(items) == count, name, values, rule)
    return items


def column(name: str, values: Any, count: int) -> list[float]:
    """One number for each context; baseline costs default to zeros."""
    if values is None and name == "baseline_costs":
        return [0.0] * count
    items = listed(name, values, count)
    return [real(f"{name}[{index}]", value) for index, value in enumerate(items)]


def in_row(row: int, check: Callable[..., Result], *arguments: Any) -> Result:
    """`check(*arguments)`; an error starts with the row's number."""
    try:
        return check(*arguments)
    except InvalidInput as error:
        raise InvalidInput(f"row {row}: {error}", error.code) from error


def read_baseline(rules: Rules, baseline_cost: Any) -> float:
    """A stated baseline cost, checked against its range."""
    plain = type(baseline_cost) is float and math.isfinite(baseline_cost)
    value = baseline_cost if plain else real("baseline_cost", baseline_cost)
    low, high = rules.baseline_range
    if not low <= value <= high:
        way_out = "if it is right, state another baseline_range at the start (a lower baseline raises the dose)"
        raise refusal("baseline_cost", value, f"must lie between {low:g} and {high:g}", way_out)
    if value and rules.spec.costs is not None:
        raise refusal("baseline_cost", value, "cannot be combined with several costs", "report whole costs, and use 0")
    return value


def _baseline_range(given: Any) -> tuple[float, float]:
    """(low, high). By default a baseline cost must not be negative."""
    if given is None:
        return (0.0, math.inf)
    proper = isinstance(given, (list, tuple)) and len(given) == 2
    require(proper, "baseline_range", given, "must be two numbers, low and high", "use None for an open end")
    ends = (-math.inf if given[0] is None else given[0], math.inf if given[1] is None else given[1])
    low, high = (end if math.isinf(end) else real("baseline_range", end) for end in ends)
    require(low <= high, "baseline_range", given, "must have the lower end first")
    return float(low), float(high)


def _fallback(dial: Dial, given: Any) -> float:
    fallback = dial.low if given is None else real("fallback_action", given)
    inside = dial.low <= fallback <= dial.high
    require(inside, "fallback_action", fallback, f"must lie between {dial.low:g} and {dial.high:g}")
    settable = dial.levels is None or fallback in (dial.low, *dial.levels)
    require(settable, "fallback_action", fallback, f"must be one of the dial's levels {dial.levels}")
    return fallback


def check_forgetting(forget: Any, unrelated: Any) -> None:
    """Check what is said about rounds that a resume forgets."""
    require(isinstance(forget, bool), "forget", forget, "must be True or False")
    require(isinstance(unrelated, bool), "unrelated", unrelated, "must be True or False")
    rule = "says why earlier rounds are forgotten, and none are"
    require(forget or not unrelated, "unrelated", unrelated, rule, "leave it out, or give forget=True")
