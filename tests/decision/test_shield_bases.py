"""HP-Shield's learned bases: a regressor of the user's, and the offset family."""

import json
import math
import pickle
import warnings

import numpy as np
import pytest

from safedial import Agent, Dial, InvalidInput, growth, hill, identity, make_policy, power
from safedial.core.tolerated import offset_setting, scaled_setting
from tests.conftest import make_spec
from tests.decision.shield_oracle import Past, is_largest
from tests.decision.shield_world import BRACKET, SPEC, Patients, make_agent, shield, treat


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
    history = agent._learner.history
    assert 50 <= history.base.since < history.count - 9
    assert own.certificate["base"]["fitted_at_round"] == history.base.since
    far = agent.preview({"dose": 4.0, "weight": 40.0, "steep": 30.0})
    assert far.action < 0.5 * own.action
    assert own.promise == "bracket"


def test_a_saved_regressor_is_fitted_again_to_the_same_outcomes(tmp_path):
    agent, world = model_agent(lag=2), Bent()
    treat(agent, 120, world)
    late = [agent.decide(world.context()) for _ in range(2)]
    treat(agent, 15, world)
    for decision in late:
        agent.update(decision, reward=0.0, cost=1.5)
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


@pytest.mark.parametrize(("family", "off"), [("scale", 1.0 + 5e-5), ("scale", 1.0 - 5e-5), ("offset", 1.0 + 5e-5)])
def test_no_round_tolerates_a_level_above_its_own_whether_predicted_alone_or_among_others(family, off):
    """T̂ is of rounds predicted together, and the setting of one that is predicted alone."""
    model = Together()
    model.off = off
    options = {"learned": True, "regressor": model, "family": family}
    agent = make_agent(options=options, dial=Dial(high=20.0, levels=tuple(np.arange(0.5, 20.5, 0.5).tolist())))
    treat(agent, 140, Bent())
    history = agent._learner.history
    since = history.base.since
    assert since >= 50
    for place, scale in enumerate(history.window.values, since):
        limit, start = history.columns["limit"][place], history.columns["start"][place]
        if -math.inf < scale < math.inf:
            base = history.base_at(history.contexts[place], history.columns["protocol"][place])
            played = history.range(start)
            given = (
                offset_setting(scale, base, played, threshold=history.limit)
                if family == "offset"
                else scaled_setting(scale, base, played)
            )
            assert given <= max(limit, played.start)


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
    assert before.prediction.base < 0.25 * context["dose"]
    Remote.down = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        decision = agent.decide(context)
        assert (decision.action, decision.promise) == (decision.prediction.start, "declared")
        assert "Your model gave no number" in decision.explain()
        json.dumps(decision.certificate, allow_nan=False)
        agent.update(decision, reward=0.0, cost=0.0)
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
    assert decision.prediction.fitted is not None
    assert (math.isnan(decision.prediction.base), decision.action, decision.promise) == (True, 1.0, "declared")
    with pytest.raises(InvalidInput, match="regressor = 3: must be an object with fit"):
        make_agent(options={"learned": True, "regressor": 3})
    with pytest.raises(InvalidInput, match=r"regressor .*: is for an Agent"):
        shield(learned=True, regressor=Squares()).init(3, ridge=1.0)


