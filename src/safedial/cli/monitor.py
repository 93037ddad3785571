"""`safedial monitor`: do the costs of a log keep the promise?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.inputs import Columns, Json, LogFile, SpecPath, read_inputs


def monitor(
    log: LogFile,
    spec: SpecPath,
    *,
    out: Annotated[Path | None, typer.Option(help="Draw the evidence over time to this PNG, PDF or SVG file.")] = None,
    level: Annotated[float, typer.Option(help="Chance of a false alarm, over all time.")] = 0.01,
    context_columns: Columns = None,
    json: Json = False,
) -> None:
    """Watch the promise over a log: evidence over time, and the round of the alarm.

    For a conformal or a bracket spec, the evidence is against exchangeable rounds (within their bracket), and costs
    above the threshold are counted. For a student spec it is against Gaussian noise of one size.

    Exit status: 0 without an alarm, 1 with one, 2 if the input is wrong.
    """
    from safedial.cli.output import need_pictures, print_json, print_pairs, print_written
    from safedial.diagnostics.promise_watch import watch_log
    from safedial.errors import require

    need_pictures(out)
    drawn = out is None or out.suffix.lower() in (".png", ".pdf", ".svg")
    require(drawn, "--out", str(out), "must end in .png, .pdf or .svg")
    told, file = read_inputs(log, spec, context_columns)
    parts: Any = {"dial": file.dial, "features": file.features}
    watch = watch_log(told, file.spec, level=level, dose=file.dose, policy=file.policy, **parts)
    if out:
        from safedial.plots.monitor_picture import draw_monitor

        draw_monitor(watch, out)
    if json:
        print_json({"log": str(log), **watch.to_dict()} | ({"out": str(out)} if out else {}))
    else:
        shown = {name: "none" if value is None else value for name, value in watch.to_dict().items()}
        print_pairs(f"{log.name}: is the threshold kept as promised?", shown)
        typer.echo(watch.verdict())
        print_written([out])
    if watch.first_alarm is not None:
        raise typer.Exit(1)
