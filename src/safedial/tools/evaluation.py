"""What policies would have done on a log: `evaluate`, its figures, and when they must not be believed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.errors import InvalidInput, require
from safedial.io import card, data_frame
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose, DoseCurve
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.policies import Policy, guaranteed_risk
from safedial.policies.supports import facts
from safedial.rounds.rules import OPEN, Rules, by_rule
from safedial.rounds.specfile import SpecFile, load_spec
from safedial.rounds.validation import make_rules
from safedial.simulation.run import find_policy, is_own_name
from safedial.stats import seed_interval, violation_interval
from safedial.tools.log_play import Played, play
from safedial.tools.outcomes import Outcomes, Scores
from safedial.tools.past_rounds import SETTING, Array, Rounds, read_rounds

if TYPE_CHECKING:
    from pandas import DataFrame

RATE = "violation_rate"
"""What a guarantee limits that is one of each round."""

FAR = 10.0
"""Settings scaled by more than this factor lean on the dose curve far from what was given."""

SURE = 3.3
"""Standard errors from which the previous dose is said to predict a cost: by chance in 1 of 1,000 logs."""


class Doubt(NamedTuple):
    """A reason for doubt: its name, the policy, how many rounds it concerns, and what to make of it."""

    name: str
    policy: str
    rounds: int
    words: str


def doubts(policy: str, outcomes: Outcomes, played: Played, scores: Scores) -> list[Doubt]:
    """All doubts about one policy's figures that concern at least one round."""
    rounds, found = outcomes.rounds, []
    moved = ~outcomes.is_logged(played.advised)
    wanted = np.asarray(outcomes.effect(next(iter(outcomes.curves)), played.advised)) > 0.0
    zero = outcomes.known & ~outcomes.given & wanted & moved
    lost = ~outcomes.known & ~scores.known
    partly = int((scores.over & ~scores.known).sum())
    also = f", also the {partly:,} in which a known cost exceeds" if partly else ""
    void = np.any([np.isfinite(values) for values in rounds.void.values()] or [moved & False], axis=0)

    def add(name: str, concerned: int | np.integer, words: str) -> None:
        if concerned:
            found.append(Doubt(name, policy, int(concerned), words))

    add("no dose", zero.sum(), "were given nothing, and this policy would have given something: not replayable, so "
        "left out of the figures, and nothing is learned from them.")  # fmt: skip
    add("unknown outcomes", lost.sum(), f"have no known outcome, or lack one of several costs: left out{also}. If "
        "rounds are missing because of what happened in them, the share of excesses is too low.")  # fmt: skip
    add("void rounds that exceeded", void.sum(), "were made void after their cost had exceeded: they count as "
        "exceeding where this policy advises what was advised then, else they are left out; nothing is learned from "
        "them.")  # fmt: skip
    add("lowered settings", (rounds.throttled & moved).sum(), "had their setting lowered because of the outcome: it "
        "says nothing about another setting.")  # fmt: skip
    errs = "sensor noise" in facts(outcomes.rules.policy.task)
    true = any(cost.on == "true" for cost in outcomes.costs.values())
    add("measured costs", outcomes.known.sum() if errs and true else 0, "are counted by their measured costs, with the "
        "sensor's error; the guarantee is on the true one.")  # fmt: skip
    if outcomes.exact:
        add("far from the log", far_from_log(outcomes, scores), f"have a setting that is more than {FAR:g} times the "
            "logged one, or less than a tenth: the figures lean on the dose curve there.")  # fmt: skip
        add("sensor noise", (moved & outcomes.usable).sum() if errs else 0, "have their sensor's error scaled with "
            "the dose, which a sensor would not do.")  # fmt: skip
    else:
        add("costs of 0 or 1", (moved & outcomes.usable).sum() if outcomes.events else 0, "have another setting than "
            "the logged one, and a cost of 0 or 1, which does not scale with the dose: figures are lower and upper "
            "ones, by nothing but that a higher setting does not lower a cost. This policy's model is of costs that "
            "scale.")  # fmt: skip
        add("selection of the logged doses", (moved & outcomes.usable).sum(), "were learned from at the logged "
            "setting, not at this policy's own: had it been in use, it would have seen other costs. If people chose "
            "doses by what they knew of the unit, what was tolerated at them is no fair sample.")  # fmt: skip
    after, evidence = carry_over(outcomes, moved)
    sure = abs(evidence) > SURE
    words = "follow a setting that differs from the log's: if doses carry over to the next round, these are wrong."
    shown = (
        f" The log suggests that they do: costs rise or fall with the previous dose ({evidence:+.1f} standard errors)."
    )
    add("carry-over", after, words + (shown if sure else ""))
    unseen = played.engine == "replay"
    add("alarms", len(rounds) if unseen else 0, "were replayed without the alarms that stop an agent; "
        "engine='agent' (--engine agent) has them, and takes longer.")  # fmt: skip
    add("corrections", rounds.corrected, "were corrected later: the corrected values are used from the outcome on, so "
        "decisions between an outcome and its correction may differ from those of the study.")  # fmt: skip
    open_ = rounds.exported and OPEN.get(outcomes.rules.policy.name)
    add("options of the study", moved.sum() if open_ else 0, "have "
        "another advice than the study's. An export as .csv has neither its options nor the times of its outcomes: if "
        "this is its own policy, evaluate the study or its export as .jsonl, or state what you left open.")  # fmt: skip
    add(
        "amendments",
        0 if rounds.study and outcomes.rules is rounds.study.rules else rounds.amended,
        "were decided after an amendment of the study, which only its own policy follows; all figures are by the "
        "latest specification.",
    )
    return found


