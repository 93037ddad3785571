"""What policies would have done on a log: `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from safedial.core.dose import Dose, DoseCurve
from safedial.core.promise import PROMISES
from safedial.core.spec import CONSTANTS, SafetySpec
from safedial.decision.defaults import OPEN, by_rule
from safedial.decision.rules import Rules, named_policy
from safedial.decision.units import Dial, Features
from safedial.decision.validation import make_rules
from safedial.errors import InvalidInput, require
from safedial.evaluation.evaluated import Evaluation, PolicyResult
from safedial.evaluation.logged_rounds import Rounds, read_rounds
from safedial.evaluation.outcomes import Outcomes
from safedial.evaluation.play import Played, play
from safedial.policies import Policy, as_policy
from safedial.specfile import SpecFile, load_spec

ENGINES = ("auto", "agent", "replay")


def evaluate(
    log: Any,
    policies: Any = None,
    *,
    spec: SafetySpec | SpecFile | str | Path | None = None,
    dose: DoseCurve | Dose | None = None,
    dial: Dial | None = None,
    features: Features | None = None,
    context_columns: Sequence[str] | None = None,
    start_action: float | None = None,
    fallback_action: float | None = None,
    seed: int = 0,
    engine: str = "auto",
    progress: Callable[[str, int], None] | None = None,
) -> Evaluation:
    """What each policy would have done on the rounds of a log, and what that would have cost and earned.

    The results are exact if the dose curve is: in the model R/g and C/g do not depend on the dose, so a round with any
    dose above 0 shows what every other dose would have led to. Under a growth bracket you get lower and upper bounds.

    Args:
        log: a `Log`, the path of a log or of a study's export (.csv, .jsonl), or a `Study`. A .jsonl export and a study
            also give the times of outcomes and the random numbers, and their own spec, dial, dose curve and features.
        policies: names, policies, spec files (`SpecFile` or a path ending in .toml, each with its own promise and
            policy), or one of these; by default the policy of the spec, or of the study. Options that are left open are
            those of a new `Agent`. A policy of another promise than the spec's gets its threshold, constants and risk.
        spec: the promise: a `SafetySpec`, or a spec file, which may also state dose, dial, features and policy.
        dose, dial, features: as for an `Agent`. context_columns: the columns of a CSV that are the context.
        start_action, fallback_action: as for an `Agent`, where the policy takes them.
        seed: of the random numbers of randomised policies, as for an `Agent`; a study has its own.
        engine: "agent"; "replay", which is fast and knows no alarms; or "auto": "replay" from 20,000 rounds on, where
            the policy has a linear estimate.
        progress: called with the policy's name and the number of rounds (of a study: events) just done.

    >>> from safedial.simulation.logged import simulated_log
    >>> from safedial.worlds import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> log = simulated_log("fixed", LinearWorld(dim=3), spec, rounds=200)
    >>> found = evaluate(log, ["hp_ucb", "on_expectation"], spec=spec)
    >>> [(row["policy"], row["rounds"], row["excesses"]) for row in found.table()]
    [('as logged', 200, 0), ('hp_ucb', 200, 0), ('on_expectation', 200, 21)]
    """
    require(engine in ENGINES, "engine", engine, "must be one of " + ", ".join(ENGINES))
    named, file = _listed(policies), _as_file(spec)
    stated = file or next((each for each in named if isinstance(each, SpecFile)), None)
    given = {"dose": dose, "dial": dial, "features": features}
    parts = {
        name: part if part is not None or stated is None else getattr(stated, name) for name, part in given.items()
    }
    rounds = read_rounds(
        log,
        None if stated is None else stated.spec,
        dial=parts["dial"] or Dial(),
        features=parts["features"],
        context_columns=context_columns,
    )
    actions = {"start_action": start_action, "fallback_action": fallback_action}
    if rounds.study is not None:
        live = rounds.study.rules
        parts = {name: getattr(live, name) if part is None else part for name, part in given.items()}
        actions = {name: getattr(live, name) if each is None else each for name, each in actions.items()}
        parts |= {"baseline_range": live.baseline_range}
    made = [_rules(each, file, rounds, parts, actions) for each in named or [None]]
    results = []
    for rules in made:
        outcomes = Outcomes(rules, rounds)
        _check_doses(outcomes)
        step = None if progress is None else partial(progress, rules.policy.name)
        played = play(rules, rounds, outcomes, seed=seed, engine=engine, progress=step)
        results.append(PolicyResult.of(_label(rules, made), rules, outcomes, played))
    first = Outcomes(made[0], rounds)
    logged = PolicyResult.of("as logged", made[0], first, Played(first.logged, "log"))
    return Evaluation(rounds=rounds, logged=logged, policies=results, source=_source(log))


def _as_file(spec: Any) -> SpecFile | None:
    if isinstance(spec, (str, Path)):
        return load_spec(spec)
    kind = spec is None or isinstance(spec, (SafetySpec, SpecFile))
    require(kind, "spec", type(spec).__name__, "must be a SafetySpec, a SpecFile or the path of a spec file")
    return SpecFile(spec=spec) if isinstance(spec, SafetySpec) else spec


def _listed(policies: Any) -> list[Any]:
    one = isinstance(policies, (str, Path, Policy, SpecFile, Mapping))
    listed: list[Any] = [policies] if one else list(policies or ())
    return [
        load_spec(each) if isinstance(each, Path) or (isinstance(each, str) and each.endswith(".toml")) else each
        for each in listed
    ]


def _rules(given: Any, file: SpecFile | None, rounds: Rounds, parts: dict[str, Any], actions: dict[str, Any]) -> Rules:
    """The rules of one policy on these rounds."""
    live = rounds.study.rules if rounds.study is not None else None
    if isinstance(given, SpecFile):
        file, given = given, None
    if live is not None and file is None and given in (None, live.policy.name):
        return live
    if given is None and file is not None and file.policy:
        given = file.policy
    spec = file.spec if file is not None else live.spec  # pyright: ignore[reportOptionalMemberAccess] -- a log needs a spec
    if given is None:
        stated = PROMISES[spec.promise]
        given = {"name": stated.default_policy, **stated.default_options}
    policy = named_policy(given) if isinstance(given, Mapping) else as_policy(given)
    rule = "knows the truth, which a log does not hold"
    way_out = "leave it out: the share of the reward in hindsight compares with it"
    require(not policy.knows_truth, "policy", policy.name, rule, way_out)
    dim = parts["features"].dim if parts["features"] else rounds.raw.shape[1]
    fits = file is None or file.dim is None or file.dim == dim
    way_out = "name the context's columns (context_columns, --context-columns)"
    columns = f"{dim} context columns ({', '.join(rounds.names)})"
    require(fits, "log", columns, f"do not fit the spec file's dim = {getattr(file, 'dim', None)}", way_out)
    try:
        held = _spec_for(policy, spec)
        named = given if isinstance(given, (str, Mapping)) else policy  # open options are by rule
        ran = live.policy.name if live is not None and file is None else None
        if named is not policy and (ran is not None or rounds.exported):
            held = _left_open(held, dim, ran)
        return make_rules(dim=dim, spec=held, policy=named, **parts, **_started(policy, actions))
    except InvalidInput as error:
        raise InvalidInput(f"policy {policy.name}: {error}", error.code) from error


def _left_open(spec: SafetySpec, dim: int, ran: str | None) -> SafetySpec:
    """The spec of a study, which holds the ridge that the rule gave it, with that ridge left open again: else the rule
    (decision/defaults.py) would take it for a stated one, and choose another radius than the study's. Where the policy
    that `ran` is not under the rule, the study holds the default ridge.
    """
    if not (spec.states_ridge and PROMISES[spec.promise].from_constants):
        return spec
    left = replace(spec, ridge=None)
    plain = ran is not None and ran not in OPEN and spec.ridge == left.ridge
    return left if plain or by_rule(None, left, dim)[1].ridge == spec.ridge else spec


def _started(policy: Policy, actions: dict[str, Any]) -> dict[str, Any]:
    """The start and fallback for a policy: those without a start dose take no start."""
    return actions if {"start_dose", "start_scale"} & set(policy.options) else {**actions, "start_action": None}


def _spec_for(policy: Policy, spec: SafetySpec) -> SafetySpec:
    """The spec, or, for a policy of another promise, one with the same threshold, constants and risk."""
    given, stated = PROMISES[policy.promise], PROMISES[spec.promise]
    kinds = [(each.exchangeable, each.bracketed, each.gaussian) for each in (given, stated)]
    if kinds[0] == kinds[1]:
        return spec
    fields: dict[str, Any] = {name: getattr(spec, name) for name in CONSTANTS if not given.bracketed}
    fields = {name: value for name, value in fields.items() if value is not None}
    fields |= {"threshold": spec.threshold} if spec.costs is None else {"costs": spec.costs}
    if given.exchangeable or given.gaussian:
        fields["promise"] = policy.promise
        return SafetySpec(**fields, violation_risk=float(spec.promised_risk))
    lacking = [name for name in CONSTANTS if name not in fields]
    rule = f"needs constants that a spec with promise = {spec.promise!r} does not state: {', '.join(lacking)}"
    way_out = "state them, or give the policy in a spec file of its own"
    require(not lacking, "policy", policy.name, rule, way_out)
    return SafetySpec(**fields, total_risk=float(spec.promised_risk))


def _check_doses(outcomes: Outcomes) -> None:
    rounds = outcomes.rounds
    count = len(rounds)
    rule = "has no round with a dose above 0 and a known outcome: R/g and C/g are not known, so nothing can be replayed"
    way_out = "give a log in which something was given, or look ahead with `safedial plan`"
    require(bool(np.any(outcomes.usable)), "log", f"{count} rows", rule, way_out)


def _label(rules: Rules, made: list[Rules]) -> str:
    """A policy's name, with its place where several have the same."""
    name = rules.policy.name
    same = [each for each in made if each.policy.name == name]
    place = next(number for number, each in enumerate(same, start=1) if each is rules)
    return name if len(same) == 1 else f"{name} {place}"


def _source(log: Any) -> str:
    return Path(log).name if isinstance(log, (str, Path)) else getattr(log, "name", "log")


__all__ = ["Evaluation", "evaluate"]
