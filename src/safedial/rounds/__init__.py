"""The life of a round: decided, open, told; learned from and watched. `Agent` is that life in memory.

    question ─► validation ─► learner ─► policy ─► decision ─► certificate
    outcome  ─► outcome ─► learner, watch

Read rules, decision, outcome, learner, kinds and agent in this order; then the learner of one family with its terms.
"""
