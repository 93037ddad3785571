"""Without an extra, every command says which one it needs before it does anything, and how a checkout gets it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from safedial.errors import EXTRAS, how_to_install
from safedial.rounds.specfile import EXAMPLE

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SERVICE = ("starlette", "uvicorn", "sqlalchemy", "orjson", "prometheus_client")
STORE = ("--storage", "sqlite:///trial.db")
LOG = "x1,x2,action,reward,cost\n" + 40 * "0.1,0.2,0.5,0.1,0.1\n0.3,0.1,0.2,0.1,0.1\n"


def without(hidden, *words, cwd):
    """A command in a process in which these packages cannot be imported."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({list(hidden)!r}))"
    program = f"{blocked}; from safedial.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False, cwd=cwd, timeout=120
    )


COMMANDS = {
    "demo": (SERVICE, ("demo", "--seconds", "1"), "service"),
    "demo, starlette alone": (("starlette",), ("demo", "--seconds", "1"), "service"),
    "demo, uvicorn alone": (("uvicorn",), ("demo", "--seconds", "1"), "service"),
    "serve": (SERVICE, ("serve", *STORE), "service"),
    "key": (SERVICE, ("key", "create", "--role", "read", *STORE), "service"),
    "study": (SERVICE, ("study", "create", "trial", *STORE, "--set", "dim=2"), "service"),
    "study on PostgreSQL": (
        ("psycopg",),
        ("study", "list", "--storage", "postgresql://somebody@localhost:1/none"),
        "service",
    ),
    "plan": (("matplotlib",), ("plan", "--spec", "spec.toml", "--rounds", "20", "--out", "plan"), "plot"),
    "check": (("matplotlib",), ("check", "log.csv", "--spec", "spec.toml", "--out", "page.html"), "plot"),
    "monitor": (("matplotlib",), ("monitor", "log.csv", "--spec", "spec.toml", "--out", "evidence.png"), "plot"),
    "calibrate": (("matplotlib",), ("calibrate", "log.csv", "--plot", "curve.png"), "plot"),
    "simulate": (
        ("jax",),
        ("simulate", "--policy", "hp_probe", "--spec", "spec.toml", "--rounds", "9", "--seeds", "1", "--engine", "jax"),
        "jax",
    ),
    "reproduce theory": (("jax",), ("reproduce", "theory", "--engine", "jax", "--out", "theory"), "jax"),
    "battery": (("pandas",), ("battery", "info", "--data", "."), "data"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_without_its_extra_says_how_to_get_it_and_leaves_nothing_behind(case, tmp_path):
    hidden, words, extra = COMMANDS[case]
    (tmp_path / "spec.toml").write_text(EXAMPLE)
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "rw_steps.parquet").write_text("")
    done = without(hidden, *words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert how_to_install(extra) in done.stderr
    assert any(f"needs the package {name}" in done.stderr for name in hidden)
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"spec.toml", "log.csv", "rw_steps.parquet"}


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "--policy", "hp_ucb", "--dim", "2", "--threshold", "1", "--rounds", "10", "--seeds", "1"),
        ("plan", "--spec", "spec.toml", "--rounds", "20", "--seeds", "2"),
        ("doctor",),
        ("study", "--help"),
    ],
    ids=" ".join,
)
def test_what_needs_no_extra_runs_without_any(words, tmp_path):
    (tmp_path / "spec.toml").write_text(EXAMPLE)
    every = [package for packages, _ in EXTRAS.values() for package in packages]
    done = without(every, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_package_that_no_extra_brings_is_no_kind_word(tmp_path):
    done = without(["safedial.tools.planning"], "plan", "--dim", "2", "--threshold", "1", "--rounds", "9", cwd=tmp_path)
    assert "Traceback" in done.stderr


def test_every_package_of_the_table_is_in_its_extra():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, (packages, _) in EXTRAS.items():
        named = " ".join(declared[extra]).replace("-", "_")
        for package in packages:
            assert package in named
