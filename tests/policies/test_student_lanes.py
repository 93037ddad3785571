"""HP-Student in many lanes, whose rounds are late, lost or lowered in their own way, is HP-Student in each alone."""

import numpy as np
import pytest

from safedial import SafetySpec, hp_student
from safedial.model.dose import as_dose
from safedial.policies.policy import KNOWN, LEFT_OUT, LOST, OPEN, THROTTLED, Asked, Task, Told
from safedial.policies.table import digest, pack, unpack

LANES, ROUNDS, DIM = 5, 60, 2
FATES = [KNOWN] * 12 + [LEFT_OUT, OPEN, THROTTLED, LOST]


def task_of(**changes):
    spec = SafetySpec(threshold=0.5, violation_risk=0.1, estimation_risk=0.05, guarantee="student", **changes)
    return Task(dim=DIM, spec=spec, dose=as_dose(None))


def course(seed, *, history=0, far=()):
    """What happens in each round and lane: contexts, C/g, what becomes of it, and how many rounds later it is told."""
    rng = np.random.default_rng(seed)
    context = rng.standard_normal((ROUNDS, LANES, DIM))
    cost = context @ np.array([0.3, -0.2]) + 0.2 * rng.standard_normal((ROUNDS, LANES))
    fate = rng.choice(FATES, size=(ROUNDS, LANES))
    fate[:25][np.isin(fate[:25], (LOST, THROTTLED, OPEN))] = KNOWN
    fate[:history] = KNOWN
    late = np.where(rng.random((ROUNDS, LANES)) < 0.2, 2, 0)
    late[:history] = 0
    for number in far:
        cost[number] += 3.0
    return context, cost, fate, late


def played(policy, story, lanes, history=0):
    """(largest, evidence, state) of each round in these lanes; lanes of None are one lane without an axis."""
    one = isinstance(lanes, int)
    pick = (lambda values: values[lanes]) if one else (lambda values: values[np.asarray(lanes)])
    plain = (lambda value: value.item()) if one else (lambda value: value)
    contexts, costs, fates, late = story
    state = policy.init(() if one else (len(lanes),))
    rows = []

    def tell(place, here):
        cost, fate = pick(costs[place]), np.where(here, pick(fates[place]), OPEN)
        action = np.full(np.shape(cost), 0.25)
        weight = np.where((fate == KNOWN) & (pick(costs[place]) > -0.5), 1.0, 0.0)  # some get nothing
        told = Told(plain(np.asarray(fate)), plain(0.1 + cost), plain(cost), plain(weight), plain(0.25 * cost), 0.0,
                    plain(action), plain(action), pick(contexts[place]))  # fmt: skip
        policy.tell(state, place, told)

    for number in range(ROUNDS):
        context = pick(contexts[number])
        asked = Asked(context, plain(np.sqrt(np.vecdot(context, context))), 0 if number < history else number + 1.0)
        if number < history:
            policy.open(state, asked, None, 0.1)
        else:
            policy.begin(state, asked)
            bound = policy.bound(state, asked)
            chosen = policy.choose(bound, asked)
            policy.open(state, asked, bound, np.where(number % 17 == 3, 0.0, chosen))
            (evidence,) = policy.evidence(state).values()
            rows.append((bound.largest, chosen, evidence.value, evidence.crossed))
        for before in (2, 0):
            if number - before >= 0:
                here = pick(late[number - before]) == before
                if np.any(here):
                    tell(number - before, here)
        if number == 45:
            policy.restart(state)
    return rows, state


OPTIONS = [
    {},
    {"lag": 3},
    {"guarantee": "tolerance", "lag": 1},
    {"guarantee": "anytime", "mixture_ridge": 1.0},
    {"either": True, "lag": 2},
]


