"""
Plan a study
============

Before the first patient, ``plan`` answers three questions: how many violations to expect, how soon the study pays,
and what happens if an assumption turns out to be false. It simulates the study many times, in worlds that keep to
what you state and in worlds that do not.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import SafetySpec, plan

spec = SafetySpec(
    threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1
)
found = plan("hp_probe", spec, dim=3, rounds=300, seeds=30)
for sentence in found.words():
    print("-", sentence)

# %%
# Scenarios
# ---------

table = found.table
names = [row["scenario"] for row in table]
rates = 100 * np.array([row["violation_rate"] for row in table])
shares = 100 * np.array([row["reward_share"] for row in table])
colours = ["#0072B2" if row["guarantee_holds"] else "#D55E00" for row in table]
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
left.barh(names, rates, color=colours)
left.axvline(5, color="black", linewidth=1)
left.annotate("guarantee", (5, 0), xytext=(3, 0), textcoords="offset points", va="center")
left.invert_yaxis()
left.set(xlabel="rounds above the threshold, %", title="Violations")
right.barh(names, shares, color=colours)
right.set(xlabel="reward, % of an all-knowing policy's", title="Reward")
handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in ("#0072B2", "#D55E00")]
words = ["what is stated is true: the guarantee holds", "what is stated is false: nothing is guaranteed"]
figure.legend(handles, words, loc="outside lower center", ncols=2, frameon=False)
plt.show()

# %%
# The plan as a table:

found
