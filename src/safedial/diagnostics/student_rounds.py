"""A log's rounds as HP-Student learns them: the p-value of each cost before it is learned.

If the noise is i.i.d. Gaussian and contexts do not follow it, the pivots T_t = (y_t − ⟨x_t,μ̂⟩)/(s√(1+w²)), each with
the fit before its round, are independent, and so are the p-values P(t_ν > T_t), which are uniform, given all contexts
(core/student.py). Bets on small ones are the evidence of an `Agent` that decided these rounds and received every
outcome at once. Excesses of the threshold are a count: they depend on the doses, and a full dose is often safer. For
the anytime promise, whose contexts may react, the evidence counts y_t above its bound (core/monitor.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core import monitor
from safedial.core.dose import Dose
from safedial.core.promise import PROMISES
from safedial.core.spec import SafetySpec
from safedial.core.student import Mixture, chance_above, cost_upper
from safedial.core.triangle import append, certified, empty, volume
from safedial.diagnostics.conformal_rounds import WalkedRounds, evidence_path
from safedial.errors import require
from safedial.policies import Policy, make_policy
from safedial.rounds_io import Log

Array = NDArray[np.float64]

SPARE = 8
"""The fewest rounds with a dose beyond the dimension that can be checked."""


@dataclass(frozen=True, kw_only=True)
class StudentRounds(WalkedRounds):
    """The evidence is that the noise is not Gaussian and of one size, or, for the `anytime` promise, that its bound is
    exceeded too often.
    """

    anytime: bool


def walk_student_log(
    log: Log, spec: SafetySpec, dose: Dose, policy: Policy | Mapping[str, Any] | None = None
) -> StudentRounds:
    """Learn from a log round by round; `policy`, or a spec file's table, says which promise is meant."""
    rule = _policy(policy)
    if rule.check is not None:
        rule.check(spec)
    harm = np.asarray(dose.cost.effect(log.action), dtype=float)
    dosed = harm > 0.0
    words = f"rounds with a dose are too few: at least {log.dim + SPARE} are needed at dimension {log.dim}"
    require(int(dosed.sum()) >= log.dim + SPARE, "log", int(dosed.sum()), words)
    with np.errstate(over="ignore"):
        outcome = np.where(dosed, (log.cost - log.baseline_cost) / np.where(dosed, harm, 1.0), np.inf)
    require(np.all(np.isfinite(outcome[dosed])), "log", "costs", "over g: not finite")
    fitted, chance, upper = _walk(log.context, outcome, spec, rule)
    ranked = np.flatnonzero(np.isfinite(chance))
    words = "has no round with a bound: contexts must have full rank"
    require(ranked.size, "log", f"{len(log)} rows", words, "leave out columns that others determine")
    anytime = rule.options["promise"] == "anytime"
    return StudentRounds(
        spec=spec,
        anytime=anytime,
        number=log.round,
        names=log.names,
        context=log.context,
        intensity=harm,
        outcome=outcome,
        fitted=fitted,
        bounded=upper < np.inf,
        exceeded=log.cost > spec.threshold,
        covered=dosed & ~(log.action > log.advised),
        ranked=ranked,
        chance=chance[ranked],
        evidence=_excess_path((outcome > upper)[ranked], (upper < np.inf)[ranked], spec.violation_risk)
        if anytime
        else evidence_path(chance[ranked]),
    )


def _walk(contexts: Array, outcome: Array, spec: SafetySpec, rule: Policy) -> tuple[Array, Array, Array]:
    """(⟨x,μ̂⟩, the p-value, U) of each round, before it is learned; NaN and ∞ where there is none."""
    options, fit = rule.options, empty(contexts.shape[1])
    anytime = options["promise"] == "anytime"
    mixture = Mixture(options["mixture_ridge"], options["mixture_shape"])
    fitted, chance, upper = np.zeros(len(outcome)), np.full(len(outcome), np.nan), np.full(len(outcome), np.inf)
    for index, context in enumerate(contexts):
        seen = certified(fit, context, 0.0)
        if anytime and seen.ready:
            log_det, least = volume(fit, mixture.ridge)
            seen = seen._replace(log_det=log_det, least=least)
        fitted[index] = seen.cost
        upper[index] = cost_upper(
            seen, "anytime" if anytime else "per_round", spec.violation_risk, spec.estimation_risk, mixture=mixture
        )
        if math.isfinite(outcome[index]):
            chance[index] = chance_above(seen, float(outcome[index]))
            fit = append(fit, np.append(context, [outcome[index], 0.0]))
    return fitted, chance, upper


def _excess_path(over: Any, known: Any, risk: float) -> Array:
    state, path = monitor.init(), np.ones(len(over))
    for index in range(len(over)):
        if known[index]:
            state = monitor.update(state, bool(over[index]), risk)
        path[index] = monitor.evidence(state)
    return path


def _policy(given: Policy | Mapping[str, Any] | None) -> Policy:
    if given is None:
        return make_policy("hp_student")
    made = given if isinstance(given, Policy) else make_policy(**given)
    require(PROMISES[made.promise].gaussian, "policy", made.name, "gives no student promise", "name hp_student")
    return made
