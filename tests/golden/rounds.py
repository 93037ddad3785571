"""The rounds of an agent: what is asked, applied and told, and when."""

from __future__ import annotations

from tests.golden import adapter
from tests.golden.world import WORLDS, Draws

EVERY, SELDOM = 5, 10
"""The advised and the largest safe setting are recorded in each round; bound and evidence every five, the other
numbers every ten. An advised setting rests on all that was learned before, so that nothing stays hidden.
"""
PAUSE = 3
"""So many rounds are asked after a stop before a person resumes."""


def played(case, nudge=0.0):
    """The golden answers of a case; `nudge` moves every input by at most so much of it."""
    return Course(case, nudge).play()


class Course:
    """One case: a world, an agent, the outcomes that are still to be told, and the answers so far."""

    def __init__(self, case, nudge):
        self.case, self.world, self.handle = case, WORLDS[case["world"]["kind"]](case), adapter.open_agent(case)
        self.low, self.high = self.handle.ends
        self.nudge, self.shaken = nudge, Draws(case["seed"], 9)
        self.waiting, self.stops, self.since = [], [], 0
        names = ("action", "intensity", "safe", "index", "bound", "promise", "reason", "preview")
        self.columns = {name: [] for name in (*names, "ln evidence", "ln noise evidence", "violations")}

    def moved(self, value):
        """The value, or one very near to it; whole numbers, which are labels and events, stay."""
        if isinstance(value, dict):
            return {name: self.moved(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.moved(each) for each in value]
        if value is None or not self.nudge or value == int(value):
            return value
        return value * (1.0 + self.nudge * self.shaken.uniform(-1.0, 1.0))

    def play(self):
        self.told_before()
        number, rounds = 1, self.case.get("rounds", 300)
        while number <= rounds:
            count = 3 if number % 50 == 25 and number + 2 <= rounds else 1
            self.step([self.question(each) for each in range(number, number + count)])
            number += count
        told = adapter.summary(self.handle)
        told["stops"] = [part for stop in self.stops for part in stop]
        return {"columns": self.columns, "numbers": told}

    def told_before(self):
        """Rounds from before the first question, all at three tenths of the dial."""
        for number in range(-self.case.get("before", 0), 0):
            unit = self.world.unit(number)
            applied = self.low + 0.3 * (self.high - self.low)
            reward, cost = self.world.outcome(unit, applied, 0.3, {})
            adapter.tell_before(
                self.handle, self.moved(self.world.shown(unit)), applied, self.moved(reward), self.moved(cost)
            )

    def question(self, number):
        unit = self.world.unit(number)
        more = {}
        if self.case.get("baseline") and number % 17 == 4:
            more["baseline"] = unit["baseline"] = self.case["baseline"]
        if (proposal := self.world.proposal(unit)) is not None:
            more["proposal"] = self.moved(proposal)
        return {"unit": unit, "context": self.moved(self.world.shown(unit)), **more}

    def step(self, rows):
        """Ask for some rounds, then tell whatever is due after them."""
        questions = [{name: value for name, value in row.items() if name != "unit"} for row in rows]
        before = None
        if len(rows) == 1 and rows[0]["unit"]["number"] % 10 == 0:
            before = adapter.preview(self.handle, **questions[0])
        answers = (
            [adapter.ask(self.handle, **questions[0])] if len(rows) == 1 else adapter.ask_many(self.handle, questions)
        )
        for row, asked in zip(rows, answers, strict=True):
            number = row["unit"]["number"]
            self.note(number, asked, before)
            if (wait := self.wait(number)) is not None:
                self.waiting.append((number + wait, row["unit"], asked))
        last = rows[-1]["unit"]["number"]
        due = [each for each in self.waiting if each[0] <= last]
        self.waiting = [each for each in self.waiting if each[0] > last]
        for _, unit, asked in due:
            self.tell(unit, asked)
        *logs, violations = adapter.evidence(self.handle)
        for name, value in zip(("ln evidence", "ln noise evidence", "violations"), (*logs, violations), strict=True):
            if last % EVERY == 0:
                self.columns[name].append(value)
        self.watch(last)

    def note(self, number, asked, before):
        for name in ("action", "safe", "promise", "reason"):
            self.columns[name].append(asked[name])
        if number % EVERY == 0:
            for name in ("intensity", "bound"):
                self.columns[name].append(asked[name])
        if number % SELDOM == 0:
            self.columns["index"].append(asked["index"])
            same = abs(before - asked["action"]) <= 1e-9 * max(1.0, abs(before))
            self.columns["preview"].append("same" if same else before)
            for name, value in asked["numbers"].items():
                if name not in self.case.get("left out", ()):
                    self.columns.setdefault(name, []).append(value)

    def wait(self, number):
        """How many rounds later the outcome is told; None for never."""
        if number in self.case.get("never", ()):
            return None
        return 9 if number % 23 == 7 else 4 if number % 11 == 5 else 0

    def tell(self, unit, asked):
        """The outcome, at what was applied; or that there is none."""
        number, case, advice = unit["number"], self.case, asked["action"]
        if number in case.get("lost", ()) or number % 29 == 13:
            adapter.tell(self.handle, asked, lost=True, unrelated=number not in case.get("lost", ()))
            return
        factor = 0.6 if number % 13 == 3 else 1.25 if number % 31 == 9 else None
        factor = 0.0 if number in (*case.get("withheld", ()), *case.get("withheld unrelated", ())) else factor
        applied = advice
        if factor is not None:
            applied = min(self.high, self.low + factor * (advice - self.low))
        drift = case.get("drift", {})
        drift = drift if drift.get("from", 1) <= number <= drift.get("to", 0) else {}
        share = (applied - self.low) / (self.high - self.low)
        reward, cost = self.world.outcome(unit, applied, share, drift)
        if isinstance(cost, dict) and number % 41 == 30:
            cost[next(iter(cost))] = None
        unrelated = number in case.get("withheld unrelated", ()) or (isinstance(cost, dict) and None in cost.values())
        given = {"applied": None if factor is None else applied, "unrelated": unrelated}
        adapter.tell(self.handle, asked, self.moved(reward), self.moved(cost), **given)

    def watch(self, number):
        """Note a stop, and resume after a pause; with what went before forgotten, where the case says so."""
        rule = adapter.stopped(self.handle)
        if not rule:
            return
        if not self.since:
            self.since = number
            self.stops.append((number, rule))
        if number >= self.since + PAUSE:
            forget = bool(self.case.get("forget"))
            adapter.resume(self.handle, forget=forget)
            self.since = 0
            if forget:
                self.waiting = []
            if again := adapter.stopped(self.handle):
                self.since = number
                self.stops.append((number, again))
