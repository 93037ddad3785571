"""
Something changed: the monitor
==============================

Every guarantee rests on assumptions, and the world may leave them. An ``Agent`` watches its own outcomes. It bets
against the guarantee, round by round, with odds that are fair while the guarantee holds. Another bet is against the
stated noise. Evidence of 100 stops the agent: it advises its fallback until a person resumes it. While every
assumption holds, each bet stops it falsely with probability at most 1 % plus twice the estimation risk, over all
time.
"""

import matplotlib.pyplot as plt
import numpy as np

from safedial import Agent, SafetySpec

spec = SafetySpec(
    threshold=0.5, total_risk=0.05, reward_noise=0.1, cost_noise=0.1, coefficient_bound=1, context_bound=1
)
agent = Agent(2, spec, fallback_action=0.0)

# %%
# A machine that ages
# -------------------
# From round 300 on, the cost of the same setting is two thirds higher than it was.

rng = np.random.default_rng(4)
rounds = 450
setting, cost, evidence = np.full((3, rounds), np.nan)
stopped_at = None
for index in range(rounds):
    context = rng.uniform(0.3, 0.7, 2)
    decision = agent.ask(context)
    level = context @ [0.5, 0.4] * (1 if index < 300 else 1.67) + rng.normal(0, 0.1)
    setting[index], cost[index] = decision.action, decision.intensity * level
    agent.tell(decision, reward=decision.intensity * (context.sum() + rng.normal(0, 0.1)), cost=cost[index])
    evidence[index] = max(agent.evidence, agent.noise_evidence)
    if agent.stop_reason and stopped_at is None:
        stopped_at = index + 1

# %%
# Costs, evidence, and the stop
# -----------------------------

plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5.2), sharex=True, layout="constrained")
numbers = np.arange(1, rounds + 1)
above.plot(numbers, cost, ".", color="#0072B2", markersize=4)
above.plot(numbers[cost > 0.5], cost[cost > 0.5], "X", color="#D55E00")
above.axhline(0.5, color="black", linewidth=1)
above.annotate("threshold", (1, 0.5), xytext=(0, 3), textcoords="offset points", va="bottom")
above.set(ylabel="realized cost", ylim=(-0.02, None), title="Costs, and the fallback (0) after the stop")
below.semilogy(numbers, np.maximum(evidence, 1e-3), color="#CC79A7")
below.axhline(100, color="black", linewidth=1)
below.annotate("stop", (1, 100), xytext=(0, 3), textcoords="offset points", va="bottom")
below.set(xlabel="round", ylabel="evidence", title="Evidence against the guarantee or the stated noise")
for panel in (above, below):
    panel.axvline(300, color="grey", linestyle="--", linewidth=1)
    if stopped_at:
        panel.axvline(stopped_at, color="#D55E00", linewidth=1)
below.annotate("the machine changes", (300, 30), xytext=(-4, 0), textcoords="offset points", ha="right", color="grey")
if stopped_at:
    below.annotate(
        f"stopped in round {stopped_at}", (stopped_at, 0.05), xytext=(4, 0), textcoords="offset points", color="#D55E00"
    )
plt.show()

# %%

print(agent.ask([0.5, 0.5]).explain())
