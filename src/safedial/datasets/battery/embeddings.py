"""Vectors for context texts: numbers without any model, or vectors that a language model computed elsewhere.

Precomputed files (.npz: `embedding`, `battery`, `key`, `text_sha256`, and `block` for RW) are joined to the targets by
key and checked by the hash of the text: vectors of other texts, or of another version of the table, are refused.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.datasets.battery.context import HISTORY, Targets, context_texts, text_hash
from safedial.errors import InvalidInput, require

Array = NDArray[np.float64]

PRECOMPUTED = {
    "b": "battery_gemma3_270m_b.npz",
    "rw26": "battery_gemma3_270m_rw.npz",
    "rw": "battery_gemma3_270m_rw.npz",
}
NUMBERS = ("current", "v_start", "v_end", "dv", "temp_mean", "duration")
NEEDED = ("embedding", "battery", "key", "text_sha256")


def numeric(steps: Any, targets: Targets) -> Array:
    """Without a model: the numbers of the five steps, not yet standardised, (targets, 5 × 7)."""
    columns = [steps[name].to_numpy(dtype=float) for name in NUMBERS]
    columns.append(np.where(steps["kind"].to_numpy() == "discharge", 1.0, -1.0))
    table = np.stack(columns, axis=1)
    return table[targets.history].reshape(len(targets.rows), HISTORY * table.shape[1])


def precomputed(path: Path, steps: Any, targets: Targets) -> tuple[Array, Targets]:
    """The vectors in a file and their targets, in time order within each battery, checked by hash."""
    parts = _read(path)
    by_row = "row" in steps.columns
    rows = steps["row"].to_numpy() if by_row else steps["step"].to_numpy()
    block = steps["block"].to_numpy() if "block" in steps.columns else np.zeros(len(steps), dtype=np.int64)
    battery = steps["battery"].to_numpy()
    place = {
        (str(battery[row]), int(block[row]) if not by_row else 0, int(rows[row])): number
        for number, row in enumerate(targets.rows)
    }
    blocks = parts.get("block", np.zeros(len(parts["key"]), dtype=np.int64))
    names = zip(parts["battery"].tolist(), blocks.tolist(), parts["key"].tolist(), strict=True)
    found = np.array([place.get((str(name), int(part), int(key)), -1) for name, part, key in names])
    kept = np.flatnonzero(found >= 0)
    require(
        kept.size, "embeddings", path.name, "has no vector for any step of this table", "name the file of this source"
    )
    order = kept[np.argsort(found[kept], kind="stable")]
    chosen = Targets(targets.rows[found[order]], targets.history[found[order]])
    told = parts["text_sha256"][order]
    for number, text in enumerate(context_texts(steps, chosen)):
        hashed = text_hash(text).encode()
        same = hashed.startswith(bytes(told[number]))
        rule = f"was not computed from the text of step {int(chosen.rows[number])}"
        require(same, "embeddings", path.name, rule, "compute the vectors again from this table")
    return parts["embedding"][order].astype(np.float64), chosen


def _read(path: Path) -> dict[str, Any]:
    way_out = "use --embedder numeric, or name the data folder"
    require(path.is_file(), "embeddings", str(path), "there is no such file", way_out)
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            parts = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"embeddings = {path.name!r}: cannot be read ({error}); copy the file again") from error
    missing = [name for name in NEEDED if name not in parts]
    require(not missing, "embeddings", path.name, f"lacks {', '.join(missing)}")
    lengths = {len(parts[name]) for name in NEEDED}
    require(len(lengths) == 1 and np.all(np.isfinite(parts["embedding"])), "embeddings", path.name, "is not whole")
    return parts
