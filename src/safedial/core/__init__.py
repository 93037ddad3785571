"""The rule: pure functions that broadcast, on NumPy arrays, JAX arrays and plain floats alike.

Read in this order: `spec`, `dose`, `estimate`, `confidence`, `safe_set`, `action`; then `rounding`
(what floating point may do to the promise, and why it cannot break it) and `monitor`.
"""