def far_from_log(outcomes: Outcomes, scores: Scores) -> int:
    """Rounds whose intensity is far above or below the logged one."""
    name = next(iter(outcomes.curves))
    here = np.where(outcomes.usable, outcomes.at_log[name], math.nan)
    ratio = np.asarray(outcomes.effect(name, scores.applied)) / here
    return int(np.sum((ratio > FAR) | ((ratio > 0.0) & (ratio < 1.0 / FAR))))


def carry_over(outcomes: Outcomes, moved: Array) -> tuple[int, float]:
    """How many rounds follow a round, of the same unit, at which the policy's setting differs; and whether the dose
    before predicts what is left of the cost after a regression on the context, in standard errors.
    """
    before = previous(outcomes.rounds)
    after = int(np.sum(moved[before[before >= 0]]))
    name = next(iter(outcomes.curves))
    chosen = outcomes.usable & (before >= 0)
    chosen[chosen] = outcomes.known[before[chosen]]
    columns = np.column_stack([np.ones(len(before)), outcomes.rounds.context])[chosen]
    dose = outcomes.rounds.setting[before[chosen]]
    here = outcomes.at_log[name][chosen] if outcomes.exact else 1.0
    cost = (outcomes.rounds.costs[name] - outcomes.rounds.baseline)[chosen] / here
    if len(cost) < columns.shape[1] + 10:
        return after, 0.0
    left = [each - columns @ np.linalg.lstsq(columns, each, rcond=None)[0] for each in (cost, dose)]
    scale = math.sqrt(float(left[0] @ left[0]) * float(left[1] @ left[1]))
    if scale <= 1e-12 * max(1.0, float(abs(dose).max())):
        return after, 0.0
    return after, float(left[0] @ left[1]) / scale * math.sqrt(len(cost))


def previous(rounds: Rounds) -> np.ndarray:
    """The row of the round before, of the same unit where units are named; −1 for the first."""
    units = rounds.labels.get("unit") or [""] * len(rounds)
    last: dict[str, int] = {}
    found = []
    for index, unit in enumerate(units):
        found.append(last.get(unit, -1))
        last[unit] = index
    return np.array(found)


# --- What an evaluation found

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
        """What the policy guarantees at most in a round; None if it guarantees nothing on the realized cost."""
        policy, spec = self.rules.policy, self.rules.spec
        limited = bool(policy.needs) and GUARANTEES[spec.guarantee].rate == RATE
        return float(guaranteed_risk(policy, spec)) if limited else None

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
        ends = seed_interval(_blocks(reward)[0]) if whole else (None, None)
        return {
            "policy": self.name,
            "risk": None if self.name == "as logged" else self.risk,
            "rounds": int(known.sum()),
            "violations": int(over.sum()),
            "violations_upper": int(may.sum()),
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
                    "round": int(number) if (number := float(rounds.number[index])).is_integer() else number,
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
                    **{name: float(value) for name, value in zip(rounds.names, rounds.context[index], strict=True)},
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
        for name, values in zip(self.rounds.names, self.rounds.context.T, strict=True):
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
        from safedial.tools.evaluation_page import write_page

        return write_page(self, Path(path))

    def to_frame(self) -> DataFrame:
        """The table, as a pandas table."""
        return data_frame(self.table())

    def _repr_html_(self) -> str:
        names = ("policy", "rounds", "violations", "violations_upper", "risk", "mean_dose", "share", "stop_reason")
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
            "violations": int(over[index]),
            "violations_upper": int(may[index]),
            "low": violation_interval([over[index]], rounds[index])[0],
            "high": violation_interval([may[index]], rounds[index])[1],
            "mean_dose": float(dose[index] / rounds[index]),
        }
        for index in order
    ]


