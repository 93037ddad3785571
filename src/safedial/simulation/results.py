"""What a simulation shows: a summary in plain numbers, the log of a run, and tidy tables, one row for each observation,
with every setting under a plain name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from safedial.errors import require
from safedial.io import card, data_frame
from safedial.model.costs import as_stated, require_one_cost, thresholds
from safedial.model.dose import Dose, DoseCurve
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import NAMES, SWEPT, SafetySpec, one_row
from safedial.policies import Policy, guaranteed_risk, shown_spec
from safedial.rounds.log_file import Log
from safedial.rounds.rules import plain_options, shortest_dose, write_parts
from safedial.simulation.engines import USUAL
from safedial.simulation.loop import Played
from safedial.simulation.proof import guarantee_holds
from safedial.simulation.rule import CURVES
from safedial.simulation.run import Simulation, simulate
from safedial.simulation.world import Array, World
from safedial.stats import Seeds, seed_interval, violation_interval

if TYPE_CHECKING:
    from pandas import DataFrame

# --- A simulation in a few plain numbers


def summary(simulation: Simulation, row: int = 0) -> dict[str, Any]:
    """One spec row of a simulation as plain numbers, averaged over seeds."""
    violations, most = simulation.violations[row], simulation.attainable_reward
    form = write_parts({"spec": simulation.spec, "dose": simulation.dose})
    return {
        "policy": simulation.policy.name,
        "dim": simulation.world.dim,
        "threshold": _threshold(simulation.spec, row),
        "rounds": simulation.rounds,
        "seeds": len(simulation.seeds),
        "violation_rate": float(violations.mean() / simulation.rounds),
        "violation_ci": list(violation_interval(violations, simulation.rounds)),
        "regret": float(simulation.regret[row].mean()),
        "reward": float(simulation.reward[row].mean()),
        "clairvoyant_reward": float(simulation.clairvoyant_reward[row].mean()),
        "rounds_per_second": simulation.rounds_per_second,
        "exact_clairvoyant_reward": float(simulation.exact_clairvoyant_reward[row].mean()),
        "full_dose_rounds": float(simulation.full_dose_rounds[row].mean()),
        "full_dose_violation_rate": _share(simulation.full_dose_violations[row], simulation.full_dose_rounds[row]),
        "guaranteed_risk": guaranteed(simulation, row),
        "regret_ci": list(seed_interval(simulation.regret[row])),
        "informative_rounds": float(simulation.informative_rounds[row].mean()),
        "uncertified_rounds": float(simulation.uncertified_rounds[row].mean()),
        "alarmed_seeds": int(simulation.alarmed[row].sum()),
        "exact_share": _share(simulation.reward[row], simulation.exact_clairvoyant_reward[row]),
        "attainable_share": None if most is None else _share(simulation.reward[row], most[row]),
        "settings": {
            "spec": shown_spec(simulation.policy, form["spec"]),
            "policy": plain_options(simulation.policy.options),
            "world": simulation.world.to_dict(),
            "dose": form["dose"],
            "seeds": simulation.seeds,
            "engine": simulation.engine,
            "draws": simulation.draws,
            **({} if simulation.stated is None else {"stated": simulation.stated.to_dict()}),
        },
    }


def notebook_card(simulation: Simulation) -> str:
    """A simulation as HTML for a notebook: a row for each spec row, and whether the guarantee is proved here."""
    rounds, guarantee = simulation.rounds, GUARANTEES[simulation.policy.guarantee]
    rows = (
        {
            "threshold": _threshold(simulation.spec, row),
            "violation rate": float(simulation.violations[row].mean() / rounds),
            "95 % interval": list(violation_interval(simulation.violations[row], rounds)),
            "guaranteed risk": guaranteed(simulation, row),
            "regret": float(simulation.regret[row].mean()),
            "share of the clairvoyant's reward": _share(simulation.reward[row], simulation.clairvoyant_reward[row]),
        }
        for row in range(len(simulation.violations))
    )
    proved = _proved(simulation)
    note = f"{guarantee.in_brief} It is true in this simulated world." if proved else "Nothing is proved in this world."
    title = f"{simulation.policy.name} in {simulation.world.name}: {rounds:,} rounds, {len(simulation.seeds)} seeds"
    return card(title, rows, [note])


def _threshold(spec: SafetySpec, row: int) -> Any:
    """A spec row's threshold, or those of several costs by name."""
    return as_stated(
        spec, {name: float(np.atleast_1d(each)[row if np.ndim(each) else 0]) for name, each in thresholds(spec).items()}
    )


