"""The eluder dimension of a function class, and Theorem 3's regret bound from it.

How many contexts in a row can surprise a learner that has seen all the earlier ones? Definition (Russo & Van Roy,
2013): x is ε′-independent of x₁ … x_m if some f, f′ in F have √Σ_j (f − f′)²(x_j) ≤ ε′ and (f − f′)(x) > ε′; dim_E(F,
ε) is the length of the longest sequence in which, for one ε′ ≥ ε, every element is ε′-independent of its
predecessors.

Every number says what it is: `exact`, `lower bound` or `upper bound`. Read `eluder_bound`,
`finite_eluder`, `search`, `linear_eluder`, `kernel_eluder`, `theorem3`.
"""

from safedial.theory.eluder_bound import Eluder, is_eluder_sequence
from safedial.theory.finite_eluder import eluder_dimension, finite_upper
from safedial.theory.kernel_eluder import kernel_lower, kernel_upper
from safedial.theory.linear_eluder import linear_lower, linear_upper
from safedial.theory.theorem3 import finite_radius, ridge_radius, theorem3_bound, width_sum

__all__ = [
    "Eluder",
    "eluder_dimension",
    "finite_radius",
    "finite_upper",
    "is_eluder_sequence",
    "kernel_lower",
    "kernel_upper",
    "linear_lower",
    "linear_upper",
    "ridge_radius",
    "theorem3_bound",
    "width_sum",
]
