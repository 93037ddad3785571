"""A world of one's own, in one place: simulated, swept, and named in the results."""

import csv
from dataclasses import dataclass, replace

import numpy as np
import pytest

from safedial import Cost, InvalidInput, LinearWorld, NonlinearWorld, Policy, SafetySpec, make_policy, power, simulate
from safedial.model.noise_scale import power_scale
from safedial.policies.policy import Bound
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.results import guarantee_holds, summary
from safedial.simulation.sweeps import build, parse_grid, run_sweep, sweep_rows, write_table
from safedial.simulation.world import Outcome, World
from safedial.simulation.worlds import world_from_dict
from tests.simulation.test_grid import GRID


@dataclass(frozen=True, kw_only=True)
class Threshold(World):
    """Costs that begin at a fifth of the dial, contexts from a cube, and noise that grows with the first feature."""

    dim: int
    start: float = 0.2

    def draw_truth(self, spec, rngs):
        return np.stack([rng.uniform(0.5, 1.0, (2, self.dim)) for rng in rngs["truth"]])

    def draw_contexts(self, spec, rngs, rounds, done):
        return (
            np.stack([rng.uniform(0.0, spec.context_bound, (rounds, self.dim)) for rng in rngs["context"]]) / self.dim
        )

    def means(self, spec, truth, context):
        return np.tanh(np.vecdot(context, truth[:, 0])), np.vecdot(context, truth[:, 1])

    def noise_scale(self, spec, context):
        return context[..., 0]

    def outcome(self, spec, exposure):
        usual = super().outcome(spec, exposure)
        cost = np.maximum(exposure.cost_intensity - self.start, 0.0) * (exposure.cost_mean + exposure.cost_noise)
        return Outcome(usual.reward, cost, cost)


NAME = "tests.simulation.test_own_world:Threshold"
CONSTANTS = {"reward_noise": 0.2, "cost_noise": 0.2, "coefficient_bound": 1.0, "context_bound": 1.0}
SPEC = SafetySpec(threshold=0.5, total_risk=0.02, **CONSTANTS)


class Kept(World):
    """The linear world's rounds and means, and nothing else of it."""

    linear = LinearWorld(dim=3)
    dim = 3

    def draw_truth(self, spec, rngs):
        return self.linear.draw_truth(spec, rngs)

    def means(self, spec, truth, context):
        return self.linear.means(spec, truth, context)


def test_a_world_of_truth_and_means_alone_is_the_linear_one():
    ours, own = (simulate("hp_probe", world, SPEC, rounds=300, seeds=3) for world in (LinearWorld(dim=3), Kept()))
    np.testing.assert_array_equal(own.regret_curve, ours.regret_curve)
    np.testing.assert_array_equal(own.violations, ours.violations)
    np.testing.assert_array_equal(own.exact_clairvoyant_reward, own.clairvoyant_reward)
    assert guarantee_holds(make_policy("hp_probe"), LinearWorld(dim=3), SPEC)
    assert not guarantee_holds(make_policy("hp_probe"), Kept(), SPEC)


