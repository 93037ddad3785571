"""`safedial plan`: what to expect of a study."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.output import (
    Device,
    EngineName,
    Json,
    need_pictures,
    plain,
    print_json,
    print_table,
    print_written,
    progress_bar,
    read_named,
)
from safedial.cli.simulate import DOSES, own_world, read_curve, spec_options, stated_spec
from safedial.model.dose import Dose
from safedial.model.guarantee import CERTIFIED
from safedial.model.spec import CONSTANTS


def plan(
    context: typer.Context,
    rounds: Annotated[int, typer.Option(help="Rounds in the study.")],
    *,
    dim: Annotated[int | None, typer.Option(help="Dimension of the contexts.")] = None,
    threshold: Annotated[float | None, typer.Option(help="The realized cost must not exceed this.")] = None,
    total_risk: Annotated[float | None, typer.Option(help="The risk per round [0.02].")] = None,
    cost_noise: Annotated[float | None, typer.Option(help="Sub-Gaussian constant of the cost [1].")] = None,
    reward_noise: Annotated[float | None, typer.Option(help="Sub-Gaussian constant of the reward [1].")] = None,
    coefficient_bound: Annotated[float | None, typer.Option(help="S: bound on the coefficients' norm [1].")] = None,
    context_bound: Annotated[float | None, typer.Option(help="L: bound on the contexts' norm [1].")] = None,
    baseline_cost: Annotated[float, typer.Option(help="The known cost without any action, in every round.")] = 0.0,
    dose: Annotated[str | None, plain(f"The dose curve: {DOSES} [identity].")] = None,
    spec: Annotated[Path | None, typer.Option(help="A spec file; other options override its values.")] = None,
    policy: Annotated[str | None, plain(f"The policy [{CERTIFIED.default_policy}].")] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="For a bracket: the median of what units tolerate, as a multiple of the base [1]."),
    ] = None,
    tolerance_spread: Annotated[
        float | None,
        typer.Option(help="For a bracket: the standard deviation of the logarithm of that multiple [0.5]."),
    ] = None,
    explained: Annotated[
        float | None, typer.Option(help="For a learned base: the share of its variance that features explain [0.5].")
    ] = None,
    world: Annotated[
        str | None,
        plain("Your own world, module:factory[,FIELD=VALUE,...] [the linear one]."),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Studies simulated in each scenario: how many, or which, as 0:100.")
    ] = "100",
    engine: EngineName = "auto",
    device: Device = None,
    out: Annotated[Path | None, typer.Option(help="Write tables, a picture and a page into this folder.")] = None,
    json: Json = False,
) -> None:
    """Forecast a study's violations, reward and doses, both if the spec is true and if it is not.

    A conformal spec need not state noise, S and L, but a forecast needs them. If you give them here, the forecast marks
    them as assumptions about the world. For a bracket, units are assumed to tolerate log-normal multiples of the base.
    """
    from safedial.rounds.specfile import load_spec
    from safedial.stats import as_seeds
    from safedial.tools.plan_page import write_plan
    from safedial.tools.planning import plan as run
    from safedial.tools.planning import planned, scenarios_of

    fields = spec_options(context)
    need_pictures(out)
    file = load_spec(spec) if spec else None
    open_ = [name for name in CONSTANTS if file and getattr(file.spec, name) is None]
    assumed = {name: fields.pop(name) for name in open_ if name in fields}
    stated = stated_spec(fields, file)
    place = None if world is None else own_world(read_named(world, "--world"), dim)
    known: Any = place.dim if place else dim if dim is not None else file and file.dim
    given = file.policy if policy is None and file else None
    named = given or read_named(policy or CERTIFIED.default_policy, "--policy")
    chosen, stated = planned(named, stated, known, file.dial if file else None)
    units = {"tolerance": tolerance, "tolerance_spread": tolerance_spread, "explained": explained}
    assumed |= {name: value for name, value in units.items() if value is not None}
    which = as_seeds(seeds, "--seeds")
    curve = file.dose if dose is None and file else Dose.of(read_curve(dose or "identity"))
    options: dict[str, Any] = {"rounds": rounds, "seeds": which, "baseline_cost": baseline_cost, "assumed": assumed}
    options |= {"world": place, "dim": known, "dose": curve, "dial": file.dial if file else None, "engine": engine}
    options["device"] = device
    started = time.perf_counter()
    count = len(scenarios_of(chosen, stated, assumed, place))
    with progress_bar(f"plan, {len(which)} studies per scenario", rounds * count) as advance:
        made = run(chosen, stated, **options, progress=advance)
    paths = write_plan(out, made, seconds=time.perf_counter() - started) if out else []
    if json:
        report = {
            "words": made.words(),
            "assumed": dict(made.assumed),
            "baseline_cost": baseline_cost,
            "engine": made.engine,
            "compile_seconds": made.compile_seconds,
            "scenarios": made.table,
        }
        print_json(report | {"files": [str(path) for path in paths]})
    else:
        _print(made, paths)


def _print(made: Any, paths: list[Path]) -> None:
    from safedial.tools.plan_page import lines

    title = f"{made.policy.label}, {made.rounds} rounds, {made.seeds} studies of each scenario"
    shown = dict(made.worlds.heads)
    if made.dial.unit:
        shown["last_dose"] = f"dose,\n{made.dial.unit}"
    print_table(title, ("scenario", *shown.values()), lines(made, ("scenario", *shown)))
    typer.echo("\n".join(made.words()))
    above = "Costs above: rounds of a study with a cost above the threshold, on average"
    typer.echo(f"(* the guarantee is not proved there. {above}{made.worlds.note}.)")
    compiling = f"; compiling took {made.compile_seconds:.1f} s" if made.compile_seconds >= 0.05 else ""
    typer.echo(f"Played by engine {made.engine}{compiling}.")
    print_written(paths)
