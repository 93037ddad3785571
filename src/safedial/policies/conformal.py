"""HP-Conformal: the realized-cost guarantee without constants, for exchangeable rounds.

With a probe in every round, (X_t, R_t/g_r, C_t/g_c) does not depend on the doses. So if rounds are exchangeable (in
practice: i.i.d. patients, no carry-over), these triples are exchangeable despite the adaptive doses, and conformal
prediction applies:

1. Some rounds, chosen by number, train a predictor r̂ of R/g; the others calibrate, in groups by the sign of r̂(x) (and
   the user's groups). Every round with a known outcome trains μ̂, ridge regression of C/g.
2. Both are refitted whenever the rounds have grown by a tenth; until the next refit nothing changes.
3. For a new round in a group with n calibration rounds, U(x) is the largest cost per unit y with which it conforms:
   after a ridge fit that includes (x, y) its residual is not among the m largest of the latest n′ of them
   (`bounds.conforming`, `bounds.ranks.places`). Then P(C/g > U) ≤ δ, and with z_safe = 1 if U ≤ 0 else min(1, τ/U)
   P(C > τ) ≤ δ, within each group.
4. If there is no bound (too few rounds, a group never seen, a number that is not finite), the dose is the start dose.

A calibration round without a known outcome (open, void, or without a dose) scores +∞, because dropping it would bias
the scores; such a round does not train. A round that is void for an unrelated reason is left out. Which rounds
calibrate and when to refit depend only on the round's number, never on outcomes: otherwise the scores would not be
exchangeable.

**Evidence.** The rank of a round's score C/g − ĉ(x) among those of the earlier rounds of its group, where ĉ is fitted
to other rounds, gives a p-value to bet on (`policies.bets`). In a throttled round the advised setting would have cost
at least what was measured, so its p-value is that of the least score it may have. Each round is bet on under the
predictors in force when it is older than `lag`; a refit, and patience, end the waiting for its outcome, which then
counts only in later ranks.

Needs: exchangeable rounds, exact dose curves, no sensor noise, every applied dose above 0. Does not need: linearity,
κ, S, L, or light tails. Does not give: validity for drifting or adversarial contexts, or given the calibration data.
docs/conformal.md has the proof.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from safedial.bounds.conforming import NO_TIES, Calibration, Ties, calibration, find_ties
from safedial.bounds.estimate import ridge_fit
from safedial.bounds.ranks import TIE, places
from safedial.bounds.safe_set import largest_safe_intensity
from safedial.errors import InvalidInput, is_number, require
from safedial.model.dial import rounded_down
from safedial.model.namespace import Array, namespace, scalar
from safedial.policies import words
from safedial.policies.bets import Bets
from safedial.policies.policy import (
    BY_RULE,
    KNOWN,
    LEFT_OUT,
    THROTTLED,
    Asked,
    Bound,
    Decided,
    Evidence,
    StartSetting,
    Task,
    Terms,
    Told,
    check_column,
    factor,
    grouping,
    least_quotient,
    one_of,
    part,
    probe_share,
    probed,
    teaching_probe,
    whole,
)
from safedial.policies.start import StartingPolicy, declared_dose
from safedial.policies.supports import ELSEWHERE
from safedial.policies.table import Table

EARLY = 400
"""From this round on two of three rounds train r̂ and ĉ, and every second one before it."""

FIRST_FIT = 20
GROWTH = 0.1
"""The first refit is after 20 rounds; then whenever rounds have grown by a tenth (of the window, once it is full)."""

TRIED = 10
"""`reach` uses the 10th largest applied intensity with a known outcome, so that one odd round does not move it."""

REACH = 2.0
"""How far beyond the doses tried an agent or a new study goes, as a factor."""

ABOVE = 1e-9
"""By how much the reach exceeds the next level, relatively: more than rounding can take away."""

NEAR = 1e-9
"""Intensities this close, relatively, count as equal: advice is rounded to the safe side."""

PROBE, LEAN_PROBE = 0.01, 0.001
"""The probes by rule: in simulations, and in agents and studies."""

OFF = {"reach": None, "history": "calibrate", "least_dose": None}
"""The guards switched off."""


def calibrates(numbers: Any) -> Any:
    """Which rounds, numbered from 0, the fits of r̂ and ĉ leave out: every second one, from `EARLY` on every third."""
    return (numbers < EARLY) & (numbers % 2 == 1) | (numbers >= EARLY) & (numbers % 3 == 0)


class Learned:
    """What is known of the rounds so far.

    Columns of `rounds`: `label` is the number of the user's group; `cost` C/g, +∞ while it is not known, and `least`
    what C/g of a throttled round is at least; `measured` C − b₀; `advised` the intensity that was advised; `left`
    whether a round is left out. The last refit set `residual` under μ̂, +∞ where it was not known then, and `code`, the
    group of a calibration round, −1 for others: twice the label's number, plus one if benefit is expected, by sign.

    Attributes:
        reward, cost: the coefficients of r̂ and ĉ. inverse, coef: A⁻¹ and μ̂, of all rounds.
        fitted: how many rounds the last refit used; next_fit: at how many the next is due.
        history: how many of the first rounds only train.
        known: by lane, how many outcomes were learned.
        tried: the largest applied intensities with a known outcome, ascending; −∞ for those that are missing.
        labels: the labels by number, as JSON.
    """

    def __init__(self, lanes: tuple[int, ...], dim: int, bets: Bets | None) -> None:
        numbers = {"reward": 0.0, "measured": 0.0, "advised": 0.0, "cost": math.inf, "least": math.inf}
        refit = {"residual": math.inf, "code": -1}
        self.rounds = Table(lanes, context=(0.0, (dim,)), label=0, left=False, **numbers, **refit)
        self.reward, self.cost, self.coef = np.zeros((3, *lanes, dim))
        self.inverse = np.zeros((*lanes, dim, dim))
        self.fitted, self.next_fit, self.history = 0, FIRST_FIT, 0
        self.known = np.zeros(lanes, dtype=np.int64)
        self.tried = np.full(TRIED, -math.inf)
        self.labels = "[]"
        self.bets = bets
        self._lanes, self._numbers = lanes, dict[Hashable, int]()
        self._scored = False
        self._calibration: Calibration | None = None
        self._ties: dict[int, Ties] = {}

    @property
    def count(self) -> int:
        """How many rounds there have been."""
        return self.rounds.first + self.rounds.count

    def label(self, label: Hashable, *, add: bool) -> int:
        """The number of a label; a new one gets one if `add`, else one past the last."""
        self._numbers = numbers = self._numbers or {each: number for number, each in enumerate(json.loads(self.labels))}
        if add and label not in numbers:
            numbers[label] = len(numbers)
            self.labels = json.dumps(list(numbers))
            if len(numbers) >= 100 and math.log10(len(numbers)) % 1.0 == 0.0:
                said = f"group has {len(numbers)} labels so far; each needs its own rounds, so few get a bound"
                warnings.warn(said, UserWarning, stacklevel=2)
        return numbers.get(label, len(numbers))


@dataclass(frozen=True, kw_only=True)
class HPConformal(StartingPolicy):
    """Play z_safe from the conformal bound if benefit is expected, else a probe of it; every round is informative.

    Attributes:
        start_dose: as for `StartingPolicy`.
        groups: "sign", the default: the guarantee also holds among the rounds for which benefit is expected. "none": it
            is over all rounds and says nothing about those; every round then counts towards one bound.
        probe: as for `hp_probe`, but above 0: a round without a dose would have to count as a violation. By rule
            0.001 in agents and new studies, 0.01 in simulations.
        group: the guarantee then also holds within each of your groups: the number of a context's column whose values
            are labels (or, for an Agent with features, its name), or a function from a context to a label.
        window: how many of the latest rounds are kept. It bounds memory and does not affect the guarantee, because it
            goes by number.
        lag: how many of the latest rounds a refit leaves out, because their outcomes may still arrive. An older round
            without an outcome counts against the guarantee.
        reach: a number > 1: the dose is at most this multiple of the 10th largest applied intensity with a known
            outcome (before ten of them: the start dose). The start dose is also used if costs carry no information: if
            more than a third of a group's known calibration rounds have the same measured cost. A guard against a dose
            curve that is wrong beyond the doses tried; not a proof. By rule 2 in agents and new studies (more where the
            dial's next level is further away), and None, off, in simulations.
        history: how rounds from before the first decision are used. "train": only for the predictors, so that nothing
            is assumed about them; by rule in agents and new studies. "calibrate": also for calibration; they must
            then be exchangeable with later rounds; by rule in simulations.
        least_dose: the intensity of the dial's lowest level, at most `start_dose`, given instead of less: a round
            without a dose teaches nothing, and which rounds teach must not depend on outcomes. By rule it is set in
            agents and new studies whose dial has levels.

    The guarantee, P(C_t > τ) ≤ δ in each round and within each group, needs no `estimation_risk`.

    Reference: this project, docs/conformal.md; full and Mondrian conformal prediction: Vovk, Gammerman and Shafer,
    "Algorithmic Learning in a Random World" (2005).
    """

    name = "hp_conformal"
    label = "HP-Conformal"
    guarantee = "conformal"
    uncompiled = "ranks scores among those of all rounds before, whose number grows"
    excludes = ELSEWHERE | {"sensor noise"}
    applied = (
        "the applied action is at most the advised one, is above zero, and uses nothing about this round's outcome "
    )
    applied += "beyond the context" + words.VOID

    groups: Literal["sign", "none"] = one_of("sign", ("sign", "none"))
    probe: float | Literal["sqrt", "auto"] = teaching_probe(BY_RULE, by_rule=True)
    group: int | str | Callable[[Any], Hashable] | None = grouping()
    window: int = whole(100_000, 100)
    reach: float | Literal["auto"] | None = factor(BY_RULE, "2 doubles the dose at most", by_rule=True)
    history: Literal["calibrate", "train", "auto"] = one_of(BY_RULE, ("calibrate", "train"), by_rule=True)
    least_dose: float | Literal["auto"] | None = part(BY_RULE, rule="must be a number in (0, 1] or None", by_rule=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.lag <= self.window, "lag", self.lag, f"must be at most window = {self.window}")
        least, start = self.least_dose, self.start_dose
        within = least in (None, BY_RULE) or (start is not None and least <= start)
        require(within, "least_dose", least, f"must be at most start_dose = {start}, which is declared safe")

    # --- The task

    def on(self, task: Task, **options: Any) -> HPConformal:
        """This policy for a task, with the options that are left to a rule."""
        self._check_group(task)
        rules, steps = {"probe": PROBE, **OFF}, _steps(task)
        if task.live:
            least = task.dial.lowest_level
            rules["least_dose"] = None if least is None else float(task.dose.cost.effect(task.dial.action(least)))
            # The reach is 2, or more if the dial's next level is further away.
            rules |= {"probe": LEAN_PROBE, "history": "train", "reach": max(REACH, steps * (1.0 + ABOVE))}
        options = {name: value for name, value in rules.items() if getattr(self, name) == BY_RULE} | options
        if task.live:
            reach = options.get("reach", self.reach)
            rule = f"must be above {steps:.6g}, the largest step between the dial's levels, or the dose never passes it"
            far = reach is None or reach > steps
            require(far, "reach", reach, rule, "state a larger reach, or more levels between")
            least, found = options.get("least_dose", self.least_dose), declared_dose(self.start_dose, task)
            options["start_dose"] = found
            rule = "is missing: a dial with levels needs a start dose that you declare safe; otherwise a round advised "
            rule += (
                "less than the lowest level would get no dose, and which rounds get none must not depend on outcomes"
            )
            require(found is not None or least is None, "start_action", None, rule, "declare one of the levels")
            lowest, rule = rules["least_dose"], "must be the intensity of the dial's lowest level in a study"
            proved = lowest in (None, least) or "log" not in task.world
            require(proved, "least_dose", least, f"{rule}, {lowest}", "leave it out")
        made = super().on(task, **options)
        if task.live and made.start_dose is not None:
            made._check_doses()
        return made

    def _check_group(self, task: Task) -> None:
        """Refuse a group that the contexts do not have."""
        group, names = self.group, task.features.names if task.features else ()
        if isinstance(group, str):
            rule = "names a feature, which only an Agent with features knows"
            require(task.live, "group", group, rule)
            require(group in names, "group", group, "must be the name of one of the features", ", ".join(names))
        check_column("group", group, task.dim)

    def _check_doses(self) -> None:
        """Refuse a start without any effect, and warn that probes below the lowest level give nothing, where no least
        dose is set.
        """
        dose, dial, action = self.task.dose, self.task.dial, self.start.action or 0.0
        gives = float(dose.cost.effect(dial.action(action))) > 0.0
        require(gives, "start_action", dial.text(action), "has no effect, so nothing would ever be learned")
        share = self.probe if is_number(self.probe) else 0.0
        if self.least_dose is None and dial.levels and dial.setting(float(dose.cost.action(share))) == dial.low:
            warnings.warn(
                "the probe for rounds without expected benefit lies below the dial's lowest level: such rounds get no "
                "dose, teach nothing, and count as unknown; a larger probe would help",
                UserWarning,
                stacklevel=8,
            )

    @cached_property
    def start(self) -> StartSetting:
        return super().start._replace(least=None if self.least_dose is None else self.task.dial.lowest_level)

    @property
    def history_counts(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it depends on an option
        return self.history != "train"

    @cached_property
    def column(self) -> Any:
        """What `group` is, with a feature's name as its column."""
        if isinstance(self.group, str) and self.task.features is not None:
            return self.task.features.names.index(self.group)
        return self.group

    @cached_property
    def signed(self) -> bool:
        """Whether rounds are grouped by the sign of r̂; otherwise every round trains and calibrates."""
        return self.groups == "sign"

    # --- The state

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> Learned:
        one = lanes == () or self.reach is None
        require(one, "reach", self.reach, "is a guard for an Agent or a study", "leave it out of a simulation")
        return Learned(lanes, self.task.dim, Bets(lanes, lag=self.lag, tie=TIE) if watch else None)

    def begin(self, state: Learned, asked: Asked) -> None:
        """Refit if one is due: before a decision, never after, so that no decision uses its own round."""
        if state.count >= state.next_fit:
            self._refit(state)

    def bound(self, state: Learned, asked: Asked) -> Bound:
        context, one = asked.context, state._lanes == ()
        reward = scalar(np.vecdot(context, state.reward))
        label = 0 if self.column is None else self._label_of(state, context)
        code = 2 * label + (self.signed & (reward >= 0.0))
        ties, upper = NO_TIES, math.inf + 0.0 * (code + np.asarray(self.safe_spec.violation_risk))  # in each lane
        if state.fitted:
            upper = self._calibrated(state).upper(context, code=code)
        upper = scalar(upper)
        if self.reach is not None and (ties := state._ties.get(code, NO_TIES)).found:
            upper = math.inf
        xp = namespace(upper)
        ready = upper < math.inf
        allowed = self.allowed(upper, ready, asked)
        largest, sound = self.or_first(allowed, ready, asked)
        if self.reach is not None:
            farthest = float(self.reach) * max(float(state.tried[0]), 0.0)
            largest = min(largest, max(self.first(asked).intensity, farthest))
        if self.least_dose is not None:
            largest = xp.where(sound, xp.maximum(largest, self.least_dose), largest)
        index = xp.where(reward > -math.inf, reward, -1.0)
        numbers, limit = {"reward": reward, "cost_upper": upper}, ""
        if one:
            limit = self.limit(allowed.intensity, largest, ready=ready, tied=ties.found)
            numbers |= self._numbers(state, asked, code, None if ready else ties)
        return Bound(index, largest, numbers, ready, sound, memo=code, limit=limit)

    def choose(self, bound: Bound, asked: Asked) -> Array:
        return probed(bound, probe_share(self.probe, asked.number), self.least_dose)

    def open(self, state: Learned, asked: Asked, bound: Bound | None, chosen: Any) -> None:
        rounds = state.rounds
        row = rounds.append()
        place, code = rounds.first + row, 0 if bound is None else bound.memo
        rounds.context[..., row, :] = asked.context
        if self.column is not None:
            label = rounds.label[..., row] = self._label_of(state, asked.context, add=True)
            code = 2 * label + (code & 1)
        if bound is not None:
            rounds.advised[..., row] = chosen
        elif self.history == "train":
            state.history = place + 1
        if state.bets is not None:
            state.bets.open(member=calibrates(place) and place >= state.history, group=code)

    def tell(self, state: Learned, place: int, told: Told) -> None:
        """An outcome; ignored if the round has left the window or is left out."""
        rounds, row = state.rounds, place - state.rounds.first
        if row < 0:
            return
        kept, fate = ~rounds.left[..., row], np.asarray(told.fate)
        known = (fate == KNOWN) & (told.weight > 0.0) & kept
        if known.any():
            _put(rounds.reward, row, told.reward, known)
            _put(rounds.cost, row, told.cost, known)
            state.known = state.known + known
            if self.reach is not None:
                rounds.measured[row] = told.measured - told.baseline
                state.tried[0] = max(state.tried[0], told.intensity)
                state.tried.sort()
        left = (fate == LEFT_OUT) & kept & (rounds.cost[..., row] == math.inf)
        if left.any():
            rounds.left[..., row] |= left
            if state.bets is not None:
                state.bets.leave_out(place, left)
        throttled, shown = fate == THROTTLED, known
        if throttled.any():
            least = least_quotient(self.task, told, rounds.advised[..., row])
            _put(rounds.least, row, least, throttled & (least == least))
            shown = known | (throttled & (least == least))
        if state.bets is not None and state.fitted and shown.any():
            if state._lanes and place == state.count - 1:  # many lanes are scored together, when it matters
                state.bets.tell(place, shown)
                state._scored = False
            else:
                self._rank(state)
                low, up = self._scores(state, np.s_[..., row])
                state.bets.tell(place, shown, low=low, up=up)

    def evidence(self, state: Learned) -> dict[str, Evidence]:
        if state.bets is None or not state.fitted:
            return {}
        self._rank(state)
        return {"drift": state.bets.evidence()}

    def _rank(self, state: Learned) -> None:
        """Let the bets know the scores of the rounds since the last refit."""
        if not state._scored and state.bets is not None:
            rows = np.s_[..., state.fitted - state.rounds.first : state.rounds.count]
            state.bets.rounds.low[rows], state.bets.rounds.up[rows] = self._scores(state, rows)
            state._scored = True

    def restart(self, state: Learned, before: Learned | None = None) -> None:
        if state.bets is not None and state.fitted:
            state.bets.restart()

    # --- The bound

    def _calibrated(self, state: Learned) -> Calibration:
        """What new rounds of all lanes are compared with, as the last refit set it."""
        if state._calibration is None:
            rounds = state.rounds
            codes = rounds.code[..., : state.fitted - rounds.first]
            held = np.flatnonzero((codes >= 0).any(axis=tuple(range(codes.ndim - 1))))
            rows, residual, codes = rounds.context[..., held, :], rounds.residual[..., held], codes[..., held]
            risk = self.safe_spec.violation_risk
            state._calibration = calibration(state.inverse, state.coef, rows, residual, codes, risk=risk)
            if self.reach is not None:
                known = np.isfinite(residual)
                groups = {code: known & (codes == code) for code in np.unique(codes).tolist()}
                state._ties = {code: find_ties(rounds.measured[held[here]]) for code, here in groups.items()}
        return state._calibration

    def ties(self, state: Learned) -> list[Ties]:
        """The ties of each group of the one lane, where the reach asks for them."""
        if state.fitted:
            self._calibrated(state)
        return list(state._ties.values()) or [NO_TIES]

    def limit(self, allowed: float, largest: float, *, ready: bool = True, tied: bool = False) -> str:
        """What of the policy's own set the largest intensity: why it is the start, or a guard."""
        if not ready:
            return "no_information" if tied else "start_dose"
        if self.reach is not None and largest < allowed * (1.0 - NEAR):
            return "reach"
        return "lowest_level" if self.least_dose is not None and largest > allowed * (1.0 + NEAR) else ""

    def _numbers(self, state: Learned, asked: Asked, code: int, ties: Ties | None) -> dict[str, Any]:
        """What the certificate of a decision is written from, beside reward and bound; `ties` if there is none."""
        sizes = np.zeros(1, dtype=np.int64) if state._calibration is None else state._calibration.sizes
        found = {
            "cost": float(asked.context @ state.cost),
            "mean_cost": float(asked.context @ state.coef),
            "norm": float(asked.norm),
            "size": sizes.item(min(code, sizes.size - 1)),
            "calibrating": int(sizes.sum()),
            "rounds": state.count,
            "known": int(state.known),
            "fitted": state.fitted,
            "tenth": float(state.tried[0]) if state.tried[0] > -math.inf else None,
        }
        if self.group is not None:
            found["label"] = self._name_of(asked.context)
        if state._calibration is not None and ties is not None:
            unknown = state._calibration.compared(code) == math.inf
            found["unknown"] = int(np.count_nonzero(unknown)) if found["size"] else 0
            if ties.found:
                found |= {f"tied_{name}": value for name, value in ties._asdict().items()}
        return found

    # --- The user's groups

    def _label_of(self, state: Learned, context: Array, *, add: bool = False) -> Any:
        """The number of each context's label."""
        vectors = np.reshape(context, (-1, self.task.dim))
        found = [state.label(self._name_of(vector), add=add) for vector in vectors]
        return found[0] if np.ndim(context) == 1 else np.reshape(found, np.shape(context)[:-1])

    def _name_of(self, context: Array) -> Hashable:
        """The label of one context: a column's value, or the result of the user's function."""
        group: Any = self.column
        if isinstance(group, int):
            return float(context[group])
        try:
            label = group(np.array(context))
        except Exception as error:
            raise InvalidInput(f"group: failed on a context ({type(error).__name__}: {error})") from error
        label = label.item() if isinstance(label, np.generic) else label
        fine = isinstance(label, (str, int, float)) and label == label
        require(fine, "group", label, "must return a text or a number for each context")
        return label

    # --- Refits

    def _refit(self, state: Learned) -> None:
        """New predictors, and with them every round's residual, group and score. Rounds before the window are
        forgotten, and the latest `lag` rounds not used yet, because their outcomes may still arrive.
        """
        rounds, bets, count = state.rounds, state.bets, state.count
        last = max(rounds.first, count - self.lag)
        if bets is not None and state.fitted:
            self._rank(state)
            bets.settle_all()
        drop = max(0, last - rounds.first - self.window)
        rounds.cut(drop)
        if bets is not None:
            bets.cut(drop)
        self._fit(state, last)
        state.fitted = last
        own = count - max(rounds.first, state.history)
        # 1e-9: rounding of GROWTH * own must not delay a refit by a round.
        grown = count + max(1, math.ceil(GROWTH * own - 1e-9))
        state.next_fit = max(grown, state.history + FIRST_FIT)
        state._calibration, state._ties = None, {}
        if bets is not None:
            low, up = self._scores(state, np.s_[..., : rounds.count])
            told = np.isfinite(rounds.rows("cost")) | np.isfinite(rounds.rows("least"))
            bets.restate(low=low, up=up, told=told, group=self._codes(state, rounds.count), begin=last)

    def _fit(self, state: Learned, last: int) -> None:
        """The predictors of the rounds before `last`, and the calibration rounds' residuals and groups under them."""
        rounds, ridge = state.rounds, float(self.spec.ridge)
        size = last - rounds.first
        context, left = rounds.context[..., :size, :], rounds.left[..., :size]
        targets = np.stack([rounds.reward[..., :size], rounds.cost[..., :size]], axis=-1)
        known = np.isfinite(targets[..., 1])
        numbers = np.arange(rounds.first, last)
        own = numbers >= state.history
        apart = calibrates(numbers) & own
        rest = np.flatnonzero(~apart)
        _, both = ridge_fit(context[..., rest, :], targets[..., rest, :], known[..., rest], ridge)
        state.inverse, whole = ridge_fit(context, targets, known, ridge)
        state.cost, state.coef = both[..., 1].copy(), whole[..., 1].copy()
        # Without groups by sign it only says how much of the safe dose is given, so r̂ may come from all rounds.
        state.reward = (both if self.signed else whole)[..., 0].copy()
        guess = (context @ state.coef[..., None])[..., 0]
        rounds.residual[..., :size] = _score(targets[..., 1], guess)
        counted = (apart if self.signed else own) & ~left
        rounds.code[..., :size] = np.where(counted, self._codes(state, size), -1)

    def _codes(self, state: Learned, size: int) -> Any:
        """The groups of the first `size` rounds, under the present r̂."""
        rounds = state.rounds
        reward = (rounds.context[..., :size, :] @ state.reward[..., None])[..., 0]
        return 2 * rounds.label[..., :size] + (self.signed & (reward >= 0.0))

    def _scores(self, state: Learned, rows: Any) -> tuple[Any, Any]:
        """(low, up) of rounds for the bets, under the present ĉ: −score, or that of the least score it may have."""
        rounds = state.rounds
        cost, least = rounds.cost[rows], rounds.least[rows]
        coef = state.cost if np.ndim(cost) == len(state._lanes) else state.cost[..., None, :]
        guess = np.vecdot(rounds.context[(*rows, slice(None))], coef)
        up = _score(np.where(np.isfinite(cost), cost, least), guess)
        return -_score(cost, guess), np.where(np.isfinite(up), -up, math.inf)

    # --- Certificates

    @property
    def whole(self) -> str:
        """The rounds that the guarantee is about."""
        if self.signed:
            return "for the group"
        whose = "all rounds" if self.group is None else "all rounds of your group"
        return f"over {whose}, not among those expected to benefit"

    def terms(self, decided: Decided) -> Terms:
        return super().terms(decided)._replace(note=COMPARED[self.history] if decided.reason == "drift" else "")

    def facts(self, decided: Decided) -> dict[str, Any]:
        """Plain values: the fit, the group, the bound and the guards."""
        numbers, risk = decided.numbers, self.spec.violation_risk
        kept, top = (int(part) for part in places(numbers["size"], risk))
        upper, ties = numbers["cost_upper"], [numbers.get(f"tied_{name}") for name in Ties._fields]
        room = self.spec.threshold - decided.baseline
        allowed = None if upper is None else float(largest_safe_intensity(upper, 0.0, threshold=room).intensity)
        return {
            "risk": {"violation_risk": risk, "this_round": risk},
            "model": {
                "reward": numbers["reward"],
                "cost": numbers["mean_cost"],
                "context_norm": numbers["norm"],
                "rounds": numbers["rounds"],
                "known_outcomes": numbers["known"],
                "rounds_at_refit": numbers["fitted"],
            },
            "group": {
                "label": self._shown_label(numbers.get("label")),
                "benefit_expected": decided.index >= 0.0,
                "calibration_rounds": numbers["size"],
                "used": kept,
                "rank_from_top": top,
                "rank": kept + 1 - top if top else None,
            },
            "start_dose": self.start_dose,
            "cost_upper": upper,
            "bound_intensity": allowed,
            "reach": {"factor": self.reach, "tenth_applied": numbers["tenth"], "proof": False},
            "start_rounds": numbers["starts"],
            "unknown_scores": numbers.get("unknown"),
            "tied_costs": None if ties[0] is None else dict(zip(("cost", "rounds", "of"), ties, strict=True)),
        }

    def rests_on(self, shared: list[str]) -> list[str]:
        before = {
            "train": "rounds from before the first decision only train the predictors; nothing is assumed about them",
            "calibrate": "rounds from before the first decision, if any, are exchangeable with later rounds",
        }
        return [
            "rounds are exchangeable: contexts and noise behave as if drawn independently from one source, without "
            "drift, and no round influences another (watched: see evidence)",
            before[self.history],
            *shared,
            f"the probability is over the calibration rounds too, and holds {self.whole}, not for each context",
            "whether an outcome is late or missing depends neither on contexts nor on outcomes",
            f"the groups, the window ({self.window} rounds) and the ridge were fixed before the first round",
        ]

    def bounded(self, decided: Decided, limited: str) -> str:
        return f"{limited}, for exchangeable rounds, {'within its group' if self.signed else self.whole}"

    def reckoned(self, decided: Decided, facts: dict[str, Any]) -> str:
        group, upper, predicted = facts["group"], facts["cost_upper"], facts["model"]["cost"]
        margin = f"the prediction {predicted:.4g} and a margin {upper - predicted:.4g}"
        score = f"score {group['rank']} of the latest {group['used']}, the smallest first"
        return f"{margin}, {score}; there are {self._count(group)}"

    def _count(self, group: dict[str, Any]) -> str:
        """How many rounds there are to compare with."""
        whose = ["benefit expected" if group["benefit_expected"] else "no benefit expected"] if self.signed else []
        whose += [] if group["label"] is None else [str(group["label"])]
        count = f"{group['calibration_rounds']} calibration rounds"
        return f"{count} of its group ({', '.join(whose)})" if whose else count

    def no_bound(self, decided: Decided, facts: dict[str, Any]) -> list[str]:
        """Why the start dose is used."""
        risk, group = self.spec.violation_risk, facts["group"]
        unknown, ties = facts["unknown_scores"], facts["tied_costs"]
        fewest = math.ceil(1.0 / risk - 1e-9) - 1
        lines = [
            f"The start: the last refit had {self._count(group)}. A conformal bound at risk {risk:g} needs at least "
            f"{fewest}, not too many of them without a known outcome, and a finite prediction."
        ]
        if unknown:
            lines.append(
                f"Of the latest {group['used']} scores, {unknown} have no known outcome (open, void, or no dose "
                f"given); at most {max(group['rank_from_top'] - 1, 0)} may lack one."
            )
        if ties:
            lines.append(
                f"{ties['rounds']} of {ties['of']} known calibration rounds of the group have the same measured cost, "
                f"{ties['cost']:g}. That is more than a third, so costs carry no information. Report the measured "
                "quantity, not its excess over a limit."
            )
        return lines

    def guards(self, decided: Decided, facts: dict[str, Any]) -> list[str]:
        """Which guard set the intensity, and how often the start dose was given."""
        allowed, tenth, lines = facts["bound_intensity"], facts["reach"]["tenth_applied"], []
        safe = rounded_down(decided.largest)
        why = "" if allowed is None else self.limit(allowed, decided.largest)
        if why == "reach":
            how = "the start dose, until ten rounds have known outcomes"
            if tenth is not None:
                how = f"{self.reach:g} times {tenth:.4g}, the 10th largest applied intensity with a known outcome, "
                how += f"or the start dose if that is more: {safe}"
            lines.append(
                f"The reach: {how}. It guards against costs that rise faster than the dose curve says beyond the doses "
                "tried; it is not a proof."
            )
        elif why == "lowest_level":
            lines.append(
                f"This decision gives the lowest level (intensity {safe}): at most the start dose you declared."
            )
        if facts["start_rounds"]:
            before = decided.number - 1
            lines.append(f"At the start dose so far: {facts['start_rounds']} of the {before} earlier decisions.")
        return lines

    def _shown_label(self, label: Any) -> Any:
        """A group's label for people: a feature with its raw value, anything else unchanged."""
        column, features = self.column, self.task.features
        if label is None or features is None or not isinstance(column, int) or column >= len(features.names):
            return label
        raw = label * (features.scale or ())[column] + (features.center or ())[column]
        return f"{features.names[column]} = {raw:g}"


COMPARED = {
    "train": "; rounds from before the first decision were not compared",
    "calibrate": "; rounds from before the first decision were compared too: if these are the ones that differ, "
    "resume without the earlier rounds",
}
"""Whether a drift alarm also compared rounds from before the first decision, by `history`."""


def _steps(task: Task) -> float:
    """The largest step between the dial's levels, as a ratio of their intensities; 1 for a continuous dial."""
    heights = [float(task.dose.cost.effect(task.dial.action(level))) for level in task.dial.levels or ()]
    given = [height for height in heights if height > 0.0]
    return max((above / below for below, above in pairwise(given)), default=1.0)


def _score(cost: Any, guess: Any) -> Any:
    """C/g less its prediction; +∞ if the outcome or the prediction is unknown."""
    known = np.isfinite(guess)
    return np.where(known, cost - np.where(known, guess, 0.0), math.inf)


def _put(column: Array, row: int, value: Any, here: Any) -> None:
    """A row's value, in the lanes that are `here`."""
    if here.all():
        column[..., row] = value
    elif here.any():
        column[..., row] = np.where(here, value, column[..., row])


hp_conformal = HPConformal
