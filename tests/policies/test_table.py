"""The codec of all states: what is packed comes back, bit for bit, and a digest sees every value."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pytest

from safedial.errors import InvalidInput
from safedial.policies.table import Table, digest, pack, unpack


class Point(NamedTuple):
    at: np.ndarray
    size: float


class State:
    """One of every kind that a state may hold."""

    def __init__(self, lanes: tuple[int, ...] = (2,)) -> None:
        self.rounds = Table(lanes, cost=np.inf, context=(0.0, (3,)), left=False)
        self.sums = np.zeros((*lanes, 3))
        self.point = Point(np.zeros(2), 1.5)
        self.parts = {"heat": np.zeros(lanes), "load": None}
        self.list = [np.zeros(1), np.zeros(2)]
        self.next, self.name = 4, "x"
        self._cache = object()


def filled(lanes: tuple[int, ...] = (2,)) -> State:
    rng, state = np.random.default_rng(0), State(lanes)
    for _ in range(200):
        place = state.rounds.append()
        state.rounds.cost[..., place] = rng.normal(size=lanes)
        state.rounds.context[..., place, :] = rng.normal(size=(*lanes, 3))
    state.sums += rng.normal(size=state.sums.shape)
    state.point = Point(rng.normal(size=2), 2.5)
    state.parts["heat"] = rng.normal(size=lanes)
    state.list[1] += 1.0
    state.next, state.name = 9, "y"
    return state


@pytest.mark.parametrize("lanes", [(), (2,), (2, 3)])
def test_what_is_packed_comes_back_bit_for_bit(lanes: tuple[int, ...]) -> None:
    state = filled(lanes)
    again = unpack(State(lanes), pack(state))
    assert digest(again) == digest(state)
    assert unpack(None, pack(None)) is None, "of a policy that keeps nothing"
    assert (again.next, again.name, again.point.size) == (9, "y", 2.5)
    again.rounds.append()
    assert np.all(np.isinf(again.rounds.cost[..., 200])), "a new row is unknown"


def test_a_digest_sees_every_value_but_caches() -> None:
    state = filled()
    seen = {digest(state)}
    state._cache = "other"
    assert digest(state) in seen

    def changed(change: Any) -> str:
        other = copy.deepcopy(state)
        change(other)
        return digest(other)

    seen.add(changed(lambda each: each.rounds.append()))
    seen.add(changed(lambda each: setattr(each, "next", 10)))
    seen.add(changed(lambda each: each.list[0].__setitem__(0, 1.0)))
    seen.add(changed(lambda each: each.parts["heat"].__setitem__(0, 7.0)))
    seen.add(changed(lambda each: each.rounds.left.__setitem__((0, 5), True)))
    assert len(seen) == 6


def test_a_table_forgets_its_first_rows_and_counts_on() -> None:
    table = Table((2,), cost=np.inf)
    for number in range(100):
        place = table.append()
        table.cost[:, place] = number
    table.cut(70)
    assert (table.first, table.count) == (70, 30)
    assert table.rows("cost")[0].tolist() == list(range(70, 100))
    assert np.all(np.isinf(table.cost[:, 30:])), "what was forgotten is unknown again"
    again = unpack(Table((2,), cost=np.inf), pack(table, "rounds"), "rounds")
    assert (again.first, again.count) == (70, 30)


def test_a_state_that_lacks_an_array_is_refused_by_its_name() -> None:
    arrays = pack(State())
    del arrays["parts.heat"]
    with pytest.raises(InvalidInput, match=r"state: has no 'parts.heat'"):
        unpack(State(), arrays)
