"""Features with stated ranges: an agent refuses what lies outside, unless it is told to go on, and then says so."""

import math

import pytest

from safedial import Agent, Features, InvalidInput, SafetySpec
from safedial.rounds.specfile import SpecFile, parse_spec, spec_text

SPEC = SafetySpec(threshold=0.5, total_risk=0.1, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=4)
FREE = SafetySpec(threshold=0.5, violation_risk=0.1, guarantee="conformal")


def ward(**more):
    names = ("age", "body weight")
    return Features(names=names, center=(50, 70), scale=(200, 200), ranges={"age": (0, 120)}, **more)


@pytest.fixture(params=["certified", "conformal"])
def agent(request):
    more = {"start_action": 0.1} if request.param == "conformal" else {}
    return Agent(2, SPEC if request.param == "certified" else FREE, features=ward(), **more)


def test_a_context_outside_its_range_is_refused_and_changes_nothing(agent, tmp_path):
    wrong = {"age": 600, "body weight": 70}
    for call in (agent.ask, agent.preview, lambda context: agent.ask_many([[60, 70], context])):
        with pytest.raises(InvalidInput, match=r"context\['age'\] = 600: must lie between 0 and 120") as refused:
            call(wrong)
        assert refused.value.code == "out_of_range"
    assert "row 1" in str(refused.value)
    assert agent.decisions == 0
    assert agent.ask({"age": 120, "body weight": -1e3 if agent.spec.context_bound is None else 70}).extrapolated == ()


def test_extrapolation_that_is_allowed_is_marked_on_the_decision_and_its_certificate(agent):
    wrong = {"age": 130, "body weight": 70}
    decisions = [
        agent.ask(wrong, allow_extrapolation=True),
        agent.preview(wrong, allow_extrapolation=True),
        *agent.ask_many([[60, 70], wrong], allow_extrapolation=True)[1:],
    ]
    for decision in decisions:
        assert decision.extrapolated == ("age",)
        assert decision.certificate["extrapolated"] == ["age"]
        assert "age lies outside the stated range" in decision.explain()
    agent.tell(decisions[0], reward=0.1, cost=0.1)
    assert "outside the stated range" not in agent.ask([60, 70]).explain()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_refused_as_such(agent, value):
    with pytest.raises(InvalidInput, match="finite") as refused:
        agent.ask([value, 70], allow_extrapolation=True)
    assert refused.value.code == "not_finite"


def test_the_range_is_named_before_the_norm(agent):
    with pytest.raises(InvalidInput) as refused:
        agent.ask([1e6, 70])
    assert refused.value.code == "out_of_range"


@pytest.mark.parametrize(
    "wrong",
    [
        {"ranges": {"height": (0, 2)}},
        {"ranges": {"age": (120, 0)}},
        {"ranges": {"age": 120}},
        {"ranges": {"age": (0, math.inf)}},
        {"ranges": {"age": (0, "120")}},
        {"ranges": [(0, 120)]},
        {"units": {"age": 3}},
        {"units": {"height": "m"}},
    ],
)
def test_ranges_and_units_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Features(names=("age",), **wrong)


def test_features_without_ranges_are_written_as_before():
    plain = Features(names=("age",), center=(50,), scale=(20,))
    assert plain.to_dict() == {"names": ["age"], "center": [50.0], "scale": [20.0], "intercept": False}
    assert hash(plain) == hash(Features(names=("age",), center=(50,), scale=(20,), ranges={}))


def test_ranges_survive_a_save_and_a_spec_file(agent, tmp_path):
    agent.save(tmp_path / "agent.save")
    loaded = Agent.load(tmp_path / "agent.save")
    assert loaded.features == agent.features
    with pytest.raises(InvalidInput, match="between 0 and 120"):
        loaded.ask([600, 70])
    features = ward(units={"age": "years", "body weight": "kg"})
    text = spec_text(SpecFile(spec=SPEC, dim=2, features=features))
    assert parse_spec(text).features == features
    assert spec_text(parse_spec(text)) == text
