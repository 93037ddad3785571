"""HP-Student: the realized-cost guarantee for Gaussian noise of unknown size, with no κ, S or L.

With a probe in every round, C/g and R/g are one regression, whatever the doses were. If the cost's noise is Gaussian,
its size is learned exactly as a textbook learns it: least squares of C/g on x, without a ridge, give an upper bound
U(x) (`bounds.t_laws`), and z_safe = 1 if U ≤ τ else τ/U is played if the estimated reward is ≥ 0, else a probe of it.
Until n ≥ d + 2 rounds of full rank are known, and where contexts are too ill-conditioned, the dose is the start dose.

Rounds are learned in decision order. Decision t of a per-round or a tolerance guarantee uses all rounds before
t − `lag` and no other: while one of them is open, or was lost for a reason that may be related to its outcome, the
start dose is given, because using what happens to be known would select rounds by their outcomes. The anytime guarantee
holds for every prefix, so it uses the longest known one.

**Starting again without the earlier rounds** is such a selection too: where rounds are forgotten whenever a high cost
was lost, those in force are a truncated sample. So after forgetting for a reason that may be related to outcomes there
is no exact bound again, but the anytime one, which is given the past; its epoch k spends 6δ′/(π²k²), which sum to δ′.

**Evidence.** If the noise is Gaussian and contexts do not follow it, the residuals (Y_i − ⟨x_i,μ̂⟩)/(s√(1+w²)), each
with the fit before its round, have independent and uniform p-values, whatever was late, so bets on small ones are fair
(`bounds.ranks`). Contexts that react void this, so the anytime guarantee counts Y_i > U_i instead, U_i from that
same fit, which has probability ≤ δ given the past while the bound holds (`bounds.monitor`).

A lost round ends the bets, and an open one holds them up: the fits after it would rest on a selection. So the rounds
decided after one that was lost, or while one is waited for, are counted as for the anytime guarantee, with U_i the
tolerance bound of the rounds before it, which no selection touched. All bounds, of every such fit for every later
round, hold at once but with probability ½/100, the sum of their failures (`spent_in`, for the fit and for the round).
While they hold, the evidence of the count, of which half is shown, ever reaches 200 with probability ½/100. In a
throttled round the advised setting would have cost at least what was measured, so Y_i is at least that over the advised
intensity, and counts if this exceeds U_i.

Needs: i.i.d. Gaussian cost noise; a mean cost linear in the context; contexts that carry neither past costs nor doses
nor outcomes with their noise ("anytime": any contexts); exact dose curves, no sensor noise, every dose above 0. Does
not give: validity given the history ("tolerance" and "anytime" do), or δ among full doses if the reward's noise is
related to the cost's. docs/student.md has the proofs and what breaks them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from inspect import signature
from typing import Any, Literal

import numpy as np

from safedial.bounds import least_squares, monitor, ranks
from safedial.bounds.least_squares import SPARE, WORST, Fitted
from safedial.bounds.t_laws import Mixture, chance_above, cost_upper, epoch_share, spent_in, t_quantile
from safedial.errors import is_number, require
from safedial.model.guarantee import MARGINAL as MARGINAL_NEEDS
from safedial.model.namespace import every, some, where
from safedial.model.spec import SafetySpec
from safedial.policies import combine, words
from safedial.policies.conformal import hp_conformal
from safedial.policies.policy import (
    KNOWN,
    LEFT_OUT,
    LOST,
    OPEN,
    THROTTLED,
    Asked,
    Bound,
    Decided,
    Evidence,
    Task,
    Told,
    flag,
    least_quotient,
    one_of,
    option,
    probed,
    teaching_probe,
)
from safedial.policies.start import StartingPolicy, declared_dose
from safedial.policies.supports import ELSEWHERE
from safedial.policies.table import Table

FORMS = ("per_round", "tolerance", "anytime")

KEPT = (
    "reward", "cost", "width", "spread", "degrees", "norm", "rounds", "condition", "rounding", "log_det", "least"
)  # fmt: skip
"""What a log keeps of a decision's fit."""


# --- Learning in order of decision


CUT = 256
"""So many passed rows are forgotten at a time, since that moves all rows behind them."""


