"""The evidence of HP-Student: bets on p-values, and a count of the rounds that exceeded a bound.

If the noise is Gaussian and contexts do not follow it, the residuals (Y_i − ⟨x_i,μ̂⟩)/(s√(1+w²)), each with the fit
before its round, have independent and uniform p-values, whatever was late, so bets on small ones are fair
(`bounds.ranks`). Contexts that react void this, so the anytime guarantee counts Y_i > U_i instead, U_i from that
same fit, which has probability ≤ δ given the past while the bound holds (`bounds.monitor`).

A lost round ends the bets, and an open one holds them up: the fits after it would rest on a selection. So the rounds
decided after one that was lost, or while one is waited for, are counted as for the anytime guarantee, with U_i the
tolerance bound of the rounds before it, which no selection touched.
All bounds, of every such fit for every later round, hold at once but with probability ½/100, the sum of their failures
(`spent_in`, for the fit and for the round). While they hold, the evidence of the count, of which half is shown, ever
reaches 200 with probability ½/100. In a throttled round the advised setting would have cost at least what was measured,
so Y_i is at least that over the advised intensity, and counts if this exceeds U_i.

HP-Student for one online learner: certified least squares by QR, and a fixed lag.

A decision opens a round. Rounds are learned in decision order. Decision t of a per-round or a
tolerance guarantee uses all rounds before t − `lag` and no other: while one of them is open, or was lost for a reason
that may be related to its outcome, the start dose is given (using what happens to be known would select rounds by their
outcomes). The anytime guarantee holds for every prefix, so it uses the longest known one.

HP-Student with either=True: its dose, but never more than HP-Conformal's; the guarantee holds if either's does.

C > τ at the smaller of two doses means that C > τ at each of them, since noise scales with the intensity. So if the
noise is Gaussian, P(C > τ) ≤ δ by the Student bound, and if rounds are exchangeable, by the conformal one. Both learn
from all rounds, and neither sees the doses. Until both have a bound, the start dose is given.

Each learner watches its own assumption. If one of the two holds, its evidence ever reaches 100 with probability at most
0.01, so the smaller of both is the evidence, and the agent stops once both have reached it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from safedial.bounds import monitor, ranks
from safedial.bounds.choice import Choice
from safedial.bounds.rounding import rounded_spec
from safedial.bounds.t_laws import Mixture, chance_above, cost_upper, spent_in
from safedial.bounds.triangle import append, certified, empty, moved, triangle, volume
from safedial.errors import require
from safedial.model.dial import real
from safedial.model.namespace import Array
from safedial.policies import make_policy
from safedial.policies.family import Asked, Task
from safedial.policies.start import Start, declared_dose
from safedial.policies.student import conformal_part
from safedial.rounds import student_terms
from safedial.rounds.decision import plain_choice
from safedial.rounds.learner import Learner
from safedial.rounds.outcome import Sample, check_reported, least_quotient
from safedial.rounds.policy_learner import PolicyLearner

if TYPE_CHECKING:
    from safedial.rounds.decision import Decision
    from safedial.rounds.rules import Rules


class StudentWatch:
    """`crossed`: whether the evidence ever reached `alarm_at`."""

    alarm_at = 100.0

    def __init__(self, *, anytime: bool) -> None:
        self.anytime = anytime
        self.restart()

    def restart(self) -> None:
        self.capital, self.monitor, self.crossed = ranks.init(), monitor.init(), False

    @property
    def evidence(self) -> float:
        counted = float(monitor.evidence(self.monitor))
        if self.anytime:
            return counted
        bet = float(ranks.evidence(self.capital))
        return max(bet, counted / 2.0) if self.monitor.rounds else bet

    def bet(self, chance: float) -> None:
        """Bet on a round's p-value."""
        self.capital = ranks.update(self.capital, chance)
        self._notice()

    def guarantee(self, risk: float) -> None:
        """Count a decided round as one that kept its bound, so that open and lost rounds hide nothing."""
        self.monitor = monitor.update(self.monitor, False, risk)

    def exceed(self) -> None:
        """Count a guaranteed round as one that exceeded its bound."""
        self.monitor = monitor.revise(self.monitor)
        self._notice()

    def _notice(self) -> None:
        self.crossed = self.crossed or self.evidence >= self.alarm_at

    def state(self) -> dict[str, Any]:
        return {
            "capital": np.append(self.capital.held, self.capital.seen),
            "exceeded": np.append(self.monitor.log_evidence, [self.monitor.rounds, self.monitor.violations]),
        }

    def restore(self, arrays: dict[str, Any], *, crossed: bool) -> None:
        held, self.crossed = arrays["capital"], crossed
        self.capital = ranks.Capital(held[:-1].copy(), held[-1])
        *log_evidence, seen, over = arrays["exceeded"].tolist()
        self.monitor = monitor.Monitor(np.array(log_evidence), seen, over)


