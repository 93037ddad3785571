"""A policy of a user's own, in one file, goes through everything that the package's own go through."""

from __future__ import annotations

import math
import pickle
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import safedial
from safedial.errors import InvalidInput
from safedial.model.namespace import namespace
from safedial.model.noise_scale import power_scale
from safedial.policies.policy import KNOWN, Bound, Policy, StartSetting, option
from safedial.simulation import engines
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.results import simulated_log
from safedial.simulation.sweeps import parse_grid, run_sweep, sweep_rows
from safedial.study.reducer import body_of, decide_next, noted_in, question_of
from safedial.study.replay_log import Source, catch_up
from safedial.study.state import State
from safedial.study.verify import Agreement
from safedial.tools.plan_page import write_plan
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
    assert (report.checks, report.failures) == (16, {})


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
    study = safedial.Study.create("own", fields, storage=storage, policy=Mean())
    for context in CONTEXTS:
        study.tell(study.ask(context).id, reward=0.2, cost=0.3)
    study.store.close()
    again = safedial.Study.open("own", storage=storage, policy=Mean())
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
    study = safedial.Study.create("own", fields, storage=f"sqlite:///{tmp_path}/own.db", policy=Terse())
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


@pytest.mark.parametrize(
    ("method", "unit", "words"),
    [
        (("choose", lambda self, bound, asked: 1.5 * bound.largest), "intensity", "exceeds its own bound"),
        (("choose", lambda self, bound, asked: -0.1), "intensity", "choice of policy .* = -0.1: must be at least 0"),
        (("choose", lambda self, bound, asked: math.nan), "intensity", "choice .* = nan: must be at least 0"),
        (
            ("bound", lambda self, state, asked: Bound(1.0, 1.7, {})),
            "intensity",
            r"largest .* = 1.7: must lie in \[0, 1\]",
        ),
        (
            ("bound", lambda self, state, asked: Bound(1.0, 500.0, {})),
            "setting",
            r"largest .* = 500.0: must lie in \[0, 100\]",
        ),
        (
            ("bound", lambda self, state, asked: Bound(math.nan, 0.5, {})),
            "intensity",
            "index of policy .* must be a number",
        ),
    ],
)
def test_a_choice_beyond_its_own_bound_or_the_dial_is_never_advised(method: Any, unit: str, words: str) -> None:
    name, made = method
    own = type("Beyond", (Mean,), {"name": "beyond", "unit": unit, name: made})
    agent = safedial.Agent(3, SPEC, policy=own(), dial=safedial.Dial(high=100, unit="mg"))
    with pytest.raises(safedial.InvalidInput, match=words):
        agent.ask(CONTEXTS[0])
    assert agent.decisions == 0


BOUNDS = {
    "a number": (0.2, r"bound of policy 'wrong' = 0.2: must be a Bound; let `bound` return Bound\("),
    "nothing": (None, "bound .* = None: must be a Bound"),
    "a tuple": ((1.0, 0.2, {}), "bound .*: must be a Bound"),
    "no largest": (Bound(1.0, None, {}), "largest .* = None: must be"),
    "text": (Bound(1.0, "0.2", {}), "largest .* = '0.2': must be"),
    "no index": (Bound(None, 0.2, {}), "index .* = None: must be"),
}


