"""Policies in the same rounds: `compare` simulates each on the same random numbers and pairs their results by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from safedial.errors import require
from safedial.io import card, data_frame
from safedial.model.dial import real
from safedial.model.dose import Dose, DoseCurve
from safedial.model.spec import CONSTANTS, SWEPT, SafetySpec
from safedial.policies import Policy
from safedial.rounds.rules import plain_options
from safedial.simulation.results import guaranteed, settings
from safedial.simulation.run import Simulation, find_policy, simulate
from safedial.simulation.world import World
from safedial.simulation.worlds import as_world
from safedial.stats import Seeds, difference_interval, seed_interval, share_interval, violation_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Named = str | Mapping[str, Any] | Policy

UNKNOWN = (None, None)


@dataclass(frozen=True)
class Comparison:
    """One `Simulation` for each policy, by its label, all on the same rounds. The first policy is the reference.

    Attributes:
        level: of every interval, each on its own.
    """

    runs: dict[str, Simulation]
    level: float = 0.95

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each policy and spec row: excess rate, regret and share of the exact clairvoyant's reward, and the
        differences of rate and regret from the first policy, paired by seed; the ends of intervals are `…_low` and
        `…_high`, None where one seed shows no spread. `guaranteed_risk` is None where nothing is proved, and a share
        where the clairvoyant earns nothing.
        """
        return [self._row(label, row) for label, run in self.runs.items() for row in range(len(run.violations))]

    def _row(self, label: str, row: int) -> dict[str, Any]:
        run, first = self.runs[label], self.reference
        over, regret = run.violations[row] / run.rounds, run.regret[row]
        reward, best = run.reward[row], run.exact_clairvoyant_reward[row]
        share = share_interval(reward, best, self.level)
        several = len(run.seeds) > 1 or run is first
        less, fewer = regret - first.regret[row], over - first.violations[row] / first.rounds
        excesses = difference_interval(run.violations[row], first.violations[row], run.rounds, self.level)
        grids = {name: value for name in SWEPT if np.ndim(value := getattr(run.spec, name))}
        return {
            "policy": label,
            **{name: float(value[row]) for name, value in grids.items()},
            **_number("violation_rate", over.mean(), violation_interval(run.violations[row], run.rounds, self.level)),
            "guaranteed_risk": guaranteed(run, row),
            **_number("regret", regret.mean(), seed_interval(regret, self.level) if len(run.seeds) > 1 else UNKNOWN),
            **_number(
                "share",
                reward.sum() / best.sum() if share else None,
                share if share and len(run.seeds) > 1 else UNKNOWN,
            ),
            **_number("violation_difference", fewer.mean(), (0.0, 0.0) if run is first else excesses),
            **_number("regret_difference", less.mean(), seed_interval(less, self.level) if several else UNKNOWN),
        }

    @property
    def reference(self) -> Simulation:
        """The run of the first policy."""
        return next(iter(self.runs.values()))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table with every setting, as `Simulation.to_frame` has them; `policy_name` is the policy's,
        `policy` its label here.
        """
        found, places = [], [(run, row) for run in self.runs.values() for row in range(len(run.violations))]
        for (run, row), numbers in zip(places, self.table, strict=True):
            told = settings(run, row)
            named = {"policy": numbers["policy"], "policy_name": told.pop("policy")}
            found.append(named | told | {"seeds": len(run.seeds)} | numbers | {"level": self.level})
        return found

    def to_frame(self) -> DataFrame:
        """The rows in pandas."""
        return data_frame(self.rows)

    def _repr_html_(self) -> str:
        rounds, seeds = self.reference.rounds, len(self.reference.seeds)
        title = f"{len(self.runs)} policies in {self.reference.world.name}: {rounds:,} rounds, {seeds} seeds"
        note = f"Intervals: {self.level:.0%}, each on its own; differences are paired by seed."
        return card(title, self.table, [note])

    def plot(self, path: str | Path | None = None) -> Figure:
        """Regret, its difference from the first policy, and excess rates; written to `path` if one is given."""
        from safedial.tools.pictures import draw_runs

        return draw_runs(self.runs, path, level=self.level, paired=True)


def compare(
    policies: Sequence[Named] | Mapping[str, Named],
    world: str | Mapping[str, Any] | World,
    spec: SafetySpec | Sequence[SafetySpec],
    *,
    rounds: int,
    seeds: Seeds,
    dose: DoseCurve | Dose | None = None,
    points: int = 200,
    level: float = 0.95,
    progress: Callable[[int], None] | None = None,
    engine: Literal["numpy", "jax", "auto"] = "numpy",
    device: Literal["cpu", "gpu"] | None = None,
    draws: Literal["numpy", "counter"] = "numpy",
    dtype: Literal["float64", "float32"] = "float64",
) -> Comparison:
    """Simulate each policy in the same rounds: the same truths, contexts and noise for each seed.

    Args:
        policies: policies, names, or mappings of a name and options; your own as "module:factory". The others are
            compared with the first. A mapping gives each its label.
        spec: one for all, or one for each policy, which may differ in what they guarantee, not in what the world is
            made from.
        level: of the intervals.
        progress: called with the number of rounds just finished, of `rounds` for each policy.
        seeds, dose, points, engine, device, draws, dtype: as for `simulate`.

    >>> from safedial import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=1, cost_noise=1, coefficient_bound=1,
    ...                   context_bound=1)
    >>> found = compare(["hp_ucb", "hp_probe"], LinearWorld(dim=3), spec, rounds=300, seeds=5)
    >>> [(row["policy"], row["regret_difference_high"] < 0) for row in found.table]
    [('HP-UCB', False), ('HP-Probe', True)]
    """
    world = as_world(world)
    proper = isinstance(policies, (Mapping, Sequence)) and not isinstance(policies, str)
    require(proper, "policies", policies, "must be a list or a mapping of policies")
    given = policies if isinstance(policies, Mapping) else list(policies)
    made = [find_policy(each) for each in (given.values() if isinstance(given, Mapping) else given)]
    require(made, "policies", policies, "must hold at least one")
    labels = [str(label) for label in given] if isinstance(given, Mapping) else _labels(made)
    require(0.0 < real("level", level) < 1.0, "level", level, "must lie between 0 and 1")
    options: dict[str, Any] = {"rounds": rounds, "seeds": seeds, "dose": dose, "points": points, "progress": progress}
    options |= {"engine": engine, "device": device, "draws": draws, "dtype": dtype}
    pairs = zip(labels, made, _specs(spec, len(made), world), strict=True)
    return Comparison({label: simulate(policy, world, each, **options) for label, policy, each in pairs}, level)


def _specs(given: SafetySpec | Sequence[SafetySpec], count: int, world: World) -> list[SafetySpec]:
    """One spec for each policy, all with the same rows and the same constants of the world."""
    if isinstance(given, SafetySpec):
        return [given] * count
    specs = list(given)
    require(len(specs) == count, "spec", len(specs), f"must be one, or one for each of the {count} policies")
    for name in dict.fromkeys(("threshold", "costs", *CONSTANTS, "noise_scale")):
        values = [getattr(each, name) for each in specs]
        same = all(np.array_equal(np.asarray(value), np.asarray(values[0])) for value in values)
        way_out = "compare at one threshold, in one world"
        require(
            same or not (name in world.constants or name in ("threshold", "costs")), name, values, "differ", way_out
        )
    return specs


def _labels(policies: list[Policy]) -> list[str]:
    """The label of each policy, with the options in which it differs from others of the same label."""
    labels = []
    for policy in policies:
        kin = [plain_options(other.options) for other in policies if other.label == policy.label]
        own = plain_options(policy.options)
        odd = [name for name in own if any(other.get(name) != own[name] for other in kin)]
        odd = [name for name in odd if name != "clip" or odd == ["clip"]]  # it follows from another
        told = [f"{name.replace('_', ' ')} {own[name]}" for name in odd if own[name] is not None]
        labels.append(", ".join([policy.label, *told]))
    repeated = sorted({label for label in labels if labels.count(label) > 1})
    way_out = "name each once, or with other options; in Python, a mapping gives labels of your own"
    require(not repeated, "policies", repeated, "are the same policy twice", way_out)
    return labels


def _number(name: str, value: Any, ends: tuple[Any, Any]) -> dict[str, Any]:
    """A number and the ends of its interval, under their names."""
    return {name: None if value is None else float(value), f"{name}_low": ends[0], f"{name}_high": ends[1]}
