"""
What would it have done last year?
==================================

A log of past rounds, in which some dose was given, tells what other policies would have done. In the model the cost
divided by the effect of the dose does not depend on the dose, so each round says what every other dose would have
cost. No weights and no propensities are needed.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import LinearWorld, SafetySpec, evaluate
from safedial.simulation.results import simulated_log

# %%
# A simulated log of 500 rounds, played with one fixed, cautious action. ``read_log("log.csv")`` would read your own.

spec = SafetySpec(
    threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1
)
log = simulated_log("fixed", LinearWorld(dim=3), spec, rounds=500)
found = evaluate(log, ["hp_ucb", "hp_probe", "hp_student", "on_expectation"], spec=spec, start_action=0.05)

# %%
# Safety against reward
# ---------------------
# The lines are 95 % intervals for rounds like these.

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, panel = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
colours = ("#999999", "#0072B2", "#009E73", "#CC79A7", "#D55E00")
for row, colour in zip(found.table(), colours, strict=True):
    rate, low, high = (100 * row[name] for name in ("rate", "low", "high"))
    error = np.maximum([[rate - low], [high - rate]], 0)
    panel.errorbar(rate, 100 * row["share"], xerr=error, marker="o", color=colour, capsize=3)
    place = (5, -13 if row["policy"] == "hp_ucb" else 5)
    panel.annotate(row["policy"], (rate, 100 * row["share"]), xytext=place, textcoords="offset points", color=colour)
panel.axvline(5, color="black", linewidth=1)
panel.annotate("guarantee: 5 %", (5, 100), xytext=(4, 0), textcoords="offset points", va="top")
panel.set(
    xlabel="rounds above the threshold, %",
    ylabel="reward, % of the best in hindsight",
    xlim=(-0.3, None),
    ylim=(-10, 100),
)
panel.set_title("Four policies on the same log")
plt.show()

# %%
# The table comes with the reasons to doubt it.

found
