"""Verify a study by its name, or all studies of a store; a long log in parts, by several processes.

Part k starts from a stored snapshot without trusting it: part k − 1 must end in exactly that state, byte for byte. So
if all parts agree, the log is verified from its first event to its head. Otherwise nothing is concluded, and the log is
verified in one piece, which finds the place.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from safedial.checkpoints import Checkpoint, read_marks, read_store_marks
from safedial.study.database import open_engine, reading
from safedial.study.log import read_head, read_snapshot, snapshot_seqs, study_names
from safedial.study.replay_log import Source, read_study
from safedial.study.snapshot import unpacked
from safedial.study.store import Store
from safedial.study.verify import Report, verify_log

SUMMED = ("decisions", "inexact", "clock_back")
LEAST = 20_000
"""The fewest events for which a process of its own pays."""


def verify_study(
    store: Store,
    name: str,
    *,
    checkpoint: Checkpoint | None = None,
    progress: Any = None,
    workers: int = 1,
) -> Report:
    """`Study.verify` by name, for a study whose log may be too broken to open.

    `checkpoint` is what `Study.checkpoint` or `checkpoint_store` gave, the path of its file, or SEQ:HASH. With
    `workers`, that many processes verify a long log in parts. They import the calling program, so a script needs
    `if __name__ == "__main__"`.
    """
    study = store.find(name)
    read_marks(checkpoint, name)
    if workers > 1 and store.own_policy(study) is None:
        report = verify_parts(store, study, name, checkpoint=checkpoint, workers=workers)
        if report is not None:
            return report
    with reading(store.engine) as connection:
        return verify_log(
            Source(connection, study, name, store.own_policy(study)), checkpoint=checkpoint, progress=progress
        )


def verify_store(
    store: Store, *, checkpoint: Checkpoint | None = None, workers: int = 1, progress: Any = None
) -> list[Report]:
    """A report of every study, and one of each that the checkpoint of the store names and the store no longer holds.

    A study that was created after the checkpoint is compared with nothing.
    """
    marked = read_store_marks(checkpoint)
    with reading(store.engine) as connection:
        names = [name for _, name, _ in study_names(connection)]
    lost = "is missing: the checkpoint names this study, and the store does not hold it"
    gone = [
        Report(ok=False, study=name, events=0, decisions=0, inexact=0, seq=0, hash="", first_bad=1, problem=lost)
        for name in marked.keys() - set(names)
    ]
    more = {"workers": workers, "progress": progress}
    return [*(verify_study(store, name, checkpoint=marked.get(name), **more) for name in names), *gone]


class _Part(NamedTuple):
    storage: str
    study: int
    name: str
    start: tuple[int, bytes] | None
    stop: int | None
    checkpoint: Any


def verify_parts(store: Store, study: int, name: str, *, checkpoint: Any, workers: int) -> Report | None:
    """The report of a log whose parts all agree; None if it is too short, or if one part does not."""
    with reading(store.engine) as connection:
        snapshots = snapshot_seqs(connection, study)
        head = read_head(connection, study).seq
    cuts = _cuts(snapshots, head, min(workers, head // LEAST))
    if not cuts:
        return None
    starts, stops = [None, *cuts], [*(seq for seq, _ in cuts), None]
    parts = [_Part(store.storage, study, name, *ends, checkpoint) for ends in zip(starts, stops, strict=True)]
    with ProcessPoolExecutor(len(parts), multiprocessing.get_context("spawn")) as pool:
        reports = [report for report in pool.map(_verify_part, parts) if report is not None and report.ok]
    if len(reports) < len(parts):
        return None
    last = reports[-1]
    summed = {field: sum(getattr(report, field) for report in reports) for field in SUMMED}
    back = min((report.clock_back_at for report in reports if report.clock_back_at is not None), default=None)
    return Report(**{**last.to_dict(), **summed, "events": last.seq, "clock_back_at": back})


def _cuts(snapshots: list[tuple[int, bytes]], head: int, parts: int) -> list[tuple[int, bytes]]:
    """The snapshots nearest to where equal parts would begin."""
    found = {}
    for part in range(1, parts):
        wanted = head * part // parts
        nearest = min(snapshots, key=lambda shot: abs(shot[0] - wanted), default=None)
        if nearest is not None and LEAST <= nearest[0] <= head - LEAST:
            found[nearest[0]] = nearest
    return sorted(found.values())


def _verify_part(part: _Part) -> Report | None:
    engine = open_engine(part.storage)
    try:
        with reading(engine) as connection:
            source, state = Source(connection, part.study, part.name), None
            if part.start is not None:
                content = read_snapshot(connection, part.study, *part.start)
                if content is None:
                    return None
                state = unpacked(read_study(source), content)
                if state is None:
                    return None
            return verify_log(source, checkpoint=part.checkpoint, start=state, stop=part.stop)
    finally:
        engine.dispose()
