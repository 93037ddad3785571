"""`safedial choose`: which policy, from what the user can vouch for."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer

from safedial.cli.output import (
    Columns,
    Json,
    need_pictures,
    print_json,
    print_table,
    print_written,
    progress_bar,
    read_inputs,
    split,
    under,
)
from safedial.cli.simulate import DOSES, read_curve
from safedial.errors import InvalidInput, require
from safedial.model.brackets import GROWTHS
from safedial.model.spec import CONSTANTS

BRACKETS = "relative:LOW,HIGH,FLOOR, additive:LOW,HIGH or spread:STEP,SIGMA"
NUMBERS = ("cost_noise", "reward_noise", "coefficient_bound", "context_bound", "odds", "tolerance", "tolerance_spread")


def _asked(text: str, *names: str) -> Any:
    return under("What you can vouch for", text, *names)


def _plan(text: str) -> Any:
    return under("The plan", text)


def _number(text: str) -> Any:
    return under("Constants: stated if you vouch for them, else assumed for the forecast only", text)


def choose(
    context: typer.Context,
    pilot: Annotated[
        Path | None, typer.Argument(metavar="[PILOT.csv]", help="A log: context, action, reward, cost.")
    ] = None,
    *,
    curve: Annotated[
        str | None, _asked("How a unit's cost changes with the dial: exact, bracket or unknown [unknown].")
    ] = None,
    noise: Annotated[
        str | None, _asked("What is known of the noise: constants, gaussian, both or unknown [unknown].")
    ] = None,
    linear: Annotated[
        bool | None, _asked("The mean cost is linear in the context [no].", "--linear/--no-linear")
    ] = None,
    exchangeable: Annotated[
        bool | None, _asked("Rounds are as if drawn at random [no].", "--exchangeable/--no-exchangeable")
    ] = None,
    cost: Annotated[str | None, _asked("What is measured: measured, zero-one or several [measured].")] = None,
    threshold: Annotated[float | None, _plan("The realized cost must not exceed this.")] = None,
    risk: Annotated[float | None, _plan("Chance of an excess that you accept in a round [0.05].")] = None,
    rounds: Annotated[int | None, _plan("Rounds in the study [300].")] = None,
    dim: Annotated[int | None, _plan("Dimension of the contexts [5].")] = None,
    start: Annotated[
        float | None,
        _plan("A start that you declare safe for everyone: a share of the dial; with a bracket, of the base."),
    ] = None,
    bracket: Annotated[str | None, _plan(f"The growth bracket: {BRACKETS}.")] = None,
    base: Annotated[
        str | None, _plan("With a bracket: the feature with the protocol's setting [it comes with each question].")
    ] = None,
    dose: Annotated[str | None, _plan(f"The dose curve: {DOSES} [identity].")] = None,
    spec: Annotated[Path | None, _plan("A spec file: its guarantee and numbers; other options override them.")] = None,
    context_columns: Columns = None,
    cost_noise: Annotated[float | None, _number("Sub-Gaussian constant of the cost.")] = None,
    reward_noise: Annotated[float | None, _number("Sub-Gaussian constant of the reward.")] = None,
    coefficient_bound: Annotated[float | None, _number("S: bound on the coefficients' norm.")] = None,
    context_bound: Annotated[float | None, _number("L: bound on the contexts' norm.")] = None,
    odds: Annotated[float | None, _number("Costs of 0 or 1: odds of an event at the full dial in context 0.")] = None,
    tolerance: Annotated[float | None, _number("Bracket: the median of what units tolerate ÷ the base.")] = None,
    tolerance_spread: Annotated[
        float | None, _number("Bracket: the standard deviation of that ratio's logarithm.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Studies simulated for each policy: how many, or which, as 0:100.")] = "50",
    out: Annotated[
        Path | None, typer.Option(help="Write tables, a picture and the first policy's spec.toml into this folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Rank the policies whose assumptions you vouch for by what they would earn in your plan.

    Five questions ask what you can vouch for. A question that you leave open counts as "no"; with a pilot, it counts
    as "yes" if the pilot does not contradict it (never for Gaussian noise). Every policy whose assumptions you vouch
    for is simulated in your plan, all on the same rounds. For each other policy you are told what it needs.

    Example: safedial choose --curve exact --linear --noise gaussian --start 0.05 --threshold 0.5 --rounds 300 --dim 5

    Exit status: 0 if a policy is offered, 1 if none is, 2 if the input is wrong.
    """
    from safedial.rounds.log_file import read_log
    from safedial.stats import as_seeds
    from safedial.tools.candidates import QUESTIONS
    from safedial.tools.choosing import choose as run
    from safedial.tools.plan_page import write_ranking

    need_pictures(out)
    named = (*QUESTIONS, "threshold", "risk", "rounds", "dim", "start", "base")
    given: dict[str, Any] = _from_file(spec) if spec else {}
    given |= {name: context.params[name] for name in named if context.params[name] is not None}
    numbers = {name: context.params[name] for name in NUMBERS if context.params[name] is not None}
    given["constants"] = given.get("constants", {}) | numbers
    given |= {"growth": read_bracket(bracket)} if bracket else {}
    given |= {"dose": read_curve(dose)} if dose else {}
    stated = given.get("cost") != "several" or "costs" in given
    require(
        stated, "--cost", "several", "needs the costs, each with its limit", "state them in a spec file: --spec FILE"
    )
    log = None
    if pilot:
        columns = context_columns
        log = read_inputs(pilot, spec, columns)[0] if spec else read_log(pilot, context_columns=split(columns))
    which = as_seeds(seeds, "--seeds")
    with progress_bar(f"choose, {len(which)} studies per policy", 1000) as advance:
        found = run(log, **given, seeds=which, progress=lambda _, share: advance(1000 * share))  # pyright: ignore[reportArgumentType] -- a bar takes parts
    paths = write_ranking(out, found) if out else []
    if json:
        print_json(found.to_dict() | {"files": [str(path) for path in paths]})
    else:
        _print(found, paths)
    if not found.offers:
        raise typer.Exit(1)


