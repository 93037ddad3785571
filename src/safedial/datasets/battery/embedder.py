"""What turns context texts into vectors, as a small record. docs/battery.md says how to add one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Embedder:
    """A model that turns texts into vectors.

    Attributes:
        name: as on the command line.
        dim: numbers in a vector.
        pooling: how the vectors of a text's tokens become one.
        fingerprint: identifies weights, tokens and configuration; if it differs, so do the vectors of a text.
        embed: from n texts to (n, dim) float32. The first call loads the model.
    """

    name: str
    dim: int
    pooling: str
    fingerprint: str
    embed: Callable[[Sequence[str]], NDArray[np.float32]]

    @property
    def label(self) -> dict[str, str | int]:
        """The description stored with a cache of its vectors."""
        return {"model": self.name, "dim": self.dim, "pooling": self.pooling, "fingerprint": self.fingerprint}
