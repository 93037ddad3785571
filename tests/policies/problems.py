"""Small problems that every class is tried on: contexts, outcomes, weights, and a learner fed with them."""

import numpy as np

from safedial.policies.classes import Outcomes
from safedial.simulation.nonlinear_worlds import NonlinearWorld


def rounds_of(dim=2, count=40, seed=0, weighted=True):
    rng = np.random.default_rng(seed)
    contexts = rng.uniform(-0.7, 0.7, (count, dim))
    outcomes = rng.normal(0.0, 0.5, (2, count)) + np.sin(2.0 * contexts[:, 0])
    weights = rng.choice([0.0, 0.3, 1.0], count) if weighted else np.ones(count)
    return contexts, outcomes, weights


def learned(class_, contexts, outcomes, weights, *, ridge=1.0, targets=2):
    """A single learner after these rounds."""
    state = class_.init(contexts.shape[1], ridge=ridge, targets=targets)
    for index, context in enumerate(contexts):
        view = class_.look(state, context)
        values = tuple(np.float64(row[index]) for row in outcomes[:targets])
        state = class_.update(state, view, Outcomes(values, np.float64(weights[index]), np.float64(1.0)))
    return state


def misses(run_policy, class_, world: NonlinearWorld, spec, *, rounds, seeds, simulate):
    """In how many seeds the cost's range ever missed the true mean."""
    missed = np.zeros(seeds, dtype=bool)

    def observe(seen):
        target = 1 if len(seen.state.parts) == 1 else 0
        interval = class_.bounds(seen.bound.memo[1], target, noise=spec.cost_noise, spec=spec)
        truth = world.means(spec, seen.truth, seen.context)[1]
        nonlocal missed
        missed |= ((truth > interval.upper) | (truth < interval.lower))[0]

    simulate(run_policy, world, spec, rounds=rounds, seeds=seeds, observe=observe)
    return int(missed.sum())
