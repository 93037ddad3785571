"""Bad input is refused before anything is decided; big input streams; the package is the function."""

import subprocess
import sys

import numpy as np
import pytest

from safedial import InvalidInput, Replay, make_policy, replay
from tests.conftest import make_spec
from tests.policies.own_linear import Deciding, Mine
from tests.simulation.data import make_rounds

CONTEXTS, REWARDS, COSTS = make_rounds("random", 40, 3)


def run(**changes):
    given = {"policy": "hp_ucb", "contexts": CONTEXTS, "rewards": REWARDS, "costs": COSTS, "spec": make_spec()}
    return replay(**(given | changes))


def spoiled(value, row=33):
    contexts = CONTEXTS.copy()
    contexts[row, 1] = value
    return contexts


BAD = [
    ({"contexts": spoiled(np.nan)}, r"contexts\[33\] = .*must be finite"),
    ({"contexts": spoiled(-np.inf), "block": 7}, r"contexts\[33\] = .*must be finite"),
    ({"contexts": spoiled(3.0)}, r"norm of contexts\[33\] = 3.*at most context_bound = 1"),
    ({"contexts": np.ones((40, 3), dtype=int)}, "contexts.dtype = .* must be floating"),
    ({"contexts": CONTEXTS[0]}, "must be \\(rounds, dim\\), each at least 1"),
    ({"rewards": REWARDS[1:]}, r"rewards.shape = \(39,\): must be one number per round, \(40,\)"),
    ({"costs": [*COSTS[:-1], np.nan]}, r"costs\[39\] = nan: must be finite where the round is informative"),
    ({"informative": np.ones(40)}, "informative.dtype = .* must be bool"),
    ({"informative": np.ones(39, dtype=bool)}, "must be one value per round"),
    ({"engine": "fast"}, "must be one of reference, rank_one, blocked, jax"),
    ({"block": 0}, "block = 0: must be a whole number >= 1 or None"),
    ({"dtype": "float16"}, "must be 'float64' or 'float32'"),
    ({"device": "gpu"}, r"\['device'\]: are not arguments of replay with engine = 'blocked'"),
    ({"policy": "clairvoyant"}, "knows the truth"),
    ({"policy": "hp_conformal"}, "does not learn with the linear estimate"),
    ({"policy": "thompson"}, "coins = None: is missing"),
    ({"coins": np.ones(40)}, r"must lie in \[0, 1\)"),
    ({"spec": make_spec(cost_sensor_noise=0.1)}, "cost_sensor = None: is missing, but the spec has"),
    ({"cost_sensor": COSTS}, "is not allowed with a spec without sensor noise"),
    ({"spec": {}}, "must be a SafetySpec"),
    ({"spec": make_spec(threshold=[[0.1, 0.2]])}, "at most 1 dimensions"),
    ({"spec": make_spec(threshold=[0.1, 0.2], violation_risk=[0.1, 0.2, 0.3])}, "grids of unequal length"),
    ({"baseline_cost": np.nan}, "baseline_cost"),
    ({"dose": 3}, "must be a dose curve"),
    ({"policy": make_policy("hp_ucb", radius="paper"), "contexts": CONTEXTS[:, :1]}, "does not hold for dim = 1"),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=[words[:40] for _, words in BAD])
def test_bad_input_is_named(changes, words):
    with pytest.raises(InvalidInput, match=words):
        run(**changes)


def test_unseen_outcomes_may_be_missing():
    informative = np.arange(40) % 2 == 0
    outcome = run(costs=np.where(informative, COSTS, np.nan), informative=informative)
    assert outcome.estimate.informative_rounds <= 20
    assert outcome.violations.shape == (1,)


def test_results_are_shown_and_accounted_for():
    outcome = run(baseline_cost=np.full(40, 0.1))
    assert isinstance(outcome, Replay)
    assert repr(outcome).startswith("Replay(policy=hp_ucb, engine=blocked, dim=3, specs=1, rounds=40")
    np.testing.assert_allclose(outcome.realized_cost, 0.1 + outcome.intensity * COSTS)
    np.testing.assert_allclose(outcome.reward, (outcome.intensity * REWARDS).sum(axis=1))
    np.testing.assert_array_equal(outcome.violations, (outcome.realized_cost > 0.5).sum(axis=1))
    assert (outcome.rounds, outcome.device, outcome.dtype) == (40, "cpu", "float64")
    assert np.all(run(baseline_cost=0.6).intensity == 0)
    assert not np.any(run(baseline_cost=0.6).certified)


def test_progress_counts_every_round():
    seen = []
    run(block=16, progress=seen.append)
    assert seen == [16, 16, 8]


