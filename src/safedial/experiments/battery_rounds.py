"""The rounds of the battery experiment, one source's steps with their doses, outcomes and contexts, and the truth
fitted to them.

* dose: |current|/`LARGEST_CURRENT`, so that 1 is the largest current of the experiments.
* reward: the voltage change of the step (charging raises it); cost: its largest temperature less its first.
* context: the vector of the text about the five steps before, centred and whitened, and three numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.datasets.battery import data_folder, load_steps
from safedial.datasets.battery.cache import Filled, cached_vectors, fill_cache
from safedial.datasets.battery.context import Targets, context_texts, find_targets
from safedial.datasets.battery.embedders import EMBEDDERS, cache_folder, open_embedder
from safedial.datasets.battery.embeddings import PRECOMPUTED, numeric, precomputed
from safedial.datasets.battery.whitening import halves, make_contexts
from safedial.errors import require
from safedial.progress import Bar, late_bar, no_bar

Array = NDArray[np.float64]

LARGEST_CURRENT = {"b": 4.0, "b_mat": 4.0, "rw26": 5.0, "rw9_12": 5.0, "rw": 5.0, "rw_mat": 5.0}
SOURCES = tuple(LARGEST_CURRENT)
SHORTEST, LONGEST = 10.0, 600.0
"""Shorter steps (noise), longer steps (reference cycles of hours) and voltage jumps above 1 V are left out."""

FLOOR = 0.3
TRUTH_RIDGE = 30.0
NO_MODEL = ("precomputed", "numeric")
"""The sources of vectors that need no model; the others are in `EMBEDDERS`."""


class Rounds(NamedTuple):
    """The rounds of one source: contexts of both parts, logged doses and outcomes, which part is for fitting, and the
    label of the model that computed the vectors.
    """

    context: Array
    dose: Array
    reward: Array
    cost: Array
    fit: Any
    battery: Any
    shortened: float
    sources: dict[str, int]
    vectors: dict[str, Any]


def load_rounds(
    data: str | Path | None,
    source: str,
    embedder: str = "precomputed",
    *,
    split: str = "battery",
    floor: float = FLOOR,
    weights: Path | None = None,
    cache: Path | None = None,
) -> Rounds:
    """Read, embed, whiten and split one source."""
    check_choice(source, embedder)
    folder = data_folder(data)
    steps = load_steps(folder, source)
    targets = find_targets(steps)
    label: dict[str, Any] = {}
    if embedder == "numeric":
        vectors = numeric(steps, targets)
    elif embedder == "precomputed":
        vectors, targets = precomputed(_precomputed_file(folder, source), steps, targets)
    else:
        root = cache_folder(cache)
        opened = open_embedder(embedder, weights=weights, cache=root)
        vectors, label = cached_vectors(opened, context_texts(steps, targets), root), dict(opened.label)
    return _rounds(steps, targets, vectors, source, split=split, floor=floor)._replace(vectors=label)


def embed_source(
    data: str | Path | None,
    source: str,
    embedder: str,
    *,
    weights: Path | None = None,
    cache: Path | None = None,
    batch_size: int = 16,
    limit: int | None = None,
    bar: Bar = no_bar,
) -> Filled:
    """Add the missing vectors of a source's context texts to the cache."""
    require(source in SOURCES, "source", source, "must be one of " + ", ".join(SOURCES))
    folder, root = data_folder(data), cache_folder(cache)
    opened = open_embedder(embedder, weights=weights, cache=root)
    steps = load_steps(folder, source)
    texts = context_texts(steps, find_targets(steps))
    with late_bar(bar, lambda total: f"{embedder}, {total:,} texts") as progress:
        return fill_cache(opened, texts, root, batch_size=batch_size, limit=limit, progress=progress)


def check_choice(source: str, embedder: str) -> None:
    """Refuse an unknown source or embedder."""
    known = (*NO_MODEL, *EMBEDDERS)
    require(source in SOURCES, "source", source, "must be one of " + ", ".join(SOURCES))
    require(embedder in known, "embedder", embedder, "must be one of " + ", ".join(known))


def _precomputed_file(folder: Path, source: str) -> Path:
    way_out = "use --embedder numeric, or one that runs a model: " + ", ".join(EMBEDDERS)
    require(source in PRECOMPUTED, "embedder", "precomputed", f"has no vectors for source {source}", way_out)
    return folder / PRECOMPUTED[source]


def _rounds(steps: Any, targets: Targets, vectors: Array, source: str, *, split: str, floor: float) -> Rounds:
    told, last = steps.iloc[targets.rows], steps.iloc[targets.history[:, 0]]
    rise = (told["temp_max"] - told["temp_start"]).to_numpy(dtype=float)
    length, change = told["duration"].to_numpy(dtype=float), told["dv"].to_numpy(dtype=float)
    used = (length >= SHORTEST) & (length <= LONGEST) & np.isfinite(rise) & np.isfinite(change)
    used &= np.all(np.isfinite(vectors), axis=1) & (np.abs(change) <= 1.0)
    require(used.any(), "source", source, "has no steps of usual length")
    told, last, vectors = told[used], last[used], vectors[used]
    fit = halves(told["group"].to_numpy(), told["start"].to_numpy(), split)
    temperature = last["temp_mean"].to_numpy(dtype=float)
    made = make_contexts(vectors, told["kind"].to_numpy(), temperature, fit, floor=floor)
    dose = np.minimum(np.abs(told["current"].to_numpy(dtype=float)) / LARGEST_CURRENT[source], 1.0)
    counts = told["source"].value_counts()
    kinds = {str(name): int(counts[name]) for name in counts.index}
    battery = told["battery"].to_numpy()
    return Rounds(made.rows, dose, change[used], rise[used], fit, battery, made.shortened, kinds, {})


class Truth(NamedTuple):
    """Coefficients treated as true, in units of (volts, degrees) `units`; noises; R² of (fit, other part) each."""

    reward_coef: Array
    cost_coef: Array
    reward_noise: float
    cost_noise: float
    units: tuple[float, float]
    fits: dict[str, tuple[float, float]]

    @property
    def bound(self) -> float:
        return float(max(np.linalg.norm(self.reward_coef), np.linalg.norm(self.cost_coef)))


def fit_truth(rounds: Rounds) -> Truth:
    """Ridge regression of outcomes on dose × context, on the fit part; R² on both parts."""
    rows = rounds.context * rounds.dose[:, None]
    fit = rounds.fit
    gram = rows[fit].T @ rows[fit] + TRUTH_RIDGE * np.eye(rows.shape[1])
    coefs, noises, units, fits = [], [], [], {}
    for name, outcome in (("reward", rounds.reward), ("cost", rounds.cost)):
        coef = np.linalg.solve(gram, rows[fit].T @ outcome[fit])
        residual = outcome - rows @ coef
        unit = float(np.quantile(np.abs(rounds.context[fit] @ coef), 0.99))
        noise = np.sqrt(np.mean(residual[fit] ** 2) / np.mean(rounds.dose[fit] ** 2))
        coefs.append(coef / unit)
        noises.append(float(noise / unit))
        units.append(unit)
        fits[name] = (_share(outcome, residual, fit), _share(outcome, residual, ~fit))
    return Truth(coefs[0], coefs[1], noises[0], noises[1], (units[0], units[1]), fits)


def _share(outcome: Array, residual: Array, part: Any) -> float:
    return float(1.0 - np.sum(residual[part] ** 2) / np.sum((outcome[part] - outcome[part].mean()) ** 2))
