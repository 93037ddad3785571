"""The embedders that read texts, in one list.

To add one, put a function into `EMBEDDERS` that returns an `Embedder`:

>>> import numpy as np
>>> def lengths(weights, cache):
...     embed = lambda texts: np.array([[len(text)] for text in texts], dtype=np.float32)
...     return Embedder("lengths", dim=1, pooling="none", fingerprint="1", embed=embed)
>>> EMBEDDERS["lengths"] = lengths
>>> open_embedder("lengths").embed(["a", "four"]).tolist()
[[1.0], [4.0]]
>>> del EMBEDDERS["lengths"]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from safedial.datasets.battery.embedder import Embedder
from safedial.datasets.battery.language_models import gemma3_270m, gemma_2b, minilm
from safedial.errors import require

Opener = Callable[[Path | None, Path], Embedder]
"""(folder of weights, or None for the usual ones; folder for caches) → embedder."""

EMBEDDERS: dict[str, Opener] = {"gemma3-270m": gemma3_270m, "minilm": minilm, "gemma-2b": gemma_2b}
"""Name → opener, of every embedder that reads texts."""


def cache_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The cache of vectors: `folder`, else SAFEDIAL_CACHE, else `safedial` in the user's cache."""
    given = folder or os.environ.get("SAFEDIAL_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "safedial"


def open_embedder(name: str, *, weights: Path | None = None, cache: Path | None = None) -> Embedder:
    """The embedder with this name.

    Args:
        name: one of `EMBEDDERS`.
        weights: a folder with a model of the same architecture, in place of the usual weights.
        cache: where assembled weights are kept; default: `cache_folder()`.

    Raises:
        InvalidInput: there is no such embedder, or its weights are missing.
        MissingExtra: a package is missing; the message says how to install it.
    """
    require(name in EMBEDDERS, "embedder", name, "must be one of " + ", ".join(EMBEDDERS))
    require(weights is None or weights.is_dir(), "weights", str(weights), "there is no such folder")
    return EMBEDDERS[name](weights, cache or cache_folder())
