"""HP-Shield for one online learner: rounds that may be open, in the dial's own units.

A decision opens a round, which tolerates nothing (T̂ = −∞) until its outcome is known; the latest `lag` rounds do not
count. The first decision after the rounds have grown by a tenth fits a new base, where one is learned: on what is known
then, and for rounds from there on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.action import Choice
from safedial.core.adaptive import adapted_rank
from safedial.core.confidence import Bounds
from safedial.core.safe_set import SafeSet
from safedial.core.tolerated import Cost, tolerated_scale
from safedial.decision.certificates import shield_scale_terms, shield_terms
from safedial.decision.learners import shield_options
from safedial.decision.learners.question_learner import QuestionLearner
from safedial.decision.learners.shield_cap import Cap, Level, read_cap, written_cap
from safedial.decision.learners.shield_chooser import LEARNING, Chooser
from safedial.decision.learners.shield_history import ShieldHistory
from safedial.decision.learners.shield_options import Stated
from safedial.decision.learners.shield_watch import RAISED, ShieldWatch, Told, shown_by
from safedial.decision.outcome import Sample
from safedial.decision.rounds import Asked
from safedial.errors import InvalidInput, require
from safedial.policies.shield.bases import target
from safedial.policies.shield.shield_rounds import middle_of

if TYPE_CHECKING:
    from safedial.decision.decision import Decision
    from safedial.decision.rules import Rules

Array = NDArray[np.float64]


class ShieldLearner(QuestionLearner):
    """One learner's rounds, with what is known of them so far."""

    certificate_terms = shield_terms
    in_order, watches_itself = False, True
    stop_rules = ("bracket_drift", "start_refuted")
    started: Any = staticmethod(shield_options.started)
    check_study: Any = staticmethod(shield_options.check_study)
    read_question: Any = staticmethod(shield_options.read_question)
    written: Any = staticmethod(written_cap)
    statement: Any = staticmethod(shield_terms.statement)
    chosen: Any = staticmethod(shield_scale_terms.chosen)
    guarded: Any = staticmethod(shield_terms.guarded)
    start_limit: Any = staticmethod(shield_terms.start_limit)

    def __init__(self, rules: Rules) -> None:
        self.rules, self.options, self.risk = rules, rules.policy.options, rules.spec.violation_risk
        self.costs = shield_options.costs_of(rules)
        self.middle = {name: middle_of(cost) for name, cost in self.costs.items() if not cost.growth.features}
        self.decided = 0
        self.forget()

    @classmethod
    def check_history(cls, rules: Rules) -> None:
        raise InvalidInput("history: hp_shield learns only from rounds that it decided; start without it")

    @classmethod
    def needs_reward(cls, rules: Rules) -> bool:
        return rules.policy.options["chooser"] in LEARNING

    @classmethod
    def read_written(cls, rules: Rules, values: Mapping[str, Any]) -> Cap:
        return read_cap(values)

    @classmethod
    def is_over(cls, rules: Rules, cost: Any) -> bool:
        return shield_options.any_exceeded(shield_options.costs_of(rules), cost)

    @classmethod
    def judges(cls, rules: Rules, sample: Sample, advised: float) -> bool:
        return sample.applied <= advised and (not sample.unknown or cls.exceeds(rules, sample, advised))

    @classmethod
    def exceeds(cls, rules: Rules, sample: Sample, advised: float) -> bool:
        over = shield_options.any_exceeded(shield_options.costs_of(rules), sample.measured)
        return sample.applied <= advised and over

    def forget(self) -> None:
        """Start again with no rounds; decisions keep their numbers."""
        self.before, self.samples = self.decided, 0
        self.histories = {"": ShieldHistory(self.rules)} if self.options["group"] is None else {}
        self.where: list[tuple[str, int]] = []
        self.watch = ShieldWatch(self.risk, self.options["lag"])
        self.level = Level(self.risk, self.options["adapt"])
        self.chooser = Chooser(self.rules)

    @property
    def history(self) -> ShieldHistory:
        """The rounds of the first group; all, where there are no groups."""
        return next(iter(self.histories.values()))

    @property
    def count(self) -> int:
        """How many rounds there are."""
        return self.decided - self.before

    def begin(self) -> None:
        for history in self.histories.values():
            if history.learned:
                history.renew_base()
        self.chooser.begin()

    def ask(self, asked: Asked, *, preview: bool = False) -> Cap:
        if not preview:
            return self._cap(asked.vector, asked.stated)
        ahead, group = copy.copy(self), asked.stated.group
        ahead.histories = {key: copy.copy(history) for key, history in self.histories.items() if key == group}
        ahead.chooser = copy.copy(self.chooser)
        ahead.begin()
        cap = ahead._cap(asked.vector, asked.stated)
        for key, history in ahead.histories.items():
            self.histories[key].shown = max(self.histories[key].shown, history.shown)
        return cap

    def predict(self, context: Array, norm: float) -> Cap:
        """For a question that brings no proposal."""
        return self.ask(self.read_question(self.rules, Asked(context, norm), None))

    def view(self, prediction: Cap, choice: Choice) -> tuple[Cap, Choice]:
        return prediction, choice

    def settings(self, prediction: Cap) -> tuple[float, float]:
        return prediction.setting, prediction.safe

    def _cap(self, context: Array, stated: Stated) -> Cap:
        """The largest setting for a context, and the one that is chosen."""
        history = self.histories.get(stated.group) or ShieldHistory(self.rules)
        base = history.base_at(context, stated.protocol)
        level = None if self.options["adapt"] is None else self.level.now * (history.risk / self.risk)
        safe, unfloored, start, allowed, most, counted, scale, climbing = history.find(base, stated.start, level)
        size, rank = history.window.window
        if level is not None:
            rank = adapted_rank(level, size, rank)
        setting, index = safe, 0.0
        if self.options["chooser"] != "largest":
            setting, index = self.chooser.choose(safe, start, context, stated)
        return Cap(
            setting,
            safe,
            self._choice(unfloored, index, certain=allowed > -math.inf),
            base,
            stated.protocol,
            start,
            history.numbers[history.base.since - 1] if history.base.since else None,
            allowed,
            most,
            scale,
            size,
            rank,
            history.counted(counted),
            history.count,
            self.samples,
            self.level.now,
            self.level.tally,
            climbing,
            stated.group,
        )

    def _choice(self, setting: float, index: float, *, certain: bool) -> Choice:
        """The choice as intensities; its bound is the threshold, which the promise is about, where there is one."""
        rules = self.rules
        share = setting if rules.is_identity else float(rules.dose.cost.effect(rules.dial.action(setting)))
        bound = (rules.spec.threshold or 0.0) if certain else math.inf
        return Choice(share, SafeSet(share, True), Bounds(index, bound, 0.0, 0.0, False), index)

    def opened(self, asked: Asked, decision: Decision) -> int:
        cap, stated, place = decision.prediction, asked.stated, self.count
        kept = (stated.protocol, stated.start, -math.inf, math.nan, cap.setting, cap.scale, cap.safe)
        history = self.histories.get(stated.group)
        if history is None:
            history = self.histories[stated.group] = ShieldHistory(self.rules)
        self.decided += 1
        inside = history.open(asked.vector, self.decided, kept)
        if stated.group:
            self.where.append((stated.group, inside))
        self.level.open()
        return place

    def _at(self, place: int) -> tuple[ShieldHistory, int]:
        """A round's group, and its place in it."""
        group, inside = self.where[place] if self.where else ("", place)
        return self.histories[group], inside

    def check_report(self, context: Array, round: int, place: int | None, decisions: int) -> None:
        """An outcome by context must fit the round it is taken for; rounds that it did not decide do not count."""
        rule = "has an outcome though no round is open; was it reported already?"
        way_out = "hp_shield learns from rounds that it decided"
        require(place is not None, "context", context.tolist(), rule, way_out)
        history, inside = self._at(int(place or 0))
        if not np.array_equal(history.contexts[inside], context):
            raise InvalidInput(
                f"context: is not that of round {round}, the oldest open one or the one you named, and hp_shield "
                "must know which it is; report the Decision itself, or round=..."
            )

    def learn(self, context: Array, norm: float, sample: Sample, place: int) -> None:
        """Where a cost is not known the round stays as it was opened, and tolerates nothing."""
        if place < 0:  # decided before the rounds were forgotten
            return
        costs = shield_options.costs_at(self.rules, self.costs, context)
        exceeded, known = shield_options.any_exceeded(costs, sample.measured), not sample.unknown
        history, inside = self._at(place)
        if known:
            limit = shield_options.tolerated(self.rules, costs, sample.measured, sample.applied)
            history.fill(inside, limit, sample.applied)
            self.samples += 1
            self.chooser.learn(context, sample)
            if history.learned:
                self._train(context, costs, sample, place)
        advised, start = (history.columns[name][inside] for name in ("advised", "start"))
        counts = (exceeded or known) and sample.applied <= advised
        self.level.tell(exceeded if counts else None, at_start=sample.applied <= start)
        self.watch.tell(place, self._told(costs, sample, place), self.count)

    def throttled(self, context: Array, sample: Sample, place: int, advised: float) -> None:
        """Tell the watch as if the advice had been applied, where no more was: it would have cost at least as much."""
        if place >= 0 and sample.applied <= advised:
            costs = shield_options.costs_at(self.rules, self.costs, context)
            self.watch.tell(place, self._told(costs, sample._replace(applied=advised), place), self.count)

    def _train(self, context: Array, costs: dict[str, Cost], sample: Sample, place: int) -> None:
        """Let the next base learn the setting that the round would likely have tolerated."""
        history, inside = self._at(place)
        protocol, start = history.columns["protocol"][inside], history.columns["start"][inside]
        middle = {name: self.middle.get(name) or middle_of(cost) for name, cost in costs.items()}
        likely = shield_options.tolerated(self.rules, middle, sample.measured, sample.applied)
        lesson = target(likely, sample.applied, protocol=protocol, start=start, end=history.end)
        history.ridge.add(context[None], np.array([[lesson, sample.reward]]), np.array([True]))
        if self.options["regressor"] is not None:
            history.lessons.append((inside, lesson))

    def _told(self, costs: dict[str, Cost], sample: Sample, place: int) -> Told:
        """What the round tells the watch: bounds on its tolerated scale under the protocol's base."""
        history, inside = self._at(place)
        columns, measured = history.columns, shield_options.by_name(sample.measured)
        protocol, played = columns["protocol"][inside], history.range(columns["start"][inside])
        upper, beyond = shown_by(costs, measured, sample.applied)
        if upper < sample.applied and self.rules.dose.cost.name != "identity":
            upper = sample.applied
        lower = tolerated_scale(columns["limit"][inside], protocol, played)
        return Told(lower, played.reach(upper) / protocol * RAISED, beyond and sample.applied <= played.start)

    def leave_out(self, place: int) -> None:
        if place < 0:
            return
        history, inside = self._at(place)
        history.leave_out(inside)
        self.level.tell(None)
        self.watch.tell(place, None, self.count)

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
        self.watch.afresh(self.count)

    def state(self) -> dict[str, Any]:
        counts = np.array((self.before, self.decided, self.samples), dtype=np.int64)
        arrays = {"counts": counts, **self.level.state(), **self.watch.state(), **self.chooser.state()}
        if self.options["group"] is None:
            return {**self.history.state(), **arrays}
        keys = list(self.histories)
        arrays["groups"] = np.array(keys, dtype=str)
        arrays["where"] = np.array([keys.index(group) for group, _ in self.where], dtype=np.int64)
        for number, kept in enumerate(self.histories.values()):
            arrays |= {f"group{number}_{name}": part for name, part in kept.state().items()}
        return arrays

    def restore(self, arrays: dict[str, Any]) -> None:
        self.before, self.decided, self.samples = arrays["counts"].tolist()
        self.level.restore(arrays)
        one, numbers = self.options["group"] is None, list(range(self.before + 1, self.decided + 1))
        (self.history.restore if one else self._restore_groups)(arrays, numbers)
        shield_options.check_functions(self.rules, self.histories)
        self.watch.restore(arrays)
        self.chooser.restore(arrays)

    def _restore_groups(self, arrays: dict[str, Any], numbers: list[int]) -> None:
        of, keys = arrays["where"].tolist(), arrays["groups"].tolist()
        own: list[list[int]] = [[] for _ in keys]
        self.where, self.histories = [], {}
        for group, number in zip(of, numbers, strict=True):
            self.where.append((keys[group], len(own[group])))
            own[group].append(number)
        for place, key in enumerate(keys):
            start = f"group{place}_"
            saved = {name[len(start) :]: part for name, part in arrays.items() if name.startswith(start)}
            self.histories[key] = ShieldHistory(self.rules)
            self.histories[key].restore(saved, own[place])
