"""HP-Shield for one online learner: rounds that may be open, in the dial's own units.

A decision opens a round, which tolerates nothing (T̂ = −∞) until its outcome is known; the latest `lag` rounds do not
count. The first decision after the rounds have grown by a tenth fits a new base, where one is learned: on what is known
then, and for rounds from there on.

A chooser says which setting is given under the cap. Below the cap anything may be given, so nothing here can break the
guarantee; it may learn from all rounds, and sets neither the base nor the rounds that are counted.

| chooser | gives |
|---|---|
| largest | the cap |
| request | the setting that was asked for, at most the cap |
| sign | the cap, or the start where the predicted reward is negative |
| target | the setting from the start to the cap at which the predicted reward is largest |

`sign` predicts the reward per unit of the dose curve, by ridge regression on (1, x). `target` predicts the reward at a
setting a, by ridge regression on (1, x), a·(1, x) and a²·(1, x). Fits are made when there are a tenth
more known outcomes.

The watch has evidence that rounds are not exchangeable or break their bracket, and that the start is unsafe.

**Rounds.** Let T_i be the true tolerated scale of round i under the protocol's base, one family for the whole life. The
bracket says T̂_i ≤ T_i, and, of a round that exceeded, T_t ≤ T̄_t: a cost c > τ at the setting s cannot have come from
a cost at or below τ at a setting above

    relative: s·(τ/c)^(1/high)      additive: s − (c − τ)/high      spread: s

(T̄_t = ∞ for other rounds). So

    p̄_t = (1 + #{i < t : T̂_i ≤ T̄_t}) / t   ≥   (1 + #{i < t : T_i ≤ T_t}) / t

which in the order of decisions is a conformal p-value. Bets that do not rise with p (`bounds.ranks`) are then
worth at most what the true p-values would have made of them, a supermartingale: if rounds are exchangeable and keep to
the bracket, the evidence ever reaches 100 with probability at most 0.01. A round that is open counts with p̄ = 1 and
T̂ = −∞, which only lowers; one that is left out is no member. So bets do not wait: behind an open round they go on from
a copy, and are repeated when its outcome comes, for `lag` + `PATIENCE` rounds; after that it is never ranked. In a
round whose setting was lowered because of the outcome the advised setting s would have cost at least c, and T̄ falls
with c, so T̄ at (s, c) holds; T̂ = −∞. Neither T̂ themselves (they depend on settings) nor counted excesses make a
valid process here.

**Start.** Whether a round would exceed at its start does not depend on settings, and for independent rounds not on the
past. An excess at or below the start shows that it would. So the monitor of `bounds.monitor` at risk δ, fed with what
is shown and with 0 elsewhere, is a supermartingale as long as the start exceeds with probability at most δ.

**Level.** `bounds.count_rule` has the recursion of an adaptive level and the proof of its long-run statement.
"""

from __future__ import annotations

import copy
import math
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safedial.bounds import monitor, ranks
from safedial.bounds.choice import Choice
from safedial.bounds.confidence import Bounds
from safedial.bounds.count_rule import adapted, adapted_rank
from safedial.bounds.safe_set import SafeSet
from safedial.bounds.tolerated import Cost, tolerated_scale
from safedial.errors import InvalidInput, require
from safedial.model.namespace import Array
from safedial.policies.shield_rounds import (
    FIRST_FIT,
    GROWTH,
    STEPS,
    TINY,
    WINDOWS,
    Ridge,
    expanded,
    middle_of,
    target,
    with_one,
)
from safedial.rounds import shield_options, shield_terms
from safedial.rounds.learner import QuestionLearner
from safedial.rounds.outcome import Asked, Sample
from safedial.rounds.shield_history import Counted, ShieldHistory
from safedial.rounds.shield_options import Stated, played_levels

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules

LEARNING = ("sign", "target")
"""The choosers that learn from rewards."""


