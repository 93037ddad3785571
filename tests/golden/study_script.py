"""Studies that meet every kind of event, played through the adapter in words of their own.

A script is a function of a `Study`, which asks, tells, corrects, voids and so on, and writes down what it was answered.
What is recorded is independent of how a log is written: advice, numbers, statuses, which rule stopped after which step.
Outcomes are in proportion to the dose (or monotone in it), so that a last digit of an advised action does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.golden import adapter

MOST = 300
"""More decisions than any script makes."""

Told = dict[str, Any]


class Study:
    """A study that is played, and what it answered. Every input is moved by up to a share `moved` of itself, to see
    that no answer lies on an edge.
    """

    def __init__(self, folder: Any, name: str, stated: dict[str, Any], *, moved: float = 0.0) -> None:
        self.live = adapter.LiveStudy(folder, name, stated)
        self.moved = moved
        self.decisions: list[list[Any]] = []
        self.ids: list[Any] = []
        self.ops: list[str] = []
        self.stops: list[list[Any]] = []
        self.evidence: list[list[Any]] = []
        self.shown: dict[int, Any] = {}
        self.stopped = ""
        self.notes: list[list[Any]] = []

    def near(self, value: Any) -> Any:
        """A number, or each of several, moved a little if inputs are moved."""
        if not self.moved or value is None:
            return value
        if isinstance(value, dict):
            return {name: self.near(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.near(each) for each in value]
        return value * (1.0 + self.moved * math.sin(1e5 * value + 1.0))  # the same for a repeated request

    def ask(self, context: Any, **more: Any) -> tuple[int, dict[str, Any]]:
        """The number of a decision, and its advice. A request that is repeated has its earlier number."""
        assert len(self.ids) < MOST, "the script waits for something that does not happen"
        asked = {name: self.near(value) if name in ("proposal", "baseline") else value for name, value in more.items()}
        names = list(context) if isinstance(context, dict) else None
        values = self.near(list(context.values()) if names else list(context))
        name, advice = self.live.ask(dict(zip(names, values, strict=True)) if names else values, **asked)
        if name in self.ids:
            number = self.ids.index(name)
            self.notes.append([len(self.ops), "asked again", number])
        else:
            number = len(self.ids)
            self.ids.append(name)
            self.decisions.append([advice[each] for each in adapter.ADVICE])
        self._done("ask")
        return number, advice

    def tell(self, number: int, *, reward: float | None, cost: Any, **more: Any) -> None:
        """Report an outcome: `applied`, `throttled`, `unrelated`."""
        self.live.tell(self.ids[number], reward=self.near(reward), cost=self.near(cost), **more)
        self._done("tell")
        plain = not more or list(more) == ["applied"]
        if plain and len(self.ops) % 3 == 0:
            self.see()

    def correct(self, number: int, **values: Any) -> None:
        key = values.pop("key", None)
        self.live.correct(self.ids[number], key=key, **{name: self.near(value) for name, value in values.items()})
        self._done("correct")

    def void(self, number: int, *, unrelated: bool) -> None:
        self.live.void(self.ids[number], unrelated=unrelated)
        self._done("void")

    def expire(self, *numbers: int, unrelated: bool) -> None:
        self.live.expire([self.ids[number] for number in numbers], unrelated=unrelated)
        self._done("expire")

    def resume(self, rule: str | None = None, *, forget: bool = False) -> None:
        self.live.resume(rule, forget=forget)
        self._done("resume")

    def amend(self, *, keep: bool | None = None, **changes: Any) -> None:
        self.live.amend(changes, keep=keep)
        self._done("amend")
        self.see()

    def bring(self, rounds: list[Told]) -> None:
        """Rounds from before the study."""
        self.live.bring([{name: self.near(value) for name, value in each.items()} for each in rounds])
        self._done("bring")

    def mark(self) -> None:
        self.live.mark()
        self._done("mark")

    def wait(self, hours: float) -> None:
        self.live.wait(hours)

    def refused(self, call: Callable[[], Any]) -> None:
        """Something that must be refused, and change nothing."""
        before = self.live.summary()
        self.notes.append([len(self.ops), "refused", self.live.refuses(call)])
        assert self.live.summary() == before

    def reopen(self) -> None:
        """Close the store and open it again: the state then comes from a snapshot and the events after it."""
        before = self.live.summary()
        self.live.reopen()
        assert self.live.summary() == before

    def see(self) -> None:
        """Write down the counts and the evidence of now."""
        facts = self.live.summary()
        self.evidence.append([len(self.ops), *(facts[name] for name in adapter.SEEN)])

    def _done(self, what: str) -> None:
        self.ops.append(what)
        facts = self.live.summary()
        if facts["stopped"] != self.stopped:
            self.stopped = facts["stopped"]
            told = facts["ln evidence"], facts["ln noise evidence"]
            self.stops.append([len(self.ops), what, facts["decisions"], self.stopped, *told])

    def answers(self, certificates: tuple[int, ...]) -> dict[str, Any]:
        """All that was answered; the same after a restart, and after a replay of the whole log."""
        shown = {number: self.live.certificate(self.ids[number], self.ids) for number in certificates}
        summary, rounds = self.live.summary(), self.live.rounds(self.ids)
        self.live.reopen()
        assert self.live.summary() == summary
        assert self.live.rounds(self.ids) == rounds
        assert {number: self.live.certificate(self.ids[number], self.ids) for number in certificates} == shown
        assert self.live.replayed() == summary
        assert self.live.verified() == {"ok": True, "inexact": 0, "decisions": len(self.ids)}
        self.live.close()
        return {
            "decisions": self.decisions,
            "stops": self.stops,
            "seen": self.evidence,
            "notes": self.notes,
            "summary": summary,
            "rounds": rounds,
            "certificates": {str(number): shown[number] for number in certificates},
        }


# --- worlds


class Linear:
    """Rounds in which reward and cost of a full dose are linear in the context, with Gaussian noise."""

    def __init__(self, seed: int, *, noise: float, effect: Callable[[float], float] = lambda share: share) -> None:
        self.rng, self.noise, self.effect = np.random.default_rng(seed), noise, effect
        self.gain, self.harm = np.array([0.7, -0.4, 0.5]), np.array([0.35, 0.25, 0.55])

    def context(self) -> list[float]:
        return [*(float(part) for part in self.rng.uniform(-0.65, 0.65, 2)), 0.4]

    def draw(self, context: list[float], *, rise: float = 0.0) -> Callable[[float], Told]:
        """What a share of the full dose would lead to; `rise` is added to the cost of a full dose."""
        noise = self.noise * self.rng.standard_normal(2)
        gain = float(np.dot(context, self.gain) + noise[0])
        harm = float(np.dot(context, self.harm) + noise[1]) + rise
        return lambda share: {"reward": self.effect(share) * gain, "cost": self.effect(share) * harm}


Turn = Callable[..., tuple[int, dict[str, Any]]]


def ordinary(study: Study, turn: Turn, count: int) -> None:
    """Rounds that are told at once."""
    for _ in range(count):
        number, outcome, _ = turn(study)
        study.tell(number, **outcome(1.0))


def mixed(study: Study, turn: Turn, count: int, *, lose: bool = False, raised: bool = True) -> None:
    """Rounds with everything that may happen to an outcome; `lose`: also what a learner in order stops at."""
    late: list[tuple[int, Told]] = []
    typed: list[tuple[int, Told]] = []
    gone: list[tuple[int, Told]] = []
    for step in range(count):
        kind = step % 21
        key = f"key-{len(study.ids)}" if kind == 18 else None
        number, outcome, again = turn(study, key=key)
        usual, given = outcome(1.0), study.decisions[number][2] > 0.0
        if not given:  # such a round waits for no outcome
            study.tell(number, **usual)
        elif kind in (2, 3, 4):
            late.append((number, usual))
        elif kind == 5:
            study.tell(number, **outcome(0.6))
        elif kind == 7 and raised:
            study.tell(number, **outcome(1.15))
        elif kind == 8:
            study.tell(number, **outcome(0.0), unrelated=True)
        elif kind == 9 and lose:
            study.tell(number, **outcome(0.5), throttled=True)
        elif kind in (10, 11, 12):
            wrong = {"cost": scaled(usual["cost"], 1.3)} if kind != 11 else {"reward": (usual["reward"] or 0.0) - 0.05}
            study.tell(number, **(usual | wrong))
            typed.append((number, outcome(0.9) if kind == 12 else usual))  # the last with another applied setting
        elif kind == 13:
            study.tell(number, **outcome(0.9))
            study.void(number, unrelated=True)
        elif kind == 14:
            study.void(number, unrelated=not lose)
        elif kind == 15:
            study.expire(number, unrelated=True)
        elif kind == 16:
            study.expire(number, unrelated=False)
            gone.append((number, usual))
        elif kind == 17 and lose:
            study.tell(number, **outcome(0.0))
        elif kind == 18:
            study.tell(number, **usual)
            assert again()[0] == number
        else:
            study.tell(number, **usual)
        if kind == 6:  # out of order, the latest first
            while late:
                each, told = late.pop()
                study.tell(each, **told)
        if kind == 19:
            for each, told in typed:
                study.correct(each, key=f"right-{each}", **told)
            typed = []
            for each, told in gone:
                study.tell(each, **told)
            gone = []
    for each, told in late + gone:
        study.tell(each, **told)


def scaled(cost: Any, factor: float) -> Any:
    """A cost, or each of several, times a factor."""
    if isinstance(cost, dict):
        return {name: value * factor for name, value in cost.items()}
    return cost * factor
