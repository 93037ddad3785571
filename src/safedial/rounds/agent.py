"""`Agent`: a policy in memory, one decision at a time.

    context ─► Features ─► policy.begin, bound, choose ─► dose curve ─► Dial ─► Decision ─► policy.open
    outcome ─► outcome.normalise ─► watch.reported, policy.tell

Arguments are checked before anything changes: a call that raises `InvalidInput` leaves the agent unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from safedial.errors import InvalidInput, require
from safedial.io import read_archive, write_archive
from safedial.model.dial import Dial, Features
from safedial.model.dose import Dose, DoseCurve
from safedial.model.namespace import Array
from safedial.model.noise_scale import NoiseScale
from safedial.model.spec import SafetySpec
from safedial.policies import Policy
from safedial.rounds.decision import Decision
from safedial.rounds.learning import Advice
from safedial.rounds.outcome import Asked, Outcome, Sample, check_past, normalise
from safedial.rounds.rounds import Rounds
from safedial.rounds.rules import Rules, check_same_policy, own_values, saved_policy, with_own_functions
from safedial.rounds.validation import (
    check_decision,
    check_forgetting,
    column,
    in_row,
    listed,
    make_rules,
    read_context,
    read_contexts,
    read_question,
    read_questions,
)
from safedial.version import __version__

OPEN_LIMIT = 100_000
"""Open decisions that are kept; older ones can be reported only by context and action."""

FORM = "safedial-agent"
"""What the first line of an agent's save file begins with."""

Context = Sequence[float] | Array | Mapping[str, float]

UNSAID: Any = object()


