"""`check_policy`: one list of claims that every policy must meet, anyone's included.

Each claim is a function of a policy that asserts what it says. The project's own policies are tested with the same
list. Only a policy that calls itself "certified" is held to the promise.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from safedial.core.estimate import Prediction
from safedial.core.safe_set import safe_set
from safedial.core.spec import SafetySpec
from safedial.errors import InvalidInput
from safedial.online.agent import Agent
from safedial.policies import Policy
from safedial.simulation import simulate
from safedial.worlds.linear import LinearWorld

LEVEL = 1e-6
"""False-alarm level of the one statistical claim; its seeds are fixed."""

SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "joint": {"promise": "joint"},
    "sensor": {"cost_sensor_noise": 0.05, "reward_sensor_noise": 0.1},
    "dependent sensor": {"cost_sensor_noise": 0.05, "sensor_dependent": True},
    "gaussian margin": {"margin": "gaussian"},
    "bounded margin": {"margin": "bounded", "noise_low": -2.0, "noise_high": 1.5, "promise": "joint"},
    "other constants": {"cost_noise": 2.0, "reward_noise": 0.2, "coefficient_bound": 3.0, "ridge": 0.3},
}

ENERGIES = ("reward_energy", "cost_energy")


class Report(NamedTuple):
    """Which checks ran, and what failed: claim → what it said."""

    policy: str
    checks: int
    failures: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{self.policy}: {self.checks} checks ran, {len(self.failures)} failed."]
        return "\n".join([*lines, *(f"  failed: {claim}: {reason}" for claim, reason in self.failures.items())])


def check_policy(factory: Callable[..., Policy], *, quiet: bool = False) -> Report:
    """Run every claim on the policy that `factory()` makes, print how many checks ran, and return what failed.

    It looks for cheats that can be seen from outside; it is no proof, and a policy that misbehaves only where nobody
    looks will pass.

    >>> from safedial.policies import hp_ucb
    >>> print(check_policy(hp_ucb, quiet=True))
    hp_ucb: 35 checks ran, 0 failed.
    """
    policy = factory() if callable(factory) else None
    if not isinstance(policy, Policy):
        raise InvalidInput(f"factory = {factory!r}: must be a function that returns a Policy")
    checks = [(claim.__name__, claim, {}) for claim in CLAIMS]
    if set(policy.options) <= set(signature(factory).parameters):
        checks.append(("the_options_rebuild_the_policy", the_options_rebuild_the_policy, {"factory": factory}))
    if policy.is_linear:
        checks += [(claim.__name__, claim, {}) for claim in LINEAR_CLAIMS]
        pairs = [(claim, name) for claim in SPEC_CLAIMS for name in SPECS]
        checks += [(f"{claim.__name__} ({name})", claim, SPECS[name]) for claim, name in pairs]
    failures = {}
    for name, claim, changes in checks:
        try:
            claim(policy, **({"spec": _spec(**changes)} if claim in SPEC_CLAIMS else changes))
        except Exception as error:
            failures[name.replace("_", " ")] = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    report = Report(policy.name, len(checks), failures)
    if not quiet:
        print(report)
    return report


def the_intensity_lies_between_0_and_the_safe_intensity(policy: Policy, spec: SafetySpec) -> None:
    seen, coin = _predictions(400)
    choice = policy.decide(seen, spec, round=7.0, coin=coin)
    intensity, safe = np.asarray(choice.intensity), np.asarray(choice.safe.intensity)
    assert np.all(intensity >= 0.0), "an intensity below 0"
    assert np.all(intensity <= safe), "an intensity above the safe one"
    assert np.all(safe <= 1.0), "a safe intensity above 1"


def a_batch_equals_a_loop_of_floats(policy: Policy, spec: SafetySpec) -> None:
    seen, coin = _predictions(60)
    whole = np.asarray(policy.decide(seen, spec, round=3.0, coin=coin).intensity)
    for index in range(60):
        alone = seen._replace(**{name: float(getattr(seen, name)[index]) for name in (*seen._fields[:6], *ENERGIES)})
        single = policy.decide(alone, spec, round=3.0, coin=float(coin[index])).intensity
        assert abs(single - whole[index]) <= 1e-14, f"{single} alone, {whole[index]} in a batch"


def no_dose_exceeds_what_a_known_cost_allows(policy: Policy, spec: SafetySpec) -> None:
    """Where the cost is known exactly (width 0), a realized promise leaves room for noise, sensor and baseline, at any
    time and with any amount of data.
    """
    if policy.promise != "certified":
        return
    seen, coin = _predictions(200)
    for rounds in (1.0, 2500.0, 1e6):
        known = seen._replace(width=0.0 * seen.width, informative_rounds=0.0 * seen.norm + rounds)
        cost = np.minimum(known.cost, spec.coefficient_bound * known.norm)
        for number in (1.0, 40.0, 1e6):
            for baseline in (0.0, 0.2):
                choice = policy.decide(known, spec, round=number, coin=coin, baseline_cost=baseline)
                limit = safe_set(cost, spec, round=number, baseline_cost=baseline).intensity
                over = np.asarray(choice.intensity) > limit * (1.0 + 1e-12)
                where = f"round {number:g} with {rounds:g} informative rounds and baseline {baseline:g}"
                assert not np.any(over), f"a dose above what the known cost allows, in {where}"


def without_data_no_dose_exceeds_what_the_norms_allow(policy: Policy, spec: SafetySpec) -> None:
    """Before any data the mean cost may be S‖x‖, and no realized promise may bet on less."""
    if policy.promise != "certified" or policy.knows_truth:
        return
    seen, coin = _predictions(200)
    nothing = 0.0 * seen.norm
    blank = Prediction(nothing, nothing, seen.norm / spec.ridge**0.5, seen.norm, nothing, nothing, seen.dim)
    blank = blank._replace(**dict.fromkeys(ENERGIES, nothing))
    choice = policy.decide(blank, spec, round=1.0, coin=coin)
    limit = safe_set(spec.coefficient_bound * seen.norm, spec, round=1.0).intensity
    assert np.all(np.asarray(choice.intensity) <= limit * (1.0 + 1e-12)), "a dose that bets on what it cannot know"


def the_options_rebuild_the_policy(policy: Policy, factory: Callable[..., Policy]) -> None:
    """Certificates and save files hold the options; they must say how the policy was made."""
    again = factory(**policy.options)
    assert again.options == policy.options, f"options {policy.options} give {again.options}"


def a_higher_baseline_cost_never_raises_the_dose(policy: Policy) -> None:
    seen, coin = _predictions(400)
    none, some, full = (
        policy.decide(seen, _spec(), round=2.0, coin=coin, baseline_cost=cost) for cost in (0.0, 0.3, 0.6)
    )
    assert np.all(np.asarray(some.intensity) <= np.asarray(none.intensity)), "a dose that rises with the baseline"
    assert np.all(np.asarray(full.intensity) == 0.0), "a dose where the baseline exceeds the threshold"
    assert not np.any(full.safe.certified), "certified where nothing can be"


def results_do_not_depend_on_how_seeds_are_batched(policy: Policy) -> None:
    together = simulate(policy, LinearWorld(dim=3), _spec(), rounds=300, seeds=[4, 0, 7])
    for column, seed in enumerate([4, 0, 7]):
        alone = simulate(policy, LinearWorld(dim=3), _spec(), rounds=300, seeds=[seed])
        assert abs(together.regret[0, column] - alone.regret[0, 0]) <= 1e-9, "another regret in another batch"
        assert together.violations[0, column] == alone.violations[0, 0], "other violations in another batch"


def thresholds_in_one_batch_equal_thresholds_one_by_one(policy: Policy) -> None:
    together = simulate(policy, LinearWorld(dim=3), _spec(threshold=[0.1, 0.9]), rounds=300, seeds=3)
    for row, threshold in enumerate([0.1, 0.9]):
        alone = simulate(policy, LinearWorld(dim=3), _spec(threshold=threshold), rounds=300, seeds=3)
        for name in ("regret", "reward", "violations", "informative_rounds", "clairvoyant_reward"):
            same = np.array_equal(getattr(together, name)[row], getattr(alone, name)[0])
            assert same, f"{name} differs between a sweep and a single run"


def zero_intensity_leaves_the_state_as_it_was(policy: Policy) -> None:
    agent = _agent(policy)
    if agent is None:
        return
    agent.update([0.1, 0.2, 0.3], 0.5, 0.2, 0.1)
    before = {key: value.copy() for key, value in agent._learner.state().items()}
    agent.update([0.3, 0.2, 0.3], 0.0, 0.0, 0.0)
    for key, value in agent._learner.state().items():
        assert np.array_equal(value, before[key]), f"{key} changed"


def save_and_load_give_the_same_decisions(policy: Policy) -> None:
    agent = _agent(policy)
    if agent is None:
        return
    rng = np.random.default_rng(5)
    contexts = rng.standard_normal((60, 3)) / 5
    for context in contexts[:40]:
        decision = agent.decide(context)
        agent.update(decision, reward=float(rng.normal()) * decision.intensity, cost=0.1 * decision.intensity)
    with tempfile.TemporaryDirectory() as folder:
        agent.save(Path(folder) / "agent")
        twin = Agent.load(Path(folder) / "agent", policy=policy)
    for context in contexts[40:]:
        here, there = agent.decide(context), twin.decide(context)
        assert here.certificate == there.certificate, "another certificate after loading"
        for each in (agent, twin):
            each.update(context, here.action, 0.2, 0.1)


def violations_stay_within_the_promised_risk(policy: Policy) -> None:
    """Level 1e-6 against a binomial at δ + δ′ (conformal: δ); adversarial contexts too where the promise has them."""
    if policy.promise in ("expected", "heuristic", "bayesian"):
        return
    from scipy.stats import binomtest

    spec = _spec(violation_risk=0.03, estimation_risk=0.02, cost_noise=0.3, reward_noise=0.3, threshold=[0.2, 2.0])
    certified = policy.promise == "certified"
    for contexts in ("iid", "adversarial") if certified and policy.is_linear else ("iid",):
        run = simulate(policy, LinearWorld(dim=3, contexts=contexts), spec, rounds=300, seeds=40)
        total, rounds, risk = int(run.violations.sum()), run.violations.size * run.rounds, 0.05 if certified else 0.03
        chance = binomtest(total, rounds, risk, alternative="greater").pvalue
        assert chance > LEVEL, f"{total} violations in {rounds} rounds, promised at most {risk:g}"


SPEC_CLAIMS: list[Callable[..., None]] = [
    the_intensity_lies_between_0_and_the_safe_intensity,
    a_batch_equals_a_loop_of_floats,
    no_dose_exceeds_what_a_known_cost_allows,
    without_data_no_dose_exceeds_what_the_norms_allow,
]
LINEAR_CLAIMS: list[Callable[..., None]] = [a_higher_baseline_cost_never_raises_the_dose]
CLAIMS: list[Callable[..., None]] = [
    results_do_not_depend_on_how_seeds_are_batched,
    thresholds_in_one_batch_equal_thresholds_one_by_one,
    zero_intensity_leaves_the_state_as_it_was,
    save_and_load_give_the_same_decisions,
    violations_stay_within_the_promised_risk,
]


def _spec(**changes: Any) -> SafetySpec:
    settings: dict[str, Any] = {"threshold": 0.5, "violation_risk": 0.01, "estimation_risk": 0.01}
    settings |= {"reward_noise": 1.0, "cost_noise": 1.0, "coefficient_bound": 1.0, "context_bound": 1.0}
    return SafetySpec(**(settings | changes))


def _predictions(number: int) -> tuple[Prediction, Any]:
    """Random predictions such as a learner in four dimensions may meet, and coins."""
    rng = np.random.default_rng(0)
    norm = rng.uniform(0.05, 1.0, number)
    seen = Prediction(
        rng.normal(0, 0.5, number),
        rng.normal(0, 0.7, number),
        norm * rng.uniform(0.01, 1.0, number),
        norm,
        rng.uniform(0, 40, number),
        rng.integers(0, 3000, number).astype(float),
        4,
    )
    coins = rng.random(number)
    return seen._replace(**{name: rng.uniform(0, 40, number) for name in ENERGIES}), coins


def _agent(policy: Policy) -> Agent | None:
    """An online learner with this policy, or None for one that says it cannot run online."""
    try:
        return Agent(3, _spec(), policy=policy, seed=11)
    except InvalidInput:
        return None
