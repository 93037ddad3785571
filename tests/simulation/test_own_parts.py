"""Policies and worlds of one's own: used as they are in both engines, or refused by name with the rule."""

from dataclasses import dataclass

import numpy as np
import pytest

import safedial
from safedial import (
    Agent,
    DataWorld,
    InvalidInput,
    LinearWorld,
    compare,
    create_study,
    hill,
    make_policy,
    simulate,
)
from safedial.model.namespace import namespace
from safedial.policies import POLICIES, Policy
from safedial.simulation import engines, jax_engine
from safedial.simulation.world import Outcome, World
from tests.conftest import make_spec
from tests.policies.own_linear import Changed, Impostor, Mine, Misled

UCB = make_policy("hp_ucb")
WORLD = LinearWorld(dim=3)


def both_engines(policy, world=WORLD, spec=None, rounds=120, seeds=3):
    """The regret in both engines, which must agree."""
    spec = spec or make_spec()
    runs = [simulate(policy, world, spec, rounds=rounds, seeds=seeds, engine=each) for each in ("numpy", "jax")]
    np.testing.assert_allclose(runs[0].regret, runs[1].regret, rtol=0.0, atol=1e-9)
    return runs[0].regret


def narrow(seen):
    return seen._replace(width=0.0 * seen.width, cost=seen.cost - 5.0)


@dataclass(frozen=True, kw_only=True)
class Tossed(Mine):
    """HP-UCB at a share of its dose that a coin decides."""

    randomised = True

    def choose(self, bound, asked):
        return (0.5 + 0.5 * asked.coin) * super().choose(bound, asked)


@pytest.mark.parametrize("policy", [Misled(seen_of=narrow), Tossed()], ids=lambda each: each.name)
def test_a_rule_of_ones_own_is_used_in_both_engines(policy):
    usual = both_engines(UCB)
    assert policy.is_own
    assert np.all(both_engines(policy) != usual)
    np.testing.assert_array_equal(both_engines(UCB), usual, "the package's program is another")


def test_rows_of_a_policy_of_ones_own_learn_apart():
    """What it learns may depend on the doses."""

    class Choosy(Mine):
        def rule(self, seen, asked):
            found = super().rule(seen, asked)
            return found._replace(teaches=found.largest < 0.2)

    both = simulate(Choosy(), WORLD, make_spec(threshold=[0.1, 0.9]), rounds=100, seeds=2)
    alone = simulate(Choosy(), WORLD, make_spec(threshold=0.9), rounds=100, seeds=2)
    np.testing.assert_allclose(both.regret[1], alone.regret[0], rtol=0.0, atol=1e-9)
    assert np.all(both.informative_rounds[0] > both.informative_rounds[1])


def test_no_policy_of_the_package_counts_as_one_s_own():
    made = {name: make_policy(name) for name in POLICIES}
    assert not [name for name, policy in made.items() if policy.is_own]


class Nameless(Policy):
    init = bound = tell = None


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Impostor(), "policy = 'Impostor': goes by 'hp_ucb', which is a policy of this package"),
        (Nameless(), "policy = 'Nameless': goes by ''"),
    ],
)
def test_a_class_of_ones_own_needs_a_name_of_its_own_wherever_it_enters(policy, words, tmp_path):
    """A save file and a log know a policy by its name alone, and a certificate says by it whose proof it is."""
    spec, storage = make_spec(), f"sqlite:///{tmp_path}/own.db"
    stated = {**spec.to_dict(), "dim": 3, "fallback_action": 0}
    Agent(3, spec, policy="hp_ucb").save(tmp_path / "agent")
    safedial.create_study("usual", {**stated, "policy": "hp_ucb"}, storage=storage).store.close()
    for use in (
        lambda: Agent(3, spec, policy=policy),
        lambda: Agent.load(tmp_path / "agent", policy=policy),
        lambda: simulate(policy, WORLD, spec, rounds=2, seeds=1),
        lambda: compare([policy, "hp_probe"], WORLD, spec, rounds=2, seeds=1),
        lambda: safedial.replay(policy, np.zeros((2, 3)), np.zeros(2), np.zeros(2), spec),
        lambda: safedial.plan(policy, spec, dim=3, rounds=10, seeds=2),
        lambda: create_study("own", stated, storage=storage, policy=policy),
        lambda: create_study("own", {**stated, "policy": policy}, storage=storage),
        lambda: safedial.open_study("usual", storage=storage, policy=policy),
        lambda: safedial.check_policy(lambda: policy, quiet=True),
    ):
        with pytest.raises(InvalidInput, match=words + r'.*; give the class one: name = "..."'):
            use()


