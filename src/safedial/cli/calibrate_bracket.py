"""`safedial calibrate --promise bracket`: a growth bracket and a start, from pilot data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import typer


class BracketOptions(NamedTuple):
    """What the command was given for a bracket."""

    threshold: float | None
    risk: float
    bracket: str
    base: str | None
    unit: str | None
    below: bool
    caution: float


def calibrate_bracket(
    log: Path, columns: list[str] | None, dial: Any, given: BracketOptions, *, out: Path | None, json: bool
) -> None:
    """Read the log, propose, print and write; exit status 1 where nothing was learned."""
    from safedial.calibration.bracket import calibrate_bracket as run
    from safedial.cli.calibrate import WIDEN
    from safedial.cli.output import print_json, print_written
    from safedial.decision.units import Features
    from safedial.errors import require
    from safedial.io import read_text, write_text
    from safedial.rounds_io import parse_log
    from safedial.specfile import spec_text

    way_out = "data cannot tell which cost you accept"
    require(given.threshold is not None, "--threshold", given.threshold, "is needed for a bracket", way_out)
    options: Any = {"needs": ("action",), "also": ("cost",), "label": given.unit, "widen_dial": WIDEN}
    told = parse_log(read_text(log, "log"), context_columns=columns, dial=dial, **options)
    kinds: Any = {"bracket": given.bracket, "direction": "below" if given.below else "above"}
    found = run(
        told,
        threshold=given.threshold or 0.0,
        base=given.base,
        unit=given.unit,
        caution=given.caution,
        dial=dial,
        **kinds,
    )
    text = None
    if not found.problem and found.base and found.start:
        file = found.spec_file(violation_risk=given.risk, features=Features(names=told.names))
        text = spec_text(
            file, notes={"": "\n".join(("Proposed by safedial calibrate, for a person to judge.", *found.words()))}
        )
    if out and text:
        write_text(out, text)
    written = [out] if out and text else []
    if json:
        report = {"growth": found.growth and found.growth.to_dict(), "start": found.start, "words": found.words()}
        print_json(report | {"problem": found.problem, "spec": text, "files": [str(path) for path in written]})
    else:
        typer.echo("\n".join(found.words()))
        print_written(written)
    if out and not text and not found.problem:
        typer.echo("safedial: nothing written: a spec file needs --base and a start. State them yourself.", err=True)
    if found.problem and not json:
        typer.echo(f"safedial: this log does not support a bracket. {found.problem}", err=True)
    if found.problem or (out and not text):
        raise typer.Exit(1)
