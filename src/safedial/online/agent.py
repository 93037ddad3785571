"""`Agent`: the in-memory online learner.

    context ─► Features ─► learner.predict ─► Policy.decide ─► dose curve ─► Dial ─► Decision
    outcome ─► outcome.normalise ─► learner.learn, monitor

The learner is the linear one (learner.py, certified) or the conformal one (conformal.py), by the policy's promise.

Everything is checked before anything changes: a call that raises `InvalidInput` leaves the agent as it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedial.core import monitor
from safedial.core.action import Choice
from safedial.core.dose import Dose, DoseCurve
from safedial.core.rounding import round_down, round_up, rounded_spec
from safedial.core.spec import SafetySpec
from safedial.errors import InvalidInput, require
from safedial.online import savefile
from safedial.online.conformal import ConformalLearner
from safedial.online.decision import Decision, Rules, promise_of
from safedial.online.door import check_decision, column, in_row, make_rules, read_context, read_contexts
from safedial.online.learner import Learner
from safedial.online.memory import arguments, recall, remember
from safedial.online.outcome import Sample, counted, normalise
from safedial.online.units import Dial, Features, real
from safedial.policies import Policy

Vector = NDArray[np.float64]
Context = Sequence[float] | Vector | Mapping[str, float]

ALARM_LEVEL = 0.01
UNSAID: Any = object()

OPEN_LIMIT = 100_000
"""Decisions without an outcome that are remembered; older ones can be reported by context and action only."""


class Agent:
    """Advises one safe action at a time and learns from its outcome.

    Args:
        dim: the context's dimension (with `features`, their number, an intercept included).
        spec: the promise and its assumptions; plain numbers, no arrays.
        policy: a policy, or its name with the default options; by default `hp_probe`, or `hp_conformal` where the
            spec's promise is "conformal".
        dose: one dose curve, or a `Dose` with different ones for reward and cost; the identity by default.
        dial: the dial's own units and levels.
        features: names, centres and scales of raw feature values.
        start_action: `hp_conformal` only: a setting that you declare safe for every context, in the dial's units, used
            until there are rounds enough. Without it the spec's constants must certify one.
        fallback_action: what to advise where nothing is promised, in the dial's units; by default the declared start
            action, or else the dial's low end.
        seed: of the coin that randomised policies toss.

    >>> spec = SafetySpec(threshold=0.5, total_risk=0.02, reward_noise=0.3, cost_noise=0.3,
    ...                   coefficient_bound=1, context_bound=1)
    >>> agent = Agent(2, spec)
    >>> decision = agent.decide([0.6, 0.3])
    >>> agent.update([0.6, 0.3], decision.action, reward=0.12, cost=0.09)
    >>> agent.decide([0.6, 0.3]).action > 0
    True
    """

    def __init__(
        self,
        dim: int,
        spec: SafetySpec,
        *,
        policy: str | Policy | None = None,
        dose: DoseCurve | Dose | None = None,
        dial: Dial | None = None,
        features: Features | None = None,
        start_action: float | None = None,
        fallback_action: float | None = None,
        seed: int = 0,
    ) -> None:
        self._rules = rules = make_rules(dim, spec, policy, dose, dial, features, start_action, fallback_action)
        whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
        require(whole and seed >= 0, "seed", seed, "must be a whole number >= 0")
        self._straight = rules.dial.is_plain and rules.dose.cost.name == "identity"
        self._safe_spec = rounded_spec(spec)
        self._learner = _learner(rules)
        self._decisions = 0
        self._open: dict[int, Any] = {}
        self._monitor, self._alarmed_at = monitor.init(), 0
        self._seed, self._rng = int(seed), np.random.default_rng(int(seed))

    def __repr__(self) -> str:
        rules = self._rules
        return (
            f"Agent(dim={rules.dim}, policy={rules.policy.name}, decisions={self._decisions}, "
            f"informative_rounds={self._learner.samples}, alarmed={self.alarmed})"
        )

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
    def reward_coef(self) -> Vector:
        """θ̂, by a fresh look at the maintained inverse."""
        return self._learner.coef("reward")

    @property
    def cost_coef(self) -> Vector:
        """μ̂."""
        return self._learner.coef("cost")

    @property
    def violations(self) -> int:
        """How many watched outcomes of certified decisions exceeded the threshold."""
        return int(self._monitor.violations)

    @property
    def decisions(self) -> int:
        """How many actions were advised."""
        return self._decisions

    @property
    def informative_rounds(self) -> int:
        """How many outcomes were learned from."""
        return self._learner.samples

    @property
    def evidence(self) -> float:
        """Evidence that the promise is broken: 1 at the start; ≥ 100 with probability at most 0.01 + δ′ if it holds.

        For HP-Conformal: evidence that rounds are not exchangeable; ≥ 100 with probability at most 0.01 if they are.
        """
        if isinstance(self._learner, ConformalLearner):
            return self._learner.evidence
        return float(monitor.evidence(self._monitor))

    @property
    def alarmed(self) -> bool:
        """Whether the evidence reached 100. The fallback is then advised until `resume` is called."""
        return self._alarmed_at > 0

    def resume(self, *, forget: bool = False) -> None:
        """Take the alarm back and watch afresh: a person's decision, after finding out what went wrong.

        Args:
            forget: HP-Conformal only: start up again without the earlier rounds, where they no longer resemble the
                new ones. Open decisions can then be reported by context and action only.
        """
        if isinstance(self._learner, ConformalLearner):
            self._learner.watch_afresh()
            if forget:
                self._learner.forget()
                self._open.clear()
        else:
            require(not forget, "forget", forget, "is for hp_conformal: a certified learner's rounds stay true")
        self._monitor, self._alarmed_at = monitor.init(), 0

    def decide(self, context: Context, *, baseline_cost: float = 0.0) -> Decision:
        """Advise an action for `context`; `baseline_cost` is the known cost b₀(x) that arises without any action.

        Each call is a round: it counts for the joint promise and shrinks the probe. To look without deciding, use
        `preview`.
        """
        vector, norm = read_context(self._rules, context)
        return self._decide(vector, norm, real("baseline_cost", baseline_cost))

    def preview(self, context: Context, *, baseline_cost: float = 0.0) -> Decision:
        """What `decide` would advise now, changing nothing; a randomised policy's coin is taken as 0.5."""
        vector, norm = read_context(self._rules, context)
        return self._advise(vector, norm, real("baseline_cost", baseline_cost), coin=0.5)._replace(preview=True)

    def decide_many(
        self, contexts: Iterable[Context], *, baseline_costs: Iterable[float] | None = None
    ) -> list[Decision]:
        """One decision for each context, all from what is known now: the same as calling `decide` in turn."""
        vectors = read_contexts(self._rules, contexts)
        baselines = column("baseline_costs", baseline_costs, len(vectors))
        return [self._decide(*vector, baseline) for vector, baseline in zip(vectors, baselines, strict=True)]

    def update(
        self,
        context: Context | Decision,
        action: float | None = None,
        reward: float | None = None,
        cost: float | None = None,
        *,
        baseline_cost: float = UNSAID,
    ) -> None:
        """Learn from one outcome. Call in decision order.

        Args:
            context: the round's context, or, better, the `Decision` itself, which knows its context, its action and
                its baseline cost: `agent.update(decision, reward=0.7, cost=0.4)`.
            action: what was applied, in the dial's units; with a `Decision` only if it differs from the advice.
            reward, cost: as measured.
            baseline_cost: as given to `decide`.

        Outcomes of decisions feed the monitor. An outcome that is reported before any decision (history), or that was
        applied above the advice, or was not certified, is learned from and proves nothing about the promise.
        """
        if isinstance(context, Decision):
            check_decision(self._rules, self._open, context)
            vector, norm = read_context(self._rules, context.context, raw=False)
            applied = context.action if action is None else action
            baseline = context.baseline_cost if baseline_cost is UNSAID else baseline_cost
            self._fold(vector, norm, normalise(self._rules, applied, reward, cost, baseline), context)
        else:
            vector, norm = read_context(self._rules, context)
            self._check_order([(vector, norm)])
            baseline = 0.0 if baseline_cost is UNSAID else baseline_cost
            self._fold(vector, norm, normalise(self._rules, action, reward, cost, baseline))

    def update_many(
        self,
        contexts: Iterable[Context],
        actions: Iterable[float],
        rewards: Iterable[float],
        costs: Iterable[float],
        *,
        baseline_costs: Iterable[float] | None = None,
    ) -> None:
        """Learn from several outcomes in decision order; if one of them is refused, none is learned from."""
        vectors = read_contexts(self._rules, contexts)
        names = ("actions", "rewards", "costs", "baseline_costs")
        given = (actions, rewards, costs, baseline_costs)
        columns = [column(name, values, len(vectors)) for name, values in zip(names, given, strict=True)]
        rows = enumerate(zip(*columns, strict=True))
        samples = [in_row(number, normalise, self._rules, *row) for number, row in rows]
        self._check_order(vectors)
        for vector, sample in zip(vectors, samples, strict=True):
            self._fold(*vector, sample)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file; `Agent.load` gives an agent that decides the same, bit for bit."""
        savefile.write(path, *remember(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, policy: Policy | None = None) -> Agent:
        """The agent that `save` wrote; a truncated or altered file is refused.

        Args:
            policy: the policy, where it is not one of this package's own; its name must be the saved one.
        """
        header, arrays = savefile.read(path)
        try:
            agent = cls(**arguments(header, policy))
            recall(agent, header, arrays)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"path = {str(path)!r}: lacks a part of a safedial save file ({error})") from error
        return agent

    def _decide(self, vector: Vector, norm: float, baseline_cost: float) -> Decision:
        self._learner.begin()
        coin = self._rng.random() if self._rules.policy.randomised else 0.5
        decision = self._advise(vector, norm, baseline_cost, coin)
        self._decisions += 1
        self._open[self._decisions] = self._learner.open(vector)
        if len(self._open) > OPEN_LIMIT:
            del self._open[next(iter(self._open))]
        return decision

    def _advise(self, vector: Vector, norm: float, baseline_cost: float, coin: float) -> Decision:
        rules, learner, number = self._rules, self._learner, self._decisions + 1
        prediction: Any = learner.predict(vector, norm)
        baseline = round_up(baseline_cost) if baseline_cost else 0.0
        choice = rules.policy.decide(
            prediction, self._safe_spec, round=float(number), coin=coin, baseline_cost=baseline
        )
        prediction, choice = learner.view(prediction, choice)
        doubt = self._doubt(choice) if self._alarmed_at or choice.bounds.refuted or not choice.safe.certified else ""
        if doubt:
            safe_setting, setting = None, rules.fallback_action
        else:
            safe_setting = setting = self._setting(choice.safe.intensity)
            if choice.intensity != choice.safe.intensity:
                setting = self._setting(choice.intensity)
        intensity = setting if self._straight else float(rules.dose.cost.effect(rules.dial.action(setting)))
        certified = not doubt and promise_of(rules, choice) == "certified"
        return Decision(
            setting, intensity, safe_setting, number, certified, vector, prediction, choice, baseline_cost, doubt, rules
        )

    def _doubt(self, choice: Choice) -> str:
        if self._alarmed_at:
            return "alarm" if self._rules.policy.promise == "certified" else "drift"
        return "assumption_broken" if choice.bounds.refuted else "no_certified_action"

    def _setting(self, intensity: float) -> float:
        if self._rules.start_action is not None and intensity == self._rules.policy.options["start_dose"]:
            return self._rules.start_action
        if self._straight:
            return round_down(intensity)
        curve, dial = self._rules.dose.cost, self._rules.dial
        action = float(curve.action(round_down(intensity, curve.error_units)))
        return action if dial.is_plain else dial.setting(action)

    def _fold(self, vector: Vector, norm: float, sample: Sample, decision: Decision | None = None) -> None:
        # Without its decision an outcome is taken for the oldest open round's; before any decision it is history.
        number = decision.round if decision else next(iter(self._open), 0)
        self._learner.learn(vector, norm, sample, self._open.pop(number, None))
        if isinstance(self._learner, ConformalLearner):
            if not self._alarmed_at and self._learner.evidence >= 1.0 / ALARM_LEVEL:
                self._alarmed_at = max(self._decisions, 1)
            return
        watch = decision.certified and sample.applied <= decision.action if decision else not self._alarmed_at
        if number and watch and self._rules.policy.promise == "certified":
            self._watch(counted(self._rules.spec, sample, float(number)))

    def _check_order(self, vectors: list[tuple[Vector, float]]) -> None:
        """Outcomes that are reported by context must be those of the oldest open rounds, in order."""
        for (vector, _), number in zip(vectors, self._open.values(), strict=False):
            if not self._learner.is_open(number, vector):
                raise InvalidInput(
                    "context: is not that of the oldest open round, which hp_conformal must know; "
                    "report the Decision itself"
                )

    def _watch(self, seen: tuple[bool, float] | None) -> None:
        if seen:
            self._monitor = monitor.update(self._monitor, *seen)
            if seen[0] and not self._alarmed_at and monitor.alarm(self._monitor, ALARM_LEVEL):
                self._alarmed_at = self._decisions


def _learner(rules: Rules) -> Learner | ConformalLearner:
    if rules.policy.promise == "conformal":
        return ConformalLearner(rules.policy, rules.dim, rules.spec.ridge)
    return Learner(rules.dim, rules.spec.ridge)
