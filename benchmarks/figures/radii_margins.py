"""What tighter radii and margins earn, and what they cost if an assumption fails.

| part | what is varied |
|---|---|
| `shares` | radius, ridge, margin; d = 10, unit noise, τ = 0.5, δ = δ′ = 0.01: reward as a share of the clairvoyant's |
| `overstated` | only the radius uses a κ five times too large: reward lost compared with the right κ |
| `broken` | every margin in every noise family, d = 2: violations among full doses, assumption kept or broken |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from safedial.bounds.confidence import bound
from safedial.bounds.estimate import Prediction
from safedial.bounds.safe_set import safe_set
from safedial.io import Advance, Bar, no_bar, read_rows
from safedial.model.spec import SafetySpec
from safedial.paper.experiment import Experiment, Found, OwnSeeds, Rows, Table, cell_or_dash, cells
from safedial.paper.table1 import UNIT
from safedial.policies import make_policy
from safedial.policies.linear import HPProbe, bound_numbers
from safedial.policies.policy import Asked, Bound
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.results import guarantee_holds
from safedial.simulation.run import Simulation, simulate
from safedial.simulation.world import NOISES
from safedial.stats import as_seeds, violation_interval
from safedial.tools.pages import COLOURS, new_figure, point, read_provenance, save, title

DIM, FACTOR = 10, 5.0
PLAIN: dict[str, Any] = {"threshold": 0.5, "violation_risk": 0.01, "estimation_risk": 0.01, **UNIT}
UNIFORM: dict[str, Any] = {"margin": "bounded", "noise_low": -(3.0**0.5), "noise_high": 3.0**0.5}

SERIES: list[tuple[str, str, str, dict[str, Any], dict[str, Any]]] = [
    ("Algorithm 1, paper", "hp_ucb", "paper", {}, {}),
    ("paper", "hp_probe", "paper", {}, {}),
    ("mixture, λ = 1", "hp_probe", "mixture", {}, {}),
    ("mixture", "hp_probe", "mixture", {"ridge": 10.0}, {}),
    ("noise-adaptive", "hp_probe", "noise-adaptive", {"ridge": 10.0}, {}),
    ("self-normalised", "hp_probe", "self-normalised", {"ridge": 19.0}, {}),
    ("self-normalised, adversarial", "hp_probe", "self-normalised", {"ridge": 19.0}, {"contexts": "adversarial"}),
    ("self-normalised, gaussian", "hp_probe", "self-normalised", {"ridge": 19.0, "margin": "gaussian"}, {}),
    ("self-normalised, bounded", "hp_probe", "self-normalised", {"ridge": 19.0, **UNIFORM}, {"noise": "uniform"}),
]
"""(label, policy, radius, changes of the spec, changes of the world)."""

MARGINS: dict[str, dict[str, Any]] = {
    "subgaussian": {},
    "gaussian": {"margin": "gaussian"},
    "bounded by ±√3": UNIFORM,
}
PALETTE = [COLOURS[name] for name in ("hp_ucb", "on_expectation", "hp_probe", "thompson")]


def share_rows(*, seeds: list[int], rounds: int, progress: Advance | None = None) -> Iterator[dict[str, Any]]:
    """Reward as a share of the sub-Gaussian clairvoyant's, for each radius and margin."""
    for label, name, radius, changes, place in SERIES:
        spec, world = SafetySpec(**(PLAIN | changes)), LinearWorld(dim=DIM, **place)
        policy = make_policy(name, radius=radius)
        run = simulate(policy, world, spec, rounds=rounds, seeds=seeds, progress=progress)
        yield {
            "series": label,
            "policy": name,
            "radius": radius,
            "margin": spec.margin,
            "ridge": spec.ridge,
            "contexts": world.contexts,
            "noise": world.noise,
            "reward_share": _share(run),
            "attainable_share": run.attainable_share,
            "violation_rate": float(run.violations.mean() / rounds),
            "guaranteed_risk": spec.guaranteed_risk,
        }


