"""`safedial calibrate --bracket`: a growth bracket and a start, from pilot data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer


def propose_bracket(
    log: Path,
    columns: list[str] | None,
    given: dict[str, Any],
    *,
    risk: float,
    out: Path | None,
    plot: Path | None,
    json: bool,
) -> None:
    """Read the log, propose, print and write; exit status 1 where nothing was learned, or could not be written.

    `given` are the arguments of `calibrate_bracket`.
    """
    from safedial.calibration import ORDERS
    from safedial.calibration.bracket import calibrate_bracket
    from safedial.cli.calibrate import WIDEN
    from safedial.cli.output import print_json, print_written, progress_bar
    from safedial.errors import require
    from safedial.io import read_text, write_text
    from safedial.rounds_io import parse_log
    from safedial.specfile import spec_text

    way_out = "data cannot tell which cost you accept"
    require(given["threshold"] is not None, "--threshold", None, "is needed for a bracket", way_out)
    options: Any = {"needs": ("action", "cost"), "also": ("cost",), "label": given["unit"], "widen_dial": WIDEN}
    if columns and given["base"] and given["base"] not in columns:
        columns = [*columns, given["base"]]
    told = parse_log(read_text(log, "log"), context_columns=columns, dial=given["dial"], **options)
    with progress_bar("calibrate", ORDERS) as advance:
        found = calibrate_bracket(told, **given, progress=advance)
    text, written = None, []
    if not found.problem and found.base and found.start:
        notes = {"": "\n".join(("Proposed by safedial calibrate, for a person to judge.", *found.words()))}
        text = spec_text(found.spec_file(violation_risk=risk, names=told.names), notes=notes)
        written = [write_text(out, text)] if out else []
    drawn = []
    if plot and found.growth:
        from safedial.plots.calibration_picture import draw_bracket

        drawn = [draw_bracket(found, plot)]
    if json:
        report = {"growth": found.growth and found.growth.to_dict(), "start": found.start, "words": found.words()}
        report |= {"left_out": found.left_out}
        print_json(
            report | {"problem": found.problem, "spec": text, "files": [str(path) for path in [*written, *drawn]]}
        )
    else:
        typer.echo("\n".join(found.words()))
        print_written([*written, *drawn])
    if found.problem or (out and not written):
        needs_base = "Name the column with the setting that you would give today: --base. If it is the same for "
        needs_base += "everybody, add a column of equal numbers."
        needs_start = "Write one with a start_scale that you declare safe (docs/reference/spec_file.md)."
        why = found.problem or (needs_start if found.base else needs_base)
        typer.echo(f"safedial: no spec file could be written. {why}", err=True)
        raise typer.Exit(1)
