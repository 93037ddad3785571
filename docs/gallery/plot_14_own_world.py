"""
Compare policies in a world of your own
=======================================

The worlds of this package are linear or follow a dose curve. Yours may not. A world is a small class that says what
is true, and every policy can be simulated in it. All policies see the same contexts and the same noise, so that
differences between them are differences of the policies, seed by seed: ``compare`` pairs them.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np

from safedial import SafetySpec, compare, make_policy
from safedial.simulation.world import Outcome, World


@dataclass(frozen=True, kw_only=True)
class LateCost(World):
    """A pump that does no harm up to a fifth of its power; beyond it, the cost grows."""

    dim: int
    begins: float = 0.2

    def draw_truth(self, spec, rngs):
        return np.stack([rng.uniform(-1.0, 1.0, (2, self.dim)) for rng in rngs["truth"]])

    def means(self, spec, truth, context):
        return np.tanh(2 * np.vecdot(context, truth[:, 0])), 1 + np.abs(np.vecdot(context, truth[:, 1]))

    def outcome(self, spec, exposure):
        usual, beyond = super().outcome(spec, exposure), np.maximum(exposure.cost_intensity - self.begins, 0.0)
        cost = beyond * (exposure.cost_mean + exposure.cost_noise)
        return Outcome(usual.reward, cost + exposure.cost_sensor, cost)


# %%
# Three policies, 40 seeds
# ------------------------

constants = {"reward_noise": 0.5, "cost_noise": 0.5, "coefficient_bound": 2, "context_bound": 1}
certified = SafetySpec(threshold=0.5, total_risk=0.05, **constants)
conformal = SafetySpec(threshold=0.5, violation_risk=0.05, guarantee="conformal", **constants)
policies = {
    "HP-UCB": (make_policy("hp_ucb"), certified, "#E69F00"),
    "HP-Probe": (make_policy("hp_probe"), certified, "#009E73"),
    "HP-Conformal": (make_policy("hp_conformal", start_dose=0.1), conformal, "#0072B2"),
}
found = compare(
    {name: policy for name, (policy, _, _) in policies.items()},
    LateCost(dim=3),
    [spec for _, spec, _ in policies.values()],
    rounds=1000,
    seeds=40,
)
runs = found.runs

# %%
# Paired differences
# ------------------
# The left panel compares each policy with HP-UCB on the same seed; the lines are 95 % intervals of the mean
# difference.

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
base = runs["HP-UCB"].reward[0]
rng = np.random.default_rng(0)
for place, name in enumerate(("HP-Probe", "HP-Conformal")):
    gain = runs[name].reward[0] - base
    error = 2.02 * gain.std(ddof=1) / np.sqrt(gain.size)
    left.plot(place + rng.uniform(-0.12, 0.12, gain.size), gain, ".", color=policies[name][2], alpha=0.5)
    left.errorbar(place, gain.mean(), error, color="black", marker="s", capsize=4)
left.axhline(0, color="grey", linewidth=1, linestyle="--")
left.set_xticks((0, 1), ("HP-Probe", "HP-Conformal"))
left.set(ylabel="reward in 1,000 rounds, minus HP-UCB's", xlim=(-0.5, 1.5), title="Gain on the same seed")
rates = [100 * run.violations.mean() / run.rounds for run in runs.values()]
bars = right.bar(list(runs), rates, 0.6, color=[colour for _, _, colour in policies.values()])
right.bar_label(bars, fmt="%.2f", padding=2)
right.axhline(5, color="black", linewidth=1)
right.annotate("risk stated in the spec", (-0.4, 5), xytext=(0, 3), textcoords="offset points", va="bottom")
right.set(ylabel="rounds above the threshold, %", ylim=(0, 6), title="Violations")
plt.show()

# %%
# In a world of your own nothing is proved, and the result says so: the bars are measurements, not guarantees.

runs["HP-Probe"]
