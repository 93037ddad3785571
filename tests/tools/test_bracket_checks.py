"""Logs of a bracket guarantee: what is tested of it, with what power, and what is only counted.

Level: each statistical assertion about false alarms fails with probability below 1e-6; seeds are fixed.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner

from safedial import Agent, Dial, Features, InvalidInput, SafetySpec, check_log, growth, make_policy, watch_log
from safedial.cli import make_app
from safedial.model.costs import Cost
from safedial.rounds.log_file import Log, log_text, parse_log
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.run import simulate
from safedial.tools.bracket_checks import check_growth, check_monotonicity, compare
from safedial.tools.checks_page import draw_monitor, verdict, write_checks
from safedial.tools.slopes import slopes

SPEC = SafetySpec(threshold=2.0, violation_risk=0.05, guarantee="bracket")
BRACKET = growth.relative(0.7, 1.4, floor=0.1)
DIAL, NAMES = Dial(high=10.0, unit="mg"), Features(names=("dose", "weight"), center=(4.0, 0.0), scale=(2.0, 1.0))


def shield(**options):
    return make_policy("hp_shield", **({"base": "dose", "growth": BRACKET, "start_scale": 0.1} | options))


def logged(*, count=150, seed=0, elasticity=1.0, scale=(0.1, 0.6), drift=0.0, cost=None):
    """Settings at random below the protocol's; units tolerate about 1.2 times it."""
    rng = np.random.default_rng(seed)
    dose, weight = rng.uniform(2.0, 6.0, count) * (1.0 + drift * np.arange(count) / count), rng.normal(size=count)
    setting = dose * rng.uniform(*scale, count)
    tolerance = 1.2 * dose * np.exp(0.2 * weight + 0.3 * rng.normal(size=count))
    costs = 2.0 * (setting / tolerance) ** elasticity if cost is None else cost(setting, tolerance, rng)
    context = np.array([NAMES.transform(row) for row in np.column_stack([dose, weight])])
    nothing = np.zeros(count)
    return Log(
        names=NAMES.names, context=context, action=setting / 10.0, reward=nothing, cost=costs, baseline_cost=nothing,
        round=np.arange(1.0, count + 1.0), advised=setting / 10.0, extra={"proposal": dose},
    )  # fmt: skip


def found(log, policy=None, spec=SPEC, **options):
    given = {"policy": policy or shield(), "dial": DIAL, "features": NAMES} | options
    return {each.name: each for each in check_log(log, spec, **given)[1]}


def test_a_true_bracket_is_ok_and_the_watch_is_that_of_an_agent():
    log = logged()
    walked, findings = check_log(log, SPEC, policy=shield(), dial=DIAL, features=NAMES)
    assert {each.word for each in findings} == {"ok"}
    assert findings[1].details["interval"][0] < 1.0 < findings[1].details["interval"][1]
    assert verdict(findings).startswith("No check raised a flag: this log")
    agent = Agent(2, SPEC, policy=shield(), dial=DIAL, features=NAMES)
    for context, action, cost in zip(log.context, log.action, log.cost, strict=True):
        raw = {"dose": 4.0 + 2.0 * context[0], "weight": float(context[1])}
        agent.tell(agent.ask(raw), applied_action=float(10.0 * action), reward=0.0, cost=float(cost))
    assert walked.evidence["bracket_drift"][-1] == pytest.approx(agent.evidence, rel=1e-9)
    json.dumps([each.to_dict() for each in findings])


def test_a_false_bracket_is_contradicted_also_where_the_floor_hides_slopes():
    log = logged(elasticity=3.0, scale=(0.3, 1.0))
    told = found(log)["bracket"]
    assert told.word == "contradicted"
    assert told.details["interval"][0] > 1.4
    hidden = found(log, shield(growth=growth.relative(0.7, 1.4, floor=0.5)))["bracket"]
    assert hidden.word == "contradicted"
    assert "at the floor, 0.5, or below" in hidden.found


def simulated(elasticity, seeds, rounds=150, floor=0.1):
    """Rounds that HP-Shield played itself, one for each seed, for the slopes alone."""
    bracket = growth.relative(0.7, 1.4, floor=floor)
    policy = make_policy("hp_shield", base=0, growth=bracket, start_scale=0.1)
    world = DoseResponseWorld(dim=2, low=elasticity, high=elasticity, effect=0.2, spread=0.4)
    chunks = []
    simulate(policy, world, SPEC, rounds=rounds, seeds=seeds, points=1, record=chunks.append)
    context, action, _, cost = (np.concatenate([chunk[part][:, 0] for chunk in chunks]) for part in range(4))
    limit, ends = Cost(threshold=2.0, growth=bracket), np.tile([0.7, 1.4], (rounds, 1))
    for seed in range(seeds):
        known = {"setting": action[:, seed], "base": context[:, seed, 0], "context": context[:, seed], "ends": ends}
        yield compare(limit, cost[:, seed], **known)


