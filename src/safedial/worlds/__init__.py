"""Where outcomes come from. A world draws its truth and its rounds, and says what a dose brings."""

from __future__ import annotations

from safedial.worlds.linear import LinearWorld
from safedial.worlds.nonlinear import NonlinearWorld

World = LinearWorld | NonlinearWorld

__all__ = ["LinearWorld", "NonlinearWorld", "World"]
