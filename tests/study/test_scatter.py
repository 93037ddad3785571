"""What outcomes added to the evidence against the noise, beside a plain list of rows."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedial.study.state import Scatter

STEPS = st.lists(
    st.tuples(st.sampled_from(["keep", "keep", "take", "copy", "snapshot"]), st.integers(0, 9), st.integers(0, 3)),
    max_size=80,
)


class Plain:
    """The same as a list, copied as a whole."""

    def __init__(self, rows=()):
        self.rows = list(rows)

    def take(self, decision):
        found = [added for name, added in self.rows if name == decision]
        self.rows = [row for row in self.rows if row[0] != decision]
        return found[0] if found else []


def assert_same(kept: Scatter, plain: Plain) -> None:
    decisions, rows = kept.arrays()
    assert len(kept) == len(plain.rows)
    assert kept.nbytes == 24 * len(plain.rows)
    assert decisions.tolist() == [decision for decision, _ in plain.rows]
    assert rows.tolist() == [added for _, added in plain.rows]


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_rows_and_their_copies_are_those_of_a_plain_list(steps):
    """Copies share rows until they change, in either order; snapshots give the same rows back."""
    pairs = [(Scatter(2), Plain())]
    for number, (step, decision, which) in enumerate(steps):
        kept, plain = pairs[which % len(pairs)]
        if step == "keep" and all(name != decision for name, _ in plain.rows):
            added = [float(number), number / 3.0]
            kept.keep(decision, added)
            plain.rows.append((decision, added))
        elif step == "take":
            assert kept.take(decision) == plain.take(decision)
        elif step == "copy":
            pairs.append((kept.copy(), Plain(plain.rows)))
        elif step == "snapshot":
            kept.restore(*kept.arrays())
    for kept, plain in pairs:
        assert_same(kept, plain)


def test_a_copy_takes_no_memory_until_it_changes():
    kept = Scatter(2)
    for decision in range(1000):
        kept.keep(decision, [1.0, 2.0])
    copies = [kept.copy() for _ in range(10)]
    assert all(each._columns is kept._columns for each in copies)
    assert len(copies[0]) == 1000
    kept.keep(1000, [1.0, 2.0])
    assert len(copies[0]) == 1000
    assert copies[0].take(1000) == []
    assert copies[0]._columns is not kept._columns


def test_corrections_without_end_leave_no_rows_behind():
    kept = Scatter(1)
    for decision in range(10):
        kept.keep(decision, [1.0])
    for number in range(10_000):
        assert kept.take(number % 10) != []
        kept.keep(number % 10, [float(number)])
    assert len(kept) == 10
    assert len(kept._columns.decisions) <= 22


def test_copies_of_another_thread_do_not_stop_the_one_that_keeps():
    """An array that is viewed cannot grow, so a copy never views the rows that another adds to."""
    kept, over, lengths = Scatter(2), threading.Event(), []
    kept.keep(0, [0.0, 0.0])
    copies = [kept.copy() for _ in range(2000)]

    def restore() -> None:
        for each in copies:
            decisions, rows = each.arrays()
            lengths.append((len(decisions), len(rows)))
        over.set()

    thread = threading.Thread(target=restore)
    thread.start()
    decision = 1
    while not over.is_set():
        kept.keep(decision, [1.0, 1.0])
        decision += 1
    thread.join()
    assert lengths == [(1, 1)] * 2000
    assert np.array_equal(kept.arrays()[0], np.arange(decision))


@pytest.mark.parametrize("width", [1, 3])
def test_a_row_has_the_width_that_was_stated(width):
    kept = Scatter(width)
    kept.keep(5, [0.5] * width)
    assert kept.arrays()[1].shape == (1, width)
    assert kept.take(5) == [0.5] * width
    assert kept.arrays()[1].shape == (0, width)
