"""Run the missing cells of a grid: in this process, on all cores (loky), or on a Dask cluster, with the same bytes.

The parent writes each result as it arrives, so a killed worker loses only the cells it was running: loky restarts them
at once, Dask gives them to another worker, and the same command run again computes only what is missing.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safedial.errors import InvalidInput, import_extra, require
from safedial.io import output_folder, provenance, write_json, write_text
from safedial.own_names import add_folder
from safedial.simulation.engines import USUAL, check_device
from safedial.sweep.cell import cell_path, read_cell, run_cell, write_cell
from safedial.sweep.grid import Grid, parse_grid

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
    compute: Callable[[dict[str, Any]], dict[str, Any]] = run_cell,
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
        _check_worker(run, wanted[:1])
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


def attempt(
    cell: dict[str, Any], compute: Callable[[dict[str, Any]], dict[str, Any]] = run_cell, folder: str | None = None
) -> Outcome:
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


def _check_worker(run: Callable[..., Iterable[Outcome]], first: list[dict[str, Any]]) -> None:
    """Before anything is written: a worker has the engine that the first cell, and so every one, asks for."""
    for _, _, error in run(engine_of, [cell for cell in first if "engine" in cell]):
        if error:
            raise InvalidInput(error.partition(": ")[2] or error)


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
