"""What each policy earns in studies of 50 to 10⁵ rounds, beside what can be earned at all.

| part | d | δ | noise | rounds |
|---|---|---|---|---|
| small | 5 | .05 | 1 and .3 | 50 to 1,000 |
| long | 5 | .05 | 1 | 2,000 to 10⁵ |
| late | 10 and 5 | .02 | 1 | 10⁴ |

HP-Conformal is not played for more than 10⁴ rounds. τ = .5, δ′ = .01, Gaussian noise, S = L = 1. Reward is a share of
the exact clairvoyant's, who knows both means and the noise's quantile at δ, and of the attainable
(`simulation.attainable`). Only policies with the same guarantee are compared in one panel. All start at the dose that
the constants certify for the first round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from safedial.errors import is_whole, require
from safedial.io import Advance, Bar, no_bar, read_rows, write_rows
from safedial.model.spec import SafetySpec
from safedial.paper.experiment import Experiment, Found, Rows, Table
from safedial.policies import Policy, hp_conformal, hp_probe, hp_student, hp_ucb
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.run import simulate
from safedial.tools.pages import columns, new_figure, save, title

SMALL_MARKS = (50, 100, 200, 500, 1000)
LONG_MARKS = (2000, 5000, 10_000, 20_000, 50_000, 100_000)
LATE = 10_000
PER_ROUND, TOLERANCE, CERTIFIED = "per round", "given the past, per round", "given the past"
GUARANTEED = {
    PER_ROUND: "P(C > τ) ≤ δ in each round, over the past rounds too",
    CERTIFIED: "P(C > τ given the past) ≤ δ in all rounds, with probability 1 − δ′",
}
"""The panels of the picture. Tables have one more guarantee, `TOLERANCE`: given the past, each round by itself."""
ATTAINABLE = "attainable"
SLOW = ("HP-Conformal, lean", "HP-Conformal")
"""A decision takes time in proportion to the rounds: no study of these is longer than `LATE`."""


class Part(NamedTuple):
    """One world and its spec, how long it is simulated, and at which rounds shares are taken."""

    dim: int
    risk: float
    noise: float
    marks: tuple[int, ...]
    seeds: int

    def spec(self, changes: Mapping[str, Any]) -> SafetySpec:
        sizes = {"reward_noise": self.noise, "cost_noise": self.noise, "coefficient_bound": 1.0, "context_bound": 1.0}
        fields: dict[str, Any] = {"threshold": 0.5, "violation_risk": self.risk, "estimation_risk": 0.01, **sizes}
        return SafetySpec(**{**fields, **changes})

    def up_to(self, rounds: int) -> Part:
        return self._replace(marks=tuple(mark for mark in self.marks if mark <= rounds))

    @property
    def place(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in PLACE)


def parts(seeds: int, rounds: int) -> list[Part]:
    """The parts of a run; `rounds` cuts the long ones, which have a fifth of the seeds."""
    few = max(seeds // 5, 1)
    small = tuple(mark for mark in SMALL_MARKS if mark <= rounds)
    long = tuple(mark for mark in LONG_MARKS if mark <= rounds)
    found = [Part(5, 0.05, noise, small, seeds) for noise in (1.0, 0.3)]
    late = [Part(dim, 0.02, 1.0, (min(LATE, rounds),), few) for dim in (10, 5)]
    return [*found, *late, *([Part(5, 0.05, 1.0, long, few)] if long else [])]


def series(part: Part) -> dict[str, tuple[str, Policy, dict[str, Any]]]:
    """Label → (guarantee, policy, changes of the spec), as tables list them: by guarantee, what earns most first."""
    tight, marginal = hp_probe(radius="self-normalised", probe=0.001), {"guarantee": "conformal"}
    lean: dict[str, Any] = {"groups": "none", "probe": 0.001}
    return {
        "HP-Student": (PER_ROUND, hp_student(), {}),
        "HP-Conformal, lean": (PER_ROUND, hp_conformal(**lean), marginal),
        "HP-Conformal": (PER_ROUND, hp_conformal(), marginal),
        "HP-Student, tolerance": (TOLERANCE, hp_student(guarantee="tolerance"), {}),
        "HP-Probe, tight, Gaussian": (CERTIFIED, tight, {"margin": "gaussian"}),
        "HP-Student, anytime": (CERTIFIED, hp_student(guarantee="anytime"), {}),
        "HP-Probe, tight": (CERTIFIED, tight, {}),
        "HP-Probe": (CERTIFIED, hp_probe(), {}),
        "HP-UCB": (CERTIFIED, hp_ucb(), {}),
        "HP-UCB, paper": (CERTIFIED, hp_ucb(radius="paper"), {}),
    }


def measured(part: Part, label: str, progress: Advance | None = None) -> Iterator[dict[str, Any]]:
    """A row for each mark of a part; with the first series also the attainable's."""
    panel, policy, changes = series(part)[label]
    rounds, step = part.marks[-1], math.gcd(*part.marks)
    place = dict(zip(PLACE, part.place, strict=True))
    run = simulate(
        policy,
        LinearWorld(dim=part.dim),
        part.spec(changes),
        rounds=rounds,
        seeds=part.seeds,
        points=rounds // step,
        progress=progress,
    )
    most: Any = run.attainable_reward_curve
    for mark in part.marks:
        at = mark // step - 1
        best, can = run.exact_clairvoyant_reward_curve[at].sum(), most[at].sum()
        known = place | {"rounds": mark}
        earned, over = run.reward_curve[at].sum(), run.violations_curve[at].mean() / mark
        told = {"series": label, "policy": policy.name, "panel": panel, "reward_share": float(earned / best)}
        if label == next(iter(series(part))):
            first = {"series": ATTAINABLE, "policy": "", "panel": "", "reward_share": float(can / best)}
            yield known | first | {"attainable_share": 1.0, "violation_rate": ""}
        yield known | told | {"attainable_share": float(earned / can), "violation_rate": float(over)}


