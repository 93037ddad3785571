"""How many rounds to put in a block: the cost model that docs/replay.md derives and confirms.

A round of a block of B costs, with R the machine's GEMM rate and M the seconds it takes to move one element of Σ⁻¹
through the two d×d products,

    t(B) = c + 3d²/R + 4dB/R + M·d²/B

The first two terms do not depend on B. The third is the block's own work (G, the triangular solve); the fourth is Σ⁻¹
itself, read by one product and updated by the other once per block. The sum is least at

    B = √(MR/4 · d)

MR, the flops that a machine does while it moves one element, is near 70 on the machines we measured; under the root it
matters little, and the minimum is flat.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from safedial.bounds.estimate import Estimate
from safedial.errors import is_whole, require
from safedial.model.dose import Dose, DoseCurve
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.simulation import blocked, rank_one, reference
from safedial.simulation.replay_arguments import (
    Replay,
    Rounds,
    Trace,
    check_ridge,
    check_rounds,
    empty_trace,
    read_block,
)
from safedial.simulation.replay_round import make_turn, stacked, write_row, write_shared_rows

BALANCE = 70.0
"""M·R of the model: flops for each element moved."""

SMALLEST, LARGEST, STEP = 32, 1024, 32


REPLAYED = ("policy", "dose", "rewards", "costs", "reward_sensor", "cost_sensor", "baseline_cost")
"""What a replay returns of its arguments, as they were checked."""


def best_block(dim: int) -> int:
    """The model's block for contexts of this dimension, a multiple of 32.

    >>> [best_block(dim) for dim in (10, 512, 2048)]
    [32, 96, 192]
    """
    ideal = (BALANCE / 4.0 * dim) ** 0.5
    return min(max(STEP * round(ideal / STEP), SMALLEST), LARGEST)


# --- `replay`: one signature for every engine


class Engine(NamedTuple):
    """How a state is initialised, advanced by a block of rows, and turned into an estimate."""

    start: Callable[..., Any]
    advance: Callable[..., None]
    finish: Callable[..., Estimate]


ENGINES = {
    "reference": Engine(reference.start, reference.advance, reference.finish),
    "rank_one": Engine(rank_one.start, rank_one.advance, rank_one.finish),
    "blocked": Engine(blocked.start, blocked.advance, blocked.finish),
}


def replay(
    policy: str | Policy,
    contexts: Any,
    rewards: Any,
    costs: Any,
    spec: SafetySpec,
    *,
    engine: str = "blocked",
    block: int | None = None,
    dose: DoseCurve | Dose | None = None,
    dtype: str = "float64",
    informative: Any = None,
    reward_sensor: Any = None,
    cost_sensor: Any = None,
    baseline_cost: Any = 0.0,
    coins: Any = None,
    progress: Callable[[int], None] | None = None,
    device: str | None = None,
    run: int | None = None,
    kernel: str | None = None,
    warps: int | None = None,
) -> Replay:
    """What `policy` does on these contexts, in order, while it learns; decisions do not depend on the engine.

    Args:
        contexts: (rounds, dim), floating; a memory map is read by blocks and never copied whole.
        rewards, costs: (rounds,): the normalised outcomes R/g and (C − b₀)/g, mean plus noise. In the model they do not
            depend on the dose. They may be NaN where `informative` is False.
        spec: `threshold`, `violation_risk` and `estimation_risk` may be 1-d arrays: a row of results for each value, in
            one pass. Rows share one estimate if doses cannot change what is learned.
        engine: "blocked", "rank_one", "reference", or "jax".
        block: rounds per block; None: the size from the cost model in docs/replay.md.
        dose: the dose curves, known to the learner; the identity by default.
        dtype: "float64" or "float32", of contexts and linear algebra. Decisions near the switch may differ in float32.
        informative: which rounds' outcomes are seen, bool; all by default. A round at intensity 0 teaches nothing.
        reward_sensor, cost_sensor: (rounds,): raw sensor errors ε, if the spec has sensor noise; the engine divides
            them by the intensity and weights the sample.
        baseline_cost: b₀, a number or one for each round.
        coins: (rounds,), uniform on [0, 1), for randomised policies.
        progress: called with the number of rounds just finished.
        device, run, kernel, warps: for engine "jax" only (`jax_blocked.replay_jax` has their defaults).

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> contexts = rng.standard_normal((200, 5)) / 10
    >>> spec = SafetySpec(threshold=[0.2, 0.5], violation_risk=0.01, estimation_risk=0.01, reward_noise=1, cost_noise=1,
    ...                   coefficient_bound=1, context_bound=1)
    >>> outcome = replay("hp_ucb", contexts, *rng.standard_normal((2, 200)), spec)
    >>> outcome.intensity.shape, outcome.violations.tolist()
    ((2, 200), [0, 0])
    """
    started = time.perf_counter()
    names = (*ENGINES, "jax")
    require(engine in names, "engine", engine, "must be one of " + ", ".join(names))
    options: dict[str, Any] = {"device": device, "run": run, "kernel": kernel, "warps": warps}
    options = {name: value for name, value in options.items() if value is not None}
    words = f"are not arguments of replay with engine = {engine!r}"
    require(engine == "jax" or not options, "replay", sorted(options), words)
    require(block is None or (is_whole(block)), "block", block, "must be a whole number >= 1 or None")
    rounds = check_rounds(
        policy,
        contexts,
        rewards,
        costs,
        spec,
        dose=dose,
        dtype=dtype,
        informative=informative,
        reward_sensor=reward_sensor,
        cost_sensor=cost_sensor,
        baseline_cost=baseline_cost,
        coins=coins,
        progress=progress,
    )
    if engine != "reference":
        check_ridge(rounds, engine)
    if engine == "jax":
        radius = rounds.policy.options.get("radius")
        way_out = "use another engine"
        require(radius != "noise-adaptive", "radius", radius, "is not for engine 'jax'", way_out)
        from safedial.simulation.jax_blocked import replay_jax

        trace, estimates, size, device, kernel = replay_jax(rounds, block, **options)
    else:
        size = min(block or best_block(rounds.dim), rounds.number)
        trace, estimates = _replay_cpu(ENGINES[engine], rounds, size)
        device, kernel = "cpu", "none"
    return Replay(
        **{name: getattr(rounds, name) for name in REPLAYED},
        spec=spec,
        **trace._asdict(),
        estimates=estimates,
        seconds=time.perf_counter() - started,
        engine=engine,
        block=size,
        dtype=dtype,
        device=device,
        kernel=kernel,
    )


def _replay_cpu(engine: Engine, rounds: Rounds, block: int) -> tuple[Trace, tuple[Estimate, ...]]:
    """One pass over the contexts, with one state for all rows if they share it, else one each."""
    trace = empty_trace(len(rounds.specs), rounds.number)
    learning = rounds.specs[:1] if rounds.shared else rounds.specs
    adaptive = rounds.policy.options.get("radius") == "noise-adaptive"
    energies = [[0.0, 0.0] if adaptive else None for _ in learning]
    states = [engine.start(rounds.dim, spec.ridge, rounds.dtype, block) for spec in learning]
    for start in range(0, rounds.number, block):
        rows, norms = read_block(rounds, start, min(start + block, rounds.number))
        for number, (state, spec) in enumerate(zip(states, learning, strict=True)):
            turn, predictions, decided = make_turn(rounds, spec, start, norms, energies[number])
            engine.advance(state, rows, turn)
            write_row(trace, number, start, predictions, decided)
            if len(rounds.specs) > len(states):
                write_shared_rows(trace, rounds, start, stacked(predictions))
        if rounds.progress:
            rounds.progress(len(rows))
    return trace, tuple(engine.finish(state) for state in states)
