"""The linear policies: one rule for lanes, floats and compiled programs, and a policy of one's own over it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from safedial import Agent, Cost, LinearWorld, SafetySpec, check_policy, hp_ucb, make_policy, simulate
from safedial.errors import InvalidInput
from safedial.model.dose import as_dose
from safedial.model.namespace import where
from safedial.policies.policy import KNOWN, LEFT_OUT, Asked, Policy, Task, Told
from tests.conftest import make_spec


@dataclass(frozen=True, kw_only=True)
class Patient(hp_ucb):
    """HP-UCB's safe dose, but a tenth of it where the estimate is still unsure."""

    name = "patient"
    label = "Patient HP-UCB"
    patience: float = 0.1

    def choose(self, bound: Any, asked: Any) -> Any:
        given = super().choose(bound, asked)
        return where(bound.memo.width > self.patience, 0.1 * given, given)


def told(fate: Any, context: Any, reward: Any, cost: Any, weight: Any) -> Told:
    return Told(fate, reward, cost, weight, cost, 0.0, 0.5, 0.5, context)


@pytest.mark.parametrize("name", ["hp_ucb", "hp_probe", "on_expectation"])
@pytest.mark.parametrize("radius", ["paper", "mixture", "noise-adaptive", "self-normalised"])
def test_lanes_are_single_lanes_and_what_is_left_out_teaches_nothing(name: str, radius: str) -> None:
    rng, lanes = np.random.default_rng(0), 3
    task = Task(dim=4, spec=make_spec(cost_noise=0.3, reward_noise=0.3), dose=as_dose(None))
    policy: Any = make_policy(name, radius=radius).on(task)
    together, alone = policy.init((lanes,)), [policy.init(()) for _ in range(lanes)]
    for number in range(1, 40):
        context = rng.normal(size=(lanes, 4)) / 5.0
        reward, cost, weight = rng.normal(size=lanes), rng.normal(size=lanes), np.ones(lanes)
        fate = np.where(rng.random(lanes) < 0.2, LEFT_OUT, KNOWN)
        asked = Asked(context, np.linalg.norm(context, axis=-1), float(number))
        whole = policy.bound(together, asked)
        chosen = policy.choose(whole, asked)
        policy.tell(together, number - 1, told(fate, context, reward, cost, weight))
        for lane, state in enumerate(alone):
            single = Asked(context[lane], float(asked.norm[lane]), float(number))
            found = policy.bound(state, single)
            assert found.largest == pytest.approx(whole.largest[lane], rel=1e-11)
            assert policy.choose(found, single) == pytest.approx(chosen[lane], rel=1e-11)
            outcome = told(fate[lane], context[lane], reward[lane], cost[lane], np.float64(1.0))
            policy.tell(state, number - 1, outcome)


def test_a_policy_of_ones_own_over_the_estimate_runs_everywhere() -> None:
    spec, given = make_spec(threshold=[0.3, 0.6]), {"rounds": 150, "seeds": 3}
    runs = [simulate(Patient(), LinearWorld(dim=3), spec, **given, engine=each) for each in ("numpy", "jax")]  # pyright: ignore[reportArgumentType]
    np.testing.assert_allclose(runs[0].regret, runs[1].regret, rtol=0.0, atol=1e-9)
    assert np.any(runs[0].regret != simulate("hp_ucb", LinearWorld(dim=3), spec, **given).regret)
    agent = Agent(3, make_spec(), policy=Patient(patience=0.2))
    first = agent.ask([0.5, 0.1, 0.2])
    assert first.guarantee == "certified"
    assert first.intensity == pytest.approx(0.1 * first.safe_intensity)
    assert "patient is your own" in first.certificate["assumptions"][-1]
    assert pickle.loads(pickle.dumps(agent)).ask([0.5, 0.1, 0.2]).action == agent.ask([0.5, 0.1, 0.2]).action  # noqa: S301 -- our own
    assert check_policy(Patient, quiet=True).failures == {}


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("hp_ucb", {"radius": "small"}, "radius = 'small': must be one of paper, mixture"),
        ("hp_ucb", {"clip": 1}, "clip = 1: must be True, False or None"),
        ("hp_probe", {"probe": 2.0}, "probe = 2.0: must be 'sqrt' or a number in"),
        ("thompson", {"scale": -1.0}, "scale = -1.0: must be a finite number >= 0"),
        ("epsilon_greedy", {"learn_from": "some"}, "learn_from = 'some': must be 'all' or 'exploring'"),
        ("fixed", {"clip": None}, "clip = None: must be True or False"),
    ],
)
def test_an_option_outside_its_rule_is_refused_by_name(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make_policy(name, **options)


@pytest.mark.parametrize("name", ["on_expectation"])
def test_several_costs_need_a_guarantee_that_is_certified(name: str) -> None:
    costs = {"heat": Cost(threshold=0.5, noise=0.3), "load": Cost(threshold=0.6, noise=0.3)}
    spec = SafetySpec(costs=costs, total_risk=0.1, reward_noise=0.3, coefficient_bound=1.0, context_bound=1.0)
    with pytest.raises(InvalidInput, match="takes one cost: only certified policies"):
        Agent(3, spec, policy=name)


def test_options_come_first_and_a_task_is_no_option() -> None:
    policy = make_policy("hp_probe", radius="paper", probe=0.1)
    assert isinstance(policy, Policy)
    assert policy.options == {"radius": "paper", "clip": False, "probe": 0.1}
    task = Task(dim=3, spec=make_spec(), dose=as_dose(None))
    assert policy.on(task) == policy
    with pytest.raises(
        InvalidInput, match=r"start_action = 0\.1: does not apply to hp_probe; its first dose is certified"
    ):
        Agent(3, make_spec(), policy=policy, start_action=0.1)
