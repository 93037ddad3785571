"""The JAX form plays what `blocked` plays; its fused kernel is interpreted here, and lowered for CUDA without a GPU."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedial import InvalidInput, hill, make_policy, replay
from safedial.errors import how_to_install
from safedial.simulation import jax_blocked, jax_replay
from tests.conftest import FULL, make_spec
from tests.simulation.data import KINDS, assert_clear_of_the_switch, make_rounds

QUIET = {"reward_noise": 0.05, "cost_noise": 0.05}
LINEAR = ("hp_ucb", "hp_probe", "on_expectation", "epsilon_greedy", "thompson", "fixed")
HAS_GPU = any(device.platform == "gpu" for device in jax.devices())


def both(policy, rounds, spec, *, block=64, run=16, form="plain", optimised=False, **given):
    """`optimised` compiles as users do; without it XLA needs two thirds of the time for programs that run once."""
    slow = replay(policy, *rounds, spec, **given)
    assert_clear_of_the_switch(slow, 1e-11)
    jax.config.update("jax_disable_most_optimizations", not optimised)
    try:
        fast = replay(policy, *rounds, spec, engine="jax", device="cpu", block=block, run=run, kernel=form, **given)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    assert fast.kernel == form
    return slow, fast


def assert_same(slow, fast):
    assert np.abs(slow.intensity - fast.intensity).max() <= 1e-9
    np.testing.assert_allclose(slow.cost_upper, fast.cost_upper, atol=1e-8)
    np.testing.assert_array_equal(slow.certified, fast.certified)
    for mine, other in zip(slow.estimates, fast.estimates, strict=True):
        assert mine.informative_rounds == other.informative_rounds
        for name in ("inverse", "reward_coef", "cost_coef", "log_det"):
            np.testing.assert_allclose(getattr(mine, name), getattr(other, name), atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize("form", ["plain", "interpret"])
@pytest.mark.parametrize("kind", KINDS)
def test_jax_plays_what_blocked_plays(kind, form):
    rounds = make_rounds(kind, 333, 10)
    assert_same(*both("hp_ucb", rounds, make_spec(**QUIET, threshold=0.3, ridge=0.1), form=form, optimised=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", LINEAR)
def test_every_linear_policy_runs_in_jax(name):
    rounds = make_rounds("random", 150, 5)
    rng = np.random.default_rng(3)
    given = {"coins": rng.random(150), "informative": rng.random(150) < 0.7}
    assert_same(*both(name, rounds, make_spec(**QUIET, threshold=0.3, ridge=0.1), **given))


@pytest.mark.slow
@settings(max_examples=40 if FULL else 5)
@given(
    count=st.integers(1, 90),
    block=st.integers(1, 100),
    run=st.sampled_from([1, 2, 8, 32]),
    shown=st.sampled_from([0.0, 0.4, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_blocks_runs_masks_and_tails_do_not_matter(count, block, run, shown, seed):
    block = min(block, jax_blocked.RUNS * run)
    rounds = make_rounds("duplicated", count, 4, seed=seed)
    informative = np.random.default_rng(seed).random(count) < shown
    spec = make_spec(**QUIET, threshold=0.3, ridge=0.1)
    assert_same(*both("hp_probe", rounds, spec, block=block, run=run, informative=informative))


def test_sensor_noise_dose_curves_baselines_and_rows_of_their_own():
    rounds = make_rounds("random", 120, 4)
    errors = 0.01 * np.random.default_rng(1).standard_normal((2, 120))
    spec = make_spec(**QUIET, threshold=[0.2, 0.5], ridge=0.1, reward_sensor_noise=0.01, cost_sensor_noise=0.02)
    sensed = {"reward_sensor": errors[0], "cost_sensor": errors[1], "dose": hill(0.5), "baseline_cost": 0.05}
    slow, fast = both("hp_probe", rounds, spec, **sensed)
    assert len(fast.estimates) == 2
    assert_same(slow, fast)


def test_a_grid_of_thresholds_shares_one_estimate():
    rounds = make_rounds("random", 120, 4)
    slow, fast = both("hp_ucb", rounds, make_spec(**QUIET, threshold=[0.1, 0.2, 0.5], guarantee="joint", ridge=0.1))
    assert len(fast.estimates) == 1
    assert_same(slow, fast)


def test_single_precision_leaves_the_global_configuration_alone():
    rounds = make_rounds("random", 400, 8)
    before = jax.config.jax_enable_x64
    spec = make_spec(**QUIET, threshold=0.3, ridge=0.1)
    single = replay("hp_probe", *rounds, spec, engine="jax", device="cpu", dtype="float32")
    assert jax.config.jax_enable_x64 == before
    double = replay("hp_probe", *rounds, spec)
    assert single.estimate.inverse.dtype == np.float32
    assert np.mean(np.abs(single.intensity - double.intensity) > 1e-3) < 0.01


def test_double_precision_is_had_without_the_global_switch():
    code = """
