"""
Dosing insulin with a protocol
==============================

The usual rule for a bolus of insulin is carbohydrate over the patient's ratio, plus a correction. For some patients
it is too much: glucose falls below 70 mg/dl. ``hp_shield`` scales the rule, so that at most one meal of 20 ends below
70, and it needs no model of the patient.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import Agent, Dial, Features, SafetySpec, growth, make_policy

spec = SafetySpec(threshold=70, violation_risk=0.05, guarantee="bracket")
policy = make_policy(
    "hp_shield", base="rule", growth=growth.additive(4, "steepest"), direction="below", start_scale=0.25
)
agent = Agent(2, spec, policy=policy, dial=Dial(high=25, unit="U"), features=Features(names=("rule", "steepest")))

# %%
# Simulated meals
# ---------------
# One unit more lowers glucose by at most 1.2 times the patient's correction factor (the feature ``steepest``), and
# one unit less raises a glucose below 70 by at least 4 mg/dl. That is the growth bracket. The true slope of each meal
# lies inside and is never revealed.

rng = np.random.default_rng(0)
rounds = 600
glucose, by_rule, scale = np.empty((3, rounds))
for meal in range(rounds):
    carbohydrate, before, ratio, factor = rng.uniform((30, 90, 6, 20), (90, 220, 15, 50))
    rule = carbohydrate / ratio + max(before - 140, 0) / factor
    risen, slope = 0.8 * factor * carbohydrate / ratio, factor * rng.uniform(0.3, 1.2)
    decision = agent.ask({"rule": rule, "steepest": 1.2 * factor})
    glucose[meal] = before + risen - slope * decision.action
    by_rule[meal] = before + risen - slope * rule
    scale[meal] = decision.action / rule
    agent.tell(decision, reward=0.0, cost=glucose[meal])

# %%
# The rule alone, and the shielded rule
# -------------------------------------

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
bins = np.arange(0, 400, 10)
for values, name, colour in ((by_rule, "the rule alone", "#D55E00"), (glucose, "with HP-Shield", "#0072B2")):
    label = f"{name}: {100 * np.mean(values < 70):.1f} % below 70"
    left.hist(values, bins, histtype="step", linewidth=1.6, color=colour, label=label)
left.axvline(70, color="black", linewidth=1)
left.set(xlabel="lowest glucose after the meal, mg/dl", ylabel="meals", xlim=(0, 400), title="600 meals, both ways")
left.set_ylim(0, 1.25 * left.get_ylim()[1])
left.legend(frameon=False, loc="upper right")
right.plot(np.arange(1, rounds + 1), scale, color="#009E73")
right.axhline(1, color="grey", linewidth=1, linestyle="--")
right.annotate(
    "the rule", (rounds, 1), xytext=(0, 3), textcoords="offset points", ha="right", va="bottom", color="grey"
)
right.set(xlabel="meal", ylabel="bolus ÷ rule", ylim=(0, 1.2), title="The scale that past meals tolerated")
plt.show()

# %%
# The steps are those of the count rule: it looks at the latest rounds and asks at which scale at most one in 20 of
# them would have fallen below 70. Where too many of them might have, it goes back, and the guarantee holds at every
# step.

print(agent.ask({"rule": 6.0, "steepest": 48.0}).explain())
