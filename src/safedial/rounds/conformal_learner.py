"""HP-Conformal online: rounds that may be open, refits by count, and a bet on every p-value.

A decision opens a round; its outcome may come late or never. The first decision after the rounds have grown by a tenth
refits, with every outcome reported by then: the time of a refit depends only on the number of rounds. Bets are placed
in decision order. In order of report, bad outcomes that come late would look like a drift.

The rank of a calibration round's score among those of the earlier rounds of its group gives a p-value
(`bounds.ranks.p_value`). While the outcome of a round is not known, because it is open, void, expired or throttled,
its own p-value counts as 1, and for later rounds it scores +∞. In a throttled round the advised setting would have cost
at least what was measured: its p-value is that of the least score it may have. All of this only raises p-values, and
all bets fall with p, so the evidence stays below what all true scores would give, whatever the missing ones depend on.

So bets do not wait: behind an open round they go on from a copy, and are repeated when its outcome comes. Each round is
bet on under the predictors in force when it is older than `lag`, whatever is late: a refit, and `PATIENCE` rounds, end
that, and a round that is still open by then is never ranked. Its outcome then counts only in later ranks.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safedial.bounds import ranks
from safedial.bounds.choice import Choice
from safedial.bounds.ranks import p_value, places
from safedial.model.namespace import Array
from safedial.policies.conformal import Outlook
from safedial.policies.conformal_rounds import Frozen, Rounds, score
from safedial.rounds import conformal_terms
from safedial.rounds.conformal_terms import OFF
from safedial.rounds.learner import Learner
from safedial.rounds.outcome import Sample, check_reported, least_quotient

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules

PATIENCE = 200
"""How many rounds beyond the lag an open round may still be bet on."""


class Ranked(NamedTuple):
    """The capital, and what later rounds are ranked among: each group's known scores, sorted, and how many others."""

    capital: Any
    scores: dict[int, Array]
    unbounded: dict[int, int]


