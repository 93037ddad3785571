"""Algorithm 2 in worlds that are not linear, compared with linear learners.

τ = 0.5. Every policy sees the same rounds. The classes are the worlds' own (docs/nonlinear.md); the linear learners are
HP-UCB and HP-Probe as in the linear world, and their guarantee does not hold here. `theorem3` rows hold Theorem 3's bound for
the kernel class, from an upper bound on its eluder dimension over `CONTEXTS` contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from safedial.io import Advance, Bar, no_bar, read_rows
from safedial.model.dose import Dose, hill
from safedial.model.spec import SafetySpec
from safedial.paper.experiment import Experiment, Found, OwnSeeds, Rows, Table, as_html, cells
from safedial.paper.regret import kernel_case, theorem3_curve
from safedial.paper.synthetic import synthetic_spec
from safedial.policies import Policy, hp_probe, hp_ucb, nonlinear_hp_probe, nonlinear_hp_ucb
from safedial.policies.classes import FunctionClass, binary, finite, kernel
from safedial.policies.classes.kernel import parse_kernel
from safedial.simulation.nonlinear_worlds import EC50, HILL, PEAK, NonlinearWorld, waves
from safedial.simulation.proof import guarantee_holds
from safedial.simulation.run import Simulation, simulate
from safedial.simulation.world import generators
from safedial.stats import as_seeds
from safedial.tools.pages import COLOURS, image, legend_below, new_figure, point, save, title

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

STYLES = {
    "Non-linear HP-UCB": (COLOURS["hp_ucb"], "-"),
    "Non-linear HP-Probe": (COLOURS["hp_probe"], "-"),
    "HP-UCB, linear": (COLOURS["hp_ucb"], ":"),
    "HP-Probe, linear": (COLOURS["hp_probe"], ":"),
    "Theorem 3": ("0.3", "--"),
}

LEAST = 0.0
"""The lower edge of the last panel: smaller rewards are drawn there."""


def place_spec(place: Place) -> SafetySpec:
    """The synthetic experiment's spec with the place's own noise and risks."""
    return replace(synthetic_spec(), **place.changes)


def nonlinear_rows(*, seeds: list[int], rounds: int, progress: Advance | None = None) -> Iterator[dict[str, Any]]:
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
    yield from _theorem3("kernel, κ = 1", replace(spec, coefficient_bound=2.0), len(seeds), rounds)


def _curve(run: Simulation, label: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = run.spec
    last = {
        "reward_share": float(run.reward.sum() / run.clairvoyant_reward.sum()),
        "violation_rate": float(run.violations.mean() / run.rounds),
        "risk": float(spec.violation_risk + spec.estimation_risk),
        "guarantee_holds": guarantee_holds(run.policy, run.world, spec),
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
        rest = {"reward_share": np.nan, "violation_rate": np.nan, "risk": np.nan, "guarantee_holds": True}
        yield told | {"regret": row["bound"]} | rest | {"seeds": seeds, "rounds": rounds}


def finals(rows: Rows) -> Rows:
    """The last row of every curve but the bound's."""
    last = {(row["world"], row["series"]): row for row in rows if row["policy"] != "theorem3"}
    return list(last.values())


def run(
    folder: Path,
    *,
    seeds: OwnSeeds = 3,
    rounds: Annotated[int, "Rounds for each seed; time grows as their cube."] = 5000,
    bar: Bar = no_bar,
) -> Found:
    """Run Algorithm 2 in finite, kernel, logistic and dose-toxicity worlds, beside linear learners and Theorem 3."""
    which = as_seeds(seeds)
    with bar(f"Five worlds that are not linear, {len(which)} seeds", len(PLACES) * len(SERIES) * rounds) as advance:
        rows = list(nonlinear_rows(seeds=which, rounds=rounds, progress=advance))
    settings = {"seeds": which, "rounds": rounds}
    settings["worlds"] = {
        name: {"class": place.class_().describe(), **place_spec(place).to_dict()} for name, place in PLACES.items()
    }
    return Found({"nonlinear": rows}, settings, {"rows": finals(rows)})


