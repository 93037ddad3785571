"""The pages of the documentation site: nothing public is missing from the reference, and no link leads nowhere."""

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

import safedial
from safedial.cli import make_app
from safedial.model.costs import Cost
from safedial.model.dial import Dial, Features
from safedial.model.spec import NAMES
from safedial.policies import FACTORIES
from safedial.rounds.log_file import KNOWN
from safedial.rounds.specfile import TABLES
from safedial.study.study_spec import DEFAULTS, OPTIONS, SHAPE, STATED

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "auto_gallery" not in path.parts)


@pytest.fixture(scope="module")
def made():
    """What is generated for the reference, by name."""
    sys.path.insert(0, str(DOCS))
    try:
        import reference_pages
    finally:
        sys.path.remove(str(DOCS))
    return {name: "\n".join(make()) for name, make in reference_pages.PARTS.items()}


def test_every_public_name_and_every_policy_is_in_the_reference():
    pages = "\n".join(path.read_text() for path in (DOCS / "reference").glob("*.rst"))
    shown = set(re.findall(r"^\.\. (?:auto|py:)\w+:: safedial\.([\w.]+)$", pages, flags=re.M))
    assert set(safedial.__all__) <= shown
    assert set(FACTORIES) <= {name.rpartition(".")[2] for name in shown}


def test_every_command_and_option_is_in_the_reference(made):
    sections = dict(re.findall(r"^##+ `(safedial.*?)`\n(.*?)(?=^## |^### |\Z)", made["commands"], flags=re.M | re.S))
    commands = [("safedial", get_command(make_app()))]
    for name, command in commands:
        commands += [(f"{name} {part}", below) for part, below in getattr(command, "commands", {}).items()]
        words = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
        missing = [word for word in words if f"`{word if word[0] == '-' else word.upper()}`" not in sections[name]]
        assert not missing, name
    assert len(sections) == len(commands) > 40


def test_every_route_is_in_the_reference(made):
    assert made["routes"].count("\n## `") >= 20
    for word in ("`POST /v1/decisions/{decision_id}/outcome`", "`applied_action`", "`Idempotency-Key`"):
        assert word in made["routes"]


def test_every_field_of_spec_files_studies_and_logs_is_in_the_reference(made):
    told = made["spec fields"]
    for table in set(TABLES) - {"sweep"}:
        assert f"[{table}]" in told
    for part in (Cost, Dial, Features):
        assert [each.name for each in fields(part) if each.init and f"`{each.name}`" not in told] == [], part
    assert [name for name in NAMES if f"`{name}`" not in told] == []
    stated = {*OPTIONS, *SHAPE, *DEFAULTS, *STATED}
    assert [name for name in sorted(stated) if f"`{name}`" not in made["study fields"]] == []
    assert [name for name in KNOWN if f"`{name}`" not in made["log columns"]] == []
    assert "`context.FEATURE`" in made["export columns"]


def anchors(path):
    """The names of a page's headings, as in links."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", path.read_text(), flags=re.M | re.S)
    heads = [re.sub(r"[^\w\- ]", "", head.lower()) for head in re.findall(r"^#+ (.+?) *$", text, flags=re.M)]
    return {head.replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_every_link_on_a_page_leads_to_a_file_and_a_heading(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        place, _, name = link.partition("#")
        if "://" in place or (place and "auto_gallery" in place):
            continue
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), link
        assert DOCS in target.parents, f"{link}: outside the site; name the file in words"
        assert not name or name in anchors(target), link


def test_every_page_is_in_one_table_of_contents():
    listed = []
    for path in PAGES:
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", path.read_text(), flags=re.M | re.S):
            listed += [(path.parent / line).resolve() for line in block.split() if not re.match(r":|\d|auto_", line)]
    pages = {path.with_suffix("") for path in [*PAGES, *(DOCS / "reference").glob("*.rst")]}
    assert sorted(listed) == sorted(pages - {DOCS / "index"})
