"""The parts of a page: inline pictures, tables, claims, and the provenance of its numbers."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safedial.errors import InvalidInput, require

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