class Rates:
    """Costs in proportion to the setting: c = a·(rate(x) + noise)."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def context(self):
        return np.array([0.4, *self.rng.uniform(-1.0, 1.0, 2)])

    def rate(self, context):
        return max(0.2, 4.0 + 2.0 * context[1] + 0.5 * self.rng.standard_normal())


def offset_agent(**options):
    given = {"family": "offset", "growth": growth.relative(1, 1, floor=0), "start_scale": 0.2} | options
    return Agent(3, SPEC, policy=shield(**given), dial=given.pop("dial", None))


def test_the_offset_family_decides_as_the_simulated_policy():
    for options in ({}, {"growth": BRACKET, "climb": None}, {"adapt": 0.05, "chooser": "sign"}):
        agent, world = offset_agent(**options), Rates()
        policy = agent.policy
        state, simulated = policy.init(3, ridge=1.0, batch=(1, 1)), make_spec(threshold=2.0, violation_risk=0.1)
        for number in range(1, 121):
            context = world.context()
            seen = policy.predict(state, context[None, None])
            choice = policy.decide(seen, simulated, round=float(number), coin=0.5)
            decision = agent.decide(context)
            assert decision.action == pytest.approx(float(choice.intensity[0, 0]), rel=1e-9)
            cost, reward = decision.action * world.rate(context), decision.action * context[2]
            agent.update(decision, reward=reward, cost=cost)
            applied = np.full((1, 1), decision.action)
            told = (reward / applied, cost / applied, np.ones((1, 1)))
            state = policy.update(state, seen, *told, intensity=applied)
        assert decision.promise == "bracket"


@pytest.mark.parametrize("levels", [None, (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)])
@pytest.mark.parametrize("curve", [identity(), power(1.5)], ids=lambda curve: curve.name)
def test_the_offset_is_the_largest_at_which_too_few_rounds_exceed_by_brute_force(levels, curve):
    """With a dose curve g, all settings below are values of g."""
    policy, effect = shield(family="offset", growth=BRACKET, start_scale=0.3, climb=None), curve.effect
    agent = Agent(3, SPEC, policy=policy, dial=Dial(levels=levels), dose=curve)
    marks = None if levels is None else [0.0, *map(effect, levels)]
    world, lived, checked = Rates(), [], 0
    for _ in range(110):
        context = world.context()
        decision = agent.decide(context)
        seen, history = decision.prediction, agent._learner.history
        if seen.rank and math.isfinite(seen.allowed):
            coef = history.base.coef[0]

            def played(scale, x, coef=coef):
                rate = coef[0] + coef[1:] @ x - scale
                setting = min(1.0, 2.0 / rate) if rate > 0.0 else 1.0
                if marks is not None:
                    setting = max(level for level in marks if level <= setting)
                return max(setting, effect(0.3 * 0.4 if levels is None else 0.1))

            window = lived[len(lived) - seen.size :]
            past = [Past(a, c, lambda scale, x=x, played=played: played(scale, x)) for x, a, c in window]
            assert len(lived) - seen.size >= history.base.since
            assert is_largest(past, seen.allowed, BRACKET, threshold=2.0, rank=seen.rank, near=1e-9)
            assert effect(decision.action) == pytest.approx(played(seen.allowed, context))
            checked += 1
        cost = effect(decision.action) * world.rate(context)
        agent.update(decision, reward=0.0, cost=cost)
        lived.append((context, effect(decision.action), cost))
    assert checked > 60
    unit = "unit" if curve.name == "identity" else "unit of the dose curve"
    assert f"at which the predicted cost per {unit} plus" in decision.certificate["statement"]


@pytest.mark.parametrize("levels", [None, (0.3, 0.5, 0.8, 1.0)])
def test_with_a_dose_curve_the_offset_family_decides_as_the_simulated_policy_does_in_intensities(levels, tmp_path):
    curve, options = hill(0.6, 2.0), {"family": "offset", "growth": growth.relative(0.9, 1.2, floor=0.01)}
    own = shield(**options, start_scale=None)
    agent = Agent(3, SPEC, policy=own, start_action=0.3, dose=curve, dial=Dial(levels=levels))
    start, marks = float(curve.effect(0.3)), levels and tuple(float(curve.effect(level)) for level in levels)
    given = options | {"base": lambda context: np.full(len(context), start), "start_scale": 1.0, "levels": marks}
    policy = shield(**given)
    state, simulated = policy.init(3, ridge=1.0, batch=(1, 1)), make_spec(threshold=2.0, violation_risk=0.1)
    world, settings = Rates(), set()
    for number in range(1, 111):
        context = world.context()
        seen = policy.predict(state, context[None, None])
        choice = policy.decide(seen, simulated, round=float(number), coin=0.5)
        decision = agent.decide(context)
        applied = curve.effect(decision.action)
        assert applied == pytest.approx(float(choice.intensity[0, 0]), rel=1e-9)
        cost = float(applied) * world.rate(context)
        agent.update(decision, reward=0.0, cost=cost)
        told = (np.zeros((1, 1)), np.full((1, 1), cost / applied), np.ones((1, 1)))
        state = policy.update(state, seen, *told, intensity=choice.intensity)
        settings.add(decision.action)
    assert decision.promise == "bracket"
    assert settings <= set(levels) if levels else len(settings) > 50
    assert "times the largest intensity of the last 5 known rounds" in decision.explain()
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").preview(context).certificate == agent.preview(context).certificate


def test_the_climb_limit_of_the_offset_family_is_on_settings_and_allows_the_next_level():
    world = Rates()
    for levels in (None, (0.1, 0.4, 1.0)):
        policy = shield(family="offset", growth=growth.relative(1, 1, floor=0), start_scale=0.3)
        agent, given = Agent(3, SPEC, policy=policy, dial=Dial(levels=levels)), [0.12]
        for _ in range(40):
            decision = agent.decide(world.context())
            assert decision.action <= 1.25 * max(given[-5:]) * (1 + 1e-9) or decision.action in (levels or ())
            agent.update(decision, action=decision.action, reward=0.0, cost=0.5 * decision.action)
            given.append(decision.action)
        assert max(given) == 1.0


def test_the_offset_family_is_put_in_words_saved_and_taught_nothing_by_rounds_given_nothing(tmp_path):
    agent, world = offset_agent(regressor=Squares()), Rates()
    first = agent.decide(world.context())
    agent.update(first, action=0.0, reward=0.0, cost=0.0)
    assert agent._learner.history.lessons == []
    for _ in range(120):
        context = world.context()
        decision = agent.decide(context)
        agent.update(decision, reward=0.0, cost=decision.action * world.rate(context))
    told, words = decision.certificate, decision.explain()
    json.dumps(told)
    assert "would have exceeded 2 at the setting at which the predicted cost per unit plus" in told["statement"]
    assert told["base"]["cost_per_unit"] == pytest.approx(4.0 + 2.0 * context[1], abs=1.0)
    assert "The predicted cost: " in words
    assert "which asks to add" in words
    assert "times the largest setting of the last 5 known rounds" in words
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent", policy=agent.policy)
    context = world.context()
    assert loaded.preview(context).certificate == agent.preview(context).certificate
    free = offset_agent(growth=growth.additive(0.0, 0.001))
    for _ in range(40):
        decision = free.decide(world.context())
        free.update(decision, reward=0.0, cost=0.0)
    assert "at the end of the dial" in free.preview(world.context()).certificate["statement"]
