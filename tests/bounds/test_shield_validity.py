"""P(excess) ≤ δ in each round, by simulation, for every bracket; and what a wrong rule would do.

The rules are given contexts, settings and costs alone. Level: each statistical assertion fails with probability below
1e-6 if the theorem holds; seeds are fixed.
"""

import math
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import SafetySpec, growth
from safedial.bounds import count_rule
from safedial.bounds.count_rule import SPREAD_RANK, Range, climb_limit, scaled_setting, spread_risk, tolerated_scale
from safedial.model.costs import Cost, tolerated_setting
from safedial.policies.shield import hp_shield
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.world import Exposure, generators
from tests.conftest import FULL
from tests.lanes import Lanes, Windows
from tests.oracles import largest_scale

pytestmark = pytest.mark.slow

RISK, SEEDS, ROUNDS, LEVEL = 0.05, 1200, 201, 1e-6
LOOKS = (25, 50, 100, 200)
THRESHOLD = 2.0
START = 0.1
"""Share of the base: below it lie two tolerances in a million, in every world but those that say otherwise."""


class World(NamedTuple):
    """Arrays are (rounds, seeds). `measure(step, setting)` gives the outcome, by the name of the cost."""

    base: Any
    costs: dict[str, Cost]
    measure: Callable[[int, Any], dict[str, Any]]
    range: Callable[[Any], Range]
    features: Callable[[int], dict[str, Any]] = lambda step: {}


class Options(NamedTuple):
    """How it is played: what is done to an advised setting, which outcomes are lost, and whether that is counted."""

    applied: Callable[[int, Any], Any] = lambda step, advised: advised
    missing: Callable[[int, Any], Any] | None = None
    vouched: bool = False
    climb: float = 1.25
    risk: float = RISK
    least: int = 1
    step: float = 1.0
    tolerated: Callable[..., Any] | None = None


PLAIN = Options()


def play(world, options=PLAIN):
    """Excesses and scales, (rounds, seeds) each."""
    rounds, seeds = world.base.shape
    count, lanes = Windows(seeds, options.risk, least=options.least), np.arange(seeds)
    excess, scales = np.zeros((rounds, seeds), dtype=bool), np.zeros((rounds, seeds))
    climbs = options.climb < math.inf
    used = np.full((seeds, 5), START)
    for step, base in enumerate(world.base):
        range_ = world.range(base)
        scale = options.step * count.scales()
        if climbs:
            scale = np.minimum(scale, climb_limit(used, START, climb=options.climb))
            used[:, step % 5] = np.maximum(scale, START)
        setting = options.applied(step, scaled_setting(scale, base, range_))
        outcome = world.measure(step, setting)
        excess[step] = np.any([world.costs[name].exceeded(outcome[name]) for name in world.costs], axis=0)
        scales[step] = scale
        limit = tolerated_setting(world.costs, outcome, setting, world.features(step))
        found = (options.tolerated or tolerated_scale)(limit, base, range_)
        lost = np.zeros(seeds, dtype=bool) if options.missing is None else options.missing(step, excess[step])
        kept = lanes[~lost] if options.vouched else lanes
        count.append(np.where(lost, -math.inf, found)[kept], kept)
    return excess, scales


def assert_kept(excess, risk=RISK, looks=LOOKS):
    for look in looks:
        over = int(excess[look].sum())
        assert binomtest(over, excess.shape[1], risk, alternative="greater").pvalue > LEVEL, (look, over)


def assert_broken(excess, risk=RISK, looks=LOOKS):
    """The check that the rule must pass, in the same rounds, catches a wrong one."""
    with pytest.raises(AssertionError):
        assert_kept(excess, risk, looks)


def draws(seed, seeds=SEEDS):
    """A generator, bases and tolerances around them."""
    rng = np.random.default_rng(seed)
    base = rng.lognormal(0.0, 0.3, (ROUNDS, seeds))
    return rng, base, base * rng.lognormal(0.0, 0.5, (ROUNDS, seeds))


def smooth(base):
    return Range(START * base, 4.0 + 0.0 * base)