# --- HP-Student for one online learner: certified least squares by QR, and a fixed lag

OPEN, KNOWN, LEFT_OUT, LOST = range(4)
"""What became of a round: LEFT_OUT without harm, LOST for a reason that may be related to its outcome."""


class Seen(NamedTuple):
    """What a decision depends on, in plain values: a `bounds.least_squares.Fitted`, and the rounds that it waits for.

    `waiting` counts the needed rounds that are open, `lost` the rounds that were lost, `starts` the earlier decisions
    at the start dose.
    """

    reward: float
    cost: float
    width: float
    spread: float
    degrees: float
    ready: bool
    norm: float
    rounds: float
    log_det: float
    least: float
    condition: float
    waiting: int
    lost: int
    starts: int
    context: Any = None
    other: Any = None


class Waiting(NamedTuple):
    """A round not learned yet: its status, (x, y_c, y_r) or before the outcome x, and the anytime bound on its C/g."""

    status: int
    row: Array
    upper: float = math.inf


class StudentLearner(Learner):
    """The triangular factor of the rounds learned, and the rounds that wait."""

    certificate_terms = student_terms
    in_order, watches_itself = False, True
    stop_rules = ("student_drift", "alarm")
    statement: Any = staticmethod(student_terms.statement)

    def __init__(self, rules: Rules) -> None:
        self.rules, self.dim, options = rules, rules.dim, rules.policy.options
        self.anytime, self.lag, self.ridge = options["guarantee"] == "anytime", options["lag"], options["mixture_ridge"]
        self.mixture = Mixture(self.ridge, options["mixture_shape"])
        # The past and the context alone decided such a zero, which the anytime bound allows.
        self.leaves_own_zeros = self.anytime
        self.starts, self.watch = 0, StudentWatch(anytime=self.anytime)
        self.forget()

    @classmethod
    def started(cls, rules: Rules, start_action: Any) -> Rules:
        """The rules with the start dose, in the policy and in the dial's units, and the fallback that follows."""
        policy, spec, dose, dial = rules.policy, rules.spec, rules.dose, rules.dial
        rule = "has levels: rounds whose bound lies below the lowest one would get no dose, and which rounds get none "
        rule += "must not depend on outcomes"
        require(dial.levels is None, "dial", dial.levels, rule, "use a dial without levels, hp_conformal or hp_shield")
        options, setting = dict(policy.options), None if start_action is None else real("start_action", start_action)
        task = Task(dim=rules.dim, spec=spec, dose=dose, dial=dial, start_action=setting)
        options["start_dose"] = declared_dose(options["start_dose"], task)
        start = Start(options["start_dose"], task, spec)
        setting, fallback = start.action, start.fallback
        made = make_policy(policy.name, **options)
        return rules._replace(policy=made, start_action=setting, fallback_action=fallback)

    @classmethod
    def start_limit(cls, decision: Decision) -> str:
        if math.isfinite(decision.choice.bounds.cost_upper):
            return ""
        return "open_rounds" if decision.prediction.waiting or decision.prediction.lost else "start_dose"

    @classmethod
    def written(cls, prediction: Seen) -> dict[str, Any]:
        condition = prediction.condition
        plain = prediction._asdict() | {"condition": condition if math.isfinite(condition) else None}
        return {name: value for name, value in plain.items() if name not in ("context", "other")}

    @classmethod
    def read_written(cls, rules: Rules, values: Mapping[str, Any]) -> Seen:
        condition = math.inf if values["condition"] is None else values["condition"]
        return Seen(**{**values, "condition": condition})

    @classmethod
    def same_option(cls, name: str, given: Mapping[str, Any], saved: Any) -> bool:
        return given.get(name) == saved or (name == "start_dose" and given.get(name) is None)

    def forget(self) -> None:
        self.triangle, self.log_det, self.least = empty(self.dim), 0.0, 0.0
        self.samples = self.learned = self.opened = self.lost = self.measured = 0
        self.waits: dict[int, Waiting] = {}
        self._latest: tuple[Any, ...] = (None, None, None)

    def begin(self) -> None:
        self._advance()

    def _advance(self) -> None:
        """Learn, in order, every known round that the next decision uses."""
        while self.learned < self._needed and self.waits[self.learned].status in (KNOWN, LEFT_OUT):
            self._absorb(self.waits.pop(self.learned))
            self.learned += 1
        self._measure()

    def _measure(self) -> None:
        if self.anytime and self.triangle.rounds > self.measured:
            self.log_det, self.least = volume(self.triangle, self.ridge)
            self.measured = self.triangle.rounds

    @property
    def _needed(self) -> int:
        return self.opened - (0 if self.anytime else self.lag)

    def _absorb(self, round_: Waiting) -> None:
        """Bet on a round, and learn from it. (An anytime guarantee is watched in `open` and `_end`.)"""
        if round_.status == LEFT_OUT:
            return
        if not self.anytime:
            seen = certified(self.triangle, round_.row[: self.dim], 0.0)
            self.watch.bet(chance_above(seen, float(round_.row[self.dim])))
        self.triangle = append(self.triangle, round_.row)

    def predict(self, context: Array, norm: float) -> Seen:
        fit, waiting, ready = certified(self.triangle, context, norm), 0, True
        if self.learned < self._needed and not self.anytime:
            late = (self.waits[place].status for place in range(self.learned, self._needed))
            waiting, ready = sum(status == OPEN for status in late), False
        parts = (fit.reward, fit.cost, fit.width, fit.spread, fit.degrees, fit.ready and ready, fit.norm, fit.rounds)
        known = (self.log_det, self.least, self.triangle.condition, waiting, self.lost, self.starts)
        seen = Seen(*parts, *known)
        self._latest = context, self.triangle, seen
        return seen

    def rounding(self, context: Array, norm: float) -> float:
        """Twice what rounding may have done to a prediction's numbers, as each of two processors may do it."""
        return 2.0 * moved(self.triangle, context)

    def foresee(self, context: Array, norm: float) -> Seen:
        """`predict` after the rounds that the next decision would learn; they are not kept."""
        twin = copy.copy(self)
        twin.waits = dict(self.waits)
        twin.watch = copy.deepcopy(self.watch)
        twin._advance()
        return twin.predict(context, norm)

    def view(self, prediction: Seen, choice: Choice) -> tuple[Seen, Choice]:
        return prediction, choice

    def open(self, context: Array) -> int:
        place, upper, risk = self.opened, math.inf, self.rules.spec.violation_risk
        if self.anytime or self.lost or self.learned < self._needed:
            upper = self._counted_from(context, risk)
            if upper < math.inf:
                self.watch.guarantee(risk)
        self.waits[place] = Waiting(OPEN, context, upper)
        self.opened += 1
        return place

    def _counted_from(self, context: Array, risk: float) -> float:
        """What C/g of a round exceeds with probability at most `risk`, given the past."""
        if self.anytime:
            asked, fit, latest = self._latest
            seen: Any = latest if asked is context and fit is self.triangle else self.predict(context, 0.0)
            failure = self.rules.spec.estimation_risk
            return float(cost_upper(seen, "anytime", risk, failure, mixture=self.mixture))
        failure = spent_in(self.learned + 1.0, 1.0) * spent_in(
            self.opened - self.learned + 1.0, 0.5 / self.watch.alarm_at
        )
        return float(cost_upper(certified(self.triangle, context, 0.0), "tolerance", risk, failure))

    def check_report(self, context: Array, round: int, place: int | None, decisions: int) -> None:
        kept = self.waits.get(-1 if place is None else place)
        row = None if kept is None else kept.row[: self.dim]
        check_reported("hp_student", context, row, round=round, decisions=decisions)

    def learn(self, context: Array, norm: float, sample: Sample, place: int | None) -> None:
        row = np.append(context, [sample.cost, sample.reward])
        if sample.weight <= 0.0:
            self.lose(place, sample.baseline_cost)
        elif place is None:
            self.samples += 1
            self._absorb(Waiting(KNOWN, row))
        elif self._end(place, KNOWN, row):
            self.samples += 1

    def leave_out(self, place: int) -> None:
        self._end(place, LEFT_OUT)

    def lose(self, place: int | None, baseline_cost: float = 0.0) -> None:
        # A dose that the known baseline cost excludes was withheld because of the context alone.
        self._end(place, LEFT_OUT if baseline_cost >= self.rules.spec.threshold else LOST)

    def _end(self, place: int | None, status: int, row: Array | None = None) -> bool:
        """What became of a decided round; False if it is not remembered: history, or from before a `forget`."""
        kept = self.waits.get(-1 if place is None else place)
        if kept is None or place is None:
            return False
        if row is not None:
            self._judge(kept, row[self.dim])
        self.waits[place] = Waiting(status, kept.row if row is None else row)
        self.lost += status == LOST
        self._advance()
        return True

    def _judge(self, kept: Waiting, quotient: float) -> None:
        if quotient > kept.upper:  # whatever other rounds are open
            self.watch.exceed()

    def throttled(self, context: Array, sample: Sample, place: int, advised: float) -> None:
        if place in self.waits:
            self._judge(self.waits[place], least_quotient(self.rules, sample, advised))

    @property
    def evidence(self) -> float:
        return self.watch.evidence

    @property
    def alarmed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        return self.watch.crossed

    @property
    def stop_rule(self) -> str:
        return "alarm" if self.anytime else "student_drift"

    def restart_evidence(self) -> None:
        self.watch.restart()

    def coef(self, target: str) -> Array:
        """The least-squares estimate of "reward" or "cost"; zeros before the contexts have full rank."""
        if self.triangle.reading is None:
            return np.zeros(self.dim)
        factor = self.triangle.factor
        column = factor[: self.dim, self.dim + (target == "reward")]
        return solve_triangular(factor[: self.dim, : self.dim], column)

    def state(self) -> dict[str, Any]:
        kept, late = self.triangle, list(self.waits.items())
        counts = (
            self.learned,
            self.opened,
            self.samples,
            self.starts,
            self.lost,
            self.measured,
            int(self.watch.crossed),
        )
        rows, uppers = np.zeros((len(late), self.dim + 2)), [round_.upper for _, round_ in late]
        for row, (_, round_) in zip(rows, late, strict=True):
            row[: round_.row.size] = round_.row
        return {
            "factor": kept.factor,
            "columns": kept.columns,
            "counts": np.array((kept.rounds, *counts), dtype=np.int64),
            "scalars": np.array([kept.condition, self.log_det, self.least]),
            "places": np.array([(place, round_.status) for place, round_ in late], dtype=np.int64).reshape(-1, 2),
            "rows": rows,
            "uppers": np.array(uppers),
            **self.watch.state(),
        }

    def restore(self, arrays: dict[str, Any]) -> None:
        rounds, self.learned, self.opened, self.samples, *rest = arrays["counts"].tolist()
        self.starts, self.lost, self.measured, crossed = rest
        condition, self.log_det, self.least = arrays["scalars"].tolist()
        self.triangle = triangle(arrays["factor"], arrays["columns"].copy(), rounds, condition)
        places = arrays["places"].tolist()
        late = zip(places, arrays["rows"], arrays["uppers"].tolist(), strict=True)
        self.waits = {place: Waiting(status, row.copy(), upper) for (place, status), row, upper in late}
        self.watch.restore(arrays, crossed=bool(crossed))


