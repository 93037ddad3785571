"""`safedial compare`: policies in the same rounds, with paired intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.inputs import Device, Draws, Dtype, EngineName, Json, SeedsText, plain, read_named
from safedial.cli.simulate import DOSES, NOISES, POLICY, WORLD, read_curve, spec_options, stated_spec


def compare(
    context: typer.Context,
    rounds: Annotated[int, typer.Option(help="Rounds for each seed.")],
    seeds: SeedsText,
    *,
    policy: Annotated[list[str] | None, typer.Option(help="Repeat it; the first is the reference. " + POLICY)] = None,
    spec: Annotated[
        list[Path] | None,
        typer.Option(help="A spec file, which other options override; or one for each policy, which it then names."),
    ] = None,
    world: Annotated[str, plain(WORLD)] = "linear",
    dim: Annotated[int | None, typer.Option(help="Dimension of the contexts.")] = None,
    threshold: Annotated[float | None, typer.Option(help="The realized cost must not exceed this.")] = None,
    total_risk: Annotated[float | None, typer.Option(help="The risk per round [0.02].")] = None,
    cost_noise: Annotated[float | None, typer.Option(help="Sub-Gaussian constant of the cost [1].")] = None,
    reward_noise: Annotated[float | None, typer.Option(help="Sub-Gaussian constant of the reward [1].")] = None,
    coefficient_bound: Annotated[float | None, typer.Option(help="S: bound on the coefficients' norm [1].")] = None,
    context_bound: Annotated[float | None, typer.Option(help="L: bound on the contexts' norm [1].")] = None,
    noise: Annotated[str, typer.Option(help=f"The noise family: {NOISES}.")] = "gaussian",
    dose: Annotated[str | None, plain(f"The dose curve: {DOSES} [identity].")] = None,
    level: Annotated[float, typer.Option(help="Of every interval, each on its own.")] = 0.95,
    engine: EngineName = "numpy",
    device: Device = None,
    draws: Draws = "numpy",
    dtype: Dtype = "float64",
    out: Annotated[
        Path | None, typer.Option(help="Write a table, its settings and a picture into this folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare policies on the same random numbers: differences of regret and of excesses, paired by seed.

    Example: safedial compare --policy hp_ucb --policy hp_probe --dim 5 --threshold 0.5 --rounds 2000 --seeds 20
    """
    import time

    from safedial.cli.nonlinear import Shape, default_dose, make_world
    from safedial.cli.output import need_pictures, print_json, print_written, progress_bar
    from safedial.core.dose import Dose
    from safedial.errors import require
    from safedial.io import output_folder
    from safedial.seeds import as_seeds
    from safedial.simulation.comparison import compare as run
    from safedial.specfile import load_spec

    need_pictures(out)
    files = [load_spec(path) for path in spec or ()]
    named = [read_named(text, "--policy") for text in policy or ()]
    if not named:
        require(all(file.policy for file in files), "--spec", spec, "names no policy", "give --policy")
        named = [dict(file.policy or {}) for file in files]
    require(named, "--policy", None, "is missing", "give it twice or more")
    fits = len(files) in (0, 1, len(named))
    require(fits, "--spec", len(files), f"files do not fit {len(named)} policies", "one for all, or one for each")
    fields, file = spec_options(context), files[0] if files else None
    stated = [stated_spec(fields, each) for each in files or (None,)]
    known = dim if dim is not None else file and file.dim
    shape = Shape(1000, "rbf:0.5", 2.0, 0.25, "", 0.0, 1, None)
    place, which = make_world(world, known, noise, shape, {}), as_seeds(seeds, "--seeds")
    curve = file.dose if dose is None and file else Dose.of(read_curve(dose or default_dose(world)))
    options: dict[str, Any] = {"rounds": rounds, "seeds": which, "dose": curve, "level": level}
    options |= {"engine": engine, "device": device, "draws": draws, "dtype": dtype}
    started = time.perf_counter()
    with progress_bar(f"{len(named)} policies, {len(which)} seeds", rounds * len(named)) as advance:
        found = run(named, place, stated if len(stated) > 1 else stated[0], **options, progress=advance)
    paths = []
    if out:
        paths = [str(path) for path in _written(found, output_folder(out), time.perf_counter() - started)]
    if json:
        print_json({"policies": found.table, "rounds": rounds, "seeds": which, "world": place.name, "files": paths})
    else:
        _print(found, f"{place.name}, {len(which)} seeds × {rounds} rounds")
        print_written(paths)


def _written(found: Any, folder: Path, seconds: float) -> list[Path]:
    """The table, what it was made from, and the picture."""
    from safedial.io import provenance, write_json, write_rows
    from safedial.simulation.summary import summary

    made = {label: summary(run)["settings"] for label, run in found.runs.items()}
    told = {"policies": made, "rounds": found.reference.rounds, "seeds": found.reference.seeds, "level": found.level}
    paths = [
        write_rows(folder / "compare.csv", found.rows),
        write_json(folder / "compare.provenance.json", provenance(told, seconds)),
        folder / "compare.png",
    ]
    found.plot(paths[-1])
    return paths


def _print(found: Any, where: str) -> None:
    from safedial.cli.output import print_table

    lines, first = [], next(iter(found.runs))
    for row in found.table:
        low, high = (f"{100.0 * row[f'excess_rate_{end}']:.3g}" for end in ("low", "high"))
        promise = "none" if row["promised_risk"] is None else f"{100.0 * row['promised_risk']:g}"
        difference = "" if row["policy"] == first else _shown(row, "regret_difference")
        excess = f"{100.0 * row['excess_rate']:.3g} ({low}–{high})"
        lines.append((row["policy"], excess, promise, _shown(row, "share", 100.0), _shown(row, "regret"), difference))
    print_table(where, ("policy", "over τ, %", "promise", "share, %", "regret", "less the first's"), lines)
    level = f"{found.level:.0%} intervals, each on its own"
    typer.echo(
        f"{level}; differences are paired by seed, on the same random numbers. Share: of the reward of a clairvoyant "
        "that knows the law of the noise."
    )
    if any(row["regret"] < 0.0 for row in found.table):
        typer.echo(
            "A regret below 0: the clairvoyant keeps the realized cost at the stated risk; that policy does not."
        )


def _shown(row: dict[str, Any], name: str, times: float = 1.0) -> str:
    if row[name] is None:
        return "none"
    if row[f"{name}_low"] is None:
        return f"{times * row[name]:.3g}"
    return f"{times * row[name]:.3g} ± {times * (row[f'{name}_high'] - row[f'{name}_low']) / 2.0:.2g}"
