"""HP-Shield: the realized-cost guarantee from monotonicity and a growth bracket, not from an exact dose curve.

A base gives each context a setting (a protocol's, or a learned one), and a scale λ makes a_λ = λ times the base. Each
past round tells a lower bound T̂ on the scale that it would have tolerated, and the count rule (`bounds.count_rule`)
plays the largest scale at which at most m − 1 of the latest n rounds would have exceeded, limited by the climb limit;
where nothing can be said, the start, a share of the protocol's setting that the user declares safe.

P(C_t > τ) ≤ δ in every round, for exchangeable rounds with costs that do not fall when the setting rises and that keep
to the bracket. If a unit breaks the bracket with probability q, and the start exceeds with probability p₀: δ + q + p₀.
Needs no constants, no linearity, no light tails, no exact curve and no probing. Does not give: validity for drifting
contexts (`adapt` gives a long-run rate), or given the past rounds (`confidence` does, at one t).

A round that is open tolerates nothing (T̂ = −∞); the latest `lag` rounds do not count. A learned base is refitted when
there are a tenth more rounds, on all rounds so far, and calibrates only on rounds after its fit (`policies.bases`).
Groups count their own rounds, and learn bases of their own.

**Evidence.** Let T_i be the true tolerated scale of round i under the protocol's base, one family for the whole life.
The bracket says T̂_i ≤ T_i, and, of a round that exceeded, T_t ≤ T̄_t: a cost c > τ at the setting s cannot have come
from a cost at or below τ at a setting above

    relative: s·(τ/c)^(1/high)      additive: s − (c − τ)/high      spread: s

(T̄_t = ∞ for other rounds). So p̄_t = (1 + #{i < t : T̂_i ≤ T̄_t}) / t is at least the conformal p-value of the T_i, and
`policies.bets` bets on it. In a round whose setting was lowered because of the outcome the advised setting s would
have cost at least c, and T̄ falls with c, so T̄ at (s, c) holds; T̂ = −∞. Neither T̂ themselves (they depend on
settings) nor counted excesses make a valid process here.

**Start.** Whether a round would exceed at its start does not depend on settings, and for independent rounds not on the
past. An excess at or below the start shows that it would. So the monitor of `bounds.monitor` at risk δ, fed with what
is shown and with 0 elsewhere, is a supermartingale as long as the start exceeds with probability at most δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from safedial.bounds.count_rule import (
    CLIMB,
    SPREAD_RANK,
    CountWindow,
    Range,
    adapted,
    spread_risk,
    tolerated_scale,
)
from safedial.bounds.rounding import round_down
from safedial.errors import is_number, is_whole, require
from safedial.model.brackets import LOWERED, WRITTEN, Growth, growth_from_dict
from safedial.model.costs import ONE, Cost, shown_by, tolerated_setting
from safedial.model.namespace import Array, every, namespace, some, where
from safedial.policies.bets import PATIENCE, Bets
from safedial.policies.policy import (
    KNOWN,
    LEFT_OUT,
    LOST,
    THROTTLED,
    Asked,
    Bound,
    Decided,
    Evidence,
    Policy,
    StartSetting,
    Task,
    Terms,
    Told,
    factor,
    flag,
    grouping,
    is_place,
    one_of,
    option,
    part,
    whole,
)
from safedial.policies.shield_question import Questions, Stated
from safedial.policies.shield_rounds import CHOOSERS, LEARNING, Found, Group, Rewards, try_out
from safedial.policies.shield_words import Words
from safedial.policies.table import Growing, Table

START_SCALE = 0.25
"""The share of the protocol's setting at which a simulation starts."""

CHOSEN = {"request": "request", "target": "largest_reward", "sign": "start_only"}
"""What set the setting, by the chooser that gave less than the cap."""

KEPT = ("base", "start", "allowed", "most", "scale", "size", "rank", "counted", "unfloored", "climbing")
"""What a log keeps of `Found`: all but the setting itself."""

Place = tuple[Group, int, Any]
"""Where a round is: its group, its row there, and the lanes for which this is so."""


