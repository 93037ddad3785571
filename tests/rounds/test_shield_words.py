"""HP-Shield's certificate: which rounds it names, and what each option says in words."""

import json
import math

import numpy as np
import pytest

from safedial import Agent, Dial, Features, SafetySpec, growth
from tests.rounds.shield_world import DIAL, RISK, SPEC, ZERO_ONE, Patients, make_agent, shield, treat


def test_the_certificate_says_which_rounds_would_have_exceeded_and_why():
    agent = make_agent()
    treat(agent, 120)
    decision = agent.ask({"dose": 4.0, "weight": 70.0, "steep": 30.0})
    told, words = decision.certificate, decision.explain()
    json.dumps(told)
    count = told["count"]
    assert (told["guarantee"], told["holds"], count["rounds"], count["may_exceed"]) == ("bracket", True, 59, 5)
    assert len(count["exceeding"]) == 5
    assert all(61 < number <= 120 for number in count["exceeding"])
    assert (
        "P(cost > 2) <= 0.1 in this round: of the latest 59 rounds with known outcomes, at most 5 would have exceeded "
        f"2 at {told['scale']['played']:.4f}"[:-1]
        in told["statement"]
    )
    assert "raising the setting by a tenth never raises the cost by more than 14.2 %" in told["statement"]
    for part in (
        "rounds " + ", ".join(map(str, count["exceeding"])),
        "0.1 + q + p0",
        "(feature dose)",
        "The start: 1 U",
    ):
        assert part in words
    later = agent.ask({"dose": 4.0, "weight": 70.0, "steep": 30.0})
    before = [json.dumps(each.certificate) for each in (decision, later)]
    agent.tell(decision, reward=0.0, cost=0.1)
    treat(agent, 30, Patients(9))
    assert [json.dumps(each.certificate) for each in (decision, later)] == before
    assert later.certificate["count"]["unknown"] == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"growth": growth.additive(0.5, 3.0)}, "one U more never raises the cost by more than 3, and one U less "
         "lowers a cost above 2 by 0.5 or more"),
        ({"growth": growth.additive(0.0, "steep", error=0.1)}, "the cost by more than steep (here 30)."),
        ({"growth": growth.additive(0.0, "steep", error=0.1)}, "by more than steep; smaller steps in proportion"),
        ({"growth": growth.relative("weight", "weight", floor=0.0)}, "by more than weight % (here 70 %), and lowering"),
        ({"growth": growth.additive(0.0, "steep", error=0.1)}, "measurement errors are at most 0.1"),
        ({"growth": growth.relative("weight", "weight", floor=0.0)}, "raising the setting by 1 % never raises"),
        ({"growth": growth.spread(1.25, 0.5)}, "normal with deviation 0.5 or more"),
        ({"growth": growth.spread(1.25, 0.5)}, "p0 > 0 where tolerances are log-normal, and adds to the risk"),
        ({"adapt": 0.05}, "those that a correction turned into excesses not (rate 0.05"),
        ({"confidence": 0.9}, "with probability 0.9 over the rounds before this one"),
        ({"base": "proposal"}, "proposals are exchangeable too"),
        ({"learned": True}, "a learned base calibrates only on rounds after its fit"),
        ({"learned": True}, "(learned from the first"),
        ({"direction": "below", "growth": growth.additive(1.0, 30.0)}, "would have fallen below 2 at"),
        ({"base": lambda raw: raw["dose"]}, "The base: the protocol's setting, 4 U."),
        ({"climb": None, "growth": growth.additive(0.0, 0.0)}, "at any multiple of the protocol's setting"),
    ],
)  # fmt: skip
def test_each_option_is_put_in_words(options, words):
    spread = "growth" in options and options["growth"].name == "spread"
    spec = SafetySpec(threshold=0.5 if spread else 2.0, violation_risk=RISK, guarantee="bracket")
    agent, world = make_agent(options=options, spec=spec), Patients()
    ask = (lambda context: {"proposal": context["dose"]}) if options.get("base") == "proposal" else None
    world.cost = lambda context, setting: 0.0 if spread else 3.0 if options.get("direction") else 0.5
    treat(agent, 150, world, ask=ask)
    context = {"dose": 4.0, "weight": 70.0, "steep": 30.0}
    decision = agent.ask(context, **(ask(context) if ask else {}))
    assert decision.guarantee == "bracket"
    assert words in decision.explain()
    json.dumps(decision.certificate)


@pytest.mark.parametrize(
    ("bracket", "dial", "words"),
    [
        (
            growth.additive(0.5, 3.0),
            Dial(high=0.5, unit="U"),
            "0.1 U more never raises the cost by more than 0.3, and 0.1 U less lowers a cost above 2 by 0.05 or more",
        ),
        (
            growth.additive(0.0, "steep"),
            Dial(high=0.02, unit="U"),
            "if 0.01 U more never raises the cost by more than 0.01 times steep (here 0.3)",
        ),
        (
            growth.relative(0.7, 1.4, floor=0.5),
            Dial(low=19.0, high=20.0),
            "by 1 % never raises the cost by more than 1.4 %, and lowering it by 1 % lowers a cost above 2 by 0.7 % or",
        ),
    ],
)
def test_the_words_speak_of_steps_for_which_the_dial_has_room(bracket, dial, words):
    agent = make_agent(options={"growth": bracket, "base": lambda raw: 0.3 * dial.high}, dial=dial)
    world = Patients()
    world.cost = lambda context, setting: 0.5
    treat(agent, 40, world)
    assert words in agent.ask({"dose": 4.0, "weight": 70.0, "steep": 30.0}).certificate["statement"]