def relative_world(seed=1, bracket=None, elasticity=(0.7, 1.4), range_=smooth):
    """C(a) = τ(a/tolerance)^e, the exponent differing from unit to unit."""
    rng, base, tolerance = draws(seed)
    power = rng.uniform(*elasticity, base.shape)
    bracket = bracket or growth.relative(0.7, 1.4, floor=0.3)
    return World(
        base,
        {"cost": Cost(threshold=THRESHOLD, growth=bracket)},
        lambda step, setting: {"cost": THRESHOLD * (setting / tolerance[step]) ** power[step]},
        range_,
    )


def exact_world():
    return relative_world(2, growth.relative(1, 1, floor=0), (1.0, 1.0))


def additive_world(seed=3, error=0.0):
    """A baseline of any sign, flat up to a knee and then rising, with slopes and measurement errors of its own."""
    rng, base, tolerance = draws(seed)
    slope, sensor = rng.uniform(1.0, 4.0, base.shape), rng.uniform(-error, error, base.shape)
    knee = tolerance * rng.uniform(0.0, 0.9, base.shape)
    level = THRESHOLD - slope * (tolerance - knee)

    def measure(step, setting):
        return {"cost": level[step] + slope[step] * np.maximum(setting - knee[step], 0.0) + sensor[step]}

    costs = {"cost": Cost(threshold=THRESHOLD, growth=growth.additive(0, "steepest", error=error))}
    return World(base, costs, measure, smooth, lambda step: {"steepest": 1.0 + slope[step]})


def glucose_world():
    """A cost that must not fall below 70; a threshold of another sign once turned."""
    rng, base, tolerance = draws(4)
    factor = rng.uniform(20.0, 60.0, base.shape)
    return World(
        base,
        {"glucose": Cost(threshold=70, growth=growth.additive(10, 60), direction="below")},
        lambda step, setting: {"glucose": 70.0 + factor[step] * (tolerance[step] - setting)},
        smooth,
    )


def two_costs_world():
    """Heavy tails, two costs with thresholds of their own, brackets of two kinds, a dial with levels."""
    rng, base, tolerance = draws(5)
    heavy = base * np.exp(0.3 * rng.standard_t(2, base.shape).clip(-30.0, 30.0))
    levels = tuple(np.linspace(0.0, 4.0, 81))

    def range_(base):
        return Range(np.floor(START * base * 20.0) / 20.0, 4.0, levels)

    costs = {
        "trough": Cost(threshold=20, growth=growth.relative(0.7, 1.4, floor=2)),
        "auc": Cost(threshold=600, growth=growth.relative(1, 1, floor=0)),
    }
    return World(
        base,
        costs,
        lambda step, setting: {
            "trough": 20.0 * (setting / tolerance[step]) ** 1.3,
            "auc": 600.0 * setting / heavy[step],
        },
        range_,
    )


WORLDS = {"relative": relative_world, "exact": exact_world, "additive": additive_world, "glucose": glucose_world}


@pytest.mark.parametrize("world", WORLDS)
def test_the_guarantee_holds_for_every_bracket(world):
    excess, scales = play(WORLDS[world]())
    assert_kept(excess)
    assert np.median(scales[200]) > 0.3, "it acts"


def test_the_guarantee_holds_with_a_measurement_error_that_does_not_shrink():
    assert_kept(play(additive_world(error=0.3))[0])


def test_the_guarantee_holds_with_two_costs_heavy_tails_missing_outcomes_and_a_nurse_who_foresees():
    """20 % missing at random and vouched for; somebody who foresees an excess lowers half of those settings."""
    rng, world = np.random.default_rng(6), two_costs_world()
    gone, foresees = rng.random((ROUNDS, SEEDS)) < 0.2, rng.random((ROUNDS, SEEDS)) < 0.5

    def applied(step, advised):
        start = world.range(world.base[step]).start
        over = world.measure(step, advised)["trough"] > 20.0
        request = 0.9 * advised if step % 3 == 0 else advised
        return np.maximum(np.where(over & foresees[step], 0.8 * advised, request), start)

    excess, _ = play(world, Options(applied=applied, missing=lambda step, _: gone[step], vouched=True))
    assert_kept(excess)
    assert_kept(play(world)[0])


