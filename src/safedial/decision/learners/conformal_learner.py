"""HP-Conformal online: rounds that may be open, refits by count, and a bet on every p-value.

A decision opens a round; its outcome may come late or never. The first decision after the rounds have grown by a tenth
refits, with every outcome reported by then: the time of a refit depends only on the number of rounds. Bets are placed
in decision order (conformal_bets.py). In order of report, bad outcomes that come late would look like a drift.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core import exchangeability
from safedial.core.action import Choice
from safedial.core.conformal import places
from safedial.decision.certificates import conformal_terms
from safedial.decision.learners import conformal_options
from safedial.decision.learners.conformal_bets import ConformalBets
from safedial.decision.learners.conformal_options import OFF
from safedial.decision.learners.protocol import Learner
from safedial.decision.outcome import Sample, check_reported, least_quotient
from safedial.policies.conformal.frozen import Frozen
from safedial.policies.conformal.memory import Rounds
from safedial.policies.hp_conformal import Outlook

if TYPE_CHECKING:
    from safedial.decision.decision import Decision
    from safedial.decision.rules import Rules

Array = NDArray[np.float64]


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
    started: Any = staticmethod(conformal_options.started)
    check_study: Any = staticmethod(conformal_options.check_levels)
    same_option: Any = staticmethod(conformal_options.same_option)
    with_saved: Any = staticmethod(conformal_options.with_saved)
    guarded: Any = staticmethod(conformal_options.guarded)
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

    def count_start(self, promise: str) -> None:
        """Count a decision at the start dose, whose promise is neither conformal nor none."""
        self.starts += promise in ("declared", "certified")

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
        rounds.capital = exchangeability.Capital(arrays["capital"][:-1].copy(), arrays["capital"][-1])
        rounds.refreeze()
        self.bets.sort(rounds)
