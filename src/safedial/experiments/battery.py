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

import html
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from safedial.core.estimate import Prediction
from safedial.core.spec import SafetySpec
from safedial.datasets.battery.embedders import EMBEDDERS
from safedial.datasets.battery.whitening import check_floor, check_split
from safedial.errors import require
from safedial.experiments.battery_logged import logged_section, logged_tables
from safedial.experiments.battery_rounds import (
    FLOOR,
    TRUTH_RIDGE,
    Array,
    Rounds,
    Truth,
    check_choice,
    embed_source,
    fit_truth,
    load_rounds,
)
from safedial.experiments.experiment import Experiment, Found, OwnSeeds, Table, as_html, cells
from safedial.io import read_rows
from safedial.plots.style import COLOURS, MARKERS, columns, legend_below, new_figure, save, title
from safedial.policies import make_policy
from safedial.policies.clairvoyant import clairvoyant
from safedial.progress import Advance, Bar, no_bar
from safedial.report.html import claim, image, read_provenance
from safedial.seeds import as_seeds
from safedial.stats import seed_interval

RIDGE, RISK = 4.0, 0.01
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
    points: int = 100,
    engine: str = "blocked",
    progress: Advance | None = None,
) -> Iterator[dict[str, Any]]:
    """One row for each threshold, series and checkpoint: regret and violations, means over seeds of the noise."""
    from safedial.replay_engines import replay  # here, so that the help of `safedial reproduce` need not wait for SciPy

    spec = battery_spec(truth, thresholds)
    context = np.ascontiguousarray(rounds.context[~rounds.fit])
    means = context @ truth.reward_coef, context @ truth.cost_coef
    marks = np.unique(np.linspace(0, len(context), points + 1).round().astype(int))[1:]
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
                    "promised_risk": 2 * RISK,
                    "seconds": seconds,
                }


def _clairvoyant(means: tuple[Array, Array], spec: SafetySpec) -> Array:
    """(thresholds, rounds): the doses of a policy that knows θ and μ."""
    truth = Prediction(means[0][None], means[1][None], 0.0, 0.0, 0.0, 0.0, 1)
    column = SafetySpec.from_dict({**spec.to_dict(), "threshold": np.asarray(spec.threshold)[:, None]})
    return clairvoyant().decide(truth, column, round=1.0, coin=0.0).intensity


def check_settings(
    source: str, embedder: str, *, split: str, floor: float, thresholds: list[float], engine: str
) -> None:
    """Refuse invalid settings before anything is read or computed."""
    from safedial.replay_engines.dispatch import ENGINES

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
            if not make_policy(policy).knows_truth:
                above.plot(rounds, regret, **look)
                above.fill_between(rounds, low, high, color=COLOURS[policy], alpha=0.2, linewidth=0)
            below.plot(rounds, [max(rate, 1e-5) for rate in rates], **look)
        risk = here[0]["promised_risk"]
        below.axhline(risk, color="grey", linestyle="--", linewidth=1)
        title(above, f"τ = {threshold:g} ({here[0]['threshold_celsius']:.2g} °C per step)")
        below.set(yscale="log", ylim=(0.7e-5, 1.0), xlabel="round")
        below.set_yticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0], ["0", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
        if column == 0:
            above.set_ylabel("cumulative regret")
            below.set_ylabel("rounds with cost > τ")
            below.text(here[-1]["round"], risk * 1.2, "promise", ha="right", fontsize=7, color="0.3")
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
        f"{one['round']:.0f} rounds. Promised by all but On-Expectation: cost above τ in at most "
        f"{one['promised_risk']:.0%} of them.\n"
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
