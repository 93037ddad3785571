"""The picture of a log's watch, and `safedial check --out`: one page about one log."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from safedial.io import html_table, write_text
from safedial.tools.checks import test_of
from safedial.tools.findings import Finding, flag_at, shown
from safedial.tools.linear_checks import Residuals
from safedial.tools.log_watch import Watch
from safedial.tools.pages import BLUE, ORANGE, document, inline, new_figure, png, save, title
from safedial.tools.walk import Walk
from safedial.version import __version__

LARGEST = 1e12


def draw_monitor(watch: Watch, path: Path) -> Path:
    """Two panels of one log, as PNG."""
    figure, (above, below) = new_figure(columns=2, height=2.5)
    start = watch.counted[0] - 1.0
    rounds = np.concatenate([[start], watch.rounds])
    above.step(rounds, np.minimum(np.concatenate([[1.0], watch.evidence]), LARGEST), where="post", color=BLUE)
    above.axhline(1.0 / watch.level, color="grey", linestyle="--", linewidth=1)
    above.text(start, 1.3 / watch.level, f"alarm at {1.0 / watch.level:g}", fontsize=7, color="0.3", va="bottom")
    above.set_yscale("log")
    low, high = above.get_ylim()
    above.set_ylim(min(low, 0.3), max(high, 8.0 / watch.level))
    title(above, f"evidence that {watch.against}")
    rounds = np.concatenate([[start], watch.counted])
    broken, allowed = (np.cumsum(np.concatenate([[0.0], each])) for each in (watch.violated, watch.allowed))
    below.step(rounds, broken, where="post", color=ORANGE)
    below.plot(rounds, allowed, color="grey", linestyle="--", linewidth=1)
    below.text(rounds[-1], allowed[-1], f"{watch.allowance} ", fontsize=7, color="0.3", ha="right", va="bottom")
    title(below, "costs above the threshold, in all")
    for panel in (above, below):
        panel.set_xlabel("round")
        if watch.alarm_round is not None:
            panel.axvline(watch.alarm_round, color=ORANGE, linestyle=":", linewidth=1)
    if watch.alarm_round is not None:
        above.text(watch.alarm_round, 0.35, f" alarm, round {watch.alarm_round}", fontsize=7, color="#D55E00")
    return save(figure, path)


# --- `safedial check --out`: one page about one log


def write_checks(path: Path, rounds: Walk | Residuals, findings: Sequence[Finding], *, log: str, level: float) -> Path:
    """The page: the guarantee, a table, a picture, and three sentences for each check."""
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
    return f"Raised a flag: {', '.join(flagged)}. The guarantee is in doubt until the cause is found.{first}"


def _body(rounds: Walk | Residuals, findings: Sequence[Finding], log: str, level: float) -> list[str]:
    test, lines = test_of(rounds.spec), [[each.title, shown(each.evidence), each.word] for each in findings]
    bets = sum(each.evidence is not None for each in findings) + test.further(rounds)
    return [
        "<h1>Does this log agree with the spec?</h1>",
        f"<p>{html.escape(log)}: {len(rounds)} rounds with a dose; {test.guarantee(rounds)}</p>",
        f"<p><strong>{html.escape(verdict(findings))}</strong></p>",
        html_table(["check", "evidence", "verdict"], lines),
        f"<p><small>Evidence is an e-value: about 1 or below while an assumption holds; a flag is raised at {flag_at(findings):.0f}. Over all "
        f"{bets} checks that can raise one together, and however often you look, false flags have probability at most {level:g} (union "
        f"bound{test.slack}). One broken assumption can raise several flags: begin with the strongest.</small></p>",
        inline(png(test.figure(rounds, findings)), test.drawn),
        *(_section(each) for each in findings),
        f"<p><small>safedial {__version__}. Residuals are taken before each round's update.</small></p>",
    ]


def _section(each: Finding) -> str:
    kind = "flag" if each.flagged else "quiet"
    words = f"<h3>{html.escape(each.title)}</h3><p><strong>Tested:</strong> {html.escape(each.tested)}</p>"
    words += f"<p><strong>Found:</strong> {html.escape(each.found)} Evidence {shown(each.evidence)}.</p>"
    return f'<div class="{kind}">{words}<p><strong>For the guarantee:</strong> {html.escape(each.means)}</p></div>'
