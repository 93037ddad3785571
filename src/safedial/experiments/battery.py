"""The paper's battery experiment: current is the dose, the voltage change the reward, the temperature rise the cost.

As in the paper, the data are split in time, and a least-squares fit on one part gives the parameters that are then
treated as true; the policies play on the contexts of the other part, with Gaussian noise of the residuals' scale.

* dose, reward, cost and context: `battery_rounds`.
* truth: R ≈ dose·⟨x,θ⟩ and C ≈ dose·⟨x,μ⟩ by ridge regression; units are chosen so that |⟨x,θ⟩| and |⟨x,μ⟩|, at a full
  dose, reach 1 for one context in a hundred of the fit part. `units` states them in volts and degrees.
* noise: κ is the root mean square of the residual over that of the dose, in the same units.
* S is the larger norm of θ and μ.

docs/battery.md says what the paper leaves open and why these choices were made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.estimate import Prediction
from safedial.core.spec import SafetySpec
from safedial.datasets.battery.features import check_floor, check_split
from safedial.errors import require
from safedial.experiments.battery_rounds import FLOOR, Rounds, check_choice, load_rounds
from safedial.io import output_folder, provenance, write_json, write_rows
from safedial.policies import make_policy
from safedial.policies.clairvoyant import clairvoyant
from safedial.replay_engines import replay
from safedial.replay_engines.run import ENGINES
from safedial.stats import seed_interval

Array = NDArray[np.float64]

TRUTH_RIDGE, RIDGE = 30.0, 4.0
RISK = 0.01

SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "HP-UCB": ("hp_ucb", {}),
    "ε-Greedy": ("epsilon_greedy", {"epsilon": 0.5}),
    "HP-Probe": ("hp_probe", {}),
    "On-Expectation": ("on_expectation", {}),
    "Clairvoyant": ("clairvoyant", {}),
}


class Truth(NamedTuple):
    """Coefficients treated as true, in units of (volts, degrees) `units`; noises; R² of (fit, other part) each."""

    reward_coef: Array
    cost_coef: Array
    reward_noise: float
    cost_noise: float
    units: tuple[float, float]
    fits: dict[str, tuple[float, float]]

    @property
    def bound(self) -> float:
        return float(max(np.linalg.norm(self.reward_coef), np.linalg.norm(self.cost_coef)))


def fit_truth(rounds: Rounds) -> Truth:
    """Ridge regression of outcomes on dose × context, on the fit part; R² on both parts."""
    rows = rounds.context * rounds.dose[:, None]
    fit = rounds.fit
    gram = rows[fit].T @ rows[fit] + TRUTH_RIDGE * np.eye(rows.shape[1])
    coefs, noises, units, fits = [], [], [], {}
    for name, outcome in (("reward", rounds.reward), ("cost", rounds.cost)):
        coef = np.linalg.solve(gram, rows[fit].T @ outcome[fit])
        residual = outcome - rows @ coef
        unit = float(np.quantile(np.abs(rounds.context[fit] @ coef), 0.99))
        noise = np.sqrt(np.mean(residual[fit] ** 2) / np.mean(rounds.dose[fit] ** 2))
        coefs.append(coef / unit)
        noises.append(float(noise / unit))
        units.append(unit)
        fits[name] = (_share(outcome, residual, fit), _share(outcome, residual, ~fit))
    return Truth(coefs[0], coefs[1], noises[0], noises[1], (units[0], units[1]), fits)


def _share(outcome: Array, residual: Array, part: Any) -> float:
    return float(1.0 - np.sum(residual[part] ** 2) / np.sum((outcome[part] - outcome[part].mean()) ** 2))


def battery_spec(truth: Truth, thresholds: list[float]) -> SafetySpec:
    return SafetySpec(
        threshold=np.array(thresholds),
        violation_risk=RISK,
        estimation_risk=RISK,
        reward_noise=truth.reward_noise,
        cost_noise=truth.cost_noise,
        coefficient_bound=truth.bound,
        context_bound=1.0,
        ridge=RIDGE,
    )


def battery_rows(
    rounds: Rounds,
    truth: Truth,
    *,
    source: str,
    embedder: str,
    thresholds: list[float],
    seeds: int,
    points: int = 100,
    engine: str = "blocked",
    progress: Callable[[int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """One row for each threshold, series and checkpoint: regret and violations, means over seeds of the noise."""
    spec = battery_spec(truth, thresholds)
    context = np.ascontiguousarray(rounds.context[~rounds.fit])
    means = context @ truth.reward_coef, context @ truth.cost_coef
    marks = np.unique(np.linspace(0, len(context), points + 1).round().astype(int))[1:]
    best = _clairvoyant(means, spec)
    for series, (name, options) in SERIES.items():
        regrets, violations, seconds = [], [], 0.0
        for seed in range(seeds):
            rng = np.random.default_rng([seed, 6])
            noise = rng.standard_normal((2, len(context)))
            costs = means[1] + truth.cost_noise * noise[1]
            if name == "clairvoyant":
                intensity = best
            else:
                policy = make_policy(name, **options)
                coins = rng.random(len(context)) if policy.randomised else None
                rewards = means[0] + truth.reward_noise * noise[0]
                run = replay(policy, context, rewards, costs, spec, coins=coins, engine=engine)
                intensity, seconds = run.intensity, seconds + run.seconds
            regrets.append(np.cumsum((best - intensity) * means[0], axis=1)[:, marks - 1])
            violations.append(np.cumsum(intensity * costs > np.array(thresholds)[:, None], axis=1)[:, marks - 1])
            if progress:
                progress(1)
        regret, over = np.array(regrets), np.array(violations)
        for row, threshold in enumerate(thresholds):
            for place, mark in enumerate(marks.tolist()):
                low, high = seed_interval(regret[:, row, place])
                yield {
                    "source": source,
                    "embedder": embedder,
                    "dim": context.shape[1],
                    "threshold": threshold,
                    "threshold_celsius": threshold * truth.units[1],
                    "series": series,
                    "policy": name,
                    "seeds": seeds,
                    "round": mark,
                    "regret": float(regret[:, row, place].mean()),
                    "regret_low": low,
                    "regret_high": high,
                    "violation_rate": float(over[:, row, place].mean() / mark),
                    "promised_risk": 2 * RISK,
                    "seconds": seconds,
                }


def _clairvoyant(means: tuple[Array, Array], spec: SafetySpec) -> Array:
    """(thresholds, rounds): the doses of one who knows θ and μ."""
    truth = Prediction(means[0][None], means[1][None], 0.0, 0.0, 0.0, 0.0, 1)
    column = SafetySpec.from_dict({**spec.to_dict(), "threshold": np.asarray(spec.threshold)[:, None]})
    return clairvoyant().decide(truth, column, round=1.0, coin=0.0).intensity


def check_settings(
    source: str, embedder: str, *, split: str, floor: float, thresholds: list[float], seeds: int, engine: str
) -> None:
    """Refuse what makes no sense before anything is read or computed."""
    check_choice(source, embedder)
    check_split(split)
    check_floor(floor)
    require(thresholds and all(value > 0 for value in thresholds), "threshold", thresholds, "must be above 0")
    require(len(set(thresholds)) == len(thresholds), "threshold", thresholds, "must all differ")
    require(seeds >= 1, "seeds", seeds, "must be a whole number >= 1")
    engines = (*ENGINES, "jax")
    require(engine in engines, "engine", engine, "must be one of " + ", ".join(engines))


def write_battery(
    out: str | Path,
    *,
    data: str | Path | None,
    source: str = "b",
    embedder: str = "precomputed",
    split: str = "battery",
    floor: float = FLOOR,
    weights: Path | None = None,
    cache: Path | None = None,
    thresholds: list[float],
    seeds: int,
    engine: str = "blocked",
    progress: Callable[[int], None] | None = None,
) -> tuple[list[dict[str, Any]], list[Path]]:
    """Run, then write `battery.csv` and `battery.provenance.json` under `out`."""
    check_settings(source, embedder, split=split, floor=floor, thresholds=thresholds, seeds=seeds, engine=engine)
    folder = output_folder(out)
    started = time.perf_counter()
    rounds = load_rounds(data, source, embedder, split=split, floor=floor, weights=weights, cache=cache)
    truth = fit_truth(rounds)
    rows = list(
        battery_rows(
            rounds,
            truth,
            source=source,
            embedder=embedder,
            thresholds=thresholds,
            seeds=seeds,
            engine=engine,
            progress=progress,
        )
    )
    settings = {
        "source": source,
        "rows_by_source": rounds.sources,
        "embedder": embedder,
        "vectors": rounds.vectors,
        "split": split,
        "floor": floor,
        "truth_ridge": TRUTH_RIDGE,
        "seeds": list(range(seeds)),
        "rounds": int((~rounds.fit).sum()),
        "fit_rounds": int(rounds.fit.sum()),
        "shortened": rounds.shortened,
        "units": {"reward_volts": truth.units[0], "cost_celsius": truth.units[1]},
        "r_squared": {name: {"fit": pair[0], "other": pair[1]} for name, pair in truth.fits.items()},
        "engine": engine,
        **battery_spec(truth, thresholds).to_dict(),
    }
    told = provenance(settings, time.perf_counter() - started)
    return rows, [write_rows(folder / "battery.csv", rows), write_json(folder / "battery.provenance.json", told)]
