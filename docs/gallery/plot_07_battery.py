"""
Charging a battery without overheating it
=========================================

The dial is the charging current. A higher current charges faster, and heats the cell with its square. The cell may
warm by at most 12 °C in a charging step, except in one step of 50. How much it warms depends on its age and its
temperature, in a way that must be learned.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import Agent, Dial, Dose, Features, SafetySpec, identity, power

# %%
# Physics gives the dose curves: charge is proportional to the current, heat to its square. The noise is Gaussian, of
# unknown size, so the policy is HP-Student. A tenth of the largest current is declared safe for every cell.

spec = SafetySpec(threshold=12, violation_risk=0.02, guarantee="student")
features = Features(names=("age", "temperature"), center=(0.5, 25), scale=(0.5, 15), intercept=True)
agent = Agent(
    3,
    spec,
    dose=Dose(reward=identity(), cost=power(2.0)),
    dial=Dial(high=10, unit="A"),
    features=features,
    start_action=1.0,
)

# %%
# 300 charging steps of a simulated cell
# --------------------------------------
# At full current a new, cool cell warms by about 15 °C, an old one by 40.

rng = np.random.default_rng(5)
age = rng.uniform(0, 1, 300)
temperature = rng.uniform(10, 40, 300)
current, rise, best = np.empty((3, 300))
for step in range(300):
    decision = agent.ask({"age": age[step], "temperature": temperature[step]})
    share = decision.action / 10
    mean = 15 + 22 * age[step] - 0.15 * (temperature[step] - 25)
    rise[step] = share**2 * (mean + rng.normal(0, 2))
    current[step], best[step] = decision.action, 10 * np.sqrt(12 / (mean + 2.05 * 2))
    agent.tell(decision, reward=decision.action * 0.9, cost=rise[step])

# %%
# What it learned
# ---------------

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
over = rise > 12
left.plot(np.flatnonzero(~over) + 1, rise[~over], ".", color="#0072B2", label="within the limit")
left.plot(
    np.flatnonzero(over) + 1, rise[over], "X", color="#D55E00", label=f"above it: {over.sum()} of 300 steps (6 allowed)"
)
left.axhline(12, color="black", linewidth=1)
left.set(xlabel="charging step", ylabel="warming, °C", ylim=(0, 18), title="How much the cell warmed")
left.legend(frameon=False, loc="upper left")
points = right.scatter(age[100:], current[100:], c=temperature[100:], s=14, cmap="cividis")
order = np.argsort(age)
right.plot(
    age[order], 10 * np.sqrt(12 / (15 + 22 * age[order] + 4.1)), color="black", label="largest safe current at 25 °C"
)
right.set(xlabel="age of the cell (0 new, 1 old)", ylabel="charging current, A", ylim=(0, 10))
right.set_title("The learned current, from step 101 on")
right.legend(frameon=False, loc="lower left")
figure.colorbar(points, label="cell temperature, °C")
plt.show()

# %%

share = current[100:].sum() / best[100:].sum()
print(f"From step 101 on the charge is {share:.0%} of what a charger who knows the cell could give.")
