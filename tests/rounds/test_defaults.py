"""What a new agent or study has where its user leaves options open."""

from dataclasses import replace

import pytest

from safedial import Agent, Cost, Dial, SafetySpec, Study, hp_probe
from safedial.model.noise_scale import with_sensor
from safedial.rounds.specfile import SpecFile, parse_spec, spec_text
from safedial.tools.calibration import fold_curve_error
from tests.conftest import make_spec

SPEC = make_spec(cost_noise=0.3, reward_noise=0.3)
LEARNED = {"margin": "bounded", "noise_low": -1.0, "noise_high": 1.0, "margin_risk": 0.01}
TIGHT, WIDE = ("self-normalised", "sqrt", 2.55), ("mixture", "sqrt", 1.0)


def chosen(agent):
    return (*(agent.policy.options[name] for name in ("radius", "probe")), agent.spec.ridge)


@pytest.mark.parametrize(("options", "expected"), [
    ({}, TIGHT),
    ({"policy": "hp_probe"}, TIGHT),
    ({"policy": {"name": "hp_probe"}}, TIGHT),
    ({"policy": {"name": "hp_probe", "probe": 0.1}}, ("self-normalised", 0.1, 2.55)),
    ({"policy": {"name": "hp_probe", "radius": "mixture"}}, WIDE),
    ({"policy": hp_probe()}, ("mixture", "sqrt", 1.0)),
    ({"policy": hp_probe(radius="self-normalised")}, ("self-normalised", "sqrt", 2.55)),
    ({"dial": Dial(levels=(0.1, 1.0))}, ("self-normalised", "sqrt", 2.55)),
    ({"spec": replace(SPEC, ridge=1.0)}, WIDE),
    ({"spec": make_spec(cost_noise=0.3, noise_scale=with_sensor(0.1))}, ("self-normalised", "sqrt", 2.55)),
    ({"spec": make_spec(cost_noise=0.3, **LEARNED)}, ("mixture", "sqrt", 0.18)),
    ({"dim": 50}, ("self-normalised", "sqrt", 12.7)),
    ({"dim": 51}, ("mixture", "sqrt", 4.59)),
])  # fmt: skip
def test_the_rule(options, expected):
    given = {"dim": 2, "spec": SPEC} | options
    assert chosen(Agent(given.pop("dim"), given.pop("spec"), **given)) == expected


def test_the_largest_of_several_noises_sets_the_ridge():
    costs = {"heat": Cost(threshold=2, noise=0.3), "load": Cost(threshold=1, noise=0.1)}
    constants = {"reward_noise": 1, "coefficient_bound": 1, "context_bound": 1}
    assert Agent(2, SafetySpec(costs=costs, total_risk=0.05, **constants)).spec.ridge == 2.55


def test_studies_and_spec_files_follow_the_rule_too(tmp_path):
    file = parse_spec(spec_text(SpecFile(spec=SPEC, dim=2, policy={"name": "hp_probe"})))
    assert chosen(file.agent()) == TIGHT
    study = Study.create("new", SPEC, dim=2, fallback_action=0, storage=f"sqlite:///{tmp_path}/new.db")
    with study.store:
        rules = study.spec.rules
        assert (rules.policy.options["radius"], rules.spec.ridge) == ("self-normalised", 2.55)
        assert study.spec.fields["ridge"] == 2.55


def test_constants_that_were_raised_for_an_uncertain_curve_keep_the_radius_they_were_raised_for():
    wider = fold_curve_error(SPEC, error=0.05, dim=2, rounds=500)
    assert chosen(Agent(2, wider)) == WIDE
    assert chosen(parse_spec(spec_text(SpecFile(spec=wider, dim=2))).agent()) == WIDE
