"""The claims that every policy must meet: each is a function that asserts of a policy what its name says.

Claims in `CLAIMS` take the policy and its factory; those in `SPEC_CLAIMS` take the policy and each spec of `SPECS` in
turn. Policies over the linear estimate are tested on random predictions; others in a simulation. A claim that does not
apply to a policy raises `NotApplicable` with the reason. Only a policy that has a proof by its own account must keep a
guarantee. The project's own policies are tested with the same list.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path
from traceback import extract_tb
from typing import Any, NamedTuple

import numpy as np

from safedial.bounds.estimate import Prediction
from safedial.bounds.safe_set import safe_set
from safedial.errors import InvalidInput, require
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import CONSTANTS, SafetySpec
from safedial.policies import Policy, as_policy, guaranteed_risk
from safedial.policies.linear import Linear
from safedial.policies.policy import Asked
from safedial.policies.table import digest
from safedial.rounds.agent import Agent
from safedial.simulation.linear_world import LinearWorld
from safedial.simulation.loop import Round
from safedial.simulation.proof import guarantee_holds
from safedial.simulation.run import Simulation, simulate

LEVEL = 1e-6
"""False-alarm level of the statistical claims; their seeds are fixed."""

SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "joint": {"guarantee": "joint"},
    "sensor": {"cost_sensor_noise": 0.05, "reward_sensor_noise": 0.1},
    "dependent sensor": {"cost_sensor_noise": 0.05, "sensor_dependent": True},
    "gaussian margin": {"margin": "gaussian"},
    "bounded margin": {"margin": "bounded", "noise_low": -2.0, "noise_high": 1.5, "guarantee": "joint"},
    "other constants": {"cost_noise": 2.0, "reward_noise": 0.2, "coefficient_bound": 3.0, "ridge": 0.3},
}

ENERGIES = ("reward_energy", "cost_energy")


class NotApplicable(Exception):
    """A claim does not apply to this policy; the message says why."""


def results_do_not_depend_on_how_seeds_are_batched(policy: Policy, factory: Any) -> None:
    together = simulate(policy, LinearWorld(dim=3), plain_spec(), rounds=300, seeds=[4, 0, 7])
    for column, seed in enumerate([4, 0, 7]):
        alone = simulate(policy, LinearWorld(dim=3), plain_spec(), rounds=300, seeds=[seed])
        assert abs(together.regret[0, column] - alone.regret[0, 0]) <= 1e-9, "another regret in another batch"
        assert together.violations[0, column] == alone.violations[0, 0], "other violations in another batch"


def thresholds_in_one_batch_equal_thresholds_one_by_one(policy: Policy, factory: Any) -> None:
    together = simulate(policy, LinearWorld(dim=3), plain_spec(threshold=[0.1, 0.9]), rounds=300, seeds=3)
    for row, threshold in enumerate([0.1, 0.9]):
        alone = simulate(policy, LinearWorld(dim=3), plain_spec(threshold=threshold), rounds=300, seeds=3)
        for name in ("regret", "reward", "violations", "informative_rounds", "clairvoyant_reward"):
            apart = np.abs(getattr(together, name)[row] - getattr(alone, name)[0])
            assert np.all(apart <= 1e-9), f"{name} differs between a sweep and a single run"


def zero_intensity_leaves_the_state_as_it_was(policy: Policy, factory: Any) -> None:
    agent = _agent(policy)
    agent.tell([0.1, 0.2, 0.3], 0.5, 0.2, 0.1)
    before = {key: value.copy() for key, value in agent._rounds.learning.state().items()}
    agent.tell([0.3, 0.2, 0.3], 0.0, 0.0, 0.0)
    for key, value in agent._rounds.learning.state().items():
        same = np.array_equal(value, before[key], equal_nan=value.dtype.kind == "f")
        assert same or key == "counts", f"{key} changed"  # these are how many rounds there were


def save_and_load_give_the_same_decisions(policy: Policy, factory: Any) -> None:
    agent = _agent(policy)
    rng = np.random.default_rng(5)
    contexts = rng.standard_normal((60, 3)) / 5
    for context in contexts[:40]:
        decision = agent.ask(context)
        agent.tell(decision, reward=float(rng.normal()) * decision.intensity, cost=0.1 * decision.intensity)
    with tempfile.TemporaryDirectory() as folder:
        agent.save(Path(folder) / "agent")
        twin = Agent.load(Path(folder) / "agent", policy=policy)
    for context in contexts[40:]:
        here, there = agent.ask(context), twin.ask(context)
        assert here.certificate == there.certificate, "another certificate after loading"
        for each in (agent, twin):
            each.tell(context, here.action, 0.2, 0.1)


def bound_and_choose_leave_the_state_as_it_was(policy: Policy, factory: Any) -> None:
    """Else a preview would change the decisions after it."""

    def look(seen: Round) -> None:
        before = digest(seen.state)
        seen.policy.choose(seen.policy.bound(seen.state, seen.asked), seen.asked)
        assert digest(seen.state) == before, "another state after a question"

    _watch(policy, plain_spec(), look, rounds=20, seeds=2)


def tell_changes_the_state_in_place(policy: Policy, factory: Any) -> None:
    agent, given = _agent(policy), []
    bound = agent.policy
    object.__setattr__(bound, "tell", lambda *told: given.append(type(bound).tell(bound, *told)))
    agent.tell(agent.ask([0.1, 0.2, 0.3]), reward=0.5, cost=0.2)
    assert not any(each is not None for each in given), (
        "`tell` returned something, which nobody takes: change the state"
    )


def a_round_that_is_left_out_changes_no_decision(policy: Policy, factory: Any) -> None:
    agent = _agent(policy)
    rng = np.random.default_rng(7)
    contexts = np.abs(rng.standard_normal((50, 3)))
    contexts *= 0.9 / np.linalg.norm(contexts, axis=1, keepdims=True)
    for context in contexts[:40]:
        decision = agent.ask(context)
        agent.tell(
            decision, reward=float(rng.normal()) * decision.intensity, cost=0.5 * context.sum() * decision.intensity
        )
    learning = agent._rounds.learning

    def answers() -> list[tuple[float, float]]:
        state, found = copy.deepcopy(learning._state), []
        for context in contexts[40:]:
            asked = Asked(context, float(np.linalg.norm(context)), 50.0)
            agent.policy.begin(state, asked)
            bound = agent.policy.bound(state, asked)
            found.append((float(bound.index), float(bound.largest)))
        return found

    before = answers()
    agent.tell(agent.ask(contexts[40]), unrelated=True)
    assert np.array_equal(answers(), before, equal_nan=True), "it changed what may be given"


def the_options_rebuild_the_policy(policy: Policy, factory: Callable[..., Policy]) -> None:
    """Certificates and save files hold the options, so the options must determine the policy."""
    if not set(policy.options) <= set(signature(factory).parameters):
        raise NotApplicable("its options are not arguments of the factory")
    again = factory(**policy.options)
    assert again.options == policy.options, f"options {policy.options} give {again.options}"


def a_higher_baseline_cost_never_raises_the_dose(policy: Policy, factory: Any) -> None:
    spec = plain_spec()

    def look(seen: Round) -> None:
        asked = [seen.asked._replace(baseline=cost) for cost in (0.0, 0.3, 0.6)]
        bounds = [seen.policy.bound(seen.state, each) for each in asked]
        none, some, full = (np.asarray(seen.policy.choose(*pair)) for pair in zip(bounds, asked, strict=True))
        assert np.all(some <= none), "a dose that rises with the baseline"
        assert np.all(full == 0.0), "a dose where the baseline exceeds the threshold"
        assert not np.any(bounds[-1].certified), "certified where nothing can be"

    _watch(policy, spec, look)


def violations_stay_within_the_guaranteed_risk(policy: Policy, factory: Any) -> None:
    """Level 1e-6 against a binomial at what is guaranteed; also adversarial contexts if the policy takes them."""
    from scipy.stats import binomtest

    changes: dict[str, Any] = {"cost_noise": 0.3, "reward_noise": 0.3, "threshold": [0.2, 2.0]}
    spec = plain_spec(violation_risk=0.03, estimation_risk=0.02, **changes)
    worlds = [LinearWorld(dim=3), LinearWorld(dim=3, contexts="adversarial")]
    _must_be_proved(policy, worlds[0], spec)
    risk = guaranteed_risk(policy, spec)
    for world in (each for each in worlds if not each.facts & policy.excludes):
        run = simulate(policy, world, spec, rounds=300, seeds=40)
        total, rounds = int(run.violations.sum()), run.violations.size * run.rounds
        chance = binomtest(total, rounds, risk, alternative="greater").pvalue
        assert chance > LEVEL, f"{total} violations in {rounds} rounds, guaranteed at most {risk:g}"


def the_intensity_lies_between_0_and_the_safe_intensity(policy: Policy, spec: SafetySpec) -> None:
    def check(given: Any, largest: Any) -> None:
        intensity, safe = np.asarray(given), np.asarray(largest)
        assert np.all(intensity >= 0.0), "an intensity below 0"
        assert np.all(intensity <= safe), "an intensity above the safe one"
        assert np.all(safe <= 1.0), "a safe intensity above 1"

    if drawn := _drawn(policy, 400):
        linear, seen, coin = drawn
        found, given = linear.decide(seen, spec, Asked(None, seen.norm, 7.0, 0.0, coin))
        check(given, found.largest)
    else:
        _watch(policy, spec, lambda seen: check(seen.given.intensity, seen.given.largest))


def a_batch_equals_a_loop_of_floats(policy: Policy, spec: SafetySpec) -> None:
    linear, seen, coin = _must_be_drawn(policy, 60)
    whole = np.asarray(linear.decide(seen, spec, Asked(None, seen.norm, 3.0, 0.0, coin))[1])
    for index in range(60):
        alone = seen._replace(**{name: float(getattr(seen, name)[index]) for name in (*seen._fields[:6], *ENERGIES)})
        _, single = linear.decide(alone, spec, Asked(None, alone.norm, 3.0, 0.0, float(coin[index])))
        assert abs(single - whole[index]) <= 1e-12, f"{single} alone, {whole[index]} in a batch"


def no_dose_exceeds_what_a_known_cost_allows(policy: Policy, spec: SafetySpec) -> None:
    """If the cost is known exactly (width 0), a guarantee on the realized cost leaves room for noise, sensor and
    baseline, in any round and with any amount of data.
    """
    _must_be_certified(policy)
    linear, seen, coin = _must_be_drawn(policy, 200)
    for rounds in (1.0, 2500.0, 1e6):
        known = seen._replace(width=0.0 * seen.width, informative_rounds=0.0 * seen.norm + rounds)
        cost = np.minimum(known.cost, spec.coefficient_bound * known.norm)
        for number in (1.0, 40.0, 1e6):
            for baseline in (0.0, 0.2):
                _, given = linear.decide(known, spec, Asked(None, known.norm, number, baseline, coin))
                limit = safe_set(cost, spec, round=number, baseline_cost=baseline).intensity
                over = np.asarray(given) > limit * (1.0 + 1e-12)
                where = f"round {number:g} with {rounds:g} informative rounds and baseline {baseline:g}"
                assert not np.any(over), f"a dose above what the known cost allows, in {where}"


def without_data_no_dose_exceeds_what_the_norms_allow(policy: Policy, spec: SafetySpec) -> None:
    """Before any data the mean cost may be S‖x‖, and no guarantee on the realized cost may assume less."""
    _must_be_certified(policy)
    if policy.knows_truth:
        raise NotApplicable("it knows the truth")
    world = _world(spec)
    _must_be_proved(policy, world, spec)

    def check(intensity: Any, norm: Any) -> None:
        limit = safe_set(spec.coefficient_bound * norm, spec, round=1.0).intensity
        assert np.all(np.asarray(intensity) <= limit * (1.0 + 1e-9)), "a dose that bets on what it cannot know"

    drawn = _drawn(policy, 200)
    if drawn is None:

        def look(seen: Round) -> None:
            check(seen.given.intensity, seen.asked.norm)

        _watch(policy, spec, look, world=world, rounds=1)
        return
    linear, seen, coin = drawn
    nothing = 0.0 * seen.norm
    blank = Prediction(nothing, nothing, seen.norm / spec.ridge**0.5, seen.norm, nothing, nothing, seen.dim)
    blank = blank._replace(**dict.fromkeys(ENERGIES, nothing))
    check(linear.decide(blank, spec, Asked(None, seen.norm, 1.0, 0.0, coin))[1], seen.norm)


def in_a_simulation_no_dose_exceeds_what_the_true_cost_allows(policy: Policy, spec: SafetySpec) -> None:
    """The strong form of the guarantee: with probability ≥ 1 − δ′, in all rounds, the dose leaves room for noise,
    sensor and baseline above the *true* mean cost. Level 1e-6 against a binomial over seeds.
    """
    from scipy.stats import binomtest

    _must_be_certified(policy)
    world, seeds = _world(spec, baseline_cost=0.1), 20
    _must_be_proved(policy, world, spec)
    over = np.zeros(seeds, dtype=bool)

    def look(seen: Round) -> None:
        mean = world.means(spec, seen.truth, seen.context)[1]
        limit = safe_set(mean, spec, round=float(seen.number), baseline_cost=world.baseline_cost).intensity
        over[:] |= np.any(np.asarray(seen.given.intensity) > limit * (1.0 + 1e-9), axis=0)

    _watch(policy, spec, look, world=world, rounds=200, seeds=seeds)
    chance = binomtest(int(over.sum()), seeds, spec.estimation_risk, alternative="greater").pvalue
    assert chance > LEVEL, f"doses above what the true cost allows, in {over.sum()} of {seeds} runs"


CLAIMS: list[Callable[[Policy, Any], None]] = [
    results_do_not_depend_on_how_seeds_are_batched,
    thresholds_in_one_batch_equal_thresholds_one_by_one,
    zero_intensity_leaves_the_state_as_it_was,
    save_and_load_give_the_same_decisions,
    violations_stay_within_the_guaranteed_risk,
    the_options_rebuild_the_policy,
    a_higher_baseline_cost_never_raises_the_dose,
    bound_and_choose_leave_the_state_as_it_was,
    tell_changes_the_state_in_place,
    a_round_that_is_left_out_changes_no_decision,
]
SPEC_CLAIMS: list[Callable[[Policy, SafetySpec], None]] = [
    the_intensity_lies_between_0_and_the_safe_intensity,
    a_batch_equals_a_loop_of_floats,
    no_dose_exceeds_what_a_known_cost_allows,
    without_data_no_dose_exceeds_what_the_norms_allow,
    in_a_simulation_no_dose_exceeds_what_the_true_cost_allows,
]


def plain_spec(**changes: Any) -> SafetySpec:
    risks: dict[str, Any] = {"violation_risk": 0.01, "estimation_risk": 0.01}
    return SafetySpec(**({"threshold": 0.5, **risks, **dict.fromkeys(CONSTANTS, 1.0)} | changes))


def predictions(number: int) -> tuple[Prediction, Any]:
    """Random predictions of a linear learner in four dimensions, and uniform random numbers."""
    rng = np.random.default_rng(0)
    norm = rng.uniform(0.05, 1.0, number)
    means = rng.normal(0, 0.5, number), rng.normal(0, 0.7, number)
    width, log_det = norm * rng.uniform(0.01, 1.0, number), rng.uniform(0, 40, number)
    seen = Prediction(*means, width, norm, log_det, rng.integers(0, 3000, number).astype(float), 4)
    coins = rng.random(number)
    return seen._replace(**{name: rng.uniform(0, 40, number) for name in ENERGIES}), coins


def _watch(
    policy: Policy,
    spec: SafetySpec,
    look: Callable[[Round], Any],
    *,
    world: LinearWorld | None = None,
    rounds: int = 60,
    seeds: int = 8,
) -> Simulation:
    """Simulate and check every round. If the policy refuses a spec, the claim does not apply; it must accept the
    plain one.
    """
    try:
        return simulate(policy, world or _world(spec), spec, rounds=rounds, seeds=seeds, observe=look)
    except InvalidInput as error:
        if spec == plain_spec():
            raise
        raise NotApplicable(str(error)) from error


def _world(spec: SafetySpec, *, baseline_cost: float = 0.0) -> LinearWorld:
    """A world for which the spec is true."""
    noise = "rademacher" if spec.margin == "bounded" else "gaussian"
    return LinearWorld(dim=2, noise=noise, baseline_cost=baseline_cost)


def _drawn(policy: Policy, number: int) -> tuple[Linear, Prediction, Any] | None:
    """The policy with random predictions and coins; None for one that decides from something else."""
    if not isinstance(policy, Linear):
        return None
    seen, coin = predictions(number)
    return policy, seen, coin


def _must_be_drawn(policy: Policy, number: int) -> tuple[Linear, Prediction, Any]:
    drawn = _drawn(policy, number)
    if drawn is None:
        raise NotApplicable("it keeps no linear estimate; simulations test it instead")
    return drawn


def _must_be_certified(policy: Policy) -> None:
    if not GUARANTEES[policy.guarantee].from_constants:
        raise NotApplicable(f"its guarantee is {policy.guarantee!r}")


def _must_be_proved(policy: Policy, world: LinearWorld, spec: SafetySpec) -> None:
    """A guarantee does not cover a world outside its function class, or one in which its start is not safe."""
    if not guarantee_holds(policy, world, spec):
        words = f"its guarantee, {policy.guarantee!r}, is not proved in a linear world of these constants"
        raise NotApplicable(f"{words}: its start is not safe there, or its cost class is not known to hold it")


def _agent(policy: Policy) -> Agent:
    """An online learner with this policy."""
    try:
        return Agent(3, plain_spec(), policy=policy, seed=11)
    except InvalidInput as error:
        raise NotApplicable(str(error)) from error


# --- `check_policy`: one list of claims that every policy must meet, including your own


class Report(NamedTuple):
    """How many checks ran, which failed (claim → message), and which were not applicable (claim → reason)."""

    policy: str
    checks: int
    failures: dict[str, str]
    not_applicable: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{self.policy}: {self.checks} checks ran, {len(self.failures)} failed."]
        lines += [f"  failed: {claim}: {reason}" for claim, reason in self.failures.items()]
        return "\n".join([*lines, *self._silent()])

    def _silent(self) -> list[str]:
        """A line for each claim that was not applicable, with the specs under which it was not."""
        found: dict[tuple[str, str], list[str]] = {}
        for claim, why in self.not_applicable.items():
            words, bracket, spec = claim.partition(" (")
            found.setdefault((words, why), []).extend([spec.rstrip(")")] if bracket else [])
        named = {key: "every spec" if len(specs) == len(SPECS) else ", ".join(specs) for key, specs in found.items()}
        shown = {key: f" ({specs})" if specs else "" for key, specs in named.items()}
        return [f"  not applicable: {words}{specs}: {why}" for (words, why), specs in shown.items()]


def check_policy(factory: Callable[..., Policy], *, quiet: bool = False) -> Report:
    """Run every claim on the policy that `factory()` makes, print how many checks ran, and return what failed.

    It finds faults that are visible from outside. It is not a proof: a policy that misbehaves only in untested cases
    will pass, and claims that were not applicable were not tested.

    >>> from safedial.policies import hp_ucb
    >>> print(check_policy(hp_ucb, quiet=True))
    hp_ucb: 45 checks ran, 0 failed.
    """
    way_out = f"give the class, {type(factory).__name__}, not one of its objects"
    require(callable(factory), "factory", factory, "must be a function that returns a Policy", way_out)
    policy = as_policy(factory())
    ran, failures, silent = 0, {}, {}
    for name, check in _checks(policy, factory):
        try:
            check()
        except NotApplicable as reason:
            silent[name] = str(reason)
            continue
        except Exception as error:
            failures[name] = f"{type(error).__name__}: {error}".strip().splitlines()[0] + _place(error)
        ran += 1
    report = Report(policy.name, ran, failures, silent)
    if not quiet:
        print(report)
    return report


def _place(error: Exception) -> str:
    """The method and line outside installed packages, if any, where an error arose."""
    outside = [each for each in extract_tb(error.__traceback__) if not _is_installed(each.filename)]
    return f" (in `{outside[-1].name}`, line {outside[-1].lineno})" if outside else ""


def _is_installed(file: str) -> bool:
    return Path(file).is_relative_to(Path(__file__).parents[1]) or "site-packages" in file


def _checks(policy: Policy, factory: Callable[..., Policy]) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every claim in words with its check; some for each of `SPECS`."""
    for claim in CLAIMS:
        yield claim.__name__.replace("_", " "), partial(claim, policy, factory)
    for claim in SPEC_CLAIMS:
        for name, changes in SPECS.items():
            yield f"{claim.__name__.replace('_', ' ')} ({name})", partial(claim, policy, plain_spec(**changes))
