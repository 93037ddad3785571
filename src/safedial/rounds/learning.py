"""The one lane of a policy's state in an agent or a study, and what people ask of it.

What is asked of any policy, whatever its state, is answered by the policy's data and its bounds; what changes the state
is one of `begin`, `open`, `tell` and `restart`.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.rounding import round_up
from safedial.errors import InvalidInput
from safedial.model.namespace import Array
from safedial.policies import table
from safedial.policies.policy import KNOWN, LEFT_OUT, LOST, THROTTLED, Asked, Bound, Policy, Told, check_found, plain
from safedial.rounds.decision import Decision, decide
from safedial.rounds.outcome import Asked as Question
from safedial.rounds.outcome import Round, Sample, check_reported, joined
from safedial.rounds.rules import Rules, longest_context
from safedial.rounds.validation import in_row

Residuals = tuple[float, float, float, float, float]

RESIDUAL = ("reward", "cost", "reward_far", "cost_far", "cost_slack")
"""The numbers of a bound that an outcome's residuals follow from: two means, how far each may lie from the true one
without any noise in the round, and how far rounding may have raised the cost's."""

FORGETTING = "is not for a certified policy, whose earlier rounds stay valid"


class Advice(NamedTuple):
    """What a decision was made from, until its round is opened."""

    asked: Asked
    bound: Bound


