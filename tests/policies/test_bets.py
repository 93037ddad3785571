"""Bets by ranks against their definition, for one lane and for many, with late, missing and left-out rounds."""

import copy
import math

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial.bounds import monitor, ranks
from safedial.policies import table
from safedial.policies.bets import RANKS, STARTS, Bets


class Defined:
    """The definition for one lane, from scratch at every report: which bets are placed, and what those behind make."""

    def __init__(self, lag, patience, *, late, risk):
        self.lag, self.patience, self.late, self.risk = lag, patience, late, risk
        self.rows, self.next, self.placed = [], 0, []
        self.value, self.hits, self.crossed = 1.0, 1.0, 0

    def open(self, **known):
        plain = {"low": -math.inf, "up": math.inf, "group": 0, "member": True, "told": False, "hit": False}
        self.rows.append(plain | known)

    def tell(self, place, **numbers):
        if place >= self.next or self.late:
            self.rows[place].update(numbers, told=True)
        self.report()

    def leave_out(self, place):
        if place >= self.next or self.late:
            self.rows[place]["member"] = False
        self.report()

    def bet(self, place):
        row = self.rows[place]
        if not row["member"]:
            return None
        mates = [each["low"] for each in self.rows[:place] if each["member"] and each["group"] == row["group"]]
        return (1 + sum(low <= row["up"] for low in mates)) / (1 + len(mates)), row["hit"]

    def report(self):
        last = len(self.rows) - self.lag
        while self.next < last:
            row = self.rows[self.next]
            if self.next >= last - self.patience and not row["told"] and row["member"]:
                break
            self.placed.append(self.bet(self.next))
            self.next += 1
        told = [place for place in range(self.next, last) if self.rows[place]["told"]]
        behind = [self.bet(place) for place in range(self.next, max(told, default=-1) + 1)]
        capital, starts = ranks.init(), monitor.init()
        for bet in (each for each in self.placed + behind if each is not None):
            starts = monitor.update(starts, bet[1], self.risk)
            self.crossed = self.crossed or STARTS * bool(monitor.alarm(starts))
            capital = ranks.update(capital, bet[0])
            self.crossed = self.crossed or RANKS * bool(ranks.alarm(capital))
        self.value, self.hits = float(ranks.evidence(capital)), float(monitor.evidence(starts))


def events(seed, rounds=140, *, drift=0.0):
    """What happens to one lane's rounds: (what, place, numbers), in order of time."""
    rng = np.random.default_rng(seed)
    found, waiting = [], []
    for place in range(rounds):
        known = {"group": int(rng.integers(2)), "member": bool(rng.random() < 0.8)}
        found.append(("open", place, known))
        due = place + int(rng.choice([0, 0, 0, 3, 20, 60, 10_000]))
        waiting.append((due, place))
        for when, told in sorted(waiting):
            if when > place:
                continue
            waiting.remove((when, told))
            low = float(rng.normal() - drift * told)
            hit = {"hit": bool(rng.random() < 0.1)}
            up = low + float(rng.choice([0.0, 0.0, 0.5]))
            what = "leave_out" if rng.random() < 0.1 else "tell"
            found.append((what, told, {"low": low, "up": up, **hit} if what == "tell" else {}))
    return found


CASES = [(0, 200, True), (7, 15, True), (0, 15, False)]


@pytest.mark.parametrize(("lag", "patience", "late"), CASES)
@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_the_evidence_of_one_lane_is_the_definition_after_every_report(lag, patience, late, drift):
    for seed in range(4):
        bets = Bets(lag=lag, patience=patience, late=late, hit_risk=0.05)
        defined = Defined(lag, patience, late=late, risk=0.05)
        for what, place, numbers in events(seed, drift=drift):
            if what == "open":
                bets.open(**numbers)
                defined.open(**numbers)
                continue
            getattr(bets, what)(place, **numbers)
            getattr(defined, what)(place, **numbers)
            assert float(bets.evidence().value) == pytest.approx(defined.value, rel=1e-9)
            assert float(bets.hits().value) == pytest.approx(defined.hits, rel=1e-9)
            assert int(bets.crossed) == defined.crossed


@pytest.mark.parametrize(("lag", "patience", "late"), CASES)
@pytest.mark.parametrize("read", [1, 50])
def test_lanes_with_rounds_of_their_own_fate_are_single_lanes_however_seldom_they_are_read(lag, patience, late, read):
    stories = [events(seed, drift=0.02 * seed) for seed in range(4)]
    parts = {"lag": lag, "patience": patience, "late": late, "tie": 1e-9, "hit_risk": 0.05}
    lanes, alone = Bets((2, 2), **parts), [Bets((), **parts) for _ in stories]
    count = 0
    while any(stories):
        opened = [story.pop(0)[2] for story in stories]
        lanes.open(**{name: np.reshape([each[name] for each in opened], (2, 2)) for name in opened[0]})
        for one, known in zip(alone, opened, strict=True):
            one.open(**known)
        for lane, story in enumerate(stories):
            here = np.reshape(np.arange(4) == lane, (2, 2))
            while story and story[0][0] != "open":
                what, place, numbers = story.pop(0)
                alone[lane].reported = lanes.reported  # a report in one lane is one in all
                getattr(lanes, what)(place, here, **numbers)
                getattr(alone[lane], what)(place, **numbers)
        for one in alone:
            one.reported, one._found = lanes.reported, None
        count += 1
        if count % read == 0 or not any(stories):
            expected = [float(one.evidence().value) for one in alone]
            np.testing.assert_allclose(lanes.evidence().value.ravel(), expected, rtol=1e-9)
            assert lanes.crossed.ravel().tolist() == [int(one.crossed) for one in alone]
            np.testing.assert_allclose(lanes.hits().value.ravel(), [float(one.hits().value) for one in alone])


