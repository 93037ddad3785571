"""`safedial simulate`: one policy in one world. `safedial compare`: policies in the same rounds, with paired intervals.

Worlds and function classes are made here from their names on the command line.
"""

from __future__ import annotations

import time
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from safedial.cli.output import (
    Device,
    Draws,
    Dtype,
    EngineName,
    Json,
    SeedsText,
    need_pictures,
    plain,
    print_json,
    print_pairs,
    print_table,
    print_written,
    progress_bar,
    read_named,
    under,
)
from safedial.errors import InvalidInput, require
from safedial.io import output_folder, provenance, write_json, write_rows, write_text
from safedial.model.dose import CURVES, Dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.own_names import imported
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.policies import option_names
from safedial.policies.classes import CLASSES, FunctionClass
from safedial.policies.classes.features import fourier, splines
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.nonlinear_worlds import DOSE, KINDS, waves
from safedial.simulation.world import World
from safedial.simulation.worlds import world_from_dict

DOSE_RESPONSE = "dose-response"
WORLDS = ("linear", *KINDS, DOSE_RESPONSE)
MAPS = "fourier:COUNT[,LENGTH] or splines:KNOTS"
OWN_CLASS = {"finite": "finite", "kernel": "kernel", "logistic": "binary", "dose-toxicity": "kernel"}


class Shape(NamedTuple):
    """The command line's options for non-linear worlds and classes."""

    functions: int
    kernel: str
    norm: float
    odds: float
    features: str
    misspecification: float
    max_points: int
    radius: str | None


def make_world(text: str, dim: int | None, noise: str, shape: Shape, linear: dict[str, Any]) -> World:
    """A world by its name, which may bring fields: `name,field=value`. Only the linear world accepts the options in
    `linear`.
    """
    fields = read_named(text, "--world")
    name = fields.pop("name")
    if ":" not in name:
        require(name in WORLDS, "--world", name, "must be one of " + ", ".join(WORLDS), "or your own, module:factory")
        require(dim is not None, "--dim", dim, "is missing", "give it, or a spec file with a [world] table")
        fields = {"dim": dim} | fields
    if name == "linear":
        return world_from_dict({"noise": noise} | linear | fields)
    for option, value in linear.items():
        default = LinearWorld.__dataclass_fields__[option].default
        require(value == default, f"--{option.replace('_', '-')}", value, f"is not an option of the world {name}")
    if name in KINDS:
        parts = {"functions": shape.functions, "kernel": shape.kernel, "norm": shape.norm, "odds": shape.odds}
        return world_from_dict({"kind": name, "noise": noise, **parts} | fields)
    way_out = "it has tails=t2" if name == DOSE_RESPONSE else "write the fields of your world after its name"
    require(noise == "gaussian", "--noise", noise, f"is not an option of the world {name}", way_out)
    return (
        world_from_dict({"curve": "power"} | fields)
        if name == DOSE_RESPONSE
        else own_world({"name": name} | fields, dim)
    )


def own_world(fields: dict[str, Any], dim: int | None) -> World:
    """Your own world by its name and fields; `dim` is one of them if it takes that, and must be its own if not."""
    takes = dim is not None and "dim" in signature(imported(fields["name"], "--world")).parameters
    made = world_from_dict(({"dim": dim} if takes else {}) | fields)
    rule = f"is not the dimension of the world {fields['name']}, {made.dim}"
    require(dim is None or dim == made.dim, "--dim", dim, rule, "leave it out")
    return made


def make_classes(cost: str | None, reward: str | None, *, world: str, dim: int, spec: SafetySpec, shape: Shape) -> Any:
    """The two classes by their names. By default both are the class of the world."""
    name = cost or OWN_CLASS.get(world, "linear")
    chosen = _class(name, "--class", dim, spec, shape)
    if reward is None or reward == name:
        return {"cost_class": chosen}
    return {"cost_class": chosen, "reward_class": _class(reward, "--reward-class", dim, spec, shape)}


def default_dose(world: str) -> str:
    """The default dose curve of a world."""
    return DOSE if world == "dose-toxicity" else "identity"


