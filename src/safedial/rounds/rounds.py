"""The life of a round, once: for an agent in memory, for a study with a log, and for a log that is walked again.

| status | by | the policy is told | learning | the watch | may become |
|---|---|---|---|---|---|
| open | a decision | nothing yet | takes it for the worst | as kept; unwatched after 200 more decisions | any |
| known | an outcome | KNOWN | yes, in its turn if it needs an order | as measured, at the advice | corrected, void |
| nothing given | no effect | LOST or LEFT_OUT | never | not watched | – |
| throttled | lowered because of its outcome | THROTTLED | never | its excess counts | corrected, void |
| void | a reason unrelated to the outcome | LEFT_OUT | never, without harm | as kept, unwatched | – |
| void | any other reason | LOST | never; ends it if it needs an order | as kept, unwatched | – |
| expired | an outcome that may still come | nothing yet | waits for it | unwatched until then | known, void |

A corrected round is replayed with its new values in its old place, so it is as if these had been reported at first. An
alarm that has fired stays until a person resumes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from safedial.model.namespace import Array
from safedial.rounds.decision import Decision, is_watched
from safedial.rounds.learning import Advice, Learning, pack_rounds, unpack_rounds
from safedial.rounds.outcome import Asked, Outcome, Round, Sample, for_the_watch, is_over, normalise, read_cost
from safedial.rounds.rules import Rules
from safedial.rounds.watch import COUNTS, FLAGS, Watch

PATIENCE = 200
"""A round that is still open after so many more decisions counts as unwatched until its outcome comes: otherwise who
leaves the outcomes that are feared open would hide more than who declares their rounds void.
"""


class Rounds:
    """The rounds that were decided under the same rules.

    Attributes:
        open, expired: the rounds without an outcome, by a key of the caller's, in order.
        ordered: outcomes wait until all earlier rounds have ended, where the policy needs an order.
        awaits_all: a round that gives nothing waits for its outcome too.
        rounds: how many were decided, those of earlier rules whose learning was kept included.
        void: how many ended without an outcome that teaches; `new_void` since that rule was resumed.
        outcomes, violations: how many outcomes counted, and how many of these were beyond the limit.
        broken: whether the data contradicted the spec at a decision.
        last_action: the last setting that was given, or advised if that was lower.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        ordered: bool = False,
        awaits_all: bool = False,
        level: float = 0.01,
        kept: Rounds | None = None,
    ) -> None:
        self.rules, self.ordered = rules, ordered
        self.awaits_all = awaits_all or rules.policy.zero_tells
        self.learning = Learning(rules) if kept is None else kept.learning
        self.watch = Watch(rules, self.learning, level)
        self.open: dict[int, Round] = {}
        self.expired: dict[int, Round] = {}
        self.rounds = self.imported = self.outcomes = self.violations = self.void = self.new_void = 0
        self.broken = False
        self.last_known, self.last_action = 0, rules.dial.low
        self._young: deque[tuple[int, int]] = deque()
        """The numbers and keys of rounds that were opened in the last `PATIENCE` decisions."""

    # --- a decision

    def advise(self, asked: Asked, **given: Any) -> tuple[Decision, Advice]:
        """The next decision, and what it was made from (`Learning.advise`). After another alarm too, a start that was
        refuted is no fallback.
        """
        if given.get("stop_reason") and self.watch.refuted:
            given["stop_reason"] = "start_refuted"
        return self.learning.advise(self.rules, asked, number=self.rounds + 1, **given)

    def decided(
        self, key: int, asked: Asked, decision: Decision, advice: Advice | None, *, at: int = 0, tag: str = ""
    ) -> None:
        """Open a decided round. Without `advice` the policy's state must not depend on decisions."""
        learning, given = self.learning, decision.intensity > 0.0
        place = learning.open(advice, decision)
        self.rounds += 1
        self.broken = self.broken or decision.fallback_reason == "assumption_broken"
        learning.count_start(decision.guarantee)
        masked = decision.limiter in ("mask", "cap") and not given
        waits = given or (self.awaits_all and not masked)
        if masked:
            learning.leave_out(place)
        elif not waits:
            learning.lose(place, decision.baseline_cost)
        if waits:
            watched = is_watched(decision.guarantee, given=given, counts=self.watch.counts)
            stated = decision.round, place, decision.action, decision.baseline_cost, watched
            round_ = Round(*stated, asked.vector, asked.norm, at, tag, given)
            self.open[key] = self.watch.guaranteed(round_) if given or self.rules.policy.zero_tells else round_
            self._young.append((self.rounds, key))
            if self.ordered:
                learning.queue.append(key)
        while self._young and self._is_old(self._young[0][0]):
            if (old := self.open.get(self._young.popleft()[1])) is not None:
                self.watch.unseen(old)
        self.watch.notice()

    def _is_old(self, number: int) -> bool:
        return number <= self.rounds - PATIENCE

    # --- what becomes of it

    def told(
        self, key: int, outcome: Outcome, *, throttled: bool = False, unrelated: bool = False, sample: Any = None
    ) -> None:
        """An outcome. `unrelated`: where nothing was given, or a cost is not known, the reason has nothing to do with
        the outcome. `sample` is the checked outcome, if it is known.
        """
        round_ = self._found(key)
        if throttled:
            self._throttled(key, round_, outcome)
            return
        sample = normalise(self.rules, outcome, round_.context) if sample is None else sample
        self._count(sample)
        nothing = sample.weight <= 0.0 or sample.unknown
        dropped = nothing and (unrelated or not self.rules.policy.zero_tells)
        if round_.given or self.rules.policy.zero_tells:
            self.watch.reported(round_, sample, round_.context, round_.norm, dropped=dropped)
        if not self.watch.counts:
            self.watch.count(round_, sample)
        if round_.number > self.last_known:
            self.last_known, self.last_action = round_.number, min(sample.applied, round_.action)
        if dropped and round_.given:
            self._lose(key, round_, unrelated=unrelated, counted=True)
        elif dropped:
            self._miss(round_, unrelated=unrelated)
        elif self.ordered:
            self.learning.held[key] = round_, sample, False
            self.learning.advance()
        else:
            self.learning.learn(round_.context, round_.norm, sample, round_.place)
        self.watch.notice()

    def gone(self, key: int, *, unrelated: bool, final: bool = True) -> None:
        """A round without an outcome: void, or, if it may still come, expired. One that is expired waits: going on
        without it would be learning from a selection.
        """
        if key not in self.open and not (final and key in self.expired):
            return
        round_ = self._found(key)
        if final or unrelated:
            self._lose(key, round_, unrelated=unrelated)
        else:
            self.expired[key] = round_
            self.void += 1
            self.new_void += 1
            self.watch.unseen(round_)
        self.watch.notice()

    def voided(self, key: int, outcome: Outcome, *, unrelated: bool) -> None:
        """A round that was declared void after its outcome was reported. A cost above the threshold still counts."""
        round_ = self._found(key)
        sample = self.unlearned(round_, outcome)
        over = self.watch.voided(round_, sample)
        if over:
            self._count(sample)
        self._lose(key, round_, unrelated=unrelated, counted=over)
        self.watch.notice()

    def learn_past(self, outcome: Outcome, vector: Array, norm: float) -> None:
        """Learn from a round from before the first decision."""
        self.learning.learn(vector, norm, normalise(self.rules, outcome, vector), None)
        self.imported += 1

    def unlearned(self, round_: Round, outcome: Outcome) -> Sample:
        """What the watch is told of an outcome from which nothing is learned."""
        return for_the_watch(self.rules, outcome.action, read_cost(self.rules.spec, outcome.cost), round_.baseline_cost)

    def orphan(self) -> None:
        """Let the open rounds teach nothing, because the policy has forgotten them."""
        for waiting in (self.open, self.expired):
            waiting |= {key: round_._replace(place=-1) for key, round_ in waiting.items()}

    def _found(self, key: int) -> Round:
        """A round that waits no longer. One that is expired is no longer missing, nor an old one unwatched."""
        if key in self.open:
            round_ = self.open.pop(key)
            if self._is_old(round_.number):
                self.watch.unseen(round_, -1)
            return round_
        round_ = self.expired.pop(key)
        self.void -= 1
        # One from before the last resume of the rule must not make up for a void after it.
        if key > self.void_from:
            self.new_void = max(0, self.new_void - 1)
        self.watch.unseen(round_, -1)
        return round_

    void_from = 0
    """The event at which the rule about void rounds was last resumed."""

    def _count(self, sample: Sample) -> None:
        over = is_over(self.rules, sample.measured)
        self.outcomes += 1
        self.violations += over
        self.judged(over)

    def judged(self, over: bool) -> None:
        """An outcome was counted, and is beyond the limit or not."""

    def _throttled(self, key: int, round_: Round, outcome: Outcome) -> None:
        """Nothing is learned from a setting that was lowered because of the outcome. A cost above the threshold still
        counts: the advised setting would have cost at least as much, unless more was applied.
        """
        sample = self.unlearned(round_, outcome)
        self._count(sample)
        self.watch.reported(round_, sample, round_.context, round_.norm, throttled=True)
        self.learning.throttled(round_.context, sample, round_.place)
        self._lose(key, round_, unrelated=False, counted=True)
        self.watch.notice()

    def _lose(self, key: int, round_: Round, *, unrelated: bool, counted: bool = False) -> None:
        """Skip a round without a usable outcome, or, if the reason may be related to the outcome, end learning where
        the policy needs an order. `counted`: the watch has counted it already.
        """
        # Why this can end learning: the bounds are proved for a run of rounds without gaps. Rounds that are missing
        # because of their outcomes (a patient who fell ill stays away) would bias the estimate towards safety,
        # unnoticed.
        self.void += 1
        self.new_void += 1
        if not counted:
            self.watch.unseen(round_)
        if self.ordered:
            self.learning.held[key] = round_, None, not unrelated
            self.learning.advance()
        else:
            self._miss(round_, unrelated=unrelated)

    def _miss(self, round_: Round, *, unrelated: bool) -> None:
        """Let the policy leave a round out, or take it for the worst."""
        if unrelated:
            self.learning.leave_out(round_.place)
        else:
            self.learning.lose(round_.place, 0.0 if round_.given else round_.baseline_cost, given=round_.given)

    # --- saving

    def packed(self, *, learned: bool = True) -> tuple[dict[str, Any], dict[str, Any]]:
        """(plain values, arrays), from which `restore` makes it again, bit for bit; what was `learned` too."""
        plain = {name: getattr(self, name) for name in PLAIN}
        plain |= {name: getattr(self.watch, name) for name in (*FLAGS, *COUNTS)}
        arrays = {"monitor": self.watch.packed()}
        for name, rounds in (("open", self.open), ("expired", self.expired)):
            arrays |= pack_rounds(name, rounds, self.rules.dim)
        if learned:
            arrays |= {f"learning.{name}": value for name, value in self.learning.state().items()}
        return plain, arrays

    def restore(self, plain: Mapping[str, Any], arrays: Mapping[str, Any], *, learned: bool = True) -> None:
        """The inverse of `packed`."""
        for name in PLAIN:
            setattr(self, name, plain[name])
        for name in (*FLAGS, *COUNTS):
            setattr(self.watch, name, plain[name])
        self.watch.unpack(arrays["monitor"])
        self.open, self.expired = unpack_rounds("open", arrays), unpack_rounds("expired", arrays)
        young = ((round_.number, key) for key, round_ in self.open.items())
        self._young = deque(each for each in young if not self._is_old(each[0]))
        if learned:
            head = "learning."
            mine = {name.removeprefix(head): value for name, value in arrays.items() if name.startswith(head)}
            self.learning.restore(mine)


PLAIN = (
    *("rounds", "imported", "outcomes", "violations", "void", "new_void", "void_from"),
    *("broken", "last_known", "last_action"),
)
"""The plain values of rounds that are saved."""
