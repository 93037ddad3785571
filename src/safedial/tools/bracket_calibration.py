"""A growth bracket and a start for HP-Shield, from pilot data: contexts, settings and costs.

    log ─► relative or additive? ─► slopes given the context (tools/slopes.py), widened ─► low, high, floor, start

The slope is an average; a bracket is a statement about nearly every unit. So both ends are widened: by the slope's 95 %
interval, by twice the spread of the units' own slopes where it can be seen, and by `caution`. The result is a proposal
for a person to judge. It has ranges of plausible raw values too: one outside them is more likely a typing error or
another unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, log10
from typing import Literal

import numpy as np

from safedial.errors import InvalidInput, require
from safedial.io import card
from safedial.model.brackets import Growth, additive, relative
from safedial.model.costs import Cost
from safedial.model.dial import Dial, Features
from safedial.model.spec import SafetySpec
from safedial.rounds.log_file import Array, Log
from safedial.rounds.specfile import SpecFile
from safedial.tools.calibration import confounded_doses, rows_left_out, tied_costs
from safedial.tools.dose_fit import Proposal, round_up
from safedial.tools.findings import Finding
from safedial.tools.slopes import Slopes, slopes

WIDER = 0.5
"""How far a range reaches beyond the values that were seen, as a share of their spread, on either side."""


def propose_ranges(names: Sequence[str], values: Array) -> dict[str, tuple[float, float]]:
    """By column of `values` (n, d): from the smallest to the largest, widened and rounded outwards.

    Where no value is negative, a range begins at half of the smallest at the least. A column of equal numbers says
    nothing about which others are plausible, and has no range.

    >>> import numpy as np
    >>> propose_ranges(("dose", "slope", "ward"), np.array([[300.0, -1.0, 3.0], [3000.0, 1.0, 3.0]]))
    {'dose': (100.0, 4400.0), 'slope': (-2.0, 2.0)}
    """
    found = {}
    for name, column in zip(names, values.T, strict=True):
        low, high = float(column.min()), float(column.max())
        spread = high - low
        if spread > 0.0:
            step = 10.0 ** (floor(log10(spread)) - 1)
            least = low - WIDER * spread if low < 0.0 else max(low - WIDER * spread, low / 2.0)
            ends = floor(least / step) * step, ceil((high + WIDER * spread) / step) * step
            found[name] = tuple(float(f"{end:.12g}") for end in ends)
    return found


def range_words(ranges: Mapping[str, tuple[float, float]]) -> str:
    """The proposal and its reason, in plain words; empty if there is none."""
    told = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in ranges.items())
    why = "The smallest and the largest value of the file, widened on either side by half of their distance"
    why += " (where none is negative, to no less than half of the smallest)"
    means = "A case outside them is refused unless extrapolation is allowed: change them where others are plausible"
    return f"ranges: {told}. {why}. {means}." if told else ""


# --- A growth bracket and a start for HP-Shield, from pilot data: contexts, settings and costs

LEAST_ROWS = 30
CLEAR = 1.645
"""How many standard errors are a clear rise of the elasticity."""

SPREADS = 2.0
"""How many standard deviations of the units' own slopes a bracket is widened by, on either side."""

REFUSED_RATIO, DOUBTFUL_RATIO = 50.0, 5.0
"""How many times the protocol's setting the given one may be, in the median and either way: refused, flagged beyond."""

MISLEADING = (
    "Settings that were chosen by the expected outcome mislead (confounding): where units at risk were given less, "
    "costs seem to rise more slowly than they do, and the bracket is too narrow. No data can show this. Settings that "
    "were chosen partly at random do not have this problem."
)
AVERAGE = (
    "Low and high are estimated for the average unit. A unit whose own numbers lie outside them breaks the bracket: "
    "if that is a share q of the units, the risk is δ + q."
)


