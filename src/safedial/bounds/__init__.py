"""The theorems as pure functions: estimates, radii, margins, the safe set, ranks, counts, t-laws and monitors.

They broadcast, on NumPy arrays, JAX arrays and plain floats alike (model.namespace), and hold no state. Each file
states its theorem, or where to read it, above the code that computes it.
"""