@pytest.mark.parametrize(
    ("change", "value", "dose", "engine"),
    [
        (lambda dose, number: dose + 2.0, "[23]", None, "numpy"),
        (lambda dose, number: dose - 2.0 * (number > 30), "-[12]", hill(0.4, 2.0), "numpy"),
        (lambda dose, number: dose + (number > 30) * np.nan * dose, "nan", None, "numpy"),
        (lambda dose, number: dose + 2.0, "[23]", hill(0.4, 2.0), "jax"),
        (lambda dose, number: dose + (number > 30) * np.nan * dose, "nan", None, "jax"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_an_intensity_outside_0_to_1_is_refused_by_the_policy_s_name(change, value, dose, engine):
    words = rf"intensity of policy 'mine' = {value}.*: must lie in \[0, 1\]; let `choose` return intensities from 0"
    policy = Changed(give=lambda given, bound, asked: change(given, asked.number))
    with pytest.raises(InvalidInput, match=words):
        simulate(policy, WORLD, make_spec(), rounds=40, seeds=2, dose=dose, engine=engine)


def test_rounding_at_the_ends_is_no_fault():
    policy = Changed(give=lambda dose, bound, asked: dose * 0.0 + (1.0 + 1e-15 if asked.number < 20 else -1e-15))
    assert simulate(policy, WORLD, make_spec(), rounds=40, seeds=2).rounds == 40
    assert Agent(3, make_spec(), policy=policy).ask([0.3, 0.2, 0.1]).action == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [2.0, np.nan])
def test_an_agent_advises_no_intensity_outside_0_to_1(bad):
    policy = Changed(give=lambda dose, bound, asked: bad if asked.number > 1 else dose)
    agent = Agent(3, make_spec(), policy=policy)
    first = agent.ask([0.3, 0.2, 0.1])
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"intensity of policy 'mine' = .*: must lie in \[0, 1\]"):
            agent.ask([0.3, 0.2, 0.1])
    agent.tell(first, reward=0.1, cost=0.1)
    assert agent.informative_rounds == 1


class Unknown(World):
    """Its rewards or costs are not numbers; at 0 neither is, which fills up a compiled chunk."""

    dim = 3

    def __init__(self, reward=1.0, cost=1.0):
        self.reward, self.cost = reward, cost

    def draw_truth(self, spec, rngs):
        return None

    def means(self, spec, truth, context):
        with np.errstate(invalid="ignore"):
            first = context[..., 0] / np.sqrt(np.vecdot(context, context))
        return first * self.reward, first * self.cost


@pytest.mark.parametrize("engine", ["numpy", "jax"])
def test_outcomes_that_are_not_numbers_are_refused_by_the_world_s_name(engine, monkeypatch):
    monkeypatch.setattr(jax_engine, "LONGEST", 15)  # 40 rounds are three chunks, of which the last is filled up
    options = {"rounds": 40, "seeds": 2, "engine": engine}
    assert np.all(np.isfinite(simulate("fixed", Unknown(), make_spec(), **options).regret))
    for means in ({"reward": np.nan}, {"cost": np.nan}):
        with pytest.raises(InvalidInput, match="Unknown': gave an outcome that is not a finite number; look at its"):
            simulate("fixed", Unknown(**means), make_spec(), **options)


def test_a_table_whose_noise_depends_on_the_row_is_compiled(monkeypatch):
    monkeypatch.setattr(jax_engine, "LONGEST", 50)  # the last of three chunks is filled up
    rows = np.random.default_rng(0).uniform(0.0, 0.5, (30, 3))
    world = DataWorld(rows, reward=rows[:, 0], cost=rows[:, 1], noise=lambda x: 0.5 + x[:, 1])
    told = [simulate("hp_probe", world, make_spec(), rounds=140, seeds=3, engine=each) for each in ("numpy", "jax")]
    for name in ("regret", "violations", "exact_clairvoyant_reward_curve"):
        np.testing.assert_allclose(*(getattr(run, name) for run in told), rtol=0.0, atol=1e-9)
    single = simulate("hp_probe", world, make_spec(), rounds=140, seeds=3, engine="jax", dtype="float32")
    np.testing.assert_allclose(single.exact_clairvoyant_reward, told[0].exact_clairvoyant_reward, rtol=1e-5)


class Late(World):
    """Costs that begin at a fifth of the dial, by the functions of its arrays' namespace, or of NumPy."""

    dim = 3

    def __init__(self, xp=None):
        self.xp = xp

    def draw_truth(self, spec, rngs):
        return np.stack([rng.uniform(-1.0, 1.0, (2, self.dim)) for rng in rngs["truth"]])

    def means(self, spec, truth, context):
        return np.tanh(np.vecdot(context, truth[:, 0])), np.abs(np.vecdot(context, truth[:, 1]))

    def outcome(self, spec, exposure):
        xp = self.xp or namespace(exposure.cost_intensity)
        cost = xp.maximum(exposure.cost_intensity - 0.2, 0.0) * (exposure.cost_mean + exposure.cost_noise)
        return Outcome(super().outcome(spec, exposure).reward, cost, cost)


def test_a_world_that_cannot_be_compiled_is_named_and_auto_plays_it_in_numpy(monkeypatch):
    both_engines(UCB, world=Late())
    given = ("hp_ucb", Late(np), make_spec())
    with pytest.raises(InvalidInput, match=r"cannot compile the world .*Late \(.*use engine='numpy', or .*`namespace`"):
        simulate(*given, rounds=20, seeds=2, engine="jax")
    monkeypatch.setattr(engines, "WORTHWHILE", 0.0)
    assert simulate(*given, rounds=20, seeds=2, engine="auto").engine == "numpy"
    with pytest.raises(InvalidInput, match="cannot compile the world"):
        simulate(*given, rounds=20, seeds=2, engine="auto", dtype="float32")


@pytest.mark.parametrize("engine", ["numpy", "jax"])
def test_intensities_of_another_shape_are_refused_by_the_policy_s_name(engine):
    words = r"policy = 'mine': gave intensities of shape \(7,\), .* each \(spec, seed\): \(1, 2\); compute them from"
    with pytest.raises(InvalidInput, match=words):
        simulate(Changed(give=lambda *_: np.ones(7)), WORLD, make_spec(), rounds=20, seeds=2, engine=engine)


class Odd(World):
    """A world with one part exchanged."""

    dim = 2

    def __init__(self, **parts):
        for name, part in parts.items():
            setattr(self, name, part)

    def draw_truth(self, spec, rngs):
        return None

    def means(self, spec, truth, context):
        return context[..., 0], context[..., 1]


def told_by(part, gives):
    """A world in which a part gives this."""
    return Odd(**{part: lambda *given: gives(given[-1])})


ODD = [
    (
        told_by("means", lambda context: np.zeros(3)),
        "`means` that gave a ndarray, and must give two arrays, reward and",
    ),
    (
        told_by("means", lambda context: (np.zeros(7), np.zeros(7))),
        r"`means` that gave shapes \[\(7,\), \(7,\)\], .* of shape \(n, seeds\) = \(20, 3\); compute both from",
    ),
    (told_by("noise_scale", lambda context: -1.0), "`noise_scale` of -1, which must be a number >= 0; give a standard"),
    (told_by("noise_scale", lambda context: np.nan * context[..., 0]), "`noise_scale` of nan, which must be a number"),
    (
        told_by("noise_scale", lambda context: context),
        r"`noise_scale` of shape \(20, 3, 2\) .*\(n, seeds\) = \(20, 3\)",
    ),
    (
        told_by("draw_contexts", lambda done: np.zeros((20, 3, 2))),
        r"`draw_contexts` that gave shape \(20, 3, 2\), which must be \(seeds, rounds, d\) = \(3, 20, 2\); draw as",
    ),
    (
        told_by("draw_contexts", lambda done: np.ones((3, 20, 2))),
        r"context_bound = 1.0: is less than the norm of a context of world .*Odd, 1.41421; state that norm or more",
    ),
]


@pytest.mark.parametrize("engine", ["numpy", "jax"])
@pytest.mark.parametrize(("world", "words"), ODD)
def test_what_a_world_must_not_give_is_refused_by_its_name(world, words, engine):
    with pytest.raises(InvalidInput, match=words) as told:
        simulate("hp_ucb", world, make_spec(), rounds=20, seeds=3, engine=engine)
    assert "test_own_parts:Odd" in str(told.value)


def test_a_mean_for_all_seeds_and_contexts_at_the_bound_are_accepted():
    at_bound = np.broadcast_to([0.6, 0.8], (3, 20, 2))
    both_engines(UCB, told_by("draw_contexts", lambda done: at_bound), rounds=20)
    both_engines(UCB, told_by("means", lambda context: (context[:, :1, 0], context[..., 1])), rounds=20)
    one = told_by("noise_scale", lambda context: np.abs(context[:, :1, 0]))
    assert simulate("hp_ucb", one, make_spec(), rounds=20, seeds=3).rounds == 20


class Sent(Odd):
    """Contexts that answer to the learner."""

    adversarial, contexts = True, "adversarial"

    def draw_contexts(self, spec, rngs, rounds, done):
        return np.stack([rng.uniform(0.0, 0.5, (rounds, 4, 2)) for rng in rngs["context"]])


def test_an_adversary_s_means_and_candidates_are_checked_too():
    assert simulate("hp_ucb", Sent(), make_spec(), rounds=20, seeds=3).rounds == 20
    for part, given, words in (
        ("means", np.zeros(3), "`means` that gave a ndarray"),
        ("draw_contexts", np.zeros((3, 20, 2)), r"\(seeds, rounds, candidates, d\)"),
    ):
        with pytest.raises(InvalidInput, match=words):
            simulate("hp_ucb", Sent(**{part: lambda *_, given=given: given}), make_spec(), rounds=20, seeds=3)


def test_a_function_of_a_table_that_fails_is_named_with_its_error():
    rows = np.zeros((5, 2))
    words = (
        r"reward = <function .*: failed at the contexts, an array of shape \(5, 2\) \(IndexError: .*; let it take such"
    )
    with pytest.raises(InvalidInput, match=words):
        DataWorld(rows, reward=lambda row: row["a"], cost=rows[:, 1])
