import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from safedial import Agent, InvalidInput, LinearWorld
from safedial.simulation.gym import SafeDialEnv
from tests.conftest import make_spec


@pytest.mark.filterwarnings("ignore::UserWarning")  # check_env remarks on spaces that are not images
def test_it_passes_gymnasiums_own_check():
    check_env(SafeDialEnv(LinearWorld(dim=3), make_spec(), rounds=50), skip_render_check=True)


def test_it_is_registered():
    env = gymnasium.make("safedial/Linear-v0", world=LinearWorld(dim=2), spec=make_spec(), rounds=5)
    env.reset(seed=1)
    assert set(env.step(np.array([0.1]))[4]) == {"cost", "violated", "intensity", "threshold"}


def test_an_agent_keeps_its_guarantee_in_it():
    spec = make_spec(violation_risk=0.03, estimation_risk=0.02, cost_noise=0.3, reward_noise=0.3)
    env, agent = SafeDialEnv(LinearWorld(dim=3), spec, rounds=2000), Agent(3, spec)
    context, _ = env.reset(seed=4)
    violations, truncated = 0, False
    while not truncated:
        decision = agent.ask(context)
        context, reward, _, truncated, info = env.step(np.array([decision.action]))
        agent.tell(decision, reward=reward, cost=info["cost"])
        violations += info["violated"]
    assert violations <= 0.05 * 2000
    assert agent.informative_rounds == 2000


def test_the_same_seed_gives_the_same_episode():
    def episode(seed):
        env = SafeDialEnv(LinearWorld(dim=3), make_spec(), rounds=20)
        env.reset(seed=seed)
        return [env.step(np.array([0.3]))[1] for _ in range(20)]

    assert episode(3) == episode(3) != episode(4)


@pytest.mark.parametrize("action", [[-0.1], [1.1], [0.1, 0.2], [np.nan]])
def test_an_action_outside_the_dial_is_refused(action):
    env = SafeDialEnv(LinearWorld(dim=3), make_spec())
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="action"):
        env.step(np.array(action))


def test_there_is_no_step_without_a_reset_or_past_the_end():
    env = SafeDialEnv(LinearWorld(dim=3), make_spec(), rounds=1)
    with pytest.raises(InvalidInput, match="reset"):
        env.step(np.array([0.1]))
    env.reset(seed=0)
    assert env.step(np.array([0.1]))[3]
    with pytest.raises(InvalidInput, match="reset"):
        env.step(np.array([0.1]))


def test_a_threshold_on_the_true_cost_is_not_violated_by_the_sensor():
    env = SafeDialEnv(LinearWorld(dim=3), make_spec(cost_sensor_noise=0.5, threshold_on="true"), rounds=300)
    env.reset(seed=0)
    assert not any(env.step(np.array([0.0]))[4]["violated"] for _ in range(300))


def test_an_adversary_or_a_sweep_cannot_be_an_environment():
    with pytest.raises(InvalidInput, match="contexts"):
        SafeDialEnv(LinearWorld(dim=3, contexts="adversarial"), make_spec())
    with pytest.raises(InvalidInput, match="threshold"):
        SafeDialEnv(LinearWorld(dim=3), make_spec(threshold=[0.1, 0.2]))


def test_the_mean_is_the_worlds_own_and_the_constants_are_needed():
    world, spec = LinearWorld(dim=3, mean="sine"), make_spec(reward_noise=1e-9, cost_noise=1e-9)
    env = SafeDialEnv(world, spec)
    context, _ = env.reset(seed=0)
    _, reward, _, _, info = env.step(np.array([1.0]))
    expected = [np.sin(np.pi * (context @ coef[0])) for coef in env._truth]
    assert [reward, info["cost"]] == pytest.approx(expected, abs=1e-6)
    with pytest.raises(InvalidInput, match="cost_noise"):
        SafeDialEnv(world, make_spec(guarantee="conformal", cost_noise=None))
