"""May this policy play under this spec, here? The facts of a task, against those that the policy excludes.

A *fact* is a name for something that a spec states ("sensor noise"), that a world does ("adversarial contexts"), or
that holds where people act on decisions ("advice"). A policy names the facts under which it has no proof, or cannot
play (`Policy.excludes`); which specs' guarantees it gives follows from its own. Nothing else refuses a policy: in an
agent, a study, a simulation, a replay and a tool alike, the same sentence says what is wrong and the way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from safedial.errors import refusal
from safedial.model.guarantee import GUARANTEES, PROVED

if TYPE_CHECKING:
    from safedial.policies.policy import Policy, Task

ELSEWHERE = frozenset({"noise scale", "several costs", "adversarial contexts", "replay"})
"""What a policy excludes that does not keep the linear estimate."""

ZERO_ONE = frozenset({"sensor noise", "threshold from 1"})
"""What no policy supports where costs are 0 or 1."""


class Sentence(NamedTuple):
    """How a fact is refused: the argument, the rule, and the way out; {name} and {gives} are the policy's name and
    guarantee.
    """

    argument: str
    rule: str
    way_out: str


SENTENCES = {
    **dict.fromkeys(
        (f"guarantee {name}" for name in PROVED),
        Sentence(
            "guarantee",
            "does not match policy {name}, whose guarantee is {gives!r}",
            "set the spec's guarantee to 'conformal' for hp_conformal, 'bracket' for hp_shield, 'student' for "
            "hp_student, and only for them",
        ),
    ),
    "several costs": Sentence(
        "policy",
        "takes one cost: only certified policies with a linear estimate, hp_student and hp_shield have a proof for "
        "several",
        "use hp_probe or hp_ucb, guarantee='student' with hp_student, or guarantee='bracket' with hp_shield",
    ),
    "sensor noise": Sentence("sensor noise", "must be 0 for {name}, and where costs are 0 or 1", "use hp_probe"),
    "noise scale": Sentence(
        "noise_scale",
        "has no proof with {name}, which does not keep the linear estimate",
        "use hp_probe or hp_ucb, or state the noise as sensor noise",
    ),
    "learned noise": Sentence(
        "margin_risk",
        "is learned by policies with a linear cost only, and not in a replay",
        "leave it out, or use hp_probe",
    ),
    "other margin": Sentence("margin", "is not supported by {name}, which has a noise of its own", "leave it out"),
    "threshold from 1": Sentence("threshold", "must be below 1 where costs are 0 or 1", "0.5 means: no event"),
    "adversarial contexts": Sentence(
        "contexts",
        "need a linear learner, whose estimate the adversary sees, which {name} is not, and are not exchangeable",
        "use iid",
    ),
    "costs of 0 or 1": Sentence(
        "policy",
        "has no rule for costs that are 0 or 1",
        "use nonlinear_hp_probe with the class binary, or clairvoyant(binary_cost=True)",
    ),
    "costs of any size": Sentence("policy", "is for costs that are 0 or 1", "use another class"),
    "unknown means": Sentence("policy", "knows the truth and cannot run online", "simulate it, or leave it out"),
    "unmarked rounds": Sentence(
        "learn_from", "cannot run online: outcomes do not say which rounds explored", "learn from all"
    ),
    "advice": Sentence("policy", "gives no certificate and runs only in simulations", "simulate it"),
    "replay": Sentence(
        "policy",
        "does not learn with the linear estimate",
        "use `simulate`, or, in `evaluate`, engine 'agent' or 'auto'",
    ),
}
"""One for each fact that a policy may exclude."""


def facts(task: Task) -> frozenset[str]:
    """What a task states, by name. An agent has no world: its user vouches for what a world would state."""
    spec = task.spec
    stated = {
        "several costs": spec.costs is not None,
        "sensor noise": bool(spec.sensors),
        "noise scale": spec.noise_scale is not None,
        "learned noise": spec.learns_noise,
        "other margin": spec.margin != "subgaussian",
        "threshold from 1": spec.costs is None and bool(np.any(np.asarray(spec.threshold) >= 1.0)),
        "unknown means": task.live,
        "unmarked rounds": task.live,
        "advice": task.live,
    }
    here = {name for name, holds in stated.items() if holds}
    return frozenset(here | {f"guarantee {spec.guarantee}"} | task.world)


def excluded(policy: Policy, stated: frozenset[str]) -> frozenset[str]:
    """The facts that a policy does not support, given the others."""
    given = GUARANTEES[policy.guarantee]
    fits = given.under if "advice" in stated else given.simulated_under
    knowing = policy.knows_truth and "no constants" in stated
    others = frozenset() if knowing else {f"guarantee {name}" for name in PROVED if name not in fits}
    replayed = frozenset({"learned noise"} if "replay" in stated else ())
    zero_one = ZERO_ONE if policy.zero_one or "costs of 0 or 1" in stated else frozenset()
    # A bracket has a proof for several costs.
    return (policy.excludes - {"several costs"} if given.bracketed else policy.excludes) | others | zero_one | replayed


def supports(policy: Policy, task: Task) -> list[str]:
    """The facts of a task that a policy does not support; none where it may play."""
    stated = facts(task)
    wrong = excluded(policy, stated) & stated
    return [name for name in SENTENCES if name in wrong]


def check_supported(policy: Policy, task: Task, *, whole: bool = True) -> None:
    """Refuse a policy for a task that it does not support, with the way out. A policy that is not the whole, but maybe
    a part of another one, need not give the guarantee of the spec.
    """
    for name in supports(policy, task):
        if name.startswith("guarantee") and not whole:
            continue
        (argument, rule, way_out), spec = SENTENCES[name], task.spec
        sensors = spec.reward_sensor_noise, spec.cost_sensor_noise
        told = {"policy": policy.name, "contexts": "adversarial", "learn_from": "exploring", "sensor noise": sensors}
        value = told[argument] if argument in told else getattr(spec, argument)
        if policy.is_own and name.startswith("guarantee"):
            way_out = f"set the spec's guarantee to {' or '.join(map(repr, GUARANTEES[policy.guarantee].under))}"
        raise refusal(argument, value, rule.format(name=policy.name, gives=policy.guarantee), way_out)