@dataclass(frozen=True, kw_only=True)
class Overstated(HPProbe):
    """HP-Probe whose radius uses `factor` times the noise constants, and whose margin uses the right ones."""

    name = "overstated"
    label = "HP-Probe, κ overstated"
    factor: float = FACTOR

    def rule(self, seen: Prediction, asked: Asked) -> Bound:
        limits = bound(seen, self._wide, radius=self.radius, clip=True)
        safe = safe_set(limits.cost_upper, self.spec, asked.number, asked.baseline)
        numbers = bound_numbers(seen, *limits[:4])
        return Bound(seen.reward, safe.intensity, numbers, True, safe.certified, limits.refuted, seen)

    @cached_property
    def _wide(self) -> SafetySpec:
        spec = self.spec
        return replace(spec, cost_noise=self.factor * spec.cost_noise, reward_noise=self.factor * spec.reward_noise)


def overstated_rows(*, seeds: list[int], rounds: int, progress: Advance | None = None) -> Iterator[dict[str, Any]]:
    """The reward lost to a κ five times too large in the radius only."""
    spec, world = SafetySpec(**PLAIN, ridge=10.0), LinearWorld(dim=DIM)
    for radius in ("mixture", "noise-adaptive"):
        runs = [
            simulate(
                Overstated(radius=radius, factor=factor), world, spec, rounds=rounds, seeds=seeds, progress=progress
            )
            for factor in (1.0, FACTOR)
        ]
        right, wrong = (_share(run) for run in runs)
        shares = {"right_share": right, "wrong_share": wrong, "loss": 1 - wrong / right}
        yield {"radius": radius, "factor": FACTOR, **shares}


def broken_rows(*, seeds: list[int], rounds: int, progress: Advance | None = None) -> Iterator[dict[str, Any]]:
    """Violations among full doses for every margin in every noise family."""
    policy = make_policy("hp_probe", radius="mixture")
    for margin, changes in MARGINS.items():
        settings: dict[str, Any] = {**PLAIN, "threshold": 0.2, "ridge": 2.0, **changes}
        spec = SafetySpec(**settings)
        for noise in NOISES:
            world = LinearWorld(dim=2, noise=noise)
            run = simulate(policy, world, spec, rounds=rounds, seeds=seeds, progress=progress)
            low, high = violation_interval(run.full_dose_violations[0], int(run.full_dose_rounds.mean()))
            yield {
                "margin": margin,
                "noise": noise,
                "holds": guarantee_holds(policy, world, spec),
                "full_dose_violation_rate": float(run.full_dose_violations.sum() / run.full_dose_rounds.sum()),
                "ci_low": low,
                "ci_high": high,
                "guaranteed_risk": spec.guaranteed_risk,
                "violation_risk": spec.violation_risk,
            }


def _share(run: Simulation) -> float:
    return float(run.reward.sum() / run.clairvoyant_reward.sum())


PARTS = {"shares": share_rows, "overstated": overstated_rows, "broken": broken_rows}


def run(
    folder: Path,
    *,
    seeds: OwnSeeds = 5,
    rounds: Annotated[int, "Rounds for each seed."] = 10_000,
    bar: Bar = no_bar,
) -> Found:
    """Compare radii and margins: reward, an overstated noise constant, broken assumptions."""
    rows, which = {}, as_seeds(seeds)
    total = rounds * (len(SERIES) + 4 + len(MARGINS) * len(NOISES))
    with bar(f"Radii and margins, {len(which)} seeds", total) as advance:
        for part, compute in PARTS.items():
            rows[part] = list(compute(seeds=which, rounds=rounds, progress=advance))
    settings = {"dim": DIM, "seeds": which, "rounds": rounds, **PLAIN}
    return Found({f"toolkit_{part}": each for part, each in rows.items()}, settings, rows)


def _read(folder: Path) -> dict[str, Rows]:
    return {part: read_rows(folder / f"toolkit_{part}.csv") for part in PARTS}


def draw(folder: Path) -> list[Path]:
    """`toolkit.png` from the three `toolkit_*.csv`."""
    figure, panels = new_figure(columns=3, height=2.9)
    draws = (_draw_shares, _draw_overstated, _draw_broken)
    for draw_part, panel, rows in zip(draws, panels, _read(folder).values(), strict=True):
        draw_part(panel, rows)
    return [save(figure, folder / "toolkit.png")]