def draw(folder: Path) -> list[Path]:
    """`nonlinear.png` from `nonlinear.csv`: one panel per world, with logarithmic axes and a line of slope ½."""
    rows = read_rows(folder / "nonlinear.csv")
    worlds = list(dict.fromkeys(row["world"] for row in rows))
    figure, axes = new_figure(columns=2, rows=-(-(len(worlds) + 1) // 2), height=2.1)
    for panel, world in zip(axes, worlds, strict=False):
        here = [row for row in rows if row["world"] == world]
        lowest = _plot_curves(panel, here)
        times = np.array(sorted({row["round"] for row in here if row["policy"] != "theorem3"}), dtype=float)
        panel.plot(times, lowest * np.sqrt(times / times[0]), color="0.8", linewidth=0.8, zorder=0, label="√T")
        title(panel, world)
        panel.set(xscale="log", yscale="log")
        panel.yaxis.set_minor_formatter("")
        panel.xaxis.set_minor_formatter("")
        panel.set(ylabel="regret", xlabel="round")
    _rates(axes[len(worlds)], rows)
    for panel in axes[len(worlds) + 1 :]:
        panel.set_visible(False)
    found = {label: handle for panel in axes for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)}
    shown = {name: found[name] for name in (*STYLES, "√T") if name in found}
    legend_below(figure, shown.values(), shown)
    return [save(figure, folder / "nonlinear.png")]


def _plot_curves(panel: Any, rows: Rows) -> float:
    """Every series of a world; returns the lowest positive regret at the first checkpoint."""
    first = []
    for series, (colour, line) in STYLES.items():
        points = [(row["round"], row["regret"]) for row in rows if row["series"] == series and row["regret"] > 0]
        if points:
            times, regrets = zip(*points, strict=True)
            panel.plot(times, regrets, color=colour, linestyle=line, linewidth=1.2, label=series)
            first.append(regrets[0])
    return float(min(first))


def _rates(panel: Any, rows: Rows) -> None:
    """Violations over the guaranteed risk, beside the share of the clairvoyant's reward."""
    for row in finals(rows):
        colour, line = STYLES[row["series"]]
        at = max(row["violation_rate"] / row["risk"], 1e-3), max(row["reward_share"], LEAST)
        look = {"marker": "o" if line == "-" else "s", "markersize": 5}
        point(panel, at, colour, look, filled=row["guarantee_holds"])
    panel.axvline(1.0, color="grey", linestyle="--", linewidth=1)
    panel.axhline(0.7, color="0.85", linewidth=0.8, zorder=0)
    panel.set(
        xscale="log",
        ylim=(LEAST - 0.05, None),
        xlabel="violations / risk (filled: the guarantee holds)",
        ylabel="reward (share)",
    )
    title(panel, "all worlds")


def table(folder: Path) -> list[Table | str]:
    """Reward and violations of each policy in each world."""
    rows = finals(read_rows(folder / "nonlinear.csv"))
    forms = ("{world}", "{series}", "{reward_share:.3f}", "{violation_rate:.4f}", "{risk:g}")
    lines = [[*cells(row, forms), "holds" if row["guarantee_holds"] else "–"] for row in rows]
    size = f"{rows[0]['seeds']:.0f} seeds × {rows[0]['rounds']:.0f} rounds"
    heads = ["world", "policy", "reward", "over τ", "risk", "guarantee"]
    return [Table(f"Share of the clairvoyant's reward ({size})", heads, lines)]


def section(folder: Path) -> list[str]:
    rows = finals(read_rows(folder / "nonlinear.csv"))
    return [
        "<h2>Algorithm 2: rewards and costs that are not linear</h2>",
        f"<p>The paper proves Theorem 3 and shows no experiment. {rows[0]['seeds']:.0f} seed(s) of {rows[0]['rounds']:.0f} rounds, τ = 0.5. "
        "Each non-linear policy learns in the world's own class. The linear learners assume a linear world, so nothing is guaranteed "
        "for them: where they look better, they exceed the risk, and where they keep it, they earn less (docs/nonlinear.md). "
        "Theorem 3's bound is larger than the largest possible regret in this many rounds.</p>",
        image(folder / "nonlinear.png", "Regret in five worlds that are not linear, and reward against violations"),
        *as_html(table(folder)),
    ]


EXPERIMENT = Experiment(
    name="nonlinear",
    run=run,
    draw=draw,
    table=table,
    section=section,
    options_in_all=lambda seeds, rounds: {"seeds": min(seeds, 2), "rounds": min(rounds, 1000)},
)
