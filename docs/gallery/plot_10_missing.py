"""
Late and missing outcomes
=========================

Outcomes come late, and some never come. ``hp_shield`` counts a round without an outcome as if it had exceeded the
threshold, because it may have. So nothing unsafe follows from silence, but silence costs dose. Two statements help: a
``lag``, if outcomes are known to be late, and ``unrelated=True``, if somebody vouches that the reason for a missing
outcome has nothing to do with it.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import Agent, Features, SafetySpec, growth, make_policy

spec = SafetySpec(threshold=20, violation_risk=0.05, guarantee="bracket")
ROUNDS = 400


def course(*, delay=0, missing=0.0, vouched=False, lag=0):
    """The scales of one study, and its costs."""
    rng = np.random.default_rng(2)
    options = {"base": "protocol", "growth": growth.relative(0.7, 1.4, floor=0.5), "start_scale": 0.25, "lag": lag}
    agent = Agent(1, spec, policy=make_policy("hp_shield", **options), features=Features(names=("protocol",)))
    waiting, scales, costs = [], [], []
    for _ in range(ROUNDS):
        decision = agent.ask({"protocol": 0.5})
        scales.append(decision.action / 0.5)
        costs.append(12 * rng.lognormal(0, 0.35) * scales[-1])
        waiting.append((decision, costs[-1], rng.random() < missing))
        if len(waiting) > delay:
            answered, cost, lost = waiting.pop(0)
            if lost:
                agent.tell(answered, unrelated=vouched)
            else:
                agent.tell(answered, reward=0.0, cost=cost)
    return np.array(scales), np.array(costs)


# %%
# Five studies with the same patients
# -----------------------------------

studies = {
    "every outcome at once": {},
    "20 rounds late, lag=20 stated": {"delay": 20, "lag": 20},
    "20 rounds late, nothing stated": {"delay": 20},
    "3 % missing, vouched for as unrelated": {"missing": 0.03, "vouched": True},
    "3 % missing, not vouched for": {"missing": 0.03},
}
colours = ("#000000", "#0072B2", "#56B4E9", "#009E73", "#D55E00")
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, panel = plt.subplots(figsize=(8, 4.8), layout="constrained")
for (name, options), colour in zip(studies.items(), colours, strict=True):
    scales, costs = course(**options)
    label = f"{name}: {np.mean(costs > 20):.1%} of all costs exceed"
    panel.plot(np.arange(1, ROUNDS + 1), scales, color=colour, label=label)
panel.set(xlabel="round", ylabel="dose ÷ protocol", ylim=(0, None), title="The dose that each study reaches")
figure.legend(frameon=False, loc="outside lower center", fontsize=9)
plt.show()

# %%
# The guarantee of 5 % holds in all five. With a lag the dose climbs more slowly, because each step waits for its
# outcomes. Late outcomes without a stated lag, and missing ones that nobody vouches for, count as violations and keep
# the dose low.
