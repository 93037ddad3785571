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

The missing cells of a grid are run in this process, on all cores (loky), or on a Dask cluster, with the same bytes.

The parent writes each result as it arrives, so a killed worker loses only the cells it was running: loky restarts them
at once, Dask gives them to another worker, and the same command run again computes only what is missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safedial.errors import InvalidInput, import_extra, is_whole, require
from safedial.io import output_folder, provenance, write_json, write_rows, write_text
from safedial.model.own_names import add_folder, plain_arguments, source_digest
from safedial.rounds.rules import read_parts, shortest_dose, write_parts
from safedial.simulation.engines import USUAL, check_compiles, check_device, check_engine
from safedial.simulation.results import flatten
from safedial.simulation.run import find_policy, simulate
from safedial.simulation.worlds import world_from_dict
from safedial.stats import as_seeds, seed_interval, violation_interval

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
    require(listed, "[[policy]]", policies, "must be given at least once", "give its name")
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
        cell |= {"rounds": settings["rounds"], "points": settings["points"], **engine}
        resolved = _resolve(cell)
        for block in blocks:
            yield {**resolved, "seeds": block}


def _resolve(cell: dict[str, Any]) -> dict[str, Any]:
    """The cell with every default written out, so that its name does not depend on omitted values."""
    built = build({**cell, "seeds": [0]})
    world = built["world"]
    built["policy"].fitted(built["spec"], world.dim)
    if cell.get("engine") == "jax":
        check_compiles(built["policy"])
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


# --- One cell: run it, keep its result in a file named by its key, and detect a damaged file

RESULTS = ("violations", "informative_rounds", "uncertified_rounds", "regret", "reward", "clairvoyant_reward")


def run_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a cell: plain lists with one number per seed, and curves by checkpoint and seed; where the cell
    names an engine, also the one that played. It holds no times, so the same cell gives the same bytes on every machine
    with the same build.
    """
    run = simulate(**build(cell))
    most = run.attainable_reward
    return {
        **{name: getattr(run, name)[0].tolist() for name in RESULTS},
        **({} if most is None else {"attainable_reward": most[0].tolist()}),
        **({"engine": [run.engine]} if "engine" in cell else {}),
        "checkpoints": run.checkpoints.tolist(),
        "regret_curve": run.regret_curve[:, 0].tolist(),
        "violations_curve": run.violations_curve[:, 0].tolist(),
    }


def cell_path(folder: Path, cell: Mapping[str, Any]) -> Path:
    return folder / "cells" / f"{cell_key(cell)}.json"


def write_cell(folder: Path, cell: Mapping[str, Any], result: Mapping[str, Any]) -> Path:
    """Write the whole file or nothing; its digest lets `read_cell` detect damage."""
    path = cell_path(folder, cell)
    content = {"cell": cell, "result": result}
    return write_text(path, json.dumps({**content, "digest": _digest(content)}) + "\n")


def read_cell(path: Path) -> dict[str, Any] | None:
    """{"cell", "result"} of an intact file; None for a missing or damaged one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        digest = content.pop("digest")
        intact = digest == _digest(content) and cell_key(content["cell"]) == path.stem
        return content if intact else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# --- Run the missing cells of a grid

RESTARTS = 3
CONNECT_SECONDS = 5.0


class Status(NamedTuple):
    """The progress of a sweep. `failed` maps a cell's key to the last line of its error."""

    cells: int
    done: int
    missing: int
    damaged: int
    failed: dict[str, str]
    computed: int = 0

    @property
    def complete(self) -> bool:
        return self.done == self.cells


def status(out: str | Path) -> Status:
    """The state of the sweep in folder `out`."""
    folder = Path(out)
    return _status(folder, read_stored_grid(folder), {})


def read_stored_grid(folder: Path) -> Grid:
    """The grid that a sweep's folder holds."""
    try:
        return parse_grid((folder / "grid.toml").read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            f"folder = {str(folder)!r}: holds no sweep (no grid.toml); start one with sweep run"
        ) from error