def test_its_outcomes_are_what_is_learned_and_counted():
    played, rounds = [], []
    policy, given = FixedDose(dose=0.7), {"rounds": 300, "seeds": 2, "record": played.append}
    run = simulate(policy, Threshold(dim=2), SPEC, **given, dose=power(2.0), observe=rounds.append)
    reward, cost = (np.concatenate([getattr(chunk, name) for chunk in played]) for name in ("reward", "cost"))
    told = rounds[-1].state
    np.testing.assert_allclose([each.reward * 0.7 for each in told], reward, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose([each.cost * 0.7 for each in told], cost, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(run.violations, (cost > SPEC.threshold).sum(axis=0))
    assert np.all(run.violations == 0)
    free = simulate(policy, Threshold(dim=2, start=0.7), SPEC, **given)
    assert np.all(played[-1].cost == 0.0)
    assert np.all(free.informative_rounds == 300)


def test_results_do_not_depend_on_batching_and_rows_whose_doses_teach_learn_apart():
    spec = replace(SPEC, threshold=[0.1, 0.4])
    for world in (Threshold(dim=2), NonlinearWorld(kind="logistic", dim=2)):
        both = simulate("hp_ucb", world, spec, rounds=200, seeds=[0, 1])
        alone = simulate("hp_ucb", world, replace(SPEC, threshold=0.4), rounds=200, seeds=[1])
        np.testing.assert_allclose(both.regret[1, 1], alone.regret[0, 0], rtol=0.0, atol=1e-9)


def test_it_keeps_its_name_in_tables_and_summaries():
    run = simulate("hp_probe", Threshold(dim=2), SPEC, rounds=20, seeds=2)
    assert set(run.to_frame()["world"]) == {NAME}
    assert summary(run)["settings"]["world"] == {"name": NAME, "dim": 2, "start": 0.2}
    assert summary(run)["guaranteed_risk"] is None
    assert world_from_dict(Threshold(dim=2, start=0.3).to_dict()) == Threshold(dim=2, start=0.3)
    usual = simulate("hp_probe", LinearWorld(dim=2), SPEC, rounds=20, seeds=2)
    assert set(usual.to_frame()["world"]) == {"LinearWorld"}
    assert "name" not in summary(usual)["settings"]["world"]


def test_it_is_swept_by_two_workers_and_keeps_its_name(tmp_path):
    text = GRID[: GRID.rindex("[[policy]]")].replace("seeds = 5", "seeds = 2").replace("[0.2, 0.5]", "0.5")
    grid = parse_grid(text.replace("dim = 3", f'dim = 3\nname = "{NAME}"\nstart = [0.0, 0.2]'))
    assert run_sweep(grid, tmp_path, jobs=2).complete
    rows = sweep_rows(tmp_path)
    assert {(row["world"], row["start"]) for row in rows} == {(NAME, 0.0), (NAME, 0.2)}
    with write_table(tmp_path).open() as file:
        assert {row["world"] for row in csv.DictReader(file)} == {NAME}
    direct = simulate(**build(grid.cells[0]))
    assert rows[0]["regret"] == pytest.approx(direct.regret.mean())


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("tests.simulation.nowhere:Threshold", "cannot be imported"),
        ("tests.simulation.test_own_world:NAME", "is no World"),
        ("Threshold", "cannot be imported"),
        ("", "cannot be imported"),
    ],
)
def test_a_name_that_leads_to_no_world_is_refused(name, rule):
    with pytest.raises(InvalidInput, match=rule):
        world_from_dict({"name": name, "dim": 2})
    with pytest.raises(InvalidInput, match="must be a world"):
        simulate("hp_probe", object(), SPEC, rounds=5, seeds=1)


class Unlucky(Kept):
    """Sends the candidate of the highest true cost."""

    adversarial, contexts = True, "adversarial"

    def draw_contexts(self, spec, rngs, rounds, done):
        return LinearWorld(dim=3, contexts="adversarial").draw_contexts(spec, rngs, rounds, done)

    def next_context(self, candidates, truth, predict):
        assert predict(candidates).cost.shape == candidates.shape[:-1]
        worst = np.argmax((candidates @ truth.cost_coef[..., None])[..., 0], axis=-1)
        return np.take_along_axis(candidates, worst[..., None, None], axis=-2)[..., 0, :]


def test_it_may_choose_contexts_against_the_learner():
    costs = []
    for world in (Kept(), Unlucky()):
        seen = []
        simulate("hp_probe", world, SPEC, rounds=50, seeds=4, observe=lambda each, seen=seen: seen.append(each))
        costs.append(np.mean([np.vecdot(each.context, each.truth.cost_coef) for each in seen]))
    assert costs[1] > costs[0] + 0.3


@dataclass(frozen=True, kw_only=True)
class FixedDose(Policy):
    """One dose for all, whatever is learned; its state is what it was told."""

    name = "fixed_dose"
    dose: float

    def init(self, lanes=(), *, watch=True):
        return []

    def bound(self, state, asked):
        dose = np.full(np.shape(asked.norm), self.dose)
        return Bound(dose, dose, {})

    def tell(self, state, place, told):
        state.append(told)