def _class(name: str, option: str, dim: int, spec: SafetySpec, shape: Shape) -> FunctionClass:
    require(name in CLASSES, option, name, "must be one of " + ", ".join(CLASSES))
    with_radius = name in ("linear", "finite", "features") or shape.radius is None or option != "--class"
    require(with_radius, "--radius", shape.radius, f"is not an option of the class {name}", "leave it out")
    radius = {} if shape.radius is None else {"radius": shape.radius}
    if name == "linear":
        return CLASSES[name](**radius)
    if name == "finite":
        return CLASSES[name](waves(dim, shape.functions), **radius)
    if name == "kernel":
        return CLASSES[name](shape.kernel, norm=shape.norm, max_points=shape.max_points)
    if name == "features":
        return CLASSES[name](_map(shape.features, dim), misspecification=shape.misspecification, **radius)
    return CLASSES[name](norm=spec.coefficient_bound, odds=shape.odds)


def _map(text: str, dim: int) -> Any:
    name, _, rest = text.partition(":")
    try:
        numbers = [float(part) for part in rest.split(",") if part]
        if name == "fourier" and len(numbers) in (1, 2):
            return fourier(dim, count=int(numbers[0]), length=[*numbers, 0.5][1])
        if name == "splines" and len(numbers) == 1:
            return splines(dim, knots=int(numbers[0]))
    except InvalidInput:
        raise
    except ValueError as error:
        raise InvalidInput(f"--features = {text!r}: {error}; write {MAPS}") from error
    raise InvalidInput(f"--features = {text!r}: must be {MAPS}")


# --- `safedial simulate`: one policy in one world

# Spelled out, so that `--help` need not import NumPy; a test compares them with the lists they name.
POLICIES = (
    "hp_ucb, hp_probe, hp_conformal, hp_student, on_expectation, epsilon_greedy, thompson, clairvoyant, fixed, "
    "hp_bayes, nonlinear_hp_ucb, nonlinear_hp_probe"
)
RADII = "paper, mixture, self-normalised, noise-adaptive"
NOISES = "gaussian, uniform, rademacher, truncated, student-t3, exponential, context-scale"
CLASS_NAMES = "linear, finite, kernel, features or binary"
DOSES = "identity, power:P, hill:ED50[,SLOPE] or logistic:MID,STEEPNESS"


def _guarantee(text: str, *names: str) -> Any:
    return under("The guarantee", text, *names)


def _rule(text: str, *names: str) -> Any:
    return under("The policy's options", text, *names)


def _world(text: str) -> Any:
    return under("The world", text)


def _class_(text: str, *names: str) -> Any:
    return under("The function classes of nonlinear_hp_ucb and nonlinear_hp_probe", text, *names)


POLICY = f"One of {POLICIES}; or your own, module:factory[,option=value,...]. For hp_shield use safedial plan."
WORLD = (
    "linear, finite, kernel, logistic, dose-toxicity, dose-response, or your own, module:factory; [,FIELD=VALUE,...]."
)
WORDS = {
    "violation_ci": "violation rate, 95 % interval",
    "regret": "regret: reward lost against known means",
    "clairvoyant_reward": "reward if the means are known",
    "exact_clairvoyant_reward": "reward if the noise's law is known too",
    "full_dose_rounds": "rounds with the largest safe dose",
    "full_dose_violation_rate": "violation rate in those rounds",
    "regret_ci": "regret, 95 % interval",
    "informative_rounds": "rounds that taught something",
    "alarmed_seeds": "seeds with an alarm",
    "exact_share": "share of an all-knowing policy's reward",
    "attainable_share": "reward, as a share of what can be earned",
}
"""What a number of the report is called in the table."""

CLIP = "Cut the cost bound at S times the context's norm. Default: yes, but no with --radius paper."


