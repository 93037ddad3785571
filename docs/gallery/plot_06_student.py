"""
Learning fast: 200 patients
===========================

Small studies cannot wait. If the noise of the cost is Gaussian, of a size that nobody needs to know, and the mean
cost is linear, HP-Student gives the exact bound, as Student's t-test does. It earns most of the attainable reward
within 200 rounds.
"""

import matplotlib.pyplot as plt

from safedial import LinearWorld, SafetySpec, make_policy, simulate

# %%
# All policies play the same simulated rounds: five features, noise 0.3, and a risk of 5 % per round.

constants = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}
risks = {"threshold": 0.5, "violation_risk": 0.05}
student = SafetySpec(**risks, **constants, guarantee="student")
conformal = SafetySpec(**risks, **constants, guarantee="conformal")
certified = SafetySpec(**risks, **constants, estimation_risk=0.01)
runs = {
    "HP-Student: Gaussian noise, size unknown": (make_policy("hp_student", start_dose=0.05), student),
    "HP-Conformal: exchangeable rounds": (make_policy("hp_conformal", start_dose=0.05, groups="none"), conformal),
    "HP-Probe: noise at most 0.3": (make_policy("hp_probe"), certified),
    "HP-UCB, the paper's algorithm": (make_policy("hp_ucb", radius="paper"), certified),
}
results = {
    name: simulate(policy, LinearWorld(dim=5), spec, rounds=200, seeds=60) for name, (policy, spec) in runs.items()
}

# %%
# Reward against the number of patients
# -------------------------------------

colours = ("#CC79A7", "#0072B2", "#009E73", "#E69F00")
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, panel = plt.subplots(figsize=(7.5, 5.6), layout="constrained")
for (name, run), colour in zip(results.items(), colours, strict=True):
    share = run.reward_curve[:, 0].sum(axis=1) / run.exact_clairvoyant_reward_curve[:, 0].sum(axis=1)
    rate = run.violations.mean() / run.rounds
    panel.plot(run.checkpoints, 100 * share, color=colour, label=f"{name} ({rate:.1%} of costs exceed)")
first = next(iter(results.values()))
most = first.attainable_reward_curve[:, 0].sum(axis=1) / first.exact_clairvoyant_reward_curve[:, 0].sum(axis=1)
panel.plot(
    first.checkpoints, 100 * most, color="black", linestyle=":", label="attainable: the cost known, the reward learned"
)
panel.set(xlabel="patients so far", ylabel="reward, % of an all-knowing policy's", xlim=(1, 200), ylim=(0, 100))
panel.set_title("The more you can vouch for, the sooner a study pays")
figure.legend(frameon=False, fontsize=9, loc="outside lower center")
plt.show()

# %%
# Each line rests on another assumption. Where it is false, the guarantee is void: choose the line that you can vouch
# for.
