"""The certificate of an HP-Shield decision: which rounds would have exceeded, what the bracket says, what voids it.

All is written from the plain values of a decision, live and from a log alike: numbers that are not finite are None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from safedial.bounds.count_rule import RECENT, excess_bound
from safedial.model.costs import Cost
from safedial.model.dial import rounded_down, significant
from safedial.model.guarantee import GUARANTEES
from safedial.policies.policy import Decided, Terms

if TYPE_CHECKING:
    from safedial.policies.shield import HPShield

SHOWN = 20
"""How many rounds are named in words; the certificate holds all."""

NEVER_CLIMBS = (
    "The start lies below the dial's lowest level, so nothing is given; and as long as nothing was given the climb "
    "limit allows no more. A larger start_scale, a start_action or climb=None, in a new agent or study, would help."
)


class Words:
    """The words of one decision: `seen` are its numbers."""

    def __init__(self, policy: HPShield, decided: Decided) -> None:
        self.policy, self.decided, self.seen = policy, decided, decided.numbers
        self.risk, self.dial, self.costs = policy.risk, policy.task.dial, policy.costs
        self.several = policy.spec.costs is not None
        self.proved = GUARANTEES[decided.guarantee].proved
        self.safe_start = all(cost.growth.name != "spread" for cost in self.costs.values())
        """Whether the bracket allows for a start that is safe for everybody; `spread` lets a few tolerate any less."""
        self.group = f" of group {self.seen['group']}" if self.seen["group"] else ""
        # What a plain number cannot say: λ̂ is −∞ where only the start is allowed, and the climb limit before any round.
        otherwise = {
            "allowed": math.inf if decided.ready else -math.inf,
            "most": math.inf if policy.climb is None else -math.inf,
            "counted": math.inf,
        }
        told = {name: value if self.seen[name] is None else self.seen[name] for name, value in otherwise.items()}
        self.allowed, self.most, self.counted = told.values()

    def terms(self) -> Terms:
        """The words of the decision."""
        facts, claimed = self.facts(), GUARANTEES[self.decided.guarantee].claimed
        return Terms(self.statement(), self.assumptions() if claimed else [], self.arithmetic(facts), facts)

    # --- The guarantee

    def statement(self) -> str:
        """The guarantee in one sentence."""
        if not self.proved:
            return f"none is proved yet: {self.event()} rests on your judgement alone (you declared the start safe)"
        group = f", within its group {self.seen['group']}" if self.seen["group"] else ""
        return f"{self.event()} <= {self.risk:g} in this round{group}: {self._sentence()}"

    def event(self) -> str:
        """The event that the risk is of."""
        signs = {"above": ">", "below": "<"}
        each = []
        for name, cost in self.costs.items():
            which = "true " if cost.on == "true" and cost.growth.error else ""
            each.append(f"{which}{name} {signs[cost.direction]} {limit_words(cost)}")
        return f"P({' or '.join(each)})"

    def _sentence(self) -> str:
        """The guarantee for people who give the dose."""
        seen, unknown = self.seen, self.seen["unknown"]
        known = f"({unknown} of them with unknown outcomes, which count)" if unknown else "with known outcomes"
        step = max(cost.growth.parameters.get("step", 1.0) for cost in self.costs.values())
        beyond = f" (given is {step:g} times that)" if step > 1.0 else ""
        if self.decided.chosen < self.decided.largest:
            beyond += " (given is less, which is safe too)"
        elif self.decided.chosen <= seen["start"]:
            beyond += " (given is the start, which you declared safe)"
        lag, rounds = self.policy.lag, f"{seen['size']} rounds{self.group}"
        rounds = f"{rounds} before the latest {lag}," if lag else f"the latest {rounds}"
        brackets = "; and ".join(self.bracket(name, here=True) for name in self.costs)
        return (
            f"of {rounds} {known}, at most {seen['would_exceed']} would have "
            f"{self._exceeds()} at {self._scale()}{beyond}, if {brackets}"
        )

    def _exceeds(self) -> str:
        """What costs must not do, in words: "exceeded 20", or "exceeded 20 mg/l (trough) or 600 (auc)"."""
        words, before = [], ""
        for name, cost in self.costs.items():
            word = "exceeded" if cost.direction == "above" else "fallen below"
            which = f" ({name})" if self.several else ""
            words.append(f"{word if word != before else ''} {limit_words(cost)}{which}".lstrip())
            before = word
        return " or ".join(words)

    def _base(self) -> str:
        """What is scaled."""
        if self.seen["fitted"] is not None:
            return "the learned setting"
        return "the proposed setting" if self.policy.base == "proposal" else "the protocol's setting"

    def _scale(self) -> str:
        """The scale that was counted, in words."""
        if self.most == -math.inf:
            return "the start"
        scale = f"{rounded_down(self.counted)} times" if self.counted < math.inf else "any multiple of"
        return f"{scale} {self._base()}"

    # --- Brackets

    def bracket(self, name: str, *, here: bool = False) -> str:
        """A bracket as a condition, with numbers that a reader can check: "raising the setting by a tenth ...". `here`:
        slopes that are features have this context's values beside their names. The steps are such that the dial has
        room for them: of a step that nobody can make, anything is true.
        """
        cost = self.costs[name]
        growth, above = cost.growth, cost.direction == "above"
        the, a = (f"the {name}", name) if self.several else ("the cost", "a cost")
        up, down = ("raises", "lowers") if above else ("lowers", "raises")
        limit = f"above {cost.limit:g}" if above else f"below {-cost.limit:g}"  # of the true cost, less the error
        beyond = f"{a} {limit} {cost.unit}".rstrip()
        if growth.name == "spread":
            normal = "given the context, the logarithms of tolerated settings are normal with deviation"
            return f"{normal} {growth.parameters['sigma']:g} or more"
        plain, dial = self.policy.curve is None, self.dial
        what = "the setting" if plain else "the dose curve's value"
        values = self.seen.get("slopes", {}).get(name, [None, None]) if here and growth.features else [None, None]
        ends = {end: (growth.parameters[end], value) for end, value in zip(("low", "high"), values, strict=True)}
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

    # --- Assumptions

    def assumptions(self) -> list[str]:
        """All that this decision's guarantee rests on, one sentence each: what would make it false."""
        policy, seen = self.policy, self.seen
        start = self.dial.text(seen["start"])
        if policy.task.start_action is None:
            raised = seen["start"] > policy.share * seen["protocol"]
            least = " or, where that is less, the dial's lowest" if raised else ""
            start = f"{policy.share:g} times the protocol's setting{least} (here {start})"
        known = "p0 = 0" if self.safe_start else "p0 > 0 where tolerances are log-normal, and adds to the risk"
        declared = f"every setting up to the start, {start}, is safe for every context, as you declared ({known})"
        if not self.proved:
            return [declared]
        before = f"before the latest {policy.lag} " if policy.lag else ""
        given = (
            "the probability is an average over contexts and over the rounds before this one, those at the start "
            "included; it is not a statement about one context"
        )
        if policy.confidence is not None:
            given = f"with probability {policy.confidence:g} over the rounds before this one it holds given them"
        options = {
            "proposals are exchangeable too: they do not grow as rounds go on": policy.base == "proposal",
            "a context's group is fixed by the context; the guarantee is within each group, and so for all": self.group,
            "a learned base calibrates only on rounds after its fit": policy.learned,
        }
        return [
            "rounds are exchangeable: contexts and costs come as if drawn independently from one source, without "
            "drift, and no setting influences another round (the evidence tests this, but only large changes show)",
            *self._bracket_lines(),
            declared,
            f"if the bracket is broken with probability q and the start exceeds with probability p0, the risk is "
            f"{self.risk:g} + q + p0",
            "the applied setting is at most the advised one; lower ones are harmless, whoever chose them and whatever "
            "they foresaw",
            f"rounds {before}without a known outcome count as exceeding, unless somebody "
            "vouches that it is missing for reasons unrelated to context, cost and setting",
            "the base, the bracket, the start, the lag and the risk were fixed before the first round, and no rounds "
            "were forgotten (resume with forget) because of their outcomes",
            *(line for line, stated in options.items() if stated),
            given,
        ]

    def _bracket_lines(self) -> list[str]:
        """What is assumed of each cost, and of the dose curve."""
        lines = []
        for name, cost in self.costs.items():
            which, of = (name, f" of {name}") if self.several else ("cost", "")
            fall, growth = "rise" if cost.direction == "below" else "fall", cost.growth
            lines.append(
                f"a round's {which} does not {fall} when its setting rises, and keeps to the bracket (q = 0): "
                + self.bracket(name)
                + ("" if growth.name == "spread" else "; smaller steps in proportion")
            )
            if floor := growth.parameters.get("floor"):
                lines.append(f"costs{of} below {floor:g} count as {floor:g}")
            if growth.error:
                lines.append(f"measurement errors{of} are at most {growth.error:g}, and do not shrink with the dose")
        if self.several:
            lines.append("a round exceeds if any of its costs does; the risk is of that, and is not split among them")
        if self.policy.curve is not None:
            curve = self.policy.curve.words
            lines.append(f"settings are read through the dose curve {curve}, beyond which only the bracket counts")
        return lines

    # --- Facts, and how they gave the setting

    def facts(self) -> dict[str, Any]:
        """Plain values: the rounds that count and those that would have exceeded, the base, the start, the limits."""
        seen, risk, base = self.seen, self.risk, self.seen["base"]
        allowed = float(self.policy.task.dose.cost.effect(self.dial.action(seen["unfloored"])))
        scale = {"played": self.decided.chosen, "largest": self.decided.largest}
        scale = {name: None if base is None else setting / base for name, setting in scale.items()}
        return {
            "safe_intensity": allowed,  # before flooring to a level
            "risk": {
                "violation_risk": risk,
                "this_round": risk,
                "bracket_broken": 0.0,
                "start_exceeds": 0.0 if self.safe_start else None,
            },
            "count": {
                "rounds": seen["size"],
                "may_exceed": max(seen["rank"] - 1, 0),
                "exceeding": seen["exceeding"],
                "would_exceed": seen["would_exceed"],
                "unknown": seen["unknown"],
                "level": seen["level"] if self.policy.adapt is not None else None,
            },
            "scale": {**scale, "count_rule": seen["allowed"], "climb_limit": seen["most"]},
            "base": {"setting": base, "protocol": seen["protocol"], "fitted_at_round": seen["fitted"]},
            "start": {"setting": seen["start"], "share": self.policy.start_scale},
            **self._brackets(),
            "model": {"rounds": seen["rounds"], "known_outcomes": seen["known"]},
            "adaptive": self._adaptive(),
            "group": seen["group"] or None,
        }

    def _brackets(self) -> dict[str, Any]:
        """The bracket, or each cost with its own."""
        if not self.several:
            ((name, cost),) = self.costs.items()
            return {"bracket": {**cost.growth.to_dict(), "words": self.bracket(name)}}
        return {"costs": {name: {**cost.to_dict(), "words": self.bracket(name)} for name, cost in self.costs.items()}}

    def _adaptive(self) -> dict[str, Any] | None:
        """The long-run statement for any sequence of rounds; None where the level does not adapt."""
        rate = self.policy.adapt
        if rate is None:
            return None
        followed, exceeded, at_start, at_once, ended, decided = self.seen["tally"]
        bound = excess_bound(followed, risk=self.risk, rate=rate, open_at_once=max(at_once, 1), at_start=at_start)
        known = {"known": followed, "exceeded": exceeded, "exceeded_at_start": at_start, "open_at_once": at_once}
        return {"rate": rate, **known, "open": decided - ended, "bound": bound + decided - ended}

    def arithmetic(self, facts: Mapping[str, Any]) -> list[str]:
        """How the rounds gave the setting, with the numbers in it."""
        seen, dial = self.seen, self.dial
        lines = []
        if seen["base"] is not None:
            lines.append(f"The base: {self._base()}, {dial.text(seen['base'])}{self._origin()}.")
        if self.allowed == -math.inf:
            lines += self._why_start()
        else:
            lines += self._rounds()
            rule = "no limit" if self.allowed == math.inf else rounded_down(self.allowed)
            few = f"fewer than {seen['rank']} of {seen['size']} may exceed"
            lines.append(f"The count rule: {few}, which allows a scale of {rule}.")
            if self.most < math.inf:
                recent = f"the last {RECENT} known rounds, {significant(max(self.most, 0.0))}"
                lines.append(f"The climb limit: {self.policy.climb:g} times the largest scale of {recent}.")
        lines.append(f"The start: {dial.text(seen['start'])}.")
        if dial.levels and seen["start"] <= 0.0 and self.most == -math.inf:
            lines.append(NEVER_CLIMBS)
        if (said := facts["adaptive"]) is not None:
            lines.append(
                f"Whatever the sequence of rounds: of {said['known']} known rounds {said['exceeded']} exceeded, and "
                f"at most {significant(said['bound'])} can have, those open now included, and those that a correction "
                f"turned into excesses not (rate {said['rate']:g}, level now {significant(seen['level'])})."
            )
        return lines

    def _origin(self) -> str:
        """Where the base is from."""
        fitted, base = self.seen["fitted"], self.policy.base
        if fitted is not None:
            return f" (learned from the first {fitted} rounds, calibrated on those since)"
        return f" (feature {base})" if isinstance(base, str) and base != "proposal" else ""

    def _rounds(self) -> list[str]:
        """Which rounds would have exceeded, by number, or by id in a study."""
        count = self.seen["would_exceed"]
        if not count:
            return [f"Would have {self._exceeds()}: none of them."]
        named = ", ".join(map(str, self.seen["exceeding"][-SHOWN:]))
        more = f" and {count - SHOWN} earlier ones" if count > SHOWN else ""
        return [f"Would have {self._exceeds()}: rounds {named}{more}."]

    def _why_start(self) -> list[str]:
        """Why the start is played."""
        seen = self.seen
        if seen["base"] is None:
            return ["Your model gave no number for this context."]
        if not seen["size"]:
            return [f"The count: {seen['rounds']} rounds{self.group} so far, too few for a risk of {self.risk:g}."]
        if self.policy.adapt is not None and not seen["rank"]:
            level = significant(seen["level"])
            return [f"The level has fallen to {level}, since costs exceeded the threshold too often."]
        few = f"at least {seen['rank']} tolerate no more than the start, or are not known"
        return [f"The count: of the latest {seen['size']} rounds {few}."]


def limit_words(cost: Cost) -> str:
    """A threshold with its unit."""
    return f"{cost.threshold:g} {cost.unit}".rstrip()


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
