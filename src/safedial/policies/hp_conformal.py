"""HP-Conformal, split form: the realized-cost promise without constants, for exchangeable rounds.

With a probe in every round, (X_t, R_t/g_r, C_t/g_c) does not depend on the doses. So if rounds are exchangeable (in
practice: i.i.d. patients, no carry-over), these triples are, in spite of the adaptive doses, and conformal prediction
applies:

1. Even rounds train ridge predictors r̂, ĉ of R/g and C/g; odd rounds calibrate.
2. The predictors are refitted when the number of rounds has grown by a tenth: a schedule fixed by the count alone. At a
   refit every calibration round is scored, C/g − ĉ(x), and grouped by the sign of r̂(x), with the new frozen predictors;
   until the next refit nothing changes.
3. A new round in group G with n calibration scores gets U(x) = ĉ(x) + the ⌈(n+1)(1−δ)⌉-th smallest of them, and
   z_safe = 1 if U ≤ 0 else min(1, τ/U). Since z·C/g > τ needs a score above that rank, P(C > τ) ≤ δ, within each group.
4. Until a group has 1/δ − 1 scores, the dose is `start_dose`, which the user declares safe, or, without one, the
   first-round dose that the constants certify.

A round that was given nothing scores +∞ if it calibrates and does not train: dropping it would bias the scores.

Needs: exchangeable rounds, exact dose curves, no sensor noise, every applied dose above 0. Does not need: linearity,
κ, S, L, or light tails. Does not give: validity for drifting or adversarial contexts, or given the calibration data.
docs/conformal.md has the proof.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from safedial.core.action import Choice, choose
from safedial.core.confidence import Bounds
from safedial.core.conformal import rank, training_conditional_rank
from safedial.core.safe_set import SafeSet, largest_safe_intensity
from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.policies.fixed import fixed
from safedial.policies.policy import Policy

FIRST_FIT = 20
GROWTH = 1.1


class Rounds:
    """All rounds so far, by batch, and the predictors and scores frozen at the last refit. Updated in place."""

    def __init__(self, dim: int, *, ridge: Any, batch: tuple[int, ...]) -> None:
        self.dim, self.ridge, self.batch = dim, float(ridge), batch
        self.count, self.next_fit = 0, FIRST_FIT
        self.context, self.reward, self.cost = (np.empty((*batch, 64, *shape)) for shape in ((dim,), (), ()))
        self.reward_coef, self.cost_coef = np.zeros((*batch, dim)), np.zeros((*batch, dim))
        self.scores, self.sizes = np.empty((*batch, 2, 0)), np.zeros((*batch, 2), dtype=np.int64)

    def append(self, context: Any, reward: Any, cost: Any) -> None:
        if self.count == self.cost.shape[-1]:
            for name in ("context", "reward", "cost"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.empty_like(old)], axis=len(self.batch)))
        self.context[..., self.count, :] = context
        self.reward[..., self.count] = reward
        self.cost[..., self.count] = cost
        self.count += 1
        if self.count == self.next_fit:
            self.refit()
            self.next_fit = max(self.count + 1, int(np.ceil(GROWTH * self.count)))

    def refit(self) -> None:
        """Train on even rounds, then score and group every odd round under the new predictors."""
        train, calibrate = slice(0, self.count, 2), slice(1, self.count, 2)
        seen = np.isfinite(self.cost[..., train])
        rows = np.where(seen[..., None], self.context[..., train, :], 0.0)
        gram = np.matrix_transpose(rows) @ rows + self.ridge * np.eye(self.dim)
        targets = np.stack([self.reward[..., train], np.where(seen, self.cost[..., train], 0.0)], axis=-1)
        coef = np.linalg.solve(gram, np.matrix_transpose(rows) @ targets)
        self.reward_coef, self.cost_coef = coef[..., 0], coef[..., 1]
        held = self.context[..., calibrate, :]
        scores = self.cost[..., calibrate] - (held @ self.cost_coef[..., None])[..., 0]
        benefit = (held @ self.reward_coef[..., None])[..., 0] >= 0.0
        groups = np.stack([~benefit, benefit], axis=-2)
        self.scores = np.sort(np.where(groups, scores[..., None, :], np.inf), axis=-1)
        self.sizes = groups.sum(axis=-1)


class Outlook(NamedTuple):
    """What a round knows: predictions, its group (1 where benefit is expected), and the frozen scores."""

    reward: Any
    cost: Any
    norm: Any
    group: Any
    rounds: Rounds
    context: Any


def hp_conformal(
    *, start_dose: float | None = None, probe: float | Literal["sqrt"] = "sqrt", confidence: float | None = None
) -> Policy:
    """Play z_safe from the conformal bound where benefit is expected, else a probe of it; every round teaches.

    Args:
        start_dose: an intensity in (0, 1] that you declare safe for every context, used until a group has enough
            rounds. None: the first-round dose certified by the spec's constants.
        probe: as for `hp_probe`, above 0: a round without a dose would have to count as a violation.

        confidence: None for the rank ⌈(n+1)(1−δ)⌉, whose promise is marginal over the calibration rounds; a number in
            (0, 1) for the training-conditional rank, with which the promise holds given the calibration rounds of a
            refit with that probability, for i.i.d. rounds with continuous scores; it needs more of them.

    The promise, P(C_t > τ) ≤ δ in each round and within each group, needs no `estimation_risk`. For simulations only,
    for now.

    Reference: this project, docs/conformal.md; split and Mondrian conformal prediction: Vovk, Gammerman and Shafer,
    "Algorithmic Learning in a Random World" (2005); training-conditional: Vovk (2012).
    """
    declared = start_dose is None or (_number(start_dose) and 0.0 < start_dose <= 1.0)
    require(declared, "start_dose", start_dose, "must be a number in (0, 1]", "or None for the certified one")
    proper = probe == "sqrt" or (_number(probe) and 0.0 < float(probe) <= 1.0)
    require(proper, "probe", probe, "must be 'sqrt' or a number in (0, 1]", "every round must teach")
    share_of = confidence is None or (_number(confidence) and 0.0 < confidence < 1.0)
    require(share_of, "confidence", confidence, "must be a number in (0, 1) or None")
    certified = fixed()

    def predict(state: Rounds, context: Any) -> Outlook:
        reward = np.vecdot(context, state.reward_coef)
        norm = np.sqrt(np.vecdot(context, context))
        return Outlook(reward, np.vecdot(context, state.cost_coef), norm, (reward >= 0.0).astype(int), state, context)

    def decide(prediction: Any, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        upper, ready = _bound(prediction, spec, confidence)
        safe = largest_safe_intensity(upper, 0.0, threshold=spec.threshold - baseline_cost)
        if start_dose is None:
            first = certified.decide(prediction, spec, round=round, coin=coin, baseline_cost=baseline_cost).safe
        else:
            first = SafeSet(0.0 * safe.intensity + start_dose, safe.certified)
        chosen = SafeSet(
            np.where(ready, safe.intensity, first.intensity), np.where(ready, safe.certified, first.certified)
        )
        bounds = Bounds(prediction.reward, upper, 0.0, 0.0, False)
        share = round**-0.5 if probe == "sqrt" else float(probe)
        return choose(prediction.reward, chosen, bounds, probe=share)

    def update(state: Rounds, prediction: Any, reward: Any, cost: Any, weight: Any) -> Rounds:
        unseen = np.asarray(weight) <= 0.0
        state.append(prediction.context, np.where(unseen, 0.0, reward), np.where(unseen, np.inf, cost))
        return state

    options = {"start_dose": start_dose, "probe": probe, "confidence": confidence}
    return Policy(
        "hp_conformal", "HP-Conformal", "conformal", decide, options, init=Rounds, predict=predict, update=update
    )


def _bound(prediction: Outlook, spec: SafetySpec, confidence: float | None) -> tuple[Any, Any]:
    """(U(x), whether the group has scores enough), (rows, seeds)."""
    state, group = prediction.rounds, prediction.group
    where = np.indices(group.shape, sparse=True)
    size = state.sizes[(*where, group)]
    place = rank(size, spec.violation_risk) if confidence is None else _sure_rank(size, spec.violation_risk, confidence)
    ready = place <= size
    if not np.any(ready):
        return np.broadcast_to(prediction.cost, ready.shape), ready
    score = state.scores[(*where, group, np.where(ready, place - 1, 0))]
    return prediction.cost + np.where(ready, score, 0.0), ready


def _sure_rank(size: Any, risk: Any, confidence: float) -> Any:
    """`training_conditional_rank`, for arrays; each (n, δ) is computed once."""
    ranks = np.frompyfunc(lambda count, chance: _cached_rank(int(count), float(chance), confidence), 2, 1)
    return np.asarray(ranks(size, risk), dtype=np.int64)


_cached_rank = lru_cache(maxsize=None)(training_conditional_rank)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