def test_contexts_stream_from_disk(tmp_path, count):
    rounds, dim = count(20_000, 1_000_000), 64
    path = tmp_path / "contexts.npy"
    stored = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rounds, dim))
    rng = np.random.default_rng(0)
    for start in range(0, rounds, 10_000):
        stored[start : start + 10_000] = rng.uniform(-1, 1, (10_000, dim)) / np.sqrt(dim)
    stored.flush()
    del stored
    code = f"""
import tracemalloc, numpy as np
import safedial, safedial.simulation.replay
contexts = np.load({str(path)!r}, mmap_mode="r")
rng = np.random.default_rng(1)
spec = safedial.SafetySpec(threshold=0.5, violation_risk=0.01, estimation_risk=0.01, reward_noise=1, cost_noise=1,
                           coefficient_bound=1, context_bound=1)
safedial.replay("hp_probe", contexts[-500:], *rng.standard_normal((2, 500)), spec)
outcomes = rng.standard_normal((2, len(contexts)))
tracemalloc.start()
out = safedial.replay("hp_probe", contexts, *outcomes, spec)
peak = tracemalloc.get_traced_memory()[1]
assert peak < 12 * 8 * len(contexts) + 2_000_000, peak  # the record of a round is a dozen numbers, its context 64
assert out.estimate.informative_rounds == len(contexts)
assert not isinstance(out.estimate.inverse, np.memmap)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_peak_memory_is_one_matrix_and_a_block():
    dim = 1024
    code = f"""
import resource, numpy as np
import safedial, safedial.simulation.replay
rng = np.random.default_rng(0)
spec = safedial.SafetySpec(threshold=0.5, violation_risk=0.01, estimation_risk=0.01, reward_noise=1, cost_noise=1,
                           coefficient_bound=1, context_bound=1)
def rounds(dim, count):
    contexts = rng.standard_normal((count, dim))
    return contexts / (np.linalg.norm(contexts, axis=1, keepdims=True) * 1.001), *rng.standard_normal((2, count))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
safedial.replay("hp_ucb", *rounds(64, 300), spec, block=128)
given = rounds({dim}, 400)
before = peak()
safedial.replay("hp_ucb", *given, spec, block=128, informative=np.arange(400) % 3 > 0)
print((peak() - before) / (8 * {dim} * ({dim} + 128)))
"""
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert float(shown) <= 2.5


@pytest.mark.parametrize(
    "first", ["", "import safedial.simulation.blocked; ", "import safedial.simulation.replay as run; "]
)
def test_replay_can_be_called_whatever_was_imported_before(first):
    words = (
        f"{first}import safedial; from safedial import replay; import safedial.simulation.replay_arguments as door; "
    )
    words += "print(callable(safedial.replay), callable(replay), safedial.replay.__name__, door.__name__)"
    shown = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout
    assert shown == "True True replay safedial.simulation.replay_arguments\n"


@pytest.mark.parametrize("engine", ["rank_one", "blocked", "jax"])
@pytest.mark.parametrize(("dtype", "ridge"), [("float64", 1e-14), ("float32", 1e-5)])
def test_a_ridge_too_small_for_an_inverse_is_refused(engine, dtype, ridge):
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((50, 4)) / 10
    with pytest.raises(InvalidInput, match="ridge"):
        replay("hp_ucb", contexts, *rng.standard_normal((2, 50)), make_spec(ridge=ridge), engine=engine, dtype=dtype)


def test_a_factor_that_fails_is_said_so():
    from safedial.simulation.blocked import _factor

    with pytest.raises(InvalidInput, match="ridge"):
        _factor(np.asfortranarray([[-3.0, 0.0], [0.0, 1.0]]), np.array([0, 1]), np.ones(2))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"contexts": [[0.1, 0.2], [0.3]]}, "contexts"),
        ({"rewards": [[1.0], [1.0, 2.0]]}, "rewards"),
        ({"progress": 3}, "progress"),
        ({"spec": make_spec(guarantee="conformal")}, "guarantee"),
        ({"engine": "jax", "warps": 3}, "warps"),
        ({"engine": "jax", "run": 1, "block": 128}, "block"),
    ],
)
def test_more_that_cannot_be_replayed_is_named(changes, named):
    rng = np.random.default_rng(0)
    given = {"policy": "hp_ucb", "contexts": rng.standard_normal((200, 2)) / 9, "spec": make_spec()}
    given |= {"rewards": rng.standard_normal(200), "costs": rng.standard_normal(200), **changes}
    with pytest.raises(InvalidInput, match=named):
        replay(**given)


@pytest.mark.parametrize(
    ("kernel", "way_out"), [("auto", "engine='blocked'"), ("plain", "engine='blocked'"), ("interpret", "'auto'")]
)
def test_a_policy_that_jax_cannot_compile_is_refused_with_the_way_out(kernel, way_out):
    """An `if` on a prediction, which no version of JAX compiles. What a fused kernel may hold differs from one to the
    next: the interpreter of JAX 0.4 plays Thompson's normal quantile, and later ones refuse its tables.
    """
    own = Deciding()
    np.testing.assert_array_equal(run(policy=own).intensity, run().intensity)
    with pytest.raises(InvalidInput, match=f"kernel = .* does not compile .* use {way_out}"):
        run(policy=own, engine="jax", device="cpu", kernel=kernel)


def test_anyones_policy_has_an_estimate_for_each_row():
    """Sharing one assumes that doses do not decide what is learned, which a stranger's policy need not keep to."""
    spec, rng = make_spec(threshold=[0.1, 0.2]), np.random.default_rng(0)
    outcome = replay(Mine(), rng.standard_normal((60, 3)) / 9, *rng.standard_normal((2, 60)), spec)
    assert len(outcome.estimates) == 2
