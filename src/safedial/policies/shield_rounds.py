"""The rounds of one group of contexts, and what HP-Shield's count rule makes of them (`policies.shield`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from safedial.bounds.count_rule import CLIMB, RECENT, Range, adapted_rank, climb_limit, scaled_setting, tolerated_scale
from safedial.errors import require
from safedial.model.namespace import Array, namespace, where
from safedial.policies.bases import ALIKE, Bases, Fitted, fit_own, lesson, predicted, scaled, with_one
from safedial.policies.table import Table

if TYPE_CHECKING:
    from safedial.policies.shield import HPShield
    from safedial.policies.shield_question import Stated

LEAST = -1e300
"""A scale below all that are played: rounds that exceed at their start exceed there too."""


class Found(NamedTuple):
    """What the rounds of a group say of a context, in each lane.

    `safe` is the largest setting, `unfloored` the same before flooring to a level, `start` the start as it is played.
    `base` is the setting that is scaled; `allowed` is λ̂ (−∞: the start), `most` what the climb limit allows, `scale`
    what a climb may start from, `counted` the scale that is counted, `climbing` whether that limit set the setting;
    `size` and `rank` are n and m.
    """

    safe: Any
    unfloored: Any
    start: Any
    base: Any
    allowed: Any
    most: Any
    scale: Any
    counted: Any
    climbing: Any
    size: Any
    rank: Any


class Group:
    """The rounds of one group, and their tolerated scales under the base in use.

    Columns of `rounds`: the context, the protocol's setting, its start, the tolerated setting and scale (−∞ where not
    known, NaN where the round does not count), the applied setting (NaN where not known), the advised one, the largest
    that was allowed (`cap`) and the scale of that (`used`), and the decision's number.
    """

    def __init__(self, policy: HPShield, lanes: tuple[int, ...], name: str = "") -> None:
        self.name, self._policy = name, policy
        unknown = {"limit": -math.inf, "scale": -math.inf, "applied": math.nan}
        stated = {"protocol": 1.0, "start": 0.0, "advised": 0.0, "cap": 0.0, "used": 0.0}
        self.rounds = Table(lanes, context=(0.0, (policy.task.dim,)), number=0, **unknown, **stated)
        zero: Any = np.zeros(lanes, dtype=np.int64) if lanes else 0
        self.count, self.counted, self.slot = zero + 0, zero + 0, zero + 0
        """How many rounds of each lane are in the group, how many of them count, and where `recent` goes on."""
        self.recent, self.used = np.full((*lanes, RECENT), -1), np.full((*lanes, RECENT), -math.inf)
        """The last known rounds, and the scales that they used, for the climb limit."""
        self.bases = Bases(lanes, policy.task.dim, policy.spec.ridge)
        self.lessons = Table((), row=0, lesson=0.0)
        """What a user's model is fitted to, in the order of the reports."""
        self._window = policy.window(lanes)
        self._models: dict[int, Fitted] = {}

    # --- A decision

    def find(self, context: Array, stated: Stated, level: Any) -> Found:
        """The largest setting: λ̂ times the base, under the climb limit, never below the start."""
        policy = self._policy
        base, start = self.base_at(context, stated.protocol), policy.floored(stated.start)
        window, bases, xp = self._window, self.bases, namespace(stated.protocol)
        last = max(window.last, self.rounds.count - policy.lag)
        found = window.read(self.rounds.scale, last, bases.since, bases.earlier, level)
        size, rank = window.window
        rank = rank if level is None else adapted_rank(level, size, rank)
        found = where(base == base, found, -math.inf)
        allowed, most = policy.step * found, math.inf
        if policy.climb is not None:
            used = self.used.tolist() if context.ndim == 1 else self.used
            most = climb_limit(used, -math.inf, climb=policy.climb)
        scale = xp.minimum(allowed, most)
        counted = xp.maximum(xp.minimum(found, most / policy.step), LEAST)  # a quotient of λ̂ may round up
        unfloored = scaled_setting(scale, base, Range(start, policy.end))
        # A start that is one setting for all gives small bases large scales, which say nothing of the large bases.
        reached = stated.start / (base if policy.task.start_action is None else xp.maximum(base, policy.end))
        scale = xp.maximum(scale, reached)
        safe = unfloored if policy.marks is None else Range(start, policy.end, policy.marks).played(unfloored)
        return Found(safe, unfloored, start, base, allowed, most, scale, counted, most < allowed, size, rank)

    # --- Its base

    def base_at(self, context: Array, protocol: Any) -> Any:
        """The setting that is scaled; NaN where a user's model gives no number."""
        if not self._policy.learned:
            return protocol
        own = self._model()
        if own is not None:
            return scaled(protocol, float(own(context[None])[0]))
        return scaled(protocol, predicted(self.bases.coef, context))

    def _past_bases(self, rows: Any, lanes: Any) -> Any:
        """The same for past rounds, (n,) or of some lanes (k, n).

        A user's model may answer many rows at once a little otherwise than each alone, as a decision asks it. Past
        rounds take the end of that at which they tolerate less, so that none is counted for a setting above the one
        that it would get. Where it gives no number a round counts as not known: a model that fails for a while must
        not change the scale of others.
        """
        rounds, own = self.rounds, self._model()
        if own is not None:
            value = own(rounds.context[rows])
            return scaled(rounds.protocol[rows], value + ALIKE * np.maximum(np.abs(value), 1.0))
        coef = self.bases.coef
        if lanes is None:
            return scaled(rounds.protocol[rows], np.asarray(predicted(coef, rounds.context[rows])))
        return scaled(rounds.protocol[lanes, rows], predicted(coef[lanes][:, None], rounds.context[lanes, rows]))

    def _model(self) -> Fitted | None:
        """The user's model of the base in use, fitted to the lessons of its time; None for ridge regression."""
        policy = self._policy
        row = self.bases.current
        if policy.regressor is None or not row:
            return None
        if row not in self._models:
            fits, told = self.bases.fits, self.lessons
            count = fits.told.item(row)
            coef, places = fits.coef[row], told.row[:count]
            early = lambda contexts: predicted(coef, contexts)  # noqa: E731 -- of this fit alone
            rows, lessons = self.rounds.context[places], told.lesson[:count]
            self._models = {row: fit_own(policy.regressor, rows, lessons, early)}
        return self._models[row]

    def renew_base(self) -> None:
        """Fit a base if it is due, and use the newest that is calibrated."""
        bases, rounds = self.bases, self.rounds
        bases.renew(self.count, rounds.count, self.counted, self.lessons.count)
        waiting = rounds.scale[..., max(0, rounds.count - self._policy.lag) : rounds.count]
        newest = bases.newest(self.counted - _total(waiting == waiting), self._policy.count_risk)
        moved = newest != bases.current
        if np.any(moved):
            self._restate(newest, moved)

    def _restate(self, newest: Any, moved: Any) -> None:
        """Count all rounds since a base's fit, and the scales of the last known ones, in the new base's scale."""
        rounds, bases = self.rounds, self.bases
        bases.current = newest
        if isinstance(newest, int):
            rows = slice(bases.since, rounds.count)
            rounds.scale[rows] = self._past_scales(rows, None)
            known = np.maximum(self.recent, 0)
            given = rounds.applied[known] / self._past_used(known)
            self.used[:] = np.where((self.recent >= 0) & (given == given), given, -math.inf)
            return
        lanes = np.flatnonzero(moved)
        for since in np.unique(bases.since[lanes]).tolist():
            some = lanes[bases.since[lanes] == since]
            rows = slice(since, rounds.count)
            rounds.scale[some, rows] = self._past_scales(rows, some)
        recent = self.recent[lanes]
        known = lanes[:, None], np.maximum(recent, 0)
        base = scaled(rounds.protocol[known], predicted(bases.coef[lanes][:, None], rounds.context[known]))
        given = rounds.applied[known] / base
        self.used[lanes] = np.where(recent >= 0, given, -math.inf)

    def _past_used(self, rows: Any) -> Any:
        """The bases of the last known rounds of one lane, each as a decision would ask for it."""
        rounds, own = self.rounds, self._model()
        value = predicted(self.bases.coef, rounds.context[rows]) if own is None else own(rounds.context[rows])
        return scaled(rounds.protocol[rows], np.asarray(value))

    def _past_scales(self, rows: slice, lanes: Any) -> Array:
        """T̂ of past rounds under the base in use."""
        part = rows if lanes is None else (lanes, rows)
        limit, start = self.rounds.limit[part], self.rounds.start[part]
        base = self._past_bases(rows, lanes)
        tolerated = np.where(np.isnan(base), -math.inf, limit)
        return np.where(np.isnan(limit), math.nan, tolerated_scale(tolerated, base, self._policy.range(start)))

    def check_model(self) -> None:
        """Refuse a model of the user's that predicts otherwise than the one that the rounds were counted with."""
        rows = slice(self.bases.since, self.rounds.count)
        then, now = self.rounds.scale[rows], self._past_scales(rows, None)
        size = np.abs(then[np.isfinite(then)])
        atol = 1e-3 * float(np.median(size)) if size.size else 0.0
        same = np.allclose(now, then, rtol=1e-3, atol=atol, equal_nan=True)
        require(same, "regressor", self._policy.regressor, "gives other predictions than the saved one")

    # --- A round

    def open(self, here: Any, context: Any, **columns: Any) -> int:
        """One more round, in the lanes that are `here`, with these columns. Returns its row."""
        rounds = self.rounds
        row = rounds.append()
        rounds.context[..., row, :] = context
        for name, value in columns.items():
            getattr(rounds, name)[..., row] = value
        if here is not True:  # the others have no round in this group
            for column in (rounds.limit, rounds.scale):
                column[..., row] = np.where(here, -math.inf, math.nan)
        self.count, self.counted = self.count + here, self.counted + here
        return row

    def learn(self, row: int, known: Any, costs: Mapping[str, Any], applied: Any) -> None:
        """What a round tolerates, under the base in use, for the climb limit, and for the next base."""
        policy = self._policy
        rounds = self.rounds
        context, protocol, start = rounds.context[..., row, :], rounds.at("protocol", row), rounds.at("start", row)
        limits = policy.costs_at(context)
        limit = policy.tolerated(limits, costs, applied)
        base = self.base_at(context, protocol)
        scale = tolerated_scale(where(base == base, limit, -math.inf), base, policy.range(start))
        before = rounds.at("scale", row)
        for name, value in (("limit", limit), ("scale", scale), ("applied", applied)):
            column = getattr(rounds, name)
            column[..., row] = value if known is True else np.where(known, value, column[..., row])
        self._window.change(row, before, rounds.at("scale", row))
        self._use(row, known & (applied > 0.0) & (base == base), applied, base)
        if policy.learned:
            likely = policy.tolerated({name: cost.middle for name, cost in limits.items()}, costs, applied)
            learned = lesson(likely, applied, protocol=protocol, start=start, end=policy.end)
            self.bases.ridge.add(with_one(context), learned, known)
            if policy.regressor is not None:
                last = self.lessons.append()
                self.lessons.row[last], self.lessons.lesson[last] = row, learned

    def _use(self, row: int, known: Any, applied: Any, base: Any) -> None:
        """What a climb may start from. A setting that was rounded down is evidence for the scale it had. One that was
        lowered by much is neither evidence for its scale nor a reason to climb anew, unless there is nothing else.
        """
        rounds = self.rounds
        cap, scale, nothing = rounds.at("cap", row), rounds.at("used", row), self.recent[..., 0] < 0
        lower = applied < cap * (1.0 - 1e-9)
        if isinstance(base, float):
            if known and (applied * CLIMB >= cap or nothing):
                self.recent[self.slot], self.used[self.slot] = row, min(scale, applied / base) if lower else scale
                self.slot = (self.slot + 1) % RECENT
            return
        lanes = np.flatnonzero(known & ((applied * CLIMB >= cap) | nothing))
        scale, slot = np.where(lower, np.minimum(scale, applied / base), scale), self.slot[lanes]
        self.recent[lanes, slot], self.used[lanes, slot] = row, scale[lanes]
        self.slot[lanes] = (slot + 1) % RECENT

    def leave_out(self, row: int, left: Any) -> None:
        """A round does not count, in these lanes."""
        rounds, before = self.rounds, self.rounds.at("scale", row)
        for column in (rounds.limit, rounds.scale):
            column[..., row] = where(left, math.nan, column[..., row])
        self._window.change(row, before, rounds.at("scale", row))
        self.counted = self.counted - left
        self.bases.leave_out(row, left)


def _total(flags: Any) -> Any:
    return np.count_nonzero(flags, axis=-1) if flags.ndim > 1 else int(np.count_nonzero(flags))
