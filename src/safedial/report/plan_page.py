"""`safedial plan --out`: data, a picture and one page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safedial.core.promise import PROMISES
from safedial.decision.rules import write_parts
from safedial.decision.units import significant
from safedial.io import output_folder, provenance, write_json, write_rows, write_text
from safedial.notebook import html_table
from safedial.planning import Plan
from safedial.planning.forecast import SMALL
from safedial.plots.plan_picture import draw_plan
from safedial.report.html import document, image
from safedial.version import __version__

HEADS = {
    "scenario": "scenario",
    "violations": "violations",
    "violations_high": "19 of 20: ≤",
    "violation_rate": "rate",
    "any_violation": "any",
    "reward_share": "reward",
    "attainable_share": "attainable",
    "half_reward_round": "half from",
    "last_dose": "last dose",
    "small_doses": "small doses",
    "alarms": "alarms",
}


BRACKET_HEADS = {
    **{name: HEADS[name] for name in ("scenario", "violations", "violations_high", "violation_rate")},
    "worst_rate": "worst round",
    "worst_round": "which",
    "first_above_start": "climbs from",
    "last_dose": "last scale",
    "reward_share": "share",
}


def cell(name: str, value: Any) -> str:
    """A quantity formatted for reading.

    >>> cell("violation_rate", 0.0123), cell("half_reward_round", None), cell("violations", 1.234)
    ('1.2%', 'never', '1.23')
    """
    if name in ("half_reward_round", "first_above_start"):
        return "never" if value is None else f"{value}"
    if value is None:
        return "–"
    if name in ("violation_rate", "worst_rate"):
        return f"{100.0 * value:.2g}%"
    if name in ("any_violation", "reward_share", "attainable_share", "alarms", "small_doses"):
        return f"{value:.0%}"
    return value if isinstance(value, str) else significant(value, 3)


def lines(plan: Plan, names: Sequence[str] = tuple(HEADS)) -> list[list[str]]:
    """The operating characteristics as text, one list per scenario, with a star if the promise is not proved there.
    Doses are in the dial's units.
    """
    dial = plan.dial
    marked = [
        row
        | {
            "scenario": row["scenario"] + ("" if row["promise_holds"] else " *"),
            "last_dose": dial.low + row["last_dose"] * (dial.high - dial.low),
        }
        for row in plan.table
    ]
    return [[cell(name, row[name]) for name in names] for row in marked]


def write_plan(folder: Path, plan: Plan, *, seconds: float) -> list[Path]:
    """`plan.csv`, `plan_curves.csv`, `plan.provenance.json`, `plan.png` and `plan.html` in `folder`."""
    place = output_folder(folder)
    settings = {
        **write_parts({name: getattr(plan, name) for name in ("policy", "spec", "dial", "dose")}),
        "assumed": dict(plan.assumed),
        "baseline_cost": plan.baseline_cost,
        "dim": plan.dim,
        "rounds": plan.rounds,
        "seeds": list(plan.which),
        "engine": plan.engine,
        "scenarios": {each.scenario.name: each.scenario.words for each in plan.forecasts},
    }
    paths = [
        write_rows(place / "plan.csv", plan.table),
        write_rows(place / "plan_curves.csv", plan.curves),
        write_json(place / "plan.provenance.json", provenance(settings, seconds)),
        draw_plan(place, dial=plan.dial),
    ]
    return [*paths, write_text(place / "plan.html", document("What to expect of this study", _body(plan, place)))]


def _body(plan: Plan, place: Path) -> list[str]:
    spec = plan.spec
    truths = "".join(
        f"<li><strong>{html.escape(each.scenario.name)}</strong>: {html.escape(each.scenario.words)}</li>"
        for each in plan.forecasts
    )
    words = "".join(f"<p>{html.escape(line)}</p>" for line in plan.words())
    if plan.bracketed:
        return _bracket_body(plan, place, words, truths)
    return [
        "<h1>What to expect of this study</h1>",
        f"<p>{html.escape(plan.policy.label)}, {plan.rounds} rounds, {plan.dim} features, threshold {spec.threshold:g}, risk {plan.table[0]['promised_risk']:.3g} {'a round' if PROMISES[spec.promise].each_round else 'in all rounds together'}; "
        f"{_constants(plan)}, dose curve {html.escape(plan.dose.cost.words)}{f', baseline cost {plan.baseline_cost:g}' if plan.baseline_cost else ''}. "
        f"Every scenario was simulated {plan.seeds} times with different true coefficients.</p>",
        f'<div class="claim">{words}</div>',
        image(place / "plan.png", "Dose, reward and violations over time, and the violation rate of every scenario"),
        "<h2>Operating characteristics</h2>",
        html_table(list(HEADS.values()), lines(plan)),
        "<p><small>* the promise is not proved there. Violations: rounds of a study with a cost above the threshold, on average, and at most in 19 of 20 studies; any: studies with one. Reward is the share of what an all-knowing policy earns, without noise; attainable: the share of what a policy earns which knows the cost and must learn only the sign of the reward; "
        f"half reward: the first round from which a twentieth of the study earns half of that. Doses are {_unit(plan)}; small ones are below {plan.dial.amount(SMALL)}. Monitor: alarm at evidence 100.</small></p>",
        f"<h2>The scenarios</h2><ul>{truths}</ul>",
        f"<p><small>A forecast of simulated linear worlds, not a promise about yours. safedial {__version__}.</small></p>",
    ]


def bracket_words(plan: Plan) -> str:
    """The bracket, or that of each cost."""
    costs = plan.spec.costs
    brackets = {"": plan.policy.options["growth"]}
    if costs is not None:
        brackets = {f"{name}: ": cost.growth for name, cost in costs.items()}
    return "; ".join(
        name + ", ".join(f"{part} = {value}" for part, value in each.to_dict().items())
        for name, each in brackets.items()
    )


def _bracket_body(plan: Plan, place: Path, words: str, truths: str) -> list[str]:
    return [
        "<h1>What to expect of this study</h1>",
        f"<p>{html.escape(plan.policy.label)}, {plan.rounds} rounds, risk {plan.table[0]['promised_risk']:.3g} a round; bracket: {html.escape(bracket_words(plan))}; start {plan.policy.options['start_scale']:g} times the base, climb limit {plan.policy.options['climb']}. Every scenario was simulated {plan.seeds} times.</p>",
        f'<div class="claim">{words}</div>',
        image(place / "plan.png", "Scale and excesses over time, and the violation rate of every scenario"),
        "<h2>Operating characteristics</h2>",
        html_table(list(BRACKET_HEADS.values()), lines(plan, tuple(BRACKET_HEADS))),
        "<p><small>* the promise is not proved there. Worst round: the largest chance of an excess in one round, over studies, and which round (for a learned base the mean of ten rounds from there on); climbs from: the first round in which most studies give more than the start; share: of an all-knowing policy's scale.</small></p>",
        f"<h2>The scenarios</h2><ul>{truths}</ul>",
        f"<p><small>A forecast of simulated dose-response worlds, not a promise about yours. safedial {__version__}.</small></p>",
    ]


def _constants(plan: Plan) -> str:
    spec = plan.spec
    names = {"cost_noise": "κ (cost)", "reward_noise": "κ (reward)", "coefficient_bound": "S", "context_bound": "L"}
    told = {name: f"{words} = {getattr(spec, name):g}" for name, words in names.items()}
    parts = [[words for name, words in told.items() if (name in plan.assumed) == chosen] for chosen in (False, True)]
    return "; ".join(
        f"{head}: {', '.join(part)}" for head, part in zip(("stated", "assumed"), parts, strict=True) if part
    )


def _unit(plan: Plan) -> str:
    return (
        f"in {plan.dial.unit}"
        if plan.dial.unit
        else "shares of the dial"
        if plan.dial.is_plain
        else "settings of the dial"
    )