@pytest.mark.parametrize("kind", BOUNDS)
def test_what_is_no_bound_is_refused_by_name(kind: str) -> None:
    given, words = BOUNDS[kind]
    own = type("Wrong", (Mean,), {"name": "wrong", "bound": lambda self, state, asked: given})()
    for use in (
        lambda: safedial.Agent(3, SPEC, policy=own).ask(CONTEXTS[0]),
        lambda: safedial.simulate(own, LinearWorld(dim=3), SPEC, rounds=2, seeds=1),
    ):
        with pytest.raises(InvalidInput, match=words):
            use()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Bound(1.0, np.full(3, 0.1), {}), "largest .*: must be a number; look at `bound`"),
        (Bound(1.0, 0.1, None), "numbers .* = None: must be a dict of plain values"),  # pyright: ignore[reportArgumentType]
        (Bound(1.0, 0.1, {"x": object()}), "numbers of a bound .*: cannot be kept: numbers, text, None"),
        (Bound(1.0, 0.1, {"x": {1, 2}}), "numbers of a bound .*: cannot be kept"),
        (Bound(1.0, 0.1, {"x": np.zeros(2)}), "numbers of a bound .*: cannot be kept"),
    ],
)
def test_an_agent_refuses_what_is_not_of_one_lane_or_cannot_be_kept(given: Bound, words: str) -> None:
    own = type("Wrong", (Mean,), {"name": "wrong", "bound": lambda self, state, asked: given})
    agent = safedial.Agent(3, SPEC, policy=own())
    with pytest.raises(InvalidInput, match=words):
        agent.ask(CONTEXTS[0])
    assert agent.decisions == 0


def test_no_choice_is_refused_by_name_and_a_mistake_inside_one_is_shown_as_it_is() -> None:
    def mistaken(self: Any, bound: Any, asked: Any) -> Any:
        return bound.largest + asked.proposal

    for choose, error, words in (
        (lambda self, bound, asked: None, InvalidInput, "choice of policy 'none' = None: must be .*look at `choose`"),
        (mistaken, TypeError, "unsupported operand"),
    ):
        own = type("Choosing", (Mean,), {"name": "none", "choose": choose})
        for use in (
            lambda own=own: safedial.Agent(3, SPEC, policy=own()).ask(CONTEXTS[0]),
            lambda own=own: safedial.simulate(own(), LinearWorld(dim=3), SPEC, rounds=2, seeds=1),
        ):
            with pytest.raises(error, match=words):
                use()


@pytest.mark.parametrize("largest", [math.nan, -0.5, 1.7])
def test_a_simulation_blames_the_bound_for_what_the_bound_gave(largest: float) -> None:
    given = {"name": "wrong", "bound": lambda self, state, asked: Bound(1.0, largest + 0.0 * state["cost"], {})}
    own = type("Wrong", (Mean,), given)
    with pytest.raises(InvalidInput, match=r"must lie in \[0, 1\]; let `bound` give a `largest` in \[0, 1\]"):
        safedial.simulate(own(), LinearWorld(dim=3), SPEC, rounds=2, seeds=1)


def test_a_unit_that_there_is_not_is_refused() -> None:
    own = type("InMilligrams", (Mean,), {"name": "mg", "unit": "mg"})
    with pytest.raises(InvalidInput, match="unit = 'mg': is not what mg may decide in; choose intensity or setting"):
        safedial.Agent(3, SPEC, policy=own())


@dataclass(frozen=True, kw_only=True)
class Squared(ByNorms):
    """Its dose is not the threshold divided by the bound that its numbers tell."""

    name = "squared"
    tells: float = 1.0

    def rule(self, seen: Any, asked: Any) -> Bound:
        found = super().rule(seen, asked)
        numbers = found.numbers | {"cost_upper": self.tells * found.numbers["cost_upper"]}
        return found._replace(largest=found.largest**2, numbers=numbers)


