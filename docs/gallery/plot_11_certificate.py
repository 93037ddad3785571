"""
The certificate of one decision
===============================

Why this dose, for this patient, today? The certificate holds every number that led to it, so that a person can check
it with pencil and paper. Here it is drawn: what each of the latest patients would have tolerated, and the scale that
was chosen.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import Agent, Cost, Dial, Features, SafetySpec, growth, make_policy

bracket = growth.relative(0.7, 1.4, floor=0.5)
spec = SafetySpec(threshold=20, violation_risk=0.05, guarantee="bracket")
policy = make_policy("hp_shield", base="protocol", growth=bracket, start_scale=0.25)
agent = Agent(1, spec, policy=policy, dial=Dial(high=6000, unit="mg"), features=Features(names=("protocol",)))

rng = np.random.default_rng(1)
given, measured = [], []
for protocol in rng.uniform(1200, 2800, 160):
    decision = agent.ask({"protocol": protocol})
    given.append(decision.action / protocol)
    measured.append(9 * rng.lognormal(0, 0.4) * given[-1])
    agent.tell(decision, reward=0.0, cost=measured[-1])
decision = agent.ask({"protocol": 2000})

# %%
# The decision in words
# ---------------------

print(decision.explain())

# %%
# The same, drawn
# ---------------
# Each bar is one patient: the scale that this patient surely tolerated, found from the measured trough along the
# steepest curve that the bracket allows. At most the stated number of bars may end below the line.

count = decision.certificate["count"]
latest = count["rounds"]
scale = decision.action / 2000
told = f"{np.floor(1000 * scale) / 1000:g}"
limit = Cost(threshold=20, growth=bracket)
tolerated = np.array([float(limit.tolerated(cost, dose)) for cost, dose in zip(measured, given, strict=True)])[-latest:]
order = np.sort(tolerated)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, panel = plt.subplots(figsize=(8, 4), layout="constrained")
panel.bar(np.arange(1, latest + 1), order, 0.8, color=np.where(order < scale * (1 - 1e-9), "#D55E00", "#0072B2"))
panel.axhline(scale, color="black", linewidth=1)
panel.annotate(f"this decision: {told} times the protocol", (2, scale), xytext=(2, 3), arrowprops={"arrowstyle": "->"})
panel.set(
    xlabel=f"the latest {latest} patients, in order of tolerance",
    ylabel="tolerated dose ÷ protocol",
    xlim=(0, latest + 1),
)
panel.set_title(f"At {told} times the protocol at most {count['would_exceed']} of {latest} could have exceeded 20 mg/l")
plt.show()

# %%
# In a notebook the decision itself is a short table.

decision
