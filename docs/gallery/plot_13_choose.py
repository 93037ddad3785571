"""
Choose a policy
===============

``choose`` asks what you can vouch for and simulates every policy whose assumptions you named, in your plan. Here are
three teams with the same plan (200 rounds, three features, a risk of 5 %) and different knowledge.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import choose

plan = {"threshold": 0.5, "rounds": 200, "dim": 3, "start": 0.05, "risk": 0.05, "seeds": 20}
constants = {"cost_noise": 0.3, "reward_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}
teams = {
    "knows: exchangeable rounds": {"exchangeable": True},
    "knows: linear cost, bounds on the noise": {"linear": True, "noise": "constants", "constants": constants},
    "knows: linear cost, Gaussian noise": {"linear": True, "noise": "gaussian", "constants": constants},
}
rankings = {name: choose(curve="exact", **knows, **plan) for name, knows in teams.items()}

# %%
# What each team may use, and what it earns
# -----------------------------------------
# The lines hold eight of ten studies.

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, panel = plt.subplots(figsize=(8, 4.6), layout="constrained")
names, place = [], 0
for (team, ranking), colour in zip(rankings.items(), ("#0072B2", "#E69F00", "#009E73"), strict=True):
    offers = [offer for offer in ranking.offers if offer.forecast][:3]
    shares = np.array([[offer.forecast.share, offer.forecast.study_low, offer.forecast.study_high] for offer in offers])
    middle, low, high = 100 * shares.T
    places = place + np.arange(len(offers))
    panel.barh(places, middle, 0.7, xerr=(middle - low, high - middle), color=colour, capsize=3, label=team)
    names += [offer.name for offer in offers]
    place += len(offers)
panel.set_yticks(np.arange(place), names)
panel.invert_yaxis()
panel.set(
    xlabel="reward, % of an all-knowing policy's", xlim=(0, 100), title="The best policies of each team, 200 rounds"
)
figure.legend(loc="outside lower center", ncols=1, frameon=False)
plt.show()

# %%
# The answer names the guarantee and what it rests on, and says what would have to be known for the policies that are
# not offered.

rankings["knows: linear cost, Gaussian noise"]
