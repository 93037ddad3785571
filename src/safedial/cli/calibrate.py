"""`safedial calibrate`: a dose curve and the constants, from pilot or published data; with `--bracket` a growth bracket
and a start, from pilot data.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.output import (
    Columns,
    Json,
    LogFile,
    need_pictures,
    print_json,
    print_table,
    print_written,
    progress_bar,
    split,
)
from safedial.errors import require

WIDEN = "give the dial's range: --dial-high (the largest setting) and --dial-low"


def calibrate(
    log: LogFile,
    *,
    out: Annotated[Path | None, typer.Option(help="Write a spec file here (needs --threshold).")] = None,
    threshold: Annotated[float | None, typer.Option(help="The largest cost you accept. Only you can state it.")] = None,
    total_risk: Annotated[float, typer.Option(help="The risk you accept in each round. Only you can state it.")] = 0.02,
    curve: Annotated[str, typer.Option(help="auto, identity, power, emax, logistic, hill or spline.")] = "auto",
    noise: Annotated[
        str, typer.Option(help="proportional to the intensity, or constant like a sensor's.")
    ] = "proportional",
    caution: Annotated[float, typer.Option(help="Factor applied to S, L and the noise constants.")] = 1.2,
    standardize: Annotated[bool, typer.Option("--standardize", help="Centre and scale the features; add a 1.")] = False,
    dial_low: Annotated[float, typer.Option(help="The setting without effect.")] = 0.0,
    dial_high: Annotated[float, typer.Option(help="The largest setting; the log's actions are in these units.")] = 1.0,
    unit: Annotated[str, typer.Option(help="The dial's unit, for display.")] = "",
    fold_rounds: Annotated[
        int | None, typer.Option(help="Include the curve's uncertainty in the bound, for this many planned rounds.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves, or the slopes, to this PNG file.")] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples.")] = 100,
    bracket: Annotated[
        str | None, typer.Option(help="Propose a growth bracket instead: auto, relative or additive.")
    ] = None,
    base: Annotated[str | None, typer.Option(help="For a bracket: the column of the protocol's setting.")] = None,
    unit_column: Annotated[
        str | None, typer.Option(help="For a bracket: the column that says whose row it is.")
    ] = None,
    below: Annotated[bool, typer.Option("--below", help="For a bracket: the threshold is a lower limit.")] = False,
    context_columns: Columns = None,
    json: Json = False,
) -> None:
    """Fit a monotone dose curve and propose S, L and the noise constants, each with its reason.

    With --bracket: propose a growth bracket, a floor and a start for hp_shield (docs/shield.md). hp_student needs no
    constants: keep only the dose curve of the written file, and state guarantee = "student" (docs/student.md).

    The log needs action and cost; reward and context columns are optional. Exit status: 0; 1 if the log holds too
    little for a spec file, which is then not written; 2 if the input is wrong.
    """
    from safedial.model.dial import Dial
    from safedial.rounds.specfile import spec_text
    from safedial.tools.calibration import calibrate as run
    from safedial.tools.calibration import fits

    need_pictures(plot)
    dial = Dial(low=dial_low, high=dial_high, unit=unit)
    if bracket is not None:
        require(not standardize, "--standardize", True, "is not for a bracket", "leave it out")
        given = {"threshold": threshold, "bracket": bracket, "base": base, "unit": unit_column, "caution": caution}
        given |= {"direction": "below" if below else "above", "dial": dial}
        propose_bracket(log, split(context_columns), given, risk=total_risk, out=out, plot=plot, json=json)
        return
    way_out = "data cannot tell which cost you accept"
    require(out is None or threshold is not None, "--threshold", threshold, "is needed to write a spec file", way_out)
    told, outcomes, features = _read(log, split(context_columns), dial, standardize)
    total = fits(told, outcomes=len(outcomes), curve=curve, resamples=resamples) if len(told) else 1
    with progress_bar("calibrate", total) as advance:
        found = run(
            told,
            outcomes=outcomes,
            curve=curve,
            noise=noise,  # pyright: ignore[reportArgumentType] -- checked by calibrate
            caution=caution,
            resamples=resamples,
            dial=dial,
            progress=advance,
        )
    text = None
    if threshold is not None and not found.problem:
        file, notes = _file(found, threshold, total_risk, fold_rounds, features)
        text = spec_text(file, notes=notes)
    written = _write(found, text, out, plot)
    if json:
        print_json(_report(found) | {"spec": text, "files": [str(path) for path in written]})
    else:
        _print(found, written)
    if found.problem:
        if not json:
            typer.echo(f"safedial: this log does not support a spec file. {found.problem}", err=True)
        raise typer.Exit(1)


def _read(log: Path, columns: list[str] | None, dial: Any, standardize: bool) -> tuple[Any, tuple[str, ...], Any]:
    """The log, its outcomes, and the features of the spec file: with ranges, and standardised if asked."""
    import csv

    from safedial.io import read_text
    from safedial.model.dial import Features
    from safedial.rounds.log_file import parse_log
    from safedial.tools.bracket_calibration import propose_ranges

    text = read_text(log, "log")
    heads = next(csv.reader(text.splitlines()), [])
    outcomes = ("cost", "reward") if "reward" in [name.strip() for name in heads] else ("cost",)
    options: Any = {"context_columns": columns, "dial": dial, "needs": ("action", "cost"), "widen_dial": WIDEN}
    told = parse_log(text, **options)
    if not told.dim:
        return told, outcomes, None
    ranges = propose_ranges(told.names, told.context)
    if not standardize:
        return told, outcomes, Features(names=told.names, ranges=ranges)
    center = [float(f"{value:.4g}") for value in told.context.mean(axis=0)]
    spread = told.context.std(axis=0) * told.dim**0.5
    scale = [float(f"{value:.3g}") if value > 0 else 1.0 for value in spread]
    features = Features(names=told.names, center=tuple(center), scale=tuple(scale), intercept=True, ranges=ranges)
    return parse_log(text, features=features, **options), outcomes, features


def _file(found: Any, threshold: float, total_risk: float, fold_rounds: int | None, features: Any) -> tuple[Any, dict]:
    """The spec file and its comments; if asked, the bound includes the curve's uncertainty."""
    from safedial.tools.bracket_calibration import range_words
    from safedial.tools.calibration import fold_curve_error

    file, notes = found.spec_file(threshold=threshold, total_risk=total_risk, features=features), found.notes()
    if features and features.ranges:
        notes |= {"": f"{notes['']}\n{range_words(features.ranges)}"}
    if fold_rounds is None:
        return file, notes
    error = found.curves["cost"].error
    way_out = "let --curve be auto, or a family with free numbers"
    require(error > 0.0, "--fold-rounds", fold_rounds, "has no uncertainty of the curve to fold in", way_out)
    words = (
        f"Folded in: S and cost_noise are raised so that the bound covers every cost curve within {error:.1%} of the "
        f"stated one: for the first {fold_rounds} rounds, with the mixture radius only. That the curve lies within it "
        "is an estimate, not a proof."
    )
    policy = {"name": "hp_probe", "radius": "mixture"}
    spec = fold_curve_error(file.spec, error=error, dim=found.dim, rounds=fold_rounds, radius=policy["radius"])
    return replace(file, spec=spec, policy=policy), notes | {"": notes[""] + "\n" + words}