class Learning:
    """A policy, bound to its task, with its state.

    Attributes:
        samples: how many outcomes were learned from.
        starts: how many decisions got the start, where that is shown: where counted violations are no evidence.
        opened: how many rounds were opened; the place of the next one.
        queue: the keys of the rounds that have not been passed, where outcomes are learned in order.
        held: the rounds of these that have ended, each with its sample (None: there is none), and whether it is lost.
        frozen: whether learning has ended, because a round was lost.
        named: the name of each decided round, for a policy whose numbers name rounds.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.policy: Policy = rules.policy
        self.samples = self.opened = 0
        self.starts = None if self.policy.counts or not self.policy.counts_starts else 0
        self.queue: deque[int] = deque()
        self.held: dict[int, tuple[Round, Sample | None, bool]] = {}
        self.frozen = False
        self.named: list[str] = []
        self._state = self.policy.init()
        self._in_order = self.policy.in_order
        if self.policy.is_own:
            table.pack(self._state)  # which refuses what no file can hold
        self._prepares = type(self.policy).begin is not Policy.begin
        self._opens = type(self.policy).open is not Policy.open
        """Whether decisions change the state: before they are made, and when they are. Outcomes always do."""
        self._contexts: dict[int, Array] = {}
        """Those of open rounds, where the policy must know the round that an outcome belongs to."""
        self._seen: Advice | None = None
        """The latest question and its bound, until the state changes."""

    @property
    def follows(self) -> bool:
        """Whether its state depends on decisions, and not on outcomes alone."""
        return self._prepares or self._opens

    # --- a decision

    def advise(
        self,
        rules: Rules,
        question: Question,
        *,
        number: int,
        coin: float = 0.5,
        stop_reason: str = "",
        begin: bool = True,
        preview: bool = False,
        recorded: Any = None,
    ) -> tuple[Decision, Advice]:
        """A decision, and what it was made from. With `begin=False` nothing is refitted that is due; of a `preview` the
        state stays as it is; `recorded` stands for the state (`policies.linear.Recorded`).
        """
        # An amendment that keeps what was learned may have changed the rules, and a new epoch the policy's task.
        known = self.policy.task.spec
        policy = self.policy if rules.spec is known or rules.spec == known else rules.policy
        asked = asked_of(question, number, coin)
        state = self._state if recorded is None else recorded
        if self._prepares and begin and recorded is None:
            if preview:
                state = copy.deepcopy(state)
            policy.begin(state, asked)
        advice = Advice(asked, policy.bound(state, asked))
        if state is self._state:
            self._seen = advice
        given, chosen = {"number": number, "stop_reason": stop_reason or self._alarm(state), "starts": self.starts}, 0.0
        try:
            chosen = policy.choose(advice.bound, asked)
            return decide(rules, question, advice.bound, chosen, **given), advice
        except (AttributeError, TypeError, ValueError):
            check_found(policy, advice.bound, chosen, one_lane=True)
            raise

    def check_questions(self, questions: list[Question], decided: int) -> None:
        """Refuse several questions if one cannot be answered, before any is; the error names its row. `decided` is how
        many were decided before.
        """
        if self._prepares:
            state = copy.deepcopy(self._state)
            for row, question in enumerate(questions):
                in_row(row, self.policy.begin, state, asked_of(question, decided + row + 1))

    def open(self, advice: Advice | None, decision: Decision) -> int:
        """Open a decided round. Returns its place. Where the state follows no decisions, no advice is needed."""
        if self._opens and advice is not None:
            chosen = decision.action if self.policy.unit == "setting" else decision.intensity
            return self._open(advice.asked, advice.bound, chosen)
        self.opened += 1
        return self.opened - 1

    def _open(self, asked: Asked, bound: Bound | None, chosen: float) -> int:
        self.policy.open(self._state, asked, bound, chosen)
        place, self.opened = self.opened, self.opened + 1
        if not self._in_order:
            self._contexts[place] = asked.context
        return place

    def count_start(self, guarantee: str) -> None:
        """Count a decision at the start, by its guarantee."""
        if self.starts is not None:
            self.starts += guarantee in ("declared", "certified")

    # --- its outcome

    def check_report(self, context: Array, round: int, place: int | None, decisions: int) -> None:
        """Refuse an outcome that is reported by its context but fits no round."""
        if not self._in_order:
            kept = None if place is None else self._contexts.get(place)
            history = self.policy.takes_history
            check_reported(self.policy.name, context, kept, round=round, decisions=decisions, history=history)

    def learn(self, context: Array, norm: float, sample: Sample, place: int | None) -> None:
        """Learn from the outcome of the round at `place`; None: a round from before the first decision."""
        if self.frozen:
            return
        if place is None:
            place = self._open(Asked(context, norm, 0), None, sample.applied) if self._opens else 0
        if place < 0:  # the round was forgotten
            return
        fate = LOST if sample.unknown else KNOWN
        self.samples += not sample.unknown and (sample.weight > 0.0 or self.policy.zero_tells)
        self._tell(place, told_of(fate, sample, context, norm))

    def advance(self) -> None:
        """Learn in order from the rounds whose turn has come. A round that was lost ends learning."""
        while self.queue and self.queue[0] in self.held:
            round_, sample, lost = self.held.pop(self.queue.popleft())
            if sample is not None:
                self.learn(round_.context, round_.norm, sample, round_.place)
            self.frozen = self.frozen or lost

    def throttled(self, context: Array, sample: Sample, place: int) -> None:
        """The setting of the round at `place` was lowered because of its outcome: its cost is evidence, no lesson."""
        self._tell(place, told_of(THROTTLED, sample, context, math.nan))

    def leave_out(self, place: int) -> None:
        """The round at `place` has no outcome, for a reason unrelated to it."""
        self._tell(place, nothing_told(LEFT_OUT, self._contexts.get(place)))

    def lose(self, place: int | None, baseline_cost: float = 0.0, *, given: bool = False) -> None:
        """The round at `place` has no outcome, for a reason that may be related to it, which ends learning where the
        policy needs an order; or it was given nothing, which a baseline cost at the threshold or above would explain.
        """
        self.frozen = self.frozen or (given and self._in_order and self.policy.learns)
        place = -1 if place is None else place
        self._tell(place, nothing_told(LOST, self._contexts.get(place), baseline_cost))

    def _tell(self, place: int, told: Told) -> None:
        if place < 0:
            return
        self._seen = None
        self._contexts.pop(place, None)
        self.policy.tell(self._state, place, told)

    # --- its evidence

    def residuals(self, context: Array, norm: float, sample: Sample, of: str = "") -> Residuals | None:
        """(reward residual, its slack, cost residual, its slack, rounding) of an outcome not yet learned, where the
        policy's numbers say how far its means may be off without noise; else None. A residual is the distance from the
        predicted mean, the slack is how far it may lie without any noise, both times √ω; rounding is what rounding may
        add to the cost's. `of` is "" or the beginning of the names of one cost's numbers.
        """
        seen = self._seen
        if seen is None or seen.asked.context.tobytes() != context.tobytes():
            asked = Asked(context, norm, max(self.opened, 1))
            self._seen = seen = Advice(asked, self.policy.bound(self._state, asked))
        told = seen.bound.numbers
        if f"{of}cost_far" not in told:
            return None
        share = math.sqrt(sample.weight)
        mean, cost, reward_far, cost_far, raised = (share * told[of + name] for name in RESIDUAL)
        return share * sample.reward - mean, reward_far, share * sample.cost - cost, cost_far, raised

    @property
    def evidence(self) -> float | None:
        """That of the first of the policy's own rules; None if counted violations are the evidence."""
        if self.policy.counts:
            return None
        return next((float(each.value) for each in self.policy.evidence(self._state).values()), 1.0)

    @property
    def start_evidence(self) -> float | None:
        """That against the declared start, where the policy keeps it itself."""
        found = {} if self.policy.counts else self.policy.evidence(self._state)
        return float(found["start_refuted"].value) if "start_refuted" in found else None

    @property
    def stop_rule(self) -> str:
        """The rule that the policy's own evidence has crossed; "" if none."""
        return self._alarm(self._state)

    def _alarm(self, state: Any) -> str:
        if self.policy.counts:
            return ""
        return next((rule for rule, each in self.policy.evidence(state).items() if bool(each.crossed)), "")

    def restart_evidence(self) -> None:
        """Begin the policy's own evidence anew."""
        self._seen = None
        self.policy.restart(self._state)

    def forget(self, *, unrelated: bool = False) -> None:
        """Start again without rounds, after a change that made the earlier ones useless: a new epoch. `unrelated`: the
        reason for it has nothing to do with outcomes. The start is the same, and so is the evidence against it.
        """
        if self.policy.counts:
            raise InvalidInput(f"forget = True: {FORGETTING}")
        task, before = self.policy.task, self._state
        self._begin_epoch(task.epoch + 1, exact=task.exact and unrelated)
        self.policy.restart(self._state, before)
        self.samples = self.opened = 0
        self._contexts.clear()

    def begins_after(self, before: Learning) -> None:
        """Begin with nothing learned, after rounds that are not kept."""
        task = before.policy.task
        self._begin_epoch(task.epoch + 1, exact=task.exact)

    def _begin_epoch(self, epoch: int, *, exact: bool) -> None:
        self.policy = self.policy.on(replace(self.policy.task, epoch=epoch, exact=exact))
        self._state, self._seen = self.policy.init(), None

    def coef(self, target: str) -> Array:
        """The coefficients of "reward" or "cost" that the policy predicts by: its predictions at the unit vectors; for
        several costs a row for each.
        """
        parts = self.rules.parts
        if target == "cost" and parts is not None:
            return np.stack([self._coef(f"{name}.cost") for name in parts])
        return self._coef(target if parts is None else f"{next(iter(parts))}.{target}")

    def _coef(self, target: str) -> Array:
        number, rows = max(self.opened, 1), np.eye(self.policy.task.dim)
        asked = [Asked(row, 1.0, number) for row in (*rows, *-rows)]
        found = [self.policy.bound(self._state, each).numbers.get(target) for each in asked]
        if any(each is None for each in found):
            raise InvalidInput(f"{target}_coef: policy {self.policy.name} has no coefficients")
        # Half the difference to the opposite context: what a prediction was raised by, for rounding, cancels.
        ahead, behind = np.split(np.array(found, dtype=np.float64), 2)
        return 0.5 * (ahead - behind)

    # --- decisions of another processor

    def rounding(self, context: Array, norm: float) -> float | None:
        """How far rounding may move its predictions on another processor; None if unknown."""
        recorded = self.policy.recorded
        return None if recorded is None else recorded.rounding(self._state, context, norm)

    def estimated(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers of a decision that all others follow from."""
        return {name: value for name, value in numbers.items() if name in self.policy.recorded.names}

    def recorded(self, numbers: Mapping[str, Any], context: Array) -> Any:
        """Recorded numbers in place of the state."""
        return self.policy.recorded(self.policy, numbers, context)

    # --- saving

    def state(self) -> dict[str, Any]:
        """The arrays to save."""
        dim, places = self.policy.task.dim, sorted(self._contexts)
        rows = [self._contexts[place] for place in places]
        named = [name.split(".") for name in self.named]
        samples = [sample for _, sample, _ in self.held.values()]
        packed = table.pack(self._state)
        if self.policy.is_own:
            table.check_given_back(self.policy.init(), packed)
        return {
            **{f"policy.{name}": value for name, value in packed.items()},
            "counts": np.array([self.samples, self.opened, -1 if self.starts is None else self.starts, self.frozen]),
            "epoch": np.array([self.policy.task.epoch, self.policy.task.exact]),
            "open.places": np.array(places, dtype=np.int64),
            "open.contexts": np.array(rows, dtype=np.float64).reshape(len(places), dim),
            "queue": np.array(self.queue, dtype=np.int64),
            **pack_rounds("held", {key: round_ for key, (round_, _, _) in self.held.items()}, dim),
            "held.fates": np.array([(each is None, lost) for _, each, lost in self.held.values()], bool).reshape(-1, 2),
            "held.samples": _flat(self.rules, samples),
            "named.seqs": np.array([int(seq) for seq, _ in named], dtype=np.int64),
            "named.tags": np.array([tag for _, tag in named], dtype="S8"),
        }

    def shown(self) -> dict[str, Any]:
        """What tells the user's own policy from another class of the same name: the kinds of its first state, and its
        answer to one question. Nothing of a policy of this package.
        """
        policy, bound = self.policy, self.rules.spec.context_bound
        if not policy.is_own or policy.takes_proposal:
            return {}
        context, state = longest_context(self.rules.dim, bound or 1.0), copy.deepcopy(self._state)
        asked = Asked(context, float(np.linalg.norm(context)), float(self.opened + 1))
        shown: dict[str, Any] = {"kinds": table.kinds(table.pack(policy.init()))}
        with suppress(InvalidInput):  # it may refuse the question
            policy.begin(state, asked)
            found = policy.bound(state, asked)
            answer = found.index, found.largest, policy.choose(found, asked)
            shown["answer"] = [plain(float(each)) for each in answer]
        return shown

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Restore, bit for bit, what `state` gave."""
        epoch, exact = (int(value) for value in arrays["epoch"])
        self._begin_epoch(epoch, exact=bool(exact))
        packed = {name.removeprefix("policy."): value for name, value in arrays.items() if name.startswith("policy.")}
        self._state = table.unpack(self.policy.init(), packed)
        self.samples, self.opened, starts, frozen = (int(value) for value in arrays["counts"])
        self.starts, self.frozen = None if starts < 0 else starts, bool(frozen)
        self._contexts = dict(zip(arrays["open.places"].tolist(), arrays["open.contexts"].copy(), strict=True))
        self.queue = deque(arrays["queue"].tolist())
        held = unpack_rounds("held", arrays).items(), arrays["held.fates"].tolist(), arrays["held.samples"].tolist()
        self.held = {
            key: (round_, None if gone else _sample(self.rules, row), lost)
            for (key, round_), (gone, lost), row in zip(*held, strict=True)
        }
        named = zip(arrays["named.seqs"].tolist(), arrays["named.tags"].tolist(), strict=True)
        self.named = [f"{seq}.{tag.decode()}" for seq, tag in named]


# --- Rounds and samples as arrays, made field by field: many may wait

WIDTH = len(Sample._fields)


def pack_rounds(name: str, rounds: Mapping[int, Round], dim: int) -> dict[str, Any]:
    """Rounds by key as arrays."""
    fields: Any = zip(*rounds.values(), strict=True) if rounds else [()] * len(Round._fields)
    parts: Any = Round(*fields)
    numbers = [list(rounds), parts.number, parts.watched, parts.place, parts.given, parts.at]
    return {
        f"{name}.numbers": np.array(numbers, dtype=np.int64).T,
        f"{name}.values": np.array([parts.action, parts.baseline_cost, parts.norm], dtype=np.float64).T,
        f"{name}.contexts": np.concatenate([np.empty(0), *parts.context]).reshape(-1, dim),
        f"{name}.tags": np.array(parts.tag, dtype="S8"),
    }


def unpack_rounds(name: str, arrays: Mapping[str, Any]) -> dict[int, Round]:
    """The inverse of `pack_rounds`."""
    numbers, values, contexts, tags = (arrays[f"{name}.{part}"] for part in ("numbers", "values", "contexts", "tags"))
    rows = zip(numbers.tolist(), values.tolist(), contexts.copy(), tags.tolist(), strict=True)
    return {
        key: Round(number, place, action, baseline, bool(watched), vector, norm, at, tag.decode(), bool(given))
        for (key, number, watched, place, given, at), (action, baseline, norm), vector, tag in rows
    }


def _flat(rules: Rules, samples: list[Sample | None]) -> Array:
    """A row for each sample; those of several costs, which are known where a sample is held, side by side."""
    width = WIDTH * len(rules.parts or (1,))
    rows: list[Any] = [sample or (0.0,) * width for sample in samples]
    if rules.parts is not None:
        rows = [np.ravel(list(sample.cost.values())) if isinstance(sample, Sample) else sample for sample in rows]
    return np.array(rows, dtype=np.float64).reshape(-1, width)


def _sample(rules: Rules, row: list[float]) -> Sample:
    """The inverse of `_flat` for one row."""
    if rules.parts is None:
        return Sample(*row)
    return joined({name: Sample(*row[WIDTH * at : WIDTH * (at + 1)]) for at, name in enumerate(rules.parts)})


def asked_of(question: Question, number: int, coin: float = 0.5) -> Asked:
    """A question as a policy is asked it."""
    baseline = round_up(question.baseline_cost) if question.baseline_cost else 0.0
    return Asked(question.vector, question.norm, float(number), baseline, coin, question.proposal)


def told_of(fate: int, sample: Sample, context: Any, norm: float) -> Told:
    """An outcome as a policy is told it."""
    parts, cost = None, sample.cost
    if isinstance(cost, dict):
        parts = {name: told_of(fate, part, context, norm) for name, part in cost.items()}
        cost = 0.0
    return Told(
        fate, sample.reward, cost, sample.weight, sample.measured, sample.baseline_cost, sample.applied,
        sample.intensity, context, norm, parts,
    )  # fmt: skip


def nothing_told(fate: int, context: Any, baseline: float = 0.0) -> Told:
    """A round without an outcome."""
    return Told(fate, 0.0, 0.0, 0.0, math.nan, baseline, math.nan, 0.0, context)
