"""Exact replay: what a linear policy would have done, round by round, on contexts known in advance.

Four engines give the same answer at different costs per round, for dimension d:

| engine | how | arithmetic |
|---|---|---|
| `reference` | a new Cholesky factor each round, as in the paper | d³/3 |
| `rank_one` | Sherman–Morrison on a kept Σ⁻¹ | 4d², bound by memory |
| `blocked` | blocks of rounds by matrix products (`blocked`) | 3d², at the speed of a matrix product |
| `jax` | `blocked` in JAX, for CPU and GPU | 4d² |
"""

from safedial.replay_engines.dispatch import replay
from safedial.replay_engines.record import Replay

__all__ = ["Replay", "replay"]
