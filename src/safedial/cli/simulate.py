"""`safedial simulate`: one policy in one world."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.core.confidence import NAMES as RADIUS_NAMES
from safedial.core.confidence import resolve_clip
from safedial.errors import InvalidInput, require
from safedial.policies import POLICIES, make_policy
from safedial.worlds.noise import NOISES

CLASSES = "linear, finite, kernel, features, binary or parametric"
DOSES = "identity, power:P, hill:ED50[,SLOPE] or logistic:MID,STEEPNESS"


def _in(panel: str, text: str, *names: str) -> Any:
    """An option with its help, under a heading of the help page; [words] are escaped, which would pass for markup."""
    return typer.Option(*names, help=re.sub(r"\[(?=[a-z])", r"\\[", text), rich_help_panel=panel)


def _promise(text: str, *names: str) -> Any:
    return _in("The promise", text, *names)


def _rule(text: str, *names: str) -> Any:
    return _in("The policy's options", text, *names)


def _world(text: str) -> Any:
    return _in("The world", text)


def _class_(text: str, *names: str) -> Any:
    return _in("The function classes of nonlinear_hp_ucb and nonlinear_hp_probe", text, *names)


CLIP = "Cut the cost bound at S times the context's norm. Default: yes, but no with --radius paper."


def simulate(
    rounds: Annotated[int, typer.Option(help="Rounds for each seed.")],
    seeds: Annotated[int, typer.Option(help="How many seeds: 0, 1, ...")],
    *,
    policy: Annotated[str | None, typer.Option(help="One of " + ", ".join(POLICIES) + ".")] = None,
    dim: Annotated[int | None, typer.Option(help="Dimension of the contexts.")] = None,
    threshold: Annotated[float | None, typer.Option(help="The realized cost must not exceed this.")] = None,
    spec: Annotated[Path | None, typer.Option(help="A spec file: all of the promise, unless said otherwise.")] = None,
    log: Annotated[Path | None, typer.Option(help="Write the first seed's rounds to this CSV file.")] = None,
    violation_risk: Annotated[float | None, _promise("Chance a round that noise breaks the threshold [0.01].")] = None,
    estimation_risk: Annotated[float | None, _promise("Chance, once, that a confidence set misses [0.01].")] = None,
    total_risk: Annotated[float | None, _promise("Instead of the two: their sum.")] = None,
    threshold_on: Annotated[str | None, _promise("measured or true cost, where the sensor errs [measured].")] = None,
    sensor_dependent: Annotated[
        bool | None, _promise("The sensor error may depend on the outcome's noise.", "--sensor-dependent")
    ] = None,
    promise: Annotated[str | None, _promise("certified, joint (never in any round) or conformal [certified].")] = None,
    reward_noise: Annotated[float | None, _promise("Sub-Gaussian constant of the reward [1].")] = None,
    cost_noise: Annotated[float | None, _promise("Sub-Gaussian constant of the cost [1].")] = None,
    coefficient_bound: Annotated[float | None, _promise("S: bound on the coefficients' norm [1].")] = None,
    context_bound: Annotated[float | None, _promise("L: bound on the contexts' norm [1].")] = None,
    ridge: Annotated[float | None, _promise("Regularisation [1].")] = None,
    margin: Annotated[
        str | None, _promise("Noise margin: subgaussian, gaussian, quantile or bounded [subgaussian].")
    ] = None,
    margin_risk: Annotated[float | None, _promise("Chance, once, that the learned margin is wrong.")] = None,
    noise_low: Annotated[float | None, _promise("--margin bounded: the noise's lower end.")] = None,
    noise_high: Annotated[float | None, _promise("--margin bounded: the noise's upper end.")] = None,
    radius: Annotated[str | None, _rule("One of " + ", ".join(RADIUS_NAMES) + " [mixture].")] = None,
    clip: Annotated[bool | None, _rule(CLIP, "--clip/--no-clip")] = None,
    probe: Annotated[str | None, _rule("hp_probe, hp_conformal: sqrt for 1/sqrt(t), or a share.")] = None,
    epsilon: Annotated[float | None, _rule("epsilon_greedy: share of exploring rounds.")] = None,
    learn_from: Annotated[str | None, _rule("epsilon_greedy: all (default) or exploring.")] = None,
    start_dose: Annotated[float | None, _rule("hp_conformal: an intensity you declare safe, to start with.")] = None,
    confidence: Annotated[float | None, _rule("hp_conformal: use the training-conditional rank.")] = None,
    form: Annotated[str | None, _rule("hp_conformal: split (default) or full.")] = None,
    scaled: Annotated[bool | None, _rule("hp_conformal: divide scores by an estimated scale.", "--scaled")] = None,
    scale: Annotated[float | None, _rule("thompson: how widely to sample.")] = None,
    cost_class: Annotated[
        str | None, _class_(f"Where the mean cost lies: {CLASSES} [the world's own].", "--class")
    ] = None,
    reward_class: Annotated[
        str | None, _class_("Where the mean reward lies [the cost's class, linear beside binary].")
    ] = None,
    features: Annotated[str, _class_("Class features: fourier:COUNT[,LENGTH] or splines:KNOTS.")] = "fourier:100,0.5",
    misspecification: Annotated[float, _class_("Class features: what they miss at most.")] = 0.0,
    max_points: Annotated[int, _class_("Class kernel: how many informative rounds it can hold.")] = 5000,
    world: Annotated[str, _world("linear, finite, kernel, logistic or dose-toxicity.")] = "linear",
    functions: Annotated[int, _world("World and class finite: how many functions.")] = 1000,
    kernel: Annotated[str, _world("World and class kernel: rbf:0.5, matern52:1+polynomial:2, ...")] = "rbf:0.5",
    norm: Annotated[float, _world("World and class kernel: norm of the functions.")] = 2.0,
    odds: Annotated[float, _world("World logistic, class binary: odds at full dose in context 0.")] = 0.25,
    noise: Annotated[str, _world("The noise family: " + ", ".join(NOISES) + ".")] = "gaussian",
    mean: Annotated[str, _world("linear, or sine, with which a linear learner is wrong.")] = "linear",
    contexts: Annotated[str, _world("iid, adversarial, or drift.")] = "iid",
    baseline_cost: Annotated[float, _world("Known cost without any action.")] = 0.0,
    reward_sensor_noise: Annotated[float | None, _world("Additive sensor error of the reward [0].")] = None,
    cost_sensor_noise: Annotated[float | None, _world("Additive sensor error of the cost [0].")] = None,
    dose: Annotated[str | None, _world(f"The dose curve: {DOSES} [identity].")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Simulate a policy in a world, the paper's linear one by default, and report violations, regret and reward."""
    from safedial.cli.nonlinear import Shape, default_dose, make_classes, make_world
    from safedial.cli.output import print_json, progress_bar
    from safedial.core.dose import Dose
    from safedial.decision.rules import named_policy
    from safedial.io import write_text
    from safedial.rounds_io import log_text
    from safedial.simulation.logged import logged_simulation
    from safedial.simulation.run import simulate as run
    from safedial.simulation.summary import summary
    from safedial.specfile import load_spec

    stated_options = SpecOptions(
        threshold=threshold,
        violation_risk=violation_risk,
        estimation_risk=estimation_risk,
        total_risk=total_risk,
        threshold_on=threshold_on,
        sensor_dependent=sensor_dependent,
        promise=promise,
        reward_noise=reward_noise,
        cost_noise=cost_noise,
        coefficient_bound=coefficient_bound,
        context_bound=context_bound,
        ridge=ridge,
        reward_sensor_noise=reward_sensor_noise,
        cost_sensor_noise=cost_sensor_noise,
        margin=margin,
        margin_risk=margin_risk,
        noise_low=noise_low,
        noise_high=noise_high,
    )
    file = load_spec(spec) if spec else None
    stated = stated_spec(stated_options.given(), file)
    known = dim if dim is not None else file and file.dim
    require(known is not None, "--dim", dim, "is missing", "give it, or a spec file with a [world] table")
    shape = Shape(functions, kernel, norm, odds, features, misspecification, max_points, radius)
    own = {"contexts": contexts, "baseline_cost": baseline_cost, "mean": mean}
    place = make_world(world, known, noise, shape, own)  # pyright: ignore[reportArgumentType] -- checked above
    given = {"radius": radius, "clip": clip, "probe": _probe(probe), "epsilon": epsilon, "learn_from": learn_from}
    given |= {"scale": scale, "start_dose": start_dose, "confidence": confidence, "form": form, "scaled": scaled}
    given = {name: value for name, value in given.items() if value is not None}
    if policy is None and file and file.policy and not given:
        chosen = named_policy(file.policy)
    else:
        named = policy or (file and file.policy and file.policy["name"])
        require(named, "--policy", policy, "is missing", "give it, or a spec file with a [[policy]] table")
        if str(named).startswith("nonlinear"):
            given.pop("radius", None)
            given |= make_classes(cost_class, reward_class, world=world, dim=place.dim, spec=stated, shape=shape)
        else:
            for option, value in (("--class", cost_class), ("--reward-class", reward_class)):
                require(value is None, option, value, f"is not an option of {named}", "use nonlinear_hp_ucb")
        if named == "clairvoyant" and place.binary_cost:
            given["binary_cost"] = True
        chosen = _policy(str(named), given)
    curve = file.dose if dose is None and file else Dose.of(read_curve(dose or default_dose(world)))
    with progress_bar(f"{chosen.label}, {seeds} seeds", rounds) as advance:
        options: dict[str, Any] = {"rounds": rounds, "seeds": seeds, "dose": curve, "progress": advance}
        if log:
            told, result = logged_simulation(chosen, place, stated, **options)
            write_text(log, log_text(told))
        else:
            result = run(chosen, place, stated, **options)
    report = summary(result)
    if json:
        print_json(report | ({"log": str(log)} if log else {}))
    else:
        _print(report, f"{chosen.label} in the {world} world", seeds, log, heuristic=chosen.promise == "heuristic")


