"""The package as a whole: public names, quick imports, kind words for a missing extra, no index in the locks."""

import inspect
import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import get_overloads

import pytest

import safedial
from safedial.errors import MissingExtra, how_to_install, import_extra

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_there_and_nothing_else_is_guaranteed():
    for name in safedial.__all__:
        assert getattr(safedial, name) is not None
    assert dir(safedial) == sorted(safedial.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = safedial.nothing
    assert callable(safedial.simulate)


def test_importing_the_package_leaves_heavy_parts_alone():
    names = ("numpy", "scipy.linalg", "matplotlib", "jax", "pandas", "typer")
    heavy = f"import sys, safedial; print([name for name in {names} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_simulate_is_the_function_whatever_was_imported_before():
    words = "import safedial.simulation.run, safedial.stats, safedial; print(callable(safedial.simulate))"
    assert subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_missing_extra_is_explained():
    with pytest.raises(MissingExtra, match=r'pip install .*\[jax\]"'):
        import_extra("no_such_package", "jax")


@pytest.mark.parametrize(
    ("came", "shown"),
    [
        (None, '"safedial[plot,data]"'),
        ({"url": "file:///home/ward/my%20files/safedial", "dir_info": {}}, '"/home/ward/my files/safedial[plot,data]"'),
        ({"url": "file:///src/safedial", "dir_info": {"editable": True}}, '--editable "/src/safedial[plot,data]"'),
        ({"url": "file:///dist/safedial.whl", "archive_info": {}}, '"/dist/safedial.whl[plot,data]"'),
        ({"url": "https://host/safedial.whl", "archive_info": {}}, '"safedial[plot,data]"'),
    ],
)
def test_extras_are_added_from_where_the_package_was_installed(monkeypatch, came, shown):
    """A name alone would be looked for in an index, where another package may have it."""
    found = SimpleNamespace(read_text=lambda name: json.dumps(came) if came and name == "direct_url.json" else None)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: found)
    assert how_to_install("plot", "data") == f"pip install {shown}"


def test_extras_of_a_package_that_is_not_installed_are_added_by_its_name(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    assert how_to_install("plot") == 'pip install "safedial[plot]"'


def test_requirements_are_hash_locked_and_name_no_index():
    for name in ("run", "dev", "docs", "service", "release"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text()
        pins = re.findall(r"^[a-zA-Z0-9_.\-]+(?:\[[^\]]*\])?==", text, flags=re.M)
        assert len(pins) > 15
        assert text.count("--hash=sha256:") >= len(pins)
        assert "://" not in text
        assert "index" not in text


def test_the_citation_is_of_this_version():
    assert f"\nversion: {safedial.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_public_api_says_what_it_returns():
    """No public function, and no public method of a public class, returns Any or nothing stated."""
    vague = []
    for name in safedial.__all__:
        value = getattr(safedial, name)
        methods = inspect.getmembers(value, inspect.isroutine) if inspect.isclass(value) else [(name, value)]
        for title, each in methods:
            ours = str(getattr(each, "__module__", "")).startswith("safedial") and not title.startswith("_")
            if inspect.isroutine(each) and ours and each.__annotations__.get("return", "Any") == "Any":
                vague.append(f"{name}.{title}")
    assert not vague


def test_what_a_study_writes_is_a_receipt_or_the_future_of_one():
    answers = {"ask": "StudyDecision"} | dict.fromkeys(("tell", "correct", "void", "resume"), "Receipt")
    for name, answer in answers.items():
        forms = [each.__annotations__ for each in get_overloads(getattr(safedial.Study, name))]
        told = {form["wait"]: form["return"] for form in forms}
        assert told == {"Literal[True]": answer, "Literal[False]": f"Future[{answer}]"}
