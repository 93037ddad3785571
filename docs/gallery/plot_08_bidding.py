"""
Bidding with a daily budget
===========================

An advertiser sets one bid factor per day. The day's spend must not exceed 1,000 euros, except on one day of 20. Spend
depends on traffic and on competitors, with heavy tails, and grows at least in proportion to the square root of the
bid, at most with its cube.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import Agent, Dial, Features, SafetySpec, growth, make_policy

# %%
# The usual bid for the day comes from a rule (the feature ``usual``). Half of it has never been too much.

spec = SafetySpec(threshold=1000, violation_risk=0.05, guarantee="bracket")
bracket = growth.relative(0.5, 3.0, floor=50)
policy = make_policy("hp_shield", base="usual", growth=bracket, start_scale=0.5)
agent = Agent(1, spec, policy=policy, dial=Dial(high=10, unit="EUR"), features=Features(names=("usual",)))

# %%
# Two years of simulated days. The elasticity of each day lies inside the bracket and is unknown.

rng = np.random.default_rng(8)
days = 730
spend, by_rule, factor = np.empty((3, days))
for day in range(days):
    usual, traffic, elasticity = rng.uniform(1, 3), rng.lognormal(6.1, 0.35), rng.uniform(0.7, 2.2)
    decision = agent.ask({"usual": usual})
    factor[day] = decision.action / usual
    spend[day] = traffic * factor[day] ** elasticity
    by_rule[day] = traffic * 1.5**elasticity
    agent.tell(decision, reward=0.0, cost=spend[day])

# %%
# Spend in order of size
# ----------------------
# Beside it, what a manager's fixed factor of 1.5 would have spent on the same days.

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
share = 100 * np.arange(1, days + 1) / days
for values, name, colour in ((by_rule, "always 1.5 times the usual bid", "#D55E00"), (spend, "HP-Shield", "#0072B2")):
    label = f"{name}: {np.mean(values > 1000):.1%} of days exceed"
    left.plot(np.sort(values), share, color=colour, label=label)
left.plot([1000, 1000], [0, 100], color="black", linewidth=1)
left.axhline(95, color="grey", linewidth=1, linestyle="--")
left.annotate("19 days of 20", (80, 95), xytext=(0, -3), textcoords="offset points", va="top", color="grey")
left.set(xscale="log", xlabel="spend on a day, EUR", ylabel="share of days that spend less, %", ylim=(0, 130))
left.set_yticks(range(0, 101, 25))
left.set_title("The budget is kept on 19 days of 20")
left.legend(frameon=False, loc="upper left", fontsize=9)
right.plot(np.arange(1, days + 1), factor, color="#009E73")
right.set(xlabel="day", ylabel="bid ÷ usual bid", ylim=(0, None), title="The bid factor")
plt.show()

# %%
# A wide bracket is safe and costs some spend; a narrow one that is false would cost the guarantee.
