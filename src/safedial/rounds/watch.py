"""The watch over an agent or a study: evidence that the guarantee is broken (bounds.monitor), or that the noise is
larger than stated (bounds.monitor).

It never waits for an outcome. A round counts as kept from its decision on, and is revised when its outcome is known. So
open, void, expired and late rounds, whatever the reason, only lower the evidence, which stays valid (bounds.monitor),
and they hide nothing that was reported. A round without a dose does not count. If more was applied than advised, the
cost that the advised setting would have had counts (`cost_at_advice`). A throttled round counts if its cost exceeds the
threshold in spite of the throttle. A resume starts a new product over the rounds decided after it: rounds that are open
at a resume may be open because of their outcomes. The product over the earlier rounds goes on from 1 with their late
excesses, and stops too: it was divided by what it had reached, so it errs less than it would have.

**The declared start.** A setting that is declared safe exceeds with probability at most δ in each round. So a product
of the same kind runs over all decided rounds, whatever was guaranteed in them: a cost above the threshold at the start
or below counts as an excess, because costs grow with the setting, every other outcome as kept. It rests on no round
that was learned from, so it survives when earlier rounds are forgotten. (HP-Shield, whose start may be one for each
round, keeps it among its bets.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from safedial.bounds import monitor
from safedial.model.namespace import Array
from safedial.rounds.learning import Learning
from safedial.rounds.outcome import (
    Round,
    Sample,
    allowed_risk,
    cost_at_advice,
    counted_from,
    exceeds,
    is_over,
    judges,
)
from safedial.rounds.rules import Rules

FLAGS = ("crossed", "noisy", "tails", "refuted")
COUNTS = ("unwatched", "new_unwatched", "new_watched", "unwatched_from", "watched_from", "tails_from", "start_from")
"""A watch's other values; a study's snapshot and a save file keep them under these names."""


class Watch:
    """What the outcomes of rounds say about their guarantee; `level` bounds the chance of any false alarm.

    A policy whose counted violations are no evidence has evidence of its own; its violations are then only counted.

    `monitor`, `earlier` (of the rounds before the last resume), `tails` and `starts` hold the evidence; `crossed`,
    `noisy` and `refuted` say whether it ever reached its limit. `start` is the setting that was declared safe.
    `unwatched` counts the rounds with a guarantee that ended without an outcome to count; `new_unwatched` of
    `new_watched` count since that rule was resumed. Each `…_from` is the last round before a resume.
    """

    def __init__(self, rules: Rules, learning: Learning, level: float = 0.01) -> None:
        self.rules, self.learning, self.level = rules, learning, level
        self.counts = rules.policy.counts
        self.specs = [rules.spec] if rules.parts is None else [part.spec for part in rules.parts.values()]
        self.start = None if "start_refuted" in rules.policy.stop_rules else rules.start_action
        self.monitor, self.earlier, self.starts = (monitor.init() for _ in range(3))
        self.tails = [0.0] * (1 + len(self.specs))
        self.crossed = self.noisy = self.refuted = False
        self.unwatched = self.new_unwatched = self.new_watched = 0
        self.unwatched_from = self.watched_from = self.tails_from = self.start_from = 0

    @property
    def evidence(self) -> float:
        """Evidence that the guarantee is broken, or that rounds are not exchangeable: starts at 1; 1/level stops."""
        own = self.learning.evidence
        if own is not None:
            return own
        late = float(monitor.evidence(self.earlier)) if self.earlier.violations else 0.0
        return max(late, float(monitor.evidence(self.monitor)))

    @property
    def start_evidence(self) -> float | None:
        """Evidence that the declared start exceeds more often than the risk: starts at 1; 100 stops. None: no start."""
        if self.start is None:
            return self.learning.start_evidence
        return float(monitor.evidence(self.starts))

    @property
    def noise_evidence(self) -> float:
        """Evidence that the noise is larger than stated: starts at 1; 2/level stops (for k costs, (k + 1)/level)."""
        return math.exp(max(self.tails))

    @property
    def due(self) -> str:
        """The rule that has fired: a key of `LIMITS`, or ""."""
        return next(self.fired(), "")

    def fired(self) -> Iterator[str]:
        """The rules that have fired."""
        if self.refuted:
            yield "start_refuted"
        if self.crossed:
            yield "alarm" if self.counts else self.learning.stop_rule or self.rules.policy.stop_rules[0]
        if self.noisy:
            yield "noise_broken"

    def notice(self) -> None:
        """Record an alarm of the policy's own evidence."""
        if not (self.counts or self.crossed):
            self.crossed = self.learning.stop_rule != ""

    def guaranteed(self, round_: Round) -> Round:
        """Count a decided round as kept. Returns the round, no longer watched if it can prove nothing."""
        if self.start is not None and (risk := self.allowed(round_)) is not None:
            self.starts = monitor.update(self.starts, False, risk)
        if not self.counts:
            self.new_watched += round_.watched
            return round_
        self.tails = monitor.expect(self.tails)
        if not round_.watched:
            return round_
        allowed = self.allowed(round_)
        if allowed is None:
            return round_._replace(watched=False)
        self.new_watched += 1
        self.monitor = monitor.update(self.monitor, False, allowed)
        return round_

    def allowed(self, round_: Round) -> float | None:
        """The chance that a round may exceed any of its thresholds; None if its outcome can prove nothing."""
        allowed = 0.0
        for spec in self.specs:
            risk = allowed_risk(spec, round_.baseline_cost, float(round_.number))
            if risk is None:
                return None
            allowed += risk
        return min(allowed, 1.0)

    def reported(
        self,
        round_: Round,
        sample: Sample,
        context: Array,
        norm: float,
        *,
        throttled: bool = False,
        dropped: bool = False,
    ) -> None:
        """Compare a reported outcome with the guarantee and the stated noise, whatever other rounds are open.
        `dropped`: the policy takes nothing from it.
        """
        self._judge_start(round_, sample)
        if not self.counts:
            shows = _throttled_judges if throttled else judges
            hidden = (dropped or round_.number <= self.watched_from) and self._hides(round_, sample)
            if round_.watched and (hidden or not shows(self.rules, sample, round_.action)):
                self.unseen(round_)
            return
        scatters = sample.weight > 0.0 and round_.number > self.tails_from
        parts = self._parts(sample) if scatters or round_.watched else []
        if scatters:
            self._observe(parts, context, norm)
        over = self._exceeds(round_, sample, parts, throttled=throttled)
        if over is None:
            self.unseen(round_)
        elif over:
            name = "monitor" if round_.number > self.watched_from else "earlier"
            setattr(self, name, monitor.revise(getattr(self, name)))
            self.crossed = self.crossed or bool(monitor.alarm(getattr(self, name), self.level))

    def _judge_start(self, round_: Round, sample: Sample) -> None:
        """Count a cost above the threshold, at the declared start or below, against that start."""
        if self.start is None or sample.applied > self.start or round_.number <= self.start_from:
            return
        if self.allowed(round_) is not None and is_over(self.rules, sample.measured):
            self.starts = monitor.revise(self.starts)
            self.refuted = self.refuted or bool(monitor.alarm(self.starts))

    def exceeded(self, round_: Round, sample: Sample, *, throttled: bool = False) -> bool:
        """Whether an outcome shows that a round exceeded its threshold at the advised setting."""
        if not self.counts:
            return exceeds(self.rules, sample, round_.action)
        return bool(self._exceeds(round_, sample, self._parts(sample), throttled=throttled))

    def _parts(self, sample: Sample) -> list[tuple[Rules, str, Sample]]:
        """The known costs of an outcome, each with its rules and the beginning of the names of its numbers."""
        if self.rules.parts is None:
            return [(self.rules, "", sample)]
        return [(self.rules.parts[name], f"{name}.", part) for name, part in sample.cost.items()]

    def _exceeds(self, round_: Round, sample: Sample, parts: list[Any], *, throttled: bool = False) -> bool | None:
        """Whether a watched round exceeded its threshold; None if its outcome does not show it."""
        if not round_.watched:
            return False
        advised_cost, over, unclear = _throttled_cost if throttled else cost_at_advice, False, sample.unknown
        for rules, _, part in parts:
            cost, limit = advised_cost(rules, part, round_.action), rules.spec.threshold
            unclear = unclear or cost is None
            over = over or (cost is not None and cost > limit and cost > counted_from(rules.spec, float(round_.number)))
        return None if unclear and not over else over

    def _hides(self, round_: Round, sample: Sample) -> bool:
        """Whether an excess leaves the evidence, or may do so, where a policy with evidence of its own drops its round.
        It is not bet on: of the rounds that are left out, those that exceed are a selection.
        """
        return sample.unknown or exceeds(self.rules, sample, round_.action)

    def count(self, round_: Round, sample: Sample) -> None:
        """Count an outcome for display, where violations are not the evidence."""
        over = exceeds(self.rules, sample, round_.action)
        seen = self.monitor
        self.monitor = seen._replace(rounds=seen.rounds + 1.0, violations=seen.violations + float(over))

    def voided(self, round_: Round, sample: Sample) -> bool:
        """Keep a cost above the threshold in the evidence though its round is now void. Returns whether it was one.

        The round was decided and its outcome is known, so the product stays valid, and a void cannot hide a violation.
        A wrongly reported outcome is corrected instead. Where the policy has evidence of its own, the round counts as
        unwatched.
        """
        if not (round_.watched and exceeds(self.rules, sample, round_.action)):
            self._judge_start(round_, sample)
            return False
        self.reported(round_, sample._replace(weight=0.0), round_.context, round_.norm, dropped=True)
        return True

    def unseen(self, round_: Round, count: int = 1) -> None:
        """Count a round that ended without a usable outcome; `count` is −1 if the outcome came after all."""
        if round_.watched:
            self.unwatched += count
            self.new_unwatched += count * (round_.number > self.unwatched_from)

    def judge(self, level: float) -> None:
        """From now on `level` bounds the chance of a false alarm; the evidence so far is judged by it too."""
        self.level = level
        if self.counts:
            self.crossed = self.crossed or bool(monitor.alarm(self.monitor, level))
            self.noisy = self.noisy or self._is_noisy()

    def _is_noisy(self) -> bool:
        largest = max(self.tails)
        return largest > 0.0 and bool(monitor.tails_alarm(largest, self.level / len(self.tails)))

    def resumed(self, rule: str, rounds: int) -> None:
        """After `rounds` decisions, restart what this rule watches, and nothing else."""
        if rule == "start_refuted" and self.start is not None:
            self.starts, self.refuted, self.start_from = monitor.init(), False, rounds
        elif rule == "alarm":
            both = self.earlier.log_evidence + self.monitor.log_evidence
            reached = max(0.0, math.log(monitor.evidence(monitor.Monitor(both, 0.0, 0.0))))
            self.earlier = monitor.Monitor(both - reached, 0.0, 0.0)
            self.monitor, self.crossed, self.watched_from = monitor.init(), False, rounds
        elif rule in self.rules.policy.stop_rules:
            self.crossed = False
        elif rule == "noise_broken":
            self.tails, self.noisy, self.tails_from = [0.0] * len(self.tails), False, rounds
        elif rule == "too_many_unwatched":
            self.new_unwatched, self.new_watched, self.unwatched_from = 0, 0, rounds

    def _observe(self, parts: list[Any], context: Array, norm: float) -> None:
        """Compare the residuals of an outcome's parts with the stated noise. An estimate raised by rounding is not
        noise.
        """
        found = list(self.tails)
        for place, (rules, of, part) in enumerate(parts, start=1):
            seen = self.learning.residuals(context, norm, part, of)
            if seen is None:
                return
            reward, reward_slack, cost, cost_slack, raised = seen
            if place == 1:
                found[0] = monitor.observe(found[0], reward, reward_slack, rules.spec.reward_noise)
            found[place] = monitor.observe(found[place], cost, cost_slack + raised, rules.spec.cost_noise)
        self.tails = found
        self.noisy = self.noisy or self._is_noisy()

    def packed(self) -> Any:
        """The products as an array, for a snapshot or a save file."""
        kept = (self.monitor, self.earlier, self.starts)
        return np.stack([np.append(each.log_evidence, [each.rounds, each.violations]) for each in kept])

    def unpack(self, seen: Any) -> None:
        """Restore the products."""
        kept = (monitor.Monitor(np.array(logs), rounds, violations) for *logs, rounds, violations in seen)
        self.monitor, self.earlier, self.starts = kept


def _throttled_judges(rules: Rules, sample: Sample, advised: float) -> bool:
    """Whether a throttled cost shows that the advised setting would have exceeded the threshold: it exceeded the
    threshold itself, at no more than the advice, and not because of sensor error.
    """
    spec = rules.spec
    sensors = spec.threshold_on == "measured" and spec.cost_sensor_noise > 0.0
    return is_over(rules, sample.measured) and sample.applied <= advised and not sensors


def _throttled_cost(rules: Rules, sample: Sample, advised: float) -> float | None:
    """`cost_at_advice` for a throttled round."""
    return sample.measured if _throttled_judges(rules, sample, advised) else None
