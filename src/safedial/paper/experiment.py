"""What an experiment is: one record of what it computes, draws, prints and reports.

`run` computes tables, which are written as files; the picture, the printed table and the section of the report are made
only from those files. The command line and the report iterate over a list of these records,
`safedial.paper.experiments.EXPERIMENTS`.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from safedial.io import Bar, folder_for, html_table, no_bar, provenance, write_json, write_rows
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.simulation.run import Simulation, simulate
from safedial.simulation.world import World
from safedial.stats import Seeds as AnySeeds

Rows = list[dict[str, Any]]
WHICH = "How many seeds: 0, 1, ...; or which: 0:100, or 3,5,9"
Seeds = Annotated[AnySeeds, f"{WHICH}; the paper uses 5."]
OwnSeeds = Annotated[AnySeeds, f"{WHICH}."]
Rounds = Annotated[int, "Rounds for each seed; the paper uses 10000."]
EngineName = Annotated[str, "Engine of the simulations: numpy, jax or auto; the provenance file names it."]
DeviceName = Annotated[str | None, "For jax: cpu or gpu. Default: JAX's own."]


class Engine:
    """The engine and the device that an experiment asks for, and the engines that played."""

    def __init__(self, asked: str = "numpy", device: str | None = None) -> None:
        self.asked: Any = {"engine": asked, "device": device}
        self.played = set[str]()

    def play(self, policy: Policy, world: World, spec: SafetySpec, **options: Any) -> Simulation:
        """Simulate as asked; with "auto", a policy that is never compiled goes without."""
        how = {} if self.asked["engine"] == "auto" and policy.uncompiled else self.asked
        run = simulate(policy, world, spec, **options, **how)
        self.played.add(run.engine)
        return run

    @property
    def settings(self) -> dict[str, Any]:
        device = {} if self.asked["device"] is None else {"device": self.asked["device"]}
        return {"engine": " and ".join(sorted(self.played)), **device}


class Found(NamedTuple):
    """What a run found: tables, each with the name of its CSV file, the settings for the provenance, and what `--json`
    prints besides the files.
    """

    tables: dict[str, Rows]
    settings: dict[str, Any]
    content: Mapping[str, Any] = {}


class Result(NamedTuple):
    """The result of a command: what `--json` prints besides the files, and all files."""

    content: dict[str, Any]
    files: list[Path]


class Table(NamedTuple):
    """A table for the terminal."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def as_html(parts: Sequence[Table | str]) -> list[str]:
    """What a command prints, as parts of the report: tables under their titles, and sentences."""
    found = []
    for part in parts:
        if isinstance(part, str):
            found.append(f"<p>{html.escape(part)}</p>")
        else:
            found += [f"<h3>{html.escape(part.title)}</h3>", html_table(part.columns, part.rows)]
    return found


def cells(row: dict[str, Any], forms: Sequence[str]) -> list[str]:
    """The cells of a table's line.

    >>> cells({"policy": "HP-UCB", "rate": 0.012}, ("{policy}", "{rate:.1%}"))
    ['HP-UCB', '1.2%']
    """
    return [form.format_map(row) for form in forms]


def cell_or_dash(row: dict[str, Any], name: str, form: str) -> str:
    """One cell of a table's line; a dash where a file has nothing."""
    value = row.get(name, "")
    return "–" if value == "" else format(value, form)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment.

    Attributes:
        name: `safedial reproduce NAME`, with hyphens for underscores; also its name in the report.
        run: `run(folder, *, bar, **options)` computes. Its keyword-only parameters, annotated with
            `Annotated[type, "help text"]`, are the options of the command; its docstring is the command's help.
        draw: the pictures, from the files in a folder.
        section: the parts of its section of the report as HTML, from the files in a folder; the report adds a
            footer. Experiments outside the report have none.
        table: what the command prints: tables and sentences, from the files in a folder.
        command: the name of another experiment whose command also runs this one.
        options_in_all: the options of `run` for the seeds and rounds of `safedial reproduce all`.
        why_skipped: why `safedial reproduce all` cannot run it here; "" if it can.
    """

    name: str
    run: Callable[..., Found]
    draw: Callable[[Path], list[Path]]
    section: Callable[[Path], list[str]] = lambda folder: []
    table: Callable[[Path], list[Table | str]] = lambda folder: []
    command: str = ""
    options_in_all: Callable[[int, int], dict[str, Any]] = lambda seeds, rounds: {"seeds": seeds, "rounds": rounds}
    why_skipped: Callable[[], str] = lambda: ""

    def has_run(self, folder: Path) -> bool:
        return (folder / f"{self.name}.csv").exists()


def by_command(experiments: Sequence[Experiment]) -> dict[str, list[Experiment]]:
    """Name of the command → the experiments that it runs, in order."""
    groups: dict[str, list[Experiment]] = {}
    for each in experiments:
        groups.setdefault((each.command or each.name).replace("_", "-"), []).append(each)
    return groups


def run_and_draw(group: Sequence[Experiment], out: str | Path, options: dict[str, Any], *, bar: Bar = no_bar) -> Result:
    """Run the experiments of one command and write what they found, with its provenance; then draw their pictures."""
    content, files = {}, []
    with folder_for(out) as folder:
        for each in group:
            start = time.perf_counter()
            found = each.run(folder, bar=bar, **options)
            content |= found.content
            files += [write_rows(folder / f"{name}.csv", rows) for name, rows in found.tables.items()]
            record = provenance(found.settings, time.perf_counter() - start)
            files.append(write_json(folder / f"{each.name}.provenance.json", record))
    return Result(content, [*files, *(path for each in group for path in each.draw(folder))])
