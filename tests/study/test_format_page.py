"""The page about format 1 names the fields of every event, and no others."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from safedial.study.event import EVENT_KINDS
from tests.golden.study_cases import STUDIES
from tests.golden.study_script import Study

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "format.md"
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \|(.*)\|$", re.MULTILINE)


def named(text):
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", text)))


TOLD = {kind: (named(always), named(also)) for kind, always, also in ROW.findall(PAGE.read_text(encoding="utf-8"))}


def test_every_kind_is_told():
    assert TOLD.keys() == EVENT_KINDS.keys()


@pytest.mark.parametrize("name", ["certified", "shield_proposal"])
def test_bodies_have_the_fields_that_the_page_names(name, tmp_path):
    played = Study(str(tmp_path), name, STUDIES[name].stated)
    with closing(played.live):  # which has a clock of its own
        STUDIES[name].play(played)
        (file,) = tmp_path.rglob("*.db")
        events = sqlite3.connect(file).execute("SELECT kind, body FROM events").fetchall()
    for kind, body in events:
        always, also = TOLD[kind]
        assert always <= json.loads(body).keys() <= always | also, kind
