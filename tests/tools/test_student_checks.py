"""Logs of a student spec: bets on p-values with their error rate, what each catches, and the monitor of an Agent."""

import json

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, InvalidInput, SafetySpec, check_log, hp_student, watch_log
from safedial.rounds.log_file import Log
from safedial.tools.checks import CHECKS
from safedial.tools.checks_page import draw_monitor, write_checks
from safedial.tools.gaussian_checks import BETS, NOT_APPLICABLE

SPEC = SafetySpec(threshold=0.5, violation_risk=0.05, guarantee="student")
ANYTIME = SafetySpec(threshold=0.5, violation_risk=0.05, estimation_risk=0.01, guarantee="student")
COEF = np.array([0.3, -0.2, 0.4])


def contexts(rng, count):
    return np.column_stack([rng.standard_normal((count, 2)), np.ones(count)])


def logged(noise, context, mean=None, action=0.1):
    """A log of costs with this noise per unit of intensity."""
    count = len(noise)
    action = np.full(count, action)
    return Log(
        names=("age", "weight", "one"), context=context, action=action, reward=action,
        cost=action * ((context @ COEF if mean is None else mean) + noise), round=np.arange(1.0, count + 1),
        advised=action, baseline_cost=np.zeros(count),
    )  # fmt: skip


def flagged(log, **options):
    return {each.name for each in check_log(log, SPEC, **options)[1] if each.flagged}


def test_false_flags_are_as_rare_as_stated_while_contexts_drift(count):
    """At most one log in five at level 0.2; this test's own false-alarm level is 1e-6."""
    runs, rng = count(25, 300), np.random.default_rng(0)
    told = 0
    for _ in range(runs):
        context = contexts(rng, 50)
        context[:, 0] += np.linspace(0.0, 4.0, 50)
        told += bool(flagged(logged(rng.standard_normal(50), context), level=0.2))
    assert binomtest(told, runs, 0.2, alternative="greater").pvalue > 1e-6


def own_costs(rng, context, noise):
    """The first feature is the cost of the round before."""
    context, cost = context.copy(), 0.0
    for row, size in zip(context, noise, strict=True):
        row[0] = cost
        cost = row @ np.array([0.5, -0.2, 0.4]) + size
    return logged(noise, context, context @ np.array([0.5, -0.2, 0.4]))


BROKEN = {
    "exponential": ("normality", 300, lambda rng, x, e: logged(rng.exponential(size=len(e)) - 1.0, x)),
    "t(3)": ("normality", 500, lambda rng, x, e: logged(rng.standard_t(3, len(e)), x)),
    "one huge cost": ("normality", 60, lambda rng, x, e: logged(e - 1e9 * (np.arange(60) == 50), x)),
    "a size that follows age": ("equal_variance", 300, lambda rng, x, e: logged(e * np.exp(0.5 * x[:, 0]), x)),
    "a square": ("linearity", 300, lambda rng, x, e: logged(e, x, x @ COEF + 0.6 * x[:, 0] ** 2)),
    "a rise": ("residuals", 200, lambda rng, x, e: logged(e + 1.5 * (np.arange(200) > 100), x)),
    "a fall": ("linearity", 200, lambda rng, x, e: logged(e - 1.5 * (np.arange(200) > 100), x)),
    "contexts that hold the last cost": ("contexts", 200, own_costs),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_guarantee_is_caught(name):
    check, rounds, make = BROKEN[name]
    rng = np.random.default_rng(1)
    log = make(rng, contexts(rng, rounds), rng.standard_normal(rounds))
    found = {each.name: each for each in check_log(log, SPEC)[1]}
    assert found[check].flagged
    assert found["equal_variance"].details["feature"] == "age" or check != "equal_variance"


def test_every_check_is_run_or_listed_with_the_reason_and_the_page_shows_them(tmp_path):
    rng = np.random.default_rng(2)
    rounds, found = check_log(logged(rng.standard_normal(80), contexts(rng, 80)), SPEC)
    assert sum(each.evidence is not None for each in found) == BETS
    assert {each.name for each in found if each.word == "not applicable"} == set(NOT_APPLICABLE)
    assert set(CHECKS) <= {each.name for each in found}
    json.dumps([each.to_dict() for each in found])
    page = write_checks(tmp_path / "page.html", rounds, found, log="log.csv", level=0.05).read_text()
    assert "if noise is Gaussian and of one size" in page
    same = logged(rng.standard_normal(40), np.ones((40, 1)), np.zeros(40))
    assert check_log(same, SPEC)[1][2].details["feature"] == "none"


@pytest.mark.parametrize(("spec", "options"), [(SPEC, {}), (ANYTIME, {"guarantee": "anytime", "mixture_ridge": 3.0})])
def test_the_monitor_is_that_of_an_agent(spec, options, tmp_path):
    rng, policy = np.random.default_rng(3), hp_student(probe=1.0, **options)
    agent = Agent(3, spec, start_action=0.05, policy=policy)
    rows = []
    for number in range(70):
        context = contexts(rng, 1)[0]
        decision = agent.ask(context)
        cost = decision.intensity * (context @ COEF + 0.1 * rng.standard_normal() + max(0, 9.0 ** (number - 61) - 0.1))
        agent.tell(decision, reward=decision.intensity, cost=cost)
        rows.append((context, decision.action, cost))
    context, action, cost = (np.array(part) for part in zip(*rows, strict=True))
    log = Log(names=("a", "b", "c"), context=context, action=action, reward=action, cost=cost,
              round=np.arange(1.0, 71), advised=action, baseline_cost=np.zeros(70))  # fmt: skip
    watch = watch_log(log, spec, policy=policy)
    assert watch.evidence[-1] == pytest.approx(agent.evidence, rel=1e-9)
    assert 60 < watch.alarm_round <= 70
    assert f"ALARM at round {watch.alarm_round}" in watch.verdict()
    assert watch.violations == agent.violations
    draw_monitor(watch, tmp_path / "watch.png")
    calm = watch_log(Log(**{name: getattr(log, name)[:50] if name != "names" else log.names for name in
                            ("names", "context", "action", "reward", "cost", "round", "advised", "baseline_cost")}),
                     spec, policy=policy)  # fmt: skip
    assert "No alarm" in calm.verdict()


def test_what_cannot_be_checked_is_refused():
    rng = np.random.default_rng(4)
    log = logged(rng.standard_normal(30), contexts(rng, 30))
    with pytest.raises(InvalidInput, match="gives no student guarantee"):
        check_log(log, SPEC, policy={"name": "hp_probe"})
    with pytest.raises(InvalidInput, match="must be cost"):
        check_log(log, SPEC, target="reward")
    with pytest.raises(InvalidInput, match="too few"):
        check_log(logged(rng.standard_normal(9), contexts(rng, 9)), SPEC)
    twins = log.context[:, [2, 2, 2]]
    with pytest.raises(InvalidInput, match="full rank"):
        watch_log(logged(rng.standard_normal(30), twins), SPEC)
