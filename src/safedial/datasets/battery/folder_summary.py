"""A summary of a data folder."""

from __future__ import annotations

import os
from typing import Any

from safedial.datasets.battery.sources import CITATIONS, data_folder, find_sources, load_steps
from safedial.datasets.battery.step_table import KINDS
from safedial.errors import InvalidInput


def summarize(folder: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Rows of each source, battery and kind, hours covered, first and last start, and what to cite.

    A source that cannot be read is listed under `unreadable` with the reason.
    """
    sources, unreadable = {}, {}
    for name, paths in find_sources(folder).items():
        try:
            steps = load_steps(folder, name)
        except InvalidInput as error:
            unreadable[name] = str(error)
            continue
        rows = [_facts(key, part) for key, part in steps.groupby(["source", "battery"], sort=False)]
        sources[name] = {"rows": len(steps), "files": [path.name for path in paths], "batteries": rows}
    cited = {"b" if name in ("b", "b_mat") else "rw" for name in (*sources, *unreadable)}
    return {
        "folder": str(data_folder(folder)),
        "sources": sources,
        "unreadable": unreadable,
        "citations": [words for name, words in CITATIONS.items() if name in cited],
    }


def _facts(key: Any, steps: Any) -> dict[str, Any]:
    starts = steps["start"].dropna()
    first, last = (None, None) if starts.empty else (str(starts.min().date()), str(starts.max().date()))
    counts = {kind: int((steps["kind"] == kind).sum()) for kind in KINDS}
    hours = round(float(steps["duration"].sum()) / 3600.0, 1)
    return {"source": key[0], "battery": key[1], **counts, "hours": hours, "first": first, "last": last}
