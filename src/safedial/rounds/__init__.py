"""Decisions, one at a time.

    question ─► validation ─► learning: policy.begin, bound, choose ─► decision ─► certificate
    outcome  ─► outcome ─► learning: policy.tell; watch

Read rules, decision, outcome, learning and agent in this order; then the policy of one family.
"""