def _write(found: Any, text: str | None, out: Path | None, plot: Path | None) -> list[Path]:
    from safedial.io import write_text

    if plot:
        from safedial.tools.pictures import draw_calibration

        draw_calibration(found, plot)
    if out and text:
        write_text(out, text)
    return [path for path, made in ((out, text), (plot, True)) if path and made]


def _report(found: Any) -> dict[str, Any]:
    return {
        "curves": {
            name: {
                "family": chosen.fit.family,
                **chosen.fit.curve.to_dict(),
                "error": chosen.error,
                "allowed_powers": found.allowed[name].range if name in found.allowed else None,
                "table": chosen.table,
            }
            for name, chosen in found.curves.items()
        },
        "confounding": found.confounding.to_dict(),
        "problem": found.problem,
        "left_out": found.left_out,
        "proposals": {name: proposal._asdict() for name, proposal in found.proposals.items()},
    }


def _print(found: Any, paths: list[Path]) -> None:
    from safedial.tools.findings import shown

    flag = found.confounding
    if flag.flagged:
        level = f"(evidence {shown(flag.evidence)}; a flag at {flag.needed:.0f} is false with probability at most 5 %)"
        typer.echo(f"FLAG, {flag.title.lower()} {level}. {flag.found} {flag.means}\n")
    for name, chosen in found.curves.items():
        if chosen.table:
            _print_families(name, chosen)
        typer.echo(f"The {name}'s {found.words(name)}\n")
    if found.left_out:
        typer.echo(f"{found.left_out}\n")
    for name, proposal in found.proposals.items():
        typer.echo(f"{name} = {proposal.value:g}. {proposal.reason}")
    print_written(paths)
    if not paths and not found.problem:
        typer.echo("Nothing written: give --threshold and --out to write a spec file, --plot for a picture.")


TABLE = ("loss", "difference", "error")


def _print_families(name: str, chosen: Any) -> None:
    heads = ("family", "free numbers", "held-out loss", "behind the best", "± one error")
    rows = []
    for family, row in chosen.table.items():
        mark = " *" if family == chosen.fit.family else ""
        numbers = (f"{row[key]:.4f}" if abs(row[key]) < 1e5 else f"{row[key]:.1e}" for key in TABLE)
        rows.append((family + mark, f"{row['free']:.0f}", *numbers))
    print_table(f"Dose curve of the {name}, by cross-validation", heads, rows)


# --- `safedial calibrate --bracket`: a growth bracket and a start, from pilot data


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
    from safedial.io import read_text, write_text
    from safedial.rounds.log_file import parse_log
    from safedial.rounds.specfile import spec_text
    from safedial.tools.bracket_calibration import calibrate_bracket
    from safedial.tools.calibration import ORDERS

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
        from safedial.tools.pictures import draw_bracket

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