def _draw_shares(panel: Any, rows: Rows) -> None:
    places = range(len(rows))
    colours = [COLOURS["hp_probe"] if row["margin"] == "subgaussian" else COLOURS["thompson"] for row in rows]
    panel.barh(places, [row["reward_share"] for row in rows], color=colours)
    for place, row in zip(places, rows, strict=True):
        panel.text(0.02, place, f"{row['reward_share']:.3f}", va="center", fontsize=6, color="white")
    panel.set_yticks(places, [row["series"] for row in rows], fontsize=6)
    panel.invert_yaxis()
    panel.axvline(1.0, color="grey", linestyle="--", linewidth=1)
    panel.set_xlabel("reward, share of the clairvoyant's")
    title(panel, "radius and margin (violet: another margin)")


def _draw_overstated(panel: Any, rows: Rows) -> None:
    for place, row in enumerate(rows):
        panel.bar(place - 0.2, row["right_share"], width=0.38, color="0.75", label="" if place else "right κ")
        panel.bar(place + 0.2, row["wrong_share"], width=0.38, color=PALETTE[0], label="" if place else "5 κ")
        panel.text(place + 0.2, row["wrong_share"] + 0.01, f"−{row['loss']:.1%}", ha="center", fontsize=7)
    panel.set_xticks(range(len(rows)), [row["radius"] for row in rows], fontsize=7)
    panel.set(ylabel="reward, share of the clairvoyant's", ylim=(0.0, 1.0))
    panel.legend(fontsize=7, frameon=False, ncols=2, loc="upper left")
    title(panel, "the radius alone is told a κ five times too large")


def _draw_broken(panel: Any, rows: Rows) -> None:
    noises = list(dict.fromkeys(row["noise"] for row in rows))
    margins = list(dict.fromkeys(row["margin"] for row in rows))
    for colour, marker, margin in zip(PALETTE, "osDv", margins, strict=False):
        for row in rows:
            if row["margin"] == margin:
                height = noises.index(row["noise"]) + 0.15 * (margins.index(margin) - 1)
                at = max(row["full_dose_violation_rate"], 1e-5), height
                look = {"marker": marker, "markersize": 4, "label": margin if row["noise"] == noises[0] else ""}
                point(panel, at, colour, look, filled=row["holds"])
    panel.axvline(rows[0]["violation_risk"], color="grey", linestyle="--", linewidth=1)
    panel.set(xscale="log", xlim=(0.7e-5, 1.0), xlabel="full doses over τ (left edge: none); dashed: δ")
    panel.set_yticks(range(len(noises)), noises, fontsize=6)
    panel.invert_yaxis()
    panel.legend(fontsize=6, frameon=False, loc="lower left")
    title(panel, "filled: the assumption holds; hollow: it does not")


def table(folder: Path) -> list[Table | str]:
    """A table for each part; for the overstated constant, a sentence for each radius."""
    rows, settings = _read(folder), read_provenance(folder, "toolkit")["settings"]
    size = f"d = {settings['dim']}, {len(settings['seeds'])} seeds × {settings['rounds']} rounds"
    forms = ("{series}", "{reward_share:.4f}"), ("{violation_rate:.5f}", "{guaranteed_risk:g}")
    shares = [
        cells(row, (*forms[0], cell_or_dash(row, "attainable_share", ".4f"), *forms[1])) for row in rows["shares"]
    ]
    losses = [
        f"{row['radius']}: told κ × {row['factor']:g} in the radius alone, it loses {row['loss']:.1%}."
        for row in rows["overstated"]
    ]
    rates = {}
    for row in rows["broken"]:
        broken = "" if row["holds"] else " !"
        rates.setdefault(row["noise"], []).append(f"{row['full_dose_violation_rate']:.4f}{broken}")
    margins = list(dict.fromkeys(row["margin"] for row in rows["broken"]))
    over = "Full doses over τ at δ = 0.01 (!: the margin's assumption is broken)"
    heads = ["radius, margin", "share", "of the attainable", "over τ", "guaranteed"]
    return [
        Table(f"Reward, share of the clairvoyant's ({size})", heads, shares),
        *losses,
        Table(over, ["noise", *margins], [[name, *cells] for name, cells in rates.items()]),
    ]


EXPERIMENT = Experiment(name="toolkit", run=run, draw=draw, table=table)