class Tally(NamedTuple):
    """Counts for the long-run statement: known rounds that were given what was advised, or less; how many of them
    exceeded, and at their start; the most rounds ever open at once, the rounds that have ended, and all rounds.
    """

    followed: Any = 0
    exceeded: Any = 0
    at_start: Any = 0
    open_at_once: Any = 0
    ended: Any = 0
    decided: Any = 0


class ShieldState:
    """What HP-Shield keeps: the rounds by group, where each round is, the adaptive level, rewards and bets.

    `places` has the group of each round and its row there, where there are groups.
    """

    def __init__(self, policy: HPShield, lanes: tuple[int, ...], *, watch: bool) -> None:
        size = (math.prod(lanes),) if lanes else ()
        self._policy, self._lanes = policy, lanes
        self.groups: Any = Growing(lambda: Group(policy, size))
        if policy.group is None:
            self.groups.more()
        self.places = Table(size, group=-1, row=-1)
        zero: Any = np.zeros(size, dtype=np.int64) if size else 0
        self.known = zero + 0
        self.level: Any = policy.risk + 0.0 * zero
        self.tally = Tally(*(zero + 0 for _ in Tally._fields))
        more = {"penalty": policy.spec.ridge, "risk": policy.risk}
        self.rewards = Rewards(policy.chooser, size, policy.task.dim, **more) if policy.reads_reward else None
        self.bets = Bets(size, patience=policy.lag + PATIENCE, late=False, hit_risk=policy.risk) if watch else None
        self._read: Any = None, None
        """The question that a decision begins with, and what was read from it."""

    def restored(self) -> None:
        """Refuse the user's own functions and models where they answer otherwise than before the state was saved."""
        self._policy.check_own(self)

    def flat(self, value: Any) -> Any:
        """A value of each lane in a row; of one lane as it is."""
        return np.ravel(value) if self._lanes else value

    def group(self, name: str, *, add: bool = False) -> tuple[int, Group]:
        """The number of a group, and the group; of one that no round was in a new one, which is kept if `add`."""
        for code, group in enumerate(self.groups):
            if group.name == name:
                return code, group
        code, group = len(self.groups), self.groups.make()
        group.name = name
        if add:
            self.groups.append(group)
        return code, group


