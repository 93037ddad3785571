"""
Noise that nobody can describe
==============================

HP-Probe needs to be told how large and of which kind the noise is. If that is false, its guarantee is void. HP-
Conformal is told nothing: it compares each round with earlier ones, and its guarantee holds for any noise if rounds are
exchangeable, that is, if their order tells nothing.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import LinearWorld, SafetySpec, make_policy, simulate

# %%
# Four kinds of noise. HP-Probe is told "Gaussian, standard deviation 1", which is true of the first kind alone.

constants = {"reward_noise": 1, "cost_noise": 1, "coefficient_bound": 1, "context_bound": 1}
gaussian = SafetySpec(threshold=0.5, violation_risk=0.018, estimation_risk=0.002, margin="gaussian", **constants)
conformal = SafetySpec(threshold=0.5, violation_risk=0.02, guarantee="conformal", **constants)
policies = {
    "HP-Probe, told that noise is Gaussian": ("hp_probe", gaussian, "#E69F00"),
    "HP-Conformal, told nothing": (make_policy("hp_conformal", start_dose=0.05), conformal, "#0072B2"),
}
noises = {
    "gaussian": "Gaussian",
    "student-t3": "heavy tails\n(Student t₃)",
    "exponential": "skewed\n(exponential)",
    "context-scale": "larger for\nsome contexts",
}


def exceeding(policy, stated, noise):
    """The percentage of full doses that exceeded, seed by seed."""
    run = simulate(policy, LinearWorld(dim=2, noise=noise), stated, rounds=2000, seeds=6)
    return 100 * run.full_dose_violations[0] / run.full_dose_rounds[0]


# %%
# Where a full dose is given
# --------------------------
# The bars count rounds with an expected benefit: the others get a micro-dose and say little. The lines are 95 %
# intervals.

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, panel = plt.subplots(figsize=(7.5, 4), layout="constrained")
places = np.arange(len(noises))
for offset, (name, (policy, stated, colour)) in zip((-0.2, 0.2), policies.items(), strict=True):
    rates = np.array([exceeding(policy, stated, noise) for noise in noises])
    error = 2.57 * rates.std(axis=1, ddof=1) / np.sqrt(rates.shape[1])
    panel.bar(places + offset, rates.mean(axis=1), 0.38, yerr=error, color=colour, capsize=3, label=name)
panel.axhline(2, color="black", linewidth=1)
panel.annotate("guaranteed: at most 2 %", (4.4, 2), xytext=(0, 3), textcoords="offset points", ha="right", va="bottom")
panel.set_xticks(places, noises.values())
panel.set(
    ylabel="full doses above the threshold, %",
    title="How often a full dose exceeds the threshold",
    ylim=(0, 5.5),
    xlim=(-0.6, 4.4),
)
panel.legend(frameon=False, loc="upper left", ncols=2)
plt.show()

# %%
# HP-Probe keeps its guarantee where it was told the truth and breaks it under skewed noise. HP-Conformal stays at the
# guaranteed rate for each kind. The price: it needs exchangeable rounds, and a start dose that somebody declares safe.