class Prefix:
    """The rounds that wait, for each lane, and how far each lane is. A confidence set holds for every prefix of rounds,
    whatever delays depend on.

        opened ─► waits until all earlier rounds of its lane have ended ─► learned, in its turn
                     └─ LOST: the prefix ends before it, for good

    Going on without a lost round would be learning from a selection: rounds that are missing because of their outcomes
    (a patient who fell ill stays away) bias every estimate, unnoticed. A round that is LEFT_OUT is passed without harm.
    Where outcomes come at once, nothing ever waits.

    Attributes:
        waiting: their rows: `context`, what the policy `chosen`, `reward` and `cost`, `fate`, and more columns of the
            policy's own, each by its fill value (`Table`).
        latest: context, choice and own columns of the latest round while it is `fresh`: it has no row yet, and needs
            none if it is told before anything else happens.
        learned: the place of the next round, so how many have been passed.
        lost: how many rounds were lost.
    """

    def __init__(self, lanes: tuple[int, ...], dim: int, **more: Any) -> None:
        given: dict[str, Any] = {"context": (0.0, (dim,)), "chosen": 0.0, "reward": 0.0, "cost": 0.0}
        self.waiting = Table(lanes, **given, fate=np.int8(OPEN), **more)
        self._own = {name: np.full(lanes, fill) for name, fill in more.items()}
        self.latest: dict[str, Any] = {"context": np.zeros((*lanes, dim)), "chosen": np.zeros(lanes), **self._own}
        self.fresh = False
        self.learned, self.lost = np.zeros(lanes, dtype=np.int64), np.zeros(lanes, dtype=np.int64)
        self._lanes = tuple(np.indices(lanes))

    @property
    def opened(self) -> int:
        """How many rounds were opened."""
        return self.waiting.first + self.waiting.count + self.fresh

    @property
    def waits(self) -> bool:
        """Whether any round waits in any lane."""
        return self.fresh or self.waiting.count > 0

    def open(self, context: Any, chosen: Any, **own: Any) -> int:
        """Add a decided round, with columns of the policy's own. Returns its place."""
        self._keep()
        self.latest, self.fresh = {"context": context, "chosen": chosen, **self._own, **own}, True
        return self.waiting.first + self.waiting.count

    def _keep(self) -> Table:
        """The rows, the latest round's too."""
        kept = self.waiting
        if self.fresh:
            row, self.fresh = kept.append(), False
            kept.context[..., row, :] = self.latest["context"]
            for name in ("chosen", *self._own):
                getattr(kept, name)[..., row] = self.latest[name]
        return kept

    def is_open(self, place: int) -> Any:
        """The lanes where the round at `place` waits for its outcome; those that nobody remembers do not."""
        row = place - self.waiting.first
        if row < 0:
            return np.zeros(self.learned.shape, dtype=bool)
        return self._keep().fate[..., row] == OPEN

    def at(self, name: str, place: int) -> Any:
        """A column's values at a remembered place."""
        row = place - self.waiting.first
        if self.fresh and row == self.waiting.count and name in self.latest:
            return self.latest[name]
        every = (slice(None),) * len(self._lanes)
        return getattr(self._keep(), name)[(*every, row)]

    def fill(self, name: str, value: Any) -> None:
        """Set a column of the policy's own in all rounds that wait."""
        self._keep().rows(name)[...] = value

    def tell(self, place: int, fate: Any, reward: Any = 0.0, cost: Any = 0.0) -> Any:
        """What became of a round. Returns the lanes where this is new: a round ends once."""
        kept = self._keep()
        row = place - kept.first
        told = self.is_open(place) & (np.asarray(fate) != OPEN)
        if row >= 0:
            for column, value in ((kept.reward, reward), (kept.cost, cost), (kept.fate, fate)):
                column[..., row] = np.where(told, value, column[..., row])
            self.lost += told & (np.asarray(fate) == LOST)
        return told

    def at_once(self, place: int, most: int) -> bool:
        """Pass the round at `place`, which has ended in every lane without being lost, if no other one waits and it is
        before `most`: as if it had been told, and had its turn.
        """
        kept = self.waiting
        if not self.fresh or kept.count or place != kept.first or place >= most:
            return False
        self.fresh, kept.first, self.learned = False, place + 1, self.learned + 1
        return True

    def turns(self, most: int) -> Iterator[tuple[Any, Any]]:
        """(rows, lanes) of the rounds before place `most` whose turn has come, one round for each lane at a time, in
        the lanes where it is KNOWN. Their columns are `take(name, rows)`.
        """
        kept = self._keep()
        while True:
            rows = np.minimum(self.learned - kept.first, kept.count - 1)
            fate = kept.fate[(*self._lanes, rows)]
            ended = (self.learned < most) & ((fate == KNOWN) | (fate == LEFT_OUT))
            if not np.any(ended):
                break
            self.learned = self.learned + ended
            known = ended & (fate == KNOWN)
            if np.any(known):
                yield rows, known
        passed = int(np.min(self.learned)) - kept.first
        if passed == kept.count or passed >= CUT:
            kept.cut(passed)

    def take(self, name: str, rows: Any) -> Any:
        """The values of a column, each lane's in its own row."""
        return getattr(self.waiting, name)[(*self._lanes, rows)]

    def awaited(self, most: int) -> Any:
        """How many rounds before place `most` are open that have not been passed."""
        fate = self._keep().rows("fate")
        places = self.waiting.first + np.arange(self.waiting.count)
        return np.sum((fate == OPEN) & (places >= self.learned[..., None]) & (places < most), axis=-1)


