"""A policy of the package as a record whose functions a test may exchange, as a user's own `Policy` is."""

from safedial import Policy


def record(policy, **changes):
    made = Policy(policy.name, policy.label, policy.guarantee, policy.decide, dict(policy.options))
    return made._replace(**({"randomised": policy.randomised, "learns": policy.learns} | changes))