def test_a_certificate_shows_a_division_only_where_it_gave_the_largest_dose() -> None:
    told = {}
    for policy in (ByNorms(), Squared(), Squared(tells=0.5), Terse()):
        decision = safedial.Agent(3, SPEC, policy=policy).ask(CONTEXTS[0])
        told[policy] = decision.explain(), decision
    usual, by_rule, halved, terse = (text for text, _ in told.values())
    assert "0.5 / (0.99 + noise margin" in usual
    assert "what the norms alone allow (0" in usual
    largest = told[Squared()][1].safe_intensity
    words = "The largest intensity: {:.4f}, by the rule of squared, from cost_upper = 0.99, "
    for text in (by_rule, halved):
        assert "noise margin" not in text
        assert words.format(largest)[:24] in text
        assert ", by the rule of squared, from cost_upper = " in text
    assert "what the norms alone allow (0" in by_rule
    assert "at most 0.495: as the rule of squared says (0 informative rounds)." in halved
    assert "by the rule of terse, from longest = 0.99" in terse
    scaled = safedial.Agent(3, replace(SPEC, noise_scale=power_scale(0.5)), policy=ByNorms())
    assert "by the rule of by_norms" in scaled.ask(CONTEXTS[0]).explain()


def test_a_certificate_of_one_s_own_policy_shows_its_numbers() -> None:
    decision = safedial.Agent(3, SPEC, policy=Mean()).ask(CONTEXTS[0])
    assert decision.certificate["numbers"] == {"mean": 0.0}
    assert "The largest intensity: 0.1, by the rule of mean, from mean = 0." in decision.explain()


STATES: dict[str, Any] = {
    "objects": lambda: np.array([object()]),
    "a deque": lambda: deque([1.0]),
    "a set": lambda: {1.0},
    "a tuple": lambda: (1.0, 2.0),
    "a function": lambda: lambda: 1.0,
    "a dict by numbers": lambda: {3: 1.0},
}


class Keeping(Mean):
    """Its state holds something more, which later becomes something else."""

    name = "keeping"
    first_part: Any = staticmethod(lambda: 0.0)
    later: Any = None

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> dict[str, Any]:
        return {**super().init(lanes, watch=watch), "more": {"part": type(self).first_part()}}

    def tell(self, state: Any, place: int, told: Any) -> None:
        super().tell(state, place, told)
        if self.later is not None:
            state["more"] = self.later()


@pytest.mark.parametrize("kind", STATES)
def test_a_state_that_no_file_can_hold_is_refused_at_once(kind: str) -> None:
    own = type("Keeping", (Keeping,), {"first_part": staticmethod(STATES[kind])})
    with pytest.raises(InvalidInput, match=r"state: more.part = .*: must be an array, a number, a text, None, or"):
        safedial.Agent(3, SPEC, policy=own())


@pytest.mark.parametrize("more", [{"part": 0.0, "new": 1.0}, {"part": np.zeros(2)}, {"part": "text"}, {}])
def test_a_state_that_is_no_longer_as_init_made_it_is_refused_when_saved(more: Any, tmp_path: Path) -> None:
    own = type("Keeping", (Keeping,), {"later": staticmethod(lambda: more)})
    agent = safedial.Agent(3, SPEC, policy=own())
    agent.save(tmp_path / "agent")
    agent.tell(agent.ask(CONTEXTS[0]), reward=0.1, cost=0.1)
    with pytest.raises(InvalidInput, match=r"state: more.* = .*: is not as `init` made it|state: has no 'more.part'"):
        agent.save(tmp_path / "agent")


@dataclass(frozen=True)
class Sums:
    cost: Any
    rounds: Any


def test_a_state_may_be_a_frozen_dataclass(tmp_path: Path) -> None:
    class Frozen(Mean):
        name = "frozen"

        def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> Any:
            return {**super().init(lanes, watch=watch), "sums": Sums(np.zeros(2), 0)}

    agent = safedial.Agent(3, SPEC, policy=Frozen())
    agent._rounds.learning._state["sums"].cost[:] = 3.0
    agent.save(tmp_path / "agent")
    again = safedial.Agent.load(tmp_path / "agent", policy=Frozen())
    np.testing.assert_array_equal(again._rounds.learning._state["sums"].cost, [3.0, 3.0])


class Other(Mean):
    """Another class that goes by the same name: it gives half."""

    def choose(self, bound: Any, asked: Any) -> Any:
        return 0.5 * bound.largest


