"""The bound of the radius `self-normalised` online: any vector w is valid, so only its three numbers are certified."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from safedial.core.estimate import Dual, Prediction
from safedial.core.rounding import certify_dual
from safedial.core.self_normalised import LEAST, multipliers
from safedial.core.spec import SafetySpec
from safedial.decision.learners.blas import ddot, dnrm2, dposv
from safedial.decision.learners.linear_learner import LinearLearner

Array = NDArray[np.float64]


def certified_dual(learner: LinearLearner, seen: Prediction, context: Array, norm: float, spec: SafetySpec) -> Dual:
    """Upper bounds on ⟨w,b⟩ of the cost, ‖w‖_Σ and ‖x − Gw‖ (`core.rounding`), with G = Σ − λI."""
    w = _vector(learner, seen, context, spec)
    residual = learner.residual(context, w)
    numbers = certify_dual(
        learner.ridge,
        learner.terms,
        cost=ddot(w, learner.cost_rhs),
        squared=ddot(w, context - residual),
        miss=dnrm2(residual + learner.ridge * w),
        context_norm=norm,
        direction_norm=dnrm2(w),
        scale_direction=ddot(learner.scale, np.abs(w)),
        scale_norm=learner.scale_norm,
        target_norm=math.sqrt(learner.cost_squares),
    )
    return Dual(*numbers)


def _vector(learner: LinearLearner, seen: Prediction, context: Array, spec: SafetySpec) -> Array:
    """The vector w of `core.self_normalised`, with GΣ⁻¹G = Σ − 2λI + λ²Σ⁻¹; 0 where each D is numerically singular."""
    dim, ridge, coef, rhs = learner.dim, learner.ridge, learner.coef("cost"), learner.cost_rhs
    volume, bound = spec.cost_noise**2 * (seen.log_det + 2.0 * spec.log_inverse_risk), spec.coefficient_bound**2
    matrix = learner.gram + ridge * ridge * learner.inverse
    diagonal = matrix.T.reshape(-1)[:: dim + 1]
    diagonal -= 2.0 * ridge
    targets = np.empty((dim, 2), order="F")
    targets[:, 0], targets[:, 1] = context, coef
    unshrunk, lowest, best, before = rhs - ridge * coef, math.inf, None, 0.0
    for a in multipliers(spec):
        diagonal += a - before
        before = a
        _, solved, failed = dposv(matrix, targets, lower=1)
        if failed:
            continue
        turned, shrunk = solved.T
        width = math.sqrt(max(ddot(context, turned), 0.0))
        root = math.sqrt(max(volume + a * (bound - ddot(rhs, shrunk)), LEAST * volume))
        upper = ddot(unshrunk, turned) + root * width
        if upper < lowest:
            lowest, best = upper, (turned, a * width / root, shrunk)
    if best is None:
        return np.zeros(dim)
    turned, share, shrunk = best
    return turned - ridge * learner.direction(turned) - share * shrunk
