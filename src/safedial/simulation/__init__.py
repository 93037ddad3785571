"""Simulated rounds: worlds, the loop over rounds in NumPy and JAX, exact replay, comparisons and sweeps.

Read world, rule, loop and run in this order; the JAX engine plays the same `rule`, and replay the linear one alone.
"""