def simulate(
    context: typer.Context,
    rounds: Annotated[int, typer.Option(help="Rounds for each seed.")],
    seeds: SeedsText,
    *,
    policy: Annotated[str | None, typer.Option(help=POLICY)] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension of the contexts.")] = None,
    threshold: Annotated[float | None, typer.Option(help="The realized cost must not exceed this.")] = None,
    spec: Annotated[Path | None, typer.Option(help="A spec file; other options override its values.")] = None,
    log: Annotated[
        Path | None, typer.Option(help="Write the first seed's rounds to this CSV file, in the units of --spec.")
    ] = None,
    violation_risk: Annotated[
        float | None, _guarantee("Chance per round that noise pushes the cost above the threshold [0.01].")
    ] = None,
    estimation_risk: Annotated[float | None, _guarantee("Chance that a bound is wrong in any round [0.01].")] = None,
    total_risk: Annotated[float | None, _guarantee("The sum of the two risks, instead of each.")] = None,
    threshold_on: Annotated[str | None, _guarantee("measured or true cost, if sensors err [measured].")] = None,
    sensor_dependent: Annotated[
        bool | None, _guarantee("The sensor error may depend on the outcome's noise.", "--sensor-dependent")
    ] = None,
    guarantee: Annotated[str | None, _guarantee("certified, joint (over all rounds) or conformal [certified].")] = None,
    reward_noise: Annotated[float | None, _guarantee("Sub-Gaussian constant of the reward [1].")] = None,
    cost_noise: Annotated[float | None, _guarantee("Sub-Gaussian constant of the cost [1].")] = None,
    coefficient_bound: Annotated[float | None, _guarantee("S: bound on the coefficients' norm [1].")] = None,
    context_bound: Annotated[float | None, _guarantee("L: bound on the contexts' norm [1].")] = None,
    ridge: Annotated[float | None, _guarantee("Regularisation [1].")] = None,
    margin: Annotated[str | None, _guarantee("Noise margin: subgaussian, gaussian or bounded [subgaussian].")] = None,
    margin_risk: Annotated[
        float | None, _guarantee("--margin bounded: learn the variance; chance that it is wrong in any round.")
    ] = None,
    noise_low: Annotated[float | None, _guarantee("--margin bounded: the noise's lower end.")] = None,
    noise_high: Annotated[float | None, _guarantee("--margin bounded: the noise's upper end.")] = None,
    radius: Annotated[str | None, _rule(f"One of {RADII} [mixture].")] = None,
    clip: Annotated[bool | None, _rule(CLIP, "--clip/--no-clip")] = None,
    probe: Annotated[str | None, _rule("hp_probe, hp_conformal, hp_student: sqrt for 1/sqrt(t), or a share.")] = None,
    epsilon: Annotated[float | None, _rule("epsilon_greedy: share of exploring rounds.")] = None,
    learn_from: Annotated[str | None, _rule("epsilon_greedy: all (default) or exploring.")] = None,
    start_dose: Annotated[
        float | None, _rule("hp_conformal, hp_student: a starting intensity you declare safe.")
    ] = None,
    groups: Annotated[str | None, _rule("hp_conformal: sign (default), or none: over all rounds.")] = None,
    scale: Annotated[float | None, _rule("thompson: how widely to sample.")] = None,
    cost_class: Annotated[
        str | None, _class_(f"The class of the mean cost: {CLASS_NAMES} [the world's].", "--class")
    ] = None,
    reward_class: Annotated[
        str | None, _class_("The class of the mean reward [the cost's class; linear if that is binary].")
    ] = None,
    features: Annotated[str, _class_("Class features: fourier:COUNT[,LENGTH] or splines:KNOTS.")] = "fourier:100,0.5",
    misspecification: Annotated[float, _class_("Class features: bound on their approximation error.")] = 0.0,
    max_points: Annotated[int, _class_("Class kernel: the most informative rounds it can hold.")] = 5000,
    world: Annotated[str, _world(WORLD)] = "linear",
    functions: Annotated[int, _world("World and class finite: how many functions.")] = 1000,
    kernel: Annotated[str, _world("World and class kernel: rbf:0.5, matern52:1+polynomial:2, ...")] = "rbf:0.5",
    norm: Annotated[float, _world("World and class kernel: norm of the functions.")] = 2.0,
    odds: Annotated[float, _world("World logistic, class binary: odds at full dose in context 0.")] = 0.25,
    noise: Annotated[str, _world(f"The noise family: {NOISES}.")] = "gaussian",
    mean: Annotated[str, _world("linear, or sine, which no linear learner fits.")] = "linear",
    contexts: Annotated[str, _world("iid, adversarial, or drift.")] = "iid",
    baseline_cost: Annotated[float, _world("Known cost without any action.")] = 0.0,
    reward_sensor_noise: Annotated[float | None, _world("Additive sensor error of the reward [0].")] = None,
    cost_sensor_noise: Annotated[float | None, _world("Additive sensor error of the cost [0].")] = None,
    dose: Annotated[str | None, _world(f"The dose curve: {DOSES} [identity].")] = None,
    engine: EngineName = "numpy",
    device: Device = None,
    draws: Draws = "numpy",
    dtype: Dtype = "float64",
    json: Json = False,
) -> None:
    """Simulate a policy in a world, the paper's linear one by default, and report violations, regret and reward."""
    from safedial.rounds.log_file import log_text
    from safedial.rounds.rules import named_policy
    from safedial.rounds.specfile import load_spec
    from safedial.simulation.results import logged_simulation, summary
    from safedial.simulation.run import find_policy, is_own_name
    from safedial.simulation.run import simulate as run
    from safedial.stats import as_seeds

    file = load_spec(spec) if spec else None
    stated = stated_spec(spec_options(context), file)
    shape = Shape(functions, kernel, norm, odds, features, misspecification, max_points, radius)
    own = {"contexts": contexts, "baseline_cost": baseline_cost, "mean": mean}
    place = make_world(world, file and file.dim if dim is None else dim, noise, shape, own)
    given = {"radius": radius, "clip": clip, "probe": _probe(probe), "epsilon": epsilon, "learn_from": learn_from}
    given |= {"scale": scale, "start_dose": start_dose}
    given |= {"groups": groups}
    given = {name: value for name, value in given.items() if value is not None}
    told = read_named(policy, "--policy") if policy else {}
    policy, given = told.pop("name", None), told | given
    if policy is None and file and file.policy and not given:
        chosen = named_policy(file.policy)
    elif is_own_name(policy):
        chosen = find_policy({"name": policy} | given)
    else:
        named = policy or (file and file.policy and file.policy["name"])
        require(named, "--policy", policy, "is missing", "give it, or a spec file with a [[policy]] table")
        taken = option_names(str(named))
        if "cost_class" in taken:
            given.pop("radius", None)
            given |= make_classes(cost_class, reward_class, world=world, dim=place.dim, spec=stated, shape=shape)
        else:
            for option, value in (("--class", cost_class), ("--reward-class", reward_class)):
                require(value is None, option, value, f"is not an option of {named}", "use nonlinear_hp_ucb")
        if "costs of 0 or 1" in place.facts and "binary_cost" in taken:
            given["binary_cost"] = True
        chosen = _policy(str(named), given)
    curve = file.dose if dose is None and file else Dose.of(read_curve(dose or default_dose(world)))
    which = as_seeds(seeds, "--seeds")
    with progress_bar(f"{chosen.label}, {len(which)} seeds", rounds) as advance:
        options: dict[str, Any] = {"rounds": rounds, "seeds": which, "dose": curve, "progress": advance}
        how: dict[str, Any] = {"engine": engine, "device": device, "draws": draws, "dtype": dtype}
        if log:
            played, result = logged_simulation(chosen, place, stated, **options, how=how)
            units = {"features": file.features, "dial": file.dial} if file else {}
            write_text(log, log_text(played, **units))
        else:
            result = run(chosen, place, stated, **options, **how)
    report = summary(result)
    if json:
        print_json(report | ({"log": str(log)} if log else {}))
    else:
        _print(report, f"{chosen.label}, {world} world", len(which), log, heuristic=GUARANTEES[chosen.guarantee].empty)
    if result.interrupted:
        raise typer.Exit(130)


