"""Vectors on disk: computed once, whole whatever happens, and never taken for another model's."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from safedial import InvalidInput
from safedial.paper import embedders as cache_module
from safedial.paper.embedders import Embedder, cache_folder, cached_vectors, fill_cache, text_hash

TEXTS = [f"step {number}" for number in range(20)]


def counting(dim=3):
    """An embedder and the list of all texts it was given."""
    seen = []

    def embed(texts):
        seen.extend(texts)
        return np.array([[len(text), int(text_hash(text)[:4], 16), *[0.5] * (dim - 2)] for text in texts])

    return Embedder("counting", dim, "none", "weights 1", embed), seen


def test_each_text_is_computed_once_and_comes_back_in_the_order_asked_for(tmp_path):
    embedder, seen = counting()
    done = fill_cache(embedder, [*TEXTS, *TEXTS], tmp_path, batch_size=7, limit=8)
    assert done[1:] == (20, 0, 8)
    vectors = cached_vectors(embedder, TEXTS[::-1], tmp_path)
    assert sorted(seen) == sorted(TEXTS)
    np.testing.assert_array_equal(vectors, embedder.embed(TEXTS[::-1]))
    assert vectors.dtype == np.float64
    seen.clear()
    assert fill_cache(embedder, TEXTS, tmp_path)[1:] == (20, 20, 0)
    assert cached_vectors(embedder, [], tmp_path).shape == (0, 3)
    assert seen == []


def test_progress_counts_what_is_to_do(tmp_path):
    told = []
    fill_cache(counting()[0], TEXTS, tmp_path, batch_size=8, progress=lambda *pair: told.append(pair))
    assert told == [(0, 20), (8, 20), (16, 20), (20, 20)]


@pytest.mark.parametrize("change", [{"dim": 4}, {"pooling": "last token"}, {"fingerprint": "weights 2"}])
def test_vectors_of_another_model_are_refused_and_left_as_they_are(tmp_path, change):
    embedder, _ = counting()
    fill_cache(embedder, TEXTS, tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "counting").iterdir()}
    ((name, value),) = change.items()
    with pytest.raises(InvalidInput, match=f"another model: {name} .*, not {value!r}; name another folder"):
        fill_cache(replace(embedder, **change), TEXTS, tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "counting").iterdir()} == before


@pytest.mark.parametrize("damage", ["cut", "emptied", "flipped", "other shape"])
def test_a_damaged_part_is_named_with_the_way_out(tmp_path, damage):
    embedder, _ = counting()
    fill_cache(embedder, TEXTS, tmp_path)
    (part,) = (tmp_path / "counting").glob("*.npz")
    content = part.read_bytes()
    if damage == "other shape":
        np.savez(part, key=np.zeros((2, 32), dtype=np.uint8), vector=np.zeros((2, 9), dtype=np.float32))
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        part.write_bytes({"cut": content[:-100], "emptied": b"", "flipped": flipped}[damage])
    with pytest.raises(InvalidInput, match=r"\.npz': is damaged or cut short .*; remove this file"):
        cached_vectors(embedder, TEXTS, tmp_path)
    part.unlink()
    assert fill_cache(embedder, TEXTS, tmp_path).computed == 20


def test_an_interruption_keeps_what_was_computed_and_the_next_call_goes_on(tmp_path):
    embedder, seen = counting()

    def embed(texts):
        if len(seen) >= 15:
            raise KeyboardInterrupt
        return embedder.embed(texts)

    with pytest.raises(KeyboardInterrupt):
        fill_cache(replace(embedder, embed=embed), TEXTS, tmp_path, batch_size=5)
    assert fill_cache(embedder, TEXTS, tmp_path)[1:] == (20, 15, 5)
    assert len(seen) == 20


@pytest.mark.parametrize(
    "vectors", [np.ones((20, 2)), np.ones(20), np.full((20, 3), np.nan)], ids=["narrow", "flat", "not a number"]
)
def test_vectors_that_cannot_be_meant_are_never_kept(tmp_path, vectors):
    embedder = replace(counting()[0], embed=lambda texts: vectors)
    with pytest.raises(InvalidInput, match="finite vectors of shape"):
        fill_cache(embedder, TEXTS, tmp_path, batch_size=20)
    assert not list(tmp_path.glob("*/*.npz"))


def test_a_label_that_is_gone_or_damaged_and_a_folder_that_is_none_are_named(tmp_path):
    embedder, _ = counting()
    label = fill_cache(embedder, TEXTS, tmp_path).folder / "label.json"
    for content, words in ((None, "without a label.json"), (b"{", "cannot be read"), (b"[]", "another model")):
        label.unlink()
        if content is not None:
            label.write_bytes(content)
        with pytest.raises(InvalidInput, match=words):
            fill_cache(embedder, TEXTS, tmp_path)
        label.touch()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be used"):
        fill_cache(embedder, TEXTS, tmp_path / "file")
    for wrong in ({"batch_size": 0}, {"limit": -1}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            fill_cache(embedder, TEXTS, tmp_path / "new", **wrong)
    assert not (tmp_path / "new").exists()


WRITER = """
import sys, numpy as np
from pathlib import Path
from safedial.paper import embedders as cache
from safedial.paper.embedders import Embedder
cache.SAVE_SECONDS = 0.0
embedder = Embedder("wide", 250_000, "none", "1", lambda texts: np.full((len(texts), 250_000), len(texts[0])))
cache.fill_cache(embedder, [str(number) for number in range(100_000)], Path(sys.argv[1]), batch_size=2)
"""


def test_a_killed_program_leaves_whole_parts_only(tmp_path):
    """SIGKILL at three moments while parts of 2 MB are written one after the other: no part is ever half there."""
    wide = Embedder("wide", 250_000, "none", "1", lambda texts: np.zeros((len(texts), 250_000)))
    kept = 0
    for pause in (0.0, 0.003, 0.007):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)]) as process:
            deadline = time.monotonic() + 60
            while len(list(tmp_path.glob("wide/*.npz"))) <= kept:
                assert time.monotonic() < deadline
                time.sleep(0.002)
            time.sleep(pause)
            process.send_signal(signal.SIGKILL)
        known = cache_module._read_cached(tmp_path / "wide", wide.dim)
        assert len(known) == 2 * len(list(tmp_path.glob("wide/*.npz")))
        kept = len(known) // 2
    assert fill_cache(wide, ["0", "1", "2", "new"], tmp_path).before >= 2


def test_the_cache_is_where_the_user_says(tmp_path, monkeypatch):
    assert cache_folder(tmp_path) == tmp_path
    monkeypatch.setenv("SAFEDIAL_CACHE", str(tmp_path / "a"))
    assert cache_folder() == tmp_path / "a"
    monkeypatch.delenv("SAFEDIAL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert cache_folder() == tmp_path / "b" / "safedial"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder().parts[-2:] == (".cache", "safedial")
    label = fill_cache(counting()[0], ["a"], tmp_path).folder / "label.json"
    assert json.loads(label.read_text()) == {
        "model": "counting",
        "dim": 3,
        "pooling": "none",
        "fingerprint": "weights 1",
    }
    assert os.listdir(tmp_path) == ["counting"]
