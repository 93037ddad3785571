"""Peers in the arena: processes of an environment of their own, spoken to in lines of JSON (`peers.serve`).

`make peers` makes that environment, `.venv-peers`; SAFEDIAL_PEERS names another one's Python. Without either the peers
that this Python has are used. A peer that is not installed is named, with the line that installs it, and left out.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from benchmarks.arena.arena_world import ArenaWorld, Array, Outcome, Stream
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


class Process:
    """A process of a peer's module, which plays one cell after another."""

    def __init__(self, module: str) -> None:
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment = {**os.environ, **quiet, "PYTHONPATH": str(Path(__file__).parent)}
        self.python, self.module, pipe = peers_python(), module, subprocess.PIPE
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed in `end`
        options: Any = {"env": environment, "text": True, "stdin": pipe, "stdout": pipe, "stderr": self.errors}
        try:
            self.popen: Any = subprocess.Popen([self.python, "-m", "peers.serve", module], **options)  # noqa: S603 -- ours
        except OSError as error:
            self.errors.close()
            way_out = "name the Python of the peers' environment, or make peers"
            raise InvalidInput(
                f"SAFEDIAL_PEERS = {self.python!r}: cannot be run ({error.strerror}); {way_out}"
            ) from error

    def send(self, content: dict[str, Any]) -> None:
        try:
            self.popen.stdin.write(json.dumps(content) + "\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            self.fail()

    def ask(self, content: dict[str, Any]) -> dict[str, Any]:
        self.send(content)
        return json.loads(self.popen.stdout.readline() or self.fail())

    def fail(self) -> NoReturn:
        last = (self.end().splitlines() or ["no answer"])[-1]
        raise InvalidInput(f"peer = {self.module!r}: its process ended ({last}); its Python is {self.python}")

    def end(self) -> str:
        """What it wrote as errors."""
        self.popen.communicate()
        self.errors.seek(0)
        with self.errors:
            return self.errors.read().strip()


IDLE: dict[tuple[str, str], list[Process]] = {}
"""Processes that wait for their next cell, by Python and module."""


def take_process(module: str) -> Process:
    idle = IDLE.setdefault((peers_python(), module), [])
    return idle.pop() if idle else Process(module)


def give_back(process: Process) -> None:
    IDLE[process.python, process.module].append(process)


@atexit.register
def end_processes() -> None:
    for idle in IDLE.values():
        while idle:
            idle.pop().end()


def installed(module: str) -> dict[str, Any]:
    """{"versions": …} of a peer's packages, or {"missing": …}."""
    process = take_process(module)
    found = process.ask({})
    give_back(process)
    return found


def how_to_install(missing: list[str]) -> str:
    """How the peers' environment gets these packages; never by adding them to safedial's own."""
    line = f"{', '.join(missing)} not installed: make peers, in safedial's source folder (an environment of its own)"
    named = os.environ.get("SAFEDIAL_PEERS")
    return f"{line}; SAFEDIAL_PEERS names another one, {named}" if named else line


class PeerPlayer:
    """A peer as a player."""

    def __init__(self, setting: Setting, world: ArenaWorld, seeds: list[int], risk: float) -> None:
        self.process, self.alarms = take_process(setting.module), np.zeros(len(seeds))
        told = {"dim": world.dim, "threshold": world.threshold, "risk": risk, "start": world.start}
        problem = {**told, "signed": world.signed}
        self.process.ask({"problem": problem, "seeds": seeds, "options": dict(setting.options)})

    def decide(self, stream: Stream) -> Array:
        told = {"context": stream.context.tolist(), "protocol": stream.protocol.tolist()}
        return np.clip(np.array(self.process.ask(told)["setting"]), 0.0, 1.0)

    def tell(self, outcome: Outcome) -> None:
        self.process.send({"reward": outcome.reward.tolist(), "cost": outcome.cost.tolist()})

    def close(self) -> None:
        give_back(self.process)
