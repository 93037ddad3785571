"""Agents with HP-Shield in the dial's units, and patients for them."""

import math

import numpy as np

from safedial import Agent, Dial, Features, SafetySpec, growth, make_policy

RISK = 0.1
BRACKET = growth.relative(0.7, 1.4, floor=0.5)
SPEC = SafetySpec(threshold=2.0, violation_risk=RISK, guarantee="bracket")
ZERO_ONE = SafetySpec(threshold=0.5, violation_risk=RISK, guarantee="bracket")
NAMES = Features(names=("dose", "weight", "steep"), center=(4.0, 70.0, 0.0), scale=(2.0, 30.0, 1.0))
DIAL = Dial(high=20.0, unit="U")


def shield(**options):
    return make_policy("hp_shield", **({"base": 0, "growth": BRACKET, "start_scale": 0.25} | options))


def make_agent(**given):
    """A named protocol's dose on a dial of 20 units."""
    options = given.pop("options", {})
    made = {"policy": shield(**({"base": "dose"} | options)), "dial": DIAL, "features": NAMES}
    return Agent(3, given.pop("spec", SPEC), **(made | given))


class Patients:
    """Doses that patients tolerate, about 1.2 times their protocol's; costs rise with an exponent of their own."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def context(self):
        dose, weight = self.rng.uniform(2.0, 6.0), self.rng.uniform(40.0, 100.0)
        return {"dose": float(dose), "weight": float(weight), "steep": 30.0}

    def cost(self, context, setting):
        effect = 0.2 * (context["weight"] - 70.0) / 30.0
        tolerance = context["dose"] * 1.2 * math.exp(effect + 0.3 * self.rng.standard_normal())
        return 2.0 * (setting / tolerance) ** self.rng.uniform(0.7, 1.4)


def treat(agent, rounds, world=None, *, applied=lambda advised: advised, ask=None):
    """Rounds with their outcomes; the settings given."""
    world, given = world or Patients(), []
    for _ in range(rounds):
        context = world.context()
        decision = agent.ask(context, **(ask(context) if ask else {}))
        setting = applied(decision.action)
        agent.tell(decision, applied_action=setting, reward=0.0, cost=world.cost(context, setting))
        given.append(decision.action)
    return given


def raw(decision):
    return dict(zip(NAMES.names, decision.context * NAMES.scale + NAMES.center, strict=True))


def group_of(agent):
    """The rounds that an agent's policy keeps, of the first group."""
    return agent._rounds.learning._state.groups[0]
