"""`safedial eluder`: how hard a function class is to learn, and Theorem 3's bound."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from safedial.cli.inputs import Json
from safedial.errors import InvalidInput, require

CLASSES = ("finite", "linear", "kernel")


def eluder(
    kind: Annotated[str, typer.Option("--class", help="finite, linear or kernel.")],
    *,
    epsilon: Annotated[float, typer.Option(help="The scale: differences up to this do not count.")] = 0.1,
    dim: Annotated[int, typer.Option(help="linear, kernel: dimension of the contexts.")] = 2,
    functions: Annotated[int, typer.Option(help="finite: functions with values uniform on [-1, 1].")] = 8,
    contexts: Annotated[int, typer.Option(help="finite, kernel: number of context points.")] = 12,
    values: Annotated[
        Path | None, typer.Option(help="finite: your own CSV, one function per line, one context per column.")
    ] = None,
    method: Annotated[str, typer.Option(help="finite: auto, exact or greedy (a lower bound).")] = "auto",
    kernel: Annotated[str, typer.Option(help="kernel: rbf:0.5, matern52:1+polynomial:2, ...")] = "rbf:0.5",
    norm: Annotated[float, typer.Option(help="kernel: bound on the functions' norm.")] = 2.0,
    coefficient_bound: Annotated[float, typer.Option(help="linear: bound on the coefficients' norm.")] = 1.0,
    context_bound: Annotated[float, typer.Option(help="linear, kernel: bound on the contexts' norm.")] = 1.0,
    seed: Annotated[int, typer.Option(help="finite, kernel: random seed.")] = 0,
    rounds: Annotated[int | None, typer.Option(help="Theorem 3's bound at 10, 100, ... up to this.")] = None,
    threshold: Annotated[float, typer.Option(help="Theorem 3: the cost threshold.")] = 0.5,
    reward_noise: Annotated[float, typer.Option(help="Theorem 3: sub-Gaussian constant of the reward.")] = 1.0,
    cost_noise: Annotated[float, typer.Option(help="Theorem 3: sub-Gaussian constant of the cost.")] = 1.0,
    estimation_risk: Annotated[float, typer.Option(help="Theorem 3: chance that the bound fails.")] = 0.01,
    ridge: Annotated[float, typer.Option(help="Theorem 3, linear and kernel: regularisation.")] = 1.0,
    json: Json = False,
) -> None:
    """Compute the eluder dimension of a class (exact, or marked as a bound) and Theorem 3's regret bound."""
    from safedial.cli.output import print_json, progress_bar
    from safedial.core.spec import SafetySpec
    from safedial.theory.cases import finite_case, kernel_case, linear_case, report, theorem3_curve

    require(kind in CLASSES, "--class", kind, "must be one of " + ", ".join(CLASSES))
    require(rounds is None or rounds >= 10, "--rounds", rounds, "must be >= 10")
    for name, value in (("--dim", dim), ("--functions", functions), ("--contexts", contexts)):
        require(value >= 1, name, value, "must be >= 1")
    gram = _gram(kernel, dim, contexts, context_bound, seed) if kind == "kernel" else None
    spec = SafetySpec(
        threshold=threshold,
        violation_risk=0.01,
        estimation_risk=estimation_risk / 2.0,
        reward_noise=reward_noise,
        cost_noise=cost_noise,
        coefficient_bound=norm if kind == "kernel" else coefficient_bound,
        context_bound=context_bound if gram is None else float(gram.diagonal().max()) ** 0.5,
        ridge=ridge,
    )
    with progress_bar(f"eluder dimension, {kind} class", 100 * len(str(rounds or 1))) as advance:
        if kind == "finite":
            table = _table(values, functions, contexts, seed)
            about = {"functions": table.shape[0], "contexts": table.shape[1]}
            case = finite_case(table, spec, method=method, progress=advance)
        elif gram is None:
            about = {"dim": dim, "coefficient_bound": coefficient_bound, "context_bound": context_bound}
            case = linear_case(dim, spec)
        else:
            about = {"dim": dim, "contexts": contexts, "kernel": kernel, "norm": norm}
            case = kernel_case(gram, spec)
        content = {"class": kind, **about, **report(case, epsilon)}
        content["theorem3"] = theorem3_curve(case, spec, rounds) if rounds else None
    if json:
        print_json(content)
    else:
        _print(content, estimation_risk)


def _table(values: Path | None, functions: int, contexts: int, seed: int) -> Any:
    """The user's matrix, or one drawn uniformly from [-1, 1]."""
    import numpy as np

    if values is None:
        return np.random.default_rng(seed).uniform(-1.0, 1.0, (functions, contexts))
    require(values.is_file(), "--values", str(values), "is not a file", "give a CSV with one function per line")
    try:
        return np.loadtxt(values, delimiter=",", ndmin=2)
    except (ValueError, UserWarning) as error:
        raise InvalidInput(
            f"--values = {str(values)!r}: must hold only numbers, the same count on each line ({error})"
        ) from error


def _gram(kernel: str, dim: int, contexts: int, context_bound: float, seed: int) -> Any:
    """The kernel matrix of contexts drawn uniformly from the ball of radius `context_bound`."""
    import numpy as np

    from safedial.function_classes.kernels import parse_kernel

    rng = np.random.default_rng(seed)
    points = rng.standard_normal((contexts, dim))
    points *= context_bound * (rng.random(contexts) ** (1.0 / dim) / np.linalg.norm(points, axis=1))[:, None]
    return parse_kernel(kernel)(points, points)


def _print(content: dict[str, Any], estimation_risk: float) -> None:
    """Two tables: the dimension, and Theorem 3's curve."""
    from safedial.cli.output import print_pairs, print_table, shown

    hidden = ("theorem3", "sequence", "pairs", "dimension", "kind", "class")
    if content["lower_method"] == content["upper_method"]:
        hidden += ("lower_bound", "lower_method", "upper_bound", "upper_method")
    pairs = {"dimension": f"{content['dimension']} ({content['kind']})"}
    pairs |= {name: value for name, value in content.items() if name not in hidden and value is not None}
    if content["sequence"]:
        more = " ..." if len(content["sequence"]) > 12 else ""
        pairs["sequence"] = " ".join(str(context) for context in content["sequence"][:12]) + more
    print_pairs(f"Eluder dimension, {content['class']} class", pairs)
    if content["theorem3"] is None:
        return
    heads = ("rounds", "dimension at 1/T", "radius, reward", "cost", "bound", "trivial")
    names = ("reward_radius", "cost_radius", "bound", "trivial_bound")
    rows = (
        (shown(row["rounds"]), f"{row['dimension']} ({row['kind']})", *(shown(row[name]) for name in names))
        for row in content["theorem3"]
    )
    print_table("Theorem 3: regret at most", heads, rows)
    typer.echo(
        f"Holds with probability {1.0 - estimation_risk:g} if mean reward and mean cost lie in this class "
        "and the noise constants are right."
    )
