"""Algorithm 2 in worlds that are not linear, beside linear learners that do not know it.

τ = 0.5. Every policy sees the same rounds. The classes are the worlds' own (docs/nonlinear.md); the linear learners are
HP-UCB and HP-Probe as in the linear world, whose promise does not hold here. `theorem3` rows hold Theorem 3's bound for
the kernel class, from an upper bound on its eluder dimension over `CONTEXTS` contexts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safedial.core.dose import Dose, hill
from safedial.core.spec import SafetySpec
from safedial.experiments.synthetic import synthetic_spec
from safedial.function_classes import FunctionClass, binary, finite, kernel
from safedial.function_classes.kernels import parse_kernel
from safedial.io import output_folder, provenance, write_json, write_rows
from safedial.policies import Policy, hp_probe, hp_ucb, nonlinear_hp_probe, nonlinear_hp_ucb
from safedial.simulation.proved import promise_holds
from safedial.simulation.simulate import Simulation, simulate
from safedial.theory.cases import kernel_case, theorem3_curve
from safedial.worlds import NonlinearWorld
from safedial.worlds.linear import generators
from safedial.worlds.nonlinear import EC50, HILL, PEAK, waves

FUNCTIONS = 1000
CONTEXTS = 400


class Place(NamedTuple):
    """A world, its spec, the class its mean cost is learned in, and its dose curve."""

    world: NonlinearWorld
    changes: dict[str, Any]
    class_: Callable[[], FunctionClass]
    dose: Dose | None = None


PLACES: dict[str, Place] = {
    "finite, κ = 1": Place(
        NonlinearWorld(kind="finite", dim=2, functions=FUNCTIONS), {}, lambda: finite(waves(2, FUNCTIONS))
    ),
    "kernel, κ = 1": Place(NonlinearWorld(kind="kernel", dim=2), {}, kernel),
    "kernel, κ = 0.1": Place(NonlinearWorld(kind="kernel", dim=2), {"reward_noise": 0.1, "cost_noise": 0.1}, kernel),
    "logistic, δ = 0.2": Place(
        NonlinearWorld(kind="logistic", dim=2),
        {"violation_risk": 0.2, "estimation_risk": 0.05},
        lambda: binary(norm=1.0, odds=0.25),
    ),
    "dose-toxicity, κ = 0.3": Place(
        NonlinearWorld(kind="dose-toxicity", dim=2),
        {"reward_noise": 0.3, "cost_noise": 0.3},
        lambda: kernel("rbf:1", norm=3.0),
        Dose.of(hill(EC50 / PEAK, HILL)),
    ),
}

SERIES: dict[str, Callable[[FunctionClass], Policy]] = {
    "Non-linear HP-UCB": lambda class_: nonlinear_hp_ucb(cost_class=class_),
    "Non-linear HP-Probe": lambda class_: nonlinear_hp_probe(cost_class=class_),
    "HP-UCB, linear": lambda _: hp_ucb(),
    "HP-Probe, linear": lambda _: hp_probe(),
}


def place_spec(place: Place) -> SafetySpec:
    """The synthetic experiment's spec with the place's own noise and risks."""
    return replace(synthetic_spec(), **place.changes)


def nonlinear_rows(
    *, seeds: int, rounds: int, progress: Callable[[int], None] | None = None
) -> Iterator[dict[str, Any]]:
    """The curve of each world and policy, a row for each checkpoint."""
    for name, place in PLACES.items():
        spec = place_spec(place)
        for series, make in SERIES.items():
            policy = make(place.class_())
            run = simulate(
                policy, place.world, spec, rounds=rounds, seeds=seeds, dose=place.dose, points=50, progress=progress
            )
            yield from _curve(run, {"world": name, "series": series, "policy": policy.name})
    spec = place_spec(PLACES["kernel, κ = 1"])
    yield from _theorem3("kernel, κ = 1", replace(spec, coefficient_bound=2.0), seeds, rounds)


def _curve(run: Simulation, label: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = run.spec
    last = {
        "reward_share": float(run.reward.sum() / run.clairvoyant_reward.sum()),
        "violation_rate": float(run.violations.mean() / run.rounds),
        "risk": float(spec.violation_risk + spec.estimation_risk),
        "promise_holds": promise_holds(run.policy, run.world, spec),
        "seeds": len(run.seeds),
        "rounds": run.rounds,
    }
    for index, checkpoint in enumerate(run.checkpoints):
        yield label | {"round": int(checkpoint), "regret": float(run.regret_curve[index].mean())} | last


def _theorem3(world: str, spec: SafetySpec, seeds: int, rounds: int) -> Iterator[dict[str, Any]]:
    place = PLACES[world]
    points = place.world.draw_chunk(spec, generators([0]), CONTEXTS).context[:, 0]
    case = kernel_case(parse_kernel(place.world.kernel)(points, points), spec)
    for row in theorem3_curve(case, spec, 10 ** len(str(rounds))):
        told = {"world": world, "series": "Theorem 3", "policy": "theorem3", "round": row["rounds"]}
        rest = {"reward_share": np.nan, "violation_rate": np.nan, "risk": np.nan, "promise_holds": True}
        yield told | {"regret": row["bound"]} | rest | {"seeds": seeds, "rounds": rounds}


def write_nonlinear(
    out: str | Path, *, seeds: int, rounds: int, progress: Callable[[int], None] | None = None
) -> tuple[list[dict[str, Any]], list[Path]]:
    """Run, then write `nonlinear.csv` and `nonlinear.provenance.json` under `out`."""
    folder = output_folder(out)
    started = time.perf_counter()
    rows = list(nonlinear_rows(seeds=seeds, rounds=rounds, progress=progress))
    settings = {"seeds": list(range(seeds)), "rounds": rounds}
    settings["worlds"] = {
        name: {"class": place.class_().describe(), **place_spec(place).to_dict()} for name, place in PLACES.items()
    }
    return rows, [
        write_rows(folder / "nonlinear.csv", rows),
        write_json(folder / "nonlinear.provenance.json", provenance(settings, time.perf_counter() - started)),
    ]


def finals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last row of every curve but the bound's."""
    last = {(row["world"], row["series"]): row for row in rows if row["policy"] != "theorem3"}
    return list(last.values())
