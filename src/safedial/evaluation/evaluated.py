"""What an evaluation found: figures for each policy, the rounds that would have exceeded, and what to doubt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from safedial.core.promise import PROMISES
from safedial.decision.rules import Rules
from safedial.evaluation.doubts import Doubt, doubts
from safedial.evaluation.logged_rounds import SETTING, Array, Rounds
from safedial.evaluation.outcomes import Outcomes, Scores
from safedial.evaluation.play import Played
from safedial.notebook import card, data_frame
from safedial.policies import promised_risk
from safedial.stats import seed_interval, violation_interval

if TYPE_CHECKING:
    from pandas import DataFrame

BLOCKS = 20
LEAST_BLOCK = 10
"""Intervals rest on up to 20 blocks of consecutive rounds, of at least 10 each."""

MOST_GROUPS = 12
FEW_VALUES = 5
"""A feature with at most so many values is grouped by value, others by thirds."""


@dataclass(frozen=True, kw_only=True)
class PolicyResult:
    """One policy on a log; arrays have one entry for each round."""

    name: str
    rules: Rules
    outcomes: Outcomes
    played: Played
    scores: Scores
    hindsight: tuple[Array, Array]

    @classmethod
    def of(cls, name: str, rules: Rules, outcomes: Outcomes, played: Played) -> PolicyResult:
        scores = outcomes.at(played.advised)
        return cls(
            name=name, rules=rules, outcomes=outcomes, played=played, scores=scores, hindsight=outcomes.hindsight()
        )

    @property
    def known(self) -> NDArray[np.bool_]:
        """Rounds of which it is known whether they exceeded; under a bracket also those with bounds. A round with a
        missing cost is not known even if another cost exceeds: else rounds would count because they exceed.
        """
        return self.scores.known

    @property
    def risk(self) -> float | None:
        """What the policy promises at most in a round; None if it promises nothing on the realized cost."""
        stated = PROMISES[self.rules.policy.promise]
        each = PROMISES[self.rules.spec.promise].each_round
        return float(promised_risk(self.rules.policy, self.rules.spec)) if stated.proved and each else None

    @property
    def share(self) -> float | None:
        """The reward, or under a bracket the dose, as a share of what is best, or surely tolerated, in hindsight."""
        best_dose, best_reward = self.hindsight
        if self.outcomes.exact:
            mine, best = self.scores.reward, best_reward
        else:
            mine, best = self.outcomes.measure(next(iter(self.outcomes.curves)), self.scores.applied), best_dose
        both = np.isfinite(mine) & np.isfinite(best)
        total = float(best[both].sum())
        return float(mine[both].sum()) / total if total > 0.0 else None

    def summary(self) -> dict[str, Any]:
        """The figures of the table, by name."""
        known, scores, dial = self.known, self.scores, self.rules.dial
        over, may = scores.over[known], scores.may[known]
        low, high = rate_interval(over)[0], rate_interval(may)[1]
        reward = scores.reward[np.isfinite(scores.reward)]
        whole = self.outcomes.exact and reward.size
        ends = _mean_interval(reward) if whole else (None, None)
        return {
            "policy": self.name,
            "risk": None if self.name == "as logged" else self.risk,
            "rounds": int(known.sum()),
            "excesses": int(over.sum()),
            "excesses_upper": int(may.sum()),
            "rate": float(over.mean()),
            "rate_upper": float(may.mean()),
            "low": low,
            "high": high,
            "mean_dose": float(np.nanmean(scores.applied)),
            "rounds_given": int(np.sum(scores.applied > dial.low)),
            "reward": float(reward.mean()) if whole else None,
            "reward_low": ends[0],
            "reward_high": ends[1],
            "share": self.share,
            "unknown": int((~known).sum()),
            "stopped_at": self.played.stopped_at,
            "stop_reason": self.played.stop_reason,
            "engine": self.played.engine,
        }


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Policies on a log. `policies` has one `PolicyResult` for each, `logged` is the log itself."""

    rounds: Rounds
    logged: PolicyResult
    policies: list[PolicyResult]
    source: str = "log"

    def table(self) -> list[dict[str, Any]]:
        """One row for each policy, after that of the log."""
        return [each.summary() for each in (self.logged, *self.policies)]

    def rows(self, *, exceeding: bool = True) -> list[dict[str, Any]]:
        """The rounds in which a policy would have exceeded, or may have; or all rounds. A row for each policy. Rounds
        that exceed while another cost is missing are among them, though the table does not count them.
        """
        found, rounds = [], self.rounds
        for each in self.policies:
            scores = each.scores
            chosen = scores.over | (scores.may & each.known)
            for index in np.flatnonzero(chosen if exceeding else np.ones(len(rounds), dtype=bool)):
                found.append({
                    "policy": each.name,
                    "round": _whole(rounds.number[index]),
                    **{name: labels[index] for name, labels in rounds.labels.items()},
                    "exceeds": _word(each, index),
                    **_costs(each, index),
                    "dose": _number(scores.applied[index]),
                    "logged_dose": _number(rounds.scored(SETTING)[index]),
                    "reward": _number(scores.reward[index]),
                    **{
                        "logged_" + ("cost" if name == "cost" else f"cost_{name}"): _number(rounds.scored(name)[index])
                        for name in rounds.costs
                    },
                    **{name: float(value) for name, value in zip(rounds.names, rounds.raw[index], strict=True)},
                })  # fmt: skip
        return found

    def groups(self) -> list[dict[str, Any]]:
        """Where and for whom: excesses by unit, visit and feature, the most first within each. Intervals are those of
        independent rounds, and many groups are looked at: some stand out by chance.
        """
        grouped = {name: np.unique(labels, return_inverse=True) for name, labels in self._labels().items()}
        return [
            row
            for each in self.policies
            for column, (values, places) in grouped.items()
            for row in _groups(each, column, values, places)
        ]

    def _labels(self) -> dict[str, list[str]]:
        """Each column that rounds are grouped by, with the group of each round."""
        labels = dict(self.rounds.labels)
        for name, values in zip(self.rounds.names, self.rounds.raw.T, strict=True):
            distinct = np.unique(values)
            if distinct.size < 2:
                continue
            if distinct.size <= FEW_VALUES:
                labels[name] = [f"{value:g}" for value in values]
            else:
                low, high = np.quantile(values, [1 / 3, 2 / 3])
                words = f"below {low:.3g}", f"{low:.3g} to {high:.3g}", f"above {high:.3g}"
                labels[name] = [words[int(value >= low) + int(value > high)] for value in values]
        return labels

    @property
    def doubts(self) -> list[Doubt]:
        """When the figures must not be believed, with the number of rounds that each doubt concerns."""
        return [doubt for each in self.policies for doubt in doubts(each.name, each.outcomes, each.played, each.scores)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        told = [
            {"policy": each.policy, "doubt": each.name, "rounds": each.rounds, "words": each.words}
            for each in self.doubts
        ]
        parts = {"table": self.table(), "doubts": told, "exceeding": self.rows(), "groups": self.groups()}
        return {"log": self.source, "rounds": len(self.rounds), **parts}

    def report(self, path: str | Path) -> Path:
        """Write a one-page HTML report with pictures."""
        from safedial.evaluation.page import write_page

        return write_page(self, Path(path))

    def to_frame(self) -> DataFrame:
        """The table, as a pandas table."""
        return data_frame(self.table())

    def _repr_html_(self) -> str:
        names = ("policy", "rounds", "excesses", "excesses_upper", "risk", "mean_dose", "share", "stop_reason")
        rows = ({name: row[name] for name in names} for row in self.table())
        doubted = [f"{each.policy}, {each.rounds:,} rounds: {each.words}" for each in self.doubts]
        return card(f"What policies would have done on {self.source}: estimates", rows, doubted)

    def __repr__(self) -> str:
        told = ", ".join(
            f"{row['policy']}: {excess_words(row)} of {row['rounds']} rounds exceed" for row in self.table()
        )
        return f"Evaluation({self.source}: {told})"


def _groups(each: PolicyResult, column: str, values: Any, places: Any) -> list[dict[str, Any]]:
    """The groups of one column that have known rounds, those with the largest share of excesses first."""
    known, scores = each.known, each.scores

    def sums(weights: Any) -> Any:
        return np.bincount(places[known], weights[known], minlength=len(values))

    rounds, over, may = (sums(part.astype(float)) for part in (known, scores.over, scores.may))
    dose, kept = sums(scores.applied), np.flatnonzero(rounds)
    order = kept[np.argsort(-may[kept] / rounds[kept], kind="stable")][:MOST_GROUPS]
    return [
        {
            "policy": each.name,
            "column": column,
            "group": str(values[index]),
            "rounds": int(rounds[index]),
            "excesses": int(over[index]),
            "excesses_upper": int(may[index]),
            "low": violation_interval([over[index]], rounds[index])[0],
            "high": violation_interval([may[index]], rounds[index])[1],
            "mean_dose": float(dose[index] / rounds[index]),
        }
        for index in order
    ]


def excess_words(row: dict[str, Any]) -> str:
    """A count of excesses, or its lower and upper figures."""
    low, high = row["excesses"], row["excesses_upper"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def rate_interval(over: Any) -> tuple[float, float]:
    """A 95 % interval of a share of rounds, by blocks: the hull of Wilson's interval and of Student's over the blocks'
    shares, which allows for rounds that depend on their neighbours.

    >>> [round(end, 3) for end in rate_interval([False] * 95 + [True] * 5)]
    [0.0, 0.163]
    """
    shares, length = _blocks(np.asarray(over, dtype=float))
    return violation_interval(shares * length, length)


def _mean_interval(values: Array) -> tuple[float, float]:
    return seed_interval(_blocks(values)[0])


def _blocks(values: Array) -> tuple[Array, float]:
    """The means of blocks, and their mean length."""
    count = int(np.clip(len(values) // LEAST_BLOCK, 1, BLOCKS))
    return np.array([part.mean() for part in np.array_split(values, count)]), len(values) / count


def _word(each: PolicyResult, index: Any) -> str:
    if each.scores.over[index]:
        return "yes"
    return "not known" if not each.known[index] else "may" if each.scores.may[index] else "no"


def _costs(each: PolicyResult, index: Any) -> dict[str, Any]:
    """Of several costs the names of those that exceed, or may; and each cost at the policy's setting."""
    costs, sure = each.scores.costs, each.scores.over[index]
    named = ", ".join(name for name, (_, over, may) in costs.items() if (over if sure else may)[index])
    told = {
        "cost" if name == "cost" else f"cost_{name}": _number(values[index]) for name, (values, *_) in costs.items()
    }
    return ({} if list(costs) == ["cost"] else {"exceeding": named}) | told


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else float(value)
