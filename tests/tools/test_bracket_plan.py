"""A bracket's plan: the guarantee holds where the bracket is true, and the table shows what a false one costs."""

import json

import numpy as np
import pytest
from scipy.special import ndtri
from typer.testing import CliRunner

from safedial import Cost, InvalidInput, SafetySpec, growth, make_policy, plan
from safedial.cli import make_app
from safedial.tools.plan_page import write_plan
from safedial.tools.planning import scenarios_of
from safedial.tools.tolerances import bracket_words

SPEC = SafetySpec(threshold=20.0, violation_risk=0.05, guarantee="bracket")
TOML = """
[spec]
threshold = 20.0
violation_risk = 0.05
guarantee = "bracket"
[[policy]]
name = "hp_shield"
base = "dose"
growth = {growth = "relative", low = 0.7, high = 1.4, floor = 2.0}
start_scale = 0.1
[features]
names = ["dose", "weight"]
"""


def shield(**options):
    given = {"base": "dose", "growth": growth.relative(0.7, 1.4, floor=2.0), "start_scale": 0.1}
    return make_policy("hp_shield", **(given | options))


@pytest.fixture(scope="module")
def made():
    return plan(shield(), SPEC, rounds=120, seeds=100)


def stated(policy, rounds=60, **options):
    """The numbers of the first scenario alone."""
    given = {"assumed": {}, "seeds": 20} | options
    return plan(policy, SPEC, rounds=rounds, **given, scenarios=scenarios_of(policy, SPEC, given["assumed"])[:1])


def test_the_guarantee_is_kept_where_the_bracket_is_true_and_lost_where_it_is_not(made):
    """The chance of an excess in a round is an average over 100 studies of chances that are known exactly."""
    rows = {row["scenario"]: row for row in made.table}
    assert len(rows) == 8
    for name, row in rows.items():
        assert row["guarantee_holds"] == (name not in ("1.25 × high", "2 × high", "falling"))
        if row["guarantee_holds"]:
            assert row["worst_rate"] < 0.065, name
        assert row["guaranteed_risk"] == 0.05
    assert rows["2 × high"]["worst_rate"] > rows["1.25 × high"]["worst_rate"] > 0.05
    assert rows["falling"]["worst_rate"] > 0.1
    assert rows["falling"]["worst_round"] > 60
    assert rows["as stated"]["first_above_start"] == 20
    assert rows["as stated"]["first_dose"] == pytest.approx(0.1)
    best = np.exp(0.5 * ndtri(0.05))
    assert 0.8 * best < rows["as stated"]["last_dose"] < best * 1.05


def test_it_says_so_in_words_and_writes_tables_a_picture_and_a_page(made, tmp_path):
    words = " ".join(made.words())
    assert "The scale begins at 0.1 times the base, is above that from about round 20 on" in words
    assert "Assumed, not stated: tolerance = 1, tolerance_spread = 0.5" in words
    assert "the guarantee can break: 1.25 × high" in words
    paths = write_plan(tmp_path / "plan", made, seconds=1.0)
    assert {path.name for path in paths} == {
        "plan.csv", "plan_curves.csv", "plan.provenance.json", "plan.png", "plan.html"
    }  # fmt: skip
    page = (tmp_path / "plan" / "plan.html").read_text()
    assert "climbs from" in page
    assert "high = 1.4" in page


def test_a_climb_limit_that_is_off_costs_more_where_the_bracket_is_false():
    false = tuple(each for each in scenarios_of(shield(), SPEC, {}) if each.name == "2 × high")
    rates = [
        plan(
            shield(climb=climb, growth=growth.relative(0.7, 1.4, floor=0.02)),
            SPEC,
            rounds=60,
            seeds=100,
            scenarios=false,
        ).table[0]["worst_rate"]
        for climb in (1.1, None)
    ]
    assert rates[1] > 1.5 * rates[0]


def test_tolerances_are_assumed_in_multiples_of_the_base():
    wide, same = stated(shield(start_scale=0.2), assumed={"tolerance": 2.0}), stated(shield(start_scale=0.1))
    assert wide.table[0]["last_dose"] == pytest.approx(2.0 * same.table[0]["last_dose"])
    assert wide.assumed == {"tolerance": 2.0, "tolerance_spread": 0.5}


def test_additive_brackets_slopes_by_feature_and_costs_of_0_or_1_are_planned_too():
    additive = shield(growth=growth.additive(4, "steepest"), direction="below")
    made = stated(additive)
    row = made.table[0]
    assert row["guarantee_holds"]
    assert row["last_dose"] > 0.15
    assert "below 20" in made.words()[0]
    numbers = stated(shield(growth=growth.additive(4, 8))).table[0]
    assert numbers["last_dose"] >= row["last_dose"]
    spread = plan(shield(growth=growth.spread(1.25, 0.5)), SPEC, rounds=20, seeds=4).table
    assert [each["scenario"] for each in spread] == ["as stated", "twice the spread", "half the spread"]


