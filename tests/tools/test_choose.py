"""`choose`: the policy that an expert would take, for the right reasons, with a forecast that comes true."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.choose import USERS, measured
from safedial import Cost, InvalidInput, LinearWorld, SafetySpec, choose, growth, identity, load_spec
from safedial.cli import make_app
from safedial.simulation.results import simulated_log
from safedial.tools.candidates import ASSUMPTIONS, CANDIDATES, MEANING, QUESTIONS, read_answers

KNOWN = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1, "context_bound": 1}
LAB = {"curve": "exact", "linear": True, "noise": "gaussian", "start": 0.05, "threshold": 0.5, "constants": KNOWN}
SMALL = {"rounds": 40, "dim": 2, "seeds": 4}


@pytest.mark.parametrize("name", USERS)
def test_it_chooses_as_an_expert_would_and_the_forecast_comes_true(name):
    """The share of the chosen policy in studies with other seeds is within a tenth of the forecast."""
    fields, expected = USERS[name]
    less = fields | {"rounds": min(fields["rounds"], 150)}
    found = choose(**less, seeds=20)
    assert found.best.policy.name == expected
    assert measured(found, 20) == pytest.approx(found.best.forecast.share, rel=0.1)
    assert found.best.forecast.share_low < found.best.forecast.share < found.best.forecast.share_high
    assert found.best.forecast.rate_low <= less["risk"]


def test_the_ranking_is_by_the_simulated_share_and_follows_the_plan():
    """At few rounds the certified Gaussian margin beats conformal bounds, at many it does not."""
    both = LAB | {"noise": "both", "exchangeable": True, "start": None, "dim": 5, "seeds": 5}
    few, many = choose(**both, rounds=40), choose(**both, rounds=600)
    for found in (few, many):
        shares = [each.forecast.share for each in found.offers]
        assert shares == sorted(shares, reverse=True)
    order = [[each.name for each in found.offers] for found in (few, many)]
    pair = "hp_conformal", "hp_probe, Gaussian margin"
    assert [names.index(pair[0]) > names.index(pair[1]) for names in order] == [True, False]


def test_nothing_is_vouched_for_without_an_answer():
    found = choose(threshold=0.5)
    assert found.offers == ()
    assert found.words()[0].startswith("No policy can be offered")
    offered = {candidate.policy for candidate in CANDIDATES}
    assert set(found.refused) == offered | {"on_expectation", "hp_bayes"}
    with pytest.raises(InvalidInput, match="supports no policy; `refused` says"):
        _ = found.best


@pytest.mark.parametrize(
    ("changed", "policy", "why"),
    [
        ({"noise": "unknown"}, "hp_student", "vouch for Gaussian noise"),
        ({"linear": False}, "hp_student", "vouch for linear cost"),
        ({"start": None}, "hp_student", "vouch for safe start or constants"),
        ({}, "hp_conformal", "vouch for exchangeable rounds"),
        ({}, "hp_probe", "vouch for constants"),
        ({}, "hp_shield", "vouch for bracket, exchangeable rounds"),
        ({}, "nonlinear_hp_probe", "takes costs of 0 or 1, not a measured cost"),
        ({}, "hp_bayes", "nothing is proved"),
    ],
)
def test_each_policy_that_is_not_offered_says_what_it_would_need(changed, policy, why):
    assert why in choose(**(LAB | changed), **SMALL).refused[policy]


def test_an_assumed_constant_is_in_the_forecast_and_not_in_the_spec():
    stated = choose(**LAB, **SMALL)
    assert stated.best.spec.cost_noise is None
    assert stated.user.assumed == KNOWN
    vouched = choose(**(LAB | {"noise": "constants"}), **SMALL)
    assert vouched.best.spec.cost_noise == 0.3
    assert vouched.user.assumed == {}


def test_costs_in_other_units_give_the_same_shares():
    plain = {"curve": "exact", "exchangeable": True, "start": 0.05, **SMALL}
    ones = [choose(threshold=size, **plain).best.forecast.share for size in (0.5, 40.0)]
    assert ones[0] == pytest.approx(ones[1], rel=1e-9)


def test_several_costs_of_known_noise_are_simulated_and_others_are_offered_without_a_forecast():
    costs = {"heat": Cost(threshold=2, noise=0.3), "load": Cost(threshold=5, noise=1)}
    known = {name: value for name, value in KNOWN.items() if name != "cost_noise"}
    given = {"curve": "exact", "linear": True, "cost": "several", "costs": costs, "constants": known, **SMALL}
    found = choose(**given, noise="both", start=0.05)
    assert [each.name for each in found.offers] == ["hp_student", "hp_probe"]
    assert 0 < found.offers[1].forecast.share < found.best.forecast.share < 1
    for rank in (1, 2):
        assert found.spec_file(rank).agent().ask([0.1, 0.2]).action > 0
    quiet = given | {"costs": {"heat": Cost(threshold=2), "load": Cost(threshold=5)}}
    found = choose(**quiet, noise="gaussian", start=0.05)
    assert [each.name for each in found.offers] == ["hp_student"]
    assert found.best.forecast is None
    assert "Without a forecast" in str(found)


def test_several_costs_with_brackets_are_the_shields():
    costs = {name: Cost(threshold=20, growth=growth.relative(0.7, 1.4, floor=2)) for name in ("auc", "trough")}
    found = choose(curve="bracket", exchangeable=True, cost="several", costs=costs, start=0.25, **SMALL)
    assert [each.name for each in found.offers] == ["hp_shield"]


def test_the_first_offer_is_a_spec_file_that_makes_an_agent():
    for fields, expected in USERS.values():
        found = choose(**(fields | {"rounds": 20}), seeds=2)
        assert found.spec_file().agent().policy.name == expected
    with pytest.raises(InvalidInput, match="rank = 99: must be a whole number from 1"):
        found.spec_file(99)


def test_a_pilot_gives_numbers_and_can_only_contradict():
    true = SafetySpec(threshold=2, total_risk=0.05, **(KNOWN | {"reward_noise": 0.2, "cost_noise": 0.2}))
    pilot = simulated_log("hp_probe", LinearWorld(dim=2), true, rounds=120)
    found = choose(pilot, threshold=2.0, dose=identity(), rounds=40, seeds=3)
    assert found.user.dim == 2
    assert 0.2 <= found.user.constants["cost_noise"] < 0.4
    assert not found.user.against
    assert "hp_student" in found.refused
    bent = simulated_log("hp_probe", LinearWorld(dim=2, mean="sine"), true, rounds=600)
    against = choose(bent, threshold=2.0, linear=True, dose=identity(), rounds=40, seeds=3)
    assert "linear" in against.user.against
    assert "linear cost" in against.refused["hp_probe"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"curve": "exactly"}, "curve = 'exactly': must be one of unknown, exact, bracket"),
        ({"threshold": None}, "threshold = None: must be a number > 0"),
        ({"risk": 0.7}, "risk = 0.7: must lie between 0 and 0.5"),
        ({"rounds": 0}, "rounds = 0: must be a whole number >= 1"),
        ({"start": 2}, "start = 2: must be a number in"),
        ({"noise": "constants", "constants": {}}, "are missing: you say that you can state them"),
        ({"constants": {"kappa": 1}}, "constants = 'kappa': is not one of"),
        ({"curve": "bracket"}, "growth = None: is missing: you say that you know a bracket"),
        ({"curve": "bracket", "growth": growth.spread(1.2, 0.5)}, "spread is for costs of 0 or 1"),
        ({"cost": "zero-one", "threshold": 2}, "threshold = 2: must be below 1"),
        ({"cost": "several"}, "threshold = 0.5: does not go with several costs"),
        ({"costs": {}}, "costs = {}: are for cost='several'"),
        ({"cost": "several", "threshold": None}, "costs = None: must be a mapping"),
    ],
)
def test_bad_input_is_refused_with_the_way_out(given, words):
    with pytest.raises(InvalidInput, match=words.replace("(", r"\(")):
        choose(**({"threshold": 0.5} | given))


def test_every_answer_vouches_for_known_assumptions_and_every_need_is_one():
    vouched = {each for question in QUESTIONS.values() for answer in question.answers.values() for each in answer}
    needed = {name for candidate in CANDIDATES for need in candidate.needs for name in need.split("|")}
    assert vouched | {"start"} == set(ASSUMPTIONS) == set(MEANING) == needed
    assert len(QUESTIONS) == 5
    assert read_answers({}, pilot=True)["linear"] == "yes"


OPTIONS = "choose --curve exact --linear --noise gaussian --start 0.05 --threshold 0.5 --rounds 40 --dim 2 --seeds 3"


def run(text: str):
    return CliRunner().invoke(make_app("choose"), text.split())


def test_the_command_gives_the_table_json_and_files(tmp_path):
    shown = run(OPTIONS)
    assert shown.exit_code == 0
    assert "First: hp_student" in shown.stdout
    told = json.loads(run(f"{OPTIONS} --json --out {tmp_path}").stdout)
    assert told["offers"][0]["policy"] == "hp_student"
    assert {Path(path).name for path in told["files"]} == {
        "choose.json",
        "choose.csv",
        "choose_curves.csv",
        "choose.png",
        "spec.toml",
    }
    again = json.loads(run(f"choose --spec {tmp_path}/spec.toml --rounds 40 --seeds 0:3 --json").stdout)
    assert again["offers"][0] == told["offers"][0]
    assert load_spec(tmp_path / "spec.toml").agent().policy.name == "hp_student"


def test_a_bracket_on_the_command_line():
    told = run("choose --curve bracket --bracket relative:0.7,1.4,2 --exchangeable --start 0.25 --threshold 20 "
               "--rounds 40 --seeds 3 --json")  # fmt: skip
    assert json.loads(told.stdout)["offers"][0]["policy"] == "hp_shield"
    for text, words in (("relative:0.7", "must be relative:LOW"), ("relative:2,1,1", "low = 2"), ("linear:1", "must")):
        refused = run(f"choose --curve bracket --bracket {text} --threshold 20").exception
        assert isinstance(refused, InvalidInput)
        assert words in str(refused)


@pytest.mark.parametrize("noise", ["both", "constants"])
@pytest.mark.parametrize("exchangeable", [True, False])
def test_constants_and_a_start_may_both_be_stated(noise, exchangeable):
    known = {"reward_noise": 0.3, "cost_noise": 0.3, "coefficient_bound": 1.0, "context_bound": 1.0}
    given = {"curve": "exact", "linear": True, "noise": noise, "exchangeable": exchangeable, "start": 0.05}
    found = choose(**given, threshold=0.5, rounds=40, dim=2, constants=known, seeds=3)
    assert "hp_probe" in found.best.name or len(found.offers) > 1


def test_the_number_of_excesses_is_guaranteed_for_one_cost_only():
    given = {"curve": "exact", "linear": True, "noise": "gaussian", "start": 0.05, "rounds": 30, "dim": 2, "seeds": 3}
    guaranteed = choose(**given, threshold=0.5).best.guarantees
    assert guaranteed.endswith("in 30 rounds the number of excesses is at most binomial(30, 0.05): 1.5 on average")
    several = choose(**given, cost="several", costs={"a": Cost(threshold=0.5), "b": Cost(threshold=0.3)})
    assert not any("number of excesses" in offer.guarantees for offer in several.offers)
