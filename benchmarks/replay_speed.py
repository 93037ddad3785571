"""How long a replay takes for each round, by engine, beside this machine's matrix product.

hp_ucb, unit noise, τ = 0.5, contexts of norm 1. Each engine is timed from the call to the answer, set-up included.
There every cost bound is cut at S‖x‖, so all actions are equal; engines are compared on a run without the cut. The
slow engines are timed on the first rounds only, and the report says how many. `triangle_us_per_round` is the bare
arithmetic of a rank-one engine that keeps one triangle of Σ⁻¹ (symv, syr) and makes no decisions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import seconds_of
from safedial.errors import is_whole, require
from safedial.paper.synthetic import synthetic_spec
from safedial.policies import hp_ucb
from safedial.simulation.replay import replay
from safedial.simulation.replay_arguments import Replay
from safedial.simulation.replay_round import routines, scaled_identity

ENGINES = ("reference", "rank_one", "blocked")
CHOICES = ("all", *ENGINES, "jax")

POLICY, UNCUT = hp_ucb(), hp_ucb(clip=False)
SPEC = synthetic_spec()

REFERENCE_ROUNDS = 64
REFERENCE_FLOPS, RANK_ONE_FLOPS = 2e11, 1e11
"""The time limit of the slow engines: some seconds each."""


def bench_replay(
    dim: int, *, rounds: int, engine: str = "all", dtype: str = "float64", device: str | None = None
) -> dict[str, Any]:
    """Microseconds per round, flop rates (4d² per round) and the largest difference in actions between the engines."""
    for name, value in (("dim", dim), ("rounds", rounds)):
        require(is_whole(value), name, value, "must be a whole number >= 1")
    require(engine in CHOICES, "engine", engine, "must be one of " + ", ".join(CHOICES))
    require(dtype in ("float64", "float32"), "dtype", dtype, "must be 'float64' or 'float32'")
    require(device is None or engine == "jax", "device", device, "is for --engine jax", "leave it out")
    given = drawn_rounds(dim, rounds, dtype)
    counts = {
        "reference": min(rounds, REFERENCE_ROUNDS, max(2, int(REFERENCE_FLOPS / (dim**3 / 3 + 1e6)))),
        "rank_one": min(rounds, max(32, int(RANK_ONE_FLOPS / (4 * dim**2 + 1e5)))),
        "blocked": rounds,
        "jax": rounds,
    }
    named = ENGINES if engine == "all" else (engine,)
    outcomes: dict[str, Replay] = {}
    for name in named:
        part = tuple(column[: counts[name]] for column in given)
        outcomes[name] = fastest_run(name, part, dtype, _device(name, device), repeats=1 if name == "reference" else 2)
    times = {name: outcome.seconds / outcome.rounds * 1e6 for name, outcome in outcomes.items()}
    least = min(counts[name] for name in named)
    contexts, rewards, costs = (column[:least] for column in given)
    alike = {
        name: replay(UNCUT, contexts, rewards, costs, SPEC, engine=name, dtype=dtype, **_device(name, device))
        for name in named
    }
    fastest = times.get("blocked", times.get("jax"))
    report = {
        "dim": dim,
        "rounds": rounds,
        "dtype": dtype,
        "device": outcomes[named[-1]].device,
        **{f"{name}_us_per_round": times.get(name) for name in ENGINES},
        "gemm_gflops": gemm_gflops(max(dim, 512), dtype),
        "blocked_gflops": None if fastest is None else 4e-3 * dim**2 / fastest,
        "max_action_difference": _largest_difference(alike, "intensity"),
        "reference_rounds": counts["reference"] if "reference" in outcomes else 0,
        "rank_one_rounds": counts["rank_one"] if "rank_one" in outcomes else 0,
        "max_width_difference": _largest_difference(outcomes, "width"),
        "closest_to_the_switch": min(float(np.abs(each.reward_index).min()) for each in outcomes.values()),
        "block": outcomes[named[-1]].block,
    }
    if engine == "all":
        report["triangle_us_per_round"] = _triangle(given[0][: min(200, counts["rank_one"])], dtype)
    if engine == "jax":
        report |= {"jax_us_per_round": times["jax"], "kernel": outcomes["jax"].kernel}
    return report


def _device(engine: str, device: str | None) -> dict[str, Any]:
    return {"device": device} if engine == "jax" else {}


def gemm_gflops(dim: int, dtype: str) -> float:
    """The rate of a dim×dim matrix product, best of a few, through the BLAS that the engines use."""
    rng = np.random.default_rng(1)
    left = np.asfortranarray(rng.standard_normal((dim, dim)), dtype=dtype)
    room, gemm = np.empty_like(left), routines(np.dtype(dtype)).gemm
    seconds = [seconds_of(lambda: gemm(1.0, left, left, c=room, overwrite_c=1)) for _ in range(4)]
    return 2e-9 * dim**3 / min(seconds)


def drawn_rounds(dim: int, count: int, dtype: str) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((count, dim))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True) * (1.0 + 1e-6)
    return contexts.astype(dtype), *rng.standard_normal((2, count))


def fastest_run(engine: str, given: tuple[Any, ...], dtype: str, options: dict[str, Any], *, repeats: int) -> Replay:
    """The fastest of `repeats` runs: the first one also starts threads and, in JAX, compiles."""
    contexts, rewards, costs = given
    runs = (
        replay(POLICY, contexts, rewards, costs, SPEC, engine=engine, dtype=dtype, **options) for _ in range(repeats)
    )
    return min(runs, key=lambda outcome: outcome.seconds)


def _largest_difference(outcomes: dict[str, Replay], name: str) -> float:
    """The largest difference between any two engines, on the rounds both replayed."""
    traces = [getattr(outcome, name)[0] for outcome in outcomes.values()]
    pairs = [(left, right) for left in traces for right in traces if left is not right]
    shortest = [min(len(left), len(right)) for left, right in pairs]
    return max(
        (float(np.abs(left[:size] - right[:size]).max()) for (left, right), size in zip(pairs, shortest, strict=True)),
        default=0.0,
    )


def _triangle(contexts: Any, dtype: str) -> float:
    """Microseconds per round of symv and syr on one triangle."""
    blas, inverse = routines(np.dtype(dtype)), scaled_identity(contexts.shape[1], 1.0, dtype)

    def loop() -> None:
        for context in contexts:
            direction = blas.symv(1.0, inverse, context, lower=1)
            gain = 1.0 / (1.0 + float(blas.dot(context, direction)))
            blas.syr(-gain, direction, a=inverse, lower=1, overwrite_a=1)

    return min(seconds_of(loop), seconds_of(loop)) / len(contexts) * 1e6