class Chooser:
    """Chooses, and remembers what it learns from: contexts, applied settings and rewards, as outcomes become known."""

    def __init__(self, rules: Rules) -> None:
        options, self.rules, self.levels = rules.policy.options, rules, played_levels(rules.dial)
        self.kind = options["chooser"]
        self.learns = self.kind in LEARNING
        self.contexts: list[Array] = []
        self.outcomes: list[tuple[float, float]] = []
        self.fitted, self.next_fit = 0, FIRST_FIT
        if self.kind == "target":
            self.next_fit = math.ceil(WINDOWS / rules.spec.violation_risk)
        self.coef = np.zeros(0)
        self.predict: Callable[[Array], Array] | None = None

    def begin(self) -> None:
        """Fit if it is due. Replaces what it changes, so that a copy can run ahead."""
        count = len(self.outcomes)
        if self.learns and count >= self.next_fit:
            rows, rewards = self._rows(count)
            size = np.ones(rows.shape[1])
            if self.kind == "target":  # the penalty is for columns of one size, and settings may be of any
                size = np.maximum(np.abs(rows).max(axis=0), TINY)
            ridge = Ridge(1, rows.shape[1] - 1, 1, self.rules.spec.ridge)
            plain = np.arange(0, rows.shape[1], self.rules.dim + 1)  # 1, a and a² are not penalised
            ridge.gram[0, plain, plain] = ridge.gram[0, 0, 0]
            ridge.gram[0] += (rows / size).T @ (rows / size)
            ridge.moments[0, :, 0] += (rows / size).T @ rewards
            self.coef, self.fitted = ridge.coef()[0, :, 0] / size, count
            self.next_fit = max(count + 1, int(GROWTH * count))
            self._use()

    def choose(self, cap: float, start: float, context: Array, stated: Stated) -> tuple[float, float]:
        """The setting for a context, at most the cap, and the predicted reward, 0 where there is none."""
        if self.kind == "request":
            request = min(stated.request, cap)
            return request if self.levels is None else self.levels[bisect_right(self.levels, request) - 1], 0.0
        if self.predict is None:
            return cap, 0.0
        if self.kind == "sign":
            index = float(self.predict(context[None])[0])
            return (cap if index >= 0.0 else start), index
        settings = np.linspace(start, cap, STEPS + 1)
        if self.levels is not None:
            settings = np.array([level for level in self.levels if start <= level <= cap])
        rewards = self.predict(np.column_stack([np.broadcast_to(context, (len(settings), len(context))), settings]))
        rewards = np.where(np.isfinite(rewards), rewards, -math.inf)
        best = np.flatnonzero(rewards == rewards.max())[-1]
        return float(settings[best]), float(rewards[best])

    def learn(self, context: Array, sample: Sample) -> None:
        """An outcome; a round that was given nothing tells no reward."""
        if self.learns and sample.weight > 0.0:
            self.contexts.append(context)
            self.outcomes.append((sample.applied, sample.reward))

    def _rows(self, count: int) -> tuple[Array, Array]:
        """What the ridge is fitted to: the first `count` outcomes, (n, k) and (n,)."""
        outcomes = np.array(self.outcomes[:count])
        if self.kind == "sign":
            return with_one(np.array(self.contexts[:count])), outcomes[:, 1]
        return expanded(np.column_stack([np.array(self.contexts[:count]), outcomes[:, 0]])), self._totals(outcomes)

    def _totals(self, outcomes: Array) -> Array:
        """The rewards as they were measured; outcomes hold them per unit of the reward's curve."""
        dial, curve = self.rules.dial, self.rules.dose.reward
        return np.array([reward * float(curve.effect(dial.action(setting))) for setting, reward in outcomes.tolist()])

    def _use(self) -> None:
        """Predict by the fitted coefficients."""
        coef, rows = self.coef, with_one if self.kind == "sign" else expanded
        self.predict = lambda points: rows(points) @ coef

    def state(self) -> dict[str, Any]:
        if not self.learns:
            return {}
        return {
            "chooser_contexts": np.array(self.contexts, dtype=np.float64).reshape(-1, self.rules.dim),
            "chooser_outcomes": np.array(self.outcomes, dtype=np.float64).reshape(-1, 2),
            "chooser_fitted": np.array([self.fitted, self.next_fit], dtype=np.int64),
            "chooser_coef": self.coef,
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        """What `state` gave."""
        if not self.learns:
            return
        self.contexts = list(arrays["chooser_contexts"].copy())
        self.outcomes = [(setting, reward) for setting, reward in arrays["chooser_outcomes"].tolist()]
        self.fitted, self.next_fit = arrays["chooser_fitted"].tolist()
        self.coef = arrays["chooser_coef"].copy()
        if self.fitted:
            self._use()


# --- HP-Shield's watch

RAISED = 1.0 + 1e-12
"""What rounding could take from an upper bound."""

PATIENCE = 200
"""How many rounds beyond the lag an open round may still be bet on."""


class Told(NamedTuple):
    """A round's bounds on its tolerated scale, and whether it exceeded at its start or below."""

    lower: float = -math.inf
    upper: float = math.inf
    at_start: bool = False


def upper_setting(cost: Cost, measured: float, applied: float) -> float:
    """A setting above which the round cannot have been within its threshold; ∞ where it did not exceed."""
    growth = cost.growth
    shown = (measured if cost.direction == "above" else -measured) - growth.error
    if not shown > cost.limit:
        return math.inf
    high = growth.parameters.get("high", 0.0)
    if high == 0.0:
        return applied
    if growth.name == "relative":
        return min(applied, applied * (cost.limit / shown) ** (1.0 / high) * RAISED)
    fall = (shown - cost.limit) / high
    return min(applied, applied - fall + (RAISED - 1.0) * (abs(applied) + (abs(shown) + abs(cost.limit)) / high))


def shown_by(costs: Mapping[str, Cost], measured: Mapping[str, float], applied: float) -> tuple[float, bool]:
    """What measured costs show: a setting above which the round cannot have kept all thresholds, and whether it
    exceeded one for certain.
    """
    upper = min(upper_setting(cost, measured[name], applied) for name, cost in costs.items())
    return upper, any(cost.excess(measured[name]) > cost.growth.error for name, cost in costs.items())


class Ahead(NamedTuple):
    """The evidence with the bets on reported rounds behind an open one, up to the round `end`."""

    capital: ranks.Capital
    starts: monitor.Monitor
    lower: list[float]
    end: int


class ShieldWatch:
    """Bets in the order of decisions; `next` is the first round whose bet may still change."""

    def __init__(self, risk: float, lag: int) -> None:
        self.risk, self.patience = risk, lag + PATIENCE
        self.capital, self.starts = ranks.init(), monitor.init()
        self.crossed = ""
        self.lower: list[float] = []
        self.next = 0
        self.waiting: dict[int, Told | None] = {}
        self.ahead: Ahead | None = None

    @property
    def evidence(self) -> float:
        return float(ranks.evidence((self.ahead or self).capital))

    def tell(self, place: int, told: Told | None, count: int) -> None:
        """What is known of a round, None if it is left out; `count` rounds have been decided."""
        before, known = self.next, self.ahead
        if place >= self.next:
            self.waiting[place] = told
        while self.next < count and (self.next in self.waiting or self.next < count - self.patience):
            seen = self.waiting.pop(self.next, Told())
            self.next += 1
            self.capital, self.starts = self._bet(self.capital, self.starts, seen, self.lower)
        self.ahead = known if known and self.next == before and place >= known.end else None
        self._look_ahead()

    def _look_ahead(self) -> None:
        """Bet on the reported rounds behind an open one, from a copy."""
        if not self.waiting:
            return
        capital, starts, lower, end = self.ahead or Ahead(self.capital, self.starts, [], self.next)
        last = max(self.waiting) + 1
        for place in range(end, last):
            capital, starts = self._bet(capital, starts, self.waiting.get(place, Told()), lower, earlier=self.lower)
        self.ahead = Ahead(capital, starts, lower, max(end, last))

    def _bet(
        self, capital: Any, starts: Any, told: Told | None, lower: list[float], *, earlier: list[float] | None = None
    ) -> tuple[Any, Any]:
        """Rank a round among the `earlier` ones and those in `lower`, which it joins, and bet."""
        if told is None:
            return capital, starts
        rank = 1 + bisect_right(lower, told.upper) + bisect_right(earlier or [], told.upper)
        insort(lower, told.lower)
        capital = ranks.update(capital, rank / (len(lower) + len(earlier or [])))
        starts = monitor.update(starts, told.at_start, self.risk)
        if told.at_start and bool(monitor.alarm(starts)):
            self.crossed = self.crossed or "start_refuted"
        if bool(ranks.alarm(capital)):
            self.crossed = self.crossed or "bracket_drift"
        return capital, starts

    def afresh(self, count: int) -> None:
        """Begin the evidence anew after `count` decisions; the rounds so far stay those that later ones are compared
        with.
        """
        while self.next < count:
            seen = self.waiting.pop(self.next, Told())
            self.next += 1
            if seen is not None:
                insort(self.lower, seen.lower)
        self.capital, self.starts, self.crossed, self.ahead = ranks.init(), monitor.init(), "", None

    def state(self) -> dict[str, Any]:
        waiting = [(place, *(told or (math.nan, 0.0, False))) for place, told in self.waiting.items()]
        return {
            "watch_lower": np.array(self.lower),
            "watch_waiting": np.array(waiting, dtype=float).reshape(-1, 4),
            "watch_capital": np.append(self.capital.held, self.capital.seen),
            "watch_starts": np.append(self.starts.log_evidence, [self.starts.rounds, self.starts.violations]),
            "watch_next": np.array(self.next),
            "watch_crossed": np.array(self.crossed),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        self.lower = arrays["watch_lower"].tolist()
        rows = arrays["watch_waiting"].tolist()
        self.waiting = {int(row[0]): None if row[1] != row[1] else Told(row[1], row[2], bool(row[3])) for row in rows}
        held = arrays["watch_capital"]
        self.capital = ranks.Capital(held[:-1].copy(), held[-1])
        *log_evidence, rounds, violations = arrays["watch_starts"]
        self.starts = monitor.Monitor(np.array(log_evidence), rounds, violations)
        self.next, self.crossed = int(arrays["watch_next"]), str(arrays["watch_crossed"])
        self.ahead = None
        self._look_ahead()


# --- What a decision of HP-Shield rests on

NAMED = 100
"""How many of the rounds that would have exceeded a log names with each decision, the latest; it counts them all."""

APART = ("choice", "counted", "tally")
"""Parts that are written in their own form; a log has the choice elsewhere."""


class Tally(NamedTuple):
    """Counts for the long-run statement: known rounds that were given what was advised, or less; how many of them
    exceeded, and at their start; the most rounds ever open at once, the rounds that have ended, and all rounds.
    """

    followed: int = 0
    exceeded: int = 0
    at_start: int = 0
    open_at_once: int = 0
    ended: int = 0
    decided: int = 0


class Level:
    """δ_t, and the counts."""

    def __init__(self, risk: float, rate: float | None) -> None:
        self.risk, self.rate = risk, rate
        self.now, self.tally = risk, Tally()

    def open(self) -> None:
        """One more round."""
        followed, exceeded, at_start, most, ended, decided = self.tally
        most = max(most, decided + 1 - ended)
        self.tally = Tally(followed, exceeded, at_start, most, ended, decided + 1)

    def tell(self, exceeded: bool | None, *, at_start: bool = False) -> None:
        """A round has ended; None where it is not known, was raised above its advice or is left out."""
        tally = self.tally._replace(ended=self.tally.ended + 1)
        if exceeded is not None:
            at_start = exceeded and at_start
            more = (tally.followed + 1, tally.exceeded + exceeded, tally.at_start + at_start)
            tally = Tally(*more, *tally[3:])
            if self.rate is not None:
                self.now = float(adapted(self.now, exceeded, risk=self.risk, rate=self.rate))
        self.tally = tally

    def state(self) -> dict[str, Any]:
        return {"level": np.array(self.now), "tally": np.array(self.tally, dtype=np.int64)}

    def restore(self, arrays: dict[str, Any]) -> None:
        self.now, self.tally = float(arrays["level"]), Tally(*arrays["tally"].tolist())


class Cap(NamedTuple):
    """What a decision rests on, in plain values.

    `setting` is what is given, `safe` the largest that the rounds allow. `base` is the setting that is scaled,
    `protocol` the protocol's; `fitted` is the number of the last decision before the base's fit, None where the base is
    the protocol itself. `allowed` is λ̂ (−∞: the start), `most` what the climb limit allows, `scale` what a climb may
    start from, `climbing` whether that limit set the setting; `size` and `rank` are n and m; `counted` are the n
    rounds, of `rounds` in all of the context's `group`. `level` and `tally` are the adaptive level's.
    """

    setting: float
    safe: float
    choice: Choice | None
    base: float
    protocol: float
    start: float
    fitted: int | None
    allowed: float
    most: float
    scale: float
    size: int
    rank: int
    counted: Counted | Named
    rounds: int
    known: int
    level: float
    tally: Tally
    climbing: bool
    group: str


class Named(NamedTuple):
    """What a log keeps of the rounds that a decision counted (`shield_history.Counted`)."""

    scale: float
    number: int
    unknown: int
    exceeding: list[Any]


def written_cap(cap: Any) -> dict[str, Any]:
    """A `Cap` as plain values; numbers that are not finite, which JSON lacks, as text."""
    counted = cap.counted
    found = counted.exceeding
    return {
        **{name: _written(value) for name, value in cap._asdict().items() if name not in APART},
        "counted": {"scale": _written(counted.scale), "number": len(found), "unknown": counted.unknown},
        "exceeding": found[-NAMED:],
        "tally": list(cap.tally),
    }


def read_cap(values: Mapping[str, Any]) -> Cap:
    """A `Cap` from its written form, but for the choice."""
    kinds, own = Cap.__annotations__, Named.__annotations__
    plain = {name: _read(kinds[name], value) for name, value in values.items() if name not in (*APART, "exceeding")}
    counted: Any = {name: _read(own[name], value) for name, value in values["counted"].items()}
    rounds: Any = Named(**counted, exceeding=values["exceeding"])
    return Cap(**plain, choice=None, counted=rounds, tally=Tally(*values["tally"]))


def _written(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value


def _read(kind: Any, value: Any) -> Any:
    """A value of a field whose annotation is `kind`: text may be a label, or a number that is not finite."""
    return float(value) if kind.__forward_arg__ == "float" else value


# --- HP-Shield for one online learner: rounds that may be open, in the dial's own units


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
    chosen: Any = staticmethod(shield_terms.chosen)
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

    def settings(self, rules: Rules, prediction: Cap, choice: Choice) -> tuple[float, float]:
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
        """The choice as intensities; its bound is the threshold, which the guarantee is about, where there is one."""
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