class Wider(Mean):
    """Another one: the same answers, from a state of another shape."""

    def init(self, lanes: tuple[int, ...] = (), *, watch: bool = True) -> dict[str, Any]:
        return {name: np.zeros((*lanes, 1)) for name in super().init(lanes, watch=watch)}

    def bound(self, state: Any, asked: Any) -> Bound:
        return super().bound({name: value.sum(axis=-1) for name, value in state.items()}, asked)


@pytest.mark.parametrize("other", [Other, Wider])
def test_a_file_is_not_loaded_with_another_class_of_the_same_name(other: Any, tmp_path: Path) -> None:
    agent = safedial.Agent(3, SPEC, policy=Mean())
    agent.tell(agent.ask(CONTEXTS[0]), reward=0.1, cost=0.1)
    agent.save(tmp_path / "agent")
    with pytest.raises(InvalidInput, match="policy = 'mean': has this name, but not the state or not the answers of"):
        safedial.Agent.load(tmp_path / "agent", policy=other())
    assert safedial.Agent.load(tmp_path / "agent", policy=Mean()).informative_rounds == 1


def test_a_study_is_not_opened_with_another_class_of_the_same_name(tmp_path: Path) -> None:
    storage, fields = f"sqlite:///{tmp_path}/own.db", {**SPEC.to_dict(), "dim": 3, "fallback_action": 0}
    study = safedial.Study.create("own", fields, storage=storage, policy=Mean())
    study.store.close()
    safedial.Study.open("own", storage=storage, policy=Other()).store.close()  # nothing has been decided yet
    study = safedial.Study.open("own", storage=storage, policy=Mean())
    asked = study.ask(CONTEXTS[0])
    study.tell(asked.id, reward=0.2, cost=0.3)
    study.store.close()
    words = r"policy = 'mean': has the study's name, but advises 0.0499\d* where event 2 has 0.0999\d*; give the class"
    with pytest.raises(InvalidInput, match=words):
        safedial.Study.open("own", storage=storage, policy=Other())
    study = safedial.Study.open("own", storage=storage, policy=Mean())
    assert study.ask(CONTEXTS[1]).action > 0.0
    study.store.close()


def test_what_is_no_policy_is_refused_where_one_is_given_again(tmp_path: Path) -> None:
    storage, fields = f"sqlite:///{tmp_path}/own.db", {**SPEC.to_dict(), "dim": 3, "fallback_action": 0}
    safedial.Study.create("own", fields, storage=storage, policy=Mean()).store.close()
    safedial.Agent(3, SPEC, policy=Mean()).save(tmp_path / "agent")
    for given, words in (
        ("hp_ucb", "policy = 'hp_ucb': must be the"),
        (5, "policy = 5: must be a policy or the name of one"),
        (Mean, "must be a policy or the name of one; call it, which makes a policy"),
    ):
        for use in (
            lambda given=given: safedial.Study.open("own", storage=storage, policy=given),
            lambda given=given: safedial.Agent.load(tmp_path / "agent", policy=given),
        ):
            with pytest.raises(InvalidInput, match=words):
                use()


class Stirring(Mean):
    """Each question changes its state."""

    def bound(self, state: Any, asked: Any) -> Bound:
        state["rounds"] += 1.0
        return super().bound(state, asked)


class Returning(Mean):
    """What it learns it returns, and nobody takes it."""

    def tell(self, state: Any, place: int, told: Any) -> Any:
        super().tell(state, place, told)
        return state


class Credulous(Mean):
    """It learns from what is left out."""

    def tell(self, state: Any, place: int, told: Any) -> None:
        super().tell(state, place, told._replace(fate=KNOWN, weight=1.0))


