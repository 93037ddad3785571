"""HP-Conformal with rounds that are told what they cost per unit, whatever was given."""

import numpy as np

from safedial.model.dose import Dose, identity
from safedial.policies.conformal import HPConformal
from safedial.policies.policy import KNOWN, LEFT_OUT, LOST, Asked, Task, Told
from safedial.simulation.world import generators
from tests.conftest import make_spec


def conformal(dim, spec=None, *, ridge=1.0, **options):
    """The policy, bound to a task."""
    spec = make_spec(ridge=ridge) if spec is None else spec
    task = Task(dim=dim, spec=spec, dose=Dose(identity(), identity()))
    return HPConformal(**{"start_dose": 1e-3} | options).on(task)


def add(policy, state, context, reward=0.0, cost=0.0, *, known=True, left=False, bound=None):
    """One more round with its outcome, R/g and C/g; it is lost where it is not `known`, or `left` out."""
    context = np.asarray(context, dtype=float)
    asked = Asked(context, np.linalg.norm(context, axis=-1), state.count + 1.0)
    policy.open(state, asked, bound or policy.bound(state, asked), 0.1)
    tell(policy, state, state.count - 1, reward, cost, known=known, left=left)


def tell(policy, state, place, reward=0.0, cost=0.0, *, known=True, left=False):
    """The outcome of a round."""
    lanes = state.known.shape
    fate = np.where(known, KNOWN, np.where(left, LEFT_OUT, LOST))
    weight = np.asarray(known, dtype=float)
    fate = np.broadcast_to(fate, lanes) if lanes else fate[()]
    policy.tell(state, place, Told(fate, reward, cost, weight, cost, 0.0, 0.1, 0.1, None))


def refit(policy, state):
    """Refit now."""
    state.next_fit = state.count
    policy.begin(state, None)


def ask(policy, state, context, number=1.0):
    """The bound at a context."""
    context = np.asarray(context, dtype=float)
    return policy.bound(state, Asked(context, np.linalg.norm(context, axis=-1), number))


def upper(policy, state, context):
    """U(x)."""
    return ask(policy, state, context).numbers["cost_upper"]


def filled(count, dim, seed, *, ridge=0.7, risk=0.1, lanes=(), **options):
    """A policy, a state refitted after rounds with random contexts and outcomes, and one more context."""
    rng = np.random.default_rng(seed)
    policy = conformal(dim, make_spec(ridge=ridge, violation_risk=risk), **options)
    state = policy.init(lanes)
    for _ in range(count):
        context = rng.standard_normal((*lanes, dim))
        noise = rng.standard_normal((2, *lanes))
        add(policy, state, context, context[..., 0] + noise[0], context.sum(axis=-1) + noise[1])
    refit(policy, state)
    return policy, state, rng.standard_normal((*lanes, dim))


def played(policy, data, times, void=()):
    """(bound, intensity, C/g) at `times`, rounds from 1, with everything learned before; `void` ones are left out.

    `data` are contexts (rounds, *lanes, d), R/g and C/g. What is learned does not depend on the doses.
    """
    state = policy.init(data[1].shape[1:])
    for index, (context, reward, cost) in enumerate(zip(*data, strict=True)):
        policy.begin(state, None)
        bound = ask(policy, state, context, index + 1.0)
        if index + 1 in times:
            asked = Asked(context, np.linalg.norm(context, axis=-1), index + 1.0)
            yield bound, policy.choose(bound, asked), cost
        gone = index in void
        add(policy, state, context, reward, cost, known=np.full(cost.shape, not gone), left=gone, bound=bound)


def drawn_world(world, spec, seeds, last):
    """Contexts, R/g and C/g of a world, (last, 1, seeds, ...)."""
    rngs = generators(list(range(seeds)))
    truth, draws = world.draw_truth(spec, rngs), world.draw_chunk(spec, rngs, last)
    context = draws.context[:, None]
    means = [world.means(spec, truth, each) for each in context]
    noises = draws.reward_noise[:, None], draws.cost_noise[:, None]
    return context, *(np.stack([mean[part] for mean in means]) + noise for part, noise in enumerate(noises))