# --- What is learned


class Learned:
    """What is known of the rounds so far.

    Attributes:
        fit: the least squares of the rounds learned.
        log_det, least: for the anytime bound, an upper bound on ln det(I + G/λ) and a lower one on g_min.
        rounds: those that wait, with the bound `upper` on C/g that a decided round counts against; ∞ if it does not.
        before: how many rounds there were from before the first decision.
        watch: the evidence; None where nobody asks for it.
    """

    def __init__(self, fit: Any, lanes: tuple[int, ...], dim: int, watch: Watch | None) -> None:
        nothing: Any = np.zeros(lanes) if lanes else 0.0
        self.fit, self.log_det, self.least = fit, nothing, nothing
        self.rounds, self.before, self.watch = Prefix(lanes, dim, upper=math.inf), 0, watch
        self._opened: tuple[Any, Any, Any] = (None, None, None)
        """The latest round's place, the fit at its decision, and what that said."""


class Watch:
    """The evidence: bets on p-values, and a count of the rounds that exceeded a bound. `crossed`: whether it ever
    reached `limit`.
    """

    def __init__(self, lanes: tuple[int, ...], limit: float, *, anytime: bool) -> None:
        self._lanes, self._limit, self._anytime = lanes, limit, anytime
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self.bets, self.count = ranks.init(self._lanes), monitor.init(self._lanes)
        self.crossed: Any = np.zeros(self._lanes, dtype=bool)
        self._value: Any = None

    @property
    def value(self) -> Any:
        """1 at the start, large where the assumptions look broken."""
        if self._value is None:
            self._value = monitor.evidence(self.count) if self._anytime else ranks.evidence(self.bets)
            if not self._anytime and some(self.count.rounds):
                counted = np.where(self.count.rounds > 0.0, monitor.evidence(self.count) / 2.0, 0.0)
                self._value = np.maximum(self._value, counted)
        return self._value

    def bet(self, chance: Any) -> None:
        """Bet on a round's p-value, where it is a number."""
        self.bets = ranks.update(self.bets, chance)
        self._notice()

    def expect(self, risk: Any, counted: Any) -> None:
        """Count a decided round as one that kept its bound, so that open and lost rounds hide nothing."""
        more = monitor.update(self.count, np.zeros(self._lanes, dtype=bool) if self._lanes else False, risk)
        self._value = None
        if counted is True:
            self.count = more
            return
        log_evidence = np.where(np.asarray(counted)[..., None], more.log_evidence, self.count.log_evidence)
        self.count = monitor.Monitor(log_evidence, self.count.rounds + counted, self.count.violations)

    def exceed(self, over: Any) -> None:
        """Count an expected round as one that exceeded its bound."""
        self.count = monitor.revise(self.count, np.asarray(over, dtype=float))
        self._notice()

    def _notice(self) -> None:
        self._value = None
        self.crossed = self.crossed | (self.value >= self._limit)