def test_slopes_of_rounds_that_were_played_by_the_policy_raise_false_alarms_as_rarely_as_stated(count):
    """The worst case, all units at the bracket's upper end, tested at level 0.05."""
    runs = count(40, 1000)
    flagged = {
        check.__name__: sum(check(told, 0.05).flagged for told in simulated(1.4, runs, floor=0.02))
        for check in (check_monotonicity, check_growth)
    }
    for name, times in flagged.items():
        assert binomtest(times, runs, 0.05, alternative="greater").pvalue > 1e-6, (name, times)
    caught = [check_growth(told, 0.05).flagged for told in simulated(2.8, 12, rounds=300)]
    assert sum(caught) >= 6, "power against twice the upper end, as played"


def test_false_contradictions_of_all_checks_are_as_rare_as_stated(count):
    """At most one log in five at level 0.2."""
    runs = count(4, 200)
    flagged = 0
    for seed in range(runs):
        findings = found(logged(count=100, seed=seed, elasticity=1.4), level=0.2)
        flagged += any(each.flagged for each in findings.values())
    assert binomtest(flagged, runs, 0.2, alternative="greater").pvalue > 1e-6


def test_proposals_and_contexts_that_drift_are_contradicted():
    rising = logged(count=300, drift=2.0)
    told = found(rising, shield(base="proposal"))
    assert told["proposals"].word == told["contexts"].word == "contradicted"
    assert "fixed rule" in told["proposals"].means
    grouped = shield(base="proposal", learned=True, adapt=0.05, group="weight")
    assert found(logged(), grouped)["proposals"].word == "ok", "what is given below the cap does not matter"
    with pytest.raises(InvalidInput, match="lacks the column `proposal`"):
        found(replace(logged(), extra={}), shield(base="proposal"))


def test_costs_that_fall_are_contradicted_and_settings_that_hardly_vary_are_not_tested():
    falling = found(logged(cost=lambda setting, tolerance, rng: 2.0 * (tolerance / setting) ** 0.5 / 4.0))
    assert falling["monotonicity"].word == "contradicted"
    fixed = found(logged(scale=(0.3, 0.3)))
    assert fixed["monotonicity"].word == fixed["bracket"].word == "doubtful"
    assert "Nothing can be tested" in fixed["bracket"].means
    flat = found(logged(cost=lambda setting, tolerance, rng: 1.0 + 0.01 * rng.random(len(setting))))
    assert flat["bracket"].word == "doubtful"
    assert "State a smaller `low`" in flat["bracket"].means


def test_piled_costs_are_doubtful_with_the_way_out_on_each_side():
    low = found(logged(cost=lambda setting, tolerance, rng: np.maximum(2.0 * setting / tolerance, 0.7)))
    assert low["information"].word == "doubtful"
    assert low["information"].details["cost"] == 0.7
    assert "the floor must not be lower" in low["information"].means
    high = found(logged(cost=lambda setting, tolerance, rng: np.where(setting > 0.3 * tolerance, 2.5, setting)))
    assert "true costs lie beyond it" in high["information"].means
    assert high["start"].details["exceeded"] == 0


def test_an_unsafe_start_is_contradicted_and_the_monitor_says_when():
    unsafe = logged(scale=(0.05, 0.1), cost=lambda setting, tolerance, rng: 4.0 * rng.random(len(setting)))
    told = found(unsafe)
    assert told["start"].word == "contradicted"
    assert told["start"].details["at_start"] == 150
    watch = watch_log(unsafe, SPEC, policy=shield(), dial=DIAL, features=NAMES)
    assert watch.start_alarm == watch.first_alarm < 30
    assert "declare a lower start" in watch.verdict()


