"""
Several costs, one guarantee
============================

A dose may be limited by more than one measurement. Here a trough must stay at or below 20 mg/l and the exposure over
a day (AUC) at or below 600 mg·h/l. The guarantee is about both together: the chance that *any* of them exceeds is at
most 5 %. Nothing is split between them.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import Agent, Cost, Dial, Features, SafetySpec, growth, make_policy

costs = {
    "trough": Cost(threshold=20, growth=growth.relative(0.7, 1.4, floor=0.5), unit="mg/l"),
    "auc": Cost(threshold=600, growth=growth.relative(1, 1, floor=0), unit="mg·h/l"),
}
spec = SafetySpec(guarantee="bracket", costs=costs, violation_risk=0.05)

# %%
# Patients whose trough and AUC vary together, but not exactly. Each outcome brings both numbers.

features, dial = Features(names=("protocol",)), Dial(high=6000, unit="mg")
agent = Agent(1, spec, policy=make_policy("hp_shield", base="protocol", start_scale=0.25), dial=dial, features=features)
rng = np.random.default_rng(3)
rounds = 500
measured = np.empty((rounds, 2))
for patient in range(rounds):
    protocol = rng.uniform(1200, 2800)
    decision = agent.ask({"protocol": protocol})
    shared, own = rng.normal(0, 0.25), rng.normal(0, (0.25, 0.1))
    measured[patient] = np.array([11, 440]) * np.exp(shared + own) * decision.action / protocol
    agent.tell(decision, reward=0.0, cost=dict(zip(costs, measured[patient], strict=True)))

# %%
# Both limits at once
# -------------------

late = measured[100:]
over = (late > [20, 600]).any(axis=1)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, panel = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
panel.plot(*late[~over].T, ".", color="#0072B2", label=f"{(~over).sum()} patients within both limits")
panel.plot(*late[over].T, "X", color="#D55E00", label=f"{over.sum()} beyond one of them ({over.mean():.1%})")
panel.axvline(20, color="black", linewidth=1)
panel.axhline(600, color="black", linewidth=1)
panel.set(xlabel="trough, mg/l", ylabel="AUC, mg·h/l", xlim=(0, None), ylim=(0, 1000))
panel.set_title("Patients 101 to 500: one risk of 5 % for both limits")
panel.legend(frameon=False, loc="upper left")
plt.show()

# %%

print(agent.ask({"protocol": 2000}).certificate["statement"])