def binary_world(levels=None):
    """Costs of 0 or 1. A start that climbs in time exceeds a little: 3 in 1,000 without levels, 4 in 10,000 with."""
    rng = np.random.default_rng(7)
    tolerance = rng.lognormal(0.0 if levels is None else 0.3, 0.5, (ROUNDS, SEEDS))
    base = np.ones((ROUNDS, SEEDS))
    return World(
        base,
        {"toxicity": Cost(threshold=0.5, growth=growth.spread(1.25, 0.5))},
        lambda step, setting: {"toxicity": (setting > tolerance[step]).astype(float)},
        lambda base: Range(0.25 * base, 4.0, levels),
    )


def test_the_guarantee_holds_for_costs_of_0_or_1_and_the_scale_rises():
    world = binary_world()
    bracket = world.costs["toxicity"].growth
    options = Options(risk=spread_risk(bracket, 0.2), least=SPREAD_RANK, step=1.25, climb=math.inf)
    excess, scales = play(world, options)
    assert_kept(excess, risk=0.2)
    assert np.median(scales[200]) > 0.5


def test_costs_of_0_or_1_on_a_dial_with_levels_take_the_scale_without_levels():
    """Where levels lie further apart than a step, a round at one level says nothing of the next."""
    world = binary_world(levels=(0.25, 0.5, 1.5, 4.0))
    bracket = world.costs["toxicity"].growth
    options = Options(risk=spread_risk(bracket, 0.2), least=SPREAD_RANK, step=1.25, climb=math.inf)

    def without_levels(limit, base, range_):
        return tolerated_scale(limit, base, range_._replace(levels=None))

    looks = (*LOOKS, 60)
    assert_kept(play(world, options._replace(tolerated=without_levels))[0], risk=0.2, looks=looks)
    assert_broken(play(world, options)[0], risk=0.2, looks=looks)


def unlowered(limit, base, range_):
    """T̂ as the bare supremum, which a dial with levels does not attain."""
    return range_.reach(limit) / base


