"""What an agent counts against its guarantee, and which outcomes end its learning.

Contexts have norm 0.85 and S = 1, so a mean cost of up to 0.85 a unit of intensity is within the stated norms.
"""

import numpy as np
import pytest

from safedial import Agent, InvalidInput, SafetySpec, create_study, hp_probe
from safedial.model.noise_scale import power_scale
from safedial.rounds.outcome import Round
from safedial.rounds.watch import Watch
from tests.conftest import make_spec
from tests.policies.own_linear import ByNorms

X = [0.6, 0.6]


def agent_of(**changes):
    return Agent(2, make_spec(reward_noise=0.3, cost_noise=0.3), **changes)


def by_decision(agent, share, cost):
    decision = agent.ask(X)
    agent.tell(decision, applied_action=min(1.0, share * decision.action), reward=0.1, cost=cost)


def by_context(agent, share, cost):
    decision = agent.ask(X)
    agent.tell(X, min(1.0, share * decision.action), 0.1, cost)


def by_many(agent, share, cost):
    decision = agent.ask(X)
    agent.tell_many([X], [min(1.0, share * decision.action)], [0.1], [cost])


def by_number_after_loading(agent, share, cost):
    """The report of a round that was open when the agent was saved, by its number."""
    decision = agent.ask(X)
    agent.tell(X, min(1.0, share * decision.action), 0.1, cost, round=decision.round)


REPORTS = [by_decision, by_context, by_many, by_number_after_loading]


@pytest.mark.parametrize("report", REPORTS)
def test_an_override_is_judged_at_the_setting_that_was_advised(report):
    """Twice the advice and 1.5 τ: at the advice 0.75 τ, which breaks no guarantee; 30 such rounds raise no alarm."""
    agent = agent_of()
    for _ in range(30):
        report(agent, 2.0, 0.75)
    assert (agent.violations, agent.alarmed) == (0, False)
    assert agent.evidence < 1.0


@pytest.mark.parametrize("report", REPORTS)
def test_a_hair_above_the_advice_is_watched(report):
    """A pump that rounds up blinds nothing: the alarm comes within ten rounds of the control's."""
    rounds = {}
    for share in (1.0, 1.0 + 1e-6, 1.2):
        agent, rounds[share] = agent_of(), 0
        while not agent.alarmed and rounds[share] < 100:
            report(agent, share, 0.51 * share)
            rounds[share] += 1
    assert rounds[1.0] <= 5
    assert rounds[1.0 + 1e-6] <= rounds[1.0] + 10
    assert rounds[1.2] <= rounds[1.0] + 10


def test_history_proves_nothing_about_the_guarantee():
    agent = agent_of()
    for _ in range(30):
        agent.tell(X, 1.0, 0.1, 0.8)
    assert (agent.informative_rounds, agent.evidence, agent.alarmed) == (30, 1.0, False)


def test_an_open_round_saved_with_its_advice_is_judged_by_it_after_loading(tmp_path):
    agent = agent_of()
    made = [agent.ask(X) for _ in range(8)]
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    for decision in made[:4]:
        again.tell(X, min(1.0, 2.0 * decision.action), 0.1, 0.75, round=decision.round)
    assert not again.alarmed
    for decision in made[4:]:
        again.tell(X, decision.action, 0.1, 0.51, round=decision.round)
    assert again.alarmed


def test_late_outcomes_give_the_evidence_that_prompt_ones_give():
    """The product does not depend on the order of reports; an open round counts as kept."""
    rng = np.random.default_rng(1)
    costs = np.where(rng.random(40) < 0.1, 0.6, 0.2)
    prompt, late = agent_of(), agent_of()
    made = [late.ask(X) for _ in costs]
    for cost in costs:
        prompt.tell(prompt.ask(X), applied_action=0.3, reward=0.1, cost=cost)
    for index in rng.permutation(40):
        late.tell(made[index], applied_action=0.3, reward=0.1, cost=costs[index])
    assert late.evidence == pytest.approx(prompt.evidence, rel=1e-9)
    waiting = agent_of()
    waiting.tell(waiting.ask_many([X] * 10)[0], reward=0.1, cost=0.6)
    assert 1.0 < waiting.evidence < prompt_evidence_of_one()


def prompt_evidence_of_one():
    agent = agent_of()
    agent.tell(agent.ask(X), reward=0.1, cost=0.6)
    return agent.evidence


def test_where_the_model_cannot_rescale_a_raised_round_counts_as_kept():
    spec = SafetySpec(
        threshold=0.5, violation_risk=0.01, estimation_risk=0.01, reward_noise=0.1, cost_noise=0.1, coefficient_bound=1,
        context_bound=1, noise_scale=power_scale(2),
    )  # fmt: skip
    agent = Agent(2, spec)
    for _ in range(10):
        by_decision(agent, 1.2, 0.7)
    assert (agent.violations, agent.alarmed) == (0, False)
    assert agent.evidence < 1.0