@dataclass(frozen=True, kw_only=True)
class HPShield(Policy):
    """Play the largest setting at which at most m − 1 of the latest n rounds would have exceeded.

    Args:
        base: the protocol's setting, > 0. In a simulation an intensity: the number of a context's column, or a
            function of contexts (..., d). For an Agent a setting in the dial's units: the name of a feature, a function
            of the raw features (a mapping by name, or the context where there are no names), or "proposal", a number
            that comes with each question; proposals must be exchangeable.
        growth: a bracket, per unit of the dial for an Agent. Only there it may name features. Left out where the spec
            states `costs`, which have brackets and directions of their own.
        learned: True: the base is learned from the rounds, with the protocol as its prior mean.
        regressor: None for ridge regression, or an Agent's: an object with fit(X, y) and predict(X) that learns, from
            contexts, the logarithm of the tolerated setting over the protocol's. It must be deterministic, for a loaded
            agent fits it again.
        start_scale: the share of the protocol's setting that you declare safe for every context; an Agent may be given
            a `start_action` instead. In a simulation a quarter by default.
        climb: how many times the largest recent scale may be used; None for no limit.
        confidence: None for a guarantee that is marginal over the past rounds, or the probability with which it is kept
            given them, at one t.
        adapt: None, or γ of the adaptive level.
        chooser: "largest": the cap; "sign": the start where the predicted reward is negative; "request":
            the proposal that comes with each question, in a simulation `request`, at most the cap, which any proposal
            may be; "target": the setting from the start to the cap at which the predicted reward is largest, for
            rewards that need not rise with the dose.
        lag: an Agent's only: how many of the latest rounds (of a group) do not count, so that outcomes may be late.
        group: the name of a feature, or a function of the context, whose value is the context's group; in a simulation,
            as `base`, a column or a function of contexts. Each group counts its own rounds, learns its own base and
            starts at its start: the guarantee holds in each.
        direction: "above": the cost must not exceed the threshold; "below": it must not fall below it.
        levels: a simulation's only: the intensities that can be played, where not all can; an Agent's dial has its own.
        request: a simulation's only: what is asked for with chooser="request", as `base`.

    The guarantee, P(C_t > τ) ≤ δ in each round, needs no `estimation_risk`. One threshold and one risk at a time.
    """

    name: ClassVar[str] = "hp_shield"
    label: ClassVar[str] = "HP-Shield"
    guarantee: ClassVar[str] = "bracket"
    counts: ClassVar[bool] = False
    zero_tells: ClassVar[bool] = True
    takes_proposal: ClassVar[bool] = True
    takes_history: ClassVar[bool] = False
    counts_starts: ClassVar[bool] = False
    exact_dose: ClassVar[bool] = False
    names_rounds: ClassVar[bool] = True
    uncompiled: ClassVar[str] = "ranks tolerated scales among those of all rounds before, whose number grows"
    stop_rules: ClassVar[tuple[str, ...]] = ("bracket_drift", "start_refuted")

    base: int | str | Callable[..., Any] = option(
        check=lambda base: is_place(base) or callable(base),
        rule="must be a column's number, a feature's name, 'proposal' or a function of contexts",
    )
    growth: Growth | Mapping[str, Any] | None = None
    learned: bool = flag(False)
    regressor: Any = None
    start_scale: float | None = part(None, "state the share of the protocol's setting that is safe")
    climb: float | None = factor(CLIMB, f"try {CLIMB}")
    confidence: float | None = option(
        None,
        lambda share: share is None or (is_number(share) and 0.0 < share < 1.0),
        "must be a number in (0, 1) or None",
    )
    adapt: float | None = part(None, "a fifth of the risk is a common choice: a large one reacts fast and wastes scale")
    chooser: Literal["largest", "request", "sign", "target"] = one_of("largest", CHOOSERS)
    lag: int = whole(0, way_out="how many rounds an outcome may take")
    group: int | str | Callable[..., Any] | None = grouping()
    direction: Literal["above", "below"] = one_of(  # pyright: ignore[reportIncompatibleVariableOverride]
        "above", ("above", "below")
    )
    levels: Sequence[float] | None = option(
        None,
        lambda levels: levels is None or _rises(tuple(map(float, levels))),
        "must be intensities that rise, above 0 and at most 1",
    )
    request: int | Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        """Check the options, and read those that have a written form."""
        if self.growth is not None and not isinstance(self.growth, Growth):
            object.__setattr__(self, "growth", growth_from_dict(self.growth))
        super().__post_init__()
        if self.levels is not None:
            object.__setattr__(self, "levels", tuple(map(float, self.levels)))
        learned = self.regressor is None or self.learned
        require(learned, "regressor", self.regressor, "is for a learned base", "state learned=True")
        given, asks = self.request, self.chooser == "request"
        way_out = "choose a protocol: the proposal is then only a request under its cap"
        rule = "is the proposal, which is the request already"
        require(not asks or self.base != "proposal", "base", self.base, rule, way_out)
        rule = "must be a column's number or a function of contexts, with chooser='request'"
        require(given is None or (asks and (is_whole(given, 0) or callable(given))), "request", given, rule)

    # --- The task

    def on(self, task: Task, **options: Any) -> HPShield:
        """This policy for a task; in a simulation settings are intensities, else they are in the dial's units."""
        made: HPShield = super().on(task, **options)
        made.questions.check_task()
        if task.live and made.regressor is not None:
            try_out(made.regressor, task.dim)
        return made

    @cached_property
    def questions(self) -> Questions:
        """What is read from questions."""
        return Questions(self)

    @property
    def unit(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] -- a simulation speaks intensities
        return "setting" if self.task.live else "intensity"

    @property
    def reads_reward(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it depends on an option
        return self.chooser in LEARNING

    @cached_property
    def zero_one(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- the bracket decides
        return isinstance(self.growth, Growth) and self.growth.name == "spread"

    @cached_property
    def start(self) -> StartSetting:
        return StartSetting(self.task.start_action, self.task.start_action)

    @cached_property
    def risk(self) -> float:
        """δ."""
        return float(np.squeeze(self.spec.violation_risk))

    @cached_property
    def costs(self) -> dict[str, Cost]:
        """The limits on costs, by name: the spec's, or one, named "cost", from its threshold and the options."""
        spec, growth = self.spec, self.growth
        if spec.costs is not None:
            for name, given, plain in (("growth", growth, None), ("direction", self.direction, "above")):
                rule = "cannot be combined with the spec's costs"
                require(given == plain, name, given, rule, "state it in each Cost")
            zero_one = [name for name, cost in spec.costs.items() if cost.growth.name == "spread"]
            rule = "has a spread bracket, for which there is no proof among several costs"
            require(not zero_one, "costs", zero_one, rule, "report one cost that is 1 where any of them is")
            return dict(spec.costs)
        require(isinstance(growth, Growth), "growth", growth, "is missing", f"state a bracket; {WRITTEN}")
        one = np.size(spec.threshold) == 1 and np.size(spec.violation_risk) == 1
        require(one, "threshold", spec.threshold, "must be one number, as must violation_risk", "sweep in a loop")
        threshold = float(np.squeeze(spec.threshold))
        cost = Cost(threshold=threshold, growth=growth, direction=self.direction, on=spec.threshold_on)
        told = not self.zero_one or cost.exceeded(0.0) != cost.exceeded(1.0)
        require(told, "threshold", cost.threshold, "must tell 0 from 1 where costs are 0 or 1", "take 0.5")
        return {ONE: cost}

    @cached_property
    def named(self) -> bool:
        """Whether a bracket takes its slopes from features."""
        return any(cost.growth.features for cost in self.costs.values())

    @cached_property
    def marks(self) -> tuple[float, ...] | None:
        """The settings that can be played, the dial's low end included; None where all can."""
        dial = self.task.dial
        if not self.task.live:
            return self.levels  # pyright: ignore[reportReturnType] -- a tuple since the start
        return None if dial.levels is None else tuple(sorted({dial.low, *dial.levels}))

    @cached_property
    def end(self) -> float:
        """The largest setting."""
        return (self.task.dial.high if self.task.live else 1.0) if self.marks is None else self.marks[-1]

    @cached_property
    def step(self) -> float:
        """By how much the counted scale is exceeded, for costs of 0 or 1."""
        return self.growth.parameters["step"] if self.zero_one else 1.0  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]

    @cached_property
    def count_risk(self) -> float:
        """The risk at which the count rule runs."""
        return spread_risk(self.growth, self.risk) if self.zero_one else self.risk  # pyright: ignore[reportArgumentType]

    @cached_property
    def share(self) -> float:
        """The share of the protocol's setting at which it starts."""
        return START_SCALE if self.start_scale is None else float(self.start_scale)

    @cached_property
    def curve(self) -> Any:
        """The dose curve that the brackets speak of; None where they speak of settings."""
        curve = self.task.dose.cost
        return curve if self.task.live and curve.name != "identity" else None

    def window(self, lanes: tuple[int, ...]) -> CountWindow:
        """A window that has seen nothing."""
        least = SPREAD_RANK if self.zero_one else 1
        return CountWindow(lanes[0] if lanes else None, self.count_risk, confidence=self.confidence, least=least)

    # --- A decision

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> ShieldState:
        return ShieldState(self, lanes, watch=watch and self.task.live)

    def begin(self, state: ShieldState, asked: Asked) -> None:
        """Read the question of one lane; fit what is due, and use the newest base that is calibrated."""
        if not state._lanes:
            state._read = asked, self.questions.read(asked)
        if self.learned:
            for group in state.groups:
                group.renew_base()
        if state.rewards is not None:
            state.rewards.begin()

    def bound(self, state: ShieldState, asked: Asked) -> Bound:
        """The largest setting for a context, what is chosen under it, and what both rest on."""
        context, lanes = asked.context, state._lanes
        if lanes:
            context, stated = self.questions.read_lanes(asked)
        else:
            question, stated = state._read
            stated = stated if question is asked else self.questions.read(asked)
        level = None if self.adapt is None else state.level * (self.count_risk / self.risk)
        found: Any = None
        group: Any = None
        for name, here in _labels(stated.group):
            _, group = state.group(name)
            seen = group.find(context, stated, level)
            found = seen if found is None else Found(*(where(here, *both) for both in zip(seen, found, strict=True)))
        chosen, index = self._choose(state, found, context, stated)
        ready, memo = found.allowed > -math.inf, (chosen, stated, found)
        if not lanes:
            numbers = self._numbers(state, group, context, stated, found)
            return Bound(index, found.safe, numbers, ready, memo=memo, limit=self._limit(found, chosen))
        parts = (index + 0.0 * found.safe, found.safe, ready, chosen)
        index, largest, ready, chosen = (each.reshape(lanes) for each in parts)
        return Bound(index, largest, found._asdict(), ready, memo=(chosen, stated, found))

    def choose(self, bound: Bound, asked: Asked) -> Any:
        return bound.memo[0]

    def _choose(self, state: ShieldState, found: Found, context: Array, stated: Stated) -> tuple[Any, Any]:
        """What is given, and the predicted reward: 0 where there is none."""
        if state.rewards is not None:
            if self.chooser == "target":
                return state.rewards.by_target(found.safe, found.start, context, self.marks)
            return state.rewards.by_sign(found.safe, found.start, context)
        if self.chooser == "request":
            marks = self.marks if self.task.live or self.marks is None else (0.0, *self.marks)
            return Range(-math.inf, found.safe, marks).played(stated.request), 0.0
        return found.safe, 0.0

    def _limit(self, found: Found, chosen: float) -> str:
        """The key of `LIMITS` that set what is chosen."""
        if chosen < found.safe:
            return CHOSEN[self.chooser]
        low, floored = self.task.dial.low, found.safe < found.unfloored * (1.0 - 1e-9)
        if found.safe <= low < found.unfloored:
            return "below_lowest_level"
        if found.climbing and found.unfloored < self.task.dial.high:
            return "climb_limit"
        if floored:
            return "level"
        if found.allowed == -math.inf:
            return "shield_start"
        return "full_dose" if found.unfloored >= self.task.dial.high else "count_rule"

    def _numbers(self, state: ShieldState, group: Any, context: Array, stated: Stated, found: Found) -> dict[str, Any]:
        """What a log keeps of a decision of one lane; `exceeding` are the numbers of the rounds that would have."""
        rounds, bases = group.rounds, group.bases
        over = group._window.exceeding(rounds.scale, found.counted)
        since, threshold = bases.since, self.spec.threshold or 0.0
        numbers = {name: getattr(found, name) for name in KEPT} | {
            "protocol": stated.protocol,
            "fitted": rounds.number.item(since - 1) if since else None,
            "would_exceed": over.size,
            "unknown": int(np.count_nonzero(np.isnan(rounds.applied[over]))) if over.size else 0,
            "exceeding": rounds.number[over].tolist(),
            "rounds": group.count,
            "known": state.known,
            "level": state.level,
            "group": stated.group,
            "cost_upper": threshold if found.allowed > -math.inf else math.inf,
        }
        if self.adapt is not None:
            numbers["tally"] = list(state.tally)
        if self.named:
            costs = self.costs_at(context).items()
            numbers["slopes"] = {name: [cost.growth.parameters[end] for end in ("low", "high")] for name, cost in costs}
        return numbers

    # --- A round

    def open(self, state: ShieldState, asked: Asked, bound: Bound | None, chosen: Any) -> None:
        """Rounds from before the first decision, which it did not decide, teach it nothing."""
        assert bound is not None  # noqa: S101 -- `takes_history` is False
        context, advised, (_, stated, found) = asked.context, state.flat(chosen), bound.memo
        if state._lanes:
            context = context.reshape(-1, self.task.dim)
        place = state.places.append() if self.group is not None else -1
        for name, here in _labels(stated.group):
            code, group = state.group(name, add=True)
            row = group.open(
                here, context, protocol=stated.protocol, start=stated.start, advised=advised, cap=found.safe,
                used=found.scale, number=asked.number,
            )  # fmt: skip
            if self.group is not None:
                for column, value in ((state.places.group, code), (state.places.row, row)):
                    column[..., place] = where(here, value, column[..., place])
        if state.bets is not None:
            state.bets.open()
        if self.adapt is not None:
            tally = state.tally
            decided = tally.decided + 1
            most = namespace(decided).maximum(tally.open_at_once, decided - tally.ended)
            state.tally = tally._replace(decided=decided, open_at_once=most)

    def tell(self, state: ShieldState, place: int, told: Told) -> None:
        fate, applied = state.flat(told.fate), state.flat(told.action if self.task.live else told.intensity)
        costs, known = self._measured(told, state.flat), fate == KNOWN
        for cost in costs.values():
            known = known & (abs(cost) < math.inf)
        known = True if every(known) else known
        for group, row, here in self._at(state, place):
            mine, left = known & here, known is not True and (fate == LEFT_OUT) & here
            if some(mine):
                group.learn(row, mine, costs, applied)
            if some(left):
                group.leave_out(row, left)
            if self.adapt is not None:
                self._adapt(state, (group, row, here), (fate, known), costs=costs, applied=applied)
            if state.bets is not None:
                self._watch(state.bets, place, (group, row, here), (fate, left), costs=costs, applied=applied)
        state.known = state.known + known
        if state.rewards is not None and some(rewarded := known & (applied > 0.0)):
            gain = told.reward_intensity
            if gain is None:
                gain = self.task.dose.reward.effect(self.task.dial.action(applied))
            context = np.reshape(told.context, (*np.shape(applied), self.task.dim))
            reward = state.flat(told.reward)
            state.rewards.learn(context, applied, reward, reward * state.flat(gain), rewarded)

    def _measured(self, told: Told, flat: Callable[[Any], Any]) -> Mapping[str, Any]:
        """The measured costs by name; NaN where one is not known."""
        measured: Any = told.measured
        if measured is None:
            measured = told.cost * told.intensity + told.baseline
        if type(measured) is float or not isinstance(measured, Mapping):
            measured = dict.fromkeys(self.costs, measured)
        return {name: flat(measured[name]) for name in self.costs}

    def _at(self, state: ShieldState, place: int) -> Iterator[Place]:
        """The group of a round, its row there, and the lanes for which this is so."""
        if self.group is None:
            yield state.groups[0], place, True
        elif not state._lanes:
            yield state.groups[state.places.group.item(place)], state.places.row.item(place), True
        else:
            codes, rows = state.places.group[:, place], state.places.row[:, place]
            for code in np.unique(codes).tolist():
                here = codes == code
                yield state.groups[code], int(rows[here][0]), here

    def _adapt(self, state: ShieldState, at: Place, fates: Any, *, costs: Mapping[str, Any], applied: Any) -> None:
        """Let the level follow an outcome, unless the round was raised above its advice."""
        (group, row, here), (fate, known) = at, fates
        told = (fate == KNOWN) | (fate == LOST)
        exceeded: Any = False
        for name, cost in self.costs.items():  # NaN is not known to exceed
            exceeded = exceeded | cost.exceeded(costs[name])
        counts = here & told & (known | exceeded) & (applied <= group.rounds.at("advised", row) * (1.0 + 1e-9))
        over = counts & exceeded
        level = adapted(state.level, 1.0 * exceeded, risk=self.risk, rate=self.adapt or 0.0)
        state.level = where(counts, level, state.level)
        at_start, tally = over & (applied <= group.rounds.at("start", row)), state.tally
        state.tally = tally._replace(
            followed=tally.followed + counts,
            exceeded=tally.exceeded + over,
            at_start=tally.at_start + at_start,
            ended=tally.ended + (here & (told | (fate == LEFT_OUT))),
        )

    def _watch(self, bets: Bets, place: int, at: Place, fates: Any, *, costs: Mapping[str, Any], applied: Any) -> None:
        """What a round tells the bets: bounds on its tolerated scale under the protocol's base."""
        (group, row, here), (fate, left) = at, fates
        if some(left):
            bets.tell(place, left)  # no bet waits for it
            bets.leave_out(place, left)
        rounds, thrown = group.rounds, fate == THROTTLED
        protocol, advised = rounds.at("protocol", row), rounds.at("advised", row)
        # A round that was lowered because of its outcome has told what it can before it is lost.
        lost = (fate == LOST) & (bets.rounds.at("told", place) == False)  # noqa: E712 -- of each lane
        told = here & ((fate == KNOWN) | lost | (thrown & (applied <= advised)))
        if not some(told):
            return
        applied, played = where(thrown, advised, applied), self.range(rounds.at("start", row))
        upper, beyond = shown_by(self.costs_at(rounds.context[..., row, :]), costs, applied)
        if self.curve is not None:
            upper = where(upper < applied, applied, upper)
        low = tolerated_scale(rounds.at("limit", row), protocol, played)
        up = played.reach(upper) / protocol * (1.0 + LOWERED)
        bets.tell(place, told, low=where(low == low, low, -math.inf), up=up, hit=beyond & (applied <= played.start))

    def costs_at(self, context: Array) -> dict[str, Cost]:
        """The limits at a context, with numbers for slopes that are features."""
        return self.questions.costs_at(context) if self.named else self.costs

    def range(self, start: Any) -> Range:
        """What counts as played in rounds with this start. For costs of 0 or 1 shares that exceed grow slowly with the
        scale, not from level to level (bounds.count_rule).
        """
        return Range(self.floored(start), self.end, None if self.zero_one else self.marks)

    def floored(self, start: Any) -> Any:
        """A start, or an array of them, as it is played."""
        return start if self.marks is None else Range(-math.inf, math.inf, self.marks).played(start)

    def tolerated(self, costs: Mapping[str, Cost], measured: Mapping[str, Any], applied: Any) -> Any:
        """z*: the largest setting at which a round would have kept every threshold, as far as the brackets say."""
        if self.curve is None:
            return tolerated_setting(costs, measured, applied)
        dial, effect = self.task.dial, float(self.curve.effect(self.task.dial.action(applied)))
        found = float(tolerated_setting(costs, measured, effect))
        if found >= 1.0 or found < 0.0 or found != found:
            return math.copysign(math.inf, found) if found == found else -math.inf
        setting = dial.setting(float(self.curve.action(round_down(found, self.curve.error_units))))
        return max(setting, applied) if found >= effect else setting

    # --- Evidence and words

    def evidence(self, state: ShieldState) -> dict[str, Evidence]:
        """That rounds are not exchangeable or break the bracket, and that the start is unsafe."""
        if state.bets is None:
            return {}
        found = {"bracket_drift": state.bets.evidence(), "start_refuted": state.bets.hits()}
        shape = state._lanes
        if shape:
            for rule, each in found.items():
                found[rule] = each._replace(
                    value=np.reshape(each.value, shape), crossed=np.reshape(each.crossed, shape)
                )
        return found

    def restart(self, state: ShieldState, before: ShieldState | None = None) -> None:
        if state.bets is not None:
            state.bets.restart()
            if before is not None and before.bets is not None:
                state.bets.keep_starts(before.bets)

    def terms(self, decided: Decided) -> Terms:
        return Words(self, decided).terms()

    def check_own(self, state: ShieldState) -> None:
        """Refuse functions and models of the user's that answer otherwise than those a state was made with."""
        way_out = "give the function that was saved; it must depend on the context alone"
        for group in state.groups:
            rounds = group.rounds
            for row in range(rounds.count if self.task.live else 0):
                context, number = rounds.context[row], rounds.number.item(row)
                if callable(self.group):
                    now, rule = self.questions.label(context), f"was {group.name!r} in round {number}"
                    require(now == group.name, "group(context)", now, rule, way_out)
                if callable(self.base):
                    base, then = self.questions.protocol(context, None), rounds.protocol.item(row)
                    same = math.isclose(base, then, rel_tol=1e-9)
                    require(same, "base(context)", base, f"was {then:g} in round {number}", way_out)
            if self.regressor is not None:
                group.check_model()


def _labels(group: Any) -> list[tuple[str, Any]]:
    """The groups of a question's lanes, and which lanes are in each."""
    if isinstance(group, str):
        return [(group, True)]
    return [(name, group == name) for name in np.unique(group).tolist()]


def _rises(levels: tuple[float, ...]) -> bool:
    return bool(levels) and list(levels) == sorted({*levels}) and levels[0] > 0.0 and levels[-1] <= 1.0


hp_shield = HPShield
