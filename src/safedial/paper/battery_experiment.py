"""The paper's battery experiment: current is the dose, the voltage change the reward, the temperature rise the cost.

As in the paper, the data are split in time, and a least-squares fit on one part gives the parameters that are then
treated as true; the policies play on the contexts of the other part, with Gaussian noise of the residuals' scale.

* dose: |current|/`LARGEST_CURRENT`, so that 1 is the largest current of the experiments.
* reward: the voltage change of the step (charging raises it); cost: its largest temperature less its first.
* context: the vector of the text about the five steps before, centred and whitened, and three numbers.
* truth: R ≈ dose·⟨x,θ⟩ and C ≈ dose·⟨x,μ⟩ by ridge regression; units are chosen so that |⟨x,θ⟩| and |⟨x,μ⟩|, at a full
  dose, reach 1 for one context in a hundred of the fit part. `units` states them in volts and degrees.
* noise: κ is the root mean square of the residual over that of the dose, in the same units.
* S is the larger norm of θ and μ.

docs/battery.md says what the paper leaves open and why these choices were made.

**RW26's logged outcomes**, without a fitted truth (`logged_rows`). Its random-walk discharges used currents drawn at
random (0.5 to 5 A, high ones more often). If the random current happens to equal the one that a policy asks for, the
step counts as that policy's, with its real outcome: rejection replay (Li, Chu, Langford and Wang, 2011). Steps at other
currents are skipped as if they had not happened, and the policy learns only from the accepted ones. Accepted steps are
weighted by one over their level's frequency, because a request for a rare level is matched less often.

The result is the rate at which real temperature rises exceeded the threshold under each policy's choices, with its
error. It cannot show what would have followed, because the battery's state at the next step comes from the logged
current, not from the policy's; and with few accepted steps it shows little.
"""

from __future__ import annotations

import html
import math
import os
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from safedial.bounds.estimate import Prediction
from safedial.errors import require
from safedial.io import Advance, Bar, html_table, late_bar, no_bar, read_rows
from safedial.model.dial import Dial
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.paper.battery_data import FILES, Array, data_folder, load_steps
from safedial.paper.embedders import (
    EMBEDDERS,
    PRECOMPUTED,
    Filled,
    Targets,
    cache_folder,
    cached_vectors,
    check_floor,
    check_split,
    context_texts,
    fill_cache,
    find_targets,
    halves,
    make_contexts,
    numeric,
    open_embedder,
    precomputed,
)
from safedial.paper.experiment import Experiment, Found, OwnSeeds, Rows, Table, as_html, cells
from safedial.policies import make_policy
from safedial.policies.baselines import clairvoyant
from safedial.policies.conformal import OFF
from safedial.policies.policy import Asked
from safedial.stats import as_seeds, seed_interval
from safedial.tools.pages import (
    COLOURS,
    MARKERS,
    claim,
    columns,
    image,
    legend_below,
    new_figure,
    read_provenance,
    save,
    title,
)

LARGEST_CURRENT = {"b": 4.0, "b_mat": 4.0, "rw26": 5.0, "rw9_12": 5.0, "rw": 5.0, "rw_mat": 5.0}
SOURCES = tuple(LARGEST_CURRENT)
SHORTEST, LONGEST = 10.0, 600.0
"""Shorter steps (noise), longer steps (reference cycles of hours) and voltage jumps above 1 V are left out."""

FLOOR = 0.3
TRUTH_RIDGE = 30.0
NO_MODEL = ("precomputed", "numeric")
"""The sources of vectors that need no model; the others are in `EMBEDDERS`."""


class Rounds(NamedTuple):
    """The rounds of one source: contexts of both parts, logged doses and outcomes, which part is for fitting, and the
    label of the model that computed the vectors.
    """

    context: Array
    dose: Array
    reward: Array
    cost: Array
    fit: Any
    battery: Any
    shortened: float
    sources: dict[str, int]
    vectors: dict[str, Any]