@pytest.mark.parametrize(
    ("own", "claim", "words"),
    [
        (Stirring, "bound and choose leave the state as it was", "another state after a question"),
        (Returning, "tell changes the state in place", "`tell` returned something, which nobody takes"),
        (Credulous, "a round that is left out changes no decision", "it changed what may be given"),
    ],
)
def test_a_broken_promise_about_the_state_is_found(own: Any, claim: str, words: str) -> None:
    assert words in safedial.check_policy(own, quiet=True).failures[claim]


def test_a_failure_names_the_method_and_the_line_of_a_mistake() -> None:
    def mistaken(self: Any, state: Any, asked: Any) -> Any:
        return state["sum"]

    own = type("Mistaken", (Mean,), {"name": "mistaken", "bound": mistaken})
    line = mistaken.__code__.co_firstlineno + 1
    failures = safedial.check_policy(own, quiet=True).failures
    assert set(failures.values()) == {f"KeyError: 'sum' (in `mistaken`, line {line})"}


def test_a_policy_in_place_of_its_class_is_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidInput, match="must be a function that returns a Policy; give the class, Mean"):
        safedial.check_policy(Mean())  # pyright: ignore[reportArgumentType] -- that is the mistake


def test_a_class_that_is_no_dataclass_or_takes_no_watch_is_refused() -> None:
    class Undecorated(Mean):
        name = "undecorated"
        last: float = option(0.5)

    class Unwatched(Mean):
        name = "unwatched"

        def init(self, lanes: tuple[int, ...] = ()) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().init(lanes)

    for own, words in (
        (Undecorated, r"has options \(last\), but is no dataclass; decorate it with @dataclass\(frozen=True, kw_only"),
        (Unwatched, "init of policy 'unwatched' = .*: must take `watch`; def init"),
    ):
        with pytest.raises(InvalidInput, match=words):
            safedial.simulate(own(), LinearWorld(dim=3), SPEC, rounds=2, seeds=1)


def test_a_claim_under_another_spec_is_refused_with_the_spec_that_it_needs() -> None:
    class Claiming(Mean):
        guarantee = "bracket"

    with pytest.raises(InvalidInput, match=r"guarantee is 'bracket'; set the spec's guarantee to 'bracket'$"):
        safedial.Agent(3, SPEC, policy=Claiming())


def test_an_evaluation_takes_it_by_name_and_says_which_engine_plays_it() -> None:
    log = simulated_log("hp_probe", LinearWorld(dim=3), SPEC, rounds=40)
    name = "tests.policies.own_mean:Mean"
    found = safedial.evaluate(log, name, spec=SPEC)
    assert [row["policy"] for row in found.table()] == ["as logged", "mean"]
    with pytest.raises(InvalidInput, match="or, in `evaluate`, engine 'agent' or 'auto'"):
        safedial.evaluate(log, name, spec=SPEC, engine="replay")


def test_floats_are_clipped_as_arrays_are_and_say_what_they_have() -> None:
    xp = namespace(0.5)
    assert [xp.clip(value, 0.0, 1.0) for value in (-1.0, 0.5, 2.0)] == [0.0, 0.5, 1.0]
    with pytest.raises(AttributeError, match=r"'tanh' is not there for floats, .* sqrt, log, .*, where, clip$"):
        xp.tanh(0.5)


def test_a_forecast_of_it_promises_nothing(tmp_path: Path) -> None:
    found = safedial.plan(Mean(), SPEC, dim=3, rounds=30, seeds=3)
    assert {row["guaranteed_risk"] for row in found.table} == {None}
    assert "nothing is guaranteed about them" in found.words()[0]
    assert "these exceed the spec's 10.0%" in " ".join(found.words())
    assert all(path.exists() for path in write_plan(tmp_path, found, seconds=1.0))


def test_a_sweep_that_jax_cannot_play_is_refused_before_it_begins() -> None:
    with pytest.raises(InvalidInput, match=r"engine = 'jax': mean keeps a state that changes in place"):
        parse_grid(GRID.replace("rounds = 40", 'rounds = 40\nengine = "jax"'))
