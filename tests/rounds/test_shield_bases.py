"""HP-Shield's learned bases: a regressor of the user's."""

import json
import math
import pickle
import warnings

import numpy as np
import pytest

from safedial import Agent, Dial, InvalidInput, make_policy
from safedial.bounds.count_rule import scaled_setting
from tests.lanes import Lanes
from tests.rounds.shield_world import SPEC, Patients, group_of, make_agent, shield, treat


class Squares:
    """Least squares on 1, x and x², as a user might bring."""

    def __init__(self):
        self.coef = None

    def fit(self, rows, targets):
        assert self.coef is None, "each fit must be on a fresh copy"
        self.coef = np.linalg.lstsq(self._with(rows), targets, rcond=None)[0]

    def predict(self, rows):
        return self._with(rows) @ self.coef

    def _with(self, rows):
        return np.column_stack([np.ones(len(rows)), rows[:, :2], rows[:, :2] ** 2])


class Bent(Patients):
    """Patients whose tolerance depends on the square of their weight."""

    def cost(self, context, setting):
        weight = (context["weight"] - 70.0) / 30.0
        tolerance = context["dose"] * 1.2 * math.exp(-1.2 * weight**2 + 0.1 * self.rng.standard_normal())
        return 2.0 * setting / tolerance


def model_agent(**options):
    return make_agent(options={"learned": True, "regressor": Squares()} | options)


def test_a_regressor_of_one_s_own_learns_the_base_and_calibrates_on_later_rounds():
    agent, plain = model_agent(), make_agent(options={"learned": True})
    for each in (agent, plain):
        treat(each, 240, Bent())
    context = {"dose": 4.0, "weight": 70.0, "steep": 30.0}
    own, ridge = agent.preview(context), plain.preview(context)
    assert own.action > 1.15 * ridge.action
    group = group_of(agent)
    assert 50 <= group.bases.since < group.count - 9
    assert own.certificate["base"]["fitted_at_round"] == group.bases.since
    far = agent.preview({"dose": 4.0, "weight": 40.0, "steep": 30.0})
    assert far.action < 0.5 * own.action
    assert own.guarantee == "bracket"


def test_a_saved_regressor_is_fitted_again_to_the_same_outcomes(tmp_path):
    agent, world = model_agent(lag=2), Bent()
    treat(agent, 120, world)
    late = [agent.ask(world.context()) for _ in range(2)]
    treat(agent, 15, world)
    for decision in late:
        agent.tell(decision, reward=0.0, cost=1.5)
    agent.save(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="was saved with your own regressor"):
        Agent.load(tmp_path / "agent")
    policy = make_policy("hp_shield", **agent.policy.options)
    loaded = Agent.load(tmp_path / "agent", policy=policy)
    pickled = pickle.loads(pickle.dumps(agent))  # noqa: S301 -- it was written just before
    given = [treat(each, 40, Bent(4)) for each in (agent, loaded, pickled)]
    assert given[0] == given[1] == given[2]
    told = [each.preview(Bent(6).context()).certificate for each in (agent, loaded, pickled)]
    assert told[0] == told[1] == told[2]


class Ranks(Squares):
    """Predictions that depend on the other rows: past rounds, predicted together, and a new one are then not alike."""

    def predict(self, rows):
        return super().predict(rows - rows.mean(axis=0))


def test_a_regressor_that_looks_at_the_other_rows_is_refused():
    with pytest.raises(InvalidInput, match="must predict each row alike"):
        model_agent(regressor=Ranks())


class Together(Squares):
    """Answers many rows a little otherwise than each alone, as sums of 32 bits may."""

    off = 1.0

    def predict(self, rows):
        return super().predict(rows) * (1.0 if len(rows) == 1 else self.off)


@pytest.mark.parametrize("off", [1.0 + 5e-5, 1.0 - 5e-5])
def test_no_round_tolerates_a_level_above_its_own_whether_predicted_alone_or_among_others(off):
    """T̂ is of rounds predicted together, and the setting of one that is predicted alone."""
    model = Together()
    model.off = off
    options = {"learned": True, "regressor": model}
    agent = make_agent(options=options, dial=Dial(high=20.0, levels=tuple(np.arange(0.5, 20.5, 0.5).tolist())))
    treat(agent, 140, Bent())
    group = group_of(agent)
    rounds, since = group.rounds, group.bases.since
    assert since >= 50
    for row in range(since, rounds.count):
        limit, start, scale = (rounds.at(name, row) for name in ("limit", "start", "scale"))
        if -math.inf < scale < math.inf:
            base = group.base_at(rounds.context[row], rounds.at("protocol", row))
            played = agent.policy.range(start)
            assert scaled_setting(scale, base, played) <= max(limit, played.start)


def test_another_regressor_is_refused_at_loading(tmp_path):
    class Level(Squares):
        def __init__(self, level):
            super().__init__()
            self.level = level

        def predict(self, rows):
            return np.full(len(rows), self.level)

    def options(level):
        return {"base": "dose", "learned": True, "regressor": Level(level)}

    agent = make_agent(options=options(-1.5))
    treat(agent, 150)
    agent.save(tmp_path / "agent")
    Agent.load(tmp_path / "agent", policy=shield(**options(-1.5)))
    with pytest.raises(InvalidInput, match="gives other predictions than the saved one"):
        Agent.load(tmp_path / "agent", policy=shield(**options(0.0)))


def test_while_a_regressor_fails_the_start_is_given_and_rounds_count_as_unknown():
    class Remote(Squares):
        down = False

        def predict(self, rows):
            if Remote.down:
                raise TimeoutError
            return np.full(len(rows), -1.5)  # far below the protocol, which is then no stand-in

    agent, context = make_agent(options={"learned": True, "regressor": Remote()}), Bent().context()
    treat(agent, 150)
    before = agent.preview(context)
    assert before.numbers["base"] < 0.25 * context["dose"]
    Remote.down = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        decision = agent.ask(context)
        assert (decision.action, decision.guarantee) == (decision.numbers["start"], "declared")
        assert "Your model gave no number" in decision.explain()
        json.dumps(decision.certificate, allow_nan=False)
        agent.tell(decision, reward=0.0, cost=0.0)
    Remote.down = False
    after = agent.preview(context)
    assert after.certificate["count"]["exceeding"][-1] == decision.round
    assert after.action <= before.action


def test_a_regressor_that_fails_gets_the_start():
    class Fails(Squares):
        def predict(self, rows):
            if len(rows) != 5:
                raise ValueError("not today")
            return np.zeros(5)

    agent = make_agent(options={"learned": True, "regressor": Fails()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        treat(agent, 90)
        decision = agent.preview({"dose": 4.0, "weight": 70.0, "steep": 30.0})
    assert decision.numbers["fitted"] is not None
    assert (decision.numbers["base"] is None, decision.action, decision.guarantee) == (True, 1.0, "declared")
    with pytest.raises(InvalidInput, match="regressor = 3: must be an object with fit"):
        make_agent(options={"learned": True, "regressor": 3})
    with pytest.raises(InvalidInput, match=r"regressor .*: is for an Agent"):
        Lanes(shield(learned=True, regressor=Squares()), SPEC, dim=3, lanes=(1,))