# --- HP-Student with either=True


class Conformal(NamedTuple):
    """What a decision keeps of the conformal part: its bound (None: none yet), and the rounds behind it."""

    cost_upper: float | None
    calibration_rounds: int
    rounds: int


class EitherLearner(StudentLearner):
    """A `StudentLearner`, and a `ConformalLearner` that sees the same rounds.

    Rounds from before the first decision are places of the conformal learner and none of the other's, so a round's
    place there is higher by their number.
    """

    def __init__(self, rules: Rules) -> None:
        options = rules.policy.options
        task = Task(dim=rules.dim, spec=rounded_spec(rules.spec), dose=rules.dose, dial=rules.dial)
        own = conformal_part(options["start_dose"], options["lag"]).on(task)
        self.other = PolicyLearner(rules._replace(policy=own))
        super().__init__(rules)

    @classmethod
    def written(cls, prediction: Seen) -> dict[str, Any]:
        return {**super().written(prediction), "other": prediction.other._asdict()}

    @classmethod
    def read_written(cls, rules: Rules, values: Mapping[str, Any]) -> Seen:
        seen = super().read_written(rules, values)
        return seen._replace(other=Conformal(**values["other"]))

    def forget(self) -> None:
        super().forget()
        self.other.forget()

    def begin(self) -> None:
        super().begin()
        self.other.begin()

    def predict(self, context: Array, norm: float) -> Seen:
        seen, other = super().predict(context, norm), self.other
        asked = Asked(context, norm, 1.0)
        return seen._replace(other=(asked, other.policy.bound(other._state, asked)))

    def foresee(self, context: Array, norm: float) -> Seen:
        known = super().foresee(context, norm)
        state = copy.deepcopy(self.other._state)
        self.other.policy.begin(state)
        asked = Asked(context, norm, 1.0)
        return known._replace(other=(asked, self.other.policy.bound(state, asked)))

    def rounding(self, context: Array, norm: float) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- as for HP-Conformal
        """Unknown: ranks may change with the last digits."""

    def view(self, prediction: Seen, choice: Choice) -> tuple[Seen, Choice]:
        numbers = prediction.other[1].numbers
        bound = numbers["cost_upper"]
        plain = Conformal(bound if math.isfinite(bound) else None, numbers["size"], numbers["rounds"])
        return prediction._replace(other=plain), plain_choice(choice)

    def open(self, context: Array) -> int:
        asked = Asked(context, 0.0, 1.0)
        self.other._open(asked, self.other.policy.bound(self.other._state, asked), 0.0)
        return super().open(context)

    def learn(self, context: Array, norm: float, sample: Sample, place: int | None) -> None:
        shift = self.other.opened_rounds - self.opened
        known = place is None or place in self.waits
        super().learn(context, norm, sample, place)
        if known:
            self.other.learn(context, norm, sample, None if place is None else place + shift)

    def throttled(self, context: Array, sample: Sample, place: int, advised: float) -> None:
        if place in self.waits:
            row, dose = place + self.other.opened_rounds - self.opened, self.rules.dose.cost
            self.other._state.rounds.advised[row] = dose.effect(self.rules.dial.action(advised))
            self.other.throttled(context, sample, row, advised)
        super().throttled(context, sample, place, advised)

    def leave_out(self, place: int) -> None:
        if place in self.waits:
            self.other.leave_out(place + self.other.opened_rounds - self.opened)
        super().leave_out(place)

    @property
    def evidence(self) -> float:
        return min(self.watch.evidence, float(self.other.evidence or 1.0))

    @property
    def alarmed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        return self.watch.crossed and self.other.alarmed

    def restart_evidence(self) -> None:
        super().restart_evidence()
        self.other.restart_evidence()

    def state(self) -> dict[str, Any]:
        return super().state() | {f"other.{name}": np.asarray(value) for name, value in self.other.state().items()}

    def restore(self, arrays: dict[str, Any]) -> None:
        own = {name: value for name, value in arrays.items() if not name.startswith("other.")}
        super().restore(own)
        self.other.restore({name[6:]: value for name, value in arrays.items() if name.startswith("other.")})