@dataclass(frozen=True, kw_only=True)
class Wandering(FixedDose):
    """A dose that also depends on random numbers of its own, on the coin and on the spec."""

    randomised = True

    def init(self, lanes=(), *, watch=True):
        rngs = [np.random.default_rng([seed, 99]) for seed in self.task.seeds]
        return {"rngs": rngs, "place": np.broadcast_to([rng.random() for rng in rngs], lanes), "told": []}

    def bound(self, state, asked):
        share = np.broadcast_to(asked.coin, state["place"].shape) * self.spec.threshold
        dose = self.dose * np.abs(np.sin(state["place"])) * share
        return Bound(dose, dose, {})

    def tell(self, state, place, told):
        state["told"].append(told)
        state["place"] = state["place"] + told.intensity + np.array([rng.normal() for rng in state["rngs"]])


def test_a_policy_may_go_by_the_spec_the_intensity_and_randomness_of_its_own():
    spec, rounds = replace(SPEC, threshold=[0.2, 0.6]), []
    for seeds in ([4, 9], [9]):
        simulate(Wandering(dose=0.3), LinearWorld(dim=2), spec, rounds=8, seeds=seeds, observe=rounds.append)
    both, alone = rounds[7], rounds[15]
    assert both.policy.spec.threshold.shape == (2, 1)
    np.testing.assert_array_equal(both.state["place"][:, 1], alone.state["place"][:, 0], "whatever the other seeds are")
    assert np.all(both.state["place"][:, 0] != both.state["place"][:, 1])
    assert np.all(both.given.intensity[0] != both.given.intensity[1])
    for told, seen in zip(both.state["told"], rounds[:8], strict=True):
        np.testing.assert_array_equal(told.intensity, seen.given.intensity)


@dataclass(frozen=True, kw_only=True)
class Anywhere(FixedDose):
    """The same in every world, with a dose of 0 in the first lane."""

    name = "anywhere"
    excludes = frozenset()

    def bound(self, state, asked):
        found = super().bound(state, asked)
        dose = found.largest * (np.arange(np.shape(found.largest)[-1]) > 0)
        return found._replace(index=dose, largest=dose)


SENSORS = replace(SPEC, cost_sensor_noise=0.1, reward_sensor_noise=0.1)
SCALED = replace(SPEC, noise_scale=power_scale(2.0))
COSTS = {"heat": Cost(threshold=1.0, noise=0.1, curve=power(2.0)), "load": Cost(threshold=2.0, noise=0.1)}
SEVERAL = SafetySpec(costs=COSTS, total_risk=0.02, reward_noise=0.2, coefficient_bound=1.0, context_bound=1.0)


@pytest.mark.parametrize(
    ("world", "spec"),
    [
        (LinearWorld(dim=2), SPEC),
        (LinearWorld(dim=2), replace(SPEC, threshold=[0.2, 0.6])),
        (LinearWorld(dim=2, baseline_cost=0.1), SPEC),
        (LinearWorld(dim=2, baseline_cost=0.1), SENSORS),
        (LinearWorld(dim=2), SCALED),
        (LinearWorld(dim=2), SEVERAL),
        (NonlinearWorld(dim=2, kind="kernel"), SPEC),
        (NonlinearWorld(dim=2, kind="logistic"), SPEC),
        (DoseResponseWorld(curve="power", low=0.7, high=1.4, least=0.1, spread=0.5, dim=1), SPEC),
        (Threshold(dim=2), SPEC),
    ],
    ids=lambda each: each.name if isinstance(each, World) else "",
)
def test_a_policy_is_told_each_cost_as_it_was_measured(world, spec):
    rounds, chunks = [], []
    told = {"rounds": 6, "seeds": 3, "observe": rounds.append, "record": chunks.append}
    simulate(Anywhere(dose=0.3), world, spec, **told)
    for name in spec.costs or [""]:
        costs = np.concatenate([played.cost[name] if name else played.cost for played in chunks])
        seen = [each.measured[name] if name else each.measured for each in rounds[-1].state]
        np.testing.assert_allclose(np.broadcast_to(seen, costs.shape), costs, rtol=1e-12)
        assert costs[..., 1:].any()
