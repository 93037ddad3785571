"""Exact replay: what a linear policy would have done, round by round, on contexts that are known in advance.

Four engines, one answer, different cost for each round at dimension d:

| engine | how | arithmetic |
|---|---|---|
| `reference` | a fresh Cholesky factor each round, the paper's way | d³/3 |
| `rank_one` | Sherman–Morrison on a kept Σ⁻¹ | 4d², bound by memory |
| `blocked` | blocks of rounds by matrix products (`replay.blocked`) | 3d², at the speed of a matrix product |
| `jax` | `blocked` in JAX, for CPU and GPU | 4d² |

The package can be called: `safedial.replay(...)` is `safedial.replay.replay(...)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from safedial.replay.record import Replay
from safedial.replay.run import replay

__all__ = ["Replay", "replay"]


class _Callable(ModuleType):
    """So that `safedial.replay` is the function, whichever of its modules was imported before."""

    def __call__(self, *positional: Any, **named: Any) -> Replay:
        return replay(*positional, **named)


sys.modules[__name__].__class__ = _Callable
