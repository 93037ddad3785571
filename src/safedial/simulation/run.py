"""A policy by its name, your own included.

For what a person runs: simulations, comparisons, sweeps and plans. Agents, studies and the service take your own policy
as an object and import nothing by name.

The loop of `simulate` runs over rounds; everything else is an array axis. Arrays are (specs, seeds) with one row for
each value of the swept spec fields; all rows see the same contexts and noise (common random numbers). Without sensor
noise and baseline cost, R/g and C/g do not depend on the dose, so doses cannot influence what is learned: all rows then
share one estimate, and a grid of thresholds costs little more than one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from safedial.errors import is_whole, require
from safedial.model.dose import Dose, DoseCurve, as_dose
from safedial.model.guarantee import GUARANTEES
from safedial.model.own_names import made_by
from safedial.model.spec import SafetySpec, check_grids
from safedial.policies import Policy, as_policy
from safedial.policies.policy import Task
from safedial.policies.supports import check_supported
from safedial.rounds.rules import named_policy
from safedial.simulation.attainable import attainable_curve
from safedial.simulation.engines import start_batch
from safedial.simulation.loop import Batch, Played, Round, Setting, calling_module, noted_interrupt
from safedial.simulation.world import Array, World
from safedial.simulation.worlds import as_world
from safedial.stats import Seeds, as_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


def find_policy(given: Any) -> Policy:
    """A policy, given itself, by its name, or by a mapping with its name and options; your own is "module:factory".

    >>> find_policy("hp_ucb").label, find_policy({"name": "hp_ucb", "radius": "paper"}).options["radius"]
    ('HP-UCB', 'paper')
    """
    if not is_own_name(given):
        return named_policy(given) if isinstance(given, Mapping) else as_policy(given)
    options = dict(given) if isinstance(given, Mapping) else {"name": given}
    return made_by(str(options.pop("name")), options, "policy", Policy, "Policy")


def is_own_name(given: Any) -> bool:
    """Whether it names a policy of the user's own."""
    name = given.get("name") if isinstance(given, Mapping) else given
    return isinstance(name, str) and ":" in name


# --- Rounds × seeds × specs in one batch


