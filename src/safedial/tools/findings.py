"""The result of a check: what it tested and found, what that means for the guarantee, and how strong the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.io import card
from safedial.tools.pages import COLOURS, title

LARGEST_LOG = 700.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check's result.

    Attributes:
        name, title: as in `CHECKS`.
        evidence: the largest value of the e-process: about 1 while the assumption holds; None if the check is not a
            bet.
        needed: the evidence at which the check raises its flag.
        word: "FLAG" or "quiet"; if the check is not a bet also "shown" (it raises no flag) or "not applicable". For a
            bracket guarantee "contradicted", which is a flag, "doubtful" or "ok".
        tested, found, means: three sentences for the reader.
        rounds, curve: the e-process over time.
        details: numbers behind `found`, plain values.
    """

    name: str
    title: str
    evidence: float | None = None
    needed: float | None = None
    word: str
    tested: str
    found: str
    means: str
    rounds: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    curve: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    details: dict[str, Any] = field(repr=False)

    @property
    def flagged(self) -> bool:
        return self.word in ("FLAG", "contradicted")

    def _repr_html_(self) -> str:
        return card(f"{self.title}: {self.word}", notes=[self.tested, self.found, self.means])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        words = {name: getattr(self, name) for name in ("name", "title", "evidence", "needed", "flagged", "word")}
        return {**words, "tested": self.tested, "found": self.found, "means": self.means, **self.details}


class Process(NamedTuple):
    """An e-process over time, in logarithms, and the evidence at which it raises a flag."""

    rounds: Any
    log_evidence: Any
    needed: float


def finding(name: str, process: Process, *, tested: str, found: str, fine: str, broken: str, **more: Any) -> Finding:
    """A finding from an e-process; `fine` and `broken` say what it means for the guarantee, `more` is for `stated`."""
    curve = np.exp(np.minimum(np.asarray(process.log_evidence, dtype=float), LARGEST_LOG))
    largest = float(curve.max()) if curve.size else 1.0
    word, means = ("FLAG", broken) if largest >= process.needed else ("quiet", fine)
    result = stated(name, word, tested=tested, found=found, means=means, **more)
    rounds = np.asarray(process.rounds, dtype=float)
    return replace(result, evidence=largest, needed=process.needed, rounds=rounds, curve=curve)


def stated(name: str, word: str, *, title: str = "", tested: str, found: str, means: str, **details: Any) -> Finding:
    """A finding of a check that is not a bet: `word` states its result. By default its title is its name."""
    title = title or name.replace("_", " ").capitalize()
    return Finding(name=name, title=title, word=word, tested=tested, found=found, means=means, details=details)


def not_applicable(reasons: Mapping[str, str]) -> list[Finding]:
    """Checks that do not apply, with the reason, by name."""
    told = {"tested": "", "found": "Not applicable."}
    return [stated(name, "not applicable", **told, means=why) for name, why in reasons.items()]


def log_of(path: Any) -> Any:
    """The logarithm of evidence, which may be 0."""
    return np.log(np.maximum(path, 1e-300))


def flag_at(findings: Sequence[Finding]) -> float:
    """The evidence at which the bets among the findings raise a flag."""
    return next(each.needed for each in findings if each.needed is not None)


def shown(evidence: float | None) -> str:
    """Evidence formatted for reading.

    >>> shown(0.3), shown(1234.5), shown(1.0), shown(3e54), shown(None)
    ('0.3', '1,234', '1', '10^54', '')
    """
    if evidence is None:
        return ""
    if evidence >= 1e6:
        return f"10^{math.floor(math.log10(evidence))}"
    return f"{evidence:,.0f}" if evidence >= 100 else f"{evidence:.2g}"


LEAST, MOST = 1e-3, 1e9
"""Smaller and larger evidence is drawn at these values."""


def draw_evidence(panel: Any, findings: Sequence[Finding]) -> None:
    """The evidence of each over time."""
    for each, colour in zip(findings, list(COLOURS.values()), strict=False):
        values = np.clip(np.concatenate([[1.0], each.curve]), LEAST, MOST)
        panel.plot(np.concatenate([[0.0], each.rounds]), values, color=colour, linewidth=1.2, label=each.title)
    panel.axhline(findings[0].needed, color="grey", linestyle="--", linewidth=1)
    panel.set(yscale="log", ylim=(0.6 * LEAST, 2.0 * MOST), xlabel="round")
    panel.set_yticks([LEAST, 1.0, 1e3, 1e6, MOST], ["≤ 10⁻³", "1", "10³", "10⁶", "≥ 10⁹"])
    title(panel, "evidence against each assumption (dashed: flag)")
