"""What the theorems guarantee, checked with many seeds: violations in a round and in all rounds, and regret.

| part | checked |
|---|---|
| `theory.csv` | P(C > τ) ≤ δ + δ′ in a round, and P(any C > τ) ≤ δ + δ′ over all rounds (guarantee "joint"), with intervals |
| `theory_regret.csv` | regret up to a long horizon, beside Theorem 2 with its constants |

A study is a seed. Whether a study has any violation is one coin toss a seed, so its interval is the exact binomial one
(Clopper and Pearson 1934). Rounds of one seed share θ* and μ*; their interval is `stats.violation_interval`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from safedial.errors import require
from safedial.io import Advance, Bar, no_bar, read_rows
from safedial.model.spec import SafetySpec
from safedial.paper.experiment import Engine, EngineName, Experiment, Found, Rows, Table, as_html, cells
from safedial.paper.regret import regret_bound
from safedial.paper.table1 import UNIT
from safedial.policies import make_policy
from safedial.simulation.linear_world import LinearWorld
from safedial.stats import Seeds as AnySeeds
from safedial.stats import as_seeds, binomial_interval, seed_band, violation_interval
from safedial.tools.pages import COLOURS, band, claim, columns, image, new_figure, save, title

DIM, THRESHOLD, RISK = 2, 0.2, 0.01
SERIES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("HP-UCB, the paper's radius", "hp_ucb", {"radius": "paper"}, {}),
    ("HP-Probe", "hp_probe", {}, {}),
    ("HP-Probe, Gaussian margin", "hp_probe", {}, {"margin": "gaussian"}),
]
"""(name, policy, its options, changes of the spec)."""

ALL = "all rounds"
GUARANTEED_OVER = (("certified", "a round"), ("joint", ALL))

REGRET = {"HP-UCB, the paper's radius": ("hp_ucb", {"radius": "paper"}), "HP-Probe": ("hp_probe", {})}
REGRET_DIM, POINTS = 5, 60
REGRET_SEEDS = {"cpu": 5, "gpu": 1000}
"""A GPU plays a thousand seeds as fast as one."""


def theory_spec(changes: dict[str, Any]) -> SafetySpec:
    """Unit noise, S = L = 1, δ = δ′ = .01."""
    stated: dict[str, Any] = {"threshold": THRESHOLD, "violation_risk": RISK, "estimation_risk": RISK, **UNIT}
    return SafetySpec(**(stated | changes))


def guarantee_rows(
    engine: Engine, *, seeds: list[int], rounds: int, progress: Advance | None = None
) -> Iterator[dict[str, Any]]:
    """A row for each guarantee and policy."""
    for guarantee, over in GUARANTEED_OVER:
        for label, name, options, changes in SERIES:
            spec = theory_spec({"guarantee": guarantee, **changes})
            told: Any = {"rounds": rounds, "seeds": seeds, "points": 1, "progress": progress}
            run = engine.play(make_policy(name, **options), LinearWorld(dim=DIM), spec, **told)
            counts = run.violations[0]
            if over == ALL:
                hits = int((counts > 0).sum())
                found, ends = hits / len(seeds), binomial_interval(hits, len(seeds))
            else:
                found, ends = counts.mean() / rounds, violation_interval(counts, rounds)
            yield {
                "series": label,
                "guaranteed_over": over,
                "guaranteed": spec.guaranteed_risk,
                "found": float(found),
                "found_low": ends[0],
                "found_high": ends[1],
                "full_dose_rate": float(run.full_dose_violations.sum() / max(run.full_dose_rounds.sum(), 1.0)),
                "kept": ends[0] <= spec.guaranteed_risk,
                "seeds": len(seeds),
                "rounds": rounds,
                "engine": run.engine,
            }


def regret_rows(
    engine: Engine, *, seeds: int, horizon: int, progress: Advance | None = None
) -> Iterator[dict[str, Any]]:
    """Regret at rounds that are spread over all powers of ten, from runs of different lengths of the same seeds."""
    spec = theory_spec({"threshold": 0.5})
    lengths = [horizon // 10**power for power in (4, 2, 0) if horizon // 10**power >= 10]
    for label, (name, options) in REGRET.items():
        done, policy = 0, make_policy(name, **options)
        for length in lengths:
            told: Any = {"rounds": length, "seeds": seeds, "points": min(POINTS, length), "progress": progress}
            run = engine.play(policy, LinearWorld(dim=REGRET_DIM), spec, **told)
            bound = regret_bound(REGRET_DIM, run.checkpoints, spec, radius="paper")
            mean, half = seed_band(run.regret_curve[:, 0])
            for place in np.flatnonzero(run.checkpoints > done):
                yield {
                    "series": label,
                    "policy": name,
                    "round": int(run.checkpoints[place]),
                    "regret": float(mean[place]),
                    "regret_low": float(mean[place] - half[place]),
                    "regret_high": float(mean[place] + half[place]),
                    "theorem_2": float(bound[place]),
                    "seeds": seeds,
                    "engine": run.engine,
                }
            done = length


def run(
    folder: Path,
    *,
    seeds: Annotated[AnySeeds, "Studies for each rate: how many, 1000000 on a GPU, or which, as 0:100."] = 2000,
    rounds: Annotated[int, "Rounds of each study."] = 500,
    horizon: Annotated[int, "Rounds of the regret curves; 10000000 on a GPU."] = 1_000_000,
    engine: EngineName = "auto",
    device: Annotated[str, "For jax: cpu, or gpu, where worlds are drawn on the device."] = "cpu",
    bar: Bar = no_bar,
) -> Found:
    """Check the guarantees and Theorem 2 with many seeds: violations in a round and in all rounds, regret up to a horizon."""
    chosen, which = Engine(engine), as_seeds(seeds)
    require(device in REGRET_SEEDS, "device", device, "must be 'cpu' or 'gpu'")
    if device != "cpu":
        chosen.asked |= {"device": device, "draws": "counter"}
    lengths = sum(horizon // 10**power for power in (4, 2, 0) if horizon // 10**power >= 10)
    with bar(f"Theory, {len(which)} seeds", 2 * len(SERIES) * rounds + len(REGRET) * lengths) as advance:
        rates = list(guarantee_rows(chosen, seeds=which, rounds=rounds, progress=advance))
        curves = list(regret_rows(chosen, seeds=REGRET_SEEDS[device], horizon=horizon, progress=advance))
    counted = which == list(range(len(which)))
    settings = {"dim": DIM, "seeds": len(which) if counted else which, "rounds": rounds, "horizon": horizon}
    settings |= {"device": device, **theory_spec({}).to_dict(), **chosen.settings}
    return Found({"theory": rates, "theory_regret": curves}, settings, {"rows": rates})


def draw(folder: Path) -> list[Path]:
    """`theory.png`: regret against rounds beside Theorem 2 and √T, both axes logarithmic."""
    rows = read_rows(folder / "theory_regret.csv")
    figure, (axes,) = new_figure(height=3.2)
    for label in REGRET:
        line = [row for row in rows if row["series"] == label and row["regret"] > 0.0]
        colour = COLOURS[REGRET[label][0]]
        rounds, regret, low, high = columns(line, ("round", "regret", "regret_low", "regret_high"))
        look = {"linewidth": 1.2, "label": label}
        band(axes, rounds, (regret, np.maximum(low, 1e-3), high), colour=colour, shade=0.18, look=look)
    first = [row for row in rows if row["series"] == next(iter(REGRET))]
    rounds, bound = columns(first, ("round", "theorem_2"))
    axes.plot(rounds, bound, color="black", linestyle=":", linewidth=1, label="Theorem 2, for HP-UCB")
    end = first[-1]
    slope = [end["regret"] * math.sqrt(number / end["round"]) for number in rounds]
    axes.plot(rounds, slope, color="grey", linestyle="--", linewidth=0.8, label="slope of √T")
    axes.set(xscale="log", yscale="log", xlabel="round", ylabel="cumulative regret (units of reward)")
    axes.legend(fontsize=6, frameon=False, loc="upper left")
    title(axes, f"d = {REGRET_DIM}, τ = 0.5, {end['seeds']:g} seeds")
    return [save(figure, folder / "theory.png")]


HEADS = ("policy", "over", "guaranteed", "found", "95 % interval", "among full doses", "kept")


def _lines(rows: Rows) -> list[list[str]]:
    """Rates with as many digits as the seeds support."""
    most = max(row["seeds"] * (row["rounds"] if row["guaranteed_over"] == "a round" else 1.0) for row in rows)
    digits = max(4, math.ceil(math.log10(most) / 2.0) + 2)
    forms = ("{series}", "{guaranteed_over}", "{guaranteed:g}", f"{{found:.{digits}f}}")
    ends = f"{{found_low:.{digits}f}} to {{found_high:.{digits}f}}"
    return [[*cells(row, (*forms, ends, "{full_dose_rate:.5f}")), "yes" if row["kept"] else "NO"] for row in rows]


def table(folder: Path) -> list[Table | str]:
    """The rates beside the guarantees, and how far regret is from Theorem 2."""
    rows = read_rows(folder / "theory.csv")
    size = f"d = {DIM}, {rows[0]['seeds']:g} seeds × {rows[0]['rounds']:g} rounds, engine {rows[0]['engine']}"
    return [Table(f"How often the cost exceeds τ ({size})", HEADS, _lines(rows)), _regret_words(folder)]


def _regret_words(folder: Path) -> str:
    rows = [row for row in read_rows(folder / "theory_regret.csv") if row["series"] == next(iter(REGRET))]
    end, kept = rows[-1], all(row["regret_high"] <= row["theorem_2"] for row in rows)
    share = end["theorem_2"] / end["regret"] if end["regret"] > 0.0 else math.inf
    return (
        f"Theorem 2 is {'never exceeded' if kept else 'EXCEEDED'} up to round {end['round']:g}, where it is {share:.0f} "
        "times HP-UCB's regret."
    )


def section(folder: Path) -> list[str]:
    rows = read_rows(folder / "theory.csv")
    broken = [row["series"] for row in rows if not row["kept"]]
    return [
        "<h2>What the theorems guarantee, with many seeds</h2>",
        *as_html(table(folder)[:1]),
        claim(
            "A cost exceeds τ with probability at most δ + δ′ (Theorem 1).",
            f"Broken by: {', '.join(broken)}." if broken else "No interval lies above what is guaranteed.",
        ),
        image(folder / "theory.png", "Cumulative regret against rounds, beside Theorem 2"),
        claim("Regret is Õ(d√T) (Theorem 2).", _regret_words(folder)),
    ]


EXPERIMENT = Experiment(
    name="theory",
    run=run,
    draw=draw,
    table=table,
    section=section,
    options_in_all=lambda seeds, rounds: {"seeds": 20 * seeds, "rounds": min(rounds, 300), "horizon": 10 * rounds},
)