def test_a_certificate_of_0_or_1_counts_at_most_as_many_rounds_as_may_exceed():
    agent = make_agent(options={"growth": growth.spread(1.1, 0.5), "base": lambda raw: 4.0}, spec=ZERO_ONE)
    for _ in range(150):
        decision = agent.ask({"dose": 4.0, "weight": 70.0, "steep": 30.0})
        count = decision.certificate["count"]
        assert count["would_exceed"] <= count["may_exceed"]
        agent.tell(decision, reward=0.0, cost=0.0)
    assert decision.guarantee == "bracket"


def test_the_words_say_when_the_guarantee_is_of_the_true_cost_and_where_the_bracket_is_needed():
    """Of a cost whose measurement errs by 0.25, the bracket's lower end is needed above 2 − 0.25 if τ is of measured
    costs; if it is of true ones, measured costs may exceed more often than the risk.
    """
    for on, event, beyond in (("true", "P(true cost > 2)", "above 2 by"), ("measured", "P(cost > 2)", "above 1.75 by")):
        spec = SafetySpec(threshold=2.0, violation_risk=RISK, guarantee="bracket", threshold_on=on)
        agent, world = make_agent(options={"growth": growth.additive(0.1, 0.5, error=0.25)}, spec=spec), Patients()
        world.cost = lambda context, setting: 0.5
        treat(agent, 40, world)
        said = agent.ask(world.context()).certificate["statement"]
        assert event in said
        assert beyond in said


def test_the_words_say_where_the_dial_begins_above_the_declared_share():
    agent = make_agent(dial=Dial(low=2.0, high=20.0, unit="U"))
    for dose, part in ((4.0, "or, where that is less, the dial's lowest (here 2 U)"), (10.0, "setting (here 2.5 U)")):
        told = agent.ask({"dose": dose, "weight": 70.0, "steep": 30.0}).certificate
        assert part in told["assumptions"][0]


def test_the_level_follows_the_outcomes_and_the_certificate_prints_the_long_run_bound():
    agent, world = make_agent(options={"adapt": 0.05}), Patients()
    treat(agent, 40, world)
    sane = world.cost
    world.cost = lambda context, setting: 5.0
    treat(agent, 3, world, applied=lambda advised: 0.9 * advised)
    raised = agent.ask(world.context())
    agent.tell(raised, applied_action=raised.action + 1.0, reward=0.0, cost=9.0)
    decision = agent.ask(world.context())
    told = decision.certificate["adaptive"]
    assert (told["known"], told["open"]) == (43, 0)
    assert told["exceeded"] <= told["bound"]
    assert told["bound"] == pytest.approx(0.1 * 43 + 0.1 / 0.05 + 0.9 * (1 + told["exceeded_at_start"]))
    assert decision.guarantee == "declared"
    assert "The level has fallen" in decision.explain()
    assert "Whatever the sequence of rounds" in decision.explain()
    world.cost = sane


def test_many_rounds_that_would_have_exceeded_are_counted_and_the_last_ones_named():
    agent, world = make_agent(spec=SafetySpec(threshold=2.0, violation_risk=0.5, guarantee="bracket")), Patients()
    treat(agent, 120, world)
    decision = agent.ask(world.context())
    count = len(decision.certificate["count"]["exceeding"])
    assert f" and {count - 20} earlier ones." in decision.explain()
    easy, world.cost = make_agent(), lambda context, setting: 0.0
    treat(easy, 30, world)
    assert "Would have exceeded 2: none of them." in easy.ask(world.context()).explain()


def test_the_sentence_is_about_the_scale_that_was_counted_where_the_start_is_above_it():
    agent = Agent(2, SPEC, policy=shield(base="dose", start_scale=None), dial=DIAL, start_action=2.0,
                  features=Features(names=("dose", "weight")))  # fmt: skip
    rng = np.random.default_rng(1)
    for _ in range(120):
        dose = float(rng.uniform(2.0, 10.0))
        decision = agent.ask({"dose": dose, "weight": 1.0})
        agent.tell(decision, reward=0.0, cost=2.0 * decision.action / (dose * math.exp(0.3 * rng.normal())))
    small = agent.ask({"dose": 1.0, "weight": 1.0})
    assert small.action == 2.0
    seen = small.numbers
    assert seen["counted"] < 1.0
    assert f"at {seen['counted']:.3g}"[:7] in small.certificate["statement"]
    assert "given is the start, which you declared safe" in small.certificate["statement"]
    assert seen["would_exceed"] < seen["rank"]


def test_a_certificate_stays_as_it_was_when_the_last_round_is_reported():
    agent, world = make_agent(), Patients()
    treat(agent, 60, world)
    last = agent.ask(world.context())
    preview = agent.preview(world.context())
    before = json.dumps(preview.certificate["count"])
    agent.tell(last, reward=0.0, cost=1.0)
    assert json.dumps(preview.certificate["count"]) == before