def run_sweep(
    grid: Grid,
    out: str | Path,
    *,
    jobs: int | None = None,
    backend: Literal["loky", "dask"] = "loky",
    address: str | None = None,
    progress: Callable[[int], None] | None = None,
    compute: Compute = run_cell,
) -> Status:
    """Compute the cells of `grid` that are missing or damaged in folder `out`.

    Args:
        jobs: processes on this machine; one per core by default, one for a GPU; with 1, all runs in this process.
        backend: "loky" for this machine, "dask" for the cluster whose scheduler is at `address`.
        progress: called with the number of cells just finished, those found intact first.
        compute: the result of a cell, plain values; a function of a module, because workers import it.
    """
    require(jobs is None or jobs >= 1, "jobs", jobs, "must be a whole number >= 1")
    require(backend in ("loky", "dask"), "backend", backend, "must be 'loky' or 'dask'")
    require(backend == "loky" or address, "address", address, "is needed with dask", "for example tcp://127.0.0.1:8786")
    require(backend == "dask" or address is None, "address", address, "goes with backend dask")
    folder, started = Path(out), time.perf_counter()
    wanted = [cell for cell in grid.cells if read_cell(cell_path(folder, cell)) is None]
    failed: dict[str, str] = {}
    computed = 0
    alone = any(cell.get("device") == "gpu" for cell in wanted[:1])  # whose memory the first process takes
    workers = jobs or (1 if alone else os.cpu_count() or 1)
    with _runner(*((backend, address, workers) if wanted else ("loky", None, 1))) as run:
        for _, _, error in run(engine_of, [cell for cell in wanted[:1] if "engine" in cell]):
            if error:  # no worker has the engine that the first cell, and so every one, asks for
                raise InvalidInput(error.partition(": ")[2] or error)
        output_folder(folder / "cells")
        write_text(folder / "grid.toml", grid.text)
        if progress:
            progress(len(grid.cells) - len(wanted))
        for cell, result, error in _until_done(partial(run, compute), wanted, folder):
            if error:
                failed[cell_path(folder, cell).stem] = error
            else:
                write_cell(folder, cell, result)
                computed += 1
            if progress:
                progress(1)
    settings = {"grid": grid.name, "cells": len(grid.cells), "computed": computed, "jobs": jobs, "backend": backend}
    settings |= {name: cell.get(name, usual) for cell in grid.cells[:1] for name, usual in USUAL.items()}
    write_json(folder / "provenance.json", provenance(settings, time.perf_counter() - started))
    return _status(folder, grid, failed)._replace(computed=computed)


Outcome = tuple[dict[str, Any], dict[str, Any], str]
Run = Callable[[list[dict[str, Any]]], Iterable[Outcome]]
Compute = Callable[[dict[str, Any]], dict[str, Any]]


def attempt(cell: dict[str, Any], compute: Compute = run_cell, folder: str | None = None) -> Outcome:
    """Run one cell in a worker; an error is returned as a line of text, so that other cells continue. From `folder`,
    where the sweep was started, the worker may import what is the user's own.
    """
    if folder is not None:
        add_folder(folder)
    try:
        return cell, compute(cell), ""
    except Exception:
        return cell, {}, traceback.format_exc().strip().splitlines()[-1]


def engine_of(cell: dict[str, Any]) -> dict[str, Any]:
    """Whether this worker has the engine and the device of a cell: an error if not."""
    check_device({name: cell.get(name, usual) for name, usual in USUAL.items()})
    return {}