def excess_words(row: dict[str, Any]) -> str:
    """A count of excesses, or its lower and upper figures."""
    low, high = row["violations"], row["violations_upper"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def rate_interval(over: Any) -> tuple[float, float]:
    """A 95 % interval of a share of rounds, by blocks: the hull of Wilson's interval and of Student's over the blocks'
    shares, which allows for rounds that depend on their neighbours.

    >>> [round(end, 3) for end in rate_interval([False] * 95 + [True] * 5)]
    [0.0, 0.163]
    """
    shares, length = _blocks(np.asarray(over, dtype=float))
    return violation_interval(shares * length, length)


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


# --- What policies would have done on a log: `evaluate`

ENGINES = ("auto", "agent", "replay")


def evaluate(
    log: Any,
    policies: Any = None,
    *,
    spec: SafetySpec | SpecFile | str | Path | None = None,
    dose: DoseCurve | Dose | None = None,
    dial: Dial | None = None,
    features: Features | None = None,
    context_columns: Sequence[str] | None = None,
    start_action: float | None = None,
    fallback_action: float | None = None,
    seed: int = 0,
    engine: str = "auto",
    progress: Callable[[str, int], None] | None = None,
) -> Evaluation:
    """What each policy would have done on the rounds of a log, and what that would have cost and earned.

    The results are exact if the dose curve is: in the model R/g and C/g do not depend on the dose, so a round with any
    dose above 0 shows what every other dose would have led to. Under a growth bracket you get lower and upper bounds.

    Args:
        log: a `Log`, the path of a log or of a study's export (.csv, .jsonl), or a `Study`. A .jsonl export and a study
            also give the times of outcomes and the random numbers, and their own spec, dial, dose curve and features.
        policies: names, policies, spec files (`SpecFile` or a path ending in .toml, each with its own guarantee and
            policy), or one of these; by default the policy of the spec, or of the study; your own
            also as "module:factory". Options that are left open are
            those of a new `Agent`. A policy of another guarantee than the spec's gets its threshold, constants and
            risk.
        spec: the guarantee: a `SafetySpec`, or a spec file, which may also state dose, dial, features and policy.
        dose, dial, features: as for an `Agent`. context_columns: the columns of a CSV that are the context.
        start_action, fallback_action: as for an `Agent`, where the policy takes them.
        seed: of the random numbers of randomised policies, as for an `Agent`; a study has its own.
        engine: "agent"; "replay", which is fast and knows no alarms; or "auto": "replay" from 20,000 rounds on, where
            the policy has a linear estimate.
        progress: called with the policy's name and the number of rounds (of a study: events) just done.

    >>> from safedial.simulation.results import simulated_log
    >>> from safedial.simulation.linear_world import LinearWorld
    >>> spec = SafetySpec(threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1,
    ...                   context_bound=1)
    >>> log = simulated_log("fixed", LinearWorld(dim=3), spec, rounds=200)
    >>> found = evaluate(log, ["hp_ucb", "on_expectation"], spec=spec)
    >>> [(row["policy"], row["rounds"], row["violations"]) for row in found.table()]
    [('as logged', 200, 0), ('hp_ucb', 200, 0), ('on_expectation', 200, 21)]
    """
    require(engine in ENGINES, "engine", engine, "must be one of " + ", ".join(ENGINES))
    named, file = _listed(policies), _as_file(spec)
    stated = file or next((each for each in named if isinstance(each, SpecFile)), None)
    given = {"dose": dose, "dial": dial, "features": features}
    parts = {
        name: part if part is not None or stated is None else getattr(stated, name) for name, part in given.items()
    }
    rounds = read_rounds(
        log,
        None if stated is None else stated.spec,
        dial=parts["dial"] or Dial(),
        features=parts["features"],
        context_columns=context_columns,
    )
    actions = {"start_action": start_action, "fallback_action": fallback_action}
    if rounds.study is not None:
        live = rounds.study.rules
        parts = {name: getattr(live, name) if part is None else part for name, part in given.items()}
        actions = {name: getattr(live, name) if each is None else each for name, each in actions.items()}
        parts |= {"baseline_range": live.baseline_range}
    made = [_rules(each, file, rounds, parts, actions) for each in named or [None]]
    results = []
    for label, rules in zip(_labels(made), made, strict=True):
        outcomes = Outcomes(rules, rounds)
        _check_doses(outcomes)
        step = None if progress is None else partial(progress, rules.policy.name)
        played = play(rules, rounds, outcomes, seed=seed, engine=engine, progress=step)
        results.append(PolicyResult.of(label, rules, outcomes, played))
    first = Outcomes(made[0], rounds)
    logged = PolicyResult.of("as logged", made[0], first, Played(first.logged, "log"))
    source = Path(log).name if isinstance(log, (str, Path)) else getattr(log, "name", "log")
    return Evaluation(rounds=rounds, logged=logged, policies=results, source=source)


def _as_file(spec: Any) -> SpecFile | None:
    if isinstance(spec, (str, Path)):
        return load_spec(spec)
    kind = spec is None or isinstance(spec, (SafetySpec, SpecFile))
    require(kind, "spec", type(spec).__name__, "must be a SafetySpec, a SpecFile or the path of a spec file")
    return SpecFile(spec=spec) if isinstance(spec, SafetySpec) else spec


def _listed(policies: Any) -> list[Any]:
    several = policies is None or (isinstance(policies, Iterable) and not isinstance(policies, (str, Mapping)))
    listed: list[Any] = list(policies or ()) if several else [policies]
    return [
        load_spec(each) if isinstance(each, Path) or (isinstance(each, str) and each.endswith(".toml")) else each
        for each in listed
    ]


def _rules(given: Any, file: SpecFile | None, rounds: Rounds, parts: dict[str, Any], actions: dict[str, Any]) -> Rules:
    """The rules of one policy on these rounds."""
    live = rounds.study.rules if rounds.study is not None else None
    if isinstance(given, SpecFile):
        file, given = given, None
    if live is not None and file is None and given in (None, live.policy.name):
        return live
    if given is None and file is not None and file.policy:
        given = file.policy
    spec = file.spec if file is not None else live.spec  # pyright: ignore[reportOptionalMemberAccess] -- a log needs a spec
    if given is None:
        stated = GUARANTEES[spec.guarantee]
        given = {"name": stated.default_policy, **stated.default_options}
    given = find_policy(given) if is_own_name(given) else given
    policy = find_policy(given)
    dim = parts["features"].dim if parts["features"] else rounds.context.shape[1]
    fits = file is None or file.dim is None or file.dim == dim
    way_out = "name the context's columns (context_columns, --context-columns)"
    columns = f"{dim} context columns ({', '.join(rounds.names)})"
    require(fits, "log", columns, f"do not fit the spec file's dim = {getattr(file, 'dim', None)}", way_out)
    try:
        held = _spec_for(policy, spec)
        named = given if isinstance(given, (str, Mapping)) else policy  # open options are by rule
        ran = live.policy.name if live is not None and file is None else None
        if named is not policy and (ran is not None or rounds.exported):
            held = _left_open(held, dim, ran)
        if not {"start_dose", "start_scale"} & set(policy.options):  # such a policy takes no start
            actions = {**actions, "start_action": None}
        return make_rules(dim=dim, spec=held, policy=named, **parts, **actions)
    except InvalidInput as error:
        raise InvalidInput(f"policy {policy.name}: {error}", error.code) from error


def _left_open(spec: SafetySpec, dim: int, ran: str | None) -> SafetySpec:
    """The spec of a study, which holds the ridge that the rule gave it, with that ridge left open again: else the rule
    (rounds/rules.py) would take it for a stated one, and choose another radius than the study's. Where the policy
    that `ran` is not under the rule, the study holds the default ridge.
    """
    if not (spec.states_ridge and GUARANTEES[spec.guarantee].constants):
        return spec
    left = replace(spec, ridge=None)
    plain = ran is not None and ran not in OPEN and spec.ridge == left.ridge
    return left if plain or by_rule(None, left, dim)[1].ridge == spec.ridge else spec


def _spec_for(policy: Policy, spec: SafetySpec) -> SafetySpec:
    """The spec, or, for a policy of another guarantee, one with the same threshold, constants and risk."""
    under = GUARANTEES[policy.guarantee].under
    if {spec.guarantee} & set(under):
        return spec
    needed, usable = GUARANTEES[under[0]], GUARANTEES[policy.guarantee].start != "declared"
    names = ("threshold", "costs", *(CONSTANTS if usable else ()))
    fields: dict[str, Any] = {name: getattr(spec, name) for name in names if getattr(spec, name) is not None}
    lacking = [name for name in needed.constants if name not in fields]
    rule = f"needs constants that a spec with guarantee = {spec.guarantee!r} does not state: {', '.join(lacking)}"
    way_out = "state them, or give the policy in a spec file of its own"
    require(not lacking, "policy", policy.name, rule, way_out)
    risk = "total_risk" if needed.constants else "violation_risk"
    return SafetySpec(**fields | {"guarantee": under[0], risk: float(spec.guaranteed_risk)})


def _check_doses(outcomes: Outcomes) -> None:
    count = len(outcomes.rounds)
    rule = "has no round with a dose above 0 and a known outcome: R/g and C/g are not known, so nothing can be replayed"
    way_out = "give a log in which something was given, or look ahead with `safedial plan`"
    require(bool(np.any(outcomes.usable)), "log", f"{count} rows", rule, way_out)


def _labels(made: list[Rules]) -> list[str]:
    """The policies' names, with their places where several have the same."""
    names = [rules.policy.name for rules in made]
    places = [names[: index + 1].count(name) for index, name in enumerate(names)]
    return [name if names.count(name) == 1 else f"{name} {place}" for name, place in zip(names, places, strict=True)]
