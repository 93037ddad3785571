"""A grid file: every value that is a list is an axis, and the cells are all combinations.

    [sweep]                     [spec]                          [[policy]]
    name = "thresholds"         threshold = [0.1, 0.5]          name = "hp_ucb"
    rounds = 10000              violation_risk = 0.01           radius = ["paper", "mixture"]
    seeds = 30                  estimation_risk = 0.01
    seed_block = 10             reward_noise = 1.0              [[policy]]
    engine = "numpy"                                            (engine, device, draws and dtype: of `simulate`)
                                cost_noise = 1.0                name = "hp_probe"
    [world]                     coefficient_bound = 1.0
    dim = [5, 10]               context_bound = 1.0             [dose]          (optional)
                                                                curve = "hill"  ed50 = 0.5
[dose.reward] and [dose.cost] instead of [dose] give each its own curve. A spec file is a grid of one cell.
[world] has the fields of `LinearWorld`; with `kind`, of `NonlinearWorld`; with `curve`, of `DoseResponseWorld`; with
`name = "module:factory"`, of your own, and so for a policy. `seeds` is a count, a list, or a range such as "0:100".
One cell is one policy, one spec, one world and one block of seeds.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from safedial.core.confidence import check_dim
from safedial.decision.rules import read_parts, shortest_dose, write_parts
from safedial.errors import InvalidInput, is_whole, require
from safedial.own_names import plain_arguments, source_digest
from safedial.seeds import as_seeds
from safedial.simulation.engines import USUAL, check_engine
from safedial.simulation.own_policy import find_policy
from safedial.worlds import world_from_dict

FORMAT = 2
"""Part of every cell's name. Raise it when results change; old files then no longer count."""

SWEEP_DEFAULTS: dict[str, Any] = {"name": "sweep", "rounds": 10_000, "seeds": 5, "seed_block": 10, "points": 20} | USUAL
TABLES = ("sweep", "spec", "world", "policy", "dose", "features", "dial", "labels")
"""A spec file is a grid of one cell; its [features], [dial] and [labels] say nothing about a simulation."""


@dataclass(frozen=True)
class Grid:
    """A parsed grid file: its text, its name and its resolved cells."""

    name: str
    text: str
    cells: tuple[dict[str, Any], ...]


