"""`safedial serve` and `safedial key` as users run them."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from safedial.service.client import Client
from tests.program import process, run
from tests.service.conftest import Caller
from tests.study.conftest import SPEC


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_keys_are_made_listed_and_revoked(tmp_path):
    storage = f"sqlite:///{tmp_path}/trial.db"
    made = process("key", "create", "--role", "decide", "--storage", storage)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("sd_")
    again = json.loads(run("key", "create", "--role", "read", "--storage", storage, "--json").stdout)
    listed = json.loads(run("key", "list", "--storage", storage, "--json").stdout)["keys"]
    assert [key["role"] for key in listed] == ["decide", "read"]
    assert made.stdout.strip() not in json.dumps(listed)
    gone = run("key", "revoke", again["id"], "--storage", storage, "--reason", "left the team")
    assert gone.returncode == 0
    assert again["id"] in run("key", "list", "--storage", storage).stdout
    twice = run("key", "revoke", again["id"], "--storage", storage)
    assert (twice.returncode, "revoked already" in twice.stderr) == (2, True)
    assert run("key", "create", "--role", "king", "--storage", storage).returncode == 2


def test_another_address_without_keys_is_refused_in_one_sentence(tmp_path):
    done = run("serve", "--storage", f"sqlite:///{tmp_path}/t.db", "--host", "0.0.0.0")  # noqa: S104 -- refused
    assert done.returncode == 2
    assert "needs keys" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_port_that_was_free_is_named(tmp_path, monkeypatch, host):
    asked = []
    monkeypatch.setattr("safedial.service.server.uvicorn.run", lambda app, *, port, **options: asked.append(port))
    done = run("serve", "--storage", f"sqlite:///{tmp_path}/t.db", "--port", "0", "--host", host)
    assert asked[0] > 0
    assert f"at http://{host}:{asked[0]}/ " in done.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", asked[0]))


def test_a_new_store_is_announced_and_a_service_only_when_it_can_start(tmp_path, monkeypatch):
    monkeypatch.setattr("safedial.service.server.uvicorn.run", lambda app, **options: None)
    refused = run("serve", "--storage", f"sqlite:///{tmp_path}/t.db", "--port", "80000")
    assert (refused.returncode, "must lie between 0 and 65535" in refused.stderr) == (2, True)
    assert "serves" not in refused.stderr
    assert not list(tmp_path.iterdir())
    made, again = (run("serve", "--storage", f"sqlite:///{tmp_path}/t.db", "--port", "8123") for _ in range(2))
    assert "t.db did not exist: a new, empty store was created" in made.stderr
    assert "created" not in again.stderr
    assert all("at http://127.0.0.1:8123/ " in done.stderr for done in (made, again))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_serve_runs_until_it_is_told_to_stop_and_keeps_everything(storage, workers):
    port = free_port()
    words = ["serve", "--storage", storage, "--port", str(port), "--workers", str(workers)]
    quiet = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, "-m", "safedial", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quiet
    )
    client = Client(f"http://127.0.0.1:{port}", retries=100, pause=0.02, timeout=20)
    client.create_study("trial", SPEC)
    seqs = [client.ask("trial", [0.1, 0.01 * number]).seq for number in range(20)]
    client.close()
    assert Caller(f"http://127.0.0.1:{port}").get("/docs").status == 200
    server.send_signal(signal.SIGINT)
    out, err = server.communicate(timeout=30)
    assert "Traceback" not in out + err, err
    assert seqs == list(range(2, 22))
    assert json.loads(run("study", "verify", "trial", "--storage", storage, "--json").stdout)["decisions"] == 20


def test_the_demo_ends_cleanly_on_an_interrupt_and_says_where_its_file_is(tmp_path):
    words = [sys.executable, "-m", "safedial", "demo", "--folder", str(tmp_path), "--pace", "20"]
    demo = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert "The operator page: http://127.0.0.1:" in demo.stdout.readline()
    demo.send_signal(signal.SIGINT)
    out, err = demo.communicate(timeout=30)
    assert (demo.returncode, err) == (0, "")
    assert f"Everything is in {tmp_path}/demo.db" in out
    again = run("demo", "--folder", tmp_path, "--seconds", 1)
    assert (again.returncode, "already holds a demo.db" in again.stderr) == (2, True)
