"""An agent under the conformal guarantee, and rounds to teach it with."""

import numpy as np

from safedial import Agent, SafetySpec

DIM = 3


def conformal_spec(**changes):
    return SafetySpec(**({"threshold": 0.5, "violation_risk": 0.1, "guarantee": "conformal"} | changes))


def state_of(agent):
    """What the agent has learned."""
    return agent._rounds.learning._state


def outcome(rng, context, intensity):
    reward, cost = (context @ coef + 0.3 * rng.standard_normal() for coef in ([0.9, 0.1, 0.0], [0.3, 0.5, 0.1]))
    return {"reward": intensity * float(reward), "cost": intensity * float(cost)}


def taught(count=200, agent=None, seed=0, **changes):
    """An agent after `count` rounds, and its generator."""
    rng = np.random.default_rng(seed)
    agent = agent or Agent(DIM, conformal_spec(), **({"start_action": 0.05} | changes))
    for _ in range(count):
        context = rng.standard_normal(DIM) / 2
        decision = agent.ask(context)
        agent.tell(decision, **outcome(rng, context, decision.intensity))
    return agent, rng
