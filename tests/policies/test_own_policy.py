"""A policy of a user's own, in one file, goes through everything that the package's own go through."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import safedial
from safedial.errors import InvalidInput
from safedial.policies.policy import Bound, Policy, StartSetting
from safedial.simulation import engines
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.sweeps import parse_grid, run_sweep, sweep_rows
from safedial.study.reducer import body_of, decide_next, noted_in, question_of
from safedial.study.replay_log import Source, catch_up
from safedial.study.state import State
from safedial.study.verify import Agreement
from tests.policies.own_linear import ByNorms, Terse
from tests.policies.own_mean import Mean

SPEC = safedial.SafetySpec(
    threshold=0.5, total_risk=0.1, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1
)
CONTEXTS = [row / np.linalg.norm(row) * 0.99 for row in np.random.default_rng(0).normal(size=(40, 3))]
GRID = """
[sweep]
name = "own"
rounds = 40
seeds = "0:2"
[spec]
threshold = 0.5
total_risk = 0.1
reward_noise = 1
cost_noise = 1
coefficient_bound = 1
context_bound = 1
[world]
dim = 3
[[policy]]
name = "tests.policies.own_mean:Mean"
first = [0.1, 0.2]
"""


def test_it_is_one_short_file() -> None:
    lines = Path(__file__).with_name("own_mean.py").read_text(encoding="utf8").splitlines()
    code = [line for line in lines[1:] if line.strip() and not line.startswith(("from", "import"))]
    assert len(code) <= 15


def test_it_meets_every_claim_that_says_something_about_it() -> None:
    report = safedial.check_policy(Mean, quiet=True)
    assert (report.checks, report.failures) == (13, {})


def test_nan_in_its_state_is_no_change_of_it_and_a_change_is_caught() -> None:
    class Marked(Mean):
        def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> dict[str, Any]:
            return {**super().init(lanes, watch=watch), "least": np.full(lanes, np.nan), "name": np.full(lanes, "a")}

    class Stirred(Marked):
        def tell(self, state: Any, place: int, told: Any) -> None:
            super().tell(state, place, told)
            state["least"] = np.where(told.weight > 0.0, state["least"], 0.0)

    changed = "zero intensity leaves the state as it was"
    assert safedial.check_policy(Marked, quiet=True).failures == {}
    assert safedial.check_policy(Stirred, quiet=True).failures == {changed: "AssertionError: policy.least changed"}


def test_it_is_simulated_and_compared() -> None:
    run = safedial.simulate(Mean(first=0.2), LinearWorld(dim=3), SPEC, rounds=60, seeds=4)
    assert run.violations.shape == (1, 4)
    assert run.regret.mean() > 0.0
    table = safedial.compare(["hp_probe", Mean()], LinearWorld(dim=3), SPEC, rounds=60, seeds=4)
    assert set(table.runs) == {"HP-Probe", "mean"}


def test_a_batch_of_seeds_equals_each_seed_alone() -> None:
    whole = safedial.simulate(Mean(), LinearWorld(dim=3), SPEC, rounds=60, seeds=3)
    for seed in range(3):
        alone = safedial.simulate(Mean(), LinearWorld(dim=3), SPEC, rounds=60, seeds=[seed])
        assert alone.regret[0, 0] == pytest.approx(whole.regret[0, seed], rel=1e-12)


def test_it_is_swept(tmp_path: Path) -> None:
    status = run_sweep(parse_grid(GRID), tmp_path)
    assert (status.cells, status.done) == (2, 2)
    assert {row["policy_first"] for row in sweep_rows(tmp_path)} == {0.1, 0.2}


def test_an_agent_saves_pickles_and_previews_it(tmp_path: Path) -> None:
    agent = safedial.Agent(3, SPEC, policy=Mean(first=0.2))
    for context in CONTEXTS:
        seen = agent.preview(context)
        decision = agent.ask(context)
        assert seen.action == decision.action
        agent.tell(decision, reward=decision.action * 0.3, cost=decision.action * 0.4)
    agent.save(tmp_path / "agent")
    loaded = safedial.Agent.load(tmp_path / "agent", policy=Mean(first=0.2))
    again = pickle.loads(pickle.dumps(agent))  # noqa: S301 -- our own
    expected = agent.ask(CONTEXTS[0])
    assert expected.action > 0.2
    assert loaded.ask(CONTEXTS[0]).action == again.ask(CONTEXTS[0]).action == expected.action
    with pytest.raises(InvalidInput, match="has other options than the saved one: first"):
        safedial.Agent.load(tmp_path / "agent", policy=Mean(first=0.3))


def test_its_certificate_says_that_nothing_is_proved() -> None:
    decision = safedial.Agent(3, SPEC, policy=Mean()).ask(CONTEXTS[0])
    assert decision.guarantee == "none"
    assert decision.certificate["statement"] == "none: policy mean is your own, and nothing of it is proved here"
    assert "set the dial to 0.09999" in decision.explain()


RISKS = {"violation_risk": 0.1, "estimation_risk": 0.05}
OWN = "policy mean is your own: that its rule keeps the guarantee is your proof, not one of this package"
CLAIMS = {
    "certified": (SPEC, "P(cost > 0.5) <= 0.1 in this round"),
    "joint": (replace(SPEC, guarantee="joint"), "P(cost > 0.5 in any round, ever) <= 0.1"),
    "conformal": ({"violation_risk": 0.1}, "P(cost > 0.5) <= 0.1 in this round, for exchangeable rounds"),
    "bracket": ({"violation_risk": 0.1}, "P(cost > 0.5) <= 0.1 in this round, for exchangeable rounds in the bracket"),
    "student": (RISKS, "P(cost > 0.5) <= 0.1 in this round, for Gaussian noise of any size"),
}


@pytest.mark.parametrize("guarantee", CLAIMS)
def test_a_guarantee_that_its_class_claims_stands_on_its_certificate_as_the_user_s_own_proof(guarantee: str) -> None:
    class Claiming(Mean):
        pass

    Claiming.guarantee = guarantee
    given, statement = CLAIMS[guarantee]
    spec = safedial.SafetySpec(threshold=0.5, guarantee=guarantee, **given) if isinstance(given, dict) else given
    decision = safedial.Agent(3, spec, policy=Claiming()).ask(CONTEXTS[0])
    facts = decision.certificate
    assert facts["holds"]
    assert (facts["statement"], facts["assumptions"]) == (statement, [OWN])
    assert all(words in decision.explain() for words in (f"Guarantee: {statement}.", "This holds if:", OWN))


def test_a_claim_on_the_mean_cost_says_nothing_of_the_realized_one() -> None:
    class Expecting(Mean):
        guarantee = "expected"

    facts = safedial.Agent(3, SPEC, policy=Expecting()).ask(CONTEXTS[0]).certificate
    assert (facts["holds"], facts["assumptions"]) == (False, [])


def test_a_start_that_is_declared_safe_rests_on_the_user_s_word_alone() -> None:
    class Starting(Mean):
        guarantee = "conformal"

        def bound(self, state: Any, asked: Any) -> Bound:
            return super().bound(state, asked)._replace(ready=False)

        @property
        def start(self) -> StartSetting:
            return StartSetting(self.task.start_action)

    spec = safedial.SafetySpec(threshold=0.5, guarantee="conformal", violation_risk=0.1)
    decision = safedial.Agent(3, spec, policy=Starting(), start_action=0.1).ask(CONTEXTS[0])
    facts = decision.certificate
    assert (facts["guarantee"], facts["holds"]) == ("declared", False)
    assert facts["statement"].startswith("none is proved yet: P(cost > 0.5) rests on your judgement alone")
    assert "the start dose and everything below it is safe for every context, as you declared" in decision.explain()


@pytest.mark.parametrize("guarantee", ["declared", "none", "imported", "certain", None])
def test_what_no_policy_can_guarantee_is_refused_by_name(guarantee: Any) -> None:
    class Claiming(Mean):
        pass

    Claiming.guarantee = guarantee
    words = rf"guarantee = {guarantee!r}: is not what a policy may claim, and mean does; choose certified, joint, "
    for use in (
        lambda: safedial.Agent(3, SPEC, policy=Claiming()),
        lambda: safedial.simulate(Claiming(), "linear", SPEC, rounds=2, seeds=1),
    ):
        with pytest.raises(InvalidInput, match=words):
            use()


def test_a_study_runs_and_verifies_it(tmp_path: Path) -> None:
    storage, fields = f"sqlite:///{tmp_path}/own.db", {**SPEC.to_dict(), "dim": 3, "fallback_action": 0}
    study = safedial.create_study("own", fields, storage=storage, policy=Mean())
    for context in CONTEXTS:
        study.tell(study.ask(context).id, reward=0.2, cost=0.3)
    study.store.close()
    again = safedial.open_study("own", storage=storage, policy=Mean())
    assert again.verify().ok
    again.store.close()


def test_jax_refuses_a_state_that_changes_in_place() -> None:
    with pytest.raises(InvalidInput, match=r"engine = 'jax': mean keeps a state that changes in place"):
        safedial.simulate(Mean(), LinearWorld(dim=3), SPEC, rounds=10, seeds=2, engine="jax")


def test_auto_plays_it_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "WORTHWHILE", 0.0)
    assert safedial.simulate(Mean(), LinearWorld(dim=3), SPEC, rounds=10, seeds=2, engine="auto").engine == "numpy"
    assert safedial.simulate(ByNorms(), LinearWorld(dim=3), SPEC, rounds=10, seeds=2, engine="auto").engine == "jax"


def test_a_rule_over_the_linear_estimate_meets_every_claim_and_explains_itself() -> None:
    assert safedial.check_policy(ByNorms, quiet=True).failures == {}
    agent = safedial.Agent(3, SPEC, policy=ByNorms())
    for context in CONTEXTS:
        decision = agent.ask(context)
        agent.tell(decision, reward=decision.action * 0.3, cost=decision.action * 0.4)
    assert decision.certificate["cost_upper"] == pytest.approx(0.99, rel=1e-3)
    assert "what the norms alone allow (26 informative rounds)" in decision.explain()


def test_the_certificate_of_a_rule_with_other_numbers_shows_what_there_is(tmp_path: Path) -> None:
    """The estimate, which is the package's, and the rule's own numbers; nothing of a bound that it does not tell."""
    agent = safedial.Agent(3, SPEC, policy=Terse())
    fields = {**SPEC.to_dict(), "dim": 3, "fallback_action": 0}
    study = safedial.create_study("own", fields, storage=f"sqlite:///{tmp_path}/own.db", policy=Terse())
    for context in CONTEXTS:
        asked = study.ask(context)
        decision = agent.ask(context)
        study.tell(asked.id, reward=asked.action * 0.3, cost=asked.action * 0.4)
        agent.tell(decision, reward=decision.action * 0.3, cost=decision.action * 0.4)
    for facts in (decision.certificate, study.decision(asked.id).certificate):
        assert (facts["numbers"]["longest"], facts["numbers"]["farthest"]) == (pytest.approx(0.99), None)
        assert facts["model"]["width"] == decision.numbers["width"] > 0.0
        assert (facts["cost_upper"], facts["reward_upper"]) == (None, None)
    told = (
        "The estimate: mean cost {cost:.4g} per unit of intensity, width {width:.4g} ({informative_rounds:.0f} informa"
    )
    assert told.format(**decision.certificate["model"]) in decision.explain()
    with study.store.engine.connect() as connection:
        source = Source(connection, study._id, "own", Terse())
        state = catch_up(source, State(study.spec), asked.seq - 1)
    moved = {
        **asked.body,
        "numbers": {name: value and value * (1 + 1e-15) for name, value in asked.body["numbers"].items()},
    }
    question, raw = question_of(state, asked.body), asked.body["context"]
    again = body_of(decide_next(state, question, raw)[0], raw, state, noted_in(asked.body))
    assert Agreement().on_decision(state, question, again, moved)
    moved["numbers"]["cost"] += 1e-6
    assert not Agreement().on_decision(state, question, again, moved)
    assert study.verify().ok
    study.store.close()


@pytest.mark.parametrize("engine", ["reference", "rank_one", "blocked", "jax"])
def test_a_replay_of_a_rule_with_other_numbers_has_no_bound_of_the_mean_cost(engine: str) -> None:
    rng = np.random.default_rng(0)
    given = rng.normal(size=(20, 3)) / 9, np.full(20, 0.1), np.full(20, 0.1)
    trace, usual = (safedial.replay(policy, *given, SPEC, engine=engine) for policy in (Terse(), ByNorms()))
    np.testing.assert_array_equal(trace.intensity, usual.intensity)
    assert np.isnan(trace.cost_upper).all()
    assert np.isfinite(usual.cost_upper).all()


def test_a_replay_refuses_what_does_not_keep_the_linear_estimate() -> None:
    with pytest.raises(InvalidInput, match=r"policy = 'mean': does not learn with the linear estimate; use `simulate`"):
        safedial.replay(Mean(), np.zeros((2, 3)), np.zeros(2), np.zeros(2), SPEC)


def test_an_option_outside_its_rule_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match=r"first = 3: must lie in \(0, 1\]"):
        Mean(first=3)


def test_a_class_that_lacks_methods_is_refused_by_their_names() -> None:
    class Empty(Policy):
        name = "empty"

    for use in (
        lambda: safedial.Agent(3, SPEC, policy=Empty()),
        lambda: safedial.simulate(Empty(), "linear", SPEC, rounds=2, seeds=1),
    ):
        with pytest.raises(InvalidInput, match="policy = 'empty': lacks init, bound, tell; define it as"):
            use()