def _share(part: Array, whole: Array) -> float | None:
    """Σ part / Σ whole, or None if the whole is 0."""
    return float(part.sum() / whole.sum()) if whole.sum() else None


def guaranteed(simulation: Simulation, row: int) -> float | None:
    """The risk of a spec row's guarantee (`SafetySpec.guaranteed_risk`), or None if there is no guarantee."""
    if not _proved(simulation):
        return None
    total = np.atleast_1d(guaranteed_risk(simulation.policy, simulation.stated or simulation.spec))
    return float(total[row if total.size > 1 else 0])


def _proved(simulation: Simulation) -> bool:
    """Whether the guarantee is proved: the world is within what was stated to the policy, its threshold too."""
    spec, stated = simulation.spec, simulation.stated or simulation.spec
    kept = spec.costs is not None or bool(np.all(stated.threshold <= np.asarray(spec.threshold)))
    return kept and guarantee_holds(simulation.policy, simulation.world, stated, true=spec)


# --- The log of a simulated run


def simulated_log(
    policy: str | Policy,
    world: World,
    spec: SafetySpec,
    *,
    rounds: int,
    seed: int = 0,
    dose: DoseCurve | Dose | None = None,
) -> Log:
    """The log of one simulated run, an example for every command that reads logs.

    >>> from safedial.simulation.linear_world import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> log = simulated_log("hp_probe", LinearWorld(dim=3), spec, rounds=50)
    >>> len(log), log.names
    (50, ('x1', 'x2', 'x3'))
    """
    log, _ = logged_simulation(policy, world, spec, rounds=rounds, seeds=[seed], dose=dose)
    return log


def play_one(run: Simulation, seed: int, row: int) -> Played:
    """The rounds of one seed and spec row of a simulation, played again."""
    chunks: list[Played] = []
    stated = None if run.stated is None else one_row(run.stated, row)
    told: dict[str, Any] = {"rounds": run.rounds, "seeds": [seed], "dose": run.dose, "points": 1, "stated": stated}
    simulate(run.policy, run.world, one_row(run.spec, row), **told, record=chunks.append)
    return _joined(chunks)


def _joined(chunks: list[Played]) -> Played:
    """Chunks of rounds as one, of the first spec row and seed."""
    context, action, reward = (np.concatenate([chunk[part][:, 0, 0] for chunk in chunks]) for part in range(3))
    costs: list[Any] = [chunk.cost if isinstance(chunk.cost, dict) else {"": chunk.cost} for chunk in chunks]
    joined = {name: np.concatenate([each[name][:, 0, 0] for each in costs]) for name in costs[0]}
    return Played(context, action, reward, joined.get("", joined))  # pyright: ignore[reportArgumentType] -- by name


def logged_simulation(
    policy: str | Policy,
    world: World,
    spec: SafetySpec,
    *,
    rounds: int,
    seeds: Seeds,
    dose: DoseCurve | Dose | None = None,
    progress: Callable[[int], None] | None = None,
    how: Mapping[str, Any] = USUAL,
) -> tuple[Log, Simulation]:
    """`simulate` with these options, and the log of its first spec row and seed. `how`: engine, device, draws and dtype
    of `simulate`.
    """
    require_one_cost(spec, "have no log", "simulate, and record what was played")
    chunks: list[Played] = []
    result = simulate(
        policy, world, spec, rounds=rounds, seeds=seeds, dose=dose, progress=progress, record=chunks.append, **how
    )
    context, action, reward, cost = _joined(chunks)
    log = Log(
        names=tuple(f"x{number}" for number in range(1, world.dim + 1)),
        context=context,
        action=action,
        reward=reward,
        cost=cost,
        round=np.arange(1.0, len(action) + 1.0),
        advised=action,
        baseline_cost=np.full(len(action), world.baseline_cost),
    )
    return log, result


# --- Simulations as tidy tables

FIRST = ("policy", "world", "dim", "rounds", *SWEPT)
"""The columns that come first."""

RESULTS = ("violation_rate", "regret", "reward", "clairvoyant_reward", "informative_rounds", "uncertified_rounds")
POOLED = ("seeds", "ci_low", "ci_high", "regret_low", "regret_high", "reward_share", "attainable_share")
"""What a row of a sweep has beside."""

COMPARED = ("violation_rate", "regret", "share", "violation_difference", "regret_difference")
"""The numbers of a comparison, each with the ends of its interval."""

TAKEN = {"policy", "world", "dose", "rounds", "engine", "device", "draws", "dtype", "interrupted", "seed", "round"}
TAKEN |= {*NAMES, *RESULTS, *POOLED, *CURVES, "attainable_reward", "guaranteed_risk", "level"}
TAKEN |= {f"{name}{end}" for name in COMPARED for end in ("", "_low", "_high")}
"""The names of columns that no field of a world may have."""