@dataclass(frozen=True)
class Simulation:
    """Outcomes by (spec row, seed), and curves by (checkpoint, spec row, seed). Rewards and regret are noise-free.

    `alarmed`: whether the policy's own test found rounds that contradict its guarantee, where it keeps evidence.
    """

    policy: Policy
    world: World
    spec: SafetySpec
    dose: Dose
    rounds: int
    seeds: list[int]
    seconds: float
    violations: Array
    informative_rounds: Array
    regret: Array
    reward: Array
    clairvoyant_reward: Array
    exact_clairvoyant_reward: Array
    uncertified_rounds: Array
    full_dose_rounds: Array
    full_dose_violations: Array
    alarmed: NDArray[np.bool_]
    checkpoints: NDArray[np.int64]
    regret_curve: Array
    violations_curve: Array
    reward_curve: Array
    exact_clairvoyant_reward_curve: Array
    engine: str = "numpy"
    draws: str = "numpy"
    compile_seconds: float = 0.0
    interrupted: bool = False
    """Whether Ctrl-C ended it early; `rounds` are those that were played."""
    stated: SafetySpec | None = None
    """The spec that the policy decided and learned by, if it was not `spec`, the world's."""

    def __repr__(self) -> str:
        rows, seeds = self.violations.shape
        rate = self.violations.mean() / self.rounds
        return (
            f"Simulation(policy={self.policy.name}, dim={self.world.dim}, specs={rows}, seeds={seeds}, "
            f"rounds={self.rounds}, violation_rate={rate:.4g}, regret={self.regret.mean():.4g}"
            f"{', interrupted' if self.interrupted else ''})"
        )

    @cached_property
    def attainable_reward_curve(self) -> Array | None:
        """The reward of a policy that knows the cost exactly and learns the sign of the reward.

        Computed when first asked for, on the same random numbers. None where there is none (`simulation.attainable`),
        and for worlds that were drawn on a device.
        """
        if self.draws != "numpy":
            return None
        given = {"checkpoints": self.checkpoints, "seeds": self.seeds, "dose": self.dose, "chunk": Batch.step}
        return attainable_curve(self.world, self.spec, **given)

    @property
    def attainable_reward(self) -> Array | None:
        """The last point of its curve."""
        curve = self.attainable_reward_curve
        return None if curve is None else curve[-1]

    @property
    def attainable_share(self) -> float | None:
        """The reward of all rows and seeds over the attainable one; None where there is none."""
        most = self.attainable_reward
        return None if most is None or most.sum() <= 0.0 else float(self.reward.sum() / most.sum())

    @property
    def rounds_per_second(self) -> float:
        return self.violations.size * self.rounds / self.seconds

    def to_frame(self) -> DataFrame:
        """One row for each (spec row, seed), with every setting, as a pandas table."""
        from safedial.simulation.results import frame

        return frame(self)

    def _repr_html_(self) -> str:
        from safedial.simulation.results import notebook_card

        return notebook_card(self)

    def curves(self) -> DataFrame:
        """One row for each (spec row, seed, checkpoint), with every setting: violations, regret and rewards so far."""
        from safedial.simulation.results import curves

        return curves(self)

    def trajectory(self, seed: int | None = None, row: int = 0) -> DataFrame:
        """Every round of one seed (by default the first) and spec row, played again: context, action, reward, cost."""
        from safedial.simulation.results import trajectory

        return trajectory(self, seed, row)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Regret over rounds and excess rates, a line for each spec row; written to `path` if one is given."""
        from safedial.tools.pictures import draw_runs

        return draw_runs({self.policy.label: self}, path)

    def save(self, path: str | Path) -> None:
        """Write settings and results to one file, whole or not at all."""
        from safedial.simulation.simulation_file import save

        save(self, path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        policy: Policy | None = None,
        world: World | None = None,
        spec: SafetySpec | None = None,
        dose: DoseCurve | Dose | None = None,
        stated: SafetySpec | None = None,
    ) -> Simulation:
        """The inverse of `save`. A file holds no functions: give again what is your own."""
        from safedial.simulation.simulation_file import read

        dose = None if dose is None else as_dose(dose)
        given = {"policy": policy, "world": world, "spec": spec, "dose": dose, "stated": stated}
        return cls(**read(path, given))


def simulate(
    policy: str | Mapping[str, Any] | Policy,
    world: str | Mapping[str, Any] | World,
    spec: SafetySpec,
    *,
    rounds: int,
    seeds: Seeds,
    dose: DoseCurve | Dose | None = None,
    points: int = 200,
    progress: Callable[[int], None] | None = None,
    observe: Callable[[Round], None] | None = None,
    record: Callable[[Played], None] | None = None,
    stated: SafetySpec | None = None,
    engine: Literal["numpy", "jax", "auto"] = "numpy",
    device: Literal["cpu", "gpu"] | None = None,
    draws: Literal["numpy", "counter"] = "numpy",
    dtype: Literal["float64", "float32"] = "float64",
) -> Simulation:
    """Run `policy` in `world` for `rounds` rounds and every seed; `spec.threshold` and the risks may be 1-d arrays.

    Args:
        policy, world: also by name or by a mapping of a name and options; your own as "module:factory".
        seeds: how many (0, 1, …), or which: a list, a range, an array, or text such as "0:100".
        dose: the true dose curves, which the learner knows; the identity by default.
        points: how many checkpoints the curves have.
        progress: called with the number of rounds just finished.
        observe: called every round with a `Round`, before its update.
        record: called after every chunk of rounds with what was `Played`, noise included.
        stated: the spec that the policy decides and learns by, if the world's own (`spec`) differs from it.
        engine: "numpy"; "jax", the rounds compiled, on a CPU or a GPU; or "auto", "jax" if it is installed, can run
            this policy in this world, and repays the second that compiling takes. Both play the same rounds, up to
            rounding.
        device: for "jax": "cpu", "gpu", or None for JAX's default.
        draws: for "jax": "numpy" for the worlds of the NumPy engine, or "counter" for worlds that are drawn on the
            device, others of the same law; a GPU is fast only with these.
        dtype: for "jax": "float64", or "float32" for speed; decisions near a switch may then differ.

    >>> from safedial.policies import hp_ucb
    >>> from safedial.simulation.linear_world import LinearWorld
    >>> spec = SafetySpec(threshold=[0.1, 0.5], violation_risk=0.01, estimation_risk=0.01, reward_noise=1,
    ...                   cost_noise=1, coefficient_bound=1, context_bound=1)
    >>> simulate(hp_ucb(), LinearWorld(dim=5), spec, rounds=100, seeds=3).violations.shape
    (2, 3)
    """
    policy, world, dose, chosen = find_policy(policy), as_world(world), as_dose(dose), as_seeds(seeds)
    _check(policy, world, spec, rounds=rounds, points=points)
    spec = policy.fitted(spec, world.dim)
    require(stated is None or isinstance(stated, SafetySpec), "stated", stated, "must be a SafetySpec")
    stated = None if stated is None else policy.fitted(stated, world.dim)
    own = [name for name, cost in (spec.costs or {}).items() if cost.curve is not None]
    require(not own or dose.is_identity, "dose", own, "have curves of their own", "leave out `dose`")
    started = time.perf_counter()
    setting = Setting(policy, world, spec, dose, chosen, rounds, points, observe, record, stated)
    run = start_batch(engine, setting, device=device, draws=draws, dtype=dtype)
    sizes = [min(run.step, rounds - start) for start in range(0, rounds, run.step)]
    done = 0
    with ThreadPoolExecutor(max_workers=1) as ahead, noted_interrupt(calling_module()) as stop:
        drawing = ahead.submit(run.draw, sizes[0])
        for number, size in enumerate(sizes):
            drawn = drawing.result()
            if number + 1 < len(sizes):
                drawing = ahead.submit(run.draw, sizes[number + 1])
            run.chunk(done, drawn)
            done += size
            if progress:
                progress(size)
            if stop() and done < rounds:
                run.stop_at(done)
                words = f"interrupted: the results are those of the first {done} of {rounds} rounds"
                warnings.warn(words, stacklevel=2)
                break
    results = run.results()
    return Simulation(
        policy=policy,
        world=world,
        spec=spec,
        dose=dose,
        rounds=done,
        seeds=chosen,
        seconds=time.perf_counter() - started,
        engine=run.engine,
        draws=draws,
        compile_seconds=run.compile_seconds,
        interrupted=done < rounds,
        stated=stated,
        **results,
    )


BRACKET_PLAN = "state it; for a growth bracket, whose worlds have none, use `safedial plan` (in Python, `plan`)"


def _check(policy: Policy, world: Any, spec: Any, *, rounds: Any, points: Any) -> None:
    require(isinstance(spec, SafetySpec), "spec", spec, "must be a SafetySpec")
    for name, value in (("rounds", rounds), ("points", points)):
        require(is_whole(value), name, value, "must be a whole number >= 1")
    # Costs with brackets are those of a world without constants, and costs with noise those of one with constants.
    bracketed, constants = GUARANTEES[spec.guarantee].bracketed, bool(world.constants)
    check_grids(spec, several=world.several_costs and bracketed != constants)
    rule = "is needed to simulate: the world uses it"
    for name, value in spec.constants(world.constants).items():
        require(value is not None, name, None, rule, BRACKET_PLAN)
    check_supported(policy, Task(dim=world.dim, spec=spec, dose=as_dose(None), world=world.facts))
    most = policy.most_rounds
    require(rounds <= most, "rounds", rounds, f"exceed max_points = {most} of the kernel class")
