"""A new experiment is one record: the command line and the report need nothing else."""

import json
import subprocess
import sys
from typing import Annotated

import pytest
from typer.testing import CliRunner

from safedial import InvalidInput
from safedial.cli.reproduce import make_commands
from safedial.io import html_table, no_bar, read_rows
from safedial.paper.experiment import DeviceName, EngineName, Experiment, Found, Seeds, Table, by_command, run_and_draw
from safedial.paper.experiments import EXPERIMENTS, write_report


def run(
    folder,
    *,
    seeds: Annotated[int, "How many coins."] = 4,
    rounds: Annotated[int, "How often each is tossed."] = 8,
    sides: Annotated[list[str] | None, "What to call the sides."] = None,
    bar=no_bar,
):
    """Toss coins."""
    names = sides or ["heads", "tails"]
    with bar("Coins", seeds) as advance:
        rows = [{"coin": coin, "side": names[coin % 2], "rounds": rounds} for coin in range(seeds)]
        advance(seeds)
    settings = {"seeds": list(range(seeds)), "rounds": rounds}
    return Found({"two_coins": rows}, settings, {"rows": rows})


def draw(folder):
    picture = folder / "two_coins.txt"
    picture.write_text("".join(row["side"][0] for row in read_rows(folder / "two_coins.csv")))
    return [picture]


def table(folder):
    lines = [[f"{row['coin']:.0f}", row["side"]] for row in read_rows(folder / "two_coins.csv")]
    return [Table("Coins", ["coin", "side"], lines), "Nothing is guaranteed."]


def section(folder):
    sides = [[row["side"]] for row in read_rows(folder / "two_coins.csv")]
    return ["<h2>Two coins</h2>", html_table(["side"], sides)]


COINS = Experiment(name="two_coins", run=run, draw=draw, table=table, section=section)
ABSENT = Experiment(name="dice", run=run, draw=draw, section=section, why_skipped=lambda: "Dice are skipped: no dice.")


def invoke(*words, experiments=(COINS,)):
    done = CliRunner().invoke(make_commands(experiments), [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done


def test_a_new_record_is_listed_with_its_options():
    assert "Toss coins." in invoke("--help").stdout
    shown = invoke("two-coins", "--help").stdout
    for words in ("--seeds", "How many coins.", "--rounds", "--sides", "--out", "--json"):
        assert words in shown
    assert "--bar" not in shown


def test_a_new_record_runs_draws_prints_and_reports(tmp_path):
    options = ("two-coins", "--seeds", 3, "--sides", "head", "--sides", "number", "--out", tmp_path)
    told = json.loads(invoke(*options, "--json").stdout)
    assert [row["side"] for row in told["rows"]] == ["head", "number", "head"]
    names = ["two_coins.csv", "two_coins.provenance.json", "two_coins.txt"]
    assert told["files"] == [str(tmp_path / name) for name in names]
    assert (tmp_path / "two_coins.txt").read_text() == "hnh"
    shown = invoke(*options).stdout
    assert "Nothing is guaranteed." in shown
    assert "number" in shown
    assert all(str(tmp_path / name) in shown for name in names)
    invoke("report", "--out", tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Two coins</h2>" in page
    assert "3 seed(s), 8 rounds" in page


def test_all_runs_every_record_and_says_which_one_cannot_run_here(tmp_path):
    done = invoke("all", "--seeds", 2, "--rounds", 5, "--out", tmp_path, experiments=(COINS, ABSENT))
    assert "Dice are skipped: no dice." in done.stderr
    assert {row["rounds"] for row in read_rows(tmp_path / "two_coins.csv")} == {5}
    assert "Not run yet: dice" in (tmp_path / "report.html").read_text()


def test_all_gives_engine_and_device_to_simulations_alone(tmp_path):
    seen = []

    def simulated(folder, *, seeds: Seeds = 5, engine: EngineName = "numpy", device: DeviceName = None, bar=no_bar):
        seen.append((engine, device))
        return run(folder, seeds=seeds)

    def replayed(folder, *, seeds: Seeds = 5, engine: Annotated[str, "Of a replay."] = "blocked", bar=no_bar):
        seen.append((engine,))
        return run(folder, seeds=seeds)

    told = {"draw": draw, "section": section, "options_in_all": lambda seeds, rounds: {"seeds": seeds}}
    both = [Experiment(name=each.__name__, run=each, **told) for each in (simulated, replayed)]
    invoke("all", "--engine", "auto", "--device", "cpu", "--out", tmp_path, experiments=[*both, COINS])
    invoke("all", "--out", tmp_path, experiments=[*both, COINS])
    assert seen == [("auto", "cpu"), ("blocked",), ("numpy", None), ("blocked",)]


def test_a_run_that_fails_leaves_no_empty_folder(tmp_path):
    def fails(folder, *, bar=no_bar):
        raise InvalidInput("seeds = 0: must be a count")

    broken = Experiment(name="broken", run=fails, draw=draw, section=section)
    with pytest.raises(InvalidInput, match="seeds = 0"):
        run_and_draw([broken], tmp_path / "new" / "deeper", {})
    assert not (tmp_path / "new").exists()
    with pytest.raises(InvalidInput, match="seeds = 0"):
        run_and_draw([COINS, broken], tmp_path / "kept", {})
    assert (tmp_path / "kept" / "two_coins.csv").exists()


def test_records_of_one_command_run_in_order_and_are_then_drawn(tmp_path):
    after = Experiment(name="epsilon", command="two_coins", run=run, draw=lambda folder: [], section=section)
    groups = by_command([COINS, ABSENT, after])
    assert groups == {"two-coins": [COINS, after], "dice": [ABSENT]}
    files = run_and_draw(groups["two-coins"], tmp_path, {"seeds": 1}).files
    written = ["two_coins.csv", "two_coins.provenance.json", "two_coins.csv", "epsilon.provenance.json"]
    assert [path.name for path in files] == [*written, "two_coins.txt"]


@pytest.mark.parametrize("each", EXPERIMENTS, ids=lambda each: each.name)
def test_every_experiment_can_be_run_from_its_defaults_and_by_all(each):
    options = {name for name in each.run.__kwdefaults__ if name != "bar"}
    assert set(each.options_in_all(1, 1)) <= options
    assert each.run.__doc__.count("\n") == 0


def test_the_list_names_every_experiment_once_and_its_order_is_the_reports(tmp_path):
    names = [each.name for each in EXPERIMENTS]
    assert names == [
        "table1",
        "synthetic",
        "theory",
        "epsilon",
        "nonlinear",
        "battery",
    ]
    commands = ["table1", "synthetic", "theory", "nonlinear", "battery"]
    assert list(by_command(EXPERIMENTS)) == commands
    run_and_draw([COINS], tmp_path, {})
    assert f"Not run yet: {', '.join(names)} (" in write_report(tmp_path, [*EXPERIMENTS, COINS]).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("words", "slow"), [("--help", "safedial.paper.experiments"), ("reproduce --help", "scipy")])
def test_help_imports_nothing_slow(words, slow):
    code = "import sys; from safedial.cli import make_app; from typer.testing import CliRunner; "
    code += f"print(CliRunner().invoke(make_app(), {words.split()}).exit_code, {slow!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0 False\n"
