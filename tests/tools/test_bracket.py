"""A bracket from pilot data: which kind, how wide, from which rows, and when nothing was learned."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from safedial import Dial, InvalidInput, calibrate_bracket
from safedial.cli import make_app
from safedial.rounds.log_file import Log
from safedial.rounds.specfile import load_spec, parse_spec, spec_text

DIAL = Dial(high=10.0, unit="mg")


def pilot(cost, *, count=400, seed=0, dose=None):
    """Settings at random shares of the protocol's; `cost(setting, tolerance, rng)`."""
    rng = np.random.default_rng(seed)
    base, weight = rng.uniform(2.0, 6.0, count), rng.normal(size=count)
    setting = base * rng.uniform(0.2, 1.2, count) if dose is None else dose(base, rng)
    tolerance = base * np.exp(0.2 * weight + 0.3 * rng.normal(size=count))
    nothing = np.zeros(count)
    return Log(
        names=("protocol", "weight"), context=np.column_stack([base, weight]), action=setting / 10.0, reward=nothing,
        cost=cost(setting, tolerance, rng), round=np.arange(1.0, count + 1.0), advised=np.full(count, np.nan),
        baseline_cost=nothing,
    )  # fmt: skip


def proportional(setting, tolerance, rng):
    return 2.0 * setting / tolerance


def propose(log, **options):
    return calibrate_bracket(log, **({"threshold": 2.0, "base": "protocol", "dial": DIAL} | options))


def test_costs_in_proportion_give_a_relative_bracket_around_1_a_floor_and_a_start():
    log = pilot(proportional)
    found = propose(log)
    low, high, floor = (found.growth.parameters[name] for name in ("low", "high", "floor"))
    assert found.growth.name == "relative"
    assert 0.5 < low < 0.9 < 1.1 < high < 2.0
    assert 0.1 <= floor <= 1.0
    settings = 10.0 * log.action
    assert np.all(found.cost.tolerated(log.cost, settings) >= found.start * log.context[:, 0])
    words = " ".join(found.words())
    for told in ("chosen by the expected outcome mislead", "for the average unit", "at most 1/401", "δ + q"):
        assert told in words
    assert not found.confounding.flagged, "settings are shares of the protocol's at random"
    wider = propose(log, caution=2.0).growth.parameters
    assert wider["low"] < low < high < wider["high"]


@pytest.mark.parametrize(
    ("cost", "options", "why"),
    [
        (lambda s, t, rng: np.maximum(2.0 * s / t - 0.8, 0.0), {}, "costs are 0 or negative"),
        (lambda s, t, rng: 3.0 + 2.0 * (s / t) ** 2, {"threshold": 6.0}, "the cost has a baseline"),
        (lambda s, t, rng: 200.0 - 20.0 * s, {"threshold": 70.0, "direction": "below"}, "must not rise"),
        (lambda s, t, rng: s - 30.0, {"threshold": -20.0}, "needs a threshold above 0"),
    ],
)
def test_where_relative_does_not_fit_additive_does_and_the_reason_is_said(cost, options, why):
    found = propose(pilot(cost), **options)
    assert found.growth.name == "additive"
    assert why in found.reason
    forced = propose(pilot(cost), **options, bracket="additive")
    assert forced.growth == found.growth
    if "baseline" in why:
        assert "But the elasticity rises" in propose(pilot(cost), **options, bracket="relative").reason
    else:
        with pytest.raises(InvalidInput, match="bracket = 'relative': does not fit"):
            propose(pilot(cost), **options, bracket="relative")


def test_additive_slopes_are_covered_and_units_that_differ_widen_them():
    found = propose(pilot(lambda s, t, rng: 5.0 + 3.0 * s), threshold=20.0, bracket="additive")
    assert found.growth.parameters["low"] < 3.0 < found.growth.parameters["high"] < 4.0
    assert 0.0 < found.start <= 1.0
    apart = propose(
        pilot(lambda s, t, rng: 5.0 + rng.uniform(0.5, 5.5, len(s)) * s), threshold=20.0, bracket="additive"
    )
    assert apart.slopes.spread > 0.7
    assert apart.growth.parameters["high"] > 5.5
    assert "standard deviations of the units' own" in apart.proposals["high"].reason