@dataclass(frozen=True, kw_only=True)
class BracketCalibration:
    """The proposed bracket, None where nothing was learned (`problem` says why), and its start.

    Attributes:
        reason: why relative or additive. proposals: low, high, floor and the start, each with its reason.
        start: a share of the base, or a setting where no base is named; None if none can be proposed.
        slopes: what `low` and `high` come from. confounding: whether the context guided the settings.
        ranges: of plausible values of the context's columns.
        left_out: how many rows of the log were not used, and why; empty if all were.
        doubt: why action and base may not be in one unit; empty if they seem to be.
    """

    cost: Cost | None
    reason: str
    proposals: dict[str, Proposal]
    start: float | None
    base: str | None
    slopes: Slopes | None
    confounding: Finding
    problem: str
    dial: Dial
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    left_out: str = ""
    doubt: str = ""

    @property
    def growth(self) -> Growth | None:
        return self.cost and self.cost.growth

    def _repr_html_(self) -> str:
        rows = ({"constant": name, **each._asdict()} for name, each in self.proposals.items())
        told = [self.reason, *([f"FLAG: {self.doubt}"] if self.doubt else []), MISLEADING, AVERAGE]
        return card("A proposed bracket, for you to judge", rows, told)

    def words(self) -> list[str]:
        """The proposal and its limits, in plain words."""
        told = [f"{name} = {each.value or 'none'}. {each.reason}" for name, each in self.proposals.items()]
        flag = [f"FLAG: {self.confounding.found} {self.confounding.means}"] if self.confounding.flagged else []
        flag += [f"FLAG: {self.doubt}"] if self.doubt else []
        flag += [line for line in (range_words(self.ranges), self.left_out) if line]
        return [self.reason, *told, *flag, MISLEADING, AVERAGE]

    def spec_file(self, *, violation_risk: float, names: Sequence[str]) -> SpecFile:
        """The proposals as a spec file, with the risk that you state and the names of the log's columns."""
        if self.cost is None:
            raise InvalidInput(f"calibration: learned too little for a bracket. {self.problem}")
        stated = self.base is not None and self.start is not None
        rule = "is missing: a spec file states what is scaled and a share of it that is safe"
        require(stated, "base", self.base, rule, "name the column of the protocol's setting")
        spec = SafetySpec(threshold=self.cost.threshold, violation_risk=violation_risk, guarantee="bracket")
        options = {"base": self.base, "growth": self.cost.growth.to_dict(), "start_scale": self.start}
        policy = {"name": "hp_shield", **options, "direction": self.cost.direction}
        ranges = {name: ends for name, ends in self.ranges.items() if name in names}
        features = Features(names=tuple(names), ranges=ranges)
        return SpecFile(spec=spec, policy=policy, features=features, dim=features.dim, dial=self.dial)


def calibrate_bracket(
    log: Log,
    *,
    threshold: float,
    direction: Literal["above", "below"] = "above",
    bracket: Literal["auto", "relative", "additive"] = "auto",
    base: str | None = None,
    unit: str | None = None,
    caution: float = 1.2,
    dial: Dial | None = None,
    progress: Callable[[int], None] | None = None,
) -> BracketCalibration:
    """Propose a growth bracket and a start, from a log of raw contexts.

    Args:
        threshold, direction: the limit on the cost, which only you can state.
        bracket: "auto", or the kind of bracket.
        base: the column with the protocol's setting, in the dial's units.
        unit: a column of `log.extra` that says whose row it is; rows of one unit are then compared with each other.
        caution: the factor by which both ends are widened.
        dial: the settings' units.
        progress: called with 1 after each of `calibration.ORDERS` parts.

    >>> rng = np.random.default_rng(0)
    >>> count, one = 300, np.ones(300)
    >>> dose, weight = rng.uniform(0.1, 1, count), rng.uniform(40, 100, count)
    >>> trough = 10 * dose * (70 / weight) * np.exp(0.3 * rng.standard_normal(count))
    >>> pilot = Log(names=("weight",), context=weight[:, None], action=dose, reward=0 * one, cost=trough,
    ...             round=np.arange(300), advised=np.nan * one, baseline_cost=0 * one)
    >>> found = calibrate_bracket(pilot, threshold=20)
    >>> found.growth.name, [found.growth.parameters[name] for name in ("low", "high", "floor")]
    ('relative', [0.72, 1.6, 1.3])
    """
    require(bracket in ("auto", "relative", "additive"), "bracket", bracket, "must be auto, relative or additive")
    require(np.isfinite(caution) and caution >= 1.0, "caution", caution, "must be a number >= 1")
    given = dial or Dial()
    known, dosed = np.isfinite(log.cost), log.action > 0.0
    rows = log.rows(known & dosed)
    reasons = {"without a cost": int((~known).sum()), "with a setting without effect": int((known & ~dosed).sum())}
    left_out = rows_left_out(len(log), reasons)
    rule = f"rows with a setting and a cost are too few: at least {LEAST_ROWS} are needed"
    require(len(rows) >= LEAST_ROWS, "log", len(rows), rule, left_out)
    setting = given.low + rows.action * (given.high - given.low)
    scaled = np.ones(len(rows)) if base is None else _column(rows, base)
    doubt = "" if base is None else _unit_doubt(float(np.median(setting / scaled)), base)
    whose = None if unit is None else _units(rows, unit)
    signed = rows.cost if direction == "above" else -rows.cost
    misfit, found = _relative_misfit(rows.cost, threshold, direction), {}
    for kind, logs in (("relative", True), ("additive", False)):
        if not (logs and misfit):
            parts = (np.log(signed), np.log(setting / scaled), np.log(scaled)) if logs else (signed, setting, scaled)
            found[kind] = slopes(*parts[:2], np.column_stack([rows.context, parts[2]]), unit=whose)
    require(bracket != "relative" or not misfit, "bracket", bracket, f"does not fit: {misfit}", "use additive")
    rises = "" if misfit else _rises(found["relative"])
    kind = bracket if bracket != "auto" else "additive" if misfit or rises else "relative"
    fit, reason = found[kind], _reason(kind, bracket, misfit or rises)
    problem = tied_costs(rows.cost, rows.action) or _unseen(fit, kind)
    made = {"reason": reason, "base": base, "slopes": fit, "dial": given, "left_out": left_out, "doubt": doubt}
    made |= {"ranges": propose_ranges(log.names, log.context)}
    made |= {"confounding": confounded_doses(replace(rows, action=rows.action / scaled), progress)}
    if problem or fit is None:
        return BracketCalibration(cost=None, proposals={}, start=None, problem=problem, **made)
    proposals = _ends(fit, kind, caution, whose)
    low, high = proposals["low"].value, proposals["high"].value
    if kind == "relative":
        proposals["floor"] = _floor(rows.cost, threshold)
        growth = relative(low, high, floor=proposals["floor"].value)
    else:
        growth = additive(low, high)
    cost = Cost(threshold=threshold, growth=growth, direction=direction)
    most = given.high if base is None else 1.0
    count = len(rows) if whose is None else len(np.unique(whose))
    start = _start(np.asarray(cost.tolerated(rows.cost, setting)) / scaled, most, count, base)
    proposals |= {"start_action" if base is None else "start_scale": start}
    value = start.value if start.value > 0.0 else None
    return BracketCalibration(cost=cost, proposals=proposals, start=value, problem="", **made)


