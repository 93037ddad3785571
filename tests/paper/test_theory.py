"""`reproduce theory` end to end on small counts, and its binomial interval."""

import json

import pytest
from scipy.stats import binomtest

from safedial.io import read_rows
from safedial.stats import binomial_interval
from tests.program import run


def test_everything_is_written_and_printed(tmp_path):
    command = ("reproduce", "theory", "--seeds", "40", "--rounds", "30", "--horizon", "1000", "--engine", "numpy")
    done = run(*command, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "never exceeded" in done.stdout
    rows = read_rows(tmp_path / "theory.csv")
    assert {row["guaranteed_over"] for row in rows} == {"a round", "all rounds"}
    assert all(row["found_low"] <= row["found"] <= row["found_high"] and row["kept"] for row in rows)
    rounds = [row["round"] for row in read_rows(tmp_path / "theory_regret.csv") if row["policy"] == "hp_probe"]
    assert rounds == sorted(set(rounds))
    assert rounds[-1] == 1000
    told = json.loads((tmp_path / "theory.provenance.json").read_text())["settings"]
    assert (told["engine"], told["seeds"]) == ("numpy", 40)
    assert (tmp_path / "theory.png").stat().st_size > 5000


@pytest.mark.parametrize(("hits", "count"), [(0, 5), (3, 50), (50, 50), (20, 1_000_000)])
def test_the_interval_is_clopper_and_pearson_s(hits, count):
    ends = binomtest(hits, count).proportion_ci(0.95, method="exact")
    assert binomial_interval(hits, count) == pytest.approx((ends.low, ends.high), abs=1e-12)
