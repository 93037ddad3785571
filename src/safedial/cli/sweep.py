"""`safedial sweep`: grids of simulations, resumable, on one machine or many."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.output import Json, print_json, print_written, progress_bar

sweep = typer.Typer(no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The sweep's folder.")]


@sweep.command()
def run(
    grid: Annotated[str, typer.Argument(help="A grid file, or the name of a bundled one: paper, thousand.")],
    out: Annotated[Path, typer.Option(help="The folder for the results.")],
    *,
    jobs: Annotated[int | None, typer.Option(help="Processes on this machine. Default: one per core.")] = None,
    backend: Annotated[str, typer.Option(help="loky (this machine) or dask.")] = "loky",
    address: Annotated[str | None, typer.Option(help="The Dask scheduler, as tcp://host:port.")] = None,
    json: Json = False,
) -> None:
    """Compute every missing or damaged cell of a grid. After an interruption, run it again to continue."""
    from safedial.simulation.sweeps import read_grid, run_sweep, write_table

    plan = read_grid(grid)
    with progress_bar(f"{plan.name}, {len(plan.cells)} cells", len(plan.cells)) as advance:
        state = run_sweep(
            plan,
            out,
            jobs=jobs,
            backend=backend,  # pyright: ignore[reportArgumentType] -- checked by run_sweep
            address=address,
            progress=advance,
        )
    table = str(write_table(out, plan)) if state.done else None
    _report(state, table, json)
    if state.failed:
        raise typer.Exit(1)


@sweep.command()
def status(folder: Folder, json: Json = False) -> None:
    """Count the cells that are done, missing or damaged. Exit status 1 unless all are done."""
    from safedial.simulation.sweeps import status as state_of

    state = state_of(folder)
    _report(state, None, json)
    if not state.complete:
        raise typer.Exit(1)


@sweep.command()
def plot(
    folder: Folder,
    x: Annotated[
        str | None, typer.Option(help="The setting on the horizontal axis. Default: threshold, or one that varies.")
    ] = None,
    json: Json = False,
) -> None:
    """Draw violations and reward against one setting, using only the written cells."""
    from safedial.simulation.sweeps import write_table
    from safedial.tools.pictures import draw_sweep

    paths = [str(write_table(folder)), str(draw_sweep(folder, x))]
    if json:
        print_json({"files": paths})
    else:
        print_written(paths)


def _report(state: Any, table: str | None, json: bool) -> None:
    if json:
        print_json({**state._asdict(), **({"table": table} if table else {})})
        return
    typer.echo(f"{state.done} of {state.cells} cells done, {state.missing} missing, {state.damaged} damaged.")
    if state.computed:
        typer.echo(f"{state.computed} computed now.")
    for key, error in state.failed.items():
        typer.echo(f"failed: {key}: {error}")
    print_written([table and os.path.relpath(table)])