def flatten(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a cell of a sweep, or of a simulation, under plain names: a policy's options under policy_…, the
    world's name under `world`, its fields under their names, or under world_… where a setting or a result has that.
    """
    options = {f"policy_{name}": value for name, value in cell["policy"].items() if name != "name"}
    dose = json.dumps(cell["dose"]) if len(cell["dose"]) > 1 else cell["dose"]["curve"]
    return {
        "policy": cell["policy"]["name"],
        **cell["spec"],
        **{_field(name): value for name, value in cell["world"].items()},
        **options,
        "dose": dose,
        "rounds": cell["rounds"],
    }


def _field(name: str) -> str:
    """The column of a world's field."""
    taken = name in TAKEN or name.startswith(("policy_", "stated_", "world_"))
    return "world" if name == "name" else f"world_{name}" if taken else name


def settings(run: Simulation, row: int = 0) -> dict[str, Any]:
    """Everything that a simulation was made from, for one spec row: options, ridge, noise, the world's name and fields,
    the engine; under stated_… what the policy decided by where that differs.
    """
    form = write_parts({"policy": run.policy, "spec": one_row(run.spec, row), "dose": run.dose})
    spec = shown_spec(run.policy, form["spec"])
    world = {"name": run.world.name} | run.world.to_dict()
    flat = flatten({**form, "spec": spec, "world": world, "dose": shortest_dose(form["dose"]), "rounds": run.rounds})
    flat |= {"engine": run.engine, "draws": run.draws, "interrupted": run.interrupted}
    flat |= _stated(run, row)
    ordered = {name: flat[name] for name in FIRST if name in flat} | flat
    return {name: json.dumps(value) if isinstance(value, dict) else value for name, value in ordered.items()}


def _stated(run: Simulation, row: int) -> dict[str, Any]:
    """What the policy decided by, for one spec row: the fields that differ from the world's in any row."""
    if run.stated is None:
        return {}
    true, stated, shown = (spec.to_dict() for spec in (run.spec, run.stated, one_row(run.stated, row)))
    return {f"stated_{name}": shown.get(name) for name in true | stated if true.get(name) != stated.get(name)}


def frame(run: Simulation) -> DataFrame:
    """One row for each (spec row, seed)."""
    table = _columns(run, 1)
    table["violation_rate"] = (run.violations / run.rounds).ravel()
    for name in RESULTS[1:]:
        table[name] = getattr(run, name).ravel()
    most = run.attainable_reward
    table["attainable_reward"] = np.full(run.violations.size, np.nan) if most is None else most.ravel()
    return data_frame(table)


def curves(run: Simulation) -> DataFrame:
    """One row for each (spec row, seed, checkpoint); sums up to that round."""
    table = _columns(run, len(run.checkpoints))
    table["round"] = np.tile(run.checkpoints, run.violations.size)
    for name in CURVES:
        table[name] = np.moveaxis(getattr(run, f"{name}_curve"), 0, -1).ravel()
    return data_frame(table)


def _columns(run: Simulation, points: int) -> dict[str, Any]:
    """The settings and the seed of each row of a table."""
    rows, seeds = run.violations.shape
    each = [settings(run, row) for row in range(rows)]
    table: dict[str, Any] = {name: np.repeat([one[name] for one in each], seeds * points) for name in each[0]}
    return table | {"seed": np.repeat(np.tile(run.seeds, rows), points)}


def trajectory(run: Simulation, seed: int | None, row: int) -> DataFrame:
    """Every round of one seed and one spec row, played again."""
    chosen = run.seeds[0] if seed is None else seed
    require(chosen in run.seeds, "seed", seed, "was not simulated", f"choose from {run.seeds}")
    rows = len(run.violations)
    require(type(row) is int and 0 <= row < rows, "row", row, f"must be a whole number from 0 to {rows - 1}")
    words = "drew its worlds on a device and keeps no rounds"
    require(run.draws == "numpy", "draws", run.draws, words, "simulate with draws='numpy'")
    played = play_one(run, int(chosen), row)
    table: dict[str, Any] = {"round": np.arange(1, len(played.action) + 1)}
    table |= {f"x{number}": column for number, column in enumerate(played.context.T, start=1)}
    table |= {"action": played.action, "reward": played.reward}
    costs = played.cost if isinstance(played.cost, dict) else {"": played.cost}
    table |= {f"cost_{name}" if name else "cost": values for name, values in costs.items()}
    return data_frame(table)