def test_a_dose_that_was_withheld_for_an_unknown_reason_ends_the_learning():
    """Leaving out the rounds that somebody feared would bias what is learned."""
    agent = agent_of()
    by_decision(agent, 1.0, 0.2)
    agent.tell(agent.ask(X), applied_action=0.0, reward=0.0, cost=0.0, unrelated=True)
    by_decision(agent, 1.0, 0.2)
    assert (agent.frozen, agent.informative_rounds) == (False, 2)
    agent.tell(agent.ask(X), applied_action=0.0, reward=0.0, cost=0.0)
    by_decision(agent, 1.0, 0.2)
    assert (agent.frozen, agent.informative_rounds) == (True, 2)


def test_a_lost_outcome_is_skipped_if_somebody_vouches_for_the_reason_and_ends_the_learning_otherwise():
    agent = agent_of()
    with pytest.raises(InvalidInput, match="round = None: is not open, so it has no outcome to lose"):
        agent.tell(X, unrelated=True)
    by_decision(agent, 1.0, 0.2)
    agent.tell(agent.ask(X), unrelated=True)
    by_decision(agent, 1.0, 0.2)
    assert (agent.frozen, agent.informative_rounds, agent._rounds.watch.unwatched) == (False, 2, 1)
    agent.tell(X, round=agent.ask(X).round, unrelated=False)
    by_decision(agent, 1.0, 0.2)
    assert (agent.frozen, agent.informative_rounds, agent._rounds.watch.unwatched) == (True, 2, 2)
    conformal = Agent(2, SafetySpec(threshold=0.5, violation_risk=0.2, guarantee="conformal"), start_action=0.1)
    for vouched in (True, False):
        conformal.tell(conformal.ask(X), unrelated=vouched)
    left = conformal._rounds.learning._state.rounds.rows("left")
    assert (conformal.informative_rounds, conformal.violations, left.sum()) == (0, 0, 1)


def test_a_nurse_who_foresees_bad_reactions_cannot_bias_what_is_learned():
    """She withholds where the noise is above 0. Dropping those rounds made the confidence set miss in every run."""
    rng = np.random.default_rng(3)
    truth = np.array([0.3, 0.3])
    missed = 0
    for _ in range(20):
        agent = Agent(2, make_spec(reward_noise=0.3, cost_noise=0.3))
        for _ in range(400):
            x, noise = rng.uniform(-0.7, 0.7, 2), 0.3 * rng.standard_normal()
            decision = agent.ask(x)
            applied = 0.0 if noise > 0.0 else decision.action
            agent.tell(decision, applied_action=applied, reward=0.0, cost=applied * (x @ truth + noise))
        decision = agent.ask(X)
        missed += decision.numbers["cost_upper"] < np.array(X) @ truth
    assert missed == 0


def test_frozen_learning_is_saved(tmp_path):
    agent = agent_of()
    agent.tell(agent.ask(X), applied_action=0.0, reward=0.0, cost=0.0)
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").frozen


def test_a_negative_baseline_is_refused_unless_it_was_stated():
    with pytest.raises(
        InvalidInput, match=r"baseline_cost = -10\.0: must lie between 0 and inf; if it is right, state another"
    ):
        agent_of().ask(X, baseline_cost=-10)
    with pytest.raises(InvalidInput, match="row 1: baseline_cost"):
        agent_of().ask_many([X, X], baseline_costs=[0, -1])
    stated = agent_of(baseline_range=(-0.2, None))
    assert stated.ask(X, baseline_cost=-0.1).action > agent_of().ask(X).action
    with pytest.raises(InvalidInput, match="baseline_cost"):
        stated.ask(X, baseline_cost=-0.3)
    for bad in ((1, 0), (0,), "0-1", (float("nan"), 1)):
        with pytest.raises(InvalidInput, match="baseline_range"):
            agent_of(baseline_range=bad)


def test_a_stated_baseline_range_is_saved(tmp_path):
    agent = agent_of(baseline_range=(-0.2, 0.3))
    agent.save(tmp_path / "agent")
    with pytest.raises(InvalidInput, match=r"between -0\.2 and 0\.3"):
        Agent.load(tmp_path / "agent").ask(X, baseline_cost=0.4)


