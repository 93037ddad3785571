"""The pictures of a log's checks and of its watch, and `safedial check --out`: one page about one log."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from safedial.bounds.margin import margin_assumptions
from safedial.io import html_table, write_text
from safedial.model.guarantee import GUARANTEES
from safedial.tools.findings import Finding, Rounds, flag_at, shown
from safedial.tools.log_watch import Watch
from safedial.tools.marginal_rounds import BracketRounds, WalkedRounds
from safedial.tools.pages import COLOURS, FILL, document, inline, legend_below, new_figure, png, save, title
from safedial.version import __version__

SHOWN_REGIONS = 8
LEAST = 1e-3
"""Smaller evidence is drawn at this value."""


def checks_figure(rounds: Rounds | WalkedRounds | BracketRounds, findings: Sequence[Finding]) -> Any:
    """Six panels of one log; three if the spec states no constants."""
    if isinstance(rounds, BracketRounds):
        return _bracket_figure(rounds, findings)
    if isinstance(rounds, WalkedRounds):
        return _chances_figure(rounds, findings)
    by_name = {each.name: each for each in findings}
    figure, axes = new_figure(columns=3, rows=2, height=2.5)
    _evidence(axes[0], findings)
    _residuals(axes[1], rounds, by_name["influence"])
    _tails(axes[2], rounds)
    _bands(axes[3], by_name["linearity"], rounds, f"predicted {rounds.target} per unit", rounds.fitted)
    _bands(axes[4], by_name["dose_curve"], rounds, "action", rounds.action)
    _regions(axes[5], by_name["noise"], rounds)
    legend_below(figure, *axes[0].get_legend_handles_labels(), ncols=len(findings))
    return figure


def _chances_figure(walked: WalkedRounds, findings: Sequence[Finding]) -> Any:
    figure, axes = new_figure(columns=3, height=2.5)
    bets = [each for each in findings if each.evidence is not None]
    _evidence(axes[0], bets)
    axes[0].legend(fontsize=6, frameon=False)
    axes[1].hist(walked.chance, bins=np.linspace(0.0, 1.0, 21), color=FILL)
    axes[1].axhline(walked.chance.size / 20.0, color="grey", linestyle="--", linewidth=1)
    title(axes[1], walked.ranked_by)
    axes[1].set_xlabel(walked.read_as)
    found = next(each for each in findings if each.name == "dose_curve")
    known = np.isfinite(walked.outcome) & (walked.fitted != 0.0)
    axes[2].plot(walked.intensity[known], (walked.outcome - walked.fitted)[known], ".", color="0.75", markersize=2)
    axes[2].plot(found.details["bands"], found.details["mean_residuals"], "o-", color=COLOURS["on_expectation"])
    axes[2].axhline(0.0, color="grey", linewidth=0.8)
    title(axes[2], "cost per unit beyond its prediction")
    axes[2].set_xlabel("intensity")
    return figure


def _bracket_figure(walked: BracketRounds, findings: Sequence[Finding]) -> Any:
    figure, axes = new_figure(columns=3, height=2.5)
    _evidence(axes[0], [each for each in findings if each.evidence is not None])
    axes[0].legend(fontsize=6, frameon=False)
    for each, colour in zip(
        [each for each in findings if "bands" in each.details and "high" in each.details],
        COLOURS.values(),
        strict=False,
    ):
        for start, end, slope, low, high in each.details["bands"]:
            axes[1].fill_between([start, end], low, high, color=colour, alpha=0.25, linewidth=0)
            axes[1].plot([start, end], [slope, slope], color=colour, linewidth=1.5)
        for edge in (each.details["low"], each.details["high"]):
            axes[1].axhline(edge, color=colour, linestyle="--", linewidth=1)
    title(axes[1], "slope by setting, with 95 % intervals (dashed: stated)")
    axes[1].set_xlabel("setting, or its logarithm for a relative bracket")
    scale, over = walked.setting / walked.protocol, walked.exceeded
    axes[2].plot(walked.number, scale, ".", color=COLOURS["hp_ucb"], markersize=2)
    axes[2].plot(walked.number[over], scale[over], "o", color=COLOURS["on_expectation"], markersize=4, fillstyle="none")
    title(axes[2], "setting as a multiple of the base (circles: exceeded)")
    axes[2].set_xlabel("round")
    return figure


def _evidence(panel: Any, findings: Sequence[Finding]) -> None:
    for each, colour in zip(findings, list(COLOURS.values()), strict=False):
        values = np.clip(np.concatenate([[1.0], each.curve]), LEAST, 1e9)
        panel.plot(np.concatenate([[0.0], each.rounds]), values, color=colour, linewidth=1.2, label=each.title)
    needed = findings[0].needed
    panel.axhline(needed, color="grey", linestyle="--", linewidth=1)
    panel.set(yscale="log", ylim=(LEAST * 0.6, 2e9), xlabel="round")
    panel.set_yticks([1e-3, 1.0, 1e3, 1e6, 1e9], ["≤ 10⁻³", "1", "10³", "10⁶", "≥ 10⁹"])
    title(panel, "evidence against each assumption (dashed: flag)")


def _residuals(panel: Any, rounds: Rounds, found: Finding) -> None:
    scaled = rounds.residual / rounds.noise
    panel.plot(rounds.number, scaled, ".", color=COLOURS["hp_ucb"], markersize=2, alpha=0.6)
    odd = np.isin(rounds.number, found.details["odd_rounds"])
    panel.plot(rounds.number[odd], scaled[odd], "o", color=COLOURS["on_expectation"], markersize=5, fillstyle="none")
    height = np.sqrt(2.0 * np.log(2.0 * len(rounds)))
    for edge in (-height, height):
        panel.axhline(edge, color="grey", linestyle="--", linewidth=1)
    title(panel, "residuals before each update, in units of κ")
    panel.set_xlabel("round")


def _tails(panel: Any, rounds: Rounds) -> None:
    sizes = np.sort(np.abs(rounds.residual) / rounds.noise)
    share = 1.0 - np.arange(len(sizes)) / len(sizes)
    grid = np.linspace(0.0, max(4.0, float(sizes[-1])), 100)
    panel.step(sizes, share, where="post", color=COLOURS["hp_ucb"], linewidth=1.2, label="residuals")
    bound = np.minimum(2.0 * np.exp(-0.5 * grid**2), 1.0)
    panel.plot(grid, bound, color="grey", linestyle="--", linewidth=1, label="at most, by κ")
    panel.set(yscale="log", ylim=(0.3 / len(sizes), 1.5), xlabel="q")
    title(panel, "share of residuals beyond q·κ")
    panel.legend(fontsize=6, frameon=False)


def _bands(panel: Any, found: Finding, rounds: Rounds, words: str, across: Any) -> None:
    panel.plot(across, rounds.residual, ".", color="0.75", markersize=2, zorder=0)
    panel.plot(
        found.details["bands"], found.details["mean_residuals"], "o-", color=COLOURS["on_expectation"], markersize=4
    )
    panel.axhline(0.0, color="grey", linewidth=0.8)
    edge = 3.0 * rounds.noise
    panel.set(ylim=(-edge, edge), xlabel=words)
    title(panel, f"{found.title.lower()}: residuals, and their means in bands")


def _regions(panel: Any, found: Finding, rounds: Rounds) -> None:
    sizes = sorted(found.details["deviations"].items(), key=lambda pair: pair[1])[-SHOWN_REGIONS:]
    panel.barh([name for name, _ in sizes], [size for _, size in sizes], color=FILL, height=0.6)
    panel.axvline(rounds.noise, color="grey", linestyle="--", linewidth=1)
    panel.tick_params(axis="y", labelsize=6)
    title(panel, "noise by region (dashed: κ)")
    panel.set_xlabel("deviation")


# --- The picture of a watched log: evidence over time, and violations beside what is allowed

LARGEST = 1e12


def draw_monitor(watch: Watch, path: Path) -> Path:
    """Two panels of one log, as PNG."""
    figure, (above, below) = new_figure(columns=2, height=2.5)
    start = watch.counted[0] - 1.0
    rounds = np.concatenate([[start], watch.rounds])
    above.step(
        rounds, np.minimum(np.concatenate([[1.0], watch.evidence]), LARGEST), where="post", color=COLOURS["hp_ucb"]
    )
    above.axhline(1.0 / watch.level, color="grey", linestyle="--", linewidth=1)
    above.text(start, 1.3 / watch.level, f"alarm at {1.0 / watch.level:g}", fontsize=7, color="0.3", va="bottom")
    above.set_yscale("log")
    low, high = above.get_ylim()
    above.set_ylim(min(low, 0.3), max(high, 8.0 / watch.level))
    title(above, f"evidence that {watch.against}")
    rounds = np.concatenate([[start], watch.counted])
    broken, allowed = (np.cumsum(np.concatenate([[0.0], each])) for each in (watch.violated, watch.allowed))
    below.step(rounds, broken, where="post", color=COLOURS["on_expectation"])
    below.plot(rounds, allowed, color="grey", linestyle="--", linewidth=1)
    below.text(rounds[-1], allowed[-1], f"{watch.allowance} ", fontsize=7, color="0.3", ha="right", va="bottom")
    title(below, "costs above the threshold, in all")
    for panel in (above, below):
        panel.set_xlabel("round")
        if watch.alarm_round is not None:
            panel.axvline(watch.alarm_round, color=COLOURS["on_expectation"], linestyle=":", linewidth=1)
    if watch.alarm_round is not None:
        above.text(watch.alarm_round, 0.35, f" alarm, round {watch.alarm_round}", fontsize=7, color="#D55E00")
    return save(figure, path)


# --- `safedial check --out`: one page about one log

AnyRounds = Rounds | WalkedRounds | BracketRounds


def write_checks(path: Path, rounds: AnyRounds, findings: Sequence[Finding], *, log: str, level: float) -> Path:
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


def _body(rounds: AnyRounds, findings: Sequence[Finding], log: str, level: float) -> list[str]:
    lines = [[each.title, shown(each.evidence), each.word] for each in findings]
    picture = png(checks_figure(rounds, findings))
    bets = sum(each.evidence is not None for each in findings)
    slack = ""
    if isinstance(rounds, Rounds):
        guarantee, slack = (
            _certified_guarantee(rounds),
            "; a tenth of it covers the confidence set that two of the checks use",
        )
        drawn = "Evidence over time, residuals, tails, residuals by prediction and action, noise by region"
    elif isinstance(rounds, WalkedRounds):
        guarantee, drawn = _marginal_guarantee(rounds), rounds.drawn
    else:
        guarantee, drawn = _bracket_guarantee(rounds), "Evidence over time, slopes by setting, settings over time"
        bets += 2 * len(rounds.costs)
        slack = "; slopes are tested at one look"
    return [
        "<h1>Does this log agree with the spec?</h1>",
        f"<p>{html.escape(log)}: {len(rounds)} rounds with a dose; {guarantee}</p>",
        f"<p><strong>{html.escape(verdict(findings))}</strong></p>",
        html_table(["check", "evidence", "verdict"], lines),
        f"<p><small>Evidence is an e-value: about 1 or below while an assumption holds; a flag is raised at {flag_at(findings):.0f}. Over all "
        f"{bets} checks that can raise one together, and however often you look, false flags have probability at most {level:g} (union "
        f"bound{slack}). One broken assumption can raise several flags: begin with the strongest.</small></p>",
        inline(picture, drawn),
        *(_section(each) for each in findings),
        f"<p><small>safedial {__version__}. Residuals are taken before each round's update.</small></p>",
    ]


def _certified_guarantee(rounds: Rounds) -> str:
    spec = rounds.spec
    return (
        f"{rounds.target} checked. The spec guarantees P(cost &gt; {spec.threshold:g}) ≤ {spec.guaranteed_risk:.3g} in {GUARANTEES[spec.guarantee].span} if S = "
        f"{spec.coefficient_bound:g}, L = {spec.context_bound:g}, κ = {spec.cost_noise:g} (cost) and the dose curve hold, the mean is "
        f"linear, and noise is sub-Gaussian given the past{html.escape(''.join(f'; {each}' for each in margin_assumptions(spec)))}."
    )


def _marginal_guarantee(rounds: WalkedRounds) -> str:
    spec = rounds.spec
    limit = f"P(cost &gt; {spec.threshold:g}) ≤ {spec.violation_risk:.3g}"
    return f"the spec guarantees {limit} in every round, {rounds.condition}."


def _bracket_guarantee(rounds: BracketRounds) -> str:
    limits = " or ".join(
        f"{html.escape(name)} {'&gt;' if cost.direction == 'above' else '&lt;'} {cost.threshold:g}"
        for name, cost in rounds.costs.items()
    )
    return (
        f"the spec guarantees P({limits}) ≤ {rounds.risk:.3g} in every round, if rounds are exchangeable, costs do not "
        "fall when the setting rises and keep to their bracket, and the start is safe."
    )


def _section(each: Finding) -> str:
    kind = "flag" if each.flagged else "quiet"
    words = f"<h3>{html.escape(each.title)}</h3><p><strong>Tested:</strong> {html.escape(each.tested)}</p>"
    words += f"<p><strong>Found:</strong> {html.escape(each.found)} Evidence {shown(each.evidence)}.</p>"
    return f'<div class="{kind}">{words}<p><strong>For the guarantee:</strong> {html.escape(each.means)}</p></div>'