class ConformalBets:
    """`next` is the first round whose bet may still change; `throttled` has the least C/g of throttled rounds."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.next, self.throttled = 0, dict[int, float]()
        self._ranked = self._ahead = Ranked(ranks.init(), {}, {})
        self._end = 0

    @property
    def evidence(self) -> float:
        return float(ranks.evidence(self._ahead.capital))

    def refit(self, rounds: Rounds) -> None:
        """Refit the predictors, and rank the earlier rounds under them."""
        self._settle(rounds, last=rounds.count - rounds.setup.lag, wait=False)
        rounds.refit()
        self.throttled = {number: least for number, least in self.throttled.items() if number >= rounds.dropped}
        self.next = max(self.next or rounds.fitted, rounds.dropped)
        self.sort(rounds)

    def told(self, rounds: Rounds, place: int) -> None:
        """The outcome of a round is known now, or the round was left out."""
        if rounds.frozen is None:
            return
        if place < self.next:
            self.sort(rounds)
            return
        before = self.next
        self._settle(rounds, last=rounds.count - rounds.setup.lag, wait=True)
        self._look_ahead(rounds, anew=self.next > before or place < self._end)

    def restart(self, rounds: Rounds) -> None:
        """Begin the evidence anew, with the next decision."""
        rounds.capital, rounds.alarmed = ranks.init(), False
        self._ranked = self._ranked._replace(capital=rounds.capital)
        if rounds.frozen:
            self.next = rounds.count
            self.sort(rounds)

    def _settle(self, rounds: Rounds, *, last: int, wait: bool) -> None:
        """Place the bets that no later outcome changes."""
        if rounds.frozen is None:
            return
        while self.next < last:
            if wait and self.next >= last - PATIENCE and self._cost(rounds, self.next) == math.inf:
                return
            self._ranked = self._bet(rounds, self._ranked, self.next)
            rounds.capital = self._ranked.capital
            self.next += 1

    def _look_ahead(self, rounds: Rounds, *, anew: bool) -> None:
        """Bet on the reported rounds behind an open one, from a copy."""
        if anew:
            self._ahead, self._end = self._ranked, self.next
        count = rounds.count - rounds.setup.lag
        known = np.isfinite(rounds.cost[self.next - rounds.dropped : count - rounds.dropped])
        places = [*(self.next + np.flatnonzero(known)[-1:]).tolist(), *self.throttled]
        last = max((place + 1 for place in places if place < count), default=0)
        for place in range(self._end, last):
            self._ahead = self._bet(rounds, self._ahead, place)
        self._end = max(self._end, last)

    def _cost(self, rounds: Rounds, place: int) -> float | None:
        """C/g of a round, at least; ∞ while it is not known, None for one that does not calibrate."""
        if place in rounds.left or not rounds.calibrates(np.int64(place)):
            return None
        return self.throttled.get(place, float(rounds.cost[place - rounds.dropped]))

    def _bet(self, rounds: Rounds, ranked: Ranked, place: int) -> Ranked:
        """Rank the score of a round among its group's earlier ones, and bet."""
        cost, frozen, throttled = self._cost(rounds, place), rounds.frozen, place in self.throttled
        if cost is None or frozen is None:
            return ranked
        context = rounds.context[place - rounds.dropped]
        row = context[None, :]
        code = int(rounds.code(context, frozen.reward(row)[0]))
        before, unbounded = ranked.scores.get(code, np.empty(0)), ranked.unbounded.get(code, 0)
        new = score(np.array([cost]), frozen.cost(row))[0]
        capital, scores = ranked.capital, ranked.scores
        chance = 1.0 if cost == math.inf else p_value(before, new, unbounded=unbounded)
        capital = ranks.update(capital, chance)
        rounds.alarmed = rounds.alarmed or bool(ranks.alarm(capital))
        hidden = throttled or cost == math.inf
        if not hidden:
            scores = {**scores, code: np.insert(before, np.searchsorted(before, new), new)}
        return Ranked(capital, scores, {**ranked.unbounded, code: unbounded + hidden})

    def sort(self, rounds: Rounds) -> None:
        """Rank the settled rounds under the frozen predictors, and look ahead anew."""
        frozen = rounds.frozen
        if frozen is None:
            self._ranked = self._ahead = Ranked(rounds.capital, {}, {})
            return
        numbers = np.arange(rounds.dropped, self.next)
        numbers = numbers[rounds.calibrates(numbers) & ~np.isin(numbers, list(rounds.left))]
        places = numbers - rounds.dropped
        rows, cost = rounds.context[places], rounds.cost[places]
        hidden = ~np.isfinite(cost)
        scores = score(cost, frozen.cost(rows))
        codes = rounds.code(rows, frozen.reward(rows))
        known = np.isfinite(scores)
        kept = {int(code): np.sort(scores[known & (codes == code)]) for code in np.unique(codes)}
        unbounded = {int(code): int(np.sum(codes[hidden] == code)) for code in np.unique(codes[hidden])}
        self._ranked = self._ahead = Ranked(rounds.capital, kept, unbounded)
        self._look_ahead(rounds, anew=True)


# --- HP-Conformal online: rounds that may be open, refits by count, and a bet on every p-value


class View(NamedTuple):
    """What a decision keeps of its prediction: plain values, and the group sizes at the last refit.

    The last four are None under rules without the guards of `hp_conformal`. `starts` counts the earlier decisions at
    the start dose; `tenth` is the 10th largest applied intensity with a known outcome. If there is no bound, `unknown`
    counts the scores without an outcome among those it would use, and, if too many costs are tied, `ties` is the
    group's commonest measured cost, how many rounds have it, and how many are known.
    """

    reward: float
    cost: float
    norm: float
    code: int
    label: Any
    sizes: Any
    rounds: int
    known: int
    fitted: int
    starts: int | None = None
    unknown: int | None = None
    tenth: float | None = None
    ties: list[float] | None = None

    @property
    def informative_rounds(self) -> int:
        """The rounds that the predictors were fitted to."""
        return self.fitted


