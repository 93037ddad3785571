"""The certificate of an HP-Shield decision: which rounds would have exceeded, what the bracket says, what voids it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from safedial.bounds.count_rule import RECENT, excess_bound
from safedial.bounds.tolerated import Cost
from safedial.model.dial import rounded_down, significant
from safedial.model.guarantee import GUARANTEES
from safedial.rounds.shield_options import costs_of, growth_at

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules

CHOSEN = {"request": "request", "target": "largest_reward", "sign": "start_only"}
"""What set the setting, by the chooser that gave less than the cap."""


def chosen(decision: Decision) -> str:
    """The chooser's reason, where it gave less than the cap."""
    seen = decision.prediction
    return CHOSEN[decision.rules.policy.options["chooser"]] if seen.setting < seen.safe else ""


def base_words(decision: Decision) -> str:
    """What is scaled."""
    seen, rules = decision.prediction, decision.rules
    if seen.fitted is not None:
        return "the learned setting"
    return "the proposed setting" if rules.policy.options["base"] == "proposal" else "the protocol's setting"


def scale_words(decision: Decision) -> str:
    """The scale that was counted, in words."""
    scale = decision.prediction.counted.scale
    if decision.prediction.most == -math.inf:
        return "the start"
    return (
        f"{rounded_down(scale)} times {base_words(decision)}"
        if scale < math.inf
        else (f"any multiple of {base_words(decision)}")
    )


def scales(decision: Decision) -> dict[str, Any]:
    """The scales and the base."""
    seen = decision.prediction
    limits = {"played": seen.setting / seen.base, "largest": seen.safe / seen.base}
    limits |= {"count_rule": seen.allowed, "climb_limit": seen.most}
    base = {"setting": seen.base, "protocol": seen.protocol}
    finite, base = (
        {name: value if math.isfinite(value) else None for name, value in each.items()} for each in (limits, base)
    )
    return {"scale": finite, "base": {**base, "fitted_at_round": seen.fitted}}


def origin(decision: Decision) -> str:
    """Where the base is from."""
    seen, options = decision.prediction, decision.rules.policy.options
    if seen.fitted is not None:
        return f" (learned from the first {seen.fitted} rounds, calibrated on those since)"
    base = options["base"]
    named = isinstance(base, str) and base != "proposal"
    return f" (feature {base})" if named else ""


# --- The certificate of an HP-Shield decision

SHOWN = 20
"""How many rounds are named in words; the certificate holds all."""

NEVER_CLIMBS = (
    "The start lies below the dial's lowest level, so nothing is given; and as long as nothing was given the climb "
    "limit allows no more. A larger start_scale, a start_action or climb=None, in a new agent or study, would help."
)


def guarded(decision: Decision) -> str:
    """The climb limit, where it and not the count rule set the scale."""
    seen = decision.prediction
    return "climb_limit" if seen.climbing and decision.choice.safe.intensity < 1.0 else ""


def start_limit(decision: Decision) -> str:
    """The start, where the count rule allows nothing beyond it."""
    return "shield_start" if decision.prediction.allowed == -math.inf else ""


def limit_words(cost: Cost) -> str:
    """A threshold with its unit."""
    return f"{cost.threshold:g} {cost.unit}".rstrip()


def exceeds_words(rules: Rules) -> str:
    """What costs must not do, in words: "exceeded 20", or "exceeded 20 mg/l (trough) or 600 (auc)"."""
    words, before = [], ""
    for name, cost in costs_of(rules).items():
        word = "exceeded" if cost.direction == "above" else "fallen below"
        which = f" ({name})" if rules.spec.costs else ""
        words.append(f"{word if word != before else ''} {limit_words(cost)}{which}".lstrip())
        before = word
    return " or ".join(words)


def event(rules: Rules) -> str:
    """The event that the risk is of."""
    signs = {"above": ">", "below": "<"}
    each = []
    for name, cost in costs_of(rules).items():
        which = "true " if cost.on == "true" and cost.growth.error else ""
        each.append(f"{which}{name} {signs[cost.direction]} {limit_words(cost)}")
    return f"P({' or '.join(each)})"


def brackets_words(rules: Rules, context: Any) -> str:
    """The bracket, or each cost's, as a condition."""
    return "; and ".join(bracket_words(rules, name, context) for name in costs_of(rules))