def read_bracket(text: str) -> Any:
    """`relative:0.7,1.4,2` as a growth bracket."""
    name, _, rest = text.partition(":")
    require(name in GROWTHS, "--bracket", text, f"must be {BRACKETS}")
    try:
        low, high, *more = (float(part) for part in rest.split(","))
        named = dict(zip(("floor", "error"), more, strict=False))
        return GROWTHS[name](low, high, **named)
    except InvalidInput as error:
        raise InvalidInput(f"--bracket = {text!r}: {error}") from error
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"--bracket = {text!r}: must be {BRACKETS}") from error


VOUCHED_BY = {
    "certified": {"curve": "exact", "noise": "constants", "linear": True},
    "joint": {"curve": "exact", "noise": "constants", "linear": True},
    "conformal": {"curve": "exact", "exchangeable": True},
    "bracket": {"curve": "bracket", "exchangeable": True},
    "student": {"curve": "exact", "noise": "gaussian", "linear": True},
}
"""The answers that a spec with this guarantee gives."""


def _from_file(path: Path) -> dict[str, Any]:
    """What a spec file says: its guarantee is what is vouched for."""
    from safedial.rounds.rules import named_policy
    from safedial.rounds.specfile import load_spec

    file = load_spec(path)
    spec = file.spec
    options = named_policy(file.policy).options if file.policy else {}
    limits = {name: getattr(spec, name) for name in ("threshold", "costs")}
    told = {
        **VOUCHED_BY[spec.guarantee],
        **limits,
        "cost": "several" if limits["costs"] else None,
        "risk": spec.guaranteed_risk,
        "dim": file.dim,
        "start": options.get("start_scale", options.get("start_dose")),
        "growth": options.get("growth"),
        "base": options.get("base") if isinstance(options.get("base"), str) else None,
        "dose": file.dose,
        "constants": {name: getattr(spec, name) for name in CONSTANTS if getattr(spec, name) is not None},
    }
    return {name: value for name, value in told.items() if value is not None}


def _print(found: Any, paths: list[Path]) -> None:
    from rich.console import Console

    from safedial.tools.choosing import HEADS

    user, width = found.user, Console().width
    if found.offers:
        title = f"{user.rounds} rounds, dimension {user.dim}, risk {user.risk:g}; {found.seeds} studies of each policy"
        wide = 5 if width < 90 else 6 if width < 150 else 7
        print_table(title, HEADS[:wide], [row[:wide] for row in found.cells()])
    for line in found.words():
        indent = "  " if line.startswith("- ") else ""
        typer.echo("\n".join(wrap(line, min(width, 120), subsequent_indent=indent, break_on_hyphens=False)))
    print_written(paths)
    if found.offers and not paths:
        typer.echo("Next: --out DIR writes DIR/spec.toml; then safedial study create NAME --spec DIR/spec.toml")
