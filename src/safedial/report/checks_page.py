"""`safedial check --out`: one page about one log."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from safedial.core.margin import margin_assumptions
from safedial.core.promise import PROMISES
from safedial.diagnostics import BracketRounds, ConformalRounds, Finding, Rounds, StudentRounds
from safedial.diagnostics.finding import flag_at, shown
from safedial.io import write_text
from safedial.notebook import html_table
from safedial.plots.checks_picture import checks_figure
from safedial.plots.style import png
from safedial.report.html import document, inline
from safedial.version import __version__

AnyRounds = Rounds | ConformalRounds | BracketRounds | StudentRounds


def write_checks(path: Path, rounds: AnyRounds, findings: Sequence[Finding], *, log: str, level: float) -> Path:
    """The page: the promise, a table, a picture, and three sentences for each check."""
    return write_text(path, document("safedial check", _body(rounds, findings, log, level)))


def verdict(findings: Sequence[Finding]) -> str:
    """One sentence for all checks."""
    flagged = [each.title.lower() for each in findings if each.flagged]
    doubtful = [each.title.lower() for each in findings if each.word == "doubtful"]
    if not flagged and doubtful:
        return f"No check raised a flag, but these are in doubt: {', '.join(doubtful)}."
    if not flagged:
        return (
            "No check raised a flag: this log contains no evidence against the spec. This does not prove that it holds."
        )
    strongest = max(findings, key=lambda each: each.evidence or 0.0).title.lower()
    first = f" Begin with {strongest}, the strongest evidence." if len(flagged) > 1 else ""
    return f"Raised a flag: {', '.join(flagged)}. The promise is in doubt until the cause is found.{first}"


def _body(rounds: AnyRounds, findings: Sequence[Finding], log: str, level: float) -> list[str]:
    lines = [[each.title, shown(each.evidence), each.word] for each in findings]
    picture = png(checks_figure(rounds, findings))
    bets = sum(each.evidence is not None for each in findings)
    slack, promise, drawn = "", "", "Evidence over time, ranks, costs by dose"
    if isinstance(rounds, Rounds):
        promise, slack = (
            _certified_promise(rounds),
            "; a tenth of it covers the confidence set that two of the checks use",
        )
        drawn = "Evidence over time, residuals, tails, residuals by prediction and action, noise by region"
    elif isinstance(rounds, ConformalRounds):
        promise = _conformal_promise(rounds)
    elif isinstance(rounds, StudentRounds):
        promise, drawn = _student_promise(rounds), "Evidence over time, p-values, costs by dose"
    else:
        promise, drawn = _bracket_promise(rounds), "Evidence over time, slopes by setting, settings over time"
        bets += 2 * len(rounds.costs)
        slack = "; slopes are tested at one look"
    return [
        "<h1>Does this log agree with the spec?</h1>",
        f"<p>{html.escape(log)}: {len(rounds)} rounds with a dose; {promise}</p>",
        f"<p><strong>{html.escape(verdict(findings))}</strong></p>",
        html_table(["check", "evidence", "verdict"], lines),
        f"<p><small>Evidence is an e-value: about 1 or below while an assumption holds; a flag is raised at {flag_at(findings):.0f}. Over all "
        f"{bets} checks that can raise one together, and however often you look, false flags have probability at most {level:g} (union "
        f"bound{slack}). One broken assumption can raise several flags: begin with the strongest.</small></p>",
        inline(picture, drawn),
        *(_section(each) for each in findings),
        f"<p><small>safedial {__version__}. Residuals are taken before each round's update.</small></p>",
    ]


def _certified_promise(rounds: Rounds) -> str:
    spec = rounds.spec
    span = "every round" if PROMISES[spec.promise].each_round else "any round, ever,"
    return (
        f"{rounds.target} checked. The spec promises P(cost &gt; {spec.threshold:g}) ≤ {spec.promised_risk:.3g} in {span} if S = "
        f"{spec.coefficient_bound:g}, L = {spec.context_bound:g}, κ = {spec.cost_noise:g} (cost) and the dose curve hold, the mean is "
        f"linear, and noise is sub-Gaussian given the past{html.escape(''.join(f'; {each}' for each in margin_assumptions(spec)))}."
    )


def _conformal_promise(rounds: ConformalRounds) -> str:
    spec = rounds.spec
    whole = "" if rounds.rounds.setup.signed else " and over all rounds, not among those expected to benefit"
    return (
        f"the spec promises P(cost &gt; {spec.threshold:g}) ≤ {spec.violation_risk:.3g} in every round, on average over calibration "
        f"rounds{whole}, if rounds are exchangeable and the dose curve is exact."
    )


def _student_promise(rounds: StudentRounds) -> str:
    spec = rounds.spec
    contexts = "" if rounds.anytime else ", contexts do not follow past costs"
    return (
        f"the spec promises P(cost &gt; {spec.threshold:g}) ≤ {spec.violation_risk:.3g} in every round, if noise is Gaussian and of one size, "
        f"the mean is linear{contexts}, and the dose curve is exact."
    )


def _bracket_promise(rounds: BracketRounds) -> str:
    limits = " or ".join(
        f"{html.escape(name)} {'&gt;' if cost.direction == 'above' else '&lt;'} {cost.threshold:g}"
        for name, cost in rounds.costs.items()
    )
    return (
        f"the spec promises P({limits}) ≤ {rounds.risk:.3g} in every round, if rounds are exchangeable, costs do not "
        "fall when the setting rises and keep to their bracket, and the start is safe."
    )


def _section(each: Finding) -> str:
    kind = "flag" if each.flagged else "quiet"
    words = f"<h3>{html.escape(each.title)}</h3><p><strong>Tested:</strong> {html.escape(each.tested)}</p>"
    words += f"<p><strong>Found:</strong> {html.escape(each.found)} Evidence {shown(each.evidence)}.</p>"
    return f'<div class="{kind}">{words}<p><strong>For the promise:</strong> {html.escape(each.means)}</p></div>'