class ConformalLearner(Learner):
    """The rounds of one learner and what is known about them."""

    certificate_terms = conformal_terms
    in_order, watches_itself = False, True
    started: Any = staticmethod(conformal_terms.started)
    check_study: Any = staticmethod(conformal_terms.check_levels)
    same_option: Any = staticmethod(conformal_terms.same_option)
    with_saved: Any = staticmethod(conformal_terms.with_saved)
    guarded: Any = staticmethod(conformal_terms.guarded)
    statement: Any = staticmethod(conformal_terms.statement)
    fallback_note: Any = staticmethod(conformal_terms.compared)

    def __init__(self, rules: Rules) -> None:
        self.policy, self.dim, self.ridge = rules.policy, rules.dim, rules.spec.ridge
        self.rules = rules
        self.risk, self.bets = rules.spec.violation_risk, ConformalBets()
        self.rounds: Rounds = self.policy.init(self.dim, ridge=self.ridge)
        self._guarded = any(self.policy.options.get(name, off) != off for name, off in OFF.items())
        self.samples = self.starts = 0

    @classmethod
    def least_setting(cls, rules: Rules) -> float | None:
        return None if rules.policy.options.get("least_dose") is None else rules.dial.lowest_level

    @classmethod
    def start_limit(cls, decision: Decision) -> str:
        if math.isfinite(decision.choice.bounds.cost_upper):
            return ""
        return "no_information" if decision.prediction.ties else "start_dose"

    @classmethod
    def written(cls, prediction: View) -> dict[str, Any]:
        """Without the guards' values where they are None."""
        silent = {name for name in View._field_defaults if getattr(prediction, name) is None}
        values = {name: value for name, value in prediction._asdict().items() if name not in silent}
        return {**values, "sizes": prediction.sizes.tolist()}

    @classmethod
    def read_written(cls, rules: Rules, values: Mapping[str, Any]) -> View:
        return View(**{**values, "sizes": np.array(values["sizes"], dtype=np.int64)})

    @classmethod
    def history_counts(cls, rules: Rules) -> bool:
        return rules.policy.options.get("history") != "train"

    def begin(self) -> None:
        """Refit if one is due: before a decision, never after, so that no decision uses its own round."""
        if self.rounds.count >= self.rounds.next_fit:
            self.bets.refit(self.rounds)

    def predict(self, context: Array, norm: float) -> Outlook:
        return self.policy.predict(self.rounds, context)

    def foresee(self, context: Array, norm: float) -> Outlook:
        """`predict` after the refit that the next decision would start with; the refit is not kept."""
        rounds = self.rounds
        if rounds.count >= rounds.next_fit:
            rounds = copy.copy(rounds)
            rounds.refit()
        return self.policy.predict(rounds, context)

    def view(self, prediction: Outlook, choice: Choice) -> tuple[View, Choice]:
        """The prediction and the choice as plain values that later rounds do not change."""
        outlook = prediction
        rounds, frozen = outlook.rounds, outlook.rounds.frozen
        label = None if rounds.setup.group is None else rounds.name_of(outlook.context)
        seen = View(
            outlook.reward,
            float(outlook.context @ frozen.coef) if frozen else outlook.cost,
            outlook.norm,
            outlook.code,
            label,
            frozen.sizes if frozen else np.zeros(1, dtype=np.int64),
            rounds.count,
            self.samples,
            rounds.fitted,
        )
        if self._guarded:
            seen = seen._replace(starts=self.starts, tenth=rounds.tenth)
            if frozen and not np.isfinite(choice.bounds.cost_upper):
                seen = self._without_bound(seen, frozen)
        return seen, choice

    def _without_bound(self, seen: View, frozen: Frozen) -> View:
        """Why there is no bound: unknown outcomes, or tied costs."""
        group = min(seen.code, len(frozen.sizes) - 1)
        kept, _ = places(frozen.sizes[group], self.risk)
        ties = None
        if frozen.ties is not None and frozen.ties.found[group]:
            ties = [part[group].item() for part in frozen.ties]
        return seen._replace(unknown=frozen.unknown(group, int(kept)), ties=ties)

    def open(self, context: Array) -> int:
        return self.rounds.append(context, 0.0, np.inf)

    def check_report(self, context: Array, round: int, place: int | None, decisions: int) -> None:
        row = -1 if place is None else place - self.rounds.dropped
        kept = self.rounds.context[row] if row >= 0 else None
        check_reported(self.policy.name, context, kept, round=round, decisions=decisions)

    def learn(self, context: Array, norm: float, sample: Sample, place: int | None) -> None:
        """Learn from the outcome of the open round at `place`, or of a round from before the first decision (None)."""
        rounds, number = self.rounds, place
        if number is None:
            number = self.open(context)
            rounds.history = rounds.count if rounds.setup.trains_only else 0
        if sample.weight > 0.0 and number >= rounds.dropped:
            measured = sample.measured - sample.baseline_cost
            rounds.fill(number, sample.reward, sample.cost, measured=measured, intensity=sample.intensity)
            self.samples += 1
            self.bets.told(rounds, number)

    def leave_out(self, place: int) -> None:
        """The open round at `place` has no outcome, for an unrelated reason."""
        self.rounds.leave_out(place)
        self.bets.told(self.rounds, place)

    def throttled(self, context: Array, sample: Sample, place: int, advised: float) -> None:
        least = least_quotient(self.rules, sample, advised)
        if least > -math.inf and place >= self.bets.next:
            self.bets.throttled[place] = least
            self.bets.told(self.rounds, place)

    @property
    def evidence(self) -> float:
        return self.bets.evidence

    @property
    def alarmed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        """Whether the evidence has reached 100 since the watch began."""
        return bool(self.rounds.alarmed)

    def restart_evidence(self) -> None:
        self.bets.restart(self.rounds)

    def forget(self) -> None:
        """Start again without rounds, after a change that made the earlier ones useless."""
        self.rounds = self.policy.init(self.dim, ridge=self.ridge)
        self.bets.forget()
        self.samples = 0

    def coef(self, target: str) -> Array:
        """The predictor's coefficients: its predictions at the unit vectors."""
        frozen = self.rounds.frozen
        if frozen is None:
            return np.zeros(self.dim)
        return (frozen.reward if target == "reward" else frozen.cost)(np.eye(self.dim))

    def state(self) -> dict[str, Any]:
        """The arrays to save; `restore` reads them and repeats the last refit."""
        rounds = self.rounds
        here = rounds.count - rounds.dropped
        counts = (rounds.count, rounds.dropped, rounds.fitted, rounds.next_fit, self.samples, self.bets.next)
        parts = {name: getattr(rounds, name)[:here] for name in rounds.columns}
        if self._guarded:
            parts["tried"] = np.array(rounds.tried, dtype=np.float64)
            parts["guards"] = np.array((rounds.history, self.starts), dtype=np.int64)
        if self.bets.throttled:
            parts["throttled"] = np.array(sorted(self.bets.throttled.items()), dtype=np.float64)
        if rounds.left:
            parts["left"] = np.array(sorted(rounds.left.items()), dtype=np.int64)
        return {
            **parts,
            "known": rounds.known,
            "scalars": np.array(counts, dtype=np.int64),
            "labels": np.array(json.dumps(list(rounds.labels))),
            "capital": np.append(rounds.capital.held, rounds.capital.seen),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        rounds = self.rounds
        for name in rounds.columns:
            setattr(rounds, name, arrays[name].copy())
        if self._guarded:
            rounds.tried = arrays["tried"].tolist()
            rounds.history, self.starts = (int(value) for value in arrays["guards"])
        self.bets.throttled = {int(number): float(least) for number, least in arrays.get("throttled", ())}
        rounds.left = {int(number): bool(known) for number, known in arrays.get("left", ())}
        counts = (int(value) for value in arrays["scalars"])
        rounds.count, rounds.dropped, rounds.fitted, rounds.next_fit, self.samples, self.bets.next = counts
        rounds.known = arrays["known"].astype(bool)
        rounds.labels = {label: number for number, label in enumerate(json.loads(str(arrays["labels"])))}
        rounds.capital = ranks.Capital(arrays["capital"][:-1].copy(), arrays["capital"][-1])
        rounds.refreeze()
        self.bets.sort(rounds)
