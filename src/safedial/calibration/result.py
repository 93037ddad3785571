"""The result of a calibration, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from safedial.calibration.adjusted import Allowed
from safedial.calibration.choose import FOLDS, Chosen
from safedial.calibration.constants import Proposal
from safedial.calibration.curve_families import Array
from safedial.calibration.fit import Data, Noise
from safedial.core.dose import Dose, DoseCurve, curve_from_dict
from safedial.core.spec import VIOLATION_SHARE, SafetySpec
from safedial.decision.units import Dial, Features
from safedial.diagnostics.finding import Finding
from safedial.errors import InvalidInput, require
from safedial.notebook import card
from safedial.specfile import SpecFile

LARGEST_ERROR = 1.0
"""A fitted curve whose error may equal its own height says nothing about the dose's effect."""

LARGEST_TIE = 1 / 3
"""If a larger share of costs is equal, at several doses, costs say nothing about the dose."""

UNSEEN = (
    "Assumed: no reason outside the log both guided the doses and changed the outcomes (confounding). No data can "
    "show this."
)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Curves by outcome, and the proposals by name of the spec's field.

    Attributes:
        confounding: whether the context guided the doses without recorded advice; evidence of 20 raises the flag,
            which is false with probability at most 5 %.
        allowed: by outcome, if that flag is raised: the powers of the curve that the data allow, adjusted for the
            context.
        stated: whether the family was stated rather than chosen by the data.
        seen: the smallest and the largest positive dose of the log, as shares of the dial.
        dial: the log's units, for text and pictures.
        left_out: how many rows of the log were not used, and why; empty if all were.
    """

    curves: dict[str, Chosen]
    data: dict[str, Data] = field(repr=False)
    proposals: dict[str, Proposal]
    noise: Noise
    dim: int
    seen: tuple[float, float]
    confounding: Finding
    allowed: dict[str, Allowed]
    stated: bool
    dial: Dial
    left_out: str = ""

    @property
    def dose(self) -> Dose:
        cost = _rounded(self.curves["cost"].fit.curve)
        return Dose(_rounded(self.curves["reward"].fit.curve) if "reward" in self.curves else cost, cost)

    @property
    def problem(self) -> str:
        """Why this calibration cannot support a promise, in words; empty if it can."""
        if tied := tied_costs(self.data["cost"].outcome, self.data["cost"].action):
            return tied
        error = self.curves["cost"].error
        if error >= LARGEST_ERROR and not self.stated:
            state = "or state a known curve with --curve (in Python, curve=)"
            cause = (
                f"give some doses at random, {state}"
                if self.confounding.flagged
                else f"give more rows at different doses, {state}"
            )
            return f"At the doses used, the cost's curve may be off by {error:.0%}: its shape was not learned; {cause}."
        return ""

    def spec_file(self, *, threshold: float, total_risk: float, features: Features | None = None) -> SpecFile:
        """The proposals as a spec file, with the threshold and the risk that you state."""
        if self.problem:
            raise InvalidInput(f"calibration: learned too little for a spec file. {self.problem}")
        require(0.0 < total_risk < 1.0, "total_risk", total_risk, "must lie strictly between 0 and 1", "0.05 is 5 %")
        constants: dict[str, Any] = {name: proposal.value for name, proposal in self.proposals.items()}
        violation = round(VIOLATION_SHARE * total_risk, 12)
        risks = {"violation_risk": violation, "estimation_risk": round(total_risk - violation, 12)}
        spec = SafetySpec(threshold=threshold, **risks, **constants)
        policy = {"name": "hp_probe"}
        return SpecFile(spec=spec, dose=self.dose, dim=self.dim, dial=self.dial, features=features, policy=policy)

    def notes(self) -> dict[str, str]:
        """The reasons, as comments for the spec file."""
        top = ["Proposed by safedial calibrate, for a person to judge: an estimate from data, not a proof."]
        top += [f"{name}: {self.words(name)}" for name in self.curves]
        top += [self.left_out] if self.left_out else []
        top += [f"FLAG: {self.confounding.found} {self.confounding.means}"] if self.confounding.flagged else [UNSEEN]
        return {"": "\n".join(top)} | {name: each.reason for name, each in self.proposals.items()}

    def _repr_html_(self) -> str:
        rows = ({"constant": name, **each._asdict()} for name, each in self.proposals.items())
        return card("Proposed constants, for you to judge", rows, self.notes()[""].splitlines())

    def words(self, name: str) -> str:
        """The fitted curve, in a sentence."""
        chosen, (low, high) = self.curves[name], (self.dial.amount(end) for end in self.seen)
        edge = (
            f" Doses outside {low} to {high} were never given: there the curve is a guess." if self.seen[1] < 1 else ""
        )
        how = f"the simplest within one standard error of the best in {FOLDS}-fold cross-validation; "
        how = "as stated; " if self.stated else how
        how = f"{self._adjusted(name)}; " if name in self.allowed else how
        return f"curve {self._shape(chosen)}, {how}{_uncertainty(chosen)}.{edge}"

    def _shape(self, chosen: Chosen) -> str:
        shown = _rounded(chosen.fit.curve).words
        return chosen.fit.family + shown.removeprefix(chosen.fit.curve.name)

    def _adjusted(self, name: str) -> str:
        low, high = self.allowed[name].range
        base = "the dose" if not self.stated else "this curve"
        words = (
            f"adjusted for the context, which guided the doses: powers of {base} from {low:.2g} to {high:.2g} agree "
            "with the data (95 %)"
        )
        return words if not self.stated or low <= 1.0 <= high else f"{words}, and this curve itself does not"


def rows_left_out(rows: int, reasons: dict[str, int]) -> str:
    """How many of the log's rows a calibration does not use, by reason; empty if it uses all.

    >>> rows_left_out(176, {"without a cost": 8, "with a dose of 0": 1})
    'Left out: 9 of 176 rows (8 without a cost, 1 with a dose of 0).'
    """
    told = [f"{count} {why}" for why, count in reasons.items() if count]
    return f"Left out: {sum(reasons.values())} of {rows} rows ({', '.join(told)})." if told else ""


def tied_costs(outcome: Array, action: Array) -> str:
    """Why costs hardly say how they change with the dose: too many have one value; empty if they do say it."""
    values, counts = np.unique(outcome, return_counts=True)
    common = int(np.argmax(counts))
    several = np.unique(action[outcome == values[common]]).size > 1
    if not several or counts[common] <= LARGEST_TIE * len(outcome):
        return ""
    return (
        f"{counts[common]} of {len(outcome)} costs are {values[common]:.4g}, at several doses: they hardly say how the "
        "cost changes with the dose. Report the measured quantity, not its excess over a limit and not whether it "
        "exceeded one."
    )


def _uncertainty(chosen: Chosen) -> str:
    if not chosen.error:
        return "it was not compared with any other, so its error is unknown"
    words = f"at the doses used it is uncertain by {chosen.error:.1%}"
    return f"{words} (95 %{', and what ' + ', '.join(chosen.rivals) + ' would say' if chosen.rivals else ''})"


def _rounded(curve: DoseCurve) -> DoseCurve:
    """The curve with four-digit numbers, more than a fit can determine; unchanged if rounding would break it."""
    plain = {name: np.vectorize(lambda part: float(f"{part:.4g}"))(value) for name, value in curve.parameters.items()}
    try:
        return curve_from_dict({"curve": curve.name, **{name: value.tolist() for name, value in plain.items()}})
    except InvalidInput:
        return curve