def bracket_words(rules: Rules, name: str, context: Any = None) -> str:
    """A bracket as a condition, with numbers that a reader can check: "raising the setting by a tenth ...". With a
    context, slopes that are features have their values beside their names. The steps are such that the dial has room
    for them: of a step that nobody can make, anything is true.
    """
    cost = costs_of(rules)[name]
    growth, above = cost.growth, cost.direction == "above"
    the, a = ("the cost", "a cost") if rules.spec.costs is None else (f"the {name}", name)
    up, down = ("raises", "lowers") if above else ("lowers", "raises")
    beyond = f"{a} above {cost.limit:g}" if above else f"{a} below {-cost.limit:g}"  # of the true cost, less the error
    beyond = f"{beyond} {cost.unit}".rstrip()
    if growth.name == "spread":
        sigma = growth.parameters["sigma"]
        return f"given the context, the logarithms of tolerated settings are normal with deviation {sigma:g} or more"
    plain, dial = rules.dose.cost.name == "identity", rules.dial
    what = "the setting" if plain else "the dose curve's value"
    values = {} if context is None else growth_at(rules, growth, context).parameters
    ends = {end: (growth.parameters[end], values.get(end)) for end in ("low", "high")}
    if growth.name == "additive":
        unit = "unit of the dose curve" if not plain else dial.unit or "unit"
        room = dial.high - dial.low if plain else 1.0
        part = 1.0 if room >= 1.0 else 10.0 ** math.floor(math.log10(room))
        step = f"one {unit}" if part == 1.0 else f"{part:g} {unit}"
        low, high = (_slope(*ends[end], part) for end in ("low", "high"))
        rise = f"{step} more never {up} {the} by more than {high}"
        fall = f"{step} less {down} {beyond} by {low}"
    elif growth.features or (plain and dial.low * 1.1 > dial.high):
        low, high = (_slope(*ends[end], unit=" %") for end in ("low", "high"))
        rise = f"raising {what} by 1 % never raises {the} by more than {high}"
        fall = f"lowering it by 1 % lowers {beyond} by {low}"
    else:
        most, least = 1.1 ** growth.parameters["high"] - 1.0, 1.0 - 0.9 ** growth.parameters["low"]
        rise = f"raising {what} by a tenth never raises {the} by more than {_percent(most)} %"
        fall = f"lowering it by a tenth lowers {beyond} by {_percent(least, up=True)} %"
    return rise if growth.parameters["low"] == 0.0 else f"{rise}, and {fall} or more"


def _slope(slope: Any, value: float | None, part: float = 1.0, unit: str = "") -> str:
    """A slope over `part` of a unit: a number, or a feature, with its value if it is known."""
    if not isinstance(slope, str):
        return f"{slope * part:g}{unit}"
    times = "" if part == 1.0 else f"{part:g} times "
    return f"{times}{slope}{unit}" + ("" if value is None else f" (here {value * part:g}{unit})")


def _percent(share: float, *, up: bool = False) -> str:
    """To one decimal, on the side that asks for more: the words must not need less than the guarantee does."""
    tenths = math.ceil(1000.0 * share - 1e-6) if up else math.floor(1000.0 * share + 1e-6)
    return f"{tenths / 10.0:g}"


def sentence(decision: Decision) -> str:
    """The guarantee for people who give the dose."""
    seen, rules = decision.prediction, decision.rules
    unknown = seen.counted.unknown
    known = f"({unknown} of them with unknown outcomes, which count)" if unknown else "with known outcomes"
    step = max(cost.growth.parameters.get("step", 1.0) for cost in costs_of(rules).values())
    beyond = f" (given is {step:g} times that)" if step > 1.0 else ""
    if seen.setting < seen.safe:
        beyond += " (given is less, which is safe too)"
    elif seen.setting <= seen.start:
        beyond += " (given is the start, which you declared safe)"
    lag = rules.policy.options["lag"]
    of = f" of group {seen.group}" if seen.group else ""
    rounds = f"{seen.size} rounds{of} before the latest {lag}," if lag else f"the latest {seen.size} rounds{of}"
    return (
        f"of {rounds} {known}, at most {seen.counted.number} would have "
        f"{exceeds_words(rules)} at {scale_words(decision)}{beyond}, if {brackets_words(rules, decision.context)}"
    )


def statement(decision: Decision) -> str:
    """The guarantee in one sentence."""
    rules = decision.rules
    if not GUARANTEES[decision.guarantee].proved:
        return f"none is proved yet: {event(rules)} rests on your judgement alone (you declared the start safe)"
    group = f", within its group {decision.prediction.group}" if decision.prediction.group else ""
    return f"{event(rules)} <= {rules.spec.violation_risk:g} in this round{group}: {sentence(decision)}"


