"""`safedial battery` as a user meets it, stdout and stderr apart."""

import json
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests import program
from tests.paper.generate import rw26_table, write_b, write_rw

BATTERY = [sys.executable, "-m", "safedial", "battery"]


def run(*words, data=None):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SAFEDIAL_DATA", str(data)) if data else patch.delenv("SAFEDIAL_DATA", raising=False)
        return program.run("battery", *words)


def test_info_counts_every_source_and_names_what_cannot_be_read(tmp_path):
    rw26_table().to_parquet(tmp_path / "rw26_steps.parquet")
    write_rw(tmp_path / "RW10.mat")
    write_rw(tmp_path / "RW9.mat")
    path = write_b(tmp_path / "B0005.mat")
    path.write_bytes(path.read_bytes()[:300])
    done = run("info", "--json", data=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    content = json.loads(done.stdout)
    assert {name: facts["rows"] for name, facts in content["sources"].items()} == {"rw26": 8, "rw_mat": 24}
    assert content["sources"]["rw_mat"]["files"] == ["RW9.mat", "RW10.mat"]
    assert content["sources"]["rw26"]["batteries"] == [
        {"source": "rw26", "battery": "RW26", "charge": 2, "discharge": 4, "rest": 2, "hours": 0.1,
         "first": "2014-11-14", "last": "2014-11-14"}
    ]  # fmt: skip
    assert "cut short" in content["unreadable"]["b_mat"]
    assert [words.partition(",")[0] for words in content["citations"]] == ["B. Bole", "B. Saha"]
    shown = run("info", "--data", tmp_path).stdout
    assert "rw26: 8 rows of rw26" in shown
    assert "Cite: B. Bole" in shown


def test_info_without_data_says_the_way_out(tmp_path):
    assert "battery fetch" in run("info", "--data", tmp_path).stdout
    for done in (run("info"), run("info", "--data", tmp_path / "absent")):
        assert done.returncode == 2
        assert done.stdout == ""
        assert "give --data DIR or set SAFEDIAL_DATA" in done.stderr
        assert "Traceback" not in done.stderr


def test_fetch_reports_and_a_wrong_checksum_is_one_sentence(server, tmp_path):
    folder = tmp_path / "data"
    refused = run("fetch", "--data", folder, "--url", server.url, "--sha256", "0" * 64)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert "SHA-256" in refused.stderr
    done = run("fetch", "--url", server.url, "--json", data=folder)
    assert list(json.loads(done.stdout)["files"]) == ["RW9.mat", "RW10.mat"]
    assert run("fetch", "--data", folder, "--url", server.url).stdout.startswith("There already")


def test_ctrl_c_keeps_what_came_and_the_next_fetch_goes_on(server, tmp_path):
    server.stall, server.break_after = threading.Event(), 5000
    words = [*BATTERY, "fetch", "--data", str(tmp_path / "data"), "--url", server.url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 20
        while not any(path.stat().st_size == 5000 for path in (tmp_path / "data").glob("*.partial")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=20)
    server.stall.set()
    assert (process.returncode, complaint) == (130, "safedial: interrupted; what was written so far is kept\n")
    server.stall = server.break_after = None
    assert run("fetch", "--data", tmp_path / "data", "--url", server.url).stdout.startswith("Fetched")
    assert server.asked == [None, "bytes=5000-"]