@pytest.mark.parametrize("norm", [1.7, 3.0])
def test_costs_above_what_the_stated_norms_allow_refute_them(norm):
    """The clip cut the bound at S‖x‖ and hid them: μ* with a norm above S was never found."""
    rng = np.random.default_rng(0)
    truth = np.array([norm, norm]) / np.sqrt(2)
    agent = Agent(2, make_spec(threshold=0.5, reward_noise=0.3, cost_noise=0.3))
    rounds = 0
    while agent.preview(X).limit != "assumption_broken" and rounds < 400:
        agent.tell(X, 0.5, 0.0, 0.5 * (np.array(X) @ truth + 0.3 * rng.standard_normal()))
        rounds += 1
    assert rounds <= {1.7: 40, 3.0: 10}[norm]
    assert (agent.ask(X).action, agent.ask(X).guarantee) == (0.0, "none")


@pytest.mark.parametrize(("policy", "most"), [(hp_probe(), 0), (hp_probe(radius="self-normalised"), 7)])
def test_costs_within_the_stated_norms_never_refute_them(policy, most):
    """At the very edge, ‖μ*‖ = S and x parallel to it: false with probability at most δ′ = 0.01 over all rounds.

    `self-normalised` may refute whenever its set misses: more than 7 of 60 agents have probability below 1e-6.
    """
    rng = np.random.default_rng(5)
    truth = np.array([1.0, 1.0]) / np.sqrt(2)
    refuted = 0
    for _ in range(60):
        agent, broken = Agent(2, make_spec(reward_noise=0.3, cost_noise=0.3), policy=policy), False
        for _ in range(100):
            decision = agent.ask(X)
            broken |= decision.limit == "assumption_broken"
            share = max(decision.intensity, 0.1)
            cost = share * (np.array(X) @ truth + 0.3 * rng.standard_normal())
            agent.tell(X, share, 0.0, cost)
        refuted += broken
    assert refuted <= most


TRUTH = {"reward": np.array([0.3, -0.2]), "cost": np.array([0.3, 0.2])}
"""Coefficients of a world within the stated norms."""


def outcome_in(rng, context, applied, *, noise=0.3, least_cost=-np.inf):
    """What a setting does to a context, in a world whose noise or cost may be other than stated."""
    seen = {name: applied * (context @ truth + noise * rng.standard_normal()) for name, truth in TRUTH.items()}
    return seen | {"cost": max(seen["cost"], least_cost if applied else 0.0)}


WORLDS = {"valid": {}, "noisy": {"noise": 0.9}, "costly": {"least_cost": 0.41}}


@pytest.mark.parametrize(("world", "policy"), [("valid", "hp_ucb"), ("noisy", "hp_probe"), ("costly", "hp_probe")])
def test_an_agent_and_a_study_that_see_the_same_rounds_say_the_same_of_them(tmp_path, world, policy):
    """Followed, raised, lowered, withheld, late and missing outcomes; some rounds are given nothing."""
    rng = np.random.default_rng(len(world))
    spec, waiting = make_spec(threshold=0.4, reward_noise=0.3, cost_noise=0.3), []
    agent = Agent(2, spec, policy=policy)
    fields = {"dim": 2, **spec.stated(), "policy": policy, "learning_order": "arrival", "guard": {"max_unwatched": 1.0}}
    study = create_study("twin", fields, storage=f"sqlite:///{tmp_path}/twin.db")
    with study.store:
        for _ in range(40):
            context = rng.uniform(-0.7, 0.7, 2).tolist()
            mine, theirs = agent.ask(context), study.ask(context)
            assert (mine.action, mine.limit) == (pytest.approx(theirs.action, abs=1e-12), theirs.limit)
            waiting.append((mine, theirs))
            while waiting and rng.random() < 0.6:
                tell_both(agent, study, *waiting.pop(rng.integers(len(waiting))), rng, WORLDS[world])
            seen = study.status()
            assert agent.evidence == pytest.approx(seen["evidence"], rel=1e-9)
            assert agent.noise_evidence == pytest.approx(seen["noise_evidence"], rel=1e-9)
            assert (agent.stop_reason, agent.alarmed) == (seen["stop_reason"], bool(seen["stop_reason"]))
    assert agent.stop_reason == {"valid": "", "noisy": "noise_broken", "costly": "alarm"}[world]


def tell_both(agent, study, mine, theirs, rng, world):
    kind = rng.choice(["followed", "raised", "lowered", "withheld"], p=[0.6, 0.15, 0.15, 0.1])
    share = {"followed": 1.0, "raised": 1.5, "lowered": 0.5, "withheld": 0.0}[kind]
    applied = min(1.0, share * mine.action)
    said = outcome_in(rng, mine.context, applied, **world) | ({"unrelated": True} if kind == "withheld" else {})
    agent.tell(mine, applied_action=applied, **said)
    study.tell(theirs.id, applied_action=applied, **said)