TWO = SafetySpec(
    costs={
        "trough": Cost(threshold=20.0, growth=growth.relative(0.7, 1.4, floor=2.0)),
        "glucose": Cost(threshold=70.0, growth=growth.additive(4, "steepest"), direction="below"),
    },
    violation_risk=0.05,
    guarantee="bracket",
)


def test_several_costs_are_planned_together_each_by_its_own_bracket():
    policy = shield(growth=None)
    chosen = [each for each in scenarios_of(policy, TWO, {}) if each.name in ("as stated", "flat units", "2 × high")]
    made = plan(policy, TWO, rounds=40, seeds=60, scenarios=chosen)
    within, flat, beyond = made.table
    assert within["guarantee_holds"]
    assert flat["guarantee_holds"]
    assert not beyond["guarantee_holds"]
    assert max(within["worst_rate"], flat["worst_rate"]) < 0.065 < beyond["worst_rate"]
    words = made.words()
    assert "with a cost beyond its threshold" in words[0]
    assert "the others tolerate up to 1.6 times as much" in words[3]
    assert bracket_words(made).startswith("trough: growth = relative, low = 0.7, high = 1.4")
    assert "; glucose: growth = additive" in bracket_words(made)


def test_a_learned_base_is_planned_with_features_that_tell_something():
    """The chance of an excess is a mean over 60 studies and ten rounds, of chances that depend on the context."""
    first = scenarios_of(shield(learned=True), SPEC, {})[:1]
    made = plan(shield(learned=True), SPEC, rounds=120, seeds=60, dim=3, scenarios=first)
    row = made.table[0]
    assert row["guarantee_holds"]
    assert row["worst_rate"] < 0.065
    assert made.dim == 3
    words = " ".join(made.words())
    assert "times the protocol's setting" in words
    assert "explained = 0.5" in words


def test_a_learned_base_earns_more_than_its_protocol_the_more_the_features_tell():
    """Of the same spread of tolerances, features tell nothing to a protocol and nine tenths to a learned base."""
    given = {"rounds": 200, "seeds": 40, "dim": 3, "assumed": {"explained": 0.9}}
    learned = shield(learned=True, base="proposal")
    first = scenarios_of(learned, SPEC, given["assumed"])[:1]
    told = plan(learned, SPEC, **given, scenarios=first)
    assert told.dim == 4
    plain = stated(shield(), rounds=200, seeds=40)
    assert told.table[0]["last_dose"] > 1.3 * plain.table[0]["last_dose"]


def test_what_cannot_be_planned_is_refused_with_the_way_out():
    for options, given, words in (
        ({}, {"cost_noise": 1.0}, r"assumed = \['cost_noise'\]: have no part in a bracket's plan; assume tolerance"),
        ({}, {"tolerance": -1.0}, "tolerance = -1.0: must be a number > 0"),
        ({"start_scale": None}, {}, "a plan begins at a share of the base"),
        ({"start_scale": 0.5}, {"tolerance": 0.4}, "must be at most the tolerance that is assumed"),
        (
            {"growth": growth.relative(0.7, "steep", floor=2.0)},
            {},
            "must be numbers: a simulated plan has no such features",
        ),
        ({}, {"explained": 0.5}, r"assumed = \['explained'\]: have no part"),
        ({"learned": True}, {"explained": 1.0}, "explained = 1.0: must be below 1"),
        ({"learned": True}, {}, "dim = None: is missing; a learned base depends on"),
        ({"growth": None}, {}, "growth = None: or costs with brackets: state one of them"),
    ):
        with pytest.raises(InvalidInput, match=words):
            plan(shield(**options), SPEC, rounds=20, seeds=2, assumed=given)
    with pytest.raises(InvalidInput, match="no feature beside the protocol's setting"):
        plan(shield(learned=True), SPEC, rounds=20, seeds=2, dim=1)
    with pytest.raises(InvalidInput, match="dim = None: is missing"):
        plan("hp_probe", SafetySpec(threshold=1, total_risk=0.05, reward_noise=1, cost_noise=1, coefficient_bound=1,
                                    context_bound=1), rounds=20)  # fmt: skip


def test_the_command_plans_a_bracket_spec(tmp_path):
    (tmp_path / "spec.toml").write_text(TOML)
    words = ["plan", "--spec", str(tmp_path / "spec.toml"), "--rounds", "25", "--seeds", "2"]
    done = CliRunner().invoke(make_app("plan"), [*words, "--tolerance", "1.5", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["assumed"] == {"tolerance": 1.5, "tolerance_spread": 0.5}
    assert len(told["scenarios"]) == 8
    (tmp_path / "learned.toml").write_text(TOML.replace("[features]", "learned = true\n[features]"))
    learned = ["plan", "--spec", str(tmp_path / "learned.toml"), "--rounds", "25", "--seeds", "2", "--explained", "0.3"]
    done = CliRunner().invoke(make_app("plan"), [*learned, "--json"])
    assert json.loads(done.stdout)["assumed"]["explained"] == 0.3
    done = CliRunner().invoke(make_app("plan"), words)
    assert "worst round" in done.stdout
    assert "all-knowing policy's scale" in done.stdout
    assert "…" not in done.stdout, "cut at 80 columns"
