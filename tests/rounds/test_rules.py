"""The one written form of the rules: it comes back as it was, and every file and answer holds it or parts of it."""

import json

import pytest

from safedial import Agent, Dial, Dose, Features, InvalidInput, SafetySpec, hill, make_policy, power
from safedial.rounds.agent import dump
from safedial.rounds.rules import Rules, read_parts
from safedial.rounds.specfile import SpecFile, parse_spec, spec_text
from safedial.simulation.sweeps import parse_grid
from safedial.study.study_spec import read_spec
from tests.conftest import make_spec


def plain():
    return Agent(2, make_spec())


def with_units():
    return Agent(
        3,
        make_spec(context_bound=3.0, noise_scale={"scale": "with_sensor", "ratio": 0.1}),
        policy=make_policy("hp_ucb", clip=False),
        dose=Dose(hill(0.4), power(1.5)),
        dial=Dial(high=20, unit="mg"),
        features=Features(names=("age", "weight"), center=(50, 70), scale=(30, 40), intercept=True),
        fallback_action=2.0,
        baseline_range=(None, 0.4),
    )


def with_levels():
    spec = SafetySpec(threshold=0.5, violation_risk=0.2, guarantee="conformal")
    return Agent(2, spec, dial=Dial(levels=[0.1, 0.3, 1.0]), start_action=0.1)


@pytest.mark.parametrize("make", [plain, with_units, with_levels])
def test_written_rules_come_back_as_they_were(make):
    rules = make()._rules
    again = Rules.from_dict(json.loads(json.dumps(rules.to_dict(), allow_nan=False)))
    assert again.to_dict() == rules.to_dict()
    assert again._replace(policy=rules.policy, dose=rules.dose) == rules


def test_rules_without_a_dimension_say_how_to_give_it():
    with pytest.raises(InvalidInput, match=r"dim = None: .*; give dim, the number of values in a context, or features"):
        read_spec(make_spec().to_dict())


def test_an_edited_certificate_changes_no_other():
    decision = with_units().ask([0.5, 0.4])
    before, edited = json.dumps(decision.certificate), decision.certificate
    for part in [part for part in edited.values() if isinstance(part, (dict, list))]:
        part.clear()
    assert json.dumps(decision.certificate) == before


def test_a_study_a_save_file_and_a_certificate_hold_this_form():
    agent = with_units()
    form = agent._rules.to_dict()
    certificate, (header, _) = agent.ask([50, 70]).certificate, dump(agent)
    study = read_spec({**form["spec"], **{name: value for name, value in form.items() if name != "spec"}}).fields
    assert {name: header[name] for name in form} == form
    assert {name: form[name] for name in form.keys() & certificate.keys()} == {
        name: certificate[name] for name in ("dim", "spec", "policy", "dose", "dial", "features", "fallback_action")
    }
    form["features"] |= {"ranges": {}, "units": {}}
    stated = {name: value for name, value in form.items() if name not in ("spec", "start_action")}
    assert study == {**form["spec"], **stated, "learning_order": study["learning_order"], "guard": study["guard"]}


def test_a_spec_file_and_the_cell_of_a_sweep_hold_parts_of_this_form():
    rules = with_units()._rules
    form = rules.to_dict()
    file = SpecFile(spec=rules.spec, dose=rules.dose, dim=3, policy=form["policy"], dial=rules.dial)
    (cell,) = parse_grid(spec_text(file)).cells
    assert {name: cell[name] for name in ("spec", "policy", "dose")} == {
        name: form[name] for name in ("spec", "policy", "dose")
    }
    assert parse_spec(spec_text(file)).agent()._rules.to_dict()["dial"] == form["dial"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"dial": 3}, "dial = 3: must be an object of named values"),
        ({"dial": {"wide": 3}}, "dial.*wide"),
        ({"policy": {"probe": 0.1}}, "policy.*must have a name"),
        ({"dose": {"reward": {"curve": "identity"}}}, "dose.*must have `curve`, or `reward` and `cost`"),
        ({"dose": {"curve": []}}, r"dose = \['curve'\]: "),
    ],
)
def test_a_part_that_is_not_in_this_form_is_named(fields, named):
    with pytest.raises(InvalidInput, match=named):
        read_parts(fields)


def test_a_grid_refuses_a_policy_that_cannot_be_written_down():
    text = spec_text(SpecFile(spec=make_spec(), dim=2, policy={"name": "nonlinear_hp_ucb"}))
    with pytest.raises(InvalidInput, match=r"nonlinear_hp_ucb.*function classes, which a grid cannot state"):
        parse_grid(text)