def test_missing_outcomes_are_counted_and_few_excesses_at_the_start_are_named(tmp_path):
    cost = logged().cost.copy()
    cost[::10] = np.nan
    told = found(replace(logged(), cost=cost))
    assert told["missing"].word == "doubtful"
    assert told["missing"].details == {"missing": 15, "rounds": 150}
    one = logged(scale=(0.1, 0.1), cost=lambda setting, tolerance, rng: np.append(3.0, 0.2 * setting[1:]))
    assert "add to the risk" in found(one)["start"].means
    watch = watch_log(replace(logged(), cost=cost), SPEC, policy=shield(), dial=DIAL, features=NAMES)
    assert watch.to_dict()["missing"] == 15
    assert "15 outcomes are missing. No alarm" in watch.verdict()
    assert draw_monitor(watch, tmp_path / "monitor.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match="has no round with a known outcome"):
        found(replace(logged(), cost=np.full(150, np.nan)))
    with pytest.raises(InvalidInput, match="policy = None: is missing: it states bracket, base and start"):
        check_log(logged(), SPEC)
    with pytest.raises(InvalidInput, match="policy = 'hp_probe': gives no bracket guarantee"):
        check_log(logged(), SPEC, policy=make_policy("hp_probe"))
    with pytest.raises(InvalidInput, match="must be cost for a bracket spec"):
        check_log(logged(), SPEC, policy=shield(), target="reward")
    above = replace(logged(), advised=np.zeros(150))
    with pytest.raises(InvalidInput, match="no round that the guarantee covers"):
        watch_log(above, SPEC, policy=shield(), dial=DIAL, features=NAMES)


def test_rounds_that_tolerate_less_and_less_raise_the_alarm():
    """Costs are sharp, so that what a round tolerates is known; from the middle on it is a fifth of it."""
    exact = shield(growth=growth.relative(1, 1, floor=0), start_scale=0.02)
    fallen = np.where(np.arange(300) < 150, 1.0, 8.0)
    log = logged(count=300, cost=lambda setting, tolerance, rng: fallen * 2.0 * setting / tolerance)
    watch = watch_log(log, SPEC, policy=exact, dial=DIAL, features=NAMES)
    assert 150 < watch.alarm_round < 200
    assert "or the bracket is false" in watch.verdict()
    assert found(log, exact)["rounds"].word == "contradicted"


def test_additive_brackets_below_a_threshold_with_slopes_by_feature_and_costs_of_0_or_1():
    spec = replace(SPEC, threshold=70.0)

    def glucose(slope):
        return lambda setting, tolerance, rng: 200.0 - slope * setting + 10.0 * rng.normal(size=len(setting))

    options = {"growth": growth.additive(10, 40), "direction": "below"}
    assert found(logged(cost=glucose(30.0)), shield(**options), spec)["bracket"].word == "ok"
    assert found(logged(cost=glucose(60.0)), shield(**options), spec)["bracket"].word == "contradicted"
    named = shield(growth=growth.additive(0, "dose"), direction="below")
    told = found(logged(cost=lambda setting, tolerance, rng: 200.0 - 3.0 * setting), named, spec)["bracket"]
    assert told.details["high"] == 1.0
    assert "in multiples of `high`" in told.found
    zero_one = logged(cost=lambda setting, tolerance, rng: (setting > 0.5 * tolerance).astype(float))
    told = found(zero_one, shield(growth=growth.spread(1.25, 0.3)), replace(SPEC, threshold=0.5))
    assert told["bracket"].word == "not applicable"
    assert told["monotonicity"].word == told["information"].word == "ok"


def test_several_costs_are_checked_and_counted_each():
    steep = {"auc": Cost(threshold=20.0, growth=BRACKET), "trough": Cost(threshold=2.0, growth=BRACKET)}
    spec = SafetySpec(costs=steep, violation_risk=0.05, guarantee="bracket")
    log = logged(scale=(0.3, 1.0))
    both = replace(log, extra={"cost_auc": 10.0 * log.cost, "cost_trough": 0.25 * log.cost**3})
    told = found(both, shield(growth=None), spec)
    assert (told["bracket_auc"].word, told["bracket_trough"].word) == ("ok", "contradicted")
    assert told["bracket_trough"].title == "Bracket of trough"
    watch = watch_log(both, spec, policy=shield(growth=None), dial=DIAL, features=NAMES)
    over = {"auc": int((10.0 * log.cost > 20.0).sum()), "trough": int((0.25 * log.cost**3 > 2.0).sum())}
    assert watch.by_cost == over
    assert f"By cost: auc in {over['auc']}, trough in {over['trough']}." in watch.verdict()
    assert watch.to_dict()["violations_auc"] == over["auc"]
    with pytest.raises(InvalidInput, match="lacks these columns of numbers"):
        found(log, shield(growth=None), spec)


def test_slopes_agree_with_plain_least_squares_and_its_hc3_errors():
    rng = np.random.default_rng(3)
    context, setting = rng.normal(size=(80, 2)), rng.uniform(size=80)
    outcome = 1.5 * setting + context @ [1.0, -1.0] + context[:, 0] ** 2 + rng.normal(size=80) * (0.1 + setting)
    products = np.column_stack([context**2, context[:, 0] * context[:, 1]])
    rows = np.column_stack([setting, np.ones(80), context, products])
    inverse = np.linalg.inv(rows.T @ rows)
    left = outcome - rows @ (inverse @ rows.T @ outcome)
    scores = rows * (left / (1.0 - np.einsum("ij,jk,ik->i", rows, inverse, rows)))[:, None]
    whole = slopes(outcome, setting, context).whole
    assert whole.estimate == pytest.approx((inverse @ rows.T @ outcome)[0])
    assert whole.error == pytest.approx(np.sqrt((inverse @ scores.T @ scores @ inverse)[0, 0]))
    assert whole.free == 80 - 7


def test_within_units_a_confounded_level_drops_out_and_the_spread_of_slopes_is_seen():
    rng = np.random.default_rng(4)
    unit = np.repeat(np.arange(60), 8)
    level, own = rng.normal(size=60), 1.0 + 0.3 * rng.normal(size=60)
    setting = level[unit] + rng.normal(size=480)
    outcome = own[unit] * setting - 3.0 * level[unit] + 0.2 * rng.normal(size=480)
    nothing = np.zeros((480, 1))
    assert slopes(outcome, setting, nothing).whole.estimate < 0.0
    found = slopes(outcome, setting, nothing, unit=unit)
    low, high = found.whole.interval(1e-6)
    assert low < 1.0 < high
    assert found.whole.free == 59
    assert found.spread == pytest.approx(0.3, abs=0.1)


def test_the_commands_read_a_bracket_spec_and_its_log(tmp_path):
    spec = """
[spec]
threshold = 2.0
violation_risk = 0.05
guarantee = "bracket"
[[policy]]
name = "hp_shield"
base = "proposal"
growth = {growth = "relative", low = 0.7, high = 1.4, floor = 0.1}
start_scale = 0.1
[features]
names = ["dose", "weight"]
center = [4, 0]
scale = [2, 1]
[dial]
high = 10
"""
    log = logged(elasticity=3.0, scale=(0.3, 1.0))
    raw = replace(
        log, context=log.context * [2.0, 1.0] + [4.0, 0.0], action=10.0 * log.action, advised=10.0 * log.advised
    )
    lines = log_text(raw).splitlines()
    text = [
        f"{lines[0]},proposal",
        *(f"{line},{dose}" for line, dose in zip(lines[1:], log.extra["proposal"], strict=True)),
    ]
    (tmp_path / "spec.toml").write_text(spec)
    (tmp_path / "log.csv").write_text("\n".join(text))
    log, spec, page = (str(tmp_path / name) for name in ("log.csv", "spec.toml", "page.html"))
    done = CliRunner().invoke(make_app("check"), ["check", log, "--spec", spec, "--json", "--out", page])
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert report["flagged"] == ["bracket"]
    assert [each["name"] for each in report["findings"]] == [
        "monotonicity", "bracket", "rounds", "contexts", "proposals", "start", "information", "missing"
    ]  # fmt: skip
    assert "keep to their bracket" in (tmp_path / "page.html").read_text()
    assert "contradicted" in CliRunner().invoke(make_app("check"), ["check", log, "--spec", spec]).stdout
    done = CliRunner().invoke(make_app("monitor"), ["monitor", log, "--spec", spec])
    assert done.exit_code == 0, done.output
    assert "No alarm" in done.stdout


def test_empty_cells_are_missing_outcomes_and_a_page_names_what_is_in_doubt(tmp_path):
    text = "patient,weight,action,cost\nann,1,0.5,\nbob,2,0.4,0.2\nann,3,0.1,0.3\n"
    log = parse_log(text, needs=("action",), also=("cost",), label="patient")
    assert np.isnan(log.cost[0])
    assert log.names == ("weight",)
    assert log.extra["patient"].tolist() == [0.0, 1.0, 0.0]
    assert log.rows([1]).extra["patient"].tolist() == [1.0]
    with pytest.raises(InvalidInput, match="column 'cost' = 'x': must be a finite number"):
        parse_log(text.replace("0.2", "x"), needs=("action",), also=("cost",), label="patient")
    with pytest.raises(InvalidInput, match=r"lacks these columns; it has"):
        parse_log(text, needs=("action",), also=("proposal",))
    export = (
        "decision_id,round,action,applied_action,status,guarantee,reward,cost_auc,baseline_cost,proposal,context.weight\n"
        "a,1,0.5,0.4,known,bracket,0,3,0,0.6,1\nb,2,0.5,,open,bracket,,,0,0.7,2\n"
    )
    log = parse_log(export, needs=("action",), also=("cost_auc", "proposal"))
    assert (log.names, log.action.tolist(), log.unseen.tolist()) == (("weight",), [0.4], [2.0])
    assert {name: values.tolist() for name, values in log.extra.items()} == {"cost_auc": [3.0], "proposal": [0.6]}
    walked, findings = check_log(logged(scale=(0.3, 0.3)), SPEC, policy=shield(), dial=DIAL, features=NAMES)
    assert verdict(findings) == "No check raised a flag, but these are in doubt: monotonicity, bracket."
    assert "doubt" in write_checks(tmp_path / "page.html", walked, findings, log="log", level=0.05).read_text()