def spec_options(context: typer.Context) -> dict[str, Any]:
    """The options given on the command line that are fields of a SafetySpec, by name."""
    given = {name: value for name, value in context.params.items() if value is not None}
    return {name: given[name] for name in SafetySpec.__dataclass_fields__ if name in given}


def stated_spec(fields: dict[str, Any], file: Any) -> Any:
    """The spec of the file, or the default one, with the command line's options in place."""
    risks = {"violation_risk": 0.01, "estimation_risk": 0.01}
    base: dict[str, Any] = file.spec.to_dict() if file else dict.fromkeys(CONSTANTS, 1.0) | risks
    stated = {"threshold", "costs"} & set(base | fields)
    require(stated, "--threshold", None, "is missing", "give it, or a spec file")
    if "total_risk" in fields:
        parts = ("violation_risk", "estimation_risk", "margin_risk")
        base = {name: value for name, value in base.items() if name not in parts}
    return SafetySpec(**(base | fields))


def _print(report: dict[str, Any], title: str, seeds: int, log: Path | None, *, heuristic: bool) -> None:
    shown = {name: value for name, value in report.items() if name != "settings"}
    shown["engine"] = " with draws from ".join(report["settings"][name] for name in ("engine", "draws"))
    guaranteed = report["guaranteed_risk"]
    nothing = "none: nothing is proved about the policy" if heuristic else "none on the realized cost in this world"
    shown["guaranteed_risk"] = nothing if guaranteed is None else f"at most {guaranteed:g} per round"
    if heuristic:
        del shown["uncertified_rounds"]
    print_pairs(title, {WORDS.get(name, name): value for name, value in shown.items()})
    if report["alarmed_seeds"]:
        typer.echo(
            f"The test of exchangeability fired in {report['alarmed_seeds']} of {seeds} seeds: rounds do not look "
            "exchangeable there, and the conformal guarantee is in doubt (docs/conformal.md)."
        )
    if shown.get("uncertified_rounds"):
        typer.echo(
            "In uncertified rounds even a dose of 0 may break the guarantee: baseline cost or sensor noise uses up the "
            "threshold."
        )
    print_written([log])