@pytest.mark.parametrize("lanes", [(), (2,)])
def test_a_drift_crosses_even_behind_an_open_round(lanes):
    bets, rng = Bets(lanes), np.random.default_rng(1)
    for place in range(120):
        bets.open()
        low = rng.normal() - 0.2 * place
        if place != 3:
            bets.tell(place, low=low, up=low)
    assert np.all(bets.evidence().crossed)
    assert np.all(bets.next == 3)


def test_numbers_that_nearly_tie_count_as_tied():
    for lanes in ((), (1,)):
        bets = Bets(lanes, tie=1e-9)
        for low in (0.3, 0.1 + 0.2):
            bets.tell(bets.open(), low=low, up=low - 1e-14)
        bets.tell(bets.open(), low=1.0, up=0.1)
        p = ranks.init(lanes)
        for chance in (1.0, 1.0, 1 / 3):
            p = ranks.update(p, np.full(lanes, chance))
        np.testing.assert_allclose(bets.evidence().value, ranks.evidence(p), rtol=1e-12)


@pytest.mark.parametrize("lanes", [(), (3,)])
def test_numbers_stated_anew_leave_placed_bets_and_change_later_ranks(lanes):
    rng = np.random.default_rng(0)
    bets = Bets(lanes)
    for low in rng.normal(size=40):
        bets.tell(bets.open(), low=low, up=low)
    bets.tell(bets.open(), low=-9.0, up=-9.0)
    bets.open()
    bets.settle_all()
    before = bets.capital
    assert np.all(bets.next == 42)
    again = rng.normal(size=42)
    bets.restate(low=again, up=again, begin=10)
    np.testing.assert_array_equal(bets.evidence().value, ranks.evidence(before))
    bets.tell(bets.open(), low=0.0, up=again.max())
    after = ranks.update(before, np.ones(lanes))
    np.testing.assert_allclose(bets.evidence().value, ranks.evidence(after))
    bets.cut(40)
    bets.restate()
    bets.tell(3, low=0.0, up=0.0)
    bets.tell(bets.open(), low=0.0, up=-math.inf)
    assert np.all(bets.evidence().value > 0.0)
    assert bets.rounds.first == 40


@pytest.mark.parametrize("lanes", [(), (2,)])
def test_a_restart_forgets_the_evidence_and_keeps_the_ranks(lanes):
    bets = Bets(lanes, hit_risk=0.01)
    for _ in range(3):
        bets.tell(bets.open(), low=0.0, up=0.0, hit=True)
    assert np.all(bets.hits().crossed)
    assert not np.any(bets.evidence().crossed)
    late = bets.open()
    bets.restart()
    assert np.all(bets.evidence().value == 1.0)
    assert not np.any(bets.hits().crossed)
    bets.tell(late, low=-1.0, up=-1.0)
    assert np.all(bets.evidence().value == 1.0)
    bets.tell(bets.open(), low=-5.0, up=-5.0)
    np.testing.assert_allclose(
        bets.evidence().value, ranks.evidence(ranks.update(ranks.init(lanes), np.full(lanes, 0.2)))
    )


@pytest.mark.parametrize("lanes", [(), (2, 3)])
def test_a_state_that_was_saved_goes_on_alike(lanes):
    bets = Bets(lanes, lag=2, hit_risk=0.1)
    rest = events(3, drift=0.03)
    for what, place, numbers in rest[:200]:
        bets.open(**numbers) if what == "open" else getattr(bets, what)(place, **numbers)
    again = table.unpack(Bets(lanes, lag=2, hit_risk=0.1), table.pack(bets))
    copied = copy.deepcopy(bets)
    for what, place, numbers in rest[200:]:
        for each in (bets, again, copied):
            each.open(**numbers) if what == "open" else getattr(each, what)(place, **numbers)
    values = [each.evidence().value for each in (bets, again, copied)]
    np.testing.assert_array_equal(values[0], values[1])
    np.testing.assert_array_equal(values[0], values[2])
    assert len({table.digest(each) for each in (bets, again, copied)}) == 1


def test_false_alarms_of_exchangeable_rounds_are_as_rare_as_stated():
    rng = np.random.default_rng(4)
    bets = Bets((1500,))
    for _ in range(400):
        low = rng.standard_normal(1500)
        bets.tell(bets.open(), low=low, up=low)
    crossed = int(np.sum(bets.evidence().crossed))
    assert binomtest(crossed, 1500, 0.01, alternative="greater").pvalue > 1e-6


def test_an_outcome_of_a_round_that_was_forgotten_changes_nothing():
    bets = Bets(late=False)
    for _ in range(3):
        bets.tell(bets.open(), low=0.0, up=0.0)
    bets.cut(2)
    bets.restate()
    before = bets.evidence().value
    bets.tell(1, low=9.0, up=9.0)
    bets.leave_out(0)
    assert bets.evidence().value == before
    assert bets.rounds.rows("member").tolist() == [True]