def load_rounds(
    data: str | Path | None,
    source: str,
    embedder: str = "precomputed",
    *,
    split: str = "battery",
    floor: float = FLOOR,
    weights: Path | None = None,
    cache: Path | None = None,
) -> Rounds:
    """Read, embed, whiten and split one source."""
    check_choice(source, embedder)
    folder = data_folder(data)
    steps = load_steps(folder, source)
    targets = find_targets(steps)
    label: dict[str, Any] = {}
    if embedder == "numeric":
        vectors = numeric(steps, targets)
    elif embedder == "precomputed":
        way_out = "use --embedder numeric, or one that runs a model: " + ", ".join(EMBEDDERS)
        require(source in PRECOMPUTED, "embedder", embedder, f"has no vectors for source {source}", way_out)
        vectors, targets = precomputed(folder / PRECOMPUTED[source], steps, targets)
    else:
        root = cache_folder(cache)
        opened = open_embedder(embedder, weights=weights, cache=root)
        vectors, label = cached_vectors(opened, context_texts(steps, targets), root), dict(opened.label)
    return _rounds(steps, targets, vectors, source, split=split, floor=floor)._replace(vectors=label)


def embed_source(
    data: str | Path | None,
    source: str,
    embedder: str,
    *,
    weights: Path | None = None,
    cache: Path | None = None,
    batch_size: int = 16,
    limit: int | None = None,
    bar: Bar = no_bar,
) -> Filled:
    """Add the missing vectors of a source's context texts to the cache."""
    require(source in SOURCES, "source", source, "must be one of " + ", ".join(SOURCES))
    folder, root = data_folder(data), cache_folder(cache)
    opened = open_embedder(embedder, weights=weights, cache=root)
    steps = load_steps(folder, source)
    texts = context_texts(steps, find_targets(steps))
    with late_bar(bar, lambda total: f"{embedder}, {total:,} texts") as progress:
        return fill_cache(opened, texts, root, batch_size=batch_size, limit=limit, progress=progress)


def check_choice(source: str, embedder: str) -> None:
    """Refuse an unknown source or embedder."""
    known = (*NO_MODEL, *EMBEDDERS)
    require(source in SOURCES, "source", source, "must be one of " + ", ".join(SOURCES))
    require(embedder in known, "embedder", embedder, "must be one of " + ", ".join(known))


def _rounds(steps: Any, targets: Targets, vectors: Array, source: str, *, split: str, floor: float) -> Rounds:
    told, last = steps.iloc[targets.rows], steps.iloc[targets.history[:, 0]]
    rise = (told["temp_max"] - told["temp_start"]).to_numpy(dtype=float)
    length, change = told["duration"].to_numpy(dtype=float), told["dv"].to_numpy(dtype=float)
    used = (length >= SHORTEST) & (length <= LONGEST) & np.isfinite(rise) & np.isfinite(change)
    used &= np.all(np.isfinite(vectors), axis=1) & (np.abs(change) <= 1.0)
    require(used.any(), "source", source, "has no steps of usual length")
    told, last, vectors = told[used], last[used], vectors[used]
    fit = halves(told["group"].to_numpy(), told["start"].to_numpy(), split)
    temperature = last["temp_mean"].to_numpy(dtype=float)
    made = make_contexts(vectors, told["kind"].to_numpy(), temperature, fit, floor=floor)
    dose = np.minimum(np.abs(told["current"].to_numpy(dtype=float)) / LARGEST_CURRENT[source], 1.0)
    counts = told["source"].value_counts()
    kinds = {str(name): int(counts[name]) for name in counts.index}
    battery = told["battery"].to_numpy()
    return Rounds(made.rows, dose, change[used], rise[used], fit, battery, made.shortened, kinds, {})


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


# --- How policies perform on RW26's logged outcomes, without a fitted truth

NOTE = "discharge (random walk)"
LEVELS = tuple(float(level) for level in np.arange(0.5, 5.01, 0.5))
LOGGED_RISK = 0.05
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "HP-UCB": ("hp_ucb", {}),
    "HP-Probe": ("hp_probe", {"probe": 0.25}),
    "HP-Conformal": ("hp_conformal", {"probe": 0.25, **OFF}),
    "On-Expectation": ("on_expectation", {}),
}


def logged_rounds(data: str | Path | None) -> tuple[Array, Array, Array, Array]:
    """(numbers of the last step, level in A, |voltage change|, temperature rise) of the random discharges, in order."""
    steps = load_steps(data_folder(data), "rw26")
    targets = find_targets(steps)
    told, last = steps.iloc[targets.rows], steps.iloc[targets.history[:, 0]]
    level = np.round(np.abs(told["current"].to_numpy(dtype=float)) * 2.0) / 2.0
    used = (told["note"].to_numpy() == NOTE) & (told["duration"].to_numpy() >= 10.0) & np.isin(level, LEVELS)
    require(used.any(), "source", "rw26", "has no random-walk discharges")
    told, last = told[used], last[used]
    numbers = np.column_stack([last[name].to_numpy(dtype=float) for name in ("v_end", "temp_mean", "current", "dv")])
    rise = (told["temp_max"] - told["temp_start"]).to_numpy(dtype=float)
    return numbers, level[used], np.abs(told["dv"].to_numpy(dtype=float)), rise


