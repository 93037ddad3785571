"""`python -m benchmarks replay` says what it guarantees to say; the picture is drawn from written data."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import bench
from benchmarks.replay_growth import block_times, draw_growth, slope
from benchmarks.replay_speed import bench_replay

KEYS = [
    "dim",
    "rounds",
    "dtype",
    "device",
    "reference_us_per_round",
    "rank_one_us_per_round",
    "blocked_us_per_round",
    "gemm_gflops",
    "blocked_gflops",
    "max_action_difference",
    "reference_rounds",
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_command_prints_one_object_with_the_guaranteed_keys(dtype):
    words = ["replay", "--dim", "16", "--rounds", "200", "--engine", "all", "--dtype", dtype, "--json"]
    ran = CliRunner().invoke(bench, words)
    report = json.loads(ran.stdout)
    assert list(report)[: len(KEYS)] == KEYS
    assert (report["dim"], report["rounds"], report["dtype"], report["device"]) == (16, 200, dtype, "cpu")
    assert report["reference_rounds"] == 64
    assert report["max_action_difference"] <= (1e-9 if dtype == "float64" else 1e-4)
    assert report["closest_to_the_switch"] > 1e-9


def test_one_engine_can_be_timed_alone():
    report = bench_replay(4, rounds=40, engine="rank_one")
    assert report["blocked_us_per_round"] is None
    assert report["rank_one_us_per_round"] > 0
    report = bench_replay(4, rounds=40, engine="jax", device="cpu")
    assert report["jax_us_per_round"] > 0
    assert report["kernel"] == "plain"


def test_the_picture_is_drawn_from_written_data(tmp_path):
    growth = [bench_replay(dim, rounds=20) for dim in (4, 512, 600)]
    (tmp_path / "data.json").write_text(json.dumps({"growth": growth}))
    assert draw_growth(tmp_path / "data.json", tmp_path / "growth.png").stat().st_size > 1000


def test_slopes_and_block_times_are_numbers():
    assert slope([1, 10, 100], [2, 2000, 2_000_000]) == pytest.approx(3.0)
    assert set(block_times(4, rounds=30, blocks=(8, 16))) == {8, 16}