class Agent:
    """Advises one safe action at a time and learns from its outcome.

    Args:
        dim: the context's dimension (with `features`, their number, plus 1 for an intercept).
        spec: the guarantee and its assumptions, as plain numbers.
        policy: a policy, the name of one, or a mapping of its name and options; by default the one that follows from
            the spec's guarantee: `hp_probe`, `hp_conformal`, `hp_student` or `hp_shield`. Options of `hp_probe` that a
            name or a mapping leaves open follow a rule (docs/choosing.md). The certificate says why.
        dose: one dose curve, or a `Dose` with different ones for reward and cost; the identity by default.
        dial: the dial's own units and levels.
        features: names, centres and scales of raw feature values.
        start_action: `hp_conformal`, `hp_shield`, `hp_student`: a setting that you declare safe for every context, in
            the dial's units, used until there are enough rounds. Else constants, or a `start_scale`, must give one.
        fallback_action: the advice when nothing can be guaranteed, in the dial's units; by default the declared start
            action, or else the dial's low end.
        baseline_range: (low, high) for stated baseline costs; by default they must not be negative, because a negative
            one raises the dose.
        seed: for the coin of randomised policies.

    >>> spec = SafetySpec(threshold=0.5, total_risk=0.02, reward_noise=0.3, cost_noise=0.3,
    ...                   coefficient_bound=1, context_bound=1)
    >>> agent = Agent(2, spec)
    >>> decision = agent.ask([0.6, 0.3])
    >>> agent.tell([0.6, 0.3], decision.action, reward=0.12, cost=0.09)
    >>> agent.ask([0.6, 0.3]).action > 0
    True
    """

    def __init__(
        self,
        dim: int,
        spec: SafetySpec,
        *,
        policy: str | Policy | Mapping[str, Any] | None = None,
        dose: DoseCurve | Dose | None = None,
        dial: Dial | None = None,
        features: Features | None = None,
        start_action: float | None = None,
        fallback_action: float | None = None,
        baseline_range: tuple[float | None, float | None] | None = None,
        seed: int = 0,
    ) -> None:
        parts: Any = {"policy": policy, "dose": dose, "dial": dial, "features": features}
        actions = {"start_action": start_action, "fallback_action": fallback_action, "baseline_range": baseline_range}
        self._start(make_rules(dim=dim, spec=spec, **parts, **actions), seed)

    def __repr__(self) -> str:
        rules = self._rules
        return (
            f"Agent(dim={rules.dim}, policy={rules.policy.name}, decisions={self.decisions}, "
            f"informative_rounds={self.informative_rounds}, alarmed={self.alarmed})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what `save` writes, with the rules themselves, so that the user's own functions are included."""
        return restored, (type(self), self._rules, *dump(self))

    @property
    def spec(self) -> SafetySpec:
        return self._rules.spec

    @property
    def dim(self) -> int:
        return self._rules.dim

    @property
    def policy(self) -> Policy:
        return self._rules.policy

    @property
    def dial(self) -> Dial:
        return self._rules.dial

    @property
    def features(self) -> Features | None:
        return self._rules.features

    @property
    def reward_coef(self) -> Array:
        """θ̂, computed from the maintained inverse."""
        return self._rounds.learning.coef("reward")

    @property
    def cost_coef(self) -> Array:
        """μ̂; with several costs one row for each, in their order."""
        return self._rounds.learning.coef("cost")

    @property
    def violations(self) -> int:
        """How many outcomes of rounds with a guarantee exceeded the threshold, at the advised setting."""
        return int(self._rounds.watch.monitor.violations)

    @property
    def decisions(self) -> int:
        """The number of decisions."""
        return self._rounds.rounds

    @property
    def informative_rounds(self) -> int:
        """The number of outcomes learned from."""
        return self._rounds.learning.samples

    @property
    def evidence(self) -> float:
        """Evidence against the guarantee. It starts at 1; if the guarantee holds, P(it ever reaches 100) ≤ 0.01 + δ′ +
        δ_q.

        For a policy that watches its own assumptions: against exchangeable rounds (in a bracket), or Gaussian noise; if
        they are, or it is, P(it reaches 100) ≤ 0.01.
        """
        return self._rounds.watch.evidence

    @property
    def noise_evidence(self) -> float:
        """Evidence that the noise exceeds the stated one. It starts at 1; if not, P(it ever reaches 200) ≤ 0.01 + 2δ′.

        Only policies with a linear estimate and a radius collect it. With k costs the limit is 100(k + 1), not 200.
        """
        return self._rounds.watch.noise_evidence

    @property
    def frozen(self) -> bool:
        """Whether learning has ended because a dose was withheld for a reason that may be related to its outcome."""
        return self._rounds.learning.frozen

    @property
    def alarmed(self) -> bool:
        """Whether the agent has stopped: it advises the fallback until `resume` is called."""
        return bool(self._stop_reason)

    @property
    def stop_reason(self) -> str:
        """The rule that stopped the agent: "alarm", "drift", "noise_broken", ... (`LIMITS`), or "" if none has."""
        return self._stop_reason

    def resume(self, *, forget: bool = False, unrelated: bool = False) -> None:
        """Clear the rule that stopped the agent and restart its evidence, once a person has found out what went wrong.

        No other evidence is cleared: after `noise_broken` that of violations stays, after `alarm` that of the noise. If
        it has reached its own limit too, it stops the agent at once.

        Args:
            forget: HP-Conformal, HP-Shield, HP-Student: start again without the earlier rounds, if they no longer
                resemble new ones. Open decisions can then be reported only by context and action.
            unrelated: with `forget`: you state that the reason for starting again has nothing to do with outcomes, or
                is this agent's own alarm. Otherwise the rounds in force from then on are a selection, and HP-Student
                gives no exact guarantee again, except `guarantee="anytime"`, which allows any reason.
        """
        check_forgetting(forget, unrelated)
        rounds = self._rounds
        own = self._stop_reason == "start_refuted" and rounds.watch.start is not None
        if not (own or (forget and not self._stop_reason)):
            rounds.learning.restart_evidence()
        if forget:
            rounds.learning.forget(unrelated=unrelated)
            rounds.open.clear()
        rounds.watch.resumed(
            self._stop_reason if own or self._stop_reason == "noise_broken" else "alarm", rounds.rounds
        )
        self._stop_reason = ""
        self._notice()

    def ask(
        self,
        context: Context,
        *,
        baseline_cost: float = 0.0,
        allow_extrapolation: bool = False,
        proposal: float | None = None,
    ) -> Decision:
        """Advise an action for `context`; `baseline_cost` is the known cost b₀(x) without any action.
        `proposal` is the setting that somebody proposes, in the dial's units, where the policy takes one.
        `allow_extrapolation` accepts features outside their ranges, and marks the decision.
        Each call is a round: it counts for the joint guarantee and shrinks the probe; `preview` looks without deciding.
        """
        question = (context, baseline_cost, allow_extrapolation, proposal)
        return self._decide([read_question(self._rules, *question)])[0]

    def preview(
        self,
        context: Context,
        *,
        baseline_cost: float = 0.0,
        allow_extrapolation: bool = False,
        proposal: float | None = None,
    ) -> Decision:
        """What `ask` would advise now. Changes nothing; the coin of a randomised policy is 0.5."""
        asked = read_question(self._rules, context, baseline_cost, allow_extrapolation, proposal)
        decision, _ = self._advise(asked, preview=True)
        return decision._replace(preview=True)

    def ask_many(
        self,
        contexts: Iterable[Context],
        *,
        baseline_costs: Iterable[float] | None = None,
        allow_extrapolation: bool = False,
        proposals: Iterable[float] | None = None,
    ) -> list[Decision]:
        """One decision for each context, all from what is known now, as if `ask` were called for each.

        (A refit that is due comes before the first, so that none suffers from the others' open outcomes.)
        """
        given = (contexts, baseline_costs, allow_extrapolation)
        return self._decide(read_questions(self._rules, *given, proposals=proposals))

    def tell(
        self,
        context: Context | Decision,
        applied_action: float | None = None,
        reward: float | None = None,
        cost: float | Mapping[str, float | None] | None = None,
        *,
        baseline_cost: float = UNSAID,
        round: int | None = None,
        unrelated: bool = UNSAID,
    ) -> None:
        """Learn from one outcome. Call in decision order.

        Args:
            context: the round's context, or, better, the `Decision` itself, which knows its context, its action and
                its baseline cost: `agent.tell(decision, reward=0.7, cost=0.4)`.
            applied_action: what was applied, in the dial's units; with a `Decision` only if it differs from the advice.
            reward, cost: as measured; `reward` may be left out where the policy does not choose by it (`hp_shield`).
                `cost` is a mapping with each of the spec's `costs`, where it states them, None where one is not known.
            baseline_cost: as given to `ask`.
            round: the number of the decision, if you no longer have the `Decision` (after `load`). Without either, the
                outcome is assigned to the oldest open round.
            unrelated: if a dose was advised but none applied, or the outcome is lost (give neither reward nor cost):
                you state that the reason has nothing to do with the outcome; the round is then skipped. Otherwise
                learning ends with this round (`frozen`): leaving out those that were feared would bias the estimate.
                (Policies that need no order leave the round out if the reason is also unrelated to the context and, for
                HP-Shield, the setting; otherwise they take it for the worst.)

        The monitor counts the outcomes of decisions as measured, or, if more was applied than advised, as they would
        have been at the advice. An outcome from before the first decision (history), or of a round without a guarantee,
        is learned from but proves nothing about the guarantee.
        """
        require(unrelated is UNSAID or isinstance(unrelated, bool), "unrelated", unrelated, "must be True or False")
        gone = unrelated is not UNSAID and applied_action is None and reward is None and cost is None
        if isinstance(context, Decision):
            check_decision(self._rules, self._rounds.open, context)
            require(round is None, "round", round, "is known to the decision", "leave it out")
            vector, norm = read_context(self._rules, context.context, raw=False)
            applied = context.action if applied_action is None else applied_action
            baseline = context.baseline_cost if baseline_cost is UNSAID else baseline_cost
            number = context.round
        else:
            vector, norm = read_context(self._rules, context)
            number = self._number_of(vector, round)
            known = self._rounds.open[number].baseline_cost if number else 0.0
            applied, baseline = applied_action, known if baseline_cost is UNSAID else baseline_cost
        require(number or not gone, "round", round, "is not open, so it has no outcome to lose")
        if gone:
            self._rounds.gone(number, unrelated=unrelated is True)
            self._notice()
            return
        outcome = Outcome(applied, reward, cost, baseline)
        sample = normalise(self._rules, outcome, vector)
        if not number:
            check_past(self._rules, sample)
        self._learn(number, vector, norm, outcome, unrelated=unrelated is True, sample=sample)

    def tell_many(
        self,
        contexts: Iterable[Context],
        applied_actions: Iterable[float],
        rewards: Iterable[float],
        costs: Iterable[float | Mapping[str, float | None]],
        *,
        baseline_costs: Iterable[float] | None = None,
    ) -> None:
        """Learn from several outcomes in decision order, each `unrelated=False`. If one is refused, none is used."""
        vectors = read_contexts(self._rules, contexts)
        names = ("applied_actions", "rewards", "costs", "baseline_costs")
        given = (applied_actions, rewards, costs, baseline_costs)
        read = [listed if name == "costs" else column for name in names]
        columns = [make(name, values, len(vectors)) for make, name, values in zip(read, names, given, strict=True)]
        outcomes = [Outcome(*row) for row in zip(*columns, strict=True)]
        samples = [
            in_row(row, normalise, self._rules, outcome, vector)
            for row, (outcome, (vector, _)) in enumerate(zip(outcomes, vectors, strict=True))
        ]
        numbers = [*self._rounds.open, *[0] * len(vectors)][: len(vectors)]
        for row, ((vector, _), sample, number) in enumerate(zip(vectors, samples, numbers, strict=True)):
            in_row(row, self._check_open, vector, number, sample)
        for vector, outcome, sample, number in zip(vectors, outcomes, samples, numbers, strict=True):
            self._learn(number, *vector, outcome, sample=sample)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent to a file; `Agent.load` reads one that decides the same, bit for bit."""
        write_archive(path, *dump(self), form=FORM)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        policy: Policy | None = None,
        dose: DoseCurve | Dose | None = None,
        noise_scale: NoiseScale | None = None,
    ) -> Agent:
        """Read the agent that `save` wrote; a truncated or altered file is refused.

        A file does not hold your own functions: give them again, and they are compared with what was saved.

        Args:
            policy: if it, or a model or function in its options, is your own.
            dose: if a dose curve is your own.
            noise_scale: if the spec's is your own.
        """
        header, arrays = read_archive(path, form=FORM)
        try:
            given = with_own_functions(header, dose=dose, noise_scale=noise_scale)
            rules = Rules.from_dict({**given, "policy": saved_policy(header["policy"], policy)})
            made = restored(cls, rules, header, arrays)
            learning = made._rounds.learning
            check_same_policy(header["own"].get("policy", {}), learning.shown(), rules.policy.name)
            return made
        except InvalidInput:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"path = {str(path)!r}: is not a complete safedial save file ({error})") from error

    def _start(self, rules: Rules, seed: Any) -> None:
        """Start with nothing learned and nothing decided."""
        whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
        require(whole and seed >= 0, "seed", seed, "must be a whole number >= 0")
        self._rules, self._rounds, self._stop_reason = rules, Rounds(rules, awaits_all=True), ""
        self._seed, self._rng = int(seed), np.random.default_rng(int(seed))

    def _decide(self, asked: list[Asked]) -> list[Decision]:
        """Decide each of these rounds, all from what is known now."""
        if len(asked) > 1:
            self._rounds.learning.check_questions(asked, self.decisions)
        made = []
        for each in asked:
            decision, advice = self._advise(each, begin=not made)
            self._decided(each, decision, advice)
            made.append(decision)
        return made

    def _advise(self, asked: Asked, *, begin: bool = True, preview: bool = False) -> tuple[Decision, Advice]:
        given = {"coin": 0.5 if preview else self._rng.random(), "stop_reason": self._stop_reason}
        made = self._rounds.advise(asked, begin=begin, preview=preview, **given)
        if not (preview or self._rounds.watch.counts):  # what is due before a decision may have settled bets
            self._notice()
        return made

    def _decided(self, asked: Asked, decision: Decision, advice: Advice) -> None:
        """Open a decided round."""
        rounds = self._rounds
        rounds.decided(decision.round, asked, decision, advice)
        if len(rounds.open) > OPEN_LIMIT:
            del rounds.open[next(iter(rounds.open))]

    def _notice(self) -> None:
        """Stop if the watch or the policy's own evidence has reached its limit."""
        watch = self._rounds.watch
        watch.notice()
        self._stop_reason = self._stop_reason or watch.due

    def _number_of(self, vector: Array, round: int | None) -> int:
        """The open round of an outcome that is reported by its context; 0 for history."""
        waiting = self._rounds.open
        if round is not None:
            require(round in waiting, "round", round, "is not open: unknown, reported already, or too old")
        number = next(iter(waiting), 0) if round is None else int(round)
        self._check_open(vector, number)
        return number

    def _check_open(self, vector: Array, number: int, sample: Sample | None = None) -> None:
        round_ = self._rounds.open.get(number)
        self._rounds.learning.check_report(vector, number, round_.place if round_ else None, self.decisions)
        if sample is not None and not number:
            check_past(self._rules, sample)

    def _learn(self, number: int, vector: Array, norm: float, outcome: Outcome, **known: Any) -> None:
        """Watch the outcome of round `number` (0: history), and learn from it."""
        if number:
            self._rounds.told(number, outcome, **known)
        else:
            self._rounds.learn_past(outcome, vector, norm)
        self._notice()


def dump(agent: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(header, arrays) of an agent; `Agent.load` reads them, bit for bit."""
    rounds, arrays = agent._rounds.packed()
    header = {
        "safedial_version": __version__,
        **agent._rules.to_dict(),
        "own": {**own_values(agent._rules), "policy": agent._rounds.learning.shown()},
        "rounds": rounds,
        "stop_reason": agent._stop_reason,
        "seed": agent._seed,
        "coin": agent._rng.bit_generator.state,
    }
    return header, arrays


def restored(kind: Any, rules: Rules, header: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """An agent of class `kind` with its rules and everything that it learned, counted and watched."""
    agent = kind.__new__(kind)
    agent._start(rules, header["seed"])
    agent._rounds.restore(header["rounds"], arrays)
    agent._stop_reason = header["stop_reason"]
    agent._rng.bit_generator.state = header["coin"]
    return agent