def assumptions(decision: Decision) -> list[str]:
    """All that this decision's guarantee rests on, one sentence each: what would make it false."""
    rules = decision.rules
    options = rules.policy.options
    start = rules.dial.text(decision.prediction.start)
    if rules.start_action is None:
        share = options["start_scale"]
        raised = decision.prediction.start > share * decision.prediction.protocol
        least = " or, where that is less, the dial's lowest" if raised else ""
        start = f"{share:g} times the protocol's setting{least} (here {start})"
    known = "p0 = 0" if _can_be_safe(rules) else "p0 > 0 where tolerances are log-normal, and adds to the risk"
    declared = f"every setting up to the start, {start}, is safe for every context, as you declared ({known})"
    if not GUARANTEES[decision.guarantee].proved:
        return [declared]
    before = f"before the latest {options['lag']} " if options["lag"] else ""
    lines = [
        "rounds are exchangeable: contexts and costs come as if drawn independently from one source, without drift, "
        "and no setting influences another round (the evidence tests this, but only large changes show)",
        *_bracket_lines(rules),
        declared,
        f"if the bracket is broken with probability q and the start exceeds with probability p0, the risk is "
        f"{rules.spec.violation_risk:g} + q + p0",
        "the applied setting is at most the advised one; lower ones are harmless, whoever chose them and whatever they "
        "foresaw",
        f"rounds {before}without a known outcome count as exceeding, unless somebody "
        "vouches that it is missing for reasons unrelated to context, cost and setting",
        "the base, the bracket, the start, the lag and the risk were fixed before the first round, and no rounds were "
        "forgotten (resume with forget) because of their outcomes",
    ]
    if options["base"] == "proposal":
        lines.append("proposals are exchangeable too: they do not grow as rounds go on")
    if options["group"] is not None:
        lines.append("a context's group is fixed by the context; the guarantee is within each group, and so for all")
    if options["learned"]:
        lines.append("a learned base calibrates only on rounds after its fit")
    if options["confidence"] is not None:
        lines.append(f"with probability {options['confidence']:g} over the rounds before this one it holds given them")
    else:
        lines.append(
            "the probability is an average over contexts and over the rounds before this one, those at the start "
            "included; it is not a statement about one context"
        )
    return lines


def _bracket_lines(rules: Rules) -> list[str]:
    """What is assumed of each cost, and of the dose curve."""
    lines = []
    for name, cost in costs_of(rules).items():
        which = "cost" if rules.spec.costs is None else name
        fall, growth = "rise" if cost.direction == "below" else "fall", cost.growth
        lines.append(
            f"a round's {which} does not {fall} when its setting rises, and keeps to the bracket (q = 0): "
            + bracket_words(rules, name)
            + ("" if growth.name == "spread" else "; smaller steps in proportion")
        )
        of = "" if rules.spec.costs is None else f" of {name}"
        if floor := growth.parameters.get("floor"):
            lines.append(f"costs{of} below {floor:g} count as {floor:g}")
        if growth.error:
            lines.append(f"measurement errors{of} are at most {growth.error:g}, and do not shrink with the dose")
    if rules.spec.costs is not None:
        lines.append("a round exceeds if any of its costs does; the risk is of that, and is not split among them")
    if rules.dose.cost.name != "identity":
        lines.append(
            f"settings are read through the dose curve {rules.dose.cost.words}, beyond which only the bracket counts"
        )
    return lines


def _can_be_safe(rules: Rules) -> bool:
    """Whether the bracket allows for a start that is safe for everybody; `spread` lets a few tolerate any less."""
    return all(cost.growth.name != "spread" for cost in costs_of(rules).values())


def facts(decision: Decision) -> dict[str, Any]:
    """Plain values: the rounds that count and those that would have exceeded, the base, the start, the limits."""
    rules, seen = decision.rules, decision.prediction
    options, risk = rules.policy.options, rules.spec.violation_risk
    return {
        "assumptions": assumptions(decision) if GUARANTEES[decision.guarantee].claimed else [],
        "risk": {
            "violation_risk": risk,
            "this_round": risk,
            "bracket_broken": 0.0,
            "start_exceeds": 0.0 if _can_be_safe(rules) else None,
        },
        "count": {
            "rounds": seen.size,
            "may_exceed": max(seen.rank - 1, 0),
            "exceeding": seen.counted.exceeding,
            "would_exceed": seen.counted.number,
            "unknown": seen.counted.unknown,
            "level": seen.level if options["adapt"] is not None else None,
        },
        **scales(decision),
        "start": {"setting": seen.start, "share": options["start_scale"]},
        **_brackets(rules),
        "model": {"rounds": seen.rounds, "known_outcomes": seen.known},
        "adaptive": adaptive(decision),
        "group": seen.group or None,
    }