def logged_rows(data: str | Path | None, *, celsius: float = 2.0) -> Iterator[dict[str, Any]]:
    """One row for each policy: how many steps were accepted, and their weighted violation rate with its error."""
    from safedial.rounds.agent import Agent  # here, so that the help of `safedial reproduce` need not wait for SciPy

    numbers, level, change, rise = logged_rounds(data)
    half = len(level) // 2
    centre, spread = numbers[:half].mean(axis=0), numbers[:half].std(axis=0)
    rows = np.column_stack([(numbers - centre) / spread, np.ones(len(numbers))])
    rows /= max(1.0, float(np.linalg.norm(rows, axis=1).max())) * (1.0 + 1e-9)
    dose = level / LEVELS[-1]
    constants: dict[str, Any] = {"coefficient_bound": 0.0}
    for name, outcome in (("reward_noise", change), ("cost_noise", rise)):
        scaled = rows[:half] * dose[:half, None]
        coef, *_ = np.linalg.lstsq(scaled, outcome[:half], rcond=None)
        residual = (outcome[:half] - scaled @ coef) / dose[:half]
        constants[name] = float(np.sqrt(np.mean(residual**2)))
        constants["coefficient_bound"] = max(constants["coefficient_bound"], float(np.linalg.norm(coef)))
    share = {value: float(np.mean(level == value)) for value in LEVELS}
    for series, (name, options) in POLICIES.items():
        policy = make_policy(name, **options)
        spec = SafetySpec(
            threshold=celsius,
            total_risk=LOGGED_RISK,
            context_bound=1.0,
            guarantee=GUARANTEES[policy.guarantee].under[0],
            **constants,
        )
        dial = Dial(low=0.0, high=LEVELS[-1], unit="A", levels=LEVELS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            agent = Agent(rows.shape[1], spec, policy=policy, dial=dial)
        weights, over, gained = [], [], []
        for place in range(half, len(level)):
            if agent.preview(rows[place]).action != level[place]:
                continue
            decision = agent.ask(rows[place])
            agent.tell(decision, reward=change[place], cost=rise[place])
            weights.append(1.0 / share[level[place]])
            over.append(float(rise[place] > celsius))
            gained.append(change[place])
        accepted = {"weights": np.array(weights), "over": np.array(over), "gained": np.array(gained)}
        yield _row(series, name, celsius=celsius, offered=len(level) - half, **accepted)


def _row(
    series: str, name: str, *, celsius: float, offered: int, weights: Array, over: Array, gained: Array
) -> dict[str, Any]:
    """Self-normalised weighted means; the error is that of a ratio of sums, and `violation_high` a 95 % upper end: two
    errors, or, without any violation, three over the effective number of steps.
    """
    total = float(weights.sum())
    rate = float((weights * over).sum() / total) if total else math.nan
    error = float(np.sqrt(np.sum((weights * (over - rate)) ** 2)) / total) if total else math.nan
    effective = total**2 / float(np.sum(weights**2)) if total else math.nan
    high = min(1.0, rate + 2.0 * error if rate > 0.0 else 3.0 / effective) if total else math.nan
    return {
        "series": series,
        "policy": name,
        "celsius": celsius,
        "guaranteed_risk": LOGGED_RISK if GUARANTEES[make_policy(name).guarantee].proved else None,
        "offered": offered,
        "accepted": int(weights.size),
        "violation_rate": rate,
        "violation_error": error,
        "violation_high": high,
        "reward_volts": float((weights * gained).sum() / total) if total else math.nan,
    }


def logged_tables(data: str | Path | None) -> dict[str, Rows]:
    """`battery_logged`, if the folder has RW26."""
    found = (data_folder(data) / FILES["rw26"]).is_file()
    return {"battery_logged": list(logged_rows(data))} if found else {}


def logged_section(folder: Path) -> list[str]:
    """The end of the battery section of the report; empty without RW26."""
    if not (folder / "battery_logged.csv").exists():
        return []
    logged = read_rows(folder / "battery_logged.csv")
    rate = "{violation_rate:.1%}, at most {violation_high:.1%}"
    forms = ("{series}", "{accepted:.0f} of {offered:.0f}", rate, "{reward_volts:.3f}")
    table = [cells(row, forms) for row in logged]
    return [
        f"<h3>On RW26's own outcomes</h3><p>Without a fitted truth: steps whose random current was the one a policy asked for, with their real "
        f"temperature rise, against {logged[0]['celsius']:g} °C (the certified policies and HP-Conformal guarantee at most 5 %). What it can and "
        "cannot show: docs/battery.md.</p>",
        html_table(["policy", "accepted steps", "rise above the threshold (95 %)", "|voltage change|, V"], table),
    ]


# --- The paper's battery experiment

RIDGE, RISK, POINTS = 4.0, 0.01, 100
DRAWN = ("round", "regret", "regret_low", "regret_high", "violation_rate")

SERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "HP-UCB": ("hp_ucb", {}),
    "ε-Greedy": ("epsilon_greedy", {"epsilon": 0.5}),
    "HP-Probe": ("hp_probe", {}),
    "On-Expectation": ("on_expectation", {}),
    "Clairvoyant": ("clairvoyant", {}),
}


