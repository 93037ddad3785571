"""HP-Conformal online: rounds that may be open, refits by count, and a bet on every p-value.

A decision opens a round; its outcome may come late or never. The first decision after the rounds have grown by a tenth
refits, with every outcome reported by then: the time of a refit depends only on the number of rounds. Bets are placed
in decision order. They wait at an open calibration round until the next refit, which skips it. (In order of report, bad
outcomes that come late would look like a drift.) A round that is left out is not a calibration round: bets skip it at
once. In a throttled round the advised setting would have cost at least what was measured, and nobody knows how much
more: its own p-value is that of the least score it may have, and for later rounds it scores +∞. Both only raise
p-values, and all bets fall with p, so the evidence stays below that of the true scores (since version 5 of the rules).
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safedial.core import exchangeability
from safedial.core.action import Choice
from safedial.core.conformal import TIE, p_value
from safedial.decision.certificates import conformal_terms
from safedial.decision.learners import conformal_options
from safedial.decision.learners.conformal_options import OFF
from safedial.decision.learners.conformal_start import Opening
from safedial.decision.learners.conformal_view import View
from safedial.decision.learners.protocol import Learner
from safedial.decision.outcome import Sample, check_reported, least_quotient
from safedial.errors import InvalidInput
from safedial.policies.conformal.frozen import Frozen, places_of, score
from safedial.policies.conformal.memory import Rounds
from safedial.policies.hp_conformal import Outlook, learns_start

if TYPE_CHECKING:
    from safedial.decision.decision import Decision
    from safedial.decision.rules import Rules

Array = NDArray[np.float64]


class ConformalLearner(Learner):
    """The rounds of one learner and what is known about them."""

    certificate_terms = conformal_terms
    in_order, watches_itself = False, True
    started: Any = staticmethod(conformal_options.started)
    check_study: Any = staticmethod(conformal_options.check_levels)
    same_option: Any = staticmethod(conformal_options.same_option)
    with_saved: Any = staticmethod(conformal_options.with_saved)
    guarded: Any = staticmethod(conformal_options.guarded)
    statement: Any = staticmethod(conformal_terms.statement)
    fallback_note: Any = staticmethod(conformal_terms.compared)

    def __init__(self, rules: Rules, *, opening: Opening | None = None) -> None:
        self.policy, self.dim, self.ridge, self.opening = rules.policy, rules.dim, rules.spec.ridge, opening
        self.rules = rules
        self.risk, self.tie = rules.spec.violation_risk, TIE if rules.version > 1 else 0.0
        self.rounds: Rounds = self.policy.init(self.dim, ridge=self.ridge)
        self._guarded = any(self.policy.options.get(name, off) != off for name, off in OFF.items())
        self.samples = self.bets = 0
        self.starts = 0
        self._sorted: dict[int, Array] = {}
        self._throttled: dict[int, float] = {}
        self._unbounded: dict[int, int] = {}

    @classmethod
    def least_setting(cls, rules: Rules) -> float | None:
        return None if rules.policy.options.get("least_dose") is None else rules.dial.lowest_level

    @classmethod
    def start_limit(cls, decision: Decision) -> str:
        if math.isfinite(decision.choice.bounds.cost_upper):
            return ""
        if decision.prediction.start:
            return "learned_start"
        return "no_information" if decision.prediction.ties else "start_dose"

    @classmethod
    def start_promise(cls, prediction: View) -> str:
        return prediction.start or ""

    @classmethod
    def written(cls, prediction: View) -> dict[str, Any]:
        """Without the guards' values where they are None, as event bodies had it before there were guards."""
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
            self._bet(wait=False)
            self.rounds.refit()
            kept = self.rounds.dropped
            self._throttled = {number: least for number, least in self._throttled.items() if number >= kept}
            self._sort()

    def predict(self, context: Array, norm: float) -> Outlook:
        return self._outlook(self.rounds, context, norm)

    def _outlook(self, rounds: Rounds, context: Array, norm: float) -> Outlook:
        outlook = self.policy.predict(rounds, context)
        return outlook._replace(opening=self.opening.predict(context, norm)) if self.opening else outlook

    def foresee(self, context: Array, norm: float) -> Outlook:
        """`predict` after the refit that the next decision would start with; the refit is not kept."""
        rounds = self.rounds
        if rounds.count >= rounds.next_fit:
            rounds = copy.copy(rounds)
            rounds.refit()
        return self._outlook(rounds, context, norm)

    def view(self, prediction: Outlook, choice: Choice) -> tuple[View, Choice]:
        """The prediction and the choice as plain values that later rounds do not change."""
        outlook = prediction
        rounds, frozen = outlook.rounds, outlook.rounds.frozen
        full = frozen.full if frozen else None
        label = None if rounds.setup.group is None else rounds.name_of(outlook.context)
        seen = View(
            outlook.reward,
            outlook.cost if full is None else float(outlook.context @ full.coef),
            outlook.scale,
            outlook.norm,
            outlook.code,
            label,
            frozen.sizes if frozen else np.zeros(1, dtype=np.int64),
            rounds.count,
            self.samples,
            rounds.fitted,
        )
        bounded, options = np.isfinite(choice.bounds.cost_upper), self.policy.options
        if self._guarded:
            seen = seen._replace(starts=self.starts, tenth=rounds.tenth)
            if frozen and not bounded:
                seen = self._without_bound(seen, frozen)
        if self.opening and not bounded and learns_start(outlook, self.risk, options["confidence"]):
            seen = seen._replace(start=options["start"])
        return seen, choice

    def _without_bound(self, seen: View, frozen: Frozen) -> View:
        """Why there is no bound: unknown outcomes, or tied costs."""
        group = min(seen.code, len(frozen.sizes) - 1)
        kept, _ = places_of(frozen.sizes[group : group + 1], self.risk, self.policy.options["confidence"])
        ties = None
        if frozen.ties is not None and frozen.ties.found[group]:
            ties = [part[group].item() for part in frozen.ties]
        return seen._replace(unknown=frozen.unknown(group, int(kept[0])), ties=ties)

    def open(self, context: Array) -> int:
        number = self.rounds.append(context, 0.0, np.inf)
        self._follow()
        return number

    def _follow(self) -> None:
        if self.opening:
            self.opening.follow(self.rounds)

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
            self._follow()
            self._bet(wait=True)

    def leave_out(self, place: int) -> None:
        """The open round at `place` has no outcome, for an unrelated reason."""
        self.rounds.leave_out(place)
        self._follow()
        self._bet(wait=True)

    def throttled(self, context: Array, sample: Sample, place: int, advised: float) -> None:
        least = least_quotient(self.rules, sample, advised)
        if self.rules.version > 4 and least > -math.inf and place >= max(self.bets, self.rounds.fitted):
            self._throttled[place] = least
            self._bet(wait=True)

    def count_start(self, promise: str) -> None:
        """Count a decision at the start dose, whose promise is neither conformal nor none."""
        self.starts += promise in ("declared", "certified", "student")

    def _bet(self, *, wait: bool) -> None:
        """Rank the score of each new calibration round among its group's earlier ones, in order, and bet."""
        rounds, frozen = self.rounds, self.rounds.frozen
        if frozen is None:
            return
        self.bets = max(self.bets, rounds.fitted)
        last = rounds.count if wait else rounds.count - rounds.setup.lag
        while self.bets < last:
            if self.bets not in rounds.left and rounds.calibrates(np.int64(self.bets)):
                place, least = self.bets - rounds.dropped, self._throttled.get(self.bets)
                cost = rounds.cost[place] if least is None else least
                if wait and not np.isfinite(cost):
                    return
                self._bet_on(frozen, rounds.context[place], cost, throttled=least is not None)
            self.bets += 1

    def _bet_on(self, frozen: Frozen, context: Array, cost: float, *, throttled: bool) -> None:
        """The cost of a throttled round is the least that it may be; for later rounds it counts as unbounded."""
        rounds, row = self.rounds, context[None, :]
        code = int(rounds.code(context, frozen.reward(row)[0]))
        before, unbounded = self._sorted.get(code, np.empty(0)), self._unbounded.get(code, 0)
        new = score(np.array([cost]), frozen.cost(row), frozen.scale(row))[0]
        if np.isfinite(new):
            chance = p_value(before, new, tie=self.tie, unbounded=unbounded)
            rounds.capital = exchangeability.update(rounds.capital, chance)
            rounds.alarmed = rounds.alarmed or bool(exchangeability.alarm(rounds.capital))
            if not throttled:
                self._sorted[code] = np.insert(before, np.searchsorted(before, new), new)
        self._unbounded[code] = unbounded + throttled

    @property
    def evidence(self) -> float:
        return float(exchangeability.evidence(self.rounds.capital))

    @property
    def alarmed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] -- it is never set here
        """Whether the evidence has reached 100 since the watch began."""
        return bool(self.rounds.alarmed)

    def restart_evidence(self) -> None:
        self.rounds.capital, self.rounds.alarmed = exchangeability.init(), False

    def forget(self) -> None:
        """Start again without rounds, after a change that made the earlier ones useless."""
        self.rounds = self.policy.init(self.dim, ridge=self.ridge)
        self._sorted, self._throttled, self._unbounded = {}, {}, {}
        self.samples = self.bets = 0
        if self.opening:
            self.opening.forget()

    def _sort(self) -> None:
        """Sort each group's known scores under the frozen predictors: the refit's rounds and those bet on since."""
        rounds, frozen = self.rounds, self.rounds.frozen
        if frozen is None:
            return
        held = rounds.calibrates(np.arange(rounds.dropped, max(self.bets, rounds.fitted)))
        rows, cost = (getattr(rounds, name)[: held.size][held] for name in ("context", "cost"))
        places = np.flatnonzero(held)
        known = (places >= rounds.known.size) | rounds.known[np.minimum(places, rounds.known.size - 1)]
        throttled = np.isin(places + rounds.dropped, list(self._throttled))
        cost = np.where(known, cost, np.inf)
        scores = score(cost, frozen.cost(rows), frozen.scale(rows))
        codes = rounds.code(rows, frozen.reward(rows))
        known = np.isfinite(scores)
        self._sorted = {int(code): np.sort(scores[known & (codes == code)]) for code in np.unique(codes)}
        self._unbounded = {int(code): int(np.sum(codes[throttled] == code)) for code in np.unique(codes[throttled])}

    def coef(self, target: str) -> Array:
        """The predictor's coefficients: its predictions at the unit vectors."""
        frozen = self.rounds.frozen
        if frozen is None:
            return np.zeros(self.dim)
        if self.rounds.setup.predictor is not None:
            raise InvalidInput(f"{target}_coef: the predictor is not linear; see a decision's prediction instead")
        return (frozen.reward if target == "reward" else frozen.cost)(np.eye(self.dim))

    def state(self) -> dict[str, Any]:
        """The arrays to save; `restore` reads them and repeats the last refit."""
        rounds = self.rounds
        here = rounds.count - rounds.dropped
        counts = (rounds.count, rounds.dropped, rounds.fitted, rounds.next_fit, self.samples, self.bets)
        parts = {name: getattr(rounds, name)[:here] for name in rounds.columns}
        if self._guarded:
            parts["tried"] = np.array(rounds.tried, dtype=np.float64)
            parts["guards"] = np.array((rounds.history, self.starts), dtype=np.int64)
        if self.opening:
            parts |= self.opening.state()
        if self._throttled:
            parts["throttled"] = np.array(sorted(self._throttled.items()), dtype=np.float64)
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
        if self.opening:
            self.opening.restore(arrays)
        self._throttled = {int(number): float(least) for number, least in arrays.get("throttled", ())}
        rounds.left = {int(number): bool(known) for number, known in arrays.get("left", ())}
        counts = (int(value) for value in arrays["scalars"])
        rounds.count, rounds.dropped, rounds.fitted, rounds.next_fit, self.samples, self.bets = counts
        rounds.known = arrays["known"].astype(bool)
        rounds.labels = {label: number for number, label in enumerate(json.loads(str(arrays["labels"])))}
        rounds.capital = exchangeability.Capital(arrays["capital"][:-1].copy(), arrays["capital"][-1])
        rounds.refreeze()
        self._sort()
