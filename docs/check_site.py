"""Check the built site: every link within it leads somewhere, and no page asks another machine for anything."""

from __future__ import annotations

import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}


class Page(HTMLParser):
    """The names on a page, its links, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if LOADED.get(tag) in given and given.get("rel") not in ("canonical", "alternate"):
            self.loads.append(given[LOADED[tag]])


def faults(root: Path) -> list[str]:
    """What is wrong, one line each."""
    page = cache(Page)
    found = []
    for path in sorted(root.rglob("*.html")):
        for link in page(path).links + page(path).loads:
            whole = urlsplit(link)
            if whole.scheme or whole.netloc:
                outside = whole.scheme != "data" and link in page(path).loads
                found += [f"{path.relative_to(root)} loads {link}"] if outside else []
                continue
            target = (path.parent / unquote(whole.path)).resolve() if whole.path else path
            target = target / "index.html" if target.is_dir() else target
            fragment = unquote(whole.fragment)
            lost = not target.exists() or (
                fragment and target.suffix == ".html" and fragment not in page(target).names | {"top"}
            )
            found += [f"{path.relative_to(root)} links to {link}, which is not there"] if lost else []
    for path in sorted(root.rglob("*.css")):
        asked = re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)", path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(root)} loads {each}" for each in asked]
    return found


if __name__ == "__main__":
    built = Path(sys.argv[1])
    wrong = faults(built)
    sys.stdout.write("".join(f"{each}\n" for each in wrong))
    sys.stdout.write(f"{len(list(built.rglob('*.html')))} pages in {built}, {len(wrong)} faults\n")
    sys.exit(bool(wrong))
