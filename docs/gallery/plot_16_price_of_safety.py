"""
The price of safety
===================

How much reward does a smaller risk cost? A spec may hold an array of risks, and one simulation then plays all of them
on the same rounds.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import LinearWorld, SafetySpec, simulate

risks = np.geomspace(0.001, 0.3, 12)
constants = {"reward_noise": 0.5, "cost_noise": 0.5, "coefficient_bound": 1, "context_bound": 1}
runs = {
    threshold: simulate(
        "hp_probe",
        LinearWorld(dim=3),
        SafetySpec(threshold=threshold, violation_risk=risks, estimation_risk=0.01, **constants),
        rounds=1000,
        seeds=20,
    )
    for threshold in (0.25, 0.5, 1.0)
}

# %%
# Reward and violations against the risk
# --------------------------------------

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for (threshold, run), colour in zip(runs.items(), ("#D55E00", "#0072B2", "#009E73"), strict=True):
    left.semilogx(100 * risks, run.reward.mean(axis=1) / 1000, "o-", color=colour, label=f"threshold {threshold:g}")
    rate = np.maximum(run.violations.mean(axis=1) / 1000, 1e-5)
    right.loglog(100 * risks, 100 * rate, "o-", color=colour, label=f"threshold {threshold:g}")
right.loglog(100 * risks, 100 * (risks + 0.01), color="black", label="guaranteed: risk + 1 %")
left.set(
    xlabel="stated risk per round, %", ylabel="mean reward per round", ylim=(0, None), title="A smaller risk earns less"
)
right.set(
    xlabel="stated risk per round, %",
    ylabel="rounds above the threshold, %",
    title="The guarantee is kept for every risk",
)
left.legend(frameon=False)
right.legend(frameon=False, fontsize=9)
plt.show()

# %%
# The guarantee must hold for the worst noise that the stated constants allow; Gaussian noise, as simulated here, is
# kinder. That gap is the price of the assumption. ``margin="gaussian"`` or ``hp_student`` close it for those who can
# vouch for Gaussian noise.