def test_on_a_floored_dial_the_bare_supremum_breaks_the_guarantee_and_the_rule_keeps_it():
    """Few bases, levels far apart: many rounds share one supremum, at which the next level is played."""
    levels = (0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
    world = relative_world(8, growth.relative(1, 1, floor=0), (1.0, 1.0), lambda base: Range(0.125, 4.0, levels))
    base = np.where(world.base > 1.0, 2.0, 1.0)
    tolerance = 1.1 * base * np.random.default_rng(9).lognormal(0.0, 0.4, base.shape)
    world = world._replace(base=base, measure=lambda step, setting: {"cost": THRESHOLD * setting / tolerance[step]})
    assert_kept(play(world, Options(climb=math.inf))[0])
    assert_broken(play(world, Options(climb=math.inf, tolerated=unlowered))[0])


def test_a_mass_of_equal_tolerances_does_not_break_the_guarantee():
    """Three units in five tolerate anything below 1, and exceed at 1, the next level."""
    rng = np.random.default_rng(10)
    base = np.ones((ROUNDS, SEEDS))
    tolerance = np.where(rng.random(base.shape) < 0.6, 0.9, 3.0)
    world = World(
        base,
        {"cost": Cost(threshold=THRESHOLD, growth=growth.relative(1, 1, floor=0))},
        lambda step, setting: {"cost": THRESHOLD * setting / tolerance[step]},
        lambda base: Range(0.25 * base, 4.0, (0.25, 0.5, 1.0, 2.0, 4.0)),
    )
    excess, _ = play(world, Options(climb=math.inf))
    assert not excess.any()
    wrong, _ = play(world, Options(climb=math.inf, tolerated=unlowered))
    assert_broken(wrong)
    assert wrong[100].mean() > 0.5


def test_one_more_excess_than_the_rank_allows_is_caught(monkeypatch):
    """The (m+1)-th smallest scale in place of the m-th risks 2/20 while n = 19, and 6/100 at n = 99."""
    world, options = exact_world(), Options(climb=math.inf)
    window = count_rule.window
    monkeypatch.setattr(count_rule, "window", lambda *given, **how: _one_more(window(*given, **how)))
    assert_broken(play(world, options)[0])
    monkeypatch.undo()
    assert_kept(play(world, options)[0])


def _one_more(window):
    return window._replace(rank=window.rank + (window.rank > 0))


def test_outcomes_that_go_missing_because_they_exceeded_count_against_the_scale():
    """Nine in ten of the excesses are never reported: dropped they break the guarantee, counted as −∞ they do not."""
    lost = np.random.default_rng(11).random((ROUNDS, SEEDS)) < 0.9

    def missing(step, excess):
        return excess & lost[step]

    world = exact_world()
    assert_kept(play(world, Options(missing=missing))[0])
    assert_broken(play(world, Options(missing=missing, vouched=True))[0])


def test_proposals_that_inflate_break_a_base_and_not_a_cap():
    """Growing by 1 % a round, a proposal is not exchangeable, so no base; as a request below a cap it is harmless."""
    inflated = 1.01 ** np.arange(ROUNDS)[:, None]
    world = exact_world()
    as_base = world._replace(base=world.base * inflated, range=lambda base: Range(0.1, 50.0))
    assert_broken(play(as_base, Options(climb=math.inf))[0])
    asked = world.base * inflated * 0.3
    assert_kept(play(world, Options(applied=lambda step, cap: np.minimum(cap, asked[step])))[0])


def test_a_rare_fragile_group_plays_its_start_until_it_is_ready():
    """One unit in thirty tolerates little. Grouped, it waits at its start; only pooled caps would let it exceed."""
    rng = np.random.default_rng(12)
    fragile = rng.random((ROUNDS, SEEDS)) < 1 / 30
    tolerance = np.where(fragile, 0.3, 1.0) * rng.lognormal(0.0, 0.1, fragile.shape)
    groups, pooled, lanes = Windows(2 * SEEDS, RISK), Windows(SEEDS, RISK), np.arange(SEEDS)
    right, wrong = np.zeros((2, *fragile.shape), dtype=bool)
    for step in range(ROUNDS):
        lane = lanes + SEEDS * fragile[step]
        own, shared = groups.scales()[lane], pooled.scales()
        right[step] = tolerance[step] < np.where(own > -math.inf, own, 0.1)
        wrong[step] = tolerance[step] < np.where(own > -math.inf, own, np.maximum(shared, 0.1))
        groups.append(tolerance[step], lane)
        pooled.append(tolerance[step])
    assert_kept(right)
    for look in LOOKS:
        for members in (fragile[look], ~fragile[look]):
            over = int((right[look] & members).sum())
            assert binomtest(over, int(members.sum()), RISK, alternative="greater").pvalue > LEVEL, "within each group"
    assert_broken(wrong)


def test_splitting_by_parity_lets_a_learner_read_off_the_calibration_rounds_and_by_time_does_not():
    """Two units in five are fragile. The settings of the rounds that train reveal λ̂, and with it the context of the
    calibration round that set it; the learner then gives that context alone a tiny base, and so one by one.
    """
    rng, rounds, risk, seeds = np.random.default_rng(14), 201, 0.1, 400
    fragile, place = rng.random((seeds, rounds)) < 0.4, rng.random((seeds, rounds))
    base, masked = 1.0 + place, np.zeros(fragile.shape, dtype=bool)
    parity, split = np.zeros((2, rounds, seeds), dtype=bool)
    fits = [0, *range(10, rounds, 5)]
    for step in range(rounds):
        tolerated = np.where(fragile & ~masked, 0.5 / base, math.inf)
        scale = largest_scale(*latest(tolerated[:, 1:step:2], risk))
        setting = np.clip(scale * base[:, step], 0.05, 2.0)
        parity[step] = fragile[:, step] & (setting > 0.5)
        if step % 2 == 0:
            revealed = 0.5 * base[:, step] / setting - 1.0
            masked |= np.abs(place - revealed[:, None]) < 1e-9
        since = max(fit for fit in fits if fit == 0 or count_rule.is_calibrated(step - fit, step, risk))
        later = np.where(fragile, 0.5 / base, math.inf)[:, since:step]
        scale = largest_scale(*latest(later, risk, step))
        split[step] = fragile[:, step] & (scale * base[:, step] > 0.5 * (1 + 1e-12))
    assert_kept(split, risk)
    assert_broken(parity, risk)
    assert parity[100:].mean() > 0.3


def latest(tolerated, risk, count=None):
    """The scales of the window, and the rank."""
    own = tolerated.shape[1]
    size, rank = count_rule.window(own if count is None else count, risk, since=own)
    return tolerated[:, own - size :], rank


def test_with_a_confidence_the_share_that_exceeds_is_kept_given_the_past():
    """At one t, with i.i.d. rounds: F(λ̂) > δ in at most 10 % of the runs."""
    rng = np.random.default_rng(13)
    count = Windows(SEEDS, 0.1, confidence=0.9)
    for _ in range(150):
        count.append(rng.random(SEEDS))
    missed = int((count.scales() > 0.1).sum())
    assert binomtest(missed, SEEDS, 0.1, alternative="greater").pvalue > LEVEL
    assert missed > 0


# The whole policy in dose-response worlds: every bracket and base, and what goes wrong in practice.

BRACKETS: dict[str, tuple[dict[str, Any], growth.Growth]] = {
    "relative": ({"low": 0.7, "high": 1.4}, growth.relative(0.7, 1.4, floor=0.5)),
    "exact": ({}, growth.relative(1, 1, floor=0)),
    "additive": ({"curve": "hinge", "low": 2.0, "high": 20.0, "knee": 0.9}, growth.additive(2, 20)),
    "spread": ({"curve": "binary"}, growth.spread(1.25, 0.5)),
}
BASES: dict[str, dict[str, Any]] = {
    "protocol": {"base": 0},
    "proposal": {"base": lambda context: context[..., 0] * np.exp(0.2 * context[..., 2])},
    "learned": {"base": 0, "learned": True},
}
TROUBLES = (
    *("heavy tails", "two costs", "missing at random", "lost", "foreseen", "levels", "requests", "adaptive"),
    *("no climb limit", "sign", "patients"),
)
ALL_LOOKS = (25, 50, 100, 200, 500)
AT_ONCE = 5


class Case(NamedTuple):
    """What is tried at once."""

    bracket: str
    base: str
    trouble: str

    @property
    def sound(self) -> bool:
        """Whether there is such a thing: 0/1 costs are one cost."""
        return "two costs" not in self.trouble or self.bracket != "spread"


def cases():
    """Every bracket and base, with one trouble after the other, and then several troubles at once, so that each meets
    every bracket and base; under `make test-full` every combination, with one trouble.
    """
    every = [Case(*chosen) for chosen in product(BRACKETS, BASES, ["none", *TROUBLES])]
    every = [case for case in every if case.sound]
    if FULL:
        return every
    found, turn = [], ["none", *TROUBLES]
    unmet = {(case.trouble, value) for case in every for value in case[:2] if case.trouble != "none"}
    for chosen in dict.fromkeys(case[:2] for case in reversed(every)):  # the brackets with the fewest first
        sound = [trouble for trouble in turn if Case(*chosen, trouble).sound]
        found.append(Case(*chosen, sound[0]))
        turn.append(turn.pop(turn.index(sound[0])))  # to the end of the list, so that every trouble has its turn
        waiting = {trouble: sum((trouble, value) in unmet for value in chosen) for trouble in sound}
        most = sorted(sound, key=lambda trouble: -waiting[trouble])[:AT_ONCE]
        met = [trouble for trouble in most if waiting[trouble]]
        unmet -= {(trouble, value) for trouble in met for value in chosen}
        found += [Case(*chosen, "+".join(met))] if met else []
    assert not unmet, "each trouble meets every bracket and base that it can"
    return found


def perform(case, seeds, **options):
    """Excesses, (rounds, seeds), of the policy in a world, and δ. It is given contexts, settings and outcomes alone."""
    fields, bracket = BRACKETS[case.bracket]
    on, zero_one = case.trouble.split("+"), case.bracket == "spread"
    world = DoseResponseWorld(
        **fields,
        tails="t2" if "heavy tails" in on else "normal",
        least=0.0 if zero_one else START,
        effect=0.3,
        dim=4 if "patients" in on else 3,
        units=8 if "patients" in on else 0,
        missing=0.2 if "missing at random" in on else 0.0,
    )
    given = {"growth": bracket, "start_scale": 0.25 if zero_one else 0.08, **BASES[case.base]}
    limits = {"threshold": 0.5 if zero_one else THRESHOLD}
    if "two costs" in on:
        limits = {"costs": {name: Cost(threshold=at, growth=bracket) for name, at in (("trough", 2.0), ("auc", 6.0))}}
        del given["growth"]
    given |= {"adapt": 0.01} if "adaptive" in on else {}
    given |= {"climb": None} if "no climb limit" in on else {}
    given |= {"chooser": "sign"} if "sign" in on else {}
    given |= {"levels": np.geomspace(0.005, 1.0, 40)} if "levels" in on else {}
    spec = SafetySpec(violation_risk=0.2 if zero_one else RISK, guarantee="bracket", reward_noise=3.0, **limits)
    return performed(hp_shield(**given | options), world, spec, seeds, on), spec.violation_risk


def looks_of(troubles):
    """When it is looked: up to round 500 with one trouble, to 200 with several."""
    return ALL_LOOKS if len(troubles) == 1 else LOOKS


def performed(policy, world, spec, seeds, on):
    rngs, rng, rounds = generators(range(seeds)), np.random.default_rng(5), looks_of(on)[-1] + 1
    truth, drawn = world.draw_truth(spec, rngs), world.draw_chunk(spec, rngs, rounds)
    means, one = world.means(spec, truth, drawn.context), np.ones(seeds)
    played, excess = Lanes(policy, spec, dim=world.dim, lanes=(seeds,)), np.zeros((rounds, seeds), dtype=bool)
    eager, costs = one, spec.costs or {"cost": Cost(threshold=spec.threshold, growth=growth.additive(0, 1))}

    def exceeds(cost):
        found = cost if spec.costs else {"cost": cost}
        return np.any([each.exceeded(found[name]) for name, each in costs.items()], axis=0)

    for step, (context, reward_noise, unit) in enumerate(zip(*drawn[:3], strict=True)):
        setting = played.decide(context)
        shown = Exposure(context, means[0][step], means[1][step], setting, setting, reward_noise, unit, one, one)
        if "requests" in on:  # asks for more until it exceeded, and then for less for a while
            setting = np.minimum(setting, 0.3 * eager * context[:, 0])
        if "foreseen" in on:
            over = exceeds(world.outcome(spec, shown).cost) & (rng.random(seeds) < 0.5)
            setting = np.where(over, 0.8 * setting, setting)
        shown = shown._replace(reward_intensity=setting, cost_intensity=setting)
        reward, _, event, left_out = world.normalised(spec, shown, one)
        excess[step] = exceeds(event)
        eager = np.where(excess[step], 0.5, np.minimum(1.1 * eager, 30.0))
        lost = rng.random(seeds) < 0.01 if "lost" in on else False
        left_out = False if left_out is None else left_out
        played.update(context, setting, event, reward=reward, lost=lost, left_out=left_out)
    return excess


@pytest.mark.parametrize("case", cases(), ids="-".join)
def test_the_guarantee_holds_for_the_policy_whatever_goes_wrong(case):
    excess, risk = perform(case, 1000 if FULL else 300)
    assert_kept(excess, risk, looks=looks_of(case.trouble.split("+")))
