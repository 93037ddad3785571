"""The rounds of an agent, in memory: decided, open until their outcome is reported, watched and learned from.

All state of an `Agent` changes here. Arguments were checked before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safedial.core.rounding import rounded_spec
from safedial.decision.decide import decide, intensity_of
from safedial.decision.decision import Decision
from safedial.decision.learners.kinds import make_learner
from safedial.decision.outcome import Sample, check_past
from safedial.decision.rounds import Asked, Round, Vector
from safedial.decision.rules import Rules
from safedial.decision.watch import Watch
from safedial.errors import require

OPEN_LIMIT = 100_000
"""Open decisions that are kept; older ones can be reported only by context and action."""


class InMemoryRounds:
    """A learner, its watch, and the open rounds."""

    def _start(self, rules: Rules, seed: Any) -> None:
        """Start with nothing learned and nothing decided."""
        whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
        require(whole and seed >= 0, "seed", seed, "must be a whole number >= 0")
        self._rules, self._safe_spec = rules, rounded_spec(rules.spec)
        self._learner: Any = make_learner(rules)
        self._watch, self._stop_reason = Watch(rules, self._learner), ""
        self._open: dict[int, Round] = {}
        self._decisions = self._expected = 0
        self._frozen = False
        self._seed, self._rng = int(seed), np.random.default_rng(int(seed))

    def _decide(self, asked: list[Asked]) -> list[Decision]:
        """Decide each of these rounds, all from what is known now."""
        self._learner.begin()
        if self._learner.watches_itself:
            self._notice()
        return [self._decide_one(each) for each in asked]

    def _decide_one(self, asked: Asked) -> Decision:
        learner, coin = self._learner, self._rng.random() if self._rules.policy.randomised else 0.5
        decision = self._advise(asked, self._predict(asked), coin)
        self._decisions += 1
        if learner.starts is not None:
            learner.count_start(decision.promise)
        watched = decision.certified and decision.intensity > 0.0 and not learner.watches_itself
        place = learner.opened(asked, decision) if learner.reads_questions else learner.open(asked.vector)
        self._open[self._decisions] = Round(self._decisions, place, decision.action, asked.baseline_cost, watched)
        if len(self._open) > OPEN_LIMIT:
            self._expect()
            del self._open[next(iter(self._open))]
        return decision

    def _predict(self, asked: Asked, *, preview: bool = False) -> Any:
        learner = self._learner
        if learner.reads_questions:
            return learner.ask(asked, preview=preview)
        return (learner.foresee if preview else learner.predict)(asked.vector, asked.norm)

    def _advise(self, asked: Asked, prediction: Any, coin: float = 0.5) -> Decision:
        number, stop_reason = self._decisions + 1, self._stop_reason
        rules, spec, learner = self._rules, self._safe_spec, self._learner
        return decide(rules, spec, learner, prediction, asked, number=number, coin=coin, stop_reason=stop_reason)

    def _notice(self) -> None:
        """Stop if the watch or the learner's own evidence has reached its limit."""
        if self._learner.watches_itself:
            self._watch.notice()
        if not self._stop_reason and (self._watch.crossed or self._watch.noisy):
            self._stop_reason = self._watch.due

    def _expect(self) -> None:
        """Let the watch count the decisions since the last call. `decide` leaves this undone to be fast."""
        for number in range(self._expected + 1, self._decisions + 1):
            round_ = self._open[number]
            if round_.watched or self._gives(round_):
                self._open[number] = self._watch.promised(round_)
        self._expected = self._decisions

    def _gives(self, round_: Round) -> bool:
        return intensity_of(self._rules, round_.action) > 0.0

    def _number_of(self, vector: Vector, round: int | None) -> int:
        """The open round of an outcome that is reported by its context; 0 for history."""
        if round is not None:
            require(round in self._open, "round", round, "is not open: unknown, reported already, or too old")
        number = next(iter(self._open), 0) if round is None else int(round)
        self._check_open(vector, number)
        return number

    def _check_open(self, vector: Vector, number: int, sample: Sample | None = None) -> None:
        round_ = self._open.get(number)
        self._learner.check_report(vector, number, round_.place if round_ else None, self._decisions)
        if sample is not None and not number:
            check_past(self._rules, sample)

    def _learn(
        self, vector: Vector, norm: float, sample: Sample, number: int, *, unrelated: bool | None = None
    ) -> None:
        """Watch the outcome of round `number` (0: history), and learn from it.

        `unrelated` says whether the reason for a withheld dose, or a lost outcome, has nothing to do with the outcome;
        None: not stated.
        """
        if not number:
            check_past(self._rules, sample)
        self._expect()
        learner, round_ = self._learner, self._open.pop(number, None)
        nothing = round_ is not None and (sample.intensity == 0.0 or sample.unknown)
        if round_ is not None:
            gives = round_.watched or self._gives(round_)
            if learner.watches_itself:
                self._watch.count(round_, sample)
            elif gives:
                self._watch.reported(round_, sample, vector, norm)
            withheld = gives and nothing and unrelated is False
            self._frozen = self._frozen or (withheld and learner.in_order and self._rules.policy.learns)
            unrelated = unrelated or (learner.leaves_own_zeros and not gives and not sample.unknown)
        if round_ is not None and nothing and unrelated and round_.place is not None:
            learner.leave_out(round_.place)
        elif not self._frozen:
            learner.learn(vector, norm, sample, round_.place if round_ else None)
        self._notice()
