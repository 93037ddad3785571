"""HP-Shield for one online learner: rounds that may be open, in the dial's own units.

A decision opens a round, which tolerates nothing (T̂ = −∞) until its outcome is known; the latest `lag` rounds do not
count. The first decision after the rounds have grown by a tenth fits a new base, where one is learned: on what is known
then, and for rounds from there on.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.adaptive import adapted, adapted_rank
from safedial.core.confidence import Bounds
from safedial.core.count_rule import climb_limit
from safedial.core.safe_set import SafeSet
from safedial.core.tolerated import Cost, Range, scaled_setting, tolerated_scale
from safedial.decision.certificates import shield_terms
from safedial.decision.learners import shield_options
from safedial.decision.learners.protocol import QuestionLearner
from safedial.decision.learners.shield_history import Counted, ShieldHistory
from safedial.decision.learners.shield_options import Stated
from safedial.decision.learners.shield_watch import RAISED, ShieldWatch, Told, upper_setting
from safedial.decision.outcome import Sample
from safedial.decision.rounds import Asked
from safedial.errors import InvalidInput, require
from safedial.policies.shield.bases import target
from safedial.policies.shield.shield_rounds import middle_of

if TYPE_CHECKING:
    from safedial.decision.decision import Decision
    from safedial.decision.rules import Rules

Array = NDArray[np.float64]

LEAST = -1e300
"""A scale below all that are played: rounds that exceed at their start exceed there too."""


class Tally(NamedTuple):
    """Counts for the long-run statement: known rounds that were given what was advised, or less; how many of them
    exceeded, and at their start; the most rounds ever open at once, and the rounds that have ended.
    """

    followed: int = 0
    exceeded: int = 0
    at_start: int = 0
    open_at_once: int = 0
    ended: int = 0


class Cap(NamedTuple):
    """What a decision rests on, in plain values.

    `base` is the setting that is scaled, `protocol` the protocol's; `fitted` is the number of the last decision before
    the base's fit, None where the base is the protocol itself. `allowed` is λ̂ (−∞: the start), `most` what the climb
    limit allows, `scale` what a climb may start from; `size` and `rank` are n and m; `counted`
    are the n rounds.
    """

    setting: float
    choice: Choice
    base: float
    protocol: float
    start: float
    fitted: int | None
    allowed: float
    most: float
    scale: float
    size: int
    rank: int
    counted: Counted
    rounds: int
    known: int
    level: float
    tally: Tally


class ShieldLearner(QuestionLearner):
    """One learner's rounds, with what is known of them so far."""

    in_order, watches_itself = False, True

    def __init__(self, rules: Rules) -> None:
        self.rules, self.options, self.risk = rules, rules.policy.options, rules.spec.violation_risk
        self.cost = shield_options.cost_of(rules)
        self.decided = 0
        self.forget()

    @classmethod
    def started(cls, rules: Rules, start_action: Any) -> Rules:
        return shield_options.started(rules, start_action)

    @classmethod
    def read_question(cls, rules: Rules, asked: Asked, proposal: Any) -> Asked:
        return shield_options.read_question(rules, asked, proposal)

    @classmethod
    def guarded(cls, decision: Decision) -> str:
        return shield_terms.guarded(decision)

    @classmethod
    def start_limit(cls, decision: Decision) -> str:
        return shield_terms.start_limit(decision)

    @classmethod
    def statement(cls, decision: Decision) -> str:
        return shield_terms.statement(decision)

    @classmethod
    def facts(cls, decision: Decision) -> dict[str, Any]:
        return shield_terms.facts(decision)

    @classmethod
    def arithmetic(cls, decision: Decision, facts: dict[str, Any]) -> list[str]:
        return shield_terms.arithmetic(decision, facts)

    @classmethod
    def check_study(cls, rules: Rules) -> None:
        raise InvalidInput(f"policy = {rules.policy.name!r}: cannot run a study yet; use an Agent")

    @classmethod
    def exceeds(cls, rules: Rules, sample: Sample, advised: float) -> bool:
        return sample.applied <= advised and bool(shield_options.cost_of(rules).exceeded(sample.measured))

    def forget(self) -> None:
        """Start again with no rounds; decisions keep their numbers."""
        self.before, self.samples = self.decided, 0
        self.history, self.watch = ShieldHistory(self.rules), ShieldWatch(self.risk, self.options["lag"])
        self.level, self.tally = self.risk, Tally()

    def begin(self) -> None:
        if self.options["learned"]:
            self.history.renew_base()

    def ask(self, asked: Asked, *, preview: bool = False) -> Cap:
        if not preview:
            return self._cap(asked.vector, asked.stated)
        ahead = copy.copy(self)
        ahead.history = copy.copy(self.history)
        ahead.begin()
        return ahead._cap(asked.vector, asked.stated)

    def predict(self, context: Array, norm: float) -> Cap:
        """For a question that brings no proposal."""
        return self.ask(self.read_question(self.rules, Asked(context, norm), None))

    def view(self, prediction: Cap, choice: Choice) -> tuple[Cap, Choice]:
        return prediction, choice

    def settings(self, prediction: Cap) -> tuple[float, float]:
        return prediction.setting, prediction.setting

    def _cap(self, context: Array, stated: Stated) -> Cap:
        """The largest setting for a context: λ̂ times the base under the climb limit, never below the start."""
        history, options, raw_start = self.history, self.options, stated.start
        base = history.base_at(context, stated.protocol)
        level = None if options["adapt"] is None else self.level * (history.risk / self.risk)
        allowed = history.step * history.window.scale(level)
        most = math.inf
        if options["climb"] is not None:
            most = climb_limit(history.used, -math.inf, climb=options["climb"])
        scale, start = min(allowed, most), history.floored(raw_start)
        setting = unfloored = scaled_setting(scale, base, Range(start, history.end))
        if history.levels is not None:
            setting = scaled_setting(scale, base, Range(start, history.end, history.levels))
        counted = history.counted(max(scale / history.step, LEAST), self.before)
        size, rank = history.window.window
        if level is not None:
            rank = adapted_rank(level, size, rank)
        fitted = history.base.since + self.before if history.base.since else None
        counts = (self.history.count, self.samples, self.level, self.tally)
        found = (size, rank, counted, *counts)
        choice = self._choice(unfloored, certain=allowed > -math.inf)
        # A start that is one setting for all gives small bases large scales, which say nothing of the large bases.
        first = raw_start / (base if self.rules.start_action is None else max(base, history.end))
        limits = (allowed, most, max(scale, first))
        return Cap(setting, choice, base, stated.protocol, start, fitted, *limits, *found)

    def _choice(self, setting: float, *, certain: bool) -> Choice:
        """The choice as intensities; its bound is the threshold, which the promise is about, where there is one."""
        rules = self.rules
        share = setting if rules.is_identity else float(rules.dose.cost.effect(rules.dial.action(setting)))
        bound = rules.spec.threshold if certain else math.inf
        return Choice(share, SafeSet(share, True), Bounds(0.0, bound, 0.0, 0.0, False), 0.0)

    def opened(self, asked: Asked, decision: Decision) -> int:
        cap, stated = decision.prediction, asked.stated
        kept = (stated.protocol, stated.start, -math.inf, math.nan, cap.setting, cap.scale)
        place = self.history.open(asked.vector, kept)
        self.decided += 1
        tally = self.tally
        self.tally = tally._replace(open_at_once=max(tally.open_at_once, self.history.count - tally.ended))
        return place

    def check_report(self, context: Array, round: int, place: int | None, decisions: int) -> None:
        """An outcome by context must fit the round it is taken for; rounds that it did not decide do not count."""
        rule = "has an outcome though no round is open; was it reported already?"
        way_out = "hp_shield learns from rounds that it decided"
        require(place is not None, "context", context.tolist(), rule, way_out)
        if not np.array_equal(self.history.contexts[int(place or 0)], context):
            raise InvalidInput(
                f"context: is not that of round {round}, the oldest open one or the one you named, and hp_shield "
                "must know which it is; report the Decision itself, or round=..."
            )

    def learn(self, context: Array, norm: float, sample: Sample, place: int) -> None:
        history, cost = self.history, self._cost_at(context)
        limit = shield_options.tolerated(self.rules, cost, sample.measured, sample.applied)
        history.fill(place, limit, sample.applied)
        self.samples += 1
        self._tell(bool(cost.exceeded(sample.measured)), sample.applied, place)
        if self.options["learned"]:
            self._train(context, cost, sample, place)
        self.watch.tell(place, self._told(cost, sample, place), history.count)

    def _tell(self, exceeded: bool, applied: float, place: int) -> None:
        """Count the round, and let the level follow, unless somebody raised the setting."""
        columns, tally = self.history.columns, self.tally._replace(ended=self.tally.ended + 1)
        if applied <= columns["advised"][place]:
            at_start = exceeded and applied <= columns["start"][place]
            more = (tally.followed + 1, tally.exceeded + exceeded, tally.at_start + at_start)
            tally = Tally(*more, tally.open_at_once, tally.ended)
            if self.options["adapt"] is not None:
                self.level = float(adapted(self.level, exceeded, risk=self.risk, rate=self.options["adapt"]))
        self.tally = tally

    def _train(self, context: Array, cost: Cost, sample: Sample, place: int) -> None:
        """Let the next base learn the setting that the round would likely have tolerated."""
        columns = self.history.columns
        protocol, start = columns["protocol"][place], columns["start"][place]
        likely = shield_options.tolerated(self.rules, middle_of(cost), sample.measured, sample.applied)
        lesson = target(likely, sample.applied, protocol=protocol, start=start, end=self.history.end)
        self.history.ridge.add(context[None], np.array([[lesson, sample.reward]]), np.array([True]))

    def _told(self, cost: Cost, sample: Sample, place: int) -> Told:
        """What the round tells the watch: bounds on its tolerated scale under the protocol's base."""
        columns = self.history.columns
        protocol, played = columns["protocol"][place], self.history.range(columns["start"][place])
        upper = upper_setting(cost, sample.measured, sample.applied)
        if upper < sample.applied and self.rules.dose.cost.name != "identity":
            upper = sample.applied
        beyond = (sample.measured - cost.threshold) * (1.0 if cost.direction == "above" else -1.0)
        at_start = beyond > cost.growth.error and sample.applied <= played.start
        lower = tolerated_scale(columns["limit"][place], protocol, played)
        return Told(lower, played.reach(upper) / protocol * RAISED, at_start)

    def leave_out(self, place: int) -> None:
        self.history.leave_out(place)
        self.tally = self.tally._replace(ended=self.tally.ended + 1)
        self.watch.tell(place, None, self.history.count)

    def _cost_at(self, context: Array) -> Cost:
        """The cost's limit with numbers for slopes that are features."""
        cost = self.cost
        if not cost.growth.features:
            return cost
        growth = shield_options.growth_at(self.rules, context)
        return Cost(threshold=cost.threshold, growth=growth, direction=cost.direction, on=cost.on)

    @property
    def evidence(self) -> float:
        return self.watch.evidence

    @property
    def alarmed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        return self.watch.crossed != ""

    @property
    def stop_rule(self) -> str:
        return self.watch.crossed

    def restart_evidence(self) -> None:
        self.watch.afresh()

    def state(self) -> dict[str, Any]:
        counts = (self.before, self.decided, self.samples, *self.tally)
        scalars = {"counts": np.array(counts, dtype=np.int64), "level": np.array(self.level)}
        return {**self.history.state(), **scalars, **self.watch.state()}

    def restore(self, arrays: dict[str, Any]) -> None:
        self.before, self.decided, self.samples, *tally = arrays["counts"].tolist()
        self.level, self.tally = float(arrays["level"]), Tally(*tally)
        self.history.restore(arrays)
        self.watch.restore(arrays)
