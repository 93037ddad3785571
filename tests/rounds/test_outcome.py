"""What an outcome counts for: the monitor's bet must be fair in the worst case that the guarantee allows."""

import numpy as np
import pytest

from safedial import Agent, SafetySpec, identity
from safedial.bounds import monitor
from safedial.rounds.outcome import Sample, counted, for_the_watch, rescaled_cost
from tests.conftest import make_spec


def sample(cost):
    return Sample(0.0, cost, 1.0, 1.0, cost, 0.0, 1.0)


@pytest.mark.parametrize("risk", [0.01, 0.2, 0.25, 0.3, 0.45, 0.6, 0.9])
def test_where_the_threshold_is_on_the_true_cost_no_allowed_world_makes_evidence_grow(risk):
    """True violations and sensor errors, each with chance δ and never together: a measured cost counts with chance 2δ.
    The monitor's bet on it must not pay on average, whatever δ is; cut at 0.5 it did for δ > 0.25.
    """
    spec = make_spec(violation_risk=risk, cost_sensor_noise=0.1, threshold_on="true")
    seen = [counted(spec, sample(cost), 1.0) for cost in (5.0, 0.0)]
    assert [violated for violated, _ in seen] == [True, False]
    pays = [np.exp(monitor.update(monitor.init(), *each).log_evidence) for each in seen]
    chance = min(2.0 * risk, 1.0)
    assert np.all(chance * pays[0] + (1.0 - chance) * pays[1] <= 1.0 + 1e-12)


def test_a_cost_says_nothing_of_an_advice_without_effect():
    assert rescaled_cost(identity(), 0.5, 0.5, 0.0) is None
    assert rescaled_cost(identity(), 0.5, 0.5, 0.25) == pytest.approx(0.25)


@pytest.mark.parametrize(("cost", "least"), [(-0.1, np.inf), (0.2, pytest.approx(4.0))])
def test_a_lowered_setting_bounds_the_cost_of_the_advice_from_below_unless_its_cost_shows_nothing(cost, least):
    spec = SafetySpec(threshold=0.5, violation_risk=0.1, guarantee="conformal")
    agent = Agent(2, spec, start_action=0.05)
    decision = agent.ask([0.3, 0.2])
    agent._rounds.learning.throttled(decision.context, for_the_watch(agent._rules, 0.01, cost, 0.0), 0)
    assert agent._rounds.learning._state.rounds.least[0] == least
