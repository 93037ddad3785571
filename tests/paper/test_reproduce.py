"""The experiments end to end on small counts: data, pictures and report from the command line."""

import json
import re

import pytest
from scipy.linalg import cho_factor
from typer.testing import CliRunner

from safedial import InvalidInput
from safedial.cli.reproduce import make_commands
from safedial.io import read_rows
from safedial.paper import algorithm2, epsilon
from safedial.paper.experiments import EXPERIMENTS, write_report
from safedial.paper.table1 import PAPER, THRESHOLDS, table1
from tests.program import process, run


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    done = process("reproduce", "all", "--seeds", "2", "--rounds", "120", "--out", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)["files"]


@pytest.mark.slow
def test_everything_is_written_and_named(results):
    folder, files = results
    assert {path.name for path in folder.iterdir()} == {file.rsplit("/", 1)[1] for file in files}
    assert {"table1.csv", "synthetic.csv", "epsilon.csv", "epsilon_time.csv", "report.html"} <= {
        path.name for path in folder.iterdir()
    }


@pytest.mark.slow
def test_the_report_is_one_file_that_fetches_nothing(results):
    page = (results[0] / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 6
    words = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page.replace("http-equiv", ""))
    assert "http" not in words
    for words in (
        "Table 1",
        "Figure",
        "greedy",
        "The paper:",
        "never exceeded",
        "Algorithm 2",
        "Non-linear HP-Probe",
    ):
        assert words in page


def test_what_cannot_run_here_is_said_and_the_rest_is_done(tmp_path, monkeypatch):
    monkeypatch.delenv("SAFEDIAL_DATA", raising=False)
    few = make_commands([each for each in EXPERIMENTS if each.name in ("table1", "battery")])
    done = CliRunner().invoke(few, ["all", "--seeds", "1", "--rounds", "20", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "table1.csv").exists()
    assert "The battery experiment is skipped: no data folder is set" in done.stderr
    assert "Not run yet: battery" in (tmp_path / "report.html").read_text()


def test_an_experiment_is_made_with_the_seeds_that_are_named(tmp_path):
    for name, more in (("table1", ()), ("theory", ("--horizon", 20))):
        done = run("reproduce", name, "--seeds", "3:5", "--rounds", 12, *more, "--out", tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / f"{name}.provenance.json").read_text())["settings"]["seeds"] == [3, 4]
        assert {row["seeds"] for row in read_rows(tmp_path / f"{name}.csv")} == {2}
    alone = table1(dim=5, seeds=[3, 4], rounds=12)
    assert [row["violation_rate"] for row in read_rows(tmp_path / "table1.csv")] == [
        row["violation_rate"] for row in alone
    ]
    for name, rule in (
        ("table1", "a range such as 0:100"),
        ("all", "a count >= 1 here"),
    ):
        done = run("reproduce", name, "--seeds", "0", "--out", tmp_path / "none")
        assert (done.returncode, rule in done.stderr) == (2, True), done.stderr
    assert run("reproduce", "all", "--engine", "torch", "--out", tmp_path / "none").returncode == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_pictures_can_be_drawn_again_from_the_written_files_alone(results):
    folder = results[0]
    pictures = set(folder.glob("*.png"))
    for picture in pictures:
        picture.unlink()
    drawn = [path for each in EXPERIMENTS if each.has_run(folder) for path in each.draw(folder)]
    assert len(drawn) == 6
    assert set(drawn) == pictures == set(folder.glob("*.png"))
    assert write_report(folder).exists()


@pytest.mark.slow
def test_curves_have_bands_and_the_bound_lies_above(results):
    rows = read_rows(results[0] / "synthetic.csv")
    assert {row["dim"] for row in rows} == {5, 10}
    for row in rows:
        assert row["regret_low"] <= row["regret"] <= row["regret_high"]
        if row["series"] == "HP-UCB":
            assert row["regret"] <= row["theorem_2"]


@pytest.mark.slow
def test_epsilon_zero_is_hp_ucb_and_epsilon_one_the_first_action(results):
    last = {(row["dim"], row["series"]): row["regret"] for row in read_rows(results[0] / "synthetic.csv")}
    by_share = {
        (row["dim"], row["learn_from"], row["epsilon"]): row["regret"] for row in read_rows(results[0] / "epsilon.csv")
    }
    for dim in (5, 10):
        assert by_share[dim, "all", 0.0] == pytest.approx(last[dim, "HP-UCB"])
        assert by_share[dim, "all", 1.0] == pytest.approx(last[dim, "Fixed action"])


@pytest.mark.parametrize(
    ("share", "reading", "least", "most"), [(1.0, "exploring", 0, 0), (0.0, "exploring", 1, 1), (0.0, "all", 100, 400)]
)
def test_an_exploring_round_factors_nothing_and_an_unchanged_matrix_is_factored_once(
    share, reading, least, most, monkeypatch
):
    factored = []

    def count(gram, **options):
        factored.append(len(gram))
        return cho_factor(gram, **options)

    monkeypatch.setattr("scipy.linalg.cho_factor", count)
    assert epsilon.time_per_round(6, share, reading) > 0
    assert least <= len(factored) <= most


def test_a_report_without_results_says_what_to_run(tmp_path):
    with pytest.raises(InvalidInput, match="reproduce table1"):
        write_report(tmp_path)
    assert run("reproduce", "report", "--out", str(tmp_path)).returncode == 2


def test_a_damaged_result_is_named_and_a_short_run_still_gives_a_report(tmp_path):
    assert run("reproduce", "synthetic", "--seeds", "1", "--rounds", "1", "--out", str(tmp_path)).returncode == 0
    write_report(tmp_path)
    (tmp_path / "synthetic.csv").write_text("dim,series\n5")
    done = run("reproduce", "report", "--out", str(tmp_path))
    assert (done.returncode, "cut short" in done.stderr) == (2, True)
    (tmp_path / "epsilon.provenance.json").unlink()
    (tmp_path / "synthetic.csv").unlink()
    with pytest.raises(InvalidInput, match=r"epsilon\.provenance\.json: cannot be read .*run safedial reproduce again"):
        write_report(tmp_path)


def test_a_report_of_table1_alone_says_what_is_missing(tmp_path):
    assert run("reproduce", "table1", "--seeds", "1", "--rounds", "50", "--out", str(tmp_path)).returncode == 0
    assert "Not run yet: synthetic, theory, epsilon" in write_report(tmp_path).read_text()


@pytest.mark.slow
def test_all_20_cells_overlap_the_paper_with_30_seeds():
    rows = table1(dim=5, seeds=30, rounds=10_000)
    assert len(rows) == 20
    assert [row["threshold"] for row in rows[:10]] == THRESHOLDS
    assert len(PAPER["hp_ucb"]) == len(PAPER["on_expectation"]) == 10
    assert all(row["overlaps_paper"] for row in rows)


@pytest.mark.slow
def test_nonlinear_has_every_world_and_policy_and_the_bound(results):
    rows = read_rows(results[0] / "nonlinear.csv")
    assert len(algorithm2.finals(rows)) == len(algorithm2.PLACES) * len(algorithm2.SERIES)
    bound = [row["regret"] for row in rows if row["policy"] == "theorem3"]
    assert len(bound) > 1
    assert bound == sorted(bound)
    assert (results[0] / "nonlinear.png").stat().st_size > 10_000
