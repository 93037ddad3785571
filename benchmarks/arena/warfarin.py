"""Warfarin: patients of the International Warfarin Pharmacogenetics Consortium, read from a folder that the user names.

`warfarin_iwpc.csv` (PharmGKB, CC BY-SA 4.0; N Engl J Med 2009;360:753-64) has one patient a row and what each turned
out to need, `dose_mg_week`. The cost is dose/need, the protocol the consortium's published algorithm.
"""

from __future__ import annotations

import csv
import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arena.arena_world import ArenaWorld, Array, Outcome
from benchmarks.arena.clinic import HIGHEST, Rounds, bound, standardised
from safedial.errors import require
from safedial.model.brackets import relative

FILE = "warfarin_iwpc.csv"
VKORC1 = {"A/G": -0.8677, "G/A": -0.8677, "A/A": -1.6974, "": -0.4854}
CYP2C9 = {"*1/*2": -0.5211, "*1/*3": -0.9357, "*2/*2": -1.0616, "*2/*3": -1.9206, "*3/*3": -2.3312, "": -0.2188}
RACE = {"Asian": -0.1092, "Black": -0.2760, "Black or African American": -0.2760, "White": 0.0, "Caucasian": 0.0}
MIXED = -0.1032
INDUCERS = ("carbamazepine", "phenytoin", "rifampin")
COLUMNS = ("race", "age_decade", "height_cm", "weight_kg", "amiodarone", *INDUCERS)
COLUMNS += ("dose_mg_week", "vkorc1_1639", "cyp2c9")
NEAR = 0.2
"""A dose within this share of the need is called near it."""
ONE_DOSE = 35.0
"""mg a week for everybody: 5 mg a day."""


def read_patients(folder: str | Path) -> list[dict[str, str]]:
    """The patients with a known need."""
    path = Path(folder) / FILE
    require(path.is_file(), "--data", str(folder), f"has no {FILE}", "name the folder that holds it")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    missing = sorted(set(COLUMNS) - set(rows[0] if rows else ()))
    require(not missing, "--data", str(path), f"lacks the columns {', '.join(missing)}", "use the file as distributed")
    return [row for row in rows if row["dose_mg_week"]]


def numbers(rows: list[dict[str, str]], name: str) -> Array:
    """A column; the mean of the known values where one is missing."""
    text = [row[name].partition("-")[0].strip().rstrip("+") if name == "age_decade" else row[name] for row in rows]
    values = np.array([float(each) if each else np.nan for each in text])
    return np.where(np.isnan(values), np.nanmean(values), values)


def published_dose(rows: list[dict[str, str]]) -> Array:
    """The consortium's pharmacogenetic algorithm, mg a week."""
    taken = {name: np.array([row[name] in ("1", "1.0") for row in rows]) for name in ("amiodarone", *INDUCERS)}
    root = 5.6044 - 0.2614 * numbers(rows, "age_decade") / 10.0
    root += 0.0087 * numbers(rows, "height_cm") + 0.0128 * numbers(rows, "weight_kg")
    root += np.array([VKORC1.get(row["vkorc1_1639"], 0.0) for row in rows])
    root += np.array([CYP2C9.get(row["cyp2c9"], 0.0) for row in rows])
    root += np.array([RACE.get(row["race"], MIXED) for row in rows])
    induced = np.any([taken[name] for name in INDUCERS], axis=0)
    return (root + 1.1816 * induced - 0.5503 * taken["amiodarone"]) ** 2


def contexts(rows: list[dict[str, str]], dose: Array) -> Array:
    """What the algorithm uses, standardised, and the logarithm of its dose."""
    genes = [np.array([table.get(row[name], 0.0) for row in rows]) for name, table in _GENES.items()]
    taken = np.array([row["amiodarone"] in ("1", "1.0") for row in rows], dtype=float)
    columns = [
        (np.log(dose), 3.4, 0.35),
        (numbers(rows, "age_decade"), 60.0, 15.0),
        (numbers(rows, "height_cm"), 168.0, 11.0),
        (numbers(rows, "weight_kg"), 78.0, 22.0),
        (genes[0], -0.8, 0.6),
        (genes[1], -0.2, 0.4),
        (np.array([row["race"] == "Asian" for row in rows], dtype=float), 0.3, 0.45),
        (taken, 0.05, 0.25),
    ]
    return standardised(columns)


_GENES: dict[str, dict[str, float]] = {"vkorc1_1639": VKORC1, "cyp2c9": CYP2C9}


class Clinic(Rounds):
    """The patients in an order of its own for every seed."""

    def __init__(self, table: tuple[Array, Array, Array], seeds: list[int], rounds: int) -> None:
        context, dose, need = table
        order = np.stack([np.random.default_rng([seed, 9]).permutation(len(need))[:rounds] for seed in seeds], axis=-1)
        self.doses, self.need = dose[order], need[order]
        super().__init__(context[order], {"one_dose": np.minimum(ONE_DOSE / HIGHEST / self.doses, 1.0)})

    def act(self, setting: Array) -> Outcome:
        dose, need = HIGHEST * setting * self.doses[self.place], self.need[self.place]
        share = dose / need
        near = (np.abs(share - 1.0) <= NEAR).astype(float)
        self.next()
        given = np.minimum(share, 1.0)
        return Outcome(given, share, given, measures={"mean_dose_mg_week": dose, "within_20_percent_of_need": near})


def warfarin(risk: float, *, data: str | Path) -> ArenaWorld:
    rows = read_patients(data)
    dose = published_dose(rows)
    found: tuple[Any, ...] = (contexts(rows, dose), dose, numbers(rows, "dose_mg_week"))
    return ArenaWorld(
        name="warfarin",
        dim=found[0].shape[1],
        threshold=1.25,
        begin=partial(Clinic, found),
        growth=relative(1.0, 1.0, floor=0.0),
        start_scale=0.25,
        start=0.25 / HIGHEST,
        context_bound=bound(found[0].shape[1] - 1),
        unit="share of the need that is given",
        stated={"one_dose": 0.5},
        most_rounds=len(rows),
    )


def digest(data: str | Path) -> str:
    """The digest of the file, so that results of another one are not taken for its own."""
    return hashlib.sha256((Path(data) / FILE).read_bytes()).hexdigest()[:16]