@pytest.mark.parametrize("history", [0, 6])
@pytest.mark.parametrize("options", OPTIONS)
def test_lanes_are_single_lanes(options, history):
    policy = hp_student(start_dose=0.1, **options).on(task_of())
    story = course(3, history=history, far=(50, 52, 54))
    together, _ = played(policy, story, list(range(LANES)), history)
    for lane in range(LANES):
        alone, _ = played(policy, story, [lane], history)
        certified, _ = played(policy, story, lane, history)
        # The evidence of HP-Conformal is that at the latest report, of any lane.
        count = 2 if "either" in options else 4
        for mine, single, exact in zip(together, alone, certified, strict=True):
            for here, there in zip(mine[:count], single[:count], strict=True):
                assert np.broadcast_to(here, LANES)[lane] == pytest.approx(np.ravel(there)[0], rel=1e-9)
            for here, there in zip(single, exact, strict=True):
                assert np.ravel(here)[0] == pytest.approx(float(there), rel=2e-2 if "guarantee" in options else 1e-6)


def test_outcomes_that_are_told_at_once_and_those_that_wait_give_the_same_state():
    """The short way of a round that is told before anything else happens, and the long one."""
    policy = hp_student(start_dose=0.1).on(task_of())
    contexts, costs, _, _ = course(5)
    states = [policy.init((LANES,)), policy.init((LANES,))]
    for number in range(30):
        asked = Asked(contexts[number], np.sqrt(np.vecdot(contexts[number], contexts[number])), number + 1.0)
        told = Told(np.full(LANES, KNOWN), costs[number], costs[number], np.ones(LANES), costs[number], 0.0, 0.1, 0.1,
                    contexts[number])  # fmt: skip
        for short, state in zip((True, False), states, strict=True):
            policy.begin(state, asked)
            bound = policy.bound(state, asked)
            policy.open(state, asked, bound, np.full(LANES, 0.1))
            if not short:
                half = np.arange(LANES) < 2
                policy.tell(state, number, told._replace(fate=np.where(half, KNOWN, OPEN)))
            policy.tell(state, number, told)
    one, other = (policy.evidence(state)["student_drift"].value for state in states)
    np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(states[0].fit.cost_coef, states[1].fit.cost_coef, rtol=1e-9)


@pytest.mark.parametrize("options", OPTIONS)
def test_many_lanes_are_saved_and_restored(options):
    policy, story = hp_student(start_dose=0.1, **options).on(task_of()), course(7)
    _, state = played(policy, story, list(range(LANES)))
    again = unpack(policy.init((LANES,)), pack(state))
    assert digest(again) == digest(state)


def test_without_a_watch_there_is_no_evidence_and_nothing_to_restart():
    policy = hp_student(start_dose=0.1).on(task_of())
    state = policy.init((2,), watch=False)
    policy.restart(state)
    assert policy.evidence(state) == {}
    either = hp_student(start_dose=0.1, either=True).on(task_of())
    assert either.evidence(either.init((2,), watch=False)) == {}


def test_costs_without_scatter_are_no_small_p_values_in_lanes_either():
    policy = hp_student(start_dose=0.1).on(task_of())
    state, rng = policy.init((2,)), np.random.default_rng(1)
    for number in range(12):
        context = rng.standard_normal((2, DIM))
        asked = Asked(context, np.linalg.norm(context, axis=1), number + 1.0)
        policy.begin(state, asked)
        bound = policy.bound(state, asked)
        policy.open(state, asked, bound, np.full(2, 0.1))
        cost = np.array([0.0, 5.0 if number == 11 else 0.0])
        told = Told(np.full(2, KNOWN), cost, cost, np.ones(2), cost, 0.0, 0.1, 0.1, context)
        policy.tell(state, number, told)
    evidence = policy.evidence(state)["student_drift"]
    assert evidence.crossed.tolist() == [False, True]


def test_the_options_are_checked_and_written_under_the_names_that_people_use():
    policy = hp_student(guarantee="anytime", probe="sqrt")
    assert policy.guarantee == "student"
    assert policy.options["guarantee"] == "anytime"
    assert "form" not in policy.options
    assert hp_student(**policy.options) == policy
