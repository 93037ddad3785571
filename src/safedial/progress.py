"""Progress of long work: a bar on the command line, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

Advance = Callable[[int], None]
"""Called with the number of steps just finished."""

Bar = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a bar from its title and the total number of steps."""


@contextmanager
def no_bar(title: str, total: int) -> Iterator[Advance]:
    """A bar that shows nothing.

    >>> with no_bar("Table 1", 10) as advance:
    ...     advance(1)
    """
    yield lambda steps: None


@contextmanager
def late_bar(bar: Bar, title: Callable[[int], str]) -> Iterator[Callable[[int, int | None], None]]:
    """A bar that opens when the total is known, for work that reports (steps done so far, total or None).

    >>> with late_bar(no_bar, lambda total: f"{total} texts") as report:
    ...     report(0, None)
    ...     report(3, 10)
    """
    opened: list[Advance] = []
    before = 0
    with ExitStack() as stack:

        def report(done: int, total: int | None) -> None:
            nonlocal before
            if not opened and total:
                opened.append(stack.enter_context(bar(title(total), total)))
            if opened:
                opened[0](done - before)
                before = done

        yield report