import jax, numpy as np, safedial
rng = np.random.default_rng(0)
spec = safedial.SafetySpec(threshold=0.5, violation_risk=0.01, estimation_risk=0.01, reward_noise=0.1, cost_noise=0.1,
                           coefficient_bound=1, context_bound=1)
rounds = rng.standard_normal((64, 3)) / 10, *rng.standard_normal((2, 64))
fast, slow = safedial.replay("hp_probe", *rounds, spec, engine="jax"), safedial.replay("hp_probe", *rounds, spec)
assert fast.estimate.inverse.dtype == np.float64 and not jax.config.jax_enable_x64
assert np.abs(fast.intensity - slow.intensity).max() < 1e-9
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_chunks_stream_and_are_checked(monkeypatch):
    monkeypatch.setattr(jax_blocked, "CHUNK_BYTES", 32 * 4 * 8 * 2)
    contexts, rewards, costs = make_rounds("random", 500, 4)
    seen = []
    spec = make_spec(**QUIET, threshold=0.3, ridge=0.1)
    assert_same(*both("hp_ucb", (contexts, rewards, costs), spec, block=32, progress=seen.append))
    assert sum(seen) == 1000
    contexts[401, 2] = np.nan
    with pytest.raises(InvalidInput, match=r"contexts\[401\] = .*must be finite"):
        replay("hp_ucb", contexts, rewards, costs, make_spec(), engine="jax", device="cpu", block=32)
    contexts[401, 2] = 2.0
    with pytest.raises(InvalidInput, match=r"norm of contexts\[401\] = 2.*context_bound"):
        replay("hp_ucb", contexts, rewards, costs, make_spec(), engine="jax", device="cpu", block=32)


def test_contexts_may_live_on_the_device():
    contexts, rewards, costs = make_rounds("random", 100, 4)
    spec = make_spec(**QUIET, threshold=0.3, ridge=0.1)
    here = replay("hp_probe", contexts, rewards, costs, spec)
    there = replay("hp_probe", jax.numpy.asarray(contexts), rewards, costs, spec, engine="jax", device="cpu")
    assert_same(here, there)


BAD = [
    ({"device": "tpu"}, "device = 'tpu': must be 'cpu' or 'gpu'; leave it out"),
    ({"kernel": "fast"}, "kernel = 'fast': must be one of"),
    ({"kernel": "pallas", "device": "cpu"}, "kernel = 'pallas': needs a GPU"),
    ({"run": 3}, "run = 3: must be a power of two"),
    ({"threads": 3}, "unexpected keyword argument 'threads'"),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=[str(changes) for changes, _ in BAD])
def test_bad_options_are_named(changes, words):
    with pytest.raises((InvalidInput, TypeError), match=words):
        replay("hp_ucb", *make_rounds("random", 10, 2), make_spec(), engine="jax", **changes)


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said():
    with pytest.raises(InvalidInput, match="device = 'gpu': is not one that JAX sees"):
        replay("hp_ucb", *make_rounds("random", 10, 2), make_spec(), engine="jax", device="gpu")


def test_jax_that_is_not_there_is_said():
    code = """
import sys
sys.modules["jax"] = None
import numpy as np, safedial
spec = safedial.SafetySpec(threshold=0.5, violation_risk=0.01, estimation_risk=0.01, reward_noise=1, cost_noise=1,
                           coefficient_bound=1, context_bound=1)
try:
    safedial.replay("hp_ucb", np.zeros((3, 2)), np.zeros(3), np.zeros(3), spec, engine="jax")
except safedial.MissingExtra as error:
    print(error)
"""
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert how_to_install("jax") in shown


LOWERED = [name for name in LINEAR if name != "thompson"]
"""Thompson's normal quantile needs tables that a kernel cannot hold: it falls back to the plain loop."""


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", LOWERED)
def test_the_fused_kernel_lowers_for_cuda(name, dtype):
    policy = make_policy(name)
    names = ("norm", "rewards", "costs", "seen", *(("coins",) if policy.randomised else ()))
    rule = jax_replay.Rule(policy, make_spec(), 24, None, names)
    shapes = ((32, 72), (3,), (jax_replay.input_rows(names), 64))
    with jax_blocked.x64(dtype == "float64"):
        given = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
        traced = jax.jit(lambda *arrays: jax_replay.run_pallas(rule, *arrays, 32, run=32)).trace(*given)
        assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()
