"""The command line as a user meets it, stdout and stderr apart."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from rich.text import Text
from typer.main import get_command
from typer.testing import CliRunner

from safedial.bounds.confidence import NAMES
from safedial.cli import make_app, simulate
from safedial.policies import POLICIES
from safedial.simulation.world import NOISES
from tests.program import process, run

SIMULATE = ["simulate", "--policy", "hp_ucb", "--dim", "3", "--threshold", "0.5", "--rounds", "200", "--seeds", "3"]


def test_the_version_and_help_are_there():
    from safedial import __version__

    assert process("--version").stdout == f"safedial {__version__}\n"
    shown = process("--help").stdout
    for command in ("simulate", "reproduce", "doctor"):
        assert command in shown


def test_help_is_that_of_the_whole_program():
    whole, quick = (CliRunner().invoke(make_app(wanted), ["--help"]) for wanted in ("", "--help"))
    assert quick.stdout == whole.stdout
    assert "Run a study" in quick.stdout


def commands():
    """Every command of the program by its words."""
    found = [("safedial", get_command(make_app()))]
    for name, command in found:
        parts = command.list_commands(None) if hasattr(command, "list_commands") else []
        found += [(f"{name} {part}", command.get_command(None, part)) for part in parts]
    return found


def test_help_shows_every_word_that_is_written():
    """Rich takes [word] for markup and drops it."""
    for name, command in commands():
        texts = [getattr(each, "help", None) for each in command.params]
        for text in (command.help, *texts):
            assert Text.from_markup(text or "").plain == (text or "").replace("\\[", "["), name
    assert "The policy [hp_probe]." in CliRunner().invoke(make_app(), ["plan", "--help"]).stdout


@pytest.mark.slow
def test_where_there_is_an_engine_there_is_a_device():
    options = {name: {each.name for each in command.params} for name, command in commands()}
    replays = {"safedial evaluate", "safedial reproduce battery"}
    assert {name for name in options if "engine" in options[name] and "device" not in options[name]} == replays
    assert {"draws", "dtype"} <= options["safedial compare"]
    words = ("--dim", 2, "--threshold", 0.5, "--rounds", 20, "--seeds", 1)
    for command in (("compare", "--policy", "hp_ucb", *words), ("plan", *words), ("reproduce", "table1")):
        done = run(*command, "--engine", "numpy", "--device", "cpu")
        assert (done.returncode, "device = 'cpu': is for engine jax only" in done.stderr) == (2, True), done.stderr
    told = json.loads(run("plan", *words, "--engine", "jax", "--device", "cpu", "--json").stdout)
    assert told["engine"] == "jax"


def test_help_names_every_policy_radius_and_noise():
    assert simulate.POLICIES.split(", ") == list(POLICIES)
    assert simulate.RADII.split(", ") == list(NAMES)
    assert simulate.NOISES.split(", ") == list(NOISES)


def test_simulating_a_bracket_points_to_plan(tmp_path):
    text = '[spec]\nthreshold = 20\nviolation_risk = 0.05\nguarantee = "bracket"\n[features]\nnames = ["protocol"]\n'
    text += '[[policy]]\nname = "hp_shield"\nbase = "protocol"\nstart_scale = 0.3\n'
    text += 'growth = {growth = "relative", low = 0.7, high = 1.4, floor = 2}\n'
    (tmp_path / "spec.toml").write_text(text)
    words = ["simulate", "--spec", str(tmp_path / "spec.toml"), "--rounds", "10", "--seeds", "1"]
    refused = CliRunner().invoke(make_app("simulate"), words).exception
    assert "reward_noise" in str(refused)
    assert "use `safedial plan`" in str(refused)
    assert simulate.POLICY.endswith("For hp_shield use safedial plan.")


def test_a_command_loads_its_own_file_and_no_other():
    program = (
        "import atexit, sys; from safedial.cli import COMMANDS, main; "
        "files = lambda: sorted({name for name, _ in COMMANDS.values() if f'safedial.cli.{name}' in sys.modules}); "
        "atexit.register(lambda: print(files(), 'numpy' in sys.modules)); main()"
    )
    for words, loaded in (
        (["--version"], "[] False"),
        (["--help"], "[] False"),
        (["doctor"], "['doctor'] False"),
        (["study"], "['study_commands'] False"),
    ):
        done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
        assert done.stdout.strip().splitlines()[-1] == loaded, done.stderr


def test_a_command_that_there_is_not_is_answered_with_the_nearest():
    done = process("plann")
    assert done.returncode == 2
    assert "'plan'" in done.stderr


def test_simulate_prints_one_object_alone_on_stdout():
    done = process(*SIMULATE, "--json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert list(report) == [
        "policy", "dim", "threshold", "rounds", "seeds", "violation_rate", "violation_ci", "regret", "reward",
        "clairvoyant_reward", "rounds_per_second", "exact_clairvoyant_reward", "full_dose_rounds",
        "full_dose_violation_rate", "guaranteed_risk", "regret_ci", "informative_rounds", "uncertified_rounds",
        "alarmed_seeds", "exact_share", "attainable_share", "settings",
    ]  # fmt: skip
    assert report["guaranteed_risk"] == 0.02
    assert done.stderr == ""
    assert report["policy"] == "hp_ucb"
    assert len(report["violation_ci"]) == 2
    assert report["regret"] == pytest.approx(report["clairvoyant_reward"] - report["reward"], abs=1e-9)


def test_simulate_without_json_prints_a_table():
    told = run(*SIMULATE).stdout
    assert "violation rate" in told
    assert "numpy with draws from numpy" in told
    assert "clairvoyant" not in told


@pytest.mark.parametrize(
    "extra",
    [
        ["--radius", "paper", "--clip"],
        ["--radius", "mixture", "--no-clip", "--noise", "rademacher"],
        ["--policy", "hp_probe", "--probe", "0.01", "--contexts", "adversarial"],
        ["--policy", "hp_probe", "--probe", "sqrt", "--noise", "truncated", "--guarantee", "joint"],
        ["--policy", "epsilon_greedy", "--epsilon", "0.1", "--learn-from", "exploring", "--noise", "uniform"],
        ["--policy", "clairvoyant", "--dose", "hill:0.5,2", "--radius", "paper"],
        ["--cost-sensor-noise", "0.02", "--reward-sensor-noise", "0.1", "--dose", "logistic:0.5,6"],
        ["--policy", "hp_conformal", "--start-dose", "0.1", "--guarantee", "conformal", "--groups", "none"],
        ["--policy", "hp_conformal", "--contexts", "drift", "--noise", "context-scale"],
        ["--total-risk", "0.05", "--policy", "thompson", "--scale", "0.5"],
        ["--cost-sensor-noise", "0.02", "--threshold-on", "true", "--sensor-dependent"],
    ],
)
def test_every_option_of_simulate_works(extra):
    done = run(*SIMULATE, *extra, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 200


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        (["--policy", "hp_usb"], "hp_ucb"),
        (["--threshold", "-1"], "threshold = -1.0"),
        (["--probe", "0.1"], "--probe"),
        (["--policy", "hp_probe", "--probe", "two"], "probe"),
        (["--dose", "cubic:2"], "--dose"),
        (["--seeds", "many"], "seeds"),
        (["--colour", "blue"], "colour"),
    ],
)
def test_a_mistake_is_one_sentence_and_never_a_traceback(extra, named):
    done = run(*SIMULATE, *extra, "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_simulate_takes_a_spec_file_and_writes_a_log(tmp_path):
    from safedial.rounds.specfile import EXAMPLE

    (tmp_path / "spec.toml").write_text(EXAMPLE + '[[policy]]\nname = "hp_probe"\n[dose]\ncurve = "hill"\ned50 = 0.5\n')
    words = ["simulate", "--spec", str(tmp_path / "spec.toml"), "--rounds", "50", "--seeds", "2"]
    done = run(*words, "--log", str(tmp_path / "log.csv"), "--threshold", "0.4", "--json")
    report = json.loads(done.stdout)
    assert (report["policy"], report["dim"], report["threshold"]) == ("hp_probe", 2, 0.4)
    assert report["settings"]["spec"]["cost_noise"] == 0.3
    assert report["settings"]["dose"]["cost"]["ed50"] == 0.5
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 51
    other = run(*words, "--policy", "hp_ucb", "--total-risk", "0.1", "--dose", "power:2", "--json")
    assert json.loads(other.stdout)["guaranteed_risk"] == pytest.approx(0.1)
    for missing in ("--dim", "--threshold", "--policy"):
        place = SIMULATE.index(missing)
        assert missing in run(*SIMULATE[:place], *SIMULATE[place + 2 :]).stderr


def test_rounds_that_nothing_certifies_are_reported():
    done = run(*SIMULATE, "--baseline-cost", "0.7")
    assert "uncertified" in done.stdout
    assert json.loads(run(*SIMULATE, "--baseline-cost", "0.7", "--json").stdout)["uncertified_rounds"] == 200


def test_a_terminal_without_unicode_is_served_too():
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    words = [sys.executable, "-m", "safedial", *SIMULATE, "--policy", "epsilon_greedy"]
    done = subprocess.run(words, capture_output=True, check=False, env=plain)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_an_interrupt_is_one_line_and_code_130():
    long = [*SIMULATE, "--rounds", "10000000"]
    started = subprocess.Popen([sys.executable, "-m", "safedial", *long], stderr=subprocess.PIPE, text=True)
    while psutil.Process(started.pid).cpu_times().user < 1.5:  # longer than its imports take
        time.sleep(0.02)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=30)
    assert started.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors


def test_reproduce_table1_writes_data_picture_and_provenance(tmp_path):
    done = run("reproduce", "table1", "--seeds", "2", "--rounds", "300", "--out", str(tmp_path / "new"))
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "new" / "table1.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    assert list(rows[0]) == [
        "threshold", "policy", "dim", "seeds", "violation_rate", "ci_low", "ci_high", "paper_rate", "paper_ci_low",
        "paper_ci_high", "overlaps_paper",
    ]  # fmt: skip
    assert (tmp_path / "new" / "table1.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads((tmp_path / "new" / "table1.provenance.json").read_text())
    assert {"settings", "versions", "commit", "machine", "seconds"} <= set(told)
    assert told["settings"]["rounds"] == 300
    assert "Written:" in done.stdout


def test_reproduce_table1_as_json(tmp_path):
    done = run("reproduce", "table1", "--seeds", "1", "--rounds", "50", "--out", str(tmp_path), "--json")
    assert len(json.loads(done.stdout)["rows"]) == 20


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("reproduce", "table1", "--seeds", "1", "--rounds", "50", "--out", str(tmp_path / "file" / "below"))
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_says_what_is_missing():
    report = json.loads(process("doctor", "--json").stdout)
    assert report["extras"]["plot"]["installed"] is True
    assert set(report["extras"]) == {"plot", "data", "service", "dask", "jax", "gym", "text"}
    assert "what it adds" in run("doctor").stdout


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ((3, 7, 0), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 51, 3), False),
    ],
)
def test_doctor_warns_of_versions_of_sqlite_with_the_wal_reset_fault(version, known, monkeypatch):
    from typer.testing import CliRunner

    from safedial.cli import make_app

    monkeypatch.setattr("sqlite3.sqlite_version_info", version)
    out = CliRunner().invoke(make_app(), ["doctor"]).stdout.replace("\n", " ")
    assert ("the WAL-reset fault" in out) == known


def test_the_extras_of_doctor_are_those_of_the_package():
    import tomllib

    from safedial.errors import EXTRAS

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS) == set(project["optional-dependencies"]) - {"dev"}