def _column(rows: Log, base: str) -> Array:
    """The protocol's settings."""
    require(base in rows.names, "base", base, "must be a column of the context", "it has " + ", ".join(rows.names))
    values = rows.context[:, rows.names.index(base)]
    require(np.all(values > 0.0), "base", float(values.min()), "must be > 0 in every row: it is the setting to scale")
    return values


def _unit_doubt(ratio: float, base: str) -> str:
    """Why the median of action ÷ base looks like two units; empty if it does not."""
    off, words = max(ratio, 1.0 / ratio), f"the median of action ÷ {base} is {ratio:.3g}"
    rule = f"{words}: they cannot be in one unit (refused beyond {REFUSED_RATIO:g} or below 1/{REFUSED_RATIO:g})"
    way_out = f"bring the columns 'action' and {base!r} to one unit, the dial's"
    require(off <= REFUSED_RATIO, "base", base, rule, way_out)
    return f"{words[0].upper()}{words[1:]}: {way_out} if they are not." if off > DOUBTFUL_RATIO else ""


def _units(rows: Log, unit: str) -> Array:
    require(unit in rows.extra, "unit", unit, "is not among the log's further columns", "read_log(..., label=unit)")
    values = rows.extra[unit]
    repeated = len(np.unique(values)) < len(values)
    require(
        repeated, "unit", unit, "has one row for each unit", "leave it out: there is nothing to compare within units"
    )
    return values


def _relative_misfit(cost: Array, threshold: float, direction: str) -> str:
    """Why costs have no elasticity; empty if they may."""
    none = int((cost <= 0.0).sum())
    if direction == "below":
        return "a relative bracket is for costs that must not rise"
    if threshold <= 0.0:
        return f"a relative bracket needs a threshold above 0, and {threshold:g} is not"
    return f"{none} of {len(cost)} costs are 0 or negative, which have no elasticity" if none else ""


