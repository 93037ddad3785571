"""
The guarantee in one picture
============================

A hospital doses an antibiotic by a protocol. The trough, the lowest level in the blood between two doses, must not
exceed 20 mg/l in more than one patient of 20. ``safedial`` starts at a quarter of the protocol's dose, which the
hospital declares safe for everybody, and raises the dose as far as the measured troughs allow.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import Agent, Dial, Features, SafetySpec, growth, make_policy

# %%
# What the hospital states
# ------------------------
# The threshold, the risk, and a *growth bracket*: 1 % more dose raises a trough by at most 1.4 %, and 1 % less lowers
# a trough above 20 mg/l by at least 0.7 %. No model, no constants, no dose curve.

spec = SafetySpec(threshold=20, violation_risk=0.05, guarantee="bracket")
policy = make_policy("hp_shield", base="protocol", growth=growth.relative(0.7, 1.4, floor=0.5), start_scale=0.25)
agent = Agent(1, spec, policy=policy, dial=Dial(high=6000, unit="mg"), features=Features(names=("protocol",)))

# %%
# 400 simulated patients
# ----------------------
# Each patient has a sensitivity of their own, which nobody knows before the dose is given.

rng = np.random.default_rng(1)
scale, trough = np.empty(400), np.empty(400)
for patient in range(400):
    protocol = rng.uniform(1200, 2800)
    decision = agent.ask({"protocol": protocol})
    scale[patient] = decision.action / protocol
    trough[patient] = 9 * rng.lognormal(0, 0.4) * scale[patient]
    agent.tell(decision, reward=0.0, cost=trough[patient])

# %%
# The picture
# -----------

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained", height_ratios=[2, 1])
over = trough > 20
rounds = np.arange(1, 401)
above.plot(rounds[~over], trough[~over], ".", color="#0072B2", label=f"{(~over).sum()} troughs within the limit")
above.plot(
    rounds[over], trough[over], "X", color="#D55E00", label=f"{over.sum()} above it; the guarantee allows 20 on average"
)
above.axhline(20, color="black", linewidth=1)
above.annotate("limit", (400, 20), xytext=(0, 3), textcoords="offset points", ha="right", va="bottom")
above.set(ylabel="trough, mg/l", ylim=(0, 44), title="Every measured trough of 400 patients")
above.legend(loc="upper left", frameon=False)
below.plot(rounds, scale, color="#009E73")
below.axhline(1, color="grey", linewidth=1, linestyle="--")
below.annotate("the protocol", (400, 1), xytext=(0, -3), textcoords="offset points", ha="right", va="top", color="grey")
below.set(
    xlabel="patient", ylabel="dose ÷ protocol", ylim=(0, None), title="The dose, learned from these troughs alone"
)
plt.show()

# %%
# The certificate
# ---------------
# Each decision carries its guarantee, with every assumption that it rests on.

agent.ask({"protocol": 2000})