def cell_key(cell: Mapping[str, Any]) -> str:
    """The name of a cell's file: a hash of everything that determines its result."""
    canonical = json.dumps({"format": FORMAT, **cell}, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def bundled() -> dict[str, Path]:
    """The grid files that ship with the package, by name."""
    folder = Path(str(files("safedial").joinpath("grids")))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_grid(source: str | Path) -> Grid:
    """A grid from a file, or one of the bundled grids by its name."""
    path = Path(source)
    if not path.exists() and str(source) in bundled():
        path = bundled()[str(source)]
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        names = ", ".join(bundled())
        raise InvalidInput(f"grid = {str(source)!r}: cannot be read ({error}); bundled grids are {names}") from error
    return parse_grid(text)


def parse_grid(text: str) -> Grid:
    """Check a grid's text and resolve its cells; the first mistake is named with its table and key."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"grid: is not valid TOML ({error})") from error
    unknown = sorted(set(content) - set(TABLES))
    require(not unknown, "grid", unknown, "has unknown tables", "use " + ", ".join(f"[{name}]" for name in TABLES))
    for table in ("spec", "world"):
        require(isinstance(content.get(table), dict), f"[{table}]", content.get(table), "is missing or not a table")
    policies = content.get("policy")
    listed = isinstance(policies, list) and policies and all(isinstance(each, dict) for each in policies)
    require(listed, "[[policy]]", policies, "must be given at least once", 'for example name = "hp_ucb"')
    settings = _settings(content.get("sweep", {}))
    cells = tuple(_cells(settings, content))
    require(cells, "grid", settings["name"], "has no cells: a list in it is empty")
    seen: set[str] = set()
    for cell in cells:
        key = cell_key(cell)
        require(key not in seen, "grid", cell, "has the same cell twice", "drop the repeated value or policy")
        seen.add(key)
    return Grid(settings["name"], text, cells)


def build(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The objects that a cell describes: arguments of `simulate`. What is the user's own is imported here and now, and
    must be what it was when the grid was read.
    """
    arguments = dict(cell)
    for name, digest in arguments.pop("source", {}).items():
        way_out = "give every worker the same file, and run the sweep again"
        require(source_digest(name) == digest, "name", name, f"comes from another file in {os.getcwd()}", way_out)
    parts = read_parts({**arguments, "policy": find_policy(cell["policy"])})
    return {**arguments, **parts, "world": world_from_dict(cell["world"])}


def _settings(given: Any) -> dict[str, Any]:
    require(isinstance(given, dict), "[sweep]", given, "must be a table")
    for key, value in given.items():
        require(key in SWEEP_DEFAULTS, f"[sweep] {key}", value, "is not a key of [sweep]", ", ".join(SWEEP_DEFAULTS))
        if key == "name" or key in USUAL:
            require(isinstance(value, str), f"[sweep] {key}", value, "must be text")
        elif key == "seeds":
            as_seeds(value, "[sweep] seeds")
        else:
            require(is_whole(value), f"[sweep] {key}", value, "must be a whole number >= 1")
    settings = SWEEP_DEFAULTS | given
    check_engine(settings)
    return settings


def _cells(settings: dict[str, Any], content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All combinations, each checked by building its objects once."""
    size, seeds = settings["seed_block"], as_seeds(settings["seeds"])
    blocks = [seeds[start : start + size] for start in range(0, len(seeds), size)]
    table = content.get("dose", {})
    require(isinstance(table, dict), "[dose]", table, "must be a table")
    doses = _doses(table or {"curve": "identity"})
    # The usual engine is left out, as any other option of `simulate` that has its default.
    engine = {name: settings[name] for name, usual in USUAL.items() if settings[name] != usual}
    for policy, spec, world, dose in product(
        [each for table in content["policy"] for each in _combinations(table)],
        _combinations(content["spec"]),
        _combinations(content["world"]),
        doses,
    ):
        cell = {"policy": policy, "spec": spec, "world": world, "dose": dose}
        cell |= {"rounds": settings["rounds"], "points": settings["points"]}
        resolved = _resolve(cell)
        for block in blocks:
            yield {**resolved, **engine, "seeds": block}


def _resolve(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell with every default written out, so that its name does not depend on omitted values."""
    built = build({**cell, "seeds": [0]})
    world = built["world"]
    check_dim(built["policy"].options.get("radius"), world.dim)
    form = write_parts({name: built[name] for name in ("policy", "spec", "dose")})
    form |= {"world": world.to_dict(), "dose": shortest_dose(form["dose"])}
    own = {name: cell[name] for name in ("policy", "world") if ":" in str(cell[name].get("name"))}
    for part, given in own.items():
        options = {key: value for key, value in given.items() if key != "name"}
        form[part] = {"name": given["name"], **plain_arguments(given["name"], options, part)}
    classes = [name for name, value in form["policy"].items() if isinstance(value, dict) and name != "growth"]
    way_out = 'let a factory of your own make it, name = "module:factory"'
    require(
        not classes, "[[policy]]", form["policy"]["name"], "has function classes, which a grid cannot state", way_out
    )
    source = {given["name"]: source_digest(given["name"]) for given in own.values()}
    return {**cell, **form, **({"source": source} if own else {})}


def _doses(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every dose of a [dose] table: one curve, or a curve each for reward and cost."""
    points = ("actions", "intensities")
    if "curve" in table:
        return _combinations(table, keep=points)
    sides = {
        name: _combinations(side, keep=points) if isinstance(side, dict) else [side] for name, side in table.items()
    }
    return [dict(zip(sides, pair, strict=True)) for pair in product(*sides.values())]


def _combinations(table: Mapping[str, Any], keep: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Every choice of one value from each list; the values of keys in `keep` stay lists."""
    axes = [value if isinstance(value, list) and key not in keep else [value] for key, value in table.items()]
    return [dict(zip(table, values, strict=True)) for values in product(*axes)]