def run(
    folder: Path,
    *,
    seeds: Annotated[
        int, "How many seeds, a count, of the studies of at most 1000 rounds; longer ones have a fifth."
    ] = 100,
    rounds: Annotated[int, "The longest study."] = 100_000,
    bar: Bar = no_bar,
) -> Found:
    """Measure what each policy earns in 50 to 10^5 rounds; an interrupted run continues where it stopped."""
    require(rounds >= SMALL_MARKS[0], "rounds", rounds, f"must be at least {SMALL_MARKS[0]}")
    require(is_whole(seeds), "seeds", seeds, "must be a count >= 1 here", "longer studies have a fifth of them")
    plan = parts(seeds, rounds)
    todo = [(part.up_to(LATE) if label in SLOW else part, label) for part in plan for label in series(part)]
    rows = kept(folder)
    with bar(f"Reward by length of a study, {seeds} seeds", sum(part.marks[-1] for part, _ in todo)) as advance:
        for part, label in todo:
            if _has(rows, part, label):
                advance(part.marks[-1])
                continue
            rows += measured(part, label, progress=advance)
            write_rows(folder / "power.csv", rows)
    settings = {"seeds": list(range(seeds)), "rounds": rounds, "threshold": 0.5, "estimation_risk": 0.01}
    return Found({"power": rows}, settings, {"rows": rows})


def kept(folder: Path) -> Rows:
    """The rows of an interrupted run: a finished one has its provenance beside it, and is made again."""
    done = folder / "power.provenance.json"
    if done.exists():
        done.unlink()
        (folder / "power.csv").unlink(missing_ok=True)
    return read_rows(folder / "power.csv") if (folder / "power.csv").exists() else []


PLACE = ("dim", "risk", "noise", "seeds")


def _of(rows: Rows, place: tuple[Any, ...]) -> Rows:
    return [row for row in rows if tuple(row[name] for name in PLACE) == place]


def _has(rows: Rows, part: Part, label: str) -> bool:
    found = {row["rounds"] for row in _of(rows, part.place) if row["series"] == label}
    return found.issuperset(part.marks)


LOOKS = {
    ATTAINABLE: ("#000000", "--", ""),
    "HP-Student": ("#D55E00", "-", "o"),
    "HP-Conformal, lean": ("#0072B2", "-", "^"),
    "HP-Conformal": ("#56B4E9", "-", "v"),
    "HP-Student, anytime": ("#D55E00", "-", "o"),
    "HP-Probe, tight, Gaussian": ("#009E73", "-", "D"),
    "HP-Probe, tight": ("#009E73", "--", "D"),
    "HP-Probe": ("#56B4E9", "--", "s"),
    "HP-UCB": ("#0072B2", "--", "^"),
    "HP-UCB, paper": ("#999999", "--", "v"),
}
"""Colour, line and marker of each series; dashed ones need only sub-Gaussian noise in the right panel."""


def draw(folder: Path) -> list[Path]:
    """`power.png` from `power.csv`: share against rounds at d = 5, δ = .05, noise 1; a panel for each guarantee."""
    rows = [row for row in read_rows(folder / "power.csv") if (row["dim"], row["risk"], row["noise"]) == (5, 0.05, 1)]
    figure, panels = new_figure(columns=2, height=4.2, sharey=True)
    for panel, name in zip(panels, GUARANTEED, strict=True):
        for label, (colour, dash, marker) in LOOKS.items():
            line = [row for row in rows if row["series"] == label and row["panel"] in (name, "")]
            if line:
                line = sorted(line, key=lambda row: row["rounds"])
                look = {"color": colour, "linestyle": dash, "marker": marker, "markersize": 4, "linewidth": 1.2}
                panel.plot(*columns(line, ("rounds", "reward_share")), **look, label=label)
        panel.set(xscale="log", ylim=(0.0, 1.03), xlabel="rounds T")
        panel.legend(fontsize=7, frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.15))
        title(panel, GUARANTEED[name].replace(" in ", "\nin ", 1))
    panels[0].set_ylabel("reward, share of the exact clairvoyant's")
    return [save(figure, folder / "power.png")]


def table(folder: Path) -> list[Table | str]:
    """A table for each world: share of the exact clairvoyant (share of the attainable)."""
    rows, found = read_rows(folder / "power.csv"), []
    for part in dict.fromkeys(tuple(row[name] for name in PLACE) for row in rows):
        here, (dim, risk, noise, seeds) = _of(rows, part), part
        marks = sorted({row["rounds"] for row in here})
        lines: dict[str, dict[float, str]] = {}
        for row in here:
            beside = "" if row["series"] == ATTAINABLE else f" ({row['attainable_share']:.3f})"
            lines.setdefault(row["series"], {})[row["rounds"]] = f"{row['reward_share']:.3f}{beside}"
        many = f"{seeds:g} seed" + "s" * (seeds != 1)
        name = f"Share of the exact clairvoyant (of the attainable), d = {dim:g}, δ = {risk:g}, noise {noise:g}, {many}"
        heads = ["policy", "guarantee", *(f"T = {mark:g}" for mark in marks)]
        guarantees = {row["series"]: row["panel"] for row in here}
        cells = [[label, guarantees[label], *(line.get(mark, "") for mark in marks)] for label, line in lines.items()]
        found.append(Table(name, heads, cells))
    return found


EXPERIMENT = Experiment(name="power", run=run, draw=draw, table=table)
