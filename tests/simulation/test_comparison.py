"""Policies on the same random numbers: differences are paired by seed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from safedial import InvalidInput, LinearWorld, compare, hp_probe, simulate
from safedial.io import read_rows
from safedial.simulation.results import TAKEN
from safedial.stats import as_seeds, difference_interval, seed_interval, share_interval, violation_interval
from tests.conftest import make_spec
from tests.program import run

WORLD = LinearWorld(dim=3)


@pytest.fixture(scope="module")
def found():
    return compare(["hp_ucb", "hp_probe"], WORLD, make_spec(threshold=[0.2, 0.6]), rounds=100, seeds=range(3, 7))


def test_differences_are_those_of_each_seed_alone(found):
    assert [(row["policy"], row["threshold"]) for row in found.table] == [
        (policy, threshold) for policy in ("HP-UCB", "HP-Probe") for threshold in (0.2, 0.6)
    ]
    row, spec = found.table[3], make_spec(threshold=0.6)
    pairs = [
        [simulate(name, WORLD, spec, rounds=100, seeds=[seed]) for seed in range(3, 7)]
        for name in ("hp_ucb", hp_probe())
    ]
    differences = [float((probe.regret - ucb.regret)[0, 0]) for ucb, probe in zip(*pairs, strict=True)]
    assert row["regret_difference"] == pytest.approx(np.mean(differences))
    assert (row["regret_difference_low"], row["regret_difference_high"]) == pytest.approx(seed_interval(differences))
    apart = [row["regret_high"] - row["regret_low"] for row in found.table]
    assert row["regret_difference_high"] - row["regret_difference_low"] < apart[1] + apart[3]
    counts = [float(probe.violations[0, 0]) for probe in pairs[1]]
    assert (row["violation_rate_low"], row["violation_rate_high"]) == violation_interval(counts, 100)
    assert row["guaranteed_risk"] == pytest.approx(spec.guaranteed_risk)
    assert "2 policies in LinearWorld: 100 rounds, 4 seeds" in found._repr_html_()
    assert found.table[0]["regret_difference"] == found.table[0]["violation_difference"] == 0.0


def test_the_table_in_pandas_has_every_setting(found):
    table = found.to_frame()
    told = {"policy_name": ["hp_ucb", "hp_probe"], "world": ["LinearWorld"], "dim": [3], "rounds": [100], "seeds": [4]}
    told |= {"threshold": [0.2, 0.6], "policy_probe": ["sqrt"], "engine": ["numpy"], "cost_noise": [1.0]}
    assert {name: table[name].dropna().unique().tolist() for name in told} == told
    assert table["regret"].tolist() == [row["regret"] for row in found.table]
    assert {name for name in found.table[0] if name != "policy"} <= TAKEN
    assert table.columns[:2].tolist() == ["policy", "policy_name"]


def test_the_interval_of_a_share_covers_as_often_as_it_says():
    """At level 0.9 with 30 seeds; a false alarm of this test has probability below 1e-4."""
    rng, truth = np.random.default_rng(0), 0.7
    wholes = rng.uniform(5.0, 15.0, (2000, 30))
    parts = truth * wholes + rng.normal(0.0, 1.0, wholes.shape)
    ends = [share_interval(*pair, level=0.9) or (0.0, 0.0) for pair in zip(parts, wholes, strict=True)]
    assert np.mean([low <= truth <= high for low, high in ends]) == pytest.approx(
        0.9, abs=4 * (0.09 / 2000) ** 0.5 + 0.005
    )
    assert share_interval([1.0], [2.0]) == (0.5, 0.5)
    assert share_interval([1.0], [0.0]) is None


def test_labels_tell_policies_apart_and_specs_may_guarantee_different_things(found):
    spec = make_spec(violation_risk=0.02, estimation_risk=0.02)
    conformal = {"name": "hp_conformal", "start_dose": 0.05}
    specs = [spec, replace(spec, guarantee="conformal")]
    both = compare(["hp_probe", conformal], WORLD, specs, rounds=60, seeds=2)
    assert list(both.runs) == ["HP-Probe", "HP-Conformal"]
    named = compare({"paper": {"name": "hp_ucb", "radius": "paper"}}, WORLD, spec, rounds=20, seeds=[4])
    assert named.to_frame()["policy"].tolist() == ["paper"]
    radii = [{"name": "hp_ucb", "radius": radius} for radius in ("paper", "mixture")]
    assert list(compare(radii, WORLD, spec, rounds=20, seeds=1).runs) == [
        "HP-UCB, radius paper",
        "HP-UCB, radius mixture",
    ]


def test_one_seed_shows_no_spread():
    first, second = compare(["hp_ucb", "hp_probe"], WORLD, make_spec(), rounds=20, seeds=1).table
    assert second["regret"] > 0.0
    for name in ("regret", "share", "regret_difference"):
        assert second[f"{name}_low"] is second[f"{name}_high"] is None
    assert first["regret_difference_low"] == first["violation_difference_high"] == 0.0
    shown = run("compare", "--policy", "hp_ucb", "--dim", 2, "--threshold", 0.5, "--rounds", 20, "--seeds", 1)
    assert "±" not in shown.stdout


@pytest.mark.parametrize("rates", [(0.0002, 0.0004), (0.0, 0.001), (0.002, 0.004), (0.2, 0.1)])
def test_the_interval_of_a_difference_of_rates_covers_as_often_as_it_says(rates):
    """At level 0.9, 5 seeds of 200 rounds; where all seeds tie, Student's interval is a point. A false alarm of this
    test has probability below 1e-3.
    """
    rng, runs = np.random.default_rng(2), 2000
    covered = 0
    for _ in range(runs):
        one, other = (rng.binomial(200, rate, size=5) for rate in rates)
        low, high = difference_interval(one, other, 200, 0.9)
        covered += low <= rates[0] - rates[1] <= high
    assert covered >= 0.875 * runs


def test_a_picture_of_no_known_format_is_refused(found, tmp_path):
    with pytest.raises(InvalidInput, match=r"cannot be written .*foo"):
        found.plot(tmp_path / "compare.foo")


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"policies": []}, "at least one"),
        ({"policies": ["hp_ucb", "hp_ucb"]}, "twice; name each once, or with other options"),
        ({"policies": [hp_probe]}, "call it"),
        ({"spec": [make_spec()]}, "one for each of the 2"),
        ({"spec": [make_spec(), make_spec(cost_noise=0.5)]}, "cost_noise.*differ"),
        ({"spec": [make_spec(), make_spec(threshold=0.9)]}, "threshold.*differ"),
        ({"policies": "hp_ucb"}, "policies = 'hp_ucb': must be a list"),
        ({"policies": None}, "policies = None: must be a list"),
        ({"level": 1.0}, "level"),
        ({"level": "high"}, "level = 'high'"),
        ({"seeds": "9" * 30}, "too many seeds"),
        ({"seeds": "5:5"}, "seeds"),
    ],
)
def test_an_impossible_comparison_is_refused(wrong, rule):
    given = {"policies": ["hp_ucb", "hp_probe"], "spec": make_spec(), "seeds": 2, "level": 0.9} | wrong
    policies, spec = given.pop("policies"), given.pop("spec")
    with pytest.raises(InvalidInput, match=rule):
        compare(policies, WORLD, spec, rounds=5, **given)


def test_seeds_are_a_count_a_range_a_list_or_an_array():
    assert as_seeds(np.arange(3)) == as_seeds(3) == as_seeds("3") == as_seeds(":3") == [0, 1, 2]
    assert as_seeds("7,") == [7]
    assert as_seeds(np.int64(3)) == as_seeds(np.uint8(3)) == [0, 1, 2]
    with pytest.raises(InvalidInput, match=r"seeds = \{1, 2\}.*a set has no order: give sorted"):
        as_seeds({1, 2})
    for wrong in ("a:3", "1,x", "", "3:1", -1, np.int64(0), True, np.True_, 3.0, {1, 2}, np.array([0.5])):
        with pytest.raises(InvalidInput, match=r"--seeds = .*a range such as 0:100"):
            as_seeds(wrong, "--seeds")


def test_the_command_line_compares_and_draws(tmp_path):
    words = ("--dim", 2, "--threshold", 0.5, "--rounds", 40, "--seeds", "3,5,9")
    named = ("--policy", "hp_ucb,radius=paper", "--policy", "on_expectation", "--world", "linear,noise=uniform")
    done = run("compare", *named, *words, "--out", tmp_path, "--json")
    told = json.loads(done.stdout)
    assert (told["seeds"], told["world"]) == ([3, 5, 9], "LinearWorld")
    assert [row["policy"] for row in told["policies"]] == ["HP-UCB", "On-Expectation"]
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "compare.csv").read_text().count("\n") == 3
    assert [row["noise"] for row in read_rows(tmp_path / "compare.csv")] == ["uniform"] * 2
    made = json.loads((tmp_path / "compare.provenance.json").read_text())["settings"]
    assert (made["seeds"], made["policies"]["HP-UCB"]["policy"]["radius"]) == ([3, 5, 9], "paper")
    assert [Path(path).name for path in told["files"]] == ["compare.csv", "compare.provenance.json", "compare.png"]
    shown = run("compare", *named, *words)
    assert "paired by seed" in shown.stdout
    for wrong in (("--policy", "hp_ucb,radius"), ("--policy", "hp_ubc"), ()):
        assert run("compare", *wrong, *words).returncode == 2
