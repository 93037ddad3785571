"""The gallery: complete programs that `make docs` runs. Here each is read; one runs, all under `make test-full`."""

import ast
import re
import time
from pathlib import Path

import pytest

CASES = sorted(Path(__file__, "../../docs/gallery").resolve().glob("plot_*.py"))


def test_there_are_at_least_twelve_cases():
    assert len(CASES) >= 12


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_case_has_a_title_words_a_picture_with_labels_and_its_own_data(case):
    source = case.read_text(encoding="utf-8")
    title, line, *words = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    assert set(line) == {"="}
    assert len(line) >= len(title)
    assert len(" ".join(words)) > 100
    for part in ("xlabel=|set_xticks", "ylabel=|barh", "title", r"plt\.show"):
        assert re.search(part, source)
    assert not re.search(r"\bopen\(|read_csv|https?://|\.csv\"", source.replace('read_log("log.csv")', ""))


def test_cases_run_within_their_time(count, monkeypatch):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: None)
    for case in CASES[: count(1, len(CASES))]:
        start = time.process_time()
        with matplotlib.rc_context():
            exec(compile(case.read_text(encoding="utf-8"), str(case), "exec"), {"__name__": case.stem})  # noqa: S102 -- our own programs
            assert plt.get_fignums()
            plt.close("all")
        assert time.process_time() - start < 20, case.name