def battery_spec(truth: Truth, thresholds: list[float]) -> SafetySpec:
    known: dict[str, Any] = {"reward_noise": truth.reward_noise, "cost_noise": truth.cost_noise}
    known |= {"coefficient_bound": truth.bound, "context_bound": 1.0, "ridge": RIDGE}
    return SafetySpec(threshold=np.array(thresholds), violation_risk=RISK, estimation_risk=RISK, **known)


def battery_rows(
    rounds: Rounds,
    truth: Truth,
    *,
    thresholds: list[float],
    seeds: list[int],
    engine: str = "blocked",
    progress: Advance | None = None,
) -> Iterator[dict[str, Any]]:
    """One row for each threshold, series and checkpoint: regret and violations, means over seeds of the noise."""
    from safedial.simulation.replay import (
        replay,  # here, so that the help of `safedial reproduce` need not wait for SciPy
    )

    spec = battery_spec(truth, thresholds)
    context = np.ascontiguousarray(rounds.context[~rounds.fit])
    means = context @ truth.reward_coef, context @ truth.cost_coef
    marks = np.unique(np.linspace(0, len(context), POINTS + 1).round().astype(int))[1:]
    best = _clairvoyant(means, spec)
    for series, (name, options) in SERIES.items():
        regrets, violations, seconds = [], [], 0.0
        for seed in seeds:
            rng = np.random.default_rng([seed, 6])
            noise = rng.standard_normal((2, len(context)))
            costs = means[1] + truth.cost_noise * noise[1]
            policy = make_policy(name, **options)
            if policy.knows_truth:
                intensity = best
            else:
                rewards = means[0] + truth.reward_noise * noise[0]
                run = replay(policy, context, rewards, costs, spec, coins=rng.random(len(context)), engine=engine)
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
                    "dim": context.shape[1],
                    "threshold": threshold,
                    "threshold_celsius": threshold * truth.units[1],
                    "series": series,
                    "policy": name,
                    "seeds": len(seeds),
                    "round": mark,
                    "regret": float(regret[:, row, place].mean()),
                    "regret_low": low,
                    "regret_high": high,
                    "violation_rate": float(over[:, row, place].mean() / mark),
                    "guaranteed_risk": 2 * RISK,
                    "seconds": seconds,
                }


def _clairvoyant(means: tuple[Array, Array], spec: SafetySpec) -> Array:
    """(thresholds, rounds): the doses of a policy that knows θ and μ."""
    truth = Prediction(means[0][None], means[1][None], 0.0, 0.0, 0.0, 0.0, 1)
    column = SafetySpec.from_dict({**spec.to_dict(), "threshold": np.asarray(spec.threshold)[:, None]})
    return clairvoyant().decide(truth, column, Asked(None, 0.0, 1.0))[1]


def check_settings(
    source: str, embedder: str, *, split: str, floor: float, thresholds: list[float], engine: str
) -> None:
    """Refuse invalid settings before anything is read or computed."""
    from safedial.simulation.replay import ENGINES

    check_choice(source, embedder)
    check_split(split)
    check_floor(floor)
    require(thresholds and all(value > 0 for value in thresholds), "threshold", thresholds, "must be above 0")
    require(len(set(thresholds)) == len(thresholds), "threshold", thresholds, "must all differ")
    engines = (*ENGINES, "jax")
    require(engine in engines, "engine", engine, "must be one of " + ", ".join(engines))


