"""Texts, their hashes, vectors joined by them, and contexts made of them."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from safedial import InvalidInput
from safedial.paper.embedders import context_texts, find_targets, halves, make_contexts, numeric, precomputed, text_hash


def steps_of(count=9, group="RW26"):
    """A plain step table; the fourth row rests, the sixth has too little current."""
    numbers = np.arange(count, dtype=float)
    current = np.where(numbers % 2 == 0, 1.0, -0.75)
    kind = np.where(current > 0, "discharge", "charge").astype(object)
    kind[3], current[3], current[5] = "rest", 0.0, -0.01
    return pd.DataFrame(
        {
            "battery": "RW26",
            "group": group,
            "step": np.arange(1, count + 1),
            "kind": kind,
            "note": "random walk",
            "current": current,
            "v_start": 4.0 - numbers / 100,
            "v_end": 3.99 - numbers / 100,
            "dv": np.full(count, -0.01),
            "temp_mean": 25.0 + numbers / 8,
            "duration": 60.0 + numbers,
        }
    )


def test_a_text_tells_the_five_active_steps_before_newest_first():
    steps = steps_of()
    targets = find_targets(steps)
    assert targets.rows.tolist() == [7, 8]
    assert targets.history.tolist() == [[6, 4, 2, 1, 0], [7, 6, 4, 2, 1]]
    text = context_texts(steps, targets)[0]
    assert text.startswith(
        '[{"kind":"discharge","note":"random walk","amps":1.0,"volts_start":3.94,"volts_end":3.93,'
        '"volts_change":-0.01,"celsius":25.75,"seconds":66.0},'
    )
    assert [row["seconds"] for row in json.loads(text)] == [66.0, 64.0, 62.0, 61.0, 60.0]
    assert text_hash(text) == hashlib.sha256(text.encode()).hexdigest()


def test_groups_do_not_share_a_history_and_short_ones_have_no_target():
    both = pd.concat([steps_of(9, "a"), steps_of(6, "b"), steps_of(9, "c")], ignore_index=True)
    targets = find_targets(both)
    assert targets.rows.tolist() == [7, 8, 22, 23]
    assert find_targets(steps_of(9).iloc[:0]).rows.size == 0
    assert numeric(both, targets).shape == (4, 35)


def saved(path, steps, **changes):
    targets = find_targets(steps)
    texts = context_texts(steps, targets)
    parts = {
        "embedding": np.arange(2 * len(texts), dtype=np.float16).reshape(-1, 2),
        "battery": np.array(["RW26"] * len(texts)),
        "key": steps["step"].to_numpy()[targets.rows].astype(np.int32),
        "text_sha256": np.array([text_hash(text)[:16].encode() for text in texts]),
    }
    kept = {name: value for name, value in (parts | changes).items() if value is not None}
    np.savez(path, **kept)
    return path, targets


def test_precomputed_vectors_are_joined_by_key_in_any_order(tmp_path):
    steps = steps_of(12)
    path, targets = saved(tmp_path / "v.npz", steps)
    with np.load(path) as archive:
        turned = {name: archive[name][::-1] for name in archive.files}
    np.savez(path, **turned)
    vectors, chosen = precomputed(path, steps, targets)
    assert chosen.rows.tolist() == targets.rows.tolist()
    assert vectors[0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"text_sha256": np.array([b"0" * 16] * 2)}, "not computed from the text"),
        ({"key": np.array([900, 901], dtype=np.int32)}, "no vector for any step"),
        ({"text_sha256": None}, "lacks text_sha256"),
        ({"embedding": np.array([[np.nan, 1.0], [0.0, 1.0]])}, "not whole"),
        ({"embedding": np.ones((3, 2))}, "not whole"),
    ],
)
def test_vectors_of_something_else_are_refused(tmp_path, changes, named):
    steps = steps_of()
    path, targets = saved(tmp_path / "v.npz", steps, **changes)
    with pytest.raises(InvalidInput, match=named):
        precomputed(path, steps, targets)


def test_a_missing_or_broken_file_is_named(tmp_path):
    steps = steps_of()
    with pytest.raises(InvalidInput, match="no such file"):
        precomputed(tmp_path / "none.npz", steps, find_targets(steps))
    path, targets = saved(tmp_path / "v.npz", steps)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InvalidInput, match="cannot be read"):
        precomputed(path, steps, targets)


def test_contexts_are_centred_and_whitened_on_the_fit_part_alone():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((400, 4)) * [9.0, 3.0, 1.0, 0.1] + 50.0
    kind, warmth, fit = np.array(["charge", "discharge"] * 200), rng.normal(30, 5, 400), np.arange(400) < 200
    made = make_contexts(vectors, kind, warmth, fit, floor=1e-6)
    assert made.rows.shape == (400, 7)
    assert np.linalg.norm(made.rows, axis=1).max() <= 1.0
    moved = vectors.copy()
    moved[~fit] += 1e3
    again = make_contexts(moved, kind, warmth, fit, floor=1e-6)
    np.testing.assert_allclose(again.rows[fit], made.rows[fit])
    spread = made.rows[fit, :4].std(axis=0)
    assert spread.max() / spread.min() < 1.05
    kept = make_contexts(vectors, kind, warmth, fit, floor=1.0).rows[fit, :4].std(axis=0)
    assert kept.max() / kept.min() > 50
    with pytest.raises(InvalidInput, match="floor"):
        make_contexts(vectors, kind, warmth, fit, floor=0.0)
    with pytest.raises(InvalidInput, match="no rounds"):
        make_contexts(vectors, kind, warmth, fit & False, floor=0.5)


def test_splits_are_in_time():
    group = np.array(["a"] * 4 + ["b"] * 6)
    assert halves(group, None, "battery").tolist() == [True] * 2 + [False] * 2 + [True] * 3 + [False] * 3
    start = np.array(["2020-01-10", "2020-01-01", "2020-01-02", "2020-01-09"], dtype="datetime64[ns]")
    assert halves(group[:4], start, "calendar").tolist() == [False, True, True, False]
    with pytest.raises(InvalidInput, match="split"):
        halves(group, None, "random")
    with pytest.raises(InvalidInput, match="start of each step"):
        halves(group[:1], np.array(["NaT"], dtype="datetime64[ns]"), "calendar")
