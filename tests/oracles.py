"""Slow versions written from the paper's equations, independent of the package's code paths."""

from __future__ import annotations

import math

import cvxpy
import numpy as np
from mpmath import mp, mpf


def pessimistic_cost(context, cost_coef, gram, radius, margin):
    """max ⟨x,μ⟩ over ‖μ − μ̂‖_Σ ≤ β and ⟨x,μ⟩ + margin ≥ 0 (eq. mu_convex_prog), or None if infeasible."""
    coef = cvxpy.Variable(len(context))
    root = np.linalg.cholesky(gram).T
    inside = cvxpy.norm(root @ (coef - cost_coef)) <= radius
    problem = cvxpy.Problem(cvxpy.Maximize(context @ coef), [inside, context @ coef + margin >= 0])
    problem.solve(solver=cvxpy.CLARABEL)
    return None if problem.status == cvxpy.INFEASIBLE else float(problem.value)


def optimistic_reward(context, reward_coef, gram, radius):
    """max ⟨x,θ⟩ over ‖θ − θ̂‖_Σ ≤ β (eq. theta_hat)."""
    return pessimistic_cost(context, reward_coef, gram, radius, margin=1e6)


def feasible_end(pessimistic, margin, threshold):
    """The upper end of the estimated feasible set in intensity (eq. feasible_set)."""
    if pessimistic is None or pessimistic + margin <= 0:
        return 1.0
    return min(1.0, threshold / (pessimistic + margin))


class Ridge:
    """Least squares from the stored rounds by a fresh solve, eq. reg_covariance_m and LSE_theta_mu."""

    def __init__(self, dim, ridge):
        self.gram = np.eye(dim) * ridge
        self.ridge, self.rows, self.rewards, self.costs, self.weights = ridge, [], [], [], []

    def update(self, context, reward, cost, weight=1.0):
        self.gram = self.gram + weight * np.outer(context, context)
        self.rows.append(context)
        self.rewards.append(reward)
        self.costs.append(cost)
        self.weights.append(weight)

    def coef(self, targets):
        if not self.rows:
            return np.zeros(len(self.gram))
        return np.linalg.solve(self.gram, np.array(self.rows).T @ (np.array(self.weights) * np.array(targets)))


def paper_radius(noise, dim, informative, *, risk, ridge, bound, length):
    """β of the paper's Theorem 1, term by term."""
    return noise * math.sqrt(dim * math.log((1 + informative * length**2 / ridge) / risk)) + math.sqrt(ridge) * bound


def algorithm1(contexts, reward_noise, cost_noise, truth, *, spec, dose=None):
    """Algorithm 1 as printed, one round at a time, with the identity dose. Returns the intensities."""
    dim = contexts.shape[1]
    model, played = Ridge(dim, spec.ridge), []
    margin = spec.cost_noise * math.sqrt(2 * math.log(1 / spec.violation_risk))
    for number, context in enumerate(contexts, start=1):
        settings = {
            "risk": spec.estimation_risk,
            "ridge": spec.ridge,
            "bound": spec.coefficient_bound,
            "length": spec.context_bound,
        }
        informative = len(model.rows)
        if number == 1:
            intensity = min(1.0, spec.threshold / (margin + spec.coefficient_bound * spec.context_bound))
        else:
            width = math.sqrt(context @ np.linalg.solve(model.gram, context))
            reward = context @ model.coef(model.rewards)
            cost = context @ model.coef(model.costs)
            upper = reward + paper_radius(spec.reward_noise, dim, informative, **settings) * width
            pessimistic = cost + paper_radius(spec.cost_noise, dim, informative, **settings) * width
            intensity = feasible_end(pessimistic, margin, spec.threshold) if upper >= 0 else 0.0
        if intensity > 0:
            reward = intensity * (context @ truth[0] + reward_noise[number - 1])
            cost = intensity * (context @ truth[1] + cost_noise[number - 1])
            model.update(context, reward / intensity, cost / intensity)
        played.append(intensity)
    return np.array(played)


def exact_safe_intensity(samples, context, spec, *, digits=60):
    """The largest safe intensity for `mixture` with the clip, in `digits`-digit arithmetic from the raw samples.

    samples: (context, cost/g, weight) triples of floats, taken as exact.
    """
    with mp.workdps(digits):
        dim = len(context)
        exact = [mpf(float(value)) for value in context]
        gram = mp.eye(dim) * mpf(spec.ridge)
        rhs = mp.zeros(dim, 1)
        for row, cost, weight in samples:
            values = [mpf(float(value)) for value in row]
            for i in range(dim):
                rhs[i] += mpf(weight) * mpf(cost) * values[i]
                for j in range(dim):
                    gram[i, j] += mpf(weight) * values[i] * values[j]
        column = mp.matrix(exact)
        direction = mp.lu_solve(gram, column)
        squared = (column.T * direction)[0]
        mean = (direction.T * rhs)[0]
        ratio = mp.det(gram) / mpf(spec.ridge) ** dim
        volume = mp.log(ratio) + 2 * mp.log(1 / mpf(spec.estimation_risk))
        radius = mp.sqrt(mpf(spec.cost_noise) ** 2 * volume + mpf(spec.ridge) * mpf(spec.coefficient_bound) ** 2)
        upper = mean + radius * mp.sqrt(squared)
        norm = mp.sqrt(sum(value**2 for value in exact))
        upper = min(upper, mpf(spec.coefficient_bound) * norm)
        load = upper + mpf(spec.cost_noise) * mp.sqrt(2 * mp.log(1 / mpf(spec.violation_risk)))
        return mpf(1) if load <= 0 else min(mpf(1), mpf(spec.threshold) / load)


def largest_scale(tolerated, rank):
    """The largest λ at which at most `rank` − 1 of the tolerated scales (..., n) are exceeded; −∞ at rank 0."""
    return np.sort(tolerated, axis=-1)[..., rank - 1] if rank else np.full(np.shape(tolerated)[:-1], -math.inf)
