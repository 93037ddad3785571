"""`safedial check`: does a log agree with the spec?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safedial.cli.inputs import Columns, Json, LogFile, SpecPath, read_inputs


def check(
    log: LogFile,
    spec: SpecPath,
    *,
    out: Annotated[Path | None, typer.Option(help="Write a one-page HTML report here.")] = None,
    target: Annotated[str, typer.Option(help="cost, which the promise concerns, or reward.")] = "cost",
    level: Annotated[float, typer.Option(help="Chance of any false flag, over all checks and all time.")] = 0.05,
    horizon: Annotated[int | None, typer.Option(help="Planned number of rounds. Default: the log's.")] = None,
    context_columns: Columns = None,
    json: Json = False,
) -> None:
    """Check the promise's assumptions: norms, tails, linearity, drift, dose curve, noise, single rounds.

    For a conformal spec: exchangeability, contexts, carry-over, information, dose curve, rounds at the start dose. For
    a bracket: monotonicity, the bracket on average, rounds, contexts, proposals, the start, information, missing ones.
    For a student spec: residuals, normality, equal variance, linearity, contexts.

    Exit status: 0 if no check raises a flag, 1 if one does, 2 if the input is wrong.
    """
    from safedial.cli.output import need_pictures, print_json, print_written
    from safedial.diagnostics import check_log
    from safedial.report.checks_page import verdict, write_checks

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
    from safedial.cli.output import print_table
    from safedial.diagnostics.finding import flag_at, shown

    rows = ((each.title, shown(each.evidence), each.word) for each in findings)
    print_table(title, ("check", "evidence", f"flag at {flag_at(findings):.0f}"), rows)
    for each in findings:
        if each.word != "quiet":
            typer.echo(f"{each.title}. {each.found} {each.means}\n")
    typer.echo(words)
