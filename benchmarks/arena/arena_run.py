"""Worlds × policies × seeds, on the machinery of sweeps: resumable, on all cores or on a Dask cluster."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arena.arena_cell import SAFEOPT, run_arena_cell
from benchmarks.arena.peer import PEERS, how_to_install, installed
from benchmarks.arena.players import OURS, PRINTED, RULES, UNGUARANTEED
from benchmarks.arena.registry import NEEDS_DATA, WORLDS, make_world
from benchmarks.arena.registry import PRINTED as PRINTED_WORLD
from benchmarks.arena.warfarin import digest
from safedial.errors import is_whole, require
from safedial.io import write_rows
from safedial.simulation.sweeps import Grid, Status, cell_path, read_cell, run_sweep
from safedial.stats import Seeds, as_seeds, seed_interval, violation_interval

FORMAT = 2
"""Part of every cell. Raise it when results change; old files then no longer count."""
SEED_BLOCK = 5
"""Seeds of a cell. All worlds and policies have their first seeds before the next ones begin."""

POLICIES = (*OURS, *UNGUARANTEED, *RULES, *SAFEOPT, *PEERS)
FAMILIES = dict.fromkeys((*OURS, *PRINTED), "ours") | {name: name for name in UNGUARANTEED}
FAMILIES |= dict.fromkeys(RULES, "the usual rule") | dict.fromkeys(SAFEOPT, "SafeOpt's rule")
FAMILIES |= {name: setting.family for name, setting in PEERS.items()}


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "worlds": [PRINTED_WORLD],
        "policies": [*PRINTED, "HP-UCB", "HP-Probe"],
        "rounds": 10_000,
        "seeds": 10,
        "risk": 0.02,
    },
}


class Arena(NamedTuple):
    """What is to be run, and which peers are left out, with the line that installs each."""

    grid: Grid
    left_out: dict[str, str]


def plan_arena(
    worlds: Sequence[str],
    policies: Sequence[str],
    *,
    rounds: int,
    seeds: Seeds,
    risk: float = 0.05,
    data: str | None = None,
) -> Arena:
    """The cells of worlds × policies × seeds; names that say "all" or a family stand for all of it."""
    which = as_seeds(seeds, "--seeds")
    require(is_whole(rounds), "--rounds", rounds, "must be a whole number >= 1")
    require(0.0 < risk < 1.0, "--risk", risk, "must be a number in (0, 1)")
    chosen, left_out = _chosen(policies), {}
    for name in list(chosen):
        missing = installed(PEERS[name].module).get("missing") if name in PEERS else None
        if missing:
            chosen.remove(name)
            left_out[PEERS[name].family] = how_to_install(missing)
    blocks = [which[at : at + SEED_BLOCK] for at in range(0, len(which), SEED_BLOCK)]
    cells, shown = [], {}
    for world in worlds or [name for name in WORLDS if data or name not in NEEDS_DATA]:
        made = make_world(world, risk, data)
        enough = made.most_rounds is None or rounds <= made.most_rounds
        require(enough, "--rounds", rounds, f"are more than the {made.most_rounds} of {world}")
        own = {} if world in (*WORLDS, PRINTED_WORLD) else {"name": made.name}
        other = shown.setdefault(own.get("name", world), world)
        require(other == world, "--world", world, f"has the name of {other}", "give each ArenaWorld a name of its own")
        where = {"data": str(Path(data).absolute()), "digest": digest(data)} if data and world in NEEDS_DATA else {}
        for name in chosen:
            if name != "one dose for all" or "one_dose" in made.stated:
                setting = {
                    "arena": FORMAT,
                    "world": world,
                    "policy": name,
                    "rounds": rounds,
                    "risk": risk,
                    **where,
                    **own,
                }
                peer = installed(PEERS[name].module) if name in PEERS else {}
                cells += [{**setting, **peer, "unit": made.unit, "seeds": block} for block in blocks]
    cells.sort(key=lambda cell: cell["seeds"])
    settings = {"worlds": list(worlds), "policies": chosen, "rounds": rounds, "seeds": which, "risk": risk}
    text = "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())
    return Arena(Grid("arena", text, tuple(cells)), left_out)


def _chosen(policies: Sequence[str]) -> list[str]:
    wanted = []
    for name in policies or ["all"]:
        same = [each for each in POLICIES if name in ("all", each, FAMILIES[each])] or [name] * (name in PRINTED)
        names = ", ".join(dict.fromkeys([*OURS, *FAMILIES.values()]))
        require(same, "--policy", name, "is not in the arena", f"use all, or one of {names}")
        wanted += [each for each in same if each not in wanted]
    return wanted


def run_arena(
    arena: Arena,
    out: str | Path,
    *,
    jobs: int | None = None,
    backend: Any = "loky",
    address: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Status:
    """Compute the missing cells; the same command run again continues."""
    options = {"jobs": jobs, "backend": backend, "address": address, "progress": progress}
    return run_sweep(arena.grid, out, **options, compute=run_arena_cell)


def arena_rows(arena: Arena, out: str | Path) -> list[dict[str, Any]]:
    """One row for each world and policy, seeds pooled. `kept`: the share of excesses is at most the risk, or above it
    by less than two standard errors of as many independent rounds.

    `best_in_hindsight`: of the settings of a peer that keep to the risk, the one with the largest reward in this table.
    """
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in arena.grid.cells:
        found = read_cell(cell_path(Path(out), cell))
        if found is not None:
            groups.setdefault((cell["world"], cell["policy"]), []).append(found)
    rows = [_row(cells) for cells in groups.values()]
    for row in rows:
        rivals = [other for other in rows if (other["world"], other["family"]) == (row["world"], row["family"])]
        best = max((other for other in rivals if other["kept"]), key=lambda other: other["reward"], default=None)
        row["best_in_hindsight"] = row["family"] != "ours" and len(rivals) > 1 and best is row
    return rows


def _row(cells: list[dict[str, Any]]) -> dict[str, Any]:
    cell, results = cells[0]["cell"], [each["result"] for each in cells]
    pooled = {
        name: [one for each in results for one in each[name]] for name in ("violations", "value", "setting", "alarms")
    }
    rounds, seeds, risk = cell["rounds"], len(pooled["value"]), cell["risk"]
    rate = sum(pooled["violations"]) / seeds / rounds
    known = [each["clairvoyant"] for each in results]
    best = None if None in known else sum(map(sum, known)) / seeds
    scale = rounds if best is None else best
    rewards = [each / scale for each in pooled["value"]]
    low, high = violation_interval(pooled["violations"], rounds)
    reward_low, reward_high = seed_interval(rewards)
    measures = {
        name: sum(sum(each["measures"][name]) for each in results) / seeds / rounds for name in results[0]["measures"]
    }
    return {
        "world": cell.get("name", cell["world"]),
        "policy": cell["policy"],
        "family": FAMILIES[cell["policy"]],
        "rounds": rounds,
        "seeds": seeds,
        "risk": risk,
        "violation_rate": rate,
        "violation_low": low,
        "violation_high": high,
        "kept": rate <= risk + 2.0 * math.sqrt(risk * (1.0 - risk) / (seeds * rounds)),
        "reward": sum(rewards) / seeds,
        "reward_low": reward_low,
        "reward_high": reward_high,
        "unit": cell["unit"],
        "regret": None if best is None else best - sum(pooled["value"]) / seeds,
        "mean_setting": sum(pooled["setting"]) / seeds / rounds,
        "alarms": sum(pooled["alarms"]) / seeds,
        "rounds_per_second": sum(each["rounds_per_second"] for each in results) / len(results),
        **measures,
    }


def write_arena(rows: list[dict[str, Any]], out: str | Path) -> Path:
    """`arena.csv`."""
    return write_rows(Path(out) / "arena.csv", rows)


def verdicts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By world: our best policy that keeps to the risk, beside the best peer that does."""
    found = []
    for world in dict.fromkeys(row["world"] for row in rows):
        kept = [row for row in rows if row["world"] == world and row["kept"]]
        ours = max((row for row in kept if row["family"] == "ours"), key=lambda row: row["reward"], default=None)
        peer = max((row for row in kept if row["family"] != "ours"), key=lambda row: row["reward"], default=None)
        ahead = ours is not None and (peer is None or ours["reward"] >= peer["reward"])
        named = {"ours": ours and ours["policy"], "reward": ours and ours["reward"]}
        named |= {"peer": peer and peer["policy"], "peer_reward": peer and peer["reward"], "ahead": ahead}
        found.append({"world": world, **named})
    return found