def test_an_elasticity_below_1_may_be_a_baseline_and_is_proposed_as_1():
    found = propose(pilot(lambda s, t, rng: 2.0 * (s / t) ** 0.4))
    assert found.growth.parameters["high"] == 1.0
    assert "may be due to a baseline" in found.proposals["high"].reason


def repeated(count=400):
    """Patients with higher troughs were given less: between patients costs seem to fall with the dose."""
    rng = np.random.default_rng(5)
    unit = np.repeat(np.arange(count // 8), 8).astype(float)
    level = rng.normal(size=count // 8)[unit.astype(int)]
    log = pilot(
        proportional, count=count, dose=lambda base, rng: 3.0 * np.exp(-level + 0.2 * rng.normal(size=count)) / 3.0
    )
    cost = 0.5 * (10.0 * log.action) * np.exp(1.5 * level + 0.1 * rng.normal(size=count))
    nothing = np.ones((count, 2))
    return replace(log, cost=cost, context=nothing, extra={"patient": unit})


def test_repeated_measures_are_compared_within_units_where_a_confounded_pilot_misleads():
    log = repeated()
    misled = propose(log, base=None)
    assert "does not show that the cost rises" in misled.problem
    with pytest.raises(InvalidInput, match="learned too little for a bracket"):
        misled.spec_file(violation_risk=0.05, names=())
    found = propose(log, base=None, unit="patient")
    assert found.growth.parameters["low"] < 1.0 < found.growth.parameters["high"] < 1.8
    assert "within 50 units" in found.proposals["low"].reason
    assert "at most 1/51" in found.proposals["start_action"].reason
    with pytest.raises(InvalidInput, match="a spec file states what is scaled"):
        found.spec_file(violation_risk=0.05, names=())
    with pytest.raises(InvalidInput, match="has one row for each unit"):
        propose(replace(log, extra={"patient": np.arange(400.0)}), base=None, unit="patient")
    with pytest.raises(InvalidInput, match="is not among the log's further columns"):
        propose(log, base=None, unit="ward")


def test_when_nothing_was_learned_it_says_why():
    tied = propose(pilot(lambda s, t, rng: np.where(s < t, 0.5, 3.0)))
    assert "costs are 0.5, at several doses" in tied.problem
    fixed = propose(pilot(proportional, dose=lambda base, rng: 0.5 * base))
    assert "do not vary beyond what the context explains" in fixed.problem
    assert fixed.growth is None
    with pytest.raises(InvalidInput, match="at least 30 are needed"):
        propose(pilot(proportional, count=20))
    with pytest.raises(InvalidInput, match=r"caution = 0\.5: must be a number >= 1"):
        propose(pilot(proportional), caution=0.5)
    with pytest.raises(InvalidInput, match="bracket = 'spread': must be auto, relative or additive"):
        propose(pilot(proportional), bracket="spread")
    with pytest.raises(InvalidInput, match="base = 'dose': must be a column of the context"):
        propose(pilot(proportional), base="dose")
    with pytest.raises(InvalidInput, match="must be > 0 in every row"):
        propose(pilot(proportional), base="weight")


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_a_protocol_in_another_unit_than_the_doses_is_refused_or_flagged(factor):
    log = pilot(proportional)

    def scaled(by):
        return replace(log, context=log.context * [by, 1.0])

    with pytest.raises(InvalidInput, match=r"base = 'protocol': the median of action ÷ protocol is .* to one unit"):
        propose(scaled(factor))
    doubtful = propose(scaled(factor ** (1 / 3)))
    flagged = [line for line in doubtful.words() if line.startswith("FLAG: The median of action ÷ protocol is")]
    assert len(flagged) == 1
    assert "to one unit" in doubtful._repr_html_()
    assert not propose(log).doubt


def test_rows_that_are_left_out_are_counted_with_the_reason():
    log = pilot(proportional)
    cost, action = log.cost.copy(), log.action.copy()
    cost[:8], action[7:9] = np.nan, 0.0
    found = propose(replace(log, cost=cost, action=action))
    told = "Left out: 9 of 400 rows (8 without a cost, 1 with a setting without effect)."
    assert found.left_out == told
    assert told in found.words()
    assert not propose(log).left_out
    with pytest.raises(InvalidInput, match="at least 30 are needed; Left out: 380 of 400 rows"):
        propose(replace(log, cost=np.where(np.arange(400) < 20, log.cost, np.nan)))


def test_a_start_that_is_capped_at_the_protocol_says_so():
    found = propose(pilot(proportional), threshold=40.0)
    assert found.start == 1.0
    assert "a start is at most 1, protocol itself" in found.proposals["start_scale"].reason
    assert "at most 1, protocol" not in propose(pilot(proportional)).proposals["start_scale"].reason


def test_the_spec_file_makes_an_agent():
    found = propose(pilot(proportional))
    file = parse_spec(spec_text(found.spec_file(violation_risk=0.05, names=("protocol", "weight"))))
    decision = file.agent().ask({"protocol": 5.0, "weight": 0.0})
    assert decision.action == pytest.approx(5.0 * found.start)
    low, high = found.ranges["protocol"]
    assert 0.0 < low < 2.1
    assert 6.0 < high < 8.5
    assert any(line.startswith("ranges: protocol ") for line in found.words())
    for wrong in (0.5, 5000.0):
        with pytest.raises(InvalidInput, match=r"context\['protocol'\] = .*allow_extrapolation"):
            file.agent().ask({"protocol": wrong, "weight": 0.0})


def test_the_command_writes_a_spec_file_or_says_why_not(tmp_path):
    log = pilot(proportional)
    rows = np.column_stack([log.context, 10.0 * log.action, log.cost])
    text = "\n".join(["protocol,weight,action,cost", *(",".join(map(repr, row)) for row in rows.tolist())])
    (tmp_path / "pilot.csv").write_text(text)
    place, out = str(tmp_path / "pilot.csv"), str(tmp_path / "spec.toml")
    start = ["calibrate", place, "--bracket", "auto", "--dial-high", "10"]

    def call(*words):
        return CliRunner().invoke(make_app("calibrate"), [*start, *words])

    done = call("--threshold", "2", "--total-risk", "0.05", "--base", "protocol", "--out", out)
    assert done.exit_code == 0, done.output
    assert "Relative: all costs are above 0" in done.stdout
    assert load_spec(out).policy["base"] == "protocol"
    named = call("--threshold", "2", "--base", "protocol", "--context-columns", "weight", "--out", out)
    assert named.exit_code == 0, named.output
    assert load_spec(out).features.names == ("weight", "protocol"), "the base is needed for every decision"
    picture = str(tmp_path / "slopes.png")
    told = json.loads(call("--threshold", "2", "--base", "protocol", "--plot", picture, "--json").stdout)
    assert told["growth"]["growth"] == "relative"
    assert told["files"] == [picture]
    assert Path(picture).stat().st_size > 10_000
    unnamed = call("--threshold", "2", "--out", str(tmp_path / "none.toml"))
    assert unnamed.exit_code == 1
    assert "--base" in unnamed.stderr
    assert not (tmp_path / "none.toml").exists()
    below = call("--threshold", "0.1", "--below")
    assert below.exit_code == 1, "costs rise with the setting, and never fall"
    assert "threshold" in str(call().exception)
    assert "is not for a bracket" in str(call("--threshold", "2", "--standardize").exception)
    assert "must be auto, relative or additive" in str(call("--threshold", "2", "--bracket", "spread").exception)