def run(
    folder: Path,
    *,
    source: Annotated[str, "b, rw26, rw, rw9_12 (parquet), b_mat or rw_mat (NASA's files)."] = "b",
    embedder: Annotated[
        str, "precomputed (Gemma vectors in the data folder), numeric, gemma3-270m, minilm, gemma-2b."
    ] = "precomputed",
    weights: Annotated[
        Path | None, "A folder with a model of the same architecture. Default: the published weights."
    ] = None,
    cache: Annotated[Path | None, "Where to keep the vectors. Default: SAFEDIAL_CACHE, or ~/.cache/safedial."] = None,
    threshold: Annotated[list[float] | None, "May be repeated [0.1 and 0.2]."] = None,
    split: Annotated[str, "Fit on the first half of each battery, or of the calendar."] = "battery",
    floor: Annotated[float, "Whiten axes down to this share of the largest variance."] = FLOOR,
    seeds: OwnSeeds = 3,
    engine: Annotated[str, "The replay engine: blocked, jax, rank_one or reference."] = "blocked",
    data: Annotated[Path | None, "The folder that holds the battery data. Default: SAFEDIAL_DATA."] = None,
    bar: Bar = no_bar,
) -> Found:
    """Run the battery experiment: current as dose, voltage change as reward, temperature rise as cost."""
    thresholds, which = [0.1, 0.2] if threshold is None else threshold, as_seeds(seeds)
    check_settings(source, embedder, split=split, floor=floor, thresholds=thresholds, engine=engine)
    model: dict[str, Any] = {"source": source, "embedder": embedder, "weights": weights, "cache": cache}
    if embedder in EMBEDDERS:
        embed_source(data, **model, bar=bar)
    rounds = load_rounds(data, **model, split=split, floor=floor)
    truth = fit_truth(rounds)
    labels = {"source": source, "embedder": embedder}
    with bar(f"Battery, {len(which)} seed(s) of the noise", len(SERIES) * len(which)) as advance:
        made = battery_rows(rounds, truth, thresholds=thresholds, seeds=which, engine=engine, progress=advance)
        rows = [labels | row for row in made]
    chosen = {**labels, "split": split, "floor": floor, "seeds": which, "engine": engine}
    settings = {**chosen, **_found(rounds, truth), **battery_spec(truth, thresholds).to_dict()}
    return Found({"battery": rows, **logged_tables(data)}, settings)


def _found(rounds: Rounds, truth: Truth) -> dict[str, Any]:
    """Facts about the data and the fit, for the provenance."""
    return {
        "rows_by_source": rounds.sources,
        "vectors": rounds.vectors,
        "truth_ridge": TRUTH_RIDGE,
        "rounds": int((~rounds.fit).sum()),
        "fit_rounds": int(rounds.fit.sum()),
        "shortened": rounds.shortened,
        "units": {"reward_volts": truth.units[0], "cost_celsius": truth.units[1]},
        "r_squared": {name: {"fit": pair[0], "other": pair[1]} for name, pair in truth.fits.items()},
    }