def noisy_agent(noise, seed=0, rounds=60, **changes):
    rng, agent = np.random.default_rng(seed), agent_of(**changes)
    for _ in range(rounds):
        decision = agent.ask(rng.uniform(-0.7, 0.7, 2))
        agent.tell(decision, **outcome_in(rng, decision.context, decision.action, noise=noise))
    return agent


def test_noise_as_stated_stops_no_agent_and_three_times_as_much_stops_every_one():
    """A false alarm has probability at most 0.01 + 2 delta' = 0.03 for each of 20 agents; the seeds are fixed."""
    valid = [noisy_agent(0.3, seed) for seed in range(20)]
    assert not any(agent.alarmed for agent in valid)
    assert max(agent.noise_evidence for agent in valid) < 10.0
    assert {noisy_agent(0.9, seed).stop_reason for seed in range(20)} == {"noise_broken"}


def test_an_agent_that_the_noise_stopped_says_so_until_it_is_resumed():
    agent = noisy_agent(0.9)
    decision = agent.ask(X)
    assert (decision.action, decision.limit, decision.guarantee) == (0.0, "noise_broken", "none")
    assert "outcomes scatter more than the stated noise allows" in decision.certificate["statement"]
    agent.resume()
    assert (agent.alarmed, agent.stop_reason, agent.noise_evidence) == (False, "", 1.0)
    assert agent.ask(X).certified


def test_a_resume_takes_back_the_rule_that_stopped_the_agent_and_no_other():
    agent = agent_of()
    made = [agent.ask(X) for _ in range(8)]
    for decision in made:
        agent.tell(decision, reward=9.0, cost=0.51)
    assert (agent.stop_reason, agent.evidence > 100) == ("noise_broken", True)
    agent.resume()
    assert (agent.stop_reason, agent.evidence > 100, agent.noise_evidence) == ("alarm", True, 1.0)
    agent.resume()
    assert (agent.stop_reason, agent.evidence) == ("", 1.0)


def test_rounds_that_were_open_at_a_resume_say_nothing_of_the_noise_after_it():
    agent = agent_of()
    waiting = [agent.ask(X) for _ in range(10)]
    agent.tell(waiting.pop(), reward=9.0, cost=0.1)
    agent.resume()
    for decision in waiting:
        agent.tell(decision, reward=9.0, cost=0.1)
    assert (agent.noise_evidence, agent.stop_reason) == (1.0, "")


def test_what_is_known_of_the_noise_is_saved(tmp_path):
    for agent in (noisy_agent(0.3, rounds=5), noisy_agent(0.9)):
        agent.ask(X)
        agent.save(tmp_path / "agent")
        again = Agent.load(tmp_path / "agent")
        assert (again.stop_reason, again.noise_evidence) == (agent.stop_reason, agent.noise_evidence)
        assert again._rounds.watch.tails == agent._rounds.watch.tails


def test_a_policy_without_a_radius_gathers_no_evidence_about_the_noise():
    agent = noisy_agent(0.9, policy=ByNorms())
    assert agent.informative_rounds > 0
    assert (agent.stop_reason == "noise_broken", agent.noise_evidence < 1.0) == (False, True)


@pytest.fixture
def watch():
    agent = agent_of()
    return Watch(agent._rules, agent._rounds.learning)


def guaranteed(number=1, **changes):
    return Round(number, None, 0.5, 0.0, True, np.array(X), 0.85)._replace(**changes)


def test_a_round_whose_baseline_leaves_no_room_proves_nothing(watch):
    turn = watch.guaranteed(guaranteed(baseline_cost=9.0))
    assert (turn.watched, watch.evidence, watch.new_watched) == (False, 1.0, 0)


def test_only_rounds_that_guaranteed_something_are_missed(watch):
    watch.unseen(guaranteed(watched=False))
    assert watch.unwatched == 0
    watch.unseen(guaranteed())
    assert (watch.unwatched, watch.new_unwatched) == (1, 1)
    watch.resumed("too_many_unwatched", 1)
    watch.unseen(guaranteed(), -1)
    assert (watch.unwatched, watch.new_unwatched) == (0, 0)


def test_each_rule_begins_anew_what_it_watches_and_nothing_else(watch):
    watch.crossed = watch.noisy = True
    watch.resumed("drift", 3)
    assert (watch.due, watch.watched_from) == ("noise_broken", 0)
    watch.resumed("stop_rule", 4)
    assert (watch.due, watch.tails_from) == ("noise_broken", 0)
    watch.resumed("noise_broken", 5)
    assert (watch.due, watch.tails_from) == ("", 5)
