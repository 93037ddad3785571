"""Sweeps end with the same bytes, however they are run, and lose nothing when something is killed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path

import psutil
import pytest
from distributed import LocalCluster

from safedial import InvalidInput
from safedial.simulation.sweeps import (
    cell_path,
    parse_grid,
    read_cell,
    read_grid,
    run_sweep,
    status,
    sweep_rows,
    write_table,
)
from safedial.stats import seed_interval
from tests.program import process, run
from tests.simulation.test_grid import GRID


def files(folder):
    return {path.name: path.read_bytes() for path in (Path(folder) / "cells").iterdir()}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    run_sweep(parse_grid(GRID), folder, jobs=1)
    return files(folder)


def test_any_number_of_jobs_gives_the_same_bytes(reference, tmp_path):
    state = run_sweep(parse_grid(GRID), tmp_path, jobs=2)
    assert (state.done, state.computed, state.complete) == (18, 18, True)
    assert files(tmp_path) == reference


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the cluster's own shutdown chatter is not ours to judge
def test_a_dask_cluster_gives_the_same_bytes(reference, tmp_path):
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        state = run_sweep(parse_grid(GRID), tmp_path, backend="dask", address=cluster.scheduler_address)
        (tmp_path / "own_of_dask.py").write_text("from safedial import hp_ucb as own, LinearWorld as place\n")
        text = GRID[: GRID.index("[[policy]]")].replace("dim = 3", 'dim = 3\nname = "own_of_dask:place"')
        with chdir(tmp_path):
            grid = parse_grid(text + '[[policy]]\nname = "own_of_dask:own"\n')
            own = run_sweep(grid, tmp_path / "own", backend="dask", address=cluster.scheduler_address)
    assert (own.failed, own.complete) == ({}, True), "workers import from the folder of the sweep"
    assert state.complete
    assert files(tmp_path) == reference


def test_running_again_recomputes_nothing_and_mends_what_is_damaged(reference, tmp_path):
    grid = parse_grid(GRID)
    run_sweep(grid, tmp_path, jobs=1)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    assert run_sweep(grid, tmp_path, jobs=1).computed == 0
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").iterdir()}
    first, second, third, fourth, fifth, sixth = (cell_path(tmp_path, cell) for cell in grid.cells[:6])
    fifth.write_bytes(sixth.read_bytes())
    first.unlink()
    second.write_text(second.read_text()[:100])
    third.write_text(third.read_text().replace("1", "2", 3))
    fourth.write_text("[]")
    state = status(tmp_path)
    assert (state.done, state.missing, state.damaged) == (13, 1, 4)
    assert run_sweep(grid, tmp_path, jobs=1).computed == 5
    assert files(tmp_path) == reference


def test_a_cell_that_fails_is_listed_and_the_rest_goes_on(tmp_path):
    grid = parse_grid(FAILING + '[[policy]]\nname = "hp_ucb"\n')
    state = run_sweep(grid, tmp_path, jobs=2)
    assert state.done == len(grid.cells) - 6
    assert len(state.failed) == 6
    assert all("sensor noise" in reason for reason in state.failed.values())


FAILING = GRID[: GRID.index("[[policy]]")].replace("cost_noise", "cost_sensor_noise = 0.1\ncost_noise", 1) + (
    '[[policy]]\nname = "hp_conformal"\n'
)
"""A grid whose cells all fail when they run: this policy needs a sensor without error."""

LONG = GRID.replace("rounds = 40", "rounds = 1000").replace("seeds = 5", "seeds = 8")


def start(tmp_path, *extra):
    (tmp_path / "grid.toml").write_text(LONG)
    words = [
        sys.executable,
        "-m",
        "safedial",
        "sweep",
        "run",
        str(tmp_path / "grid.toml"),
        "--out",
        str(tmp_path / "out"),
    ]
    return subprocess.Popen([*words, *extra], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_cells(tmp_path, number):
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "out" / "cells").glob("*.json"))) < number:
        assert time.monotonic() < deadline, "no cells appear"
        time.sleep(0.02)


def workers(started):
    """The loky workers of a sweep: those of its children that run cells."""
    children = psutil.Process(started.pid).children(recursive=True)
    return [child for child in children if "popen_loky" in " ".join(child.cmdline())]


@pytest.fixture(scope="module")
def long_reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    run_sweep(parse_grid(LONG), folder, jobs=2)
    return files(folder)


@pytest.mark.slow
def test_a_worker_killed_mid_sweep_is_survived_and_the_bytes_are_the_same(long_reference, tmp_path):
    started = start(tmp_path, "--jobs", "2")
    wait_for_cells(tmp_path, 2)
    victim = workers(started)[0]
    os.kill(victim.pid, signal.SIGKILL)
    _, errors = started.communicate(timeout=600)
    assert started.returncode == 0, errors
    assert files(tmp_path / "out") == long_reference


@pytest.mark.slow
def test_a_sweep_killed_outright_is_resumed_where_it_stopped(long_reference, tmp_path):
    started = start(tmp_path, "--jobs", "2")
    wait_for_cells(tmp_path, 3)
    family = [psutil.Process(started.pid), *psutil.Process(started.pid).children(recursive=True)]
    for member in family:
        member.kill()
    started.communicate()
    kept = len(list((tmp_path / "out" / "cells").glob("*.json")))
    assert 3 <= kept < 24
    again = start(tmp_path, "--jobs", "2", "--json")
    output, errors = again.communicate(timeout=600)
    assert again.returncode == 0, errors
    assert json.loads(output)["computed"] == 24 - kept
    assert files(tmp_path / "out") == long_reference


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_dask_worker_killed_mid_sweep_is_survived(long_reference, tmp_path):
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        started = start(tmp_path, "--backend", "dask", "--address", cluster.scheduler_address)
        wait_for_cells(tmp_path, 2)
        victim = next(iter(cluster.workers.values()))
        os.kill(victim.pid, signal.SIGKILL)
        _, errors = started.communicate(timeout=600)
    assert started.returncode == 0, errors
    assert files(tmp_path / "out") == long_reference


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_finished(tmp_path):
    started = start(tmp_path, "--jobs", "2")
    wait_for_cells(tmp_path, 2)
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "interrupted" in errors
    assert status(tmp_path / "out").done >= 2


@pytest.mark.slow
def test_a_finished_sweep_of_a_thousand_cells_recomputes_nothing(tmp_path):
    grid = read_grid("thousand")
    short = parse_grid(grid.text.replace("rounds = 500", "rounds = 5"))
    assert run_sweep(short, tmp_path).computed == 1000
    assert run_sweep(short, tmp_path).computed == 0


def test_the_table_pools_seeds_and_names_what_varies(tmp_path):
    grid = parse_grid(GRID)
    run_sweep(grid, tmp_path, jobs=1)
    rows = sweep_rows(tmp_path)
    assert len(rows) == 6
    assert all(row["seeds"] == 5 for row in rows)
    first = [read_cell(cell_path(tmp_path, cell))["result"] for cell in grid.cells[:3]]
    pooled = [value for result in first for value in result["regret"]]
    assert rows[0]["regret"] == pytest.approx(sum(pooled) / 5)
    assert (rows[0]["regret_low"], rows[0]["regret_high"]) == seed_interval(pooled)
    assert write_table(tmp_path).read_text().count("\n") == 7


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"jobs": 0}, "jobs"),
        ({"backend": "spark"}, "backend"),
        ({"backend": "dask"}, "address"),
        ({"address": "tcp://127.0.0.1:1"}, "backend"),
    ],
)
def test_a_wrong_way_to_run_is_refused(arguments, named, tmp_path):
    with pytest.raises(InvalidInput, match=named):
        run_sweep(parse_grid(GRID), tmp_path, **arguments)


def command(*words):
    return run("sweep", *words)


def test_an_engine_or_a_device_that_is_not_here_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    gpu = parse_grid(SMALL.replace("rounds = 40", 'rounds = 40\nengine = "jax"\ndevice = "gpu"'))
    for jobs in (1, 2):
        with pytest.raises(InvalidInput, match="device = 'gpu': is not one that JAX sees"):
            run_sweep(gpu, tmp_path / "out", jobs=jobs)
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "safedial.simulation.jax_device", raising=False)
    with pytest.raises(InvalidInput, match="this needs the package jax: pip install"):
        run_sweep(gpu, tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_address_with_no_scheduler_behind_it_is_named(tmp_path):
    run_sweep(parse_grid(SMALL), tmp_path, jobs=1)
    (tmp_path / "other.toml").write_text(GRID)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    words = ("--out", tmp_path, "--backend", "dask", "--address", address)
    done = process("sweep", "run", tmp_path / "other.toml", *words)
    assert done.returncode == 2
    assert status(tmp_path).complete, "the finished sweep is as it was"
    assert "no Dask scheduler answers" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_line_runs_reports_and_draws(tmp_path):
    (tmp_path / "grid.toml").write_text(GRID)
    out = str(tmp_path / "out")
    done = command("run", str(tmp_path / "grid.toml"), "--out", out, "--jobs", "1", "--json")
    assert json.loads(done.stdout)["done"] == 18
    assert command("status", out).returncode == 0
    assert "18 of 18 cells done" in command("status", out).stdout
    next((tmp_path / "out" / "cells").iterdir()).unlink()
    assert command("status", out, "--json").returncode == 1
    drawn = command("plot", out, "--x", "threshold")
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert command("plot", out, "--x", "colour").returncode == 2
    assert command("status", str(tmp_path / "nowhere")).returncode == 2
    (tmp_path / "bad.toml").write_text(FAILING)
    done = command("run", str(tmp_path / "bad.toml"), "--out", str(tmp_path / "bad"), "--jobs", "1")
    assert done.returncode == 1
    assert "failed:" in done.stdout


SMALL = GRID.replace("[0.2, 0.5]", "0.5").replace('["paper", "mixture"]', '"mixture"').replace("seeds = 5", "seeds = 2")


@pytest.mark.slow
def test_a_grid_names_its_engine_and_the_results_say_which_one_played(tmp_path):
    tables = {}
    for engine in ("numpy", "auto", "jax"):
        grid = parse_grid(SMALL.replace("rounds = 40", f'rounds = 40\nengine = "{engine}"'))
        assert run_sweep(grid, tmp_path / engine, jobs=1).complete
        tables[engine] = sweep_rows(tmp_path / engine)
        told = json.loads((tmp_path / engine / "provenance.json").read_text())
        assert told["settings"]["engine"] == engine
        assert "jax" in told["versions"]
    assert [row.pop("engine") for row in tables["auto"]] == ["numpy"] * 2
    assert tables["auto"] == tables["numpy"]
    assert [row.pop("engine") for row in tables["jax"]] == ["jax"] * 2
    for one, other in zip(tables["jax"], tables["numpy"], strict=True):
        assert one["regret"] == pytest.approx(other["regret"], abs=1e-9)


def test_the_usual_engine_does_not_change_the_names_of_cells():
    said = SMALL.replace("rounds = 40", 'rounds = 40\nengine = "numpy"')
    assert parse_grid(said).cells == parse_grid(SMALL).cells


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('engine = "torch"', "engine = 'torch': must be one of"),
        ('device = "gpu"', "device = 'gpu': is for engine jax only"),
        ("engine = 1", r"\[sweep\] engine = 1: must be text"),
    ],
)
def test_an_engine_that_there_is_not_is_refused_before_a_folder_is_made(line, named):
    with pytest.raises(InvalidInput, match=named):
        parse_grid(SMALL.replace("rounds = 40", f"rounds = 40\n{line}"))
