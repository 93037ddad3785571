"""The bound of the radius `self-normalised` online: any vector w is valid, so only its three numbers are certified."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.estimate import Dual
from safedial.core.rounding import certify_dual
from safedial.core.self_normalised import LEAST, multipliers
from safedial.core.spec import SafetySpec
from safedial.decision.learners.blas import ddot, dnrm2, dposv, dpotrs
from safedial.decision.learners.linear_learner import LinearLearner

Array = NDArray[np.float64]


class Factors(NamedTuple):
    """What the vector w needs besides the context: Gμ̂ and, for each a, (a, the Cholesky factor of D, D⁻¹μ̂, the root).

    They change only with the learner's sums, whose numbers of `samples` and `revisions` they carry.
    """

    samples: int
    revisions: int
    unshrunk: Array
    solved: list[tuple[float, Array, Array, float]]

    def fits(self, learner: LinearLearner) -> bool:
        return self.samples == learner.samples and self.revisions == learner.revisions


def factors_of(learner: LinearLearner, spec: SafetySpec) -> Factors:
    """The factors, with GΣ⁻¹G = Σ − 2λI + λ²Σ⁻¹, for each a whose D is not numerically singular."""
    ridge, coef, rhs = learner.ridge, learner.coef("cost"), learner.cost_rhs
    volume, bound = spec.cost_noise**2 * (learner.log_det + 2.0 * spec.log_inverse_risk), spec.coefficient_bound**2
    matrix = learner.gram + ridge * ridge * learner.inverse
    diagonal = matrix.T.reshape(-1)[:: learner.dim + 1]
    diagonal -= 2.0 * ridge
    solved, before = [], 0.0
    for a in multipliers(spec):
        diagonal += a - before
        before = a
        factor, shrunk, failed = dposv(matrix, coef, lower=1)
        if not failed:
            root = math.sqrt(max(volume + a * (bound - ddot(rhs, shrunk)), LEAST * volume))
            solved.append((a, factor, shrunk, root))
    return Factors(learner.samples, learner.revisions, rhs - ridge * coef, solved)


def certified_dual(learner: LinearLearner, factors: Factors, context: Array, norm: float) -> Dual:
    """Upper bounds on ⟨w,b⟩ of the cost, ‖w‖_Σ and ‖x − Gw‖ (`core.rounding`), with G = Σ − λI."""
    w = _vector(learner, factors, context)
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


def _vector(learner: LinearLearner, factors: Factors, context: Array) -> Array:
    """The vector w of `core.self_normalised`; 0 where every D is numerically singular."""
    lowest, best = math.inf, None
    for a, factor, shrunk, root in factors.solved:
        turned, _ = dpotrs(factor, context, lower=1)
        width = math.sqrt(max(ddot(context, turned), 0.0))
        upper = ddot(factors.unshrunk, turned) + root * width
        if upper < lowest:
            lowest, best = upper, (turned, a * width / root, shrunk)
    if best is None:
        return np.zeros(learner.dim)
    turned, share, shrunk = best
    return turned - learner.ridge * learner.direction(turned) - share * shrunk
