"""The JAX engine: the NumPy engine's answers from its draws; from counters, worlds of the same law."""

import sys
from functools import partial

import numpy as np
import pytest
from scipy import stats

from safedial import Dose, DoseCurve, InvalidInput, LinearWorld, hill, identity, make_policy, simulate
from safedial.errors import MissingExtra
from safedial.model.dose import as_dose
from safedial.model.noise_scale import own_scale, with_any_sensor
from safedial.simulation import counter, fused_rounds, jax_engine
from safedial.simulation.loop import Setting
from safedial.simulation.nonlinear_worlds import NonlinearWorld
from tests.conftest import make_spec
from tests.policies.own_linear import Deciding, Halved, Mine

COUNTS = ("violations", "informative_rounds", "uncertified_rounds", "full_dose_rounds", "full_dose_violations")
SUMS = ("regret", "reward", "clairvoyant_reward", "exact_clairvoyant_reward", "regret_curve", "violations_curve")


def agree(one, other):
    for name in COUNTS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in SUMS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=0.0, atol=1e-9, err_msg=name)


CASES = [
    ("hp_ucb", {"radius": "noise-adaptive"}, {"guarantee": "joint"}, {"noise": "uniform"}),
    ("epsilon_greedy", {"learn_from": "exploring"}, {"threshold": [0.2, 0.5]}, {}),
    ("on_expectation", {}, {"cost_sensor_noise": 0.1, "reward_sensor_noise": 0.1}, {"baseline_cost": 0.1}),
    ("fixed", {}, {}, {}),
    ("thompson", {}, {}, {}),
    ("clairvoyant", {}, {"threshold": [0.2, 0.5]}, {"mean": "sine"}),
    ("hp_probe", {"radius": "self-normalised"}, {"threshold": [0.2, 0.5], "estimation_risk": [0.01, 0.05]}, {}),
    (
        "hp_ucb",
        {"radius": "self-normalised"},
        {"margin": "gaussian", "guarantee": "joint"},
        {"contexts": "adversarial"},
    ),
    ("hp_probe", {}, {"margin": "bounded", "noise_low": -2.0, "noise_high": 2.0}, {"noise": "uniform"}),
    ("hp_probe", {}, {"noise_scale": with_any_sensor(0.1), "threshold": [0.4, 0.6]}, {}),
    ("hp_probe", {}, {}, {"contexts": "drift", "noise": "context-scale"}),
]


@pytest.fixture
def small_parts(monkeypatch):
    """Chunks of 30 rounds and blocks of two seeds, of which the last repeats one."""
    for name, value in (("LONGEST", 40), ("CACHE", 1), ("VECTOR", 2)):
        monkeypatch.setattr(jax_engine, name, value)


@pytest.mark.parametrize(("name", "options", "fields", "world"), CASES, ids=[case[0] for case in CASES])
def test_both_engines_play_the_same_rounds(name, options, fields, world, small_parts):
    given = (make_policy(name, **options), LinearWorld(dim=3, **world), make_spec(**fields))
    agree(simulate(*given, rounds=90, seeds=[4, 0, 7]), simulate(*given, rounds=90, seeds=[4, 0, 7], engine="jax"))


def test_with_a_dose_curve_and_a_world_of_another_kind(small_parts):
    given = (make_policy("hp_probe"), NonlinearWorld(kind="dose-toxicity", dim=2), make_spec())
    told = {"rounds": 60, "seeds": 3, "dose": hill(0.4, 2.0)}
    agree(simulate(*given, **told), simulate(*given, **told, engine="jax"))


@pytest.mark.slow
@pytest.mark.parametrize("many", [1, 5000])
def test_the_kernel_of_a_gpu_plays_the_same_rounds(many, monkeypatch):
    """With a seed for every thread, and with a few for every warp."""
    monkeypatch.setattr(fused_rounds, "MANY", many)
    monkeypatch.setattr(jax_engine, "PROGRAMS", {})
    start = jax_engine.JaxBatch.__init__

    def interpreted(self, setting, **options):
        start(self, setting, form="interpret", **options)

    monkeypatch.setattr(jax_engine.JaxBatch, "__init__", interpreted)
    for threshold in (0.5, 0.3, [0.4]):
        given = (make_policy("epsilon_greedy"), LinearWorld(dim=3), make_spec(threshold=threshold))
        agree(simulate(*given, rounds=40, seeds=70), simulate(*given, rounds=40, seeds=70, engine="jax"))
    assert len(jax_engine.PROGRAMS) == 2  # a number, or a grid of one