def _until_done(run: Run, wanted: list[dict[str, Any]], folder: Path) -> Iterator[Outcome]:
    """Outcomes of all wanted cells; after a killed worker, the remaining ones restart, a few times."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    left = {cell_path(folder, cell).stem: cell for cell in wanted}
    for restart in range(RESTARTS + 1):
        try:
            for outcome in run(list(left.values())):
                left.pop(cell_path(folder, outcome[0]).stem)
                yield outcome
        except TerminatedWorkerError as error:
            if restart == RESTARTS:
                message = (
                    f"a worker was killed {RESTARTS + 1} times; {len(left)} cells are left; run the same command again"
                )
                raise InvalidInput(f"jobs: {message}") from error
        else:
            return


@contextmanager
def _runner(backend: str, address: str | None, jobs: int) -> Iterator[Callable[..., Iterable[Outcome]]]:
    """A function that computes something of cells and yields their outcomes as they come."""
    from joblib import Parallel, delayed, parallel_config

    def in_parallel(compute: Compute, cells: list[dict[str, Any]]) -> Iterable[Outcome]:
        pool: Any = Parallel(return_as="generator_unordered")
        return pool(delayed(attempt)(cell, compute, os.getcwd()) for cell in cells)

    if backend == "dask":
        with _client(address), parallel_config(backend="dask"):
            yield in_parallel
    elif jobs == 1:
        yield lambda compute, cells: (attempt(cell, compute) for cell in cells)
    else:
        with parallel_config(backend="loky", n_jobs=jobs):
            yield in_parallel


@contextmanager
def _client(address: str | None) -> Iterator[Any]:
    """A connection to the Dask scheduler, or a plain error if none answers."""
    distributed = import_extra("distributed", "dask")
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=True)
    except (OSError, ValueError, TimeoutError) as error:
        raise InvalidInput(f"address = {address!r}: no Dask scheduler answers there ({error})") from error
    with client:
        yield client


def _status(folder: Path, grid: Grid, failed: dict[str, str]) -> Status:
    paths = [cell_path(folder, cell) for cell in grid.cells]
    present = [path for path in paths if path.exists()]
    done = sum(read_cell(path) is not None for path in present)
    return Status(len(paths), done, len(paths) - len(present), len(present) - done, failed)


# --- What a sweep's folder holds, as one tidy table

NUMBERS = (
    "seeds",
    "uncertified_rounds",
    "violation_rate",
    "ci_low",
    "ci_high",
    "regret",
    "regret_low",
    "regret_high",
    "reward",
    "clairvoyant_reward",
    "reward_share",
    "attainable_share",
)


def sweep_rows(folder: str | Path, grid: Grid | None = None) -> list[dict[str, Any]]:
    """One row for each combination of `grid` (by default the folder's own), from the intact cells."""
    grid = grid or read_stored_grid(Path(folder))
    groups: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {}
    for cell in grid.cells:
        found = read_cell(cell_path(Path(folder), cell))
        if found is None:
            continue
        settings = {name: value for name, value in cell.items() if name != "seeds"}
        _, pooled = groups.setdefault(json.dumps(settings, sort_keys=True), (flatten(cell), {}))
        for name, values in found["result"].items():
            if not name.endswith(("curve", "checkpoints")):
                pooled.setdefault(name, []).extend(values)
    return [{**flat, **_pooled(flat, pooled)} for flat, pooled in groups.values()]


def varying(rows: list[dict[str, Any]]) -> list[str]:
    """The settings that take more than one value, policy options included."""
    names = {name: None for row in rows for name in row if name not in NUMBERS}
    return [name for name in names if len({json.dumps(row.get(name)) for row in rows}) > 1]


def write_table(folder: str | Path, grid: Grid | None = None) -> Path:
    """`sweep.csv` in the sweep's folder."""
    rows = sweep_rows(folder, grid)
    require(rows, "folder", str(folder), "holds no finished cell yet", "run the sweep first")
    return write_rows(Path(folder) / "sweep.csv", rows)


def _pooled(flat: dict[str, Any], pooled: dict[str, list[Any]]) -> dict[str, Any]:
    seeds, rounds = len(pooled["violations"]), flat["rounds"]
    means = {name: sum(pooled[name]) / seeds for name in ("regret", "reward", "clairvoyant_reward")}
    low, high = violation_interval(pooled["violations"], rounds)
    best, most = means["clairvoyant_reward"], pooled.get("attainable_reward", [])
    known = len(most) == seeds and sum(most) > 0.0  # cells kept from before have none
    return {
        **({"engine": " and ".join(sorted(set(pooled["engine"])))} if "engine" in pooled else {}),
        "seeds": seeds,
        "uncertified_rounds": sum(pooled["uncertified_rounds"]) / seeds,
        "violation_rate": sum(pooled["violations"]) / seeds / rounds,
        "ci_low": low,
        "ci_high": high,
        "regret": means["regret"],
        **dict(zip(("regret_low", "regret_high"), seed_interval(pooled["regret"]), strict=True)),
        **means,
        "reward_share": means["reward"] / best if best > 0 else None,
        "attainable_share": sum(pooled["reward"]) / sum(most) if known else None,
    }