def _policy(name: str, given: dict[str, Any]) -> Any:
    """The policy with the given options. A policy that uses no radius or clip ignores those options."""
    from safedial.policies import POLICIES, make_policy

    if "radius" in given:
        clip = given.get("clip")
        given = {**given, "clip": given["radius"] != "paper" if clip is None else clip}
    if name in POLICIES:
        known = signature(POLICIES[name]).parameters
        given = {
            option: value for option, value in given.items() if option in known or option not in ("radius", "clip")
        }
        for option, value in given.items():
            require(option in known, f"--{option.replace('_', '-')}", value, f"is not an option of {name}")
    return make_policy(name, **given)


def _probe(text: str | None) -> str | float | None:
    if text in (None, "sqrt"):
        return text
    try:
        return float(text)
    except ValueError:
        return text


def read_curve(text: str) -> Any:
    """`hill:0.5,2` as a dose curve."""
    name, _, rest = text.partition(":")
    require(name in CURVES and name != "tabulated", "--dose", text, f"must be {DOSES}")
    try:
        return CURVES[name](*(float(part) for part in rest.split(",") if part))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"--dose = {text!r}: {error}") from error


# --- `safedial compare`: policies in the same rounds, with paired intervals


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
    from safedial.rounds.specfile import load_spec
    from safedial.simulation.comparison import compare as run
    from safedial.stats import as_seeds

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
        _print_comparison(found, f"{place.name}, {len(which)} seeds × {rounds} rounds")
        print_written(paths)


def _written(found: Any, folder: Path, seconds: float) -> list[Path]:
    """The table, what it was made from, and the picture."""
    from safedial.simulation.results import summary

    made = {label: summary(run)["settings"] for label, run in found.runs.items()}
    told = {"policies": made, "rounds": found.reference.rounds, "seeds": found.reference.seeds, "level": found.level}
    paths = [
        write_rows(folder / "compare.csv", found.rows),
        write_json(folder / "compare.provenance.json", provenance(told, seconds)),
        folder / "compare.png",
    ]
    found.plot(paths[-1])
    return paths


def _print_comparison(found: Any, where: str) -> None:
    lines, first = [], next(iter(found.runs))
    for row in found.table:
        low, high = (f"{100.0 * row[f'violation_rate_{end}']:.3g}" for end in ("low", "high"))
        guarantee = "none" if row["guaranteed_risk"] is None else f"{100.0 * row['guaranteed_risk']:g}"
        difference = "" if row["policy"] == first else _shown(row, "regret_difference")
        excess = f"{100.0 * row['violation_rate']:.3g} ({low}–{high})"
        lines.append((row["policy"], excess, guarantee, _shown(row, "share", 100.0), _shown(row, "regret"), difference))
    print_table(where, ("policy", "over τ, %", "guarantee", "share, %", "regret", "less the first's"), lines)
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