@dataclass(frozen=True, kw_only=True)
class SpecOptions:
    """The options that are fields of a SafetySpec; None where one is not given."""

    threshold: float | None = None
    violation_risk: float | None = None
    estimation_risk: float | None = None
    total_risk: float | None = None
    threshold_on: str | None = None
    sensor_dependent: bool | None = None
    promise: str | None = None
    reward_noise: float | None = None
    cost_noise: float | None = None
    coefficient_bound: float | None = None
    context_bound: float | None = None
    ridge: float | None = None
    reward_sensor_noise: float | None = None
    cost_sensor_noise: float | None = None
    margin: str | None = None
    margin_risk: float | None = None
    noise_low: float | None = None
    noise_high: float | None = None

    def given(self) -> dict[str, Any]:
        """Those that are given, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def stated_spec(fields: dict[str, Any], file: Any) -> Any:
    """The spec: a file's, or the command line's defaults, with what was said on the command line in their place."""
    from safedial.core.spec import SafetySpec

    constants = {"reward_noise": 1.0, "cost_noise": 1.0, "coefficient_bound": 1.0, "context_bound": 1.0}
    base: dict[str, Any] = (
        file.spec.to_dict() if file else constants | {"violation_risk": 0.01, "estimation_risk": 0.01}
    )
    require("threshold" in base | fields, "--threshold", None, "is missing", "give it, or a spec file")
    if "total_risk" in fields:
        parts = ("violation_risk", "estimation_risk", "margin_risk")
        base = {name: value for name, value in base.items() if name not in parts}
    elif fields.get("margin") == "quantile":
        base = {"margin_risk": 0.01} | base
    return SafetySpec(**(base | fields))


def _print(report: dict[str, Any], title: str, seeds: int, log: Path | None, *, heuristic: bool) -> None:
    from safedial.cli.output import print_pairs

    shown = {name: value for name, value in report.items() if name != "settings"}
    promised = report["promised_risk"]
    nothing = "none: the cost's class is heuristic" if heuristic else "none here on the realized cost"
    shown["promised_risk"] = nothing if promised is None else f"at most {promised:g} a round"
    if heuristic:
        del shown["uncertified_rounds"]
    print_pairs(title, shown)
    if report["alarmed_seeds"]:
        typer.echo(
            f"The test of exchangeability fired in {report['alarmed_seeds']} of {seeds} seeds: rounds do not look "
            "exchangeable there, and the conformal promise is in doubt (docs/conformal.md)."
        )
    if shown.get("uncertified_rounds"):
        typer.echo(
            "In uncertified rounds not even zero keeps the promise: baseline cost or sensor noise fills the threshold."
        )
    if log:
        typer.echo(f"Written:\n  {log}")


def _policy(name: str, given: dict[str, Any]) -> Any:
    """The policy with the options given; a radius or clip is no mistake for a policy that needs none."""
    from inspect import signature

    if "radius" in given:
        given = {**given, "clip": resolve_clip(given["radius"], given.get("clip"))}
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
    from safedial.core.dose import CURVES

    name, _, rest = text.partition(":")
    require(name in CURVES and name != "tabulated", "--dose", text, f"must be {DOSES}")
    try:
        return CURVES[name](*(float(part) for part in rest.split(",") if part))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"--dose = {text!r}: {error}") from error
