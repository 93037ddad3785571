"""`safedial evaluate`: what would policies have done on a log?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.inputs import Columns, Json, split


def evaluate(
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="A log or a study's export (.csv, .jsonl); with --storage a study.")
    ],
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy, or a spec file (.toml) with its own promise and options. May be repeated."),
    ] = None,
    spec: Annotated[
        Path | None, typer.Option(help="The spec file: threshold, risk, dose curve. A study has its own.")
    ] = None,
    storage: Annotated[str | None, typer.Option(help="The store that holds the study LOG.")] = None,
    context_columns: Columns = None,
    start_action: Annotated[
        float | None, typer.Option(help="A start that you declare safe, for policies with one.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of a randomised policy's random numbers; a study has its own.")] = 0,
    engine: Annotated[
        str, typer.Option(help="agent; replay (fast, without alarms); auto: replay from 20,000 rounds where it can.")
    ] = "auto",
    out: Annotated[Path | None, typer.Option(help="Write a one-page HTML report here.")] = None,
    json: Json = False,
) -> None:
    """Replay policies on a log: excesses, reward and doses, and where and for whom they would have exceeded.

    The results are exact if the dose curve is: reward and cost, divided by the effect of the dose, do not depend on the
    dose, so a round with any dose above 0 shows what every other dose would have led to. Under a growth bracket you get
    lower and upper bounds. The log of a study (.jsonl, or --storage) also holds the times of outcomes and the random
    numbers, so the study's own policy repeats it exactly.

    Example: safedial evaluate log.csv --spec spec.toml --policy hp_probe --policy hp_ucb --out report.html
    """
    from safedial.cli.output import need_pictures, print_json, print_written, progress_bar
    from safedial.evaluation import evaluate as run
    from safedial.evaluation.page import HEADS, cells, heading, words

    need_pictures(out)
    options = {"spec": spec, "context_columns": split(context_columns), "start_action": start_action, "seed": seed}
    with _source(log, storage) as (source, size), progress_bar("evaluating", size * max(1, len(policy or ()))) as step:
        found = run(source, policy or None, **options, engine=engine, progress=lambda _, count: step(count))  # pyright: ignore[reportArgumentType] -- a mapping of options
    if out:
        found.report(out)
    if json:
        print_json(found.to_dict() | ({"out": str(out)} if out else {}))
        return
    _print(heading(found), HEADS, cells(found), words(found))
    print_written([out])


@contextmanager
def _source(log: str, storage: str | None) -> Iterator[tuple[Any, int]]:
    """The log, and roughly how many rounds or events it has."""
    if storage is None:
        path = Path(log)
        lines = path.read_bytes().count(b"\n") if path.is_file() else 0
        yield log, lines
        return
    from safedial.cli.study_options import opened

    with opened(storage, log) as study:
        yield study, study.status()["seq"]


def _print(title: str, heads: Any, rows: Any, lines: list[str]) -> None:
    from textwrap import wrap

    from rich.console import Console

    from safedial.cli.output import print_table

    print_table(title, heads, rows)
    for line in lines:
        typer.echo("\n".join(wrap(line, min(Console().width, 120), subsequent_indent="  ")))
