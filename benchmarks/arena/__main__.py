"""`python -m benchmarks.arena`: worlds × policies and peers × seeds, one table and one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli import main
from safedial.cli.output import Json, SeedsText

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def arena(
    *,
    world: Annotated[
        list[str] | None,
        typer.Option(help="A world, repeatable; your own as module:factory or path.py:factory. Default: all."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="A policy, a peer, or ours; repeatable. Default: all.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="paper: the regrets of the README.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds for each seed.")] = 600,
    seeds: SeedsText = "20",
    risk: Annotated[float, typer.Option(help="The share of rounds that may exceed the threshold.")] = 0.05,
    data: Annotated[str | None, typer.Option(help="The folder with warfarin_iwpc.csv.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the results.")] = Path("results/arena"),
    jobs: Annotated[int | None, typer.Option(help="Processes on this machine. Default: one per core.")] = None,
    backend: Annotated[str, typer.Option(help="loky (this machine) or dask.")] = "loky",
    address: Annotated[str | None, typer.Option(help="The Dask scheduler, as tcp://host:port.")] = None,
    picture: Annotated[bool, typer.Option(help="Draw arena.png (needs the plot extra).")] = True,
    json: Json = False,
) -> None:
    """Compare policies with other packages in simulated worlds. After an interruption, run it again to continue."""
    from benchmarks.arena.arena_run import PRESETS, arena_rows, plan_arena, run_arena, verdicts, write_arena
    from safedial.cli.output import need_pictures, print_json, print_written, progress_bar
    from safedial.errors import require

    need_pictures(picture)
    asked: dict[str, Any] = {"worlds": world or [], "policies": policy or [], "rounds": rounds, "seeds": seeds}
    asked |= {"risk": risk}
    if preset is not None:
        require(preset in PRESETS, "--preset", preset, "is no preset", "use " + ", ".join(PRESETS))
        asked = PRESETS[preset]
    plan = plan_arena(**asked, data=data)
    cells = len(plan.grid.cells)
    with progress_bar(f"arena, {cells} cells", cells) as advance:
        state = run_arena(plan, out, jobs=jobs, backend=backend, address=address, progress=advance)
    rows = arena_rows(plan, out)
    found = verdicts(rows)
    paths = [str(write_arena(rows, out))] if rows else []
    if rows and picture:
        from benchmarks.arena.picture import draw_arena

        paths.append(str(draw_arena(rows, out)))
    if json:
        print_json({"rows": rows, "verdicts": found, "left_out": plan.left_out, "failed": state.failed, "files": paths})
    else:
        _print(rows, found, plan.left_out, state.failed)
        print_written(paths)
    if state.failed or not rows:
        raise typer.Exit(1)


def _print(rows: list[dict[str, Any]], found: list[dict[str, Any]], left_out: Any, failed: Any) -> None:
    from safedial.cli.output import print_table

    heads = ("policy", "over τ, %", "95 %", "reward", "±", "")
    for verdict in found:
        lines, mine = [], [row for row in rows if row["world"] == verdict["world"]]
        for row in mine:
            ends = f"{100 * row['violation_low']:.1f}–{100 * row['violation_high']:.1f}"
            half = (row["reward_high"] - row["reward_low"]) / 2.0
            note = "" if row["kept"] else "exceeds"
            note = "best *" if row["best_in_hindsight"] else note
            numbers = f"{100 * row['violation_rate']:.2f}", ends, f"{row['reward']:.3f}", f"{half:.3f}"
            lines.append((row["policy"], *numbers, note))
        head = mine[0]
        title = f"{head['world']}: {head['seeds']} seeds × {head['rounds']} rounds, risk {head['risk']:g}; "
        print_table(f"{title}reward: {head['unit']}", heads, lines)
        if head["regret"] is not None:
            regrets = ", ".join(f"{row['policy']} {row['regret']:.1f}" for row in mine if row["family"] == "ours")
            typer.echo(f"Regret: {regrets}.")
        if verdict["peer"] and verdict["ours"]:
            word = "ahead of" if verdict["ahead"] else "BEHIND"
            best = f"{verdict['peer']} ({verdict['peer_reward']:.3f}), the best of the others that keep to the risk"
            typer.echo(f"{verdict['ours']} ({verdict['reward']:.3f}) is {word} {best}.\n")
    if any(row["best_in_hindsight"] for row in rows):
        typer.echo("* best in hindsight, of the settings of this peer that keep to the risk in this very table")
    for name, why in left_out.items():
        typer.echo(f"left out: {name}: {why}")
    for key, error in failed.items():
        typer.echo(f"failed: {key}: {error}")


if __name__ == "__main__":
    main(app)