def _rises(fit: Slopes | None) -> str:
    """Whether elasticities rise with the setting: a baseline that does not vanish, or a cost that is flat at first."""
    if fit is None or len(fit.bands) < 2:
        return ""
    first, last = fit.bands[0], fit.bands[-1]
    if last.estimate - first.estimate <= CLEAR * np.hypot(first.error, last.error):
        return ""
    return (
        f"the elasticity rises from {first.estimate:.2g} at low settings to {last.estimate:.2g} at high ones: the cost "
        "has a baseline that does not vanish with the setting, or is flat at first"
    )


def _reason(kind: str, asked: str, misfit: str) -> str:
    if asked != "auto":
        return f"{kind.capitalize()}, as asked." + (f" But {misfit}." if misfit and kind == "relative" else "")
    if misfit:
        return f"Additive, because relative does not fit: {misfit}."
    return "Relative: all costs are above 0, and the elasticity does not clearly rise with the setting."


def _unseen(fit: Slopes | None, kind: str) -> str:
    if fit is None:
        return "Settings do not vary beyond what the context explains; give rows at different settings, best at random."
    low, high = fit.whole.interval()
    if low > 0.0:
        return ""
    word = "elasticity" if kind == "relative" else "slope"
    return (
        f"The {word} given the context lies between {low:.2g} and {high:.2g} (95 %): the pilot does not show that the "
        "cost rises with the setting. Give more rows at more different settings, or state a bracket from what you know."
    )


def _ends(fit: Slopes, kind: str, caution: float, whose: Array | None) -> dict[str, Proposal]:
    """Both ends: the 95 % interval, or a band's own slope beyond it, widened by the spread and by caution."""
    (lower, upper), bands = fit.whole.interval(), [band.estimate for band in fit.bands]
    word = (
        "elasticity (1 % more setting, so many % more cost)"
        if kind == "relative"
        else "slope (cost per unit of the dial)"
    )
    by_band = f"; from low to high settings {', '.join(f'{each:.3g}' for each in bands)}" if len(bands) > 1 else ""
    how = "given the context" if whose is None else f"within {len(np.unique(whose))} units"
    told = f"The {word} {how} is {fit.whole.estimate:.3g} (95 %: {lower:.3g} to {upper:.3g}){by_band}."
    wide = f"{SPREADS:g} standard deviations of the units' own ({fit.spread:.2g} each)," if fit.spread else ""
    least = max(min([lower, *bands]) - SPREADS * fit.spread, 0.0) / caution
    most = caution * (max([upper, *bands]) + SPREADS * fit.spread)
    least = least if least > 1e-3 * most else 0.0
    nothing = "" if least else " That allows 0, so nothing is assumed about how a cost falls with the setting."
    why = f"The largest of the numbers given for low,{wide and f' plus {wide}'} times {caution:g}."
    if kind == "relative" and most < 1.0:
        most, why = 1.0, f"{why} At least 1: a smaller one may be due to a baseline, and then rises with the setting."
    return {
        "low": Proposal(
            _down(least), f"{told} The smallest of these,{wide and f' less {wide}'} divided by {caution:g}.{nothing}"
        ),
        "high": Proposal(round_up(most), why),
    }


def _floor(cost: Array, threshold: float) -> Proposal:
    seen = float(np.quantile(cost, 0.05))
    value = _down(min(max(seen, threshold / 20.0), threshold / 2.0))
    why = f"One pilot cost in twenty is below {seen:.3g}; kept between a twentieth and half of the threshold."
    return Proposal(value, f"{why} A cost below the floor counts as the floor.")


def _start(scales: Array, most: float, count: int, base: str | None) -> Proposal:
    """The largest scale that every pilot round tolerates: by the count rule with m = 1, n being rounds, or units."""
    least = float(scales.min())
    if least <= 0.0:
        return Proposal(0.0, "None: a pilot round tolerates no setting under this bracket. Declare a start yourself.")
    what = "setting" if base is None else f"share of {base}"
    why = f"The largest {what} that each of {len(scales)} pilot rounds tolerates under this bracket"
    chance = f"if the bracket holds, a round like the pilot's exceeds there with probability at most 1/{count + 1}"
    cap = "the dial's largest setting" if base is None else f"{base} itself"
    capped = f" They tolerate {_down(least):g}: a start is at most {most:g}, {cap}." if least > most else ""
    return Proposal(_down(min(least, most)), f"{why}: {chance}.{capped}")


def _down(value: float) -> float:
    """Rounded down to two significant digits."""
    rounded = float(f"{value:.2g}")
    if rounded <= value or value == 0.0:
        return rounded
    return float(f"{value - 0.5 * 10.0 ** (np.floor(np.log10(value)) - 1):.2g}")
