"""One cell of the arena: a world, a policy or peer, and a block of seeds."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.arena.arena_world import ArenaWorld
from benchmarks.arena.peer import PEERS, PeerPlayer
from benchmarks.arena.players import Player, make_player
from benchmarks.arena.registry import make_world
from benchmarks.arena.safeopt import SafeOpt

SAFEOPT = {f"SafeOpt's rule (ours), β {beta:g}": beta for beta in (2.0, 3.0)}


def player_of(name: str, world: ArenaWorld, seeds: list[int], risk: float) -> Player:
    """The player with this name."""
    if name in PEERS:
        return PeerPlayer(PEERS[name], world, seeds, risk)
    if name in SAFEOPT:
        return SafeOpt(world, len(seeds), SAFEOPT[name])
    return make_player(name, world, seeds, risk)


def run_arena_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Counts and sums by seed: excesses, value, the clairvoyant's where it is known, alarms, the world's measures."""
    world = make_world(cell["world"], cell["risk"], cell.get("data"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an agent's remarks about what a world leaves open
        return play(world, cell["policy"], list(cell["seeds"]), rounds=cell["rounds"], risk=cell["risk"])


def play(world: ArenaWorld, policy: str, seeds: list[int], *, rounds: int, risk: float) -> dict[str, Any]:
    """`rounds` rounds of a player in a world."""
    began, stream = time.perf_counter(), world.begin(seeds, rounds)
    player, nothing = player_of(policy, world, seeds, risk), np.zeros(len(seeds))
    excesses, value, setting = nothing.copy(), nothing.copy(), nothing.copy()
    best: Any = 0.0
    measures: dict[str, Any] = {}
    for _ in range(rounds):
        chosen = player.decide(stream)
        outcome = stream.act(chosen)
        player.tell(outcome)
        excesses += outcome.cost > world.threshold
        value += outcome.value
        setting += chosen
        best = None if best is None or outcome.clairvoyant is None else best + outcome.clairvoyant
        for name, each in outcome.measures.items():
            measures[name] = measures.get(name, 0.0) + each
    player.close()
    return {
        "violations": excesses.tolist(),
        "value": value.tolist(),
        "setting": setting.tolist(),
        "clairvoyant": None if best is None else np.broadcast_to(best, nothing.shape).tolist(),
        "alarms": player.alarms.tolist(),
        "measures": {name: each.tolist() for name, each in measures.items()},
        "rounds_per_second": len(seeds) * rounds / (time.perf_counter() - began),
    }