def draw(folder: Path) -> list[Path]:
    """`battery.png` from `battery.csv`."""
    rows = read_rows(folder / "battery.csv")
    thresholds = sorted({row["threshold"] for row in rows})
    figure, axes = new_figure(columns=len(thresholds), rows=2, height=2.3, sharex=True)
    for column, threshold in enumerate(thresholds):
        above, below = axes[column], axes[len(thresholds) + column]
        here = [row for row in rows if row["threshold"] == threshold]
        for series in dict.fromkeys(row["series"] for row in here):
            line = [row for row in here if row["series"] == series]
            policy = line[0]["policy"]
            rounds, regret, low, high, rates = columns(line, DRAWN)
            look = {"color": COLOURS[policy], "linewidth": 1.2, "label": series}
            look |= {"marker": MARKERS[policy], "markevery": max(1, len(line) // 5), "markersize": 4}
            if any(regret):  # that of the clairvoyant is 0
                above.plot(rounds, regret, **look)
                above.fill_between(rounds, low, high, color=COLOURS[policy], alpha=0.2, linewidth=0)
            below.plot(rounds, [max(rate, 1e-5) for rate in rates], **look)
        risk = here[0]["guaranteed_risk"]
        below.axhline(risk, color="grey", linestyle="--", linewidth=1)
        title(above, f"τ = {threshold:g} ({here[0]['threshold_celsius']:.2g} °C per step)")
        below.set(yscale="log", ylim=(0.7e-5, 1.0), xlabel="round")
        below.set_yticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0], ["0", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
        if column == 0:
            above.set_ylabel("cumulative regret")
            below.set_ylabel("rounds with cost > τ")
            below.text(here[-1]["round"], risk * 1.2, "guarantee", ha="right", fontsize=7, color="0.3")
    legend_below(figure, *axes[len(thresholds)].get_legend_handles_labels(), ncols=5)
    return [save(figure, folder / "battery.png")]


def table(folder: Path) -> list[Table | str]:
    """Regret and violations of each policy at each threshold."""
    rows = read_rows(folder / "battery.csv")
    last = {(row["series"], row["threshold"]): row for row in rows}
    thresholds, one = list(dict.fromkeys(row["threshold"] for row in rows)), rows[-1]
    lines = []
    for series in dict.fromkeys(row["series"] for row in rows):
        pairs = (cells(last[series, value], ("{regret:.1f}", "{violation_rate:.3%}")) for value in thresholds)
        lines.append([series, *chain(*pairs)])
    heading = f"NASA's batteries: {one['source']}, {one['embedder']}, d = {one['dim']:.0f}"
    limits = " and ".join(f"{last[one['series'], value]['threshold_celsius']:.2f} °C" for value in thresholds)
    heads = ["policy", *(word for value in thresholds for word in (f"regret, τ={value:g}", "above τ"))]
    return [
        Table(heading, heads, lines),
        f"{one['round']:.0f} rounds. Guaranteed by all but On-Expectation: cost above τ in at most "
        f"{one['guaranteed_risk']:.0%} of them.\n"
        f"τ is {limits} of temperature rise in a step. The truth is a linear fit to the data;\n"
        "docs/battery.md says what that can show.",
    ]


def section(folder: Path) -> list[str]:
    rows, told = read_rows(folder / "battery.csv"), read_provenance(folder, "battery")
    last = {(row["threshold"], row["series"]): row for row in rows}
    thresholds = sorted({threshold for threshold, _ in last})
    made, units = told["settings"], told["settings"]["units"]
    fits = "; ".join(
        f"{name}: {pair['fit']:.2f} on the fit part, {pair['other']:.2f} on the other"
        for name, pair in made["r_squared"].items()
    )
    parts = [
        "<h2>The battery experiment</h2>",
        f"<p>Source {html.escape(made['source'])} ({html.escape(', '.join(made['rows_by_source']))}), {html.escape(made['embedder'])} "
        f"contexts, d = {rows[0]['dim']:.0f}, {made['rounds']} rounds after a fit on {made['fit_rounds']}. A unit of cost is "
        f"{units['cost_celsius']:.2f} °C of temperature rise in a step, a unit of reward {units['reward_volts']:.2f} V. R² of the fit, "
        f"which is then treated as true: {fits}.</p>",
        image(folder / "battery.png", "Cumulative regret and violations in the battery experiment"),
        *as_html(table(folder)[:1]),
        claim(
            "The total running time was approximately 30 minutes for HP-UCB (d = 2051, an L40 GPU).",
            f"Ours: {last[thresholds[0], 'HP-UCB']['seconds']:.1f} s for {rows[0]['seeds']:.0f} seed(s) and {len(thresholds)} thresholds at "
            f"d = {rows[0]['dim']:.0f} on {told['machine']['cores']} cores (docs/replay.md has d = 2051 on a GPU). The paper prints no number for this "
            "figure; regrets are in units of reward, as above.",
        ),
    ]
    return [*parts, *logged_section(folder)]


def why_skipped() -> str:
    """Why it cannot run here: the package does not contain the data."""
    if os.environ.get("SAFEDIAL_DATA"):
        return ""
    return "The battery experiment is skipped: no data folder is set (SAFEDIAL_DATA; docs/battery.md)."


EXPERIMENT = Experiment(
    name="battery",
    run=run,
    draw=draw,
    table=table,
    section=section,
    options_in_all=lambda seeds, rounds: {"seeds": min(seeds, 3)},
    why_skipped=why_skipped,
)
