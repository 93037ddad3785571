"""One style for all pictures, one column wide, with different markers and colours that colour-blind readers can
distinguish; and the parts of a page: inline pictures, tables, claims, and the provenance of its numbers.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import log
from pathlib import Path
from types import MappingProxyType
from typing import Any

from safedial.errors import InvalidInput, import_extra, require
from safedial.model.dial import Dial

COLUMN = 3.5
"""Inches: the width of one column."""

COLOURS = {
    "hp_ucb": "#0072B2",
    "on_expectation": "#D55E00",
    "epsilon_greedy": "#E69F00",
    "hp_probe": "#009E73",
    "thompson": "#CC79A7",
    "hp_conformal": "#56B4E9",
    "fixed": "#999999",
    "clairvoyant": "#000000",
}
"""Okabe and Ito's palette."""

BLUE, ORANGE = "#0072B2", "#D55E00"
FILL = "#56B4E9"
"""Its blue, orange and light blue, for what belongs to no policy."""

MARKERS = dict(zip(COLOURS, "osDv^PXx", strict=True))

SHADES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#999999")
DASHES = ("-", "--", ":", "-.")


def look_of(number: int, row: int = 0) -> dict[str, Any]:
    """The colour and dashes of a line by its number, and by its row among lines of one colour."""
    style = DASHES[(row + number // len(SHADES)) % len(DASHES)]
    return {"color": SHADES[number % len(SHADES)], "linestyle": style, "linewidth": 1.2}


def new_figure(*, columns: int = 1, rows: int = 1, height: float = 2.6, **options: Any) -> tuple[Any, list[Any]]:
    """A figure with `rows` × `columns` axes, listed."""
    matplotlib = import_extra("matplotlib", "plot")
    matplotlib.use("Agg")
    pyplot = import_extra("matplotlib.pyplot", "plot")
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(COLUMN * columns, height * rows), layout="constrained", squeeze=False, **options
    )
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
        each.tick_params(labelsize=7)
        each.xaxis.label.set_size(8)
        each.yaxis.label.set_size(8)
        each.title.set_size(8)
    return figure, list(axes.flat)


def is_geometric(values: Iterable[float]) -> bool:
    """Whether numbers are more evenly spread by their ratios than by their differences: a logarithmic axis then.

    >>> [is_geometric(each) for each in ([0.1, 1, 10], [5, 10, 20, 40], [0.1, 0.5, 1.0], [0, 1, 10])]
    [True, True, False, False]
    """
    ordered = sorted(set(values))
    if len(ordered) < 3 or ordered[0] <= 0.0:
        return False
    steps = [after - before for before, after in pairwise(ordered)]
    ratios = [log(after / before) for before, after in pairwise(ordered)]
    return max(ratios) / min(ratios) < max(steps) / min(steps)


def point(panel: Any, at: tuple[float, float], colour: str, look: dict[str, Any], *, filled: bool) -> None:
    """One mark, filled or hollow; `look` has its marker, its size and its label."""
    face = colour if filled else "none"
    panel.plot(*at, linestyle="none", markeredgecolor=colour, markerfacecolor=face, **look)


def legend_below(
    figure: Any, handles: Iterable[Any], labels: Iterable[str], *, ncols: int = 3, fontsize: float = 7
) -> Any:
    """A legend of the whole figure, under its panels."""
    return figure.legend(handles, labels, loc="outside lower center", ncols=ncols, fontsize=fontsize, frameon=False)


def title(panel: Any, words: str) -> None:
    """A panel's title in the size of its labels."""
    panel.set_title(words, fontsize=8)


def columns(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[list[Any]]:
    """The values of some columns of a table.

    >>> columns([{"x": 1, "y": 2}, {"x": 3, "y": 4}], ("x", "y"))
    [[1, 3], [2, 4]]
    """
    held = list(rows)
    return [[row[name] for row in held] for name in names]


def band(
    panel: Any,
    across: Any,
    values: Sequence[Any],
    *,
    colour: str,
    shade: float = 0.2,
    look: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """A line through the first of `values`, with a band between the two others; `look` is the line's."""
    middle, low, high = values
    panel.fill_between(across, low, high, color=colour, alpha=shade, linewidth=0)
    panel.plot(across, middle, color=colour, **look)


def dial_axis(panel: Any, dial: Dial, which: str) -> None:
    """Label the x or y axis of a panel, which shows shares of the dial, in the dial's units."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis, width = getattr(panel, f"{which}axis"), dial.high - dial.low
    settings = MaxNLocator(nbins=6).tick_values(dial.low, dial.high)
    inside = [value for value in settings if dial.low <= value <= dial.high]
    axis.set_ticks([(value - dial.low) / width for value in inside])
    axis.set_major_formatter(FuncFormatter(lambda share, _: f"{dial.low + share * width:,.6g}"))
    axis.set_label_text(f"dose, {dial.unit}" if dial.unit else "setting of the dial")


def png(figure: Any) -> bytes:
    """The picture as PNG bytes, to embed in a page."""
    from io import BytesIO

    held = BytesIO()
    close(figure).savefig(held, dpi=160, format="png")
    return held.getvalue()


def close(figure: Any) -> Any:
    """The figure, which pyplot forgets."""
    import_extra("matplotlib.pyplot", "plot").close(figure)
    return figure


def save(figure: Any, path: Path) -> Path:
    try:
        close(figure).savefig(path, dpi=200)
    except (OSError, ValueError) as error:  # ValueError: no such format
        raise InvalidInput(f"{path}: cannot be written ({getattr(error, 'strerror', None) or error})") from error
    return path


# --- The parts of a page: inline pictures, tables, claims, and the provenance of its numbers

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #8884; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; background: white; border-radius: 4px; }
.claim { border-left: 4px solid #0072B2; padding: .1rem 1rem; margin: 1rem 0; }
small { color: #777; }
.flag { border-left: 4px solid #D55E00; padding: .1rem 1rem; margin: 1rem 0; }
.quiet { border-left: 4px solid #009E73; padding: .1rem 1rem; margin: 1rem 0; }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page, which loads nothing from elsewhere."""
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def claim(paper: str, ours: str) -> str:
    return f'<div class="claim"><p><strong>The paper:</strong> {paper}</p><p>{ours}</p></div>'


def image(path: Path, words: str) -> str:
    require(path.exists(), "picture", str(path), "is missing", "run safedial reproduce again")
    return inline(path.read_bytes(), words)


def inline(picture: bytes, words: str) -> str:
    """A PNG picture inside the page; `words` say what it shows."""
    data = base64.b64encode(picture).decode()
    return f'<p><img alt="{html.escape(words)}" src="data:image/png;base64,{data}"></p>'


def read_provenance(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.provenance.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: cannot be read ({error}); run safedial reproduce again") from error


def footer(told: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in told["versions"].items())
    seeds = told["settings"]["seeds"]
    count = seeds if isinstance(seeds, int) else len(seeds)
    return (
        f"<p><small>Made {told['made_at']} with {versions}; commit {str(told['commit'])[:12]}; {count} seed(s), "
        f"{told['settings']['rounds']} rounds; {told['seconds']} s.</small></p>"
    )