def _brackets(rules: Rules) -> dict[str, Any]:
    """The bracket, or each cost with its own."""
    if rules.spec.costs is None:
        (cost,) = costs_of(rules).values()
        return {"bracket": {**cost.growth.to_dict(), "words": bracket_words(rules, *costs_of(rules))}}
    each = rules.spec.costs.items()
    return {"costs": {name: {**cost.to_dict(), "words": bracket_words(rules, name)} for name, cost in each}}


def adaptive(decision: Decision) -> dict[str, Any] | None:
    """The long-run statement for any sequence of rounds; None where the level does not adapt."""
    rules, tally = decision.rules, decision.prediction.tally
    rate, waiting = rules.policy.options["adapt"], tally.decided - tally.ended
    if rate is None:
        return None
    late = {"open_at_once": max(tally.open_at_once, 1), "at_start": tally.at_start}
    bound = excess_bound(tally.followed, risk=rules.spec.violation_risk, rate=rate, **late)
    counts = {"known": tally.followed, "exceeded": tally.exceeded, "exceeded_at_start": tally.at_start}
    return {
        "rate": rate,
        **counts,
        "open_at_once": tally.open_at_once,
        "open": waiting,
        "bound": bound + waiting,
    }


def arithmetic(decision: Decision, told: dict[str, Any]) -> list[str]:
    """How the rounds gave the setting, with the numbers in it."""
    seen, rules = decision.prediction, decision.rules
    options, dial = rules.policy.options, rules.dial
    text = dial.text
    lines = []
    if not math.isnan(seen.base):
        lines.append(f"The base: {base_words(decision)}, {text(seen.base)}{origin(decision)}.")
    if seen.allowed == -math.inf:
        lines += _why_start(decision)
    else:
        lines += _rounds(decision, told)
        rule = "no limit" if seen.allowed == math.inf else rounded_down(seen.allowed)
        few = f"fewer than {seen.rank} of {seen.size} may exceed"
        lines.append(f"The count rule: {few}, which allows a scale of {rule}.")
        if seen.most < math.inf:
            recent = f"the last {RECENT} known rounds, {significant(max(seen.most, 0.0))}"
            lines.append(f"The climb limit: {options['climb']:g} times the largest scale of {recent}.")
    lines.append(f"The start: {text(seen.start)}.")
    if dial.levels and seen.start <= 0.0 and seen.most == -math.inf:
        lines.append(NEVER_CLIMBS)
    if (said := told["adaptive"]) is not None:
        lines.append(
            f"Whatever the sequence of rounds: of {said['known']} known rounds {said['exceeded']} exceeded, and "
            f"at most {significant(said['bound'])} can have, those open now included, and those that a correction "
            f"turned into excesses not (rate {said['rate']:g}, level now {significant(seen.level)})."
        )
    return lines


def _rounds(decision: Decision, told: dict[str, Any]) -> list[str]:
    """Which rounds would have exceeded, by number, or by id in a study."""
    found = told["count"]
    if not found["would_exceed"]:
        return [f"Would have {exceeds_words(decision.rules)}: none of them."]
    named = ", ".join(map(str, found["exceeding"][-SHOWN:]))
    more = f" and {found['would_exceed'] - SHOWN} earlier ones" if found["would_exceed"] > SHOWN else ""
    return [f"Would have {exceeds_words(decision.rules)}: rounds {named}{more}."]


def _why_start(decision: Decision) -> list[str]:
    """Why the start is played."""
    seen, risk = decision.prediction, decision.rules.spec.violation_risk
    if math.isnan(seen.base):
        return ["Your model gave no number for this context."]
    if not seen.size:
        of = f" of group {seen.group}" if seen.group else ""
        return [f"The count: {seen.rounds} rounds{of} so far, too few for a risk of {risk:g}."]
    if decision.rules.policy.options["adapt"] is not None and not seen.rank:
        return [f"The level has fallen to {significant(seen.level)}, since costs exceeded the threshold too often."]
    return [
        f"The count: of the latest {seen.size} rounds at least {seen.rank} tolerate no more than the start, or are "
        "not known."
    ]