@pytest.mark.parametrize(
    ("dim", "count", "dtype"), [(3, fused_rounds.MANY, "float64"), (3, 70, "float32"), (26, 5000, "float32")]
)
def test_the_kernel_of_a_gpu_lowers_for_cuda(dim, count, dtype, monkeypatch):
    monkeypatch.setattr(jax_engine.JaxBatch, "compile", lambda self: None)
    setting = Setting(make_policy("hp_probe"), LinearWorld(dim=dim), make_spec(), as_dose(None), range(count), 8, 1)
    batch = jax_engine.JaxBatch(setting, device=None, draws="counter", dtype=dtype, form="interpret")
    with jax_engine.x64(True):
        numbers = jax_engine.jax.ShapeDtypeStruct((8,), dtype)
        passed, play = batch.blocks[0].fixed["numbers"], partial(fused_rounds.play, batch.rule)
        traced = jax_engine.jax.jit(play).trace(batch.state, (numbers, batch._shapes()), passed)
        assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()


def test_recorded_rounds_and_a_stated_spec_are_those_of_numpy(small_parts):
    for contexts in ("iid", "adversarial"):
        told = []
        for engine in ("numpy", "jax"):
            chunks = []
            options = {"stated": make_spec(cost_noise=0.4), "record": chunks.append, "engine": engine}
            world, spec = LinearWorld(dim=3, contexts=contexts), make_spec(cost_noise=0.8)
            simulate("hp_probe", world, spec, rounds=90, seeds=3, dose=hill(0.4, 2.0), **options)
            told.append([np.concatenate(part) for part in zip(*chunks, strict=True)])
        for one, other in zip(*told, strict=True):
            np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-9)


def test_one_program_serves_all_specs_of_a_form_and_all_worlds_that_numpy_draws():
    told = {"rounds": 30, "seeds": 2, "engine": "jax"}
    simulate("hp_probe", LinearWorld(dim=2), make_spec(threshold=0.4), **told)
    before = len(jax_engine.PROGRAMS)
    other = make_spec(threshold=0.7, reward_noise=0.5, cost_noise=0.5)
    for world in ({}, {"contexts": "drift"}, {"noise": "student-t3"}, {"noise": "rademacher", "mean": "sine"}):
        again = simulate("hp_probe", LinearWorld(dim=2, **world), other, **told)
        assert len(jax_engine.PROGRAMS) == before
        agree(again, simulate("hp_probe", LinearWorld(dim=2, **world), other, rounds=30, seeds=2))


@pytest.mark.slow
def test_a_program_is_not_taken_for_another():
    """Grids that NumPy prints alike, own curves of one name, and two own policies of one name."""
    grids = [np.linspace(0.1, 1.0, 1200), np.linspace(0.1, 1.0, 1200)]
    grids[1][600] = 0.9
    curves = [
        DoseCurve("mine", {}, lambda a, p=power: a**p, lambda z, p=power: z ** (1 / p) * (1 - 1e-14), 16.0)
        for power in (2.0, 4.0)
    ]
    one, other, told = Mine(radius="self-normalised"), Halved(radius="self-normalised"), {"rounds": 12, "seeds": 2}
    cases = [(make_policy("hp_ucb", radius="self-normalised"), make_spec(threshold=grid), None) for grid in grids]
    cases += [(make_policy("hp_probe"), make_spec(), Dose(curve, identity())) for curve in curves]
    cases += [(policy, make_spec(), None) for policy in (one, other)]
    for policy, spec, dose in cases:
        given = (policy, LinearWorld(dim=2), spec)
        agree(simulate(*given, **told, dose=dose, engine="jax"), simulate(*given, **told, dose=dose))


