"""The commands on logs as a user meets them: each in under a minute from nothing."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from safedial.rounds.log_file import log_text, read_log
from safedial.rounds.specfile import EXAMPLE, load_spec
from safedial.simulation.sweeps import read_grid
from tests.program import run
from tests.tools.test_confounded import clinic

SPEC = EXAMPLE.replace("dim = 2", 'dim = 3\n[[policy]]\nname = "hp_probe"')


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("logs")
    (place / "spec.toml").write_text(SPEC)
    (place / "narrow.toml").write_text(SPEC.replace("cost_noise = 0.3", "cost_noise = 0.15"))
    done = run(
        "simulate", "--spec", "spec.toml", "--rounds", "300", "--seeds", "1", "--log", "log.csv", "--json", cwd=place
    )
    assert done.returncode == 0, done.stderr
    return place


def test_check_is_quiet_and_exits_0_where_the_spec_is_true(folder):
    done = run("check", "log.csv", "--spec", "spec.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "No check raised a flag" in done.stdout
    assert "does not prove" in " ".join(done.stdout.split())


def test_a_simulated_log_is_in_the_units_of_its_spec_file(folder):
    """Without them, check would refuse the columns, and read the shares of the dial as settings."""
    units = (
        '[features]\nnames = ["age", "weight", "dose"]\ncenter = [50, 70, 0]\nscale = [30, 40, 1]\n[dial]\nhigh = 20\n'
    )
    (folder / "units.toml").write_text(SPEC + units)
    words = ("simulate", "--spec", "units.toml", "--rounds", "120", "--seeds", "1", "--log", "units.csv", "--json")
    assert run(*words, cwd=folder).returncode == 0
    done = run("check", "units.csv", "--spec", "units.toml", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["flagged"] == []


def test_a_log_is_of_the_rounds_that_the_engine_played(folder):
    words = ("simulate", "--spec", "spec.toml", "--rounds", "300", "--seeds", "1", "--json", "--engine", "jax", "--log")
    assert run(*words, "compiled.csv", cwd=folder).returncode == 0
    usual, same = (read_log(folder / name) for name in ("log.csv", "compiled.csv"))
    for name in ("context", "action", "reward", "cost"):
        np.testing.assert_allclose(getattr(same, name), getattr(usual, name), rtol=0.0, atol=1e-9)
    drawn = run(*words, "drawn.csv", "--draws", "counter", cwd=folder)
    assert drawn.returncode == 0, drawn.stderr
    cost = read_log(folder / "drawn.csv").cost
    assert len(cost) == 300
    assert not np.array_equal(cost, usual.cost)
    refused = run(*words[:-3], "--draws", "counter", "--log", "no.csv", cwd=folder)
    assert "is for engine jax only" in refused.stderr


def test_check_raises_a_flag_and_writes_one_page_with_nothing_fetched(folder):
    done = run("check", "log.csv", "--spec", "narrow.toml", "--out", "report.html", "--json", cwd=folder)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    assert "tails" in report["flagged"]
    assert len(report["findings"]) == 8
    page = (folder / "report.html").read_text()
    assert page.count("For the guarantee:") == 8
    assert "data:image/png;base64," in page
    assert not re.search(r"(src|href)=.?https?:", page)
    assert "FLAG" in run("check", "log.csv", "--spec", "narrow.toml", "--target", "cost", cwd=folder).stdout


def test_monitor_is_quiet_where_the_guarantee_holds_and_alarms_where_it_does_not(folder):
    done = run("monitor", "log.csv", "--spec", "spec.toml", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["alarm_round"] is None
    words = ["simulate", "--spec", "spec.toml", "--policy", "on_expectation", "--rounds", "400", "--seeds", "1"]
    assert run(*words, "--log", "bad.csv", cwd=folder).returncode == 0
    done = run("monitor", "bad.csv", "--spec", "spec.toml", "--out", "bad.png", cwd=folder)
    assert done.returncode == 1
    assert "ALARM at round" in done.stdout
    assert (folder / "bad.png").read_bytes().startswith(b"\x89PNG")


def test_calibrate_writes_a_spec_file_that_the_other_commands_take(folder):
    pilot = [
        "simulate",
        "--spec",
        "spec.toml",
        "--threshold",
        "2",
        "--dose",
        "hill:0.3",
        "--rounds",
        "200",
        "--seeds",
        "1",
    ]
    assert run(*pilot, "--log", "pilot.csv", cwd=folder).returncode == 0
    words = [
        "calibrate",
        "pilot.csv",
        "--threshold",
        "0.5",
        "--total-risk",
        "0.05",
        "--resamples",
        "10",
        "--curve",
        "emax",
    ]
    done = run(*words, "--out", "made.toml", "--plot", "curve.png", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "No data bound it from above" in done.stdout
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "# Proposed by safedial calibrate" in (folder / "made.toml").read_text()
    report = json.loads(
        run("simulate", "--spec", "made.toml", "--rounds", "20", "--seeds", "1", "--json", cwd=folder).stdout
    )
    assert report["settings"]["dose"]["cost"]["curve"] == "hill"
    assert run("check", "pilot.csv", "--spec", "made.toml", cwd=folder).returncode == 0
    assert len(read_grid(folder / "made.toml").cells) == 1
    ranges = load_spec(folder / "made.toml").features.ranges
    seen = read_log(folder / "pilot.csv").context
    for column, (low, high) in zip(seen.T, ranges.values(), strict=True):
        assert low < column.min() < column.max() < high
    assert "# ranges: x1 " in (folder / "made.toml").read_text()
    folded = ["--fold-rounds", "300", "--standardize", "--json"]
    told = json.loads(run(*words, *folded, cwd=folder).stdout)
    assert "Folded in" in told["spec"]
    assert "rounds, with the mixture radius only" in " ".join(told["spec"].replace("#", "").split())
    assert "[features]" in told["spec"]
    assert told["files"] == []


def test_calibrate_reads_a_dial_in_its_own_units_and_no_context(tmp_path):
    rows = "\n".join(f"{dose},{dose / (dose + 5) + 0.01 * (dose % 3 - 1)}" for dose in range(1, 21) for _ in range(2))
    (tmp_path / "published.csv").write_text(f"action,cost\n{rows}\n")
    words = [
        "calibrate",
        "published.csv",
        "--dial-high",
        "20",
        "--unit",
        "mg",
        "--noise",
        "constant",
        "--resamples",
        "5",
    ]
    done = run(*words, "--threshold", "0.5", "--out", "made.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "made.toml").read_text()
    assert 'unit = "mg"' in made
    assert "dim = 1" in made
    assert "Nothing written" in run(*words, cwd=tmp_path).stdout


def test_calibrate_says_what_it_cannot_do_and_writes_nothing(tmp_path):
    row = "0.1,0.2,0.5,0.1,0.1\n"
    (tmp_path / "one.csv").write_text("x1,x2,action,reward,cost\n" + 30 * row)
    for words, named in (([], "only dose level"), (["--dial-high", "0.1"], "column 'action'")):
        done = run(
            "calibrate", "one.csv", "--threshold", "1", "--out", "made.toml", "--plot", "a.png", *words, cwd=tmp_path
        )
        assert done.returncode == 2
        assert named in done.stderr
        assert "Traceback" not in done.stderr
    assert "--threshold" in run("calibrate", "one.csv", "--out", "made.toml", cwd=tmp_path).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["one.csv"]


def test_calibrate_says_how_to_state_the_dials_range(tmp_path):
    (tmp_path / "pilot.csv").write_text("x1,action,cost\n" + 30 * "0.1,500,0.1\n0.2,750,0.1\n")
    done = run("calibrate", "pilot.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert "--dial-high" in done.stderr
    assert "spec file" not in done.stderr


def test_a_calibration_that_learned_nothing_writes_no_spec_and_exits_1(tmp_path):
    rows = "\n".join(f"{n % 7 / 10},{n % 15 + 1},{0 if n % 40 else 8}" for n in range(150))
    (tmp_path / "pilot.csv").write_text(f"x1,action,cost\n{rows}\n")
    words = ["calibrate", "pilot.csv", "--dial-high", "15", "--unit", "U", "--threshold", "5", "--resamples", "5"]
    done = run(*words, "--out", "made.toml", "--plot", "curve.png", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "this log does not support a spec file. 146 of 150 costs are 0" in done.stderr
    assert "Report the measured quantity" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.png", "pilot.csv"]
    done = run(*words, "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr, report["spec"]) == (1, "", None)
    assert report["problem"].startswith("146 of 150")


def test_a_pilot_dosed_by_the_context_is_flagged_by_calibrate_and_by_check(tmp_path):
    """The truth is proportional, and cross-validation says otherwise; the flag is raised and the identity kept."""
    (tmp_path / "pilot.csv").write_text(log_text(replace(clinic(400), names=("a", "w", "c", "one"))))
    words = ["calibrate", "pilot.csv", "--threshold", "20", "--total-risk", "0.05", "--out", "made.toml"]
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("FLAG, confounded doses (evidence 10^")
    assert "is false with probability at most 5 %" in done.stdout
    made = (tmp_path / "made.toml").read_text()
    assert "# FLAG: In 400 rounds" in made
    assert "[dose]" not in made, "the true curve is the identity"
    done = run("check", "pilot.csv", "--spec", "made.toml", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert "confounding" in json.loads(done.stdout)["flagged"]


def test_plan_says_what_to_expect_and_writes_a_page(folder):
    words = ["plan", "--spec", "spec.toml", "--rounds", "100", "--seeds", "5"]
    done = run(*words, "--out", "plan", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Of 100 rounds expect" in done.stdout
    names = {path.name for path in (folder / "plan").iterdir()}
    assert names == {"plan.csv", "plan_curves.csv", "plan.provenance.json", "plan.png", "plan.html"}
    page = (folder / "plan" / "plan.html").read_text()
    assert "Operating characteristics" in page
    assert not re.search(r"(src|href)=.?https?:", page)
    report = json.loads(run(*words, "--policy", "hp_ucb", "--dose", "power:2", "--json", cwd=folder).stdout)
    assert len(report["scenarios"]) == 9
    assert report["files"] == []
    for extra, named in ((["--dim", "0"], "dim"), (["--policy", "hp_usb"], "hp_ucb"), (["--dose", "cubic"], "--dose")):
        done = run(*words, *extra, "--out", "never", cwd=folder)
        assert done.returncode == 2
        assert named in done.stderr
    assert "--threshold" in run("plan", "--rounds", "10", "--dim", "2").stderr
    assert "dim: is missing" in run("plan", "--rounds", "10", "--threshold", "1").stderr
    assert not (folder / "never").exists()


def test_plan_takes_a_conformal_spec_without_constants_a_dial_and_a_baseline_cost(tmp_path):
    free = '[spec]\nthreshold = 0.5\nguarantee = "conformal"\nviolation_risk = 0.05\n[world]\ndim = 2\n'
    policy = '[[policy]]\nname = "hp_conformal"\nstart_dose = 0.1\n[dial]\nhigh = 4000\nunit = "mg"\n'
    (tmp_path / "spec.toml").write_text(free + policy)
    words = ["plan", "--spec", "spec.toml", "--rounds", "60", "--seeds", "3"]
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "assume them: --reward-noise, --cost-noise" in done.stderr
    given = ["--reward-noise", "0.3", "--cost-noise", "0.3", "--coefficient-bound", "1", "--context-bound", "1"]
    done = run(*words, *given, "--baseline-cost", "0.1", "--out", "plan", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Assumed, not stated: reward_noise = 0.3" in done.stdout
    assert "as assumed" in done.stdout
    assert "The dose begins at 400 mg" in done.stdout
    page = (tmp_path / "plan" / "plan.html").read_text()
    assert "assumed: κ (cost) = 0.3" in page
    assert "baseline cost 0.1" in page
    assert "Doses are in mg" in page
    report = json.loads(run(*words, *given, "--json", cwd=tmp_path).stdout)
    assert report["assumed"]["cost_noise"] == 0.3
    assert "mg" in report["words"][2]
    assert 0.0 <= report["scenarios"][0]["small_doses"] <= 1.0


BAD_LOGS = {
    "missing": ("x1,x2,x3,action,reward\n0,0,0,0,0\n", "cost"),
    "few": ("x1,x2,x3,action,reward,cost\n0,0,0,0.5,0,0\n", "few"),
    "columns": ("x1,x2,action,reward,cost\n0,0,0.5,0,0\n", "dim"),
}


@pytest.mark.parametrize("case", BAD_LOGS)
@pytest.mark.parametrize("command", ["check", "monitor", "calibrate"])
def test_a_bad_log_is_one_sentence_and_nothing_is_written(command, case, tmp_path):
    text, named = BAD_LOGS[case]
    if (command, case) == ("monitor", "few"):
        text, named = text.replace("action", "advised,action").replace("0.5,0,0", "0,0.5,0,0"), "covers"
    (tmp_path / "spec.toml").write_text(SPEC)
    if (command, case) == ("calibrate", "columns"):
        text, named = text.replace("cost", "price"), "cost"
    (tmp_path / "bad.csv").write_text(text)
    stated = ["--threshold", "1"] if command == "calibrate" else ["--spec", "spec.toml"]
    out = "out.png" if command == "monitor" else "out.html"
    done = run(command, "bad.csv", *stated, "--out", out, cwd=tmp_path)
    assert done.returncode == 2
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "spec.toml"]


def test_monitor_says_which_pictures_it_draws(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    done = run("monitor", "log.csv", "--spec", "spec.toml", "--out", "out.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "safedial: --out = 'out.html': must end in .png, .pdf or .svg\n")
