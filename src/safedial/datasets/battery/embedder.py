"""What turns context texts into vectors, as a small record. docs/battery.md says how to add one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Embedder:
    """A model as this project sees it.

    Attributes:
        name: as on the command line.
        dim: numbers in a vector.
        pooling: how the vectors of a text's tokens become one.
        fingerprint: of weights, tokens and configuration; another one means other vectors for the same text.
        embed: from n texts to (n, dim) float32. A model is loaded at its first call.
    """

    name: str
    dim: int
    pooling: str
    fingerprint: str
    embed: Callable[[Sequence[str]], NDArray[np.float32]]

    @property
    def label(self) -> dict[str, str | int]:
        """What a cache of its vectors says about them."""
        return {"model": self.name, "dim": self.dim, "pooling": self.pooling, "fingerprint": self.fingerprint}
