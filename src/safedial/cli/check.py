"""The commands on logs: `safedial check` (does it agree with the spec?), `safedial monitor` (do its costs keep the
guarantee?) and `safedial evaluate` (what would policies have done on it?).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer

from safedial.cli.output import (
    Columns,
    Json,
    LogFile,
    SpecPath,
    need_pictures,
    print_json,
    print_pairs,
    print_table,
    print_written,
    progress_bar,
    read_inputs,
    split,
)
from safedial.errors import require


def check(
    log: LogFile,
    spec: SpecPath,
    *,
    out: Annotated[Path | None, typer.Option(help="Write a one-page HTML report here.")] = None,
    target: Annotated[str, typer.Option(help="cost, which the guarantee concerns, or reward.")] = "cost",
    level: Annotated[float, typer.Option(help="Chance of any false flag, over all checks and all time.")] = 0.05,
    horizon: Annotated[int | None, typer.Option(help="Planned number of rounds. Default: the log's.")] = None,
    context_columns: Columns = None,
    json: Json = False,
) -> None:
    """Check the guarantee's assumptions: norms, tails, linearity, drift, dose curve, noise, single rounds.

    For a conformal spec: exchangeability, contexts, carry-over, information, dose curve, rounds at the start dose. For
    a bracket: monotonicity, the bracket on average, rounds, contexts, proposals, the start, information, missing ones.
    For a student spec: residuals, normality, equal variance, linearity, contexts.

    Exit status: 0 if no check raises a flag, 1 if one does, 2 if the input is wrong.
    """
    from safedial.tools.checks import check_log
    from safedial.tools.checks_page import verdict, write_checks

    need_pictures(out)
    told, file = read_inputs(log, spec, context_columns)
    rounds, findings = check_log(
        told,
        file.spec,
        dose=file.dose,
        target=target,  # pyright: ignore[reportArgumentType] -- checked by check_log
        level=level,
        horizon=horizon,
        policy=file.policy,
        dial=file.dial,
        features=file.features,
    )
    flagged = [each.name for each in findings if each.flagged]
    if out:
        write_checks(out, rounds, findings, log=log.name, level=level)
    if json:
        report = {"log": str(log), "target": target, "level": level, "rounds": len(rounds), "flagged": flagged}
        print_json(report | {"findings": [each.to_dict() for each in findings]} | ({"out": str(out)} if out else {}))
    else:
        _print(findings, verdict(findings), f"{log.name}: {len(rounds)} rounds with a dose, {target} checked")
        print_written([out])
    if flagged:
        raise typer.Exit(1)


def _print(findings: list, words: str, title: str) -> None:
    from safedial.tools.findings import flag_at, shown

    rows = ((each.title, shown(each.evidence), each.word) for each in findings)
    print_table(title, ("check", "evidence", f"flag at {flag_at(findings):.0f}"), rows)
    for each in findings:
        if each.word != "quiet":
            typer.echo(f"{each.title}. {each.found} {each.means}\n")
    typer.echo(words)


# --- `safedial monitor`: do the costs of a log keep the guarantee?


def monitor(
    log: LogFile,
    spec: SpecPath,
    *,
    out: Annotated[Path | None, typer.Option(help="Draw the evidence over time to this PNG, PDF or SVG file.")] = None,
    level: Annotated[float, typer.Option(help="Chance of a false alarm, over all time.")] = 0.01,
    context_columns: Columns = None,
    json: Json = False,
) -> None:
    """Watch the guarantee over a log: evidence over time, and the round of the alarm.

    For a conformal or a bracket spec, the evidence is against exchangeable rounds (within their bracket), and costs
    above the threshold are counted. For a student spec it is against Gaussian noise of one size.

    Exit status: 0 without an alarm, 1 with one, 2 if the input is wrong.
    """
    from safedial.tools.checks import watch_log

    need_pictures(out)
    drawn = out is None or out.suffix.lower() in (".png", ".pdf", ".svg")
    require(drawn, "--out", str(out), "must end in .png, .pdf or .svg")
    told, file = read_inputs(log, spec, context_columns)
    parts: Any = {"dial": file.dial, "features": file.features}
    watch = watch_log(told, file.spec, level=level, dose=file.dose, policy=file.policy, **parts)
    if out:
        from safedial.tools.checks_page import draw_monitor

        draw_monitor(watch, out)
    if json:
        print_json({"log": str(log), **watch.to_dict()} | ({"out": str(out)} if out else {}))
    else:
        shown = {name: "none" if value is None else value for name, value in watch.to_dict().items()}
        print_pairs(f"{log.name}: is the threshold kept as guaranteed?", shown)
        typer.echo(watch.verdict())
        print_written([out])
    if watch.first_alarm is not None:
        raise typer.Exit(1)


# --- `safedial evaluate`: what would policies have done on a log?


def evaluate(
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="A log or a study's export (.csv, .jsonl); with --storage a study.")
    ],
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy, or a spec file (.toml) with its own guarantee and options. May be repeated."),
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
    from safedial.tools.evaluation import evaluate as run
    from safedial.tools.evaluation_page import HEADS, cells, heading, words

    need_pictures(out)
    options = {"spec": spec, "context_columns": split(context_columns), "start_action": start_action, "seed": seed}
    with _source(log, storage) as (source, size), progress_bar("evaluating", size * max(1, len(policy or ()))) as step:
        found = run(source, policy or None, **options, engine=engine, progress=lambda _, count: step(count))  # pyright: ignore[reportArgumentType] -- a mapping of options
    if out:
        found.report(out)
    if json:
        print_json(found.to_dict() | ({"out": str(out)} if out else {}))
        return
    _print_evaluation(heading(found), HEADS, cells(found), words(found))
    print_written([out])


@contextmanager
def _source(log: str, storage: str | None) -> Iterator[tuple[Any, int]]:
    """The log, and roughly how many rounds or events it has."""
    if storage is None:
        path = Path(log)
        lines = path.read_bytes().count(b"\n") if path.is_file() else 0
        yield log, lines
        return
    from safedial.cli.study_output import opened

    with opened(storage, log) as study:
        yield study, study.status()["seq"]


def _print_evaluation(title: str, heads: Any, rows: Any, lines: list[str]) -> None:
    from rich.console import Console

    print_table(title, heads, rows)
    for line in lines:
        typer.echo("\n".join(wrap(line, min(Console().width, 120), subsequent_indent="  ")))
