"""`safedial battery embed` and `reproduce battery --embedder` as a user meets them; torch is not installed here."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from safedial import InvalidInput, MissingExtra
from safedial.errors import how_to_install
from safedial.paper.embedders import EMBEDDERS, Embedder, open_embedder
from tests import program
from tests.paper.generate import rw_samples, write_rw

OWN = """
import sys, time, numpy as np
from safedial.cli import main
from safedial.paper.embedders import Embedder
from safedial.paper.embedders import EMBEDDERS
def embed(texts):
    with open("calls", "a") as calls:
        calls.write(".")
    time.sleep(0.05)
    return np.array([[len(text), text.count("1"), text.count("7")] for text in texts])
EMBEDDERS["own"] = lambda weights, cache: Embedder("own", 3, "none", "1", embed)
main()
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_rw(folder / "RW9.mat", rw_samples(steps=300, seed=9))
    return folder


def places(data, cache):
    return ["--data", str(data), "--cache", str(cache), "--source", "rw_mat"]


def run(*words, data, cache):
    """As the program OWN, without its pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EMBEDDERS, "own", lambda weights, cache: Embedder("own", 3, "none", "1", embed))
        return program.run(*words, *places(data, cache))


def embed(texts):
    return np.array([[len(text), text.count("1"), text.count("7")] for text in texts])


@pytest.mark.parametrize("words", [("battery", "embed"), ("reproduce", "battery")], ids=" ".join)
def test_an_absent_package_is_one_sentence_with_the_way_out_and_no_cache_is_made(data, tmp_path, words):
    out = ("--out", str(tmp_path / "out")) if words[0] == "reproduce" else ()
    done = program.run(*words, "--embedder", next(iter(EMBEDDERS)), *out, *places(data, tmp_path / "cache"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"this needs the package torch: {how_to_install('text')}" in done.stderr
    assert not (tmp_path / "cache").exists()
    assert not list(tmp_path.glob("out/*"))


def test_opening_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="embedder = 'tea-leaves': must be one of gemma3-270m, minilm, gemma-2b"):
        open_embedder("tea-leaves")
    with pytest.raises(InvalidInput, match=r"weights = .*there is no such folder"):
        open_embedder("gemma-2b", weights=tmp_path / "none")
    with pytest.raises(MissingExtra, match="torch"):
        open_embedder("gemma-2b", weights=tmp_path)


def test_an_embedder_of_ones_own_fills_the_cache_bit_by_bit_and_feeds_the_experiment(data, tmp_path):
    embed = ("battery", "embed", "--embedder", "own")
    first = run(*embed, "--limit", "10", "--batch-size", "4", "--json", data=data, cache=tmp_path / "cache")
    told = json.loads(first.stdout)
    assert (told["before"], told["computed"], told["left"]) == (0, 10, told["texts"] - 10)
    assert "10 before, 0 left; kept in" in run(*embed, data=data, cache=tmp_path / "cache").stdout
    out = ("--out", str(tmp_path / "out"), "--seeds", "1", "--json")
    done = run("reproduce", "battery", "--embedder", "own", *out, data=data, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "out" / "battery.provenance.json").read_text())["settings"]
    assert settings["vectors"] == {"model": "own", "dim": 3, "pooling": "none", "fingerprint": "1"}


def test_ctrl_c_keeps_what_was_embedded_and_the_next_call_goes_on(data, tmp_path):
    embed = ["battery", "embed", "--embedder", "own", "--batch-size", "2", *places(data, tmp_path)]
    words = [sys.executable, "-c", OWN, *embed]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, text=True, cwd=tmp_path) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "calls").exists() or (tmp_path / "calls").stat().st_size < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=20)
    assert (process.returncode, complaint) == (130, "safedial: interrupted; what was written so far is kept\n")
    done = run("battery", "embed", "--embedder", "own", "--json", data=data, cache=tmp_path)
    told = json.loads(done.stdout)
    assert told["before"] >= 2
    assert told["left"] == 0
    assert sorted(os.listdir(tmp_path / "own"))[-1] == "label.json"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("battery", "embed", "--embedder", "numeric"), "embedder = 'numeric': must be one of gemma3-270m"),
        (("battery", "embed", "--embedder", "own", "--batch-size", "0"), "batch_size = 0"),
        (("reproduce", "battery", "--embedder", "gemma"), "embedder = 'gemma': must be one of precomputed, numeric"),
        (("reproduce", "battery", "--embedder", "own", "--split", "dice"), "split = 'dice'"),
        (("reproduce", "battery", "--embedder", "own", "--engine", "steam"), "engine = 'steam'"),
    ],
)
def test_a_wrong_word_is_named_before_anything_is_computed(data, tmp_path, words, named):
    done = run(*words, data=data, cache=tmp_path / "cache")
    assert (done.returncode, done.stdout) == (2, "")
    assert named in done.stderr
    assert not (tmp_path / "cache").exists()
