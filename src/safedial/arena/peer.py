"""Peers in the arena: processes of an environment of their own, spoken to in lines of JSON (`peers.serve`).

`make peers` makes that environment, `.venv-peers`; SAFEDIAL_PEERS names another one's Python. Without either the peers
that this Python has are used. A peer that is not installed is named, with the line that installs it, and left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safedial.arena.arena_world import ArenaWorld, Array, Outcome, Stream
from safedial.errors import InvalidInput

PENALTIES = (0.0, 1.0, 3.0, 10.0)
LEVELS = (0.95, 0.975, 0.99)


class Setting(NamedTuple):
    """A peer with one setting: the module of `peers`, and its options. `family` gathers the settings of a peer."""

    family: str
    module: str
    options: Mapping[str, Any]


def _settings(family: str, module: str, option: str, values: tuple[float, ...]) -> dict[str, Setting]:
    return {f"{family}, {option} {value:g}": Setting(family, module, {option: value}) for value in values}


PEERS: dict[str, Setting] = {
    **_settings("VW CATS", "vw_cats", "penalty", PENALTIES),
    **_settings("coba LinTS", "coba_lints", "penalty", PENALTIES),
    **_settings("MABWiser LinUCB", "mabwiser_linucb", "penalty", PENALTIES),
    **_settings("bayesianbandits TS", "bayesianbandits_ts", "penalty", PENALTIES),
    **_settings("linear quantiles", "quantile_linear", "level", LEVELS),
    **_settings("boosted quantiles", "quantile_boosted", "level", LEVELS),
}


def peers_python() -> str:
    """The Python of the peers' environment."""
    own = Path(".venv-peers/bin/python")
    return os.environ.get("SAFEDIAL_PEERS") or (str(own.absolute()) if own.exists() else sys.executable)


def _process(module: str) -> Any:
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    environment = {**os.environ, **quiet, "PYTHONPATH": str(Path(__file__).parent)}
    command = [peers_python(), "-m", "peers.serve", module]
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe, stderr=pipe)  # noqa: S603 -- ours
    except OSError as error:
        way_out = "name the Python of the peers' environment, or make peers"
        raise InvalidInput(f"SAFEDIAL_PEERS = {command[0]!r}: cannot be run ({error.strerror}); {way_out}") from error


@lru_cache
def installed(module: str) -> dict[str, Any]:
    """{"versions": …} of a peer's packages, or {"missing": …}."""
    with _process(module) as process:
        out, errors = process.communicate("{}\n", timeout=60)
    if not out:
        raise InvalidInput(f"SAFEDIAL_PEERS = {peers_python()!r}: cannot run {module} ({errors.strip()[-200:]})")
    return json.loads(out.splitlines()[0])


def how_to_install(missing: list[str]) -> str:
    """How the peers' environment gets these packages; never by adding them to safedial's own."""
    line = f"{', '.join(missing)} not installed: make peers, in safedial's source folder (an environment of its own)"
    named = os.environ.get("SAFEDIAL_PEERS")
    return f"{line}; SAFEDIAL_PEERS names another one, {named}" if named else line


class PeerPlayer:
    """A peer as a player."""

    def __init__(self, setting: Setting, world: ArenaWorld, seeds: list[int], risk: float) -> None:
        self.setting, self.process, self.alarms = setting, _process(setting.module), np.zeros(len(seeds))
        told = {"dim": world.dim, "threshold": world.threshold, "risk": risk, "start": world.start}
        self._send({"problem": {**told, "signed": world.signed}, "seeds": seeds, "options": dict(setting.options)})
        self._answer("versions")

    def decide(self, stream: Stream) -> Array:
        self._send({"context": stream.context.tolist(), "protocol": stream.protocol.tolist()})
        return np.clip(np.array(self._answer("setting")), 0.0, 1.0)

    def tell(self, outcome: Outcome) -> None:
        self._send({"reward": outcome.reward.tolist(), "cost": outcome.cost.tolist()})

    def close(self) -> None:
        self.process.communicate()

    def _send(self, content: dict[str, Any]) -> None:
        try:
            self.process.stdin.write(json.dumps(content) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def _answer(self, name: str) -> Any:
        line = self.process.stdout.readline()
        content = json.loads(line) if line else {}
        if name not in content:
            self._fail()
        return content[name]

    def _fail(self) -> None:
        _, errors = self.process.communicate()
        last = (errors.strip().splitlines() or ["no answer"])[-1]
        raise InvalidInput(f"peer = {self.setting.family!r}: its process ended ({last})")
