"""Vectors on disk, by the SHA-256 of their text: computed once, always written whole, never mixed between models.

A folder for each embedder holds `label.json` (model, dimension, pooling, fingerprint) and parts, `<name>.npz` with the
hashes `key` (n, 32) and the vectors `vector` (n, dim) float32. A part is written to a temporary file and then moved
into place, so the folder holds only whole parts, however the program ends. A part that is damaged later fails its
checksum, and the error names it.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.datasets.battery.context import text_hash
from safedial.datasets.battery.embedder import Embedder
from safedial.errors import InvalidInput, is_whole, require
from safedial.io import write_bytes, write_text

Array = NDArray[np.float32]
SAVE_SECONDS = 10.0
"""Seconds after which finished vectors are written, plus the time of one batch."""


class Filled(NamedTuple):
    """The result of a call: the number of distinct texts, of those already present, and of those computed now."""

    folder: Path
    texts: int
    before: int
    computed: int


def fill_cache(
    embedder: Embedder,
    texts: Sequence[str],
    root: Path,
    *,
    batch_size: int = 16,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Filled:
    """Compute the missing vectors; finished ones are kept after any interruption.

    Args:
        embedder: its name is the folder's name under `root`; a folder with another model's vectors is refused.
        texts: in any order; equal texts are computed once.
        root: the cache folder.
        batch_size: texts per batch.
        limit: the largest number to compute now.
        progress: called with the number computed so far and the number to compute.
    """
    require(is_whole(batch_size), "batch_size", batch_size, "must be a whole number >= 1")
    require(limit is None or (is_whole(limit, 0)), "limit", limit, "must be a whole number >= 0")
    folder = _labelled_folder(embedder, root)
    wanted = {text_hash(text): text for text in texts}
    known = _read(folder, embedder.dim)
    missing = [key for key in wanted if key not in known]
    todo, waiting, saved = missing[:limit], {}, time.monotonic()
    if progress and todo:
        progress(0, len(todo))
    try:
        for start in range(0, len(todo), batch_size):
            keys = todo[start : start + batch_size]
            waiting.update(zip(keys, _checked(embedder, [wanted[key] for key in keys]), strict=True))
            if progress:
                progress(start + len(keys), len(todo))
            if time.monotonic() - saved >= SAVE_SECONDS:
                _write_part(folder, waiting)
                waiting, saved = {}, time.monotonic()
    finally:
        _write_part(folder, waiting)
    return Filled(folder, len(wanted), len(wanted) - len(missing), len(todo))


def cached_vectors(embedder: Embedder, texts: Sequence[str], root: Path) -> NDArray[np.float64]:
    """(texts, dim): the vector of every text; missing ones are computed."""
    known = _read(fill_cache(embedder, texts, root).folder, embedder.dim)
    return np.array([known[text_hash(text)] for text in texts], dtype=np.float64).reshape(len(texts), embedder.dim)


def _checked(embedder: Embedder, texts: list[str]) -> Array:
    vectors = np.asarray(embedder.embed(texts), dtype=np.float32)
    sound = vectors.shape == (len(texts), embedder.dim) and bool(np.all(np.isfinite(vectors)))
    rule = f"must give finite vectors of shape {(len(texts), embedder.dim)}, gave {vectors.shape}"
    require(sound, "embedder", embedder.name, rule)
    return vectors


def _labelled_folder(embedder: Embedder, root: Path) -> Path:
    folder = root / embedder.name
    path = folder / "label.json"
    way_out = f"name another folder with --cache or SAFEDIAL_CACHE, or remove {folder}"
    try:
        if not path.exists():
            unknown = next(folder.glob("*.npz"), None)
            require(unknown is None, "cache", str(folder), "holds vectors without a label.json", way_out)
            folder.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(embedder.label, indent=2) + "\n")
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cache = {str(folder)!r}: cannot be used ({error.strerror or error})") from error
    except ValueError as error:
        raise InvalidInput(f"cache = {str(folder)!r}: its label.json cannot be read ({error}); {way_out}") from error
    label = embedder.label
    told = told if isinstance(told, dict) else {}
    other = [f"{name} {told.get(name)!r}, not {value!r}" for name, value in label.items() if told.get(name) != value]
    require(not other, "cache", str(folder), "holds vectors of another model: " + "; ".join(other), way_out)
    return folder


def _read(folder: Path, dim: int) -> dict[str, Array]:
    known: dict[str, Array] = {}
    for path in sorted(folder.glob("*.npz")):
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
                keys, vectors = archive["key"], archive["vector"]
            if keys.shape != (len(vectors), 32) or vectors.shape[1:] != (dim,):
                raise ValueError(f"shapes {keys.shape} and {vectors.shape}")
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            way_out = "remove this file to compute its vectors again"
            raise InvalidInput(f"cache = {str(path)!r}: is damaged or cut short ({error}); {way_out}") from error
        known.update(zip((bytes(key).hex() for key in keys), vectors, strict=True))
    return known


def _write_part(folder: Path, vectors: dict[str, Array]) -> None:
    if not vectors:
        return
    content = io.BytesIO()
    keys = np.frombuffer(bytes.fromhex("".join(vectors)), dtype=np.uint8).reshape(-1, 32)
    np.savez(content, key=keys, vector=np.stack(list(vectors.values())))
    write_bytes(folder / f"{hashlib.sha256(keys.tobytes()).hexdigest()[:24]}.npz", content.getvalue())