def test_counters_are_threefry():
    from jax.extend.random import threefry2x32_p

    rng = np.random.default_rng(0)
    words = [rng.integers(0, 2**32, 50, dtype=np.uint32) for _ in range(4)]
    ours = counter.threefry((words[0], words[1]), (words[2], words[3]))
    for one, other in zip(ours, threefry2x32_p.bind(*words), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_seed_that_no_counter_holds_is_refused_by_its_number():
    told = {"rounds": 5, "engine": "jax", "draws": "counter"}
    with pytest.raises(InvalidInput, match=r"seeds = 18446744073709551616: must be below 2\*\*64 with draws 'counter'"):
        simulate("hp_ucb", LinearWorld(dim=2), make_spec(), seeds=[1, 2**64], **told)
    assert simulate("hp_ucb", LinearWorld(dim=2), make_spec(), seeds=[1, 2**64 - 1], **told).seeds[1] == 2**64 - 1


@pytest.mark.slow
def test_counter_worlds_do_not_depend_on_batch_block_and_chunk(small_parts, monkeypatch):
    told = {"rounds": 80, "engine": "jax", "draws": "counter"}
    whole = simulate("hp_probe", LinearWorld(dim=3), make_spec(), seeds=[0, 1, 5], **told)
    monkeypatch.setattr(jax_engine, "LONGEST", 30)
    part = simulate("hp_probe", LinearWorld(dim=3), make_spec(), seeds=[5], **told)
    np.testing.assert_array_equal(whole.violations[:, 2:], part.violations)
    np.testing.assert_allclose(whole.regret[:, 2:], part.regret, rtol=0.0, atol=1e-9)
    assert whole.attainable_reward is None


@pytest.mark.parametrize("noise", ["gaussian", "uniform", "rademacher", "truncated", "exponential", "context-scale"])
def test_counter_worlds_have_the_law_of_numpy_s(noise):
    """Kolmogorov and Smirnov's test of contexts and noise, each at level 1e-6."""
    spec, world = make_spec(context_bound=2.0), LinearWorld(dim=3, noise=noise)
    seeds = counter.halves(list(range(40)))
    with jax_engine.x64(True):
        truth = counter.draw_truth(world, spec, seeds)
        drawn = counter.draw_rounds(world, spec, truth, seeds, np.arange(1, 101))
    from safedial.simulation.world import generators

    plain = world.draw_chunk(spec, generators(list(range(40))), 100)
    pairs = [(np.asarray(drawn["context"])[:, 0, :, place], plain.context[:, :, place]) for place in range(3)]
    pairs += [(np.asarray(drawn[name])[:, 0], getattr(plain, name)) for name in ("reward_noise", "cost_noise", "coin")]
    for ours, theirs in pairs:
        assert stats.ks_2samp(ours.ravel(), theirs.ravel(), method="asymp").pvalue > 1e-6
    noises = [np.asarray(drawn[name]).ravel() for name in ("reward_noise", "cost_noise")]
    assert abs(np.corrcoef(*noises)[0, 1]) < 5.0 / 4000**0.5
    np.testing.assert_allclose(np.linalg.norm(np.asarray(drawn["context"]), axis=-1), 2.0, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hp_probe", "epsilon_greedy"])
def test_rates_from_counters_are_those_from_numpy_s_draws(name):
    """Studies with an excess, and with more than half of the studies have: Fisher's exact test, each at level 1e-6."""
    given = (make_policy(name), LinearWorld(dim=3), make_spec(violation_risk=0.3))
    told = {"rounds": 40, "seeds": 400, "points": 1, "engine": "jax"}
    drawn, counted = (simulate(*given, **told, draws=draws).violations[0] for draws in ("numpy", "counter"))
    for least in (0, int(np.median(drawn))):
        table = [[(part > least).sum(), (part <= least).sum()] for part in (drawn, counted)]
        assert stats.fisher_exact(table).pvalue > 1e-6


def test_auto_compiles_where_it_pays_and_can(monkeypatch):
    from safedial.simulation import engines

    world = LinearWorld(dim=2)
    assert simulate("hp_probe", world, make_spec(), rounds=20, seeds=2, engine="auto").engine == "numpy"
    monkeypatch.setattr(engines, "WORTHWHILE", 0.0)
    assert simulate("hp_probe", world, make_spec(), rounds=20, seeds=2, engine="auto").engine == "jax"
    assert simulate("hp_bayes", world, make_spec(), rounds=20, seeds=2, engine="auto").engine == "numpy"


def test_without_jax_the_extra_is_named_and_auto_plays_in_numpy(monkeypatch):
    from safedial.simulation import engines

    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "safedial.simulation.jax_engine")
    monkeypatch.setattr(engines, "WORTHWHILE", 0.0)
    given, told = ("hp_probe", LinearWorld(dim=2), make_spec()), {"rounds": 5, "seeds": 1}
    with pytest.raises(MissingExtra, match=r"\[jax\]"):
        simulate(*given, **told, engine="jax")
    assert simulate(*given, **told, engine="auto").engine == "numpy"


REFUSED = [
    ({"engine": "torch"}, "engine = 'torch': must be one of numpy, jax, auto"),
    ({"draws": "counter"}, "draws = 'counter': is for engine jax only; choose that engine, or leave draws out"),
    ({"dtype": "float32"}, "dtype = 'float32': is for engine jax only"),
    ({"device": "cpu"}, "device = 'cpu': is for engine jax only"),
    ({"engine": "jax", "draws": "dice"}, "draws = 'dice': must be one of"),
    ({"engine": "jax", "dtype": "half"}, "dtype = 'half': must be one of"),
    ({"engine": "jax", "device": "gpu"}, r"device = 'gpu': is not one that JAX sees (.*; leave it out"),
    ({"engine": "jax", "observe": print}, "is not for engine 'jax'"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_bad_input_is_refused(options, words):
    with pytest.raises(InvalidInput, match=words.replace("(", r"\(")):
        simulate("hp_probe", LinearWorld(dim=2), make_spec(), rounds=5, seeds=1, **options)


def test_what_cannot_be_compiled_says_so():
    for place, draws in (({"contexts": "adversarial"}, "counter"), ({"noise": "student-t3"}, "counter")):
        with pytest.raises(InvalidInput, match=r"adversary|no quantile function"):
            simulate("hp_probe", LinearWorld(dim=2, **place), make_spec(), rounds=5, seeds=1, engine="jax", draws=draws)
    learned = {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0, "margin_risk": 0.01}
    for fields in (learned, {"noise_scale": own_scale(lambda z, _: z)}):
        with pytest.raises(InvalidInput, match=r"(keeps every round|of your own).*use engine='numpy'"):
            simulate("hp_probe", LinearWorld(dim=2), make_spec(**fields), rounds=5, seeds=1, engine="jax")
    with pytest.raises(InvalidInput, match=r"engine = 'jax': hp_bayes needs quantiles .*use engine 'numpy'"):
        simulate("hp_bayes", LinearWorld(dim=2), make_spec(), rounds=5, seeds=1, engine="jax")
    spec = make_spec(guarantee="conformal")
    with pytest.raises(InvalidInput, match=r"hp_conformal ranks scores .*use engine 'numpy'"):
        simulate("hp_conformal", LinearWorld(dim=2), spec, rounds=5, seeds=1, engine="jax")
    with pytest.raises(InvalidInput, match=r"cannot compile mine .*use engine='numpy'"):
        simulate(Deciding(), LinearWorld(dim=2), make_spec(), rounds=5, seeds=1, engine="jax")


def test_a_memory_that_is_full_is_named_with_the_way_out():
    setting = Setting(make_policy("fixed"), LinearWorld(dim=2), make_spec(), as_dose(None), [0], 1, 1)
    batch = jax_engine.JaxBatch(setting, device=None, draws="numpy")
    for said in ("RESOURCE_EXHAUSTED: Out of memory allocating 80000000000 bytes.", "Out of memory"):
        with pytest.raises(InvalidInput, match=r"seeds: do not fit into the memory of .*; use fewer"), batch._session():
            raise RuntimeError(said)
