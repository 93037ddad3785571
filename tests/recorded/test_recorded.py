"""What earlier versions wrote opens, verifies, and goes on as it would have gone on then.

Each folder here was written by `write.py` with the version it is named after. Hashes and counts are compared exactly;
actions within 1e-12 and evidence within 1e-9 of itself, because another processor may round a matrix product or a
logarithm otherwise (docs/study.md).
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from safedial import Agent, load_spec, open_study
from safedial.decision.rules import RULES
from safedial.study import Store, verify_store
from safedial.sweep.engine import run_sweep, status
from safedial.sweep.grid import parse_grid
from tests.recorded import certified, shield, student
from tests.recorded.write import GRID, go_on, load_agent, play, restored

HERE = Path(__file__).parent
VERSIONS = sorted(path.parent.name for path in HERE.glob("*/expected.json"))
STUDIES = ("linear", "ward", "conformal", "silent", "stopped", "shifting")
MEASURED = ("evidence", "noise_evidence")


@pytest.fixture(scope="module", params=VERSIONS)
def recorded(request):
    folder = HERE / request.param
    return folder, json.loads((folder / "expected.json").read_text())


@pytest.mark.parametrize("name", STUDIES)
def test_a_recorded_study_verifies_with_its_hash_and_goes_on_as_before(recorded, name, tmp_path):
    folder, expected = recorded
    said = expected["studies"][name]
    with Store(restored(folder, tmp_path / "store.db")) as store:
        study = open_study(name, storage=store, actor="tester")
        report = study.verify()
        assert (report.ok, report.hash, report.problem) == (True, said["hash"], "")
        now, before = study.status(), said["status"]
        assert {key: now[key] for key in before if key not in MEASURED} == {
            key: value for key, value in before.items() if key not in MEASURED
        }
        assert [now[key] for key in MEASURED] == pytest.approx([before[key] for key in MEASURED], rel=1e-9)
        assert go_on(study) == pytest.approx(said["next_actions"], rel=0, abs=1e-12)
        assert study.status()["stopped"] == said["stopped"]
        assert study.verify().ok


def test_a_history_of_each_version_of_the_rules_is_recorded():
    found = {number for path in HERE.glob("*/store.sql") for number in re.findall(r'"rules":(\d+)', path.read_text())}
    assert found | {"1"} == {str(number) for number in range(1, RULES + 1)}  # version 1 did not write its number


def test_the_keys_of_a_recorded_store_verify(recorded, tmp_path):
    with Store(restored(recorded[0], tmp_path / "store.db")) as store:
        assert verify_store(store).ok


@pytest.mark.parametrize("name", ["linear", "ward", "coin", "conformal", "kernel"])
def test_a_recorded_agent_decides_as_before(recorded, name):
    folder, expected = recorded
    agent = load_agent(folder / f"{name}.save")
    assert play(agent, 45, 8) == pytest.approx(expected["agents"][name], rel=0, abs=1e-12)


LATER = {
    "shield": (shield, "said.json"),
    "student": (student, "student.json"),
    "certified": (certified, "certified.json"),
}
"""Policies that were recorded later: what wrote their folders, and where it stands what was seen."""

WRITTEN = [(policy, path) for policy, (_, name) in LATER.items() for path in sorted(HERE.glob(f"*/{name}"))]
STUDIED = [(*each, name) for each in WRITTEN for name in json.loads(each[1].read_text()) if name != "agent"]


@pytest.mark.parametrize(
    ("policy", "path", "name"), STUDIED, ids=[f"{path.parent.name}-{name}" for _, path, name in STUDIED]
)
def test_a_study_recorded_later_verifies_with_its_hash_and_goes_on_as_before(policy, path, name, tmp_path):
    said = json.loads(path.read_text())[name]
    with Store(restored(path.parent, tmp_path / "store.db")) as store:
        study = open_study(name, storage=store, actor="tester")
        report = study.verify()
        assert (report.ok, report.hash, report.problem) == (True, said["hash"], "")
        now, before = study.status(), said["status"]
        for key in MEASURED:
            assert now[key] == pytest.approx(before.pop(key), rel=1e-9)
        assert {key: now[key] for key in before} == before
        assert LATER[policy][0].go_on(study) == pytest.approx(said["next_actions"], rel=0, abs=1e-9)
        assert study.verify().ok


@pytest.mark.parametrize(("policy", "path"), WRITTEN, ids=[path.parent.name for _, path in WRITTEN])
def test_an_agent_recorded_later_decides_as_before(policy, path):
    again = Agent.load(path.parent / f"{policy}.save")
    assert LATER[policy][0].play(again, 30, 8) == pytest.approx(json.loads(path.read_text())["agent"], rel=0, abs=1e-9)


@pytest.mark.parametrize("name", ["certified", "conformal"])
def test_a_recorded_spec_file_loads_and_makes_an_agent(recorded, name):
    loaded = load_spec(recorded[0] / f"{name}.toml")
    context = {"age": 60, "weight": 80} if name == "certified" else [0.1, 0.2]
    assert loaded.agent().decide(context).action > 0


def test_a_recorded_sweep_is_complete_and_mends_a_lost_cell_with_the_same_numbers(recorded, tmp_path):
    folder = tmp_path / "sweep"
    shutil.copytree(recorded[0] / "sweep", folder)
    assert status(folder).complete
    cell = min((folder / "cells").iterdir())
    before = json.loads(cell.read_text())
    cell.unlink()
    assert run_sweep(parse_grid(GRID), folder, jobs=1).computed == 1
    after = json.loads(cell.read_text())
    assert after["result"].keys() - before["result"].keys() <= {"attainable_reward"}  # which 0.1.0 did not write
    after["result"] = {name: after["result"][name] for name in before["result"]}
    assert _numbers(after) == pytest.approx(_numbers(before), rel=1e-9, abs=1e-12)


def _numbers(value) -> list[float]:
    """Every number of a document, in order."""
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in _numbers(value[key])]
    if isinstance(value, list):
        return [number for part in value for number in _numbers(part)]
    return [float(value)] if isinstance(value, (int, float)) else []