@cache
def certified() -> Any:
    """The arithmetic of one lane, imported when it is used: no help text waits for SciPy."""
    from safedial.bounds import triangle

    return triangle


@dataclass(frozen=True, kw_only=True)
class HPStudent(StartingPolicy):
    """Play z_safe from the Student bound if benefit is expected, else a probe of it; every round is informative.

    Attributes:
        form: the option `guarantee`. "per_round": P(C > τ) ≤ δ in every round, over the past too. "tolerance": in each
            round, with probability ≥ 1 − δ′ over the past, P(C > τ | past) ≤ δ. "anytime": with probability ≥ 1 − δ′,
            that in all rounds at once, whatever contexts do. All but the first need `estimation_risk` (δ′).
        probe: as for `hp_probe`, but above 0: a round without a dose would be left out because of its outcome.
        start_dose, lag: as for `StartingPolicy`. While an older round is open the start dose is given. "anytime" needs
            no lag.
        either: give no more than `hp_conformal` would (without groups), and the start dose until both have a bound: the
            guarantee then holds if the noise is Gaussian, *or* if rounds are exchangeable. For "per_round".
        mixture_ridge, mixture_shape: λ and a of the anytime bound. λ is in units of a squared context: d times its mean
            squared coordinate is a good choice.

    Reference: this project, docs/student.md; Student's t prediction interval is a textbook's (Seber and Lee 2003, 5.3).
    """

    name = "hp_student"
    label = "HP-Student"
    guarantee = "student"
    stop_rules = ("student_drift", "alarm")
    watches_lanes = False
    excludes = (ELSEWHERE - {"several costs"}) | {"costs of 0 or 1", "sensor noise"}
    uncompiled = "needs quantiles of Student's t, which JAX does not have"
    applied = "every applied action is above zero and at most the advised one; whoever chooses it may use any knowledge"

    form: Literal["per_round", "tolerance", "anytime"] = one_of("per_round", FORMS, written="guarantee")
    probe: float | Literal["sqrt"] = teaching_probe(0.001)
    either: bool = flag(False)
    mixture_ridge: float = option(5.0, lambda size: is_number(size) and size > 0.0, "must be a number > 0")
    mixture_shape: float = option(10.0, lambda size: is_number(size) and size > 0.0, "must be a number > 0")

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = "has no proof with either=True: the conformal guarantee is over the past rounds too"
        fits = not self.either or self.form == "per_round"
        require(fits, "guarantee", self.form, rule, "use guarantee='per_round'")

    # --- The task

    def _check(self, spec: SafetySpec) -> None:
        """Refuse what the proofs do not cover."""
        half = np.all(np.asarray(spec.violation_risk) < 0.5)
        require(half, "violation_risk", spec.violation_risk, "must be below 0.5 for hp_student")
        known = self.form == "per_round" or spec.estimation_risk is not None
        rule = f"is missing: guarantee={self.form!r} needs it beside violation_risk"
        require(known, "estimation_risk", None, rule, "0.01 is usual")

    def on(self, task: Task, **options: Any) -> Any:
        """This policy for a task; of several costs each has its own bound, and the smallest setting counts."""
        self._check(task.spec)
        if task.spec.costs is not None:
            rule = "takes one cost with either=True, because the conformal guarantee has no proof for several"
            require(not self.either, "policy", self.name, rule, "use either=False")
            made = replace(self, **options)
            start = {"start_dose": declared_dose(made.start_dose, task)} if task.live else {}
            return combine.Smallest(of=made, named=replace(made, **start)).on(task)
        if task.live:
            rule = "has levels: rounds whose bound lies below the lowest one would get no dose, and which rounds get "
            rule += "none must not depend on outcomes"
            way_out = "use a dial without levels, hp_conformal or hp_shield"
            require(task.dial.levels is None, "dial", task.dial.levels, rule, way_out)
            options = {"start_dose": declared_dose(self.start_dose, task), **options}
        if not self.either:
            return super().on(task, **options)
        made = replace(self, **options)
        # Its guards are no part of the proof, and its guarantee must be over all rounds, as this one is.
        plain = {"groups": "none", "reach": None, "history": "calibrate", "least_dose": None}
        conformal = hp_conformal(start_dose=made.start_dose, lag=made.lag, **plain)
        members = {"student": replace(made, either=False), "conformal": conformal}
        return combine.Either(whole=made, members=members).on(task)

    @property
    def needs(self) -> tuple[frozenset[str], ...]:
        return (*super().needs, *((MARGINAL_NEEDS,) if self.either else ()))

    @property
    def marginal(self) -> bool:
        return self.form == "per_round"

    @property
    def allows_past_zeros(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- by an option
        """No outcome may decide which rounds get nothing; anytime, none that comes after that is decided."""
        return self.anytime

    @cached_property
    def anytime(self) -> bool:
        """Whether its guarantee holds given the past, in all rounds at once."""
        return self.form == "anytime"

    @cached_property
    def _failure(self) -> Any:
        """What of δ′ may be spent: in an epoch of the anytime guarantee, its part."""
        risk = self.safe_spec.estimation_risk
        return risk if risk is None or not self.anytime else risk * epoch_share(self.task.epoch)

    # --- Rounds

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> Learned:
        arithmetic = self._arithmetic(lanes)
        watched = Watch(lanes, self.task.alarm_at, anytime=self.anytime) if watch else None
        return Learned(arithmetic.init(self.task.dim, lanes), lanes, self.task.dim, watched)

    @staticmethod
    def _arithmetic(lanes: Any) -> Any:
        """Certified for one lane, plain for many."""
        return least_squares if lanes else certified()

    def begin(self, state: Learned, asked: Asked) -> None:
        self._learn(state)

    def bound(self, state: Learned, asked: Asked) -> Bound:
        rounds, used, waiting = state.rounds, self._used(state), 0
        seen = raw = self._predict(state, asked.context, asked.norm)
        if not self.anytime and rounds.waits and some(rounds.learned < used):
            behind = rounds.learned < used
            waiting, seen = rounds.awaited(used), raw._replace(ready=raw.ready & np.logical_not(behind))
            if not rounds.learned.shape:
                waiting, seen = int(waiting), seen._replace(ready=False)
        if not (self.task.exact or self.anytime):
            seen = seen._replace(ready=False if isinstance(seen.ready, bool) else seen.ready & False)
        upper, index, limit = self._upper(seen), seen.reward, ""
        known = upper < math.inf
        safe = self.or_first(self.allowed(upper, known, asked), known, asked)
        if not every(known):
            index, limit = where(seen.ready, seen.reward, 0.0), self._why_start(waiting, rounds)
        numbers = {name: getattr(seen, name) for name in KEPT} | {
            "cost_upper": upper,
            "enough": seen.ready,
            "waiting": waiting,
            "lost": rounds.lost if rounds.learned.shape else int(rounds.lost),
            "epoch": self.task.epoch,
            "exact": self.task.exact,
        }
        return Bound(index, safe.intensity, numbers, known, safe.certified, memo=(upper, raw), limit=limit)

    def choose(self, bound: Bound, asked: Asked) -> Any:
        return probed(bound, asked.number**-0.5 if self.probe == "sqrt" else float(self.probe))

    def open(self, state: Learned, asked: Asked, bound: Bound | None, chosen: Any) -> None:
        if bound is None:
            state.before += 1
            state.rounds.open(asked.context, chosen)
            return
        rounds, own, (upper, raw) = state.rounds, {}, bound.memo  # the fit without what keeps a decision from using it
        if state.watch is not None:
            counting = self.anytime or (rounds.waits and (rounds.lost > 0) | (rounds.learned < self._used(state)))
            if some(counting):
                risk = self.spec.violation_risk
                upper = upper if self.anytime else self._tolerated(state, raw, risk)
                own["upper"] = where(counting, upper, math.inf)
                state.watch.expect(risk, own["upper"] < math.inf)
        state._opened = rounds.open(asked.context, chosen, **own), state.fit, raw

    def tell(self, state: Learned, place: int, told: Told) -> None:
        rounds = state.rounds
        known = (told.fate == KNOWN) & (told.weight > 0.0)
        everywhere = every(known)
        fate = KNOWN if everywhere else self._fate(state, place, told, known)
        if state.watch is not None and rounds.waiting.first <= place:
            self._judge(state, place, told, known)
        latest, fit, seen = state._opened
        if everywhere and latest == place and fit is state.fit and rounds.at_once(place, self._used(state)):
            self._absorb(state, seen, told.reward, told.cost, True)
        else:
            rounds.tell(place, fate, told.reward, told.cost)
            self._learn(state)

    def evidence(self, state: Learned) -> dict[str, Evidence]:
        if state.watch is None:
            return {}
        return {self.stop_rules[self.anytime]: Evidence(state.watch.value, state.watch.crossed, self.task.alarm_at)}

    def restart(self, state: Learned, before: Learned | None = None) -> None:
        if state.watch is not None:
            state.watch.restart()
            state.rounds.fill("upper", math.inf)  # the new count is of the rounds decided from now on

    def keeps(self, changed: set[str]) -> bool:
        return not changed

    # --- How

    def _used(self, state: Learned) -> int:
        """How many rounds the next decision uses."""
        return state.rounds.opened if self.anytime else max(state.before, state.rounds.opened - self.lag)

    def _predict(self, state: Learned, context: Any, norm: Any = None) -> Fitted:
        """The fit at a context."""
        seen = self._arithmetic(state.rounds.learned.shape).predict(state.fit, context, norm)
        return seen._replace(log_det=state.log_det, least=state.least) if self.anytime else seen

    def _upper(self, seen: Fitted) -> Any:
        """U(x)."""
        mixture = Mixture(float(self.mixture_ridge), float(self.mixture_shape))
        return cost_upper(seen, self.form, self.safe_spec.violation_risk, self._failure, mixture=mixture)

    def _tolerated(self, state: Learned, seen: Fitted, risk: Any) -> Any:
        """What C/g of a round exceeds with probability at most `risk`, given the past."""
        learned, opened = state.rounds.learned - state.before, state.rounds.opened - state.before
        failure = spent_in(learned + 1.0, 1.0) * spent_in(opened - learned + 1.0, 0.5 / self.task.alarm_at)
        if not state.rounds.learned.shape:
            failure = float(failure)
        return cost_upper(seen, "tolerance", risk, failure)

    def _why_start(self, waiting: Any, rounds: Prefix) -> str:
        if not (self.task.exact or self.anytime):
            return "forgotten"
        return "open_rounds" if some(waiting) or some(rounds.lost) else "start_dose"

    def _fate(self, state: Learned, place: int, told: Told, known: Any) -> Any:
        """The fate of a round for learning. Nothing was given: if the baseline cost alone excluded a dose, the context
        decided that, and the round is left out; so it is under the anytime guarantee where the policy gave nothing.
        """
        rounds = state.rounds
        nothing = (told.fate == KNOWN) & np.logical_not(known) | (told.fate == LOST)
        harmless = told.baseline >= self.spec.threshold
        if place < state.before:
            harmless = True
        elif self.anytime and place >= rounds.waiting.first:
            harmless = harmless | (rounds.at("chosen", place) <= 0.0)
        fate = np.where(nothing, np.where(harmless, LEFT_OUT, LOST), told.fate)
        return np.where(told.fate == THROTTLED, LOST, fate)

    def _judge(self, state: Learned, place: int, told: Told, known: Any) -> None:
        """Count a round as one that exceeded its bound, whatever other rounds are open."""
        rounds, watch = state.rounds, state.watch
        upper = rounds.at("upper", place)
        if watch is None or not some(upper < math.inf):
            return
        quotient = where(known, told.cost, -math.inf)
        if some(throttled := told.fate == THROTTLED):  # NaN exceeds nothing
            quotient = np.where(throttled, least_quotient(self.task, told, rounds.at("chosen", place)), quotient)
        over = quotient > upper
        if some(over) and some(over := over & rounds.is_open(place)):
            watch.exceed(over)

    def _learn(self, state: Learned) -> None:
        """Learn, in order, every known round that the next decision uses."""
        rounds = state.rounds
        if not rounds.waits:
            return
        for rows, known in rounds.turns(self._used(state)):
            seen = self._predict(state, rounds.take("context", rows))
            self._absorb(state, seen, rounds.take("reward", rows), rounds.take("cost", rows), known)

    def _absorb(self, state: Learned, seen: Fitted, reward: Any, cost: Any, known: Any) -> None:
        """Bet on a round, and learn from it, in the lanes where it is known."""
        lanes = state.rounds.learned.shape
        arithmetic = self._arithmetic(lanes)
        if state.watch is not None and not self.anytime:
            chance = chance_above(seen, cost)
            state.watch.bet(np.where(known, chance, math.nan) if lanes else chance)
        before = state.log_det, state.least
        state.fit = arithmetic.update(state.fit, seen, reward, cost, known)
        if self.anytime:
            state.log_det, state.least = arithmetic.volume(before, state.fit, seen, known, ridge=self.mixture_ridge)

    # --- The certificate

    def bounded(self, decided: Decided, limited: str) -> str:
        if self.either:
            return f"{limited}, for Gaussian noise of any size, or for exchangeable rounds"
        if self.form == "per_round":
            return words.statement(self.guarantee, self.spec)
        sure, epoch = f"with probability {1.0 - self.spec.estimation_risk:g}", decided.numbers["epoch"]
        if self.form == "tolerance":
            return f"{sure} over the past rounds, {limited} given them, for Gaussian noise of any size"
        since = "" if epoch == 1 else f", those before each of {epoch - 1} new starts included"
        return f"{sure}, in all rounds at once{since}, {limited} given the past, for Gaussian noise of any size"

    def rests_on(self, shared: list[str]) -> list[str]:
        fixed = "the features, the lag and the probe" + (", λ and a of the mixture" if self.anytime else "")
        own = [
            "the mean cost per unit of intensity is linear in the context",
            *(ANYTIME if self.anytime else PER_ROUND),
        ]
        if self.either:
            own = [f"either {'; '.join(own)}; or {EXCHANGEABLE}"]
        late = f"the lag, {self.lag} rounds, was fixed in advance: outcomes that come later, or never, leave decisions "
        late += "at the start, and if those are the high ones, costs exceed more often among the rounds with a bound "
        late += "than stated for all"
        return [
            *own,
            *shared,
            *([] if self.anytime else [late, CHOSEN_ROUNDS]),
            *([MARGINAL] if self.form == "per_round" else []),
            "rounds from before the first decision, if any, satisfy all of this too",
            f"{fixed} were fixed before the first round",
        ]

    def facts(self, decided: Decided) -> dict[str, Any]:
        """Plain values: the fit, the bound, what it waits for, and how often learning has begun."""
        spec, numbers = self.spec, decided.numbers
        risk = {"violation_risk": spec.violation_risk, "this_round": spec.violation_risk}
        if spec.estimation_risk is not None:
            risk["estimation_risk"] = spec.estimation_risk
            if self.anytime:
                risk["this_epoch"] = spec.estimation_risk * epoch_share(numbers["epoch"])
        conformal = {}
        if self.either:
            names = {"cost_upper": "cost_upper", "calibration_rounds": "size", "rounds": "rounds"}
            conformal = {"conformal": {name: numbers[f"conformal.{key}"] for name, key in names.items()}}
        return {
            "risk": risk,
            "model": {
                "reward": numbers["reward"],
                "cost": numbers["cost"],
                "width": numbers["width"],
                "noise": numbers["spread"] / math.sqrt(numbers["degrees"]),
                "degrees_of_freedom": numbers["degrees"],
                "context_norm": numbers["norm"],
                "informative_rounds": numbers["rounds"],
                "condition": numbers["condition"],
            },
            "open_rounds_needed": numbers["waiting"],
            "lost_rounds": numbers["lost"],
            "start_rounds": numbers["starts"],
            "new_starts": numbers["epoch"] - 1,
            "cost_upper": numbers["cost_upper"],
            **conformal,
        }

    def reckoned(self, decided: Decided, facts: dict[str, Any]) -> str:
        numbers, noise, upper = decided.numbers, facts["model"]["noise"], facts["cost_upper"]
        cost, degrees = numbers["cost"], numbers["degrees"]
        how = f"the estimate {cost:.4g} + {upper - cost:.4g}"
        if self.either:
            other = numbers["conformal.cost_upper"]
            how = f"the larger of the Student bound and the conformal one, {other:.4g}"
        elif self.form == "per_round":
            quantile = float(t_quantile(degrees, self.spec.violation_risk))
            how = f"the estimate {cost:.4g} + t quantile {quantile:.4g} x noise {noise:.4g} x "
            how += f"sqrt(1 + {numbers['width']:.4g}^2)"
        return f"{how} ({numbers['rounds']:.0f} rounds, {degrees:.0f} degrees of freedom)"

    def no_bound(self, decided: Decided, facts: dict[str, Any]) -> list[str]:
        """Why the start dose is used."""
        return [f"The start: {self._no_bound(decided.numbers)}."]

    def _no_bound(self, numbers: dict[str, Any]) -> str:
        dim = self.task.dim
        if not (numbers["exact"] or self.anytime):
            return (
                "earlier rounds were forgotten, and nobody vouched that the reason had nothing to do with outcomes. It "
                "may arise again, and the rounds in force would be a selection, so there is no exact bound any more. A "
                "new study begins afresh, once that reason is gone"
            )
        if numbers["lost"]:
            return (
                f"{numbers['lost']} rounds that this decision needs have no outcome, for a reason that may be related "
                "to it. Vouch for such reasons when you report; or start again without the earlier rounds (resume with "
                "forget), which brings a bound back only if you can vouch that the reason of the loss, and of starting "
                "again, has nothing to do with outcomes"
            )
        if numbers["waiting"]:
            return f"{numbers['waiting']} rounds that this decision needs are still open (lag {self.lag})"
        if numbers["enough"] and self.either:
            return f"the conformal bound needs more rounds; there are {numbers['conformal.rounds']}"
        if not numbers["enough"]:
            return (
                f"a bound needs {dim + SPARE} known rounds whose contexts have rank {dim} and a condition of at most "
                f"{WORST:g}; there are {numbers['rounds']:.0f} rounds"
            )
        return f"the size of the noise has no upper bound yet, after {numbers['rounds']:.0f} rounds"


PER_ROUND = (
    "the cost's noise per unit of intensity is Gaussian, independent over rounds, and of one size for all contexts and "
    "doses (watched: see evidence)",
    "no context depends on past costs, past doses or other outcomes with the same noise; contexts may drift",
    "an outcome that is missing and vouched for as unrelated is unrelated to every cost",
)
ANYTIME = (
    "given the past, the context and the dose, the cost's noise per unit of intensity is Gaussian, and of one size "
    "for all; contexts may react to anything in the past",
    "an outcome that is missing and vouched for as unrelated is unrelated to its cost",
)
EXCHANGEABLE = (
    "rounds are exchangeable: contexts and outcomes per unit of intensity, without drift or carry-over; and whatever "
    "was left out was left out for an unrelated reason"
)
CHOSEN_ROUNDS = (
    "no rounds were forgotten, and the study was begun and amended, for no reason that is related to outcomes, unless "
    "it follows from contexts and this policy's own evidence alone"
)
MARGINAL = (
    "the probability is over the past rounds too; among rounds given a full dose it is at most the stated one only if "
    "the reward's noise is independent of the cost's"
)


def hp_student(**options: Any) -> HPStudent:
    """`HPStudent`, whose option `guarantee` is the field `form` there, because every policy has a guarantee."""
    return HPStudent(form=options.pop("guarantee", "per_round"), **options)


FIELDS = signature(HPStudent).parameters
hp_student.__signature__ = signature(hp_student).replace(  # pyright: ignore[reportFunctionMemberAccess]
    parameters=[FIELDS[name].replace(name=name.replace("form", "guarantee")) for name in FIELDS]
)
