"""Learning in order of decision: what is learned is the longest run of rounds that have ended, in every lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from safedial.policies.policy import KNOWN, LEFT_OUT, LOST, OPEN
from safedial.policies.student import CUT, Prefix
from safedial.policies.table import digest, pack, unpack

LANES = [(), (3,), (2, 3)]


def opened(lanes: tuple[int, ...], rounds: int) -> Prefix:
    """So many rounds, each with its number as its context, and all given something."""
    made = Prefix(lanes, 2)
    for number in range(rounds):
        assert made.open(np.full((*lanes, 2), float(number)), 0.5) == number
    return made


def costs(prefix: Prefix, most: int | None = None) -> list[Any]:
    """The costs that are learned now, each turn's; NaN in lanes where it is not learned."""
    most = prefix.opened if most is None else most
    return [np.where(known, prefix.take("cost", rows), np.nan) for rows, known in prefix.turns(most)]


@pytest.mark.parametrize("lanes", LANES)
def test_a_round_waits_for_the_ones_before_it(lanes: tuple[int, ...]) -> None:
    prefix = opened(lanes, 3)
    prefix.tell(1, KNOWN, 0.1, 2.0)
    assert costs(prefix) == []
    assert np.all(prefix.awaited(3) == 2)
    prefix.tell(0, KNOWN, 0.1, 1.0)
    assert [np.unique(each).tolist() for each in costs(prefix)] == [[1.0], [2.0]]
    assert np.all(prefix.learned == 2)
    assert np.all(prefix.awaited(3) == 1)


@pytest.mark.parametrize("lanes", LANES)
def test_a_lost_round_ends_the_prefix_for_good(lanes: tuple[int, ...]) -> None:
    prefix = opened(lanes, 3)
    prefix.tell(1, LOST)
    prefix.tell(2, KNOWN, 0.1, 3.0)
    prefix.tell(0, KNOWN, 0.1, 1.0)
    assert [np.unique(each).tolist() for each in costs(prefix)] == [[1.0]]
    prefix.tell(1, KNOWN, 0.1, 2.0)
    assert costs(prefix) == [], "a round ends once"
    assert np.all(prefix.lost == 1)
    assert np.all(prefix.learned == 1)


@pytest.mark.parametrize("lanes", LANES)
def test_a_round_that_is_left_out_is_passed(lanes: tuple[int, ...]) -> None:
    prefix = opened(lanes, 2)
    prefix.tell(0, LEFT_OUT)
    prefix.tell(1, KNOWN, 0.1, 2.0)
    assert [np.unique(each).tolist() for each in costs(prefix)] == [[2.0]]
    assert np.all(prefix.learned == 2)


def test_no_more_is_learned_than_a_decision_may_use() -> None:
    prefix = opened((), 3)
    for place in range(3):
        prefix.tell(place, KNOWN, 0.1, float(place))
    assert costs(prefix, 1) == [0.0]
    assert costs(prefix, 3) == [1.0, 2.0]


def test_lanes_with_their_own_order_are_single_lanes() -> None:
    rng, rounds, size = np.random.default_rng(0), 30, 4
    fates = rng.choice([KNOWN, KNOWN, KNOWN, LEFT_OUT, LOST, OPEN], size=(rounds, size))
    fates[:20][fates[:20] == LOST] = KNOWN
    measured, turns = rng.normal(size=(rounds, size)), np.argsort(rng.random((size, rounds)), axis=1)
    together, alone = opened((size,), rounds), [opened((), rounds) for _ in range(size)]
    found: list[list[float]] = [[] for _ in range(size)]
    single: list[list[float]] = [[] for _ in range(size)]
    for step in range(rounds):
        for lane in range(size):
            place = int(turns[lane, step])
            only = np.where(np.arange(size) == lane, fates[place], OPEN)
            together.tell(place, only, 0.0, measured[place])
            alone[lane].tell(place, fates[place, lane], 0.0, measured[place, lane])
            single[lane] += [float(each) for each in costs(alone[lane])]
        for each in costs(together):
            for lane in np.flatnonzero(~np.isnan(each)):
                found[lane].append(float(each[lane]))
    assert found == single
    assert any(found)
    assert together.learned.tolist() == [int(each.learned) for each in alone]
    assert together.lost.tolist() == [int(each.lost) for each in alone]
    assert together.awaited(rounds).tolist() == [int(each.awaited(rounds)) for each in alone]


def test_passed_rounds_are_forgotten_and_places_go_on() -> None:
    prefix, learned = Prefix((2,), 2), 0
    for number in range(3 * CUT):
        place = prefix.open(np.full((2, 2), float(number)), 0.5)
        if number > 0:  # the outcome of each round comes one round late
            prefix.tell(place - 1, KNOWN, 0.0, float(number - 1))
            learned += len(costs(prefix))
    assert (learned, prefix.opened) == (3 * CUT - 1, 3 * CUT)
    assert prefix.waiting.count <= CUT + 1
    assert not np.any(prefix.tell(0, KNOWN, 0.0, 0.0)), "nobody remembers it"
    assert not np.any(prefix.is_open(0))
    assert np.all(prefix.at("context", prefix.opened - 1) == 3.0 * CUT - 1.0)


@pytest.mark.parametrize("lanes", LANES)
def test_a_round_that_is_told_at_once_passes_without_a_row(lanes: tuple[int, ...]) -> None:
    prefix = Prefix(lanes, 2, upper=np.inf)
    for number in range(3):
        place = prefix.open(np.full((*lanes, 2), float(number)), 0.5, upper=2.0)
        assert np.all(prefix.at("upper", place) == 2.0)
        assert not prefix.at_once(place, number), "the decision may not use it yet"
        assert prefix.at_once(place, number + 1)
    assert (prefix.opened, prefix.waiting.count) == (3, 0)
    assert np.all(prefix.learned == 3)
    place = prefix.open(np.zeros((*lanes, 2)), 0.5)
    assert np.all(prefix.at("upper", place) == np.inf)
    assert np.all(prefix.is_open(place))
    assert not prefix.at_once(place, place + 1), "it has a row"
    prefix.fill("upper", 3.0)
    assert np.all(prefix.at("upper", place) == 3.0)
    prefix.tell(place, KNOWN, 0.1, 1.0)
    assert len(costs(prefix)) == 1


@pytest.mark.parametrize("lanes", LANES)
def test_it_is_saved_with_columns_of_its_own(lanes: tuple[int, ...]) -> None:
    prefix = Prefix(lanes, 2, upper=np.inf)
    for number in range(5):
        prefix.open(np.full((*lanes, 2), float(number)), 0.5)
    assert np.all(prefix.is_open(3))
    prefix.waiting.upper[..., 3] = 2.0
    for place, fate in ((0, KNOWN), (2, KNOWN), (4, LOST)):
        prefix.tell(place, fate, 0.1, 1.0)
    costs(prefix)
    again = unpack(Prefix(lanes, 2, upper=np.inf), pack(prefix))
    assert digest(again) == digest(prefix)
    assert np.all(again.at("upper", 3) == 2.0)
    for each in (prefix, again):
        each.tell(1, KNOWN, 0.1, 1.0)
        assert len(costs(each)) == 2
    assert digest(again) == digest(prefix)
