"""`safedial simulate`: one policy in one world."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from safedial.errors import require

BOUNDS = "The promise"
WORLD = "The world"
POLICY = "The policy"


def simulate(
    policy: Annotated[str, typer.Option(help="hp_ucb, hp_probe, on_expectation, epsilon_greedy, thompson, clairvoyant, fixed.")],
    dim: Annotated[int, typer.Option(help="Dimension of the contexts.")],
    threshold: Annotated[float, typer.Option(help="The realized cost must not exceed this.", rich_help_panel=BOUNDS)],
    rounds: Annotated[int, typer.Option(help="Rounds for each seed.")],
    seeds: Annotated[int, typer.Option(help="How many seeds: 0, 1, ...")],
    violation_risk: Annotated[float, typer.Option(help="Chance a round that noise breaks the threshold.", rich_help_panel=BOUNDS)] = 0.01,
    estimation_risk: Annotated[float, typer.Option(help="Chance, once, that a confidence set misses.", rich_help_panel=BOUNDS)] = 0.01,
    promise: Annotated[str, typer.Option(help="per_round, or joint for never in any round.", rich_help_panel=BOUNDS)] = "per_round",
    reward_noise: Annotated[float, typer.Option(help="Sub-Gaussian constant of the reward.", rich_help_panel=BOUNDS)] = 1.0,
    cost_noise: Annotated[float, typer.Option(help="Sub-Gaussian constant of the cost.", rich_help_panel=BOUNDS)] = 1.0,
    coefficient_bound: Annotated[float, typer.Option(help="S: bound on the coefficients' norm.", rich_help_panel=BOUNDS)] = 1.0,
    context_bound: Annotated[float, typer.Option(help="L: bound on the contexts' norm.", rich_help_panel=BOUNDS)] = 1.0,
    ridge: Annotated[float, typer.Option(help="Regularisation.", rich_help_panel=BOUNDS)] = 1.0,
    radius: Annotated[str | None, typer.Option(help="paper, determinant or mixture (default).", rich_help_panel=POLICY)] = None,
    clip: Annotated[bool | None, typer.Option("--clip/--no-clip", help="Cut the cost bound at S times the context's norm. Default: yes, but no with --radius paper.", rich_help_panel=POLICY)] = None,
    probe: Annotated[str | None, typer.Option(help="hp_probe: sqrt (default) for 1/sqrt(t), or a share in [0, 1].", rich_help_panel=POLICY)] = None,
    epsilon: Annotated[float | None, typer.Option(help="epsilon_greedy: share of exploring rounds.", rich_help_panel=POLICY)] = None,
    learn_from: Annotated[str | None, typer.Option(help="epsilon_greedy: all or exploring.", rich_help_panel=POLICY)] = None,
    noise: Annotated[str, typer.Option(help="gaussian, uniform, rademacher or truncated.", rich_help_panel=WORLD)] = "gaussian",
    contexts: Annotated[str, typer.Option(help="iid or adversarial.", rich_help_panel=WORLD)] = "iid",
    baseline_cost: Annotated[float, typer.Option(help="Known cost without any action.", rich_help_panel=WORLD)] = 0.0,
    reward_sensor_noise: Annotated[float, typer.Option(help="Additive sensor error of the reward.", rich_help_panel=WORLD)] = 0.0,
    cost_sensor_noise: Annotated[float, typer.Option(help="Additive sensor error of the cost.", rich_help_panel=WORLD)] = 0.0,
    dose: Annotated[str, typer.Option(help="identity, power:P, hill:ED50[,SLOPE] or logistic:MID,STEEPNESS.", rich_help_panel=WORLD)] = "identity",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:  # fmt: skip
    """Simulate a policy in the paper's linear world and report violations, regret and reward."""
    from safedial.cli.output import print_json, print_pairs, progress_bar
    from safedial.core.dose import Dose
    from safedial.core.spec import SafetySpec
    from safedial.measure import summary
    from safedial.simulate import simulate as run
    from safedial.worlds.linear import LinearWorld

    spec = SafetySpec(
        threshold=threshold,
        violation_risk=violation_risk,
        estimation_risk=estimation_risk,
        promise=promise,  # pyright: ignore[reportArgumentType] -- checked by SafetySpec
        reward_noise=reward_noise,
        cost_noise=cost_noise,
        coefficient_bound=coefficient_bound,
        context_bound=context_bound,
        ridge=ridge,
        reward_sensor_noise=reward_sensor_noise,
        cost_sensor_noise=cost_sensor_noise,
    )
    world = LinearWorld(
        dim=dim,
        noise=noise,
        contexts=contexts,  # pyright: ignore[reportArgumentType] -- checked by LinearWorld
        baseline_cost=baseline_cost,
    )
    given = {"radius": radius, "clip": clip, "probe": _probe(probe), "epsilon": epsilon, "learn_from": learn_from}
    chosen = _policy(policy, {name: value for name, value in given.items() if value is not None})
    curve = Dose.of(_curve(dose))
    with progress_bar(f"{chosen.label}, {seeds} seeds", rounds) as advance:
        result = run(chosen, world, spec, rounds=rounds, seeds=seeds, dose=curve, progress=advance)
    report = summary(result)
    if json:
        print_json(report)
    else:
        print_pairs(f"{chosen.label} in the linear world", report)


def _policy(name: str, given: dict[str, Any]) -> Any:
    from inspect import signature

    from safedial.policies import POLICIES, make_policy

    if name in POLICIES:
        known = signature(POLICIES[name]).parameters
        for option in given:
            require(option in known, f"--{option.replace('_', '-')}", given[option], f"is not an option of {name}")
    return make_policy(name, **given)


def _probe(text: str | None) -> str | float | None:
    if text in (None, "sqrt"):
        return text
    try:
        return float(text)
    except ValueError:
        return text


def _curve(text: str) -> Any:
    """`hill:0.5,2` as a dose curve."""
    from safedial.core.dose import CURVES

    name, _, rest = text.partition(":")
    require(name in CURVES and name != "tabulated", "--dose", text, "must be identity, power:P, hill:ED50[,SLOPE] or logistic:MID,STEEPNESS")
    try:
        return CURVES[name](*(float(part) for part in rest.split(",") if part))
    except (TypeError, ValueError) as error:
        require(False, "--dose", text, str(error))
