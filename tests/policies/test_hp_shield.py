"""HP-Shield in lanes: its bases and families keep the guarantee, and what it does is what the count rule says.

Level: each statistical assertion fails with probability below 1e-6 if the theorem holds; seeds are fixed.
"""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from safedial import Agent, Dial, Features, InvalidInput, SafetySpec, growth, simulate
from safedial.bounds.count_rule import Range, climb_limit, excess_bound, scaled_setting, tolerated_scale
from safedial.bounds.estimate import ridge_fit
from safedial.model.costs import Cost
from safedial.model.dose import as_dose
from safedial.policies.policy import KNOWN, LEFT_OUT, LOST, OPEN, THROTTLED, Task, Told
from safedial.policies.shield import hp_shield
from safedial.policies.shield_rounds import Bases
from safedial.simulation.dose_response import DoseResponseWorld
from safedial.simulation.world import Exposure, generators
from tests.conftest import make_spec
from tests.lanes import Lanes, Windows

RISK, LEVEL, SEEDS, ROUNDS = 0.05, 1e-6, 400, 201
LOOKS = (25, 50, 100, 200)
SPEC = make_spec(threshold=2.0, violation_risk=RISK)
BRACKET = growth.relative(0.7, 1.4, floor=0.5)
ADDITIVE = growth.additive(0, 15)
LEVELS = tuple(np.geomspace(0.015, 1.0, 30).tolist())
BRACKETED = {"threshold": 2.0, "violation_risk": RISK, "guarantee": "bracket"}
SAFE = 0.02
"""A start below which no tolerance lies; at the default, 0.25, one unit in thirty exceeds at the start already."""


class Patients:
    """Contexts (protocol's setting, three features); tolerances depend on the features, costs on an exponent too."""

    def __init__(self, seeds=SEEDS, rounds=ROUNDS, seed=1):
        rng = np.random.default_rng(seed)
        features = rng.standard_normal((rounds, 1, seeds, 3))
        protocol = np.full((rounds, 1, seeds, 1), 0.3)
        self.context = np.concatenate([protocol, features], axis=-1)
        effect = features @ np.array([0.6, -0.4, 0.0])
        self.tolerance = 0.3 * np.exp(effect + 0.25 * rng.standard_normal((rounds, 1, seeds)))
        self.power = rng.uniform(0.7, 1.4, (rounds, 1, seeds))
        self.benefit = features[..., 2]

    def cost(self, step, setting):
        return 2.0 * (setting / self.tolerance[step]) ** self.power[step]


def play(policy, world, *, spec=SPEC, applied=lambda step, advised: advised, lost=lambda step: False):
    """Settings and excesses, (rounds, seeds) each."""
    rounds, _, seeds, dim = world.context.shape
    played = Lanes(policy, spec, dim=dim, lanes=(1, seeds))
    settings, excess = np.empty((rounds, seeds)), np.zeros((rounds, seeds), dtype=bool)
    for step in range(rounds):
        setting = applied(step, played.decide(world.context[step]))
        cost = world.cost(step, setting)
        played.update(world.context[step], setting, cost, reward=world.benefit[step], lost=lost(step))
        settings[step], excess[step] = setting[0], cost[0] > spec.threshold
    return settings, excess


def assert_kept(excess):
    for look in LOOKS:
        over = int(excess[look].sum())
        assert binomtest(over, excess.shape[1], RISK, alternative="greater").pvalue > LEVEL, (look, over)


def test_with_a_protocol_it_is_the_count_rule_under_the_climb_limit():
    world = Patients(seeds=20, rounds=120)
    settings, _ = play(hp_shield(base=0, growth=BRACKET), world)
    count, cost, used = Windows(20, RISK), Cost(threshold=2.0, growth=BRACKET), []
    for step in range(120):
        base = world.context[step, 0, :, 0]
        range_ = Range(0.25 * base, 1.0)
        most = climb_limit(np.stack(used[-5:], axis=-1) if used else [], 0.25)
        scale = np.minimum(count.scales(), most)
        used.append(np.maximum(scale, 0.25))
        setting = scaled_setting(scale, base, range_)
        np.testing.assert_allclose(settings[step], setting, rtol=1e-12)
        count.append(tolerated_scale(cost.tolerated(world.cost(step, setting)[0], setting), base, range_))


def requested(context):
    """Now more than the cap, now less than the start, now nothing."""
    return np.maximum(context[..., 0] * (1.0 + context[..., 1]) - 0.02, 0.0)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"learned": True}, {"missing": 0.25}),
        ({"adapt": 0.02, "climb": None}, {"missing": 0.25}),
        ({"levels": LEVELS, "learned": True}, {"missing": 0.1}),
        ({"levels": LEVELS, "growth": growth.spread(1.25, 0.5)}, {"curve": "binary"}),
        ({"growth": None, "learned": True, "adapt": 0.02}, {"missing": 0.1, "gap": 0.1}),
        ({"chooser": "sign"}, {"missing": 0.1}),
        ({"chooser": "request", "request": requested}, {"missing": 0.1}),
        ({"chooser": "request", "request": requested, "growth": ADDITIVE, "levels": LEVELS}, {"curve": "hinge"}),
        ({"chooser": "target"}, {"missing": 0.1}),
        ({"chooser": "target", "levels": LEVELS}, {}),
        ({"group": 2, "adapt": 0.05}, {"units": 3, "missing": 0.1}),
        ({"group": lambda context: context[..., 1] > 0.3, "chooser": "target"}, {"missing": 0.1}),
    ],
    ids=[
        *("learned", "adaptive", "levels", "spread on levels", "two costs", "sign", "request", "request of levels"),
        *("target", "target on levels", "adaptive groups", "groups and target"),
    ],
)
def test_lanes_with_rounds_left_out_and_levels_decide_as_agents_do(options, fields):
    """Each lane has left out rounds of its own, so that it changes its base at a time of its own."""
    world, lanes = DoseResponseWorld(dim=3, effect=0.4, low=0.7, high=1.4, **fields), 3
    limits = {"threshold": 0.5 if world.curve == "binary" else 2.0}
    given = {"base": 0, "growth": BRACKET, "start_scale": 0.2} | options
    if given["growth"] is None:
        limits = {"costs": {name: Cost(threshold=2.0, growth=BRACKET) for name in ("trough", "auc")}}
    spec = SafetySpec(violation_risk=0.2, guarantee="bracket", **limits)
    policy, dial = hp_shield(**given), Dial(levels=given.pop("levels", None))
    asks = given.pop("request", None)
    agents = [Agent(3, spec, policy=hp_shield(**given), dial=dial) for _ in range(lanes)]
    rngs, played = generators(range(lanes)), Lanes(policy, spec, dim=3, lanes=(lanes,))
    truth, drawn = world.draw_truth(spec, rngs), world.draw_chunk(spec, rngs, 130 if "learned" in options else 75)
    means, one = world.means(spec, truth, drawn.context), np.ones(lanes)
    for step, context in enumerate(drawn.context):
        setting = played.decide(context)
        more = [{"proposal": float(asks(row))} if asks else {} for row in context]
        advised = [agent.ask(row, **each) for agent, row, each in zip(agents, context, more, strict=True)]
        np.testing.assert_allclose([decision.action for decision in advised], setting, rtol=1e-9)
        noise = drawn.reward_noise[step], drawn.cost_noise[step], one, one
        shown = Exposure(context, means[0][step], means[1][step], setting, setting, *noise)
        _, _, event, gone = world.normalised(spec, shown, setting)
        reward = context[:, 1] + 0.5 if given.get("chooser") == "sign" else 5.0 * (0.1 + 0.1 * context[:, 1]) - setting
        left_out = np.zeros(lanes, dtype=bool) if gone is None else gone
        played.update(context, setting, event, reward=reward, left_out=left_out)
        for lane, (agent, decision) in enumerate(zip(agents, advised, strict=True)):
            if left_out[lane]:
                agent.tell(decision, unrelated=True)
            elif spec.costs:
                agent.tell(decision, reward=0.0, cost={name: float(each[lane]) for name, each in event.items()})
            else:
                agent.tell(decision, reward=float((reward * setting)[lane]), cost=float(event[lane]))
    assert len({float(each) for each in setting / context[:, 0]}) == lanes, "they differ"


def test_levels_and_costs_that_cannot_be_are_refused():
    policy = hp_shield(base=0, growth=BRACKET, levels=(0.1, 1.0))
    with pytest.raises(InvalidInput, match=r"levels = 0.1: must begin at or below the start in every context; add a"):
        Lanes(policy, SPEC, dim=1, lanes=(1,)).decide(np.full((1, 1), 0.2))
    with pytest.raises(InvalidInput, match=r"levels = \(0.1, 1.0\): are for simulations; give the Agent a dial"):
        Agent(1, SafetySpec(threshold=2.0, violation_risk=RISK, guarantee="bracket"), policy=policy)
    costs = {name: Cost(threshold=2.0, growth=BRACKET) for name in ("trough", "auc")}
    several = SafetySpec(costs=costs, violation_risk=RISK, guarantee="bracket")
    with pytest.raises(InvalidInput, match="guarantee = 'bracket': does not match policy hp_probe"):
        simulate("hp_probe", DoseResponseWorld(), several, rounds=2, seeds=1)


def test_in_a_world_whose_tolerances_fall_no_run_exceeds_more_often_than_the_adaptive_bound():
    """In each of 60 runs, after every round; without the adaptive level half of them do."""
    world, seeds, rounds = DoseResponseWorld(fall=0.15, after=100), 60, 250
    spec = SafetySpec(**BRACKETED)
    beyond = {}
    for rate in (0.02, None):
        played = []
        policy = hp_shield(base=0, growth=growth.relative(1, 1, floor=0), start_scale=0.1, climb=None, adapt=rate)
        simulate(policy, world, spec, rounds=rounds, seeds=seeds, record=played.append)
        context, action, _, cost = (np.concatenate(part)[:, 0] for part in zip(*played, strict=True))
        over = cost > 2.0
        at_start = np.cumsum(over & (action <= 0.1 * context[..., 0] * (1.0 + 1e-12)), axis=0)
        most = excess_bound(np.arange(1, rounds + 1)[:, None], risk=RISK, rate=0.02, at_start=at_start)
        beyond[rate] = np.any(np.cumsum(over, axis=0) > most + 1e-9, axis=0)
    assert not beyond[0.02].any()
    assert beyond[None].mean() > 0.3


def test_with_an_exact_curve_each_base_spends_the_whole_risk():
    """All rounds from 20 on, 400 runs: within 0.004 of δ, over six standard errors between runs."""
    world = Patients()
    world.power[:] = 1.0
    for options in ({}, {"learned": True}):
        policy = hp_shield(base=0, growth=growth.relative(1, 1, floor=0), climb=None, start_scale=SAFE, **options)
        excess = play(policy, world)[1][20:]
        assert excess.mean() == pytest.approx(RISK, abs=0.004)


def test_a_learned_base_gives_more_at_the_same_risk():
    world = Patients(seeds=40, rounds=401)
    plain, learned = (play(hp_shield(base=0, growth=BRACKET, learned=learned), world) for learned in (False, True))
    assert learned[0][300:].mean() > 1.2 * plain[0][300:].mean()
    assert learned[1][300:].mean() < 0.06


def test_rounds_that_were_given_less_neither_raise_nor_lower_the_climb_limit():
    policy = hp_shield(base=0, growth=growth.relative(1, 1, floor=0), start_scale=0.1)
    world = Patients(seeds=1, rounds=80)
    world.tolerance[:] = 1e6
    advised = {}

    def keep(name, most):
        def applied(step, setting):
            advised.setdefault(name, []).append(setting.item())
            return np.minimum(setting, most(step))

        return applied

    play(policy, world, applied=keep("free", lambda step: 1.0))
    play(policy, world, applied=keep("held", lambda step: 0.06))
    play(policy, world, applied=keep("paused", lambda step: 0.01 if 24 <= step < 60 else 1.0))
    assert max(advised["free"]) == 1.0
    assert 0.06 < max(advised["held"]) <= 1.25 * 0.06
    assert advised["paused"][24:60] == [advised["free"][24]] * 36
    assert advised["paused"][61] == advised["free"][25]


def test_costs_of_0_or_1_climb_by_steps():
    world = Patients(seeds=50)
    world.cost = lambda step, setting: 1.0 * (setting > world.tolerance[step])
    policy = hp_shield(base=0, growth=growth.spread(1.25, 0.5))
    settings, excess = play(policy, world, spec=make_spec(threshold=0.5, violation_risk=0.2))
    assert settings[-1].mean() > 1.2 * settings[0].mean()
    assert excess.mean() < 0.2


def test_a_confidence_starts_later_and_gives_less():
    world = Patients(seeds=50, rounds=150)
    sure, plain = (play(hp_shield(base=0, growth=BRACKET, confidence=level), world)[0] for level in (0.95, None))
    assert np.all(sure[:50] == sure[0])
    assert sure[100:].mean() < plain[100:].mean()


def test_the_sign_chooser_plays_the_start_where_no_benefit_is_expected():
    world = Patients(seeds=50, rounds=150)
    settings, _ = play(hp_shield(base=0, growth=BRACKET, chooser="sign", start_scale=0.1), world)
    late, benefit = settings[100:], world.benefit[100:, 0]
    assert np.all(late[benefit < -0.5] == pytest.approx(0.1 * 0.3))
    assert late[benefit > 0.5].mean() > 1.5 * 0.1 * 0.3


def test_the_target_chooser_finds_the_best_setting_under_the_cap_and_a_request_is_given_up_to_it():
    world = Patients(seeds=20, rounds=150)
    world.tolerance[:] = 0.2
    world.context[..., 1:] /= 4.0
    best = 0.1 + 0.1 * world.context[..., 1]
    target = hp_shield(base=0, growth=growth.relative(1, 1, floor=0), start_scale=0.1, chooser="target")
    played, settings = (
        Lanes(target, make_spec(threshold=2.0, violation_risk=RISK, ridge=0.01), dim=4, lanes=(1, 20)),
        [],
    )
    for step, context in enumerate(world.context):
        setting = played.decide(context)
        played.update(context, setting, world.cost(step, setting), reward=2.0 * best[step] - setting)
        settings.append(setting)
    late = np.array(settings)[-20:]
    assert late == pytest.approx(np.clip(best[-20:], 0.03, 0.15), abs=0.015)
    asked = hp_shield(
        base=0, growth=BRACKET, start_scale=0.1, chooser="request", request=lambda x: 0.1 + 0.0 * x[..., 0]
    )
    free = play(hp_shield(base=0, growth=BRACKET, start_scale=0.1), world)[0]
    given = play(asked, world)[0]
    assert given[:20] == pytest.approx(free[:20])
    assert given[-1] == pytest.approx(0.1)
    below = hp_shield(base=0, growth=BRACKET, chooser="request", request=1)
    with pytest.raises(InvalidInput, match=r"request = -.*: must be a number >= 0 in every context"):
        play(below, world)


def test_the_guarantee_holds_in_each_group_and_would_not_without_groups():
    world = Patients(rounds=151)
    frail = world.context[:, 0, :, 1] > 0.7
    world.tolerance *= np.where(frail, 0.3, 1.5)[:, None]
    options = {"base": 0, "growth": growth.relative(1, 1, floor=0), "start_scale": SAFE, "climb": None}
    world.power[:] = 1.0
    kept = play(hp_shield(**options, group=lambda x: x[..., 1] > 0.7), world)[1]
    mixed = play(hp_shield(**options), world)[1]
    for group in (frail, ~frail):
        for look in (100, 150):
            over, of = int(kept[look][group[look]].sum()), int(group[look].sum())
            assert binomtest(over, of, RISK, alternative="greater").pvalue > LEVEL
        assert kept[100:][group[100:]].mean() > 0.2 * RISK
    assert mixed[100:][frail[100:]].mean() > 2.0 * RISK


def test_a_group_that_comes_late_begins_as_it_would_in_any_batch():
    """Seeds alone and together give the same, though together the groups appear at other times."""
    world = DoseResponseWorld(dim=4, units=3, effect=0.3)
    policy = hp_shield(base=0, growth=growth.relative(1, 1, floor=0), learned=True, group=3, adapt=0.05)
    spec = SafetySpec(threshold=2.0, violation_risk=0.2, guarantee="bracket")
    together, alone = (simulate(policy, world, spec, rounds=60, seeds=seeds) for seeds in ([0, 5], [5]))
    assert together.reward[0, 1] == pytest.approx(alone.reward[0, 0], rel=1e-12)
    assert together.reward[0, 0] != together.reward[0, 1]


def test_a_group_that_comes_after_many_rounds_counts_its_own_alone():
    world, late = Patients(seeds=5, rounds=130), Patients(seeds=5, rounds=130)
    world.context[..., 3] = np.arange(130)[:, None, None] >= 70
    for name in ("context", "tolerance", "power", "benefit"):
        setattr(late, name, getattr(world, name)[70:])
    options = {"base": 0, "growth": BRACKET, "start_scale": 0.1}
    with_groups, alone = play(hp_shield(**options, group=3), world)[0], play(hp_shield(**options), late)[0]
    assert np.array_equal(with_groups[70:], alone)
    learned = play(hp_shield(**options, group=3, learned=True), world)[0]
    assert np.all(learned[70:89] == pytest.approx(0.03))
    assert learned[-1].mean() > 0.04


@pytest.mark.parametrize("lanes", [(), (2,)])
def test_the_newest_base_with_a_third_of_the_rounds_since_its_fit_is_used(lanes):
    bases, many = Bases(lanes, 2), np.zeros(lanes, dtype=np.int64) if lanes else 0
    for count in (10, 20, 40):
        bases.renew(many == 0, np.zeros(3), since=count, earlier=many + count)
    for total, since in ((15, 0), (39, 20), (59, 20), (60, 40)):
        row = bases.newest(many + total, RISK)
        assert np.all(bases.fits.since[..., row] == since)
    bases.use(many + 3)
    assert np.all(bases.newest(many + 60, RISK) == 3), "there is none after it"
    bases.leave_out(15, True)
    assert np.all(bases.fits.rows("earlier") == [0, 10, 19, 39])
    assert np.all(bases.earlier == 39)


def test_huge_collinear_contexts_give_a_base_too():
    _, coef = ridge_fit(np.ones((1, 3, 3)), np.full((1, 3, 1), 3.0), True, 0.0)
    np.testing.assert_allclose(coef[..., 0], np.ones((1, 3)), rtol=1e-9)


def test_a_base_does_not_learn_that_a_round_tolerates_many_times_what_it_was_given():
    """Costs of 0 and of a hundredth of the threshold teach the same: four times the protocol's setting."""
    policy, context, given = hp_shield(base=0, growth=BRACKET, learned=True), np.full((1, 1), 0.2), np.full(1, 0.1)
    learned = []
    for share in (0.0, 0.01):
        played = Lanes(policy, SPEC, dim=1, lanes=(1,))
        for _ in range(10):
            played.decide(context)
            played.update(context, given, share * SPEC.threshold + 0.0 * given)
        played.policy.begin(played.state, played.asked)
        coef = played.state.groups[0].bases.fits.coef[0, 1]
        learned.append(float(coef[0] + 0.2 * coef[1]))
    assert learned[0] == learned[1] == pytest.approx(math.log(4.0))


LIVE = SafetySpec(**BRACKETED)


@pytest.mark.parametrize("options", [{}, {"learned": True}, {"adapt": 0.05, "lag": 3}, {"group": 2, "learned": True}])
def test_lanes_with_late_lost_and_lowered_rounds_of_their_own_are_single_lanes(options):
    """Settings and evidence, in the dial's units: each of five lanes as if it were alone."""
    lanes, rounds, rng = 5, 150, np.random.default_rng(0)
    policy = hp_shield(base=0, growth=BRACKET, start_scale=0.25, **options)
    context = rng.standard_normal((rounds, lanes, 3))
    context[..., 0], context[..., 2] = rng.uniform(4, 10, (rounds, lanes)), rng.integers(0, 2, (rounds, lanes))
    tolerance = context[..., 0] * np.exp(0.5 * context[..., 1] + 0.2 * rng.standard_normal((rounds, lanes)))
    power, wait = rng.uniform(0.7, 1.4, (rounds, lanes)), rng.integers(0, 4, (rounds, lanes))
    fates = rng.choice([KNOWN, LEFT_OUT, LOST, THROTTLED, OPEN], p=[0.86, 0.05, 0.04, 0.03, 0.02], size=(rounds, lanes))

    def run(which, shape):
        played = Lanes(policy, LIVE, dim=3, lanes=shape, live=True, dial=Dial(high=20.0))
        settings = []
        for step in range(rounds):
            advised = played.decide(context[step, which].reshape(*shape, 3))
            played.open()
            settings.append(np.ravel(advised))
            for place in range(max(0, step - 3), step + 1):
                given = settings[place]
                due = np.where(wait[place, which] == step - place, fates[place, which], OPEN)
                if np.all(due == OPEN):
                    continue
                cost = 2.0 * (given / tolerance[place, which]) ** power[place, which]
                parts = [np.reshape(each, shape) if shape else each.item() for each in (due, given, cost)]
                row, zero = context[place, which].reshape(*shape, 3), 0.0 * parts[1]
                told = Told(parts[0], zero, zero, zero + 1.0, parts[2], 0.0, parts[1], parts[1], row)
                played.policy.tell(played.state, place, told)
        evidence = played.policy.evidence(played.state)
        return np.array(settings), {rule: np.ravel(each.value) for rule, each in evidence.items()}

    together, evidence = run(np.arange(lanes), (lanes,))
    assert len({float(each) for each in together[-1]}) == lanes
    for lane in range(lanes):
        alone, own = run(np.array([lane]), ())
        np.testing.assert_allclose(together[:, lane], alone[:, 0], rtol=1e-11)
        for rule, value in evidence.items():
            assert value[lane] == pytest.approx(own[rule][0], rel=1e-11)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"base": -1}, "base = -1: must be a column's number, a feature's name, 'proposal' or a function"),
        ({"growth": 3}, "growth = 3: must be a bracket, or a table"),
        ({"learned": "yes"}, "learned = 'yes': must be True or False"),
        ({"start_scale": 0}, r"start_scale = 0: must be a number in \(0, 1\]; state the share"),
        ({"climb": 1}, "climb = 1: must be a number > 1 or None; try 1.25"),
        ({"confidence": 1.0}, "confidence = 1.0: must be a number in"),
        *(({"adapt": rate}, "adapt = .*: must be a number in .*; a fifth of") for rate in (0, 1.5, "fast", True)),
        ({"lag": -1}, "lag = -1: must be a whole number >= 0"),
        ({"direction": "up"}, "direction = 'up': must be 'above' or 'below'"),
        ({"levels": (0.5, 0.2)}, r"levels = \(0.5, 0.2\): must be intensities that rise, above 0 and at most 1"),
        ({"levels": ()}, r"levels = \(\): must be intensities that rise"),
        ({"chooser": "best"}, "chooser = 'best': must be one of largest, request"),
        ({"request": 1}, "request = 1: must be a column's number or a function of contexts, with chooser='request'"),
        ({"chooser": "request", "request": "asked"}, "request = 'asked': must be a column's number or a function"),
        ({"group": True}, "group = True: must be a feature's name, a column's number or a function"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(InvalidInput, match=words):
        hp_shield(**({"base": 0, "growth": BRACKET} | options))


def test_a_context_without_a_setting_and_a_grid_of_thresholds_are_refused():
    def started(dim=3, spec=SPEC, **options):
        return Lanes(hp_shield(**({"base": 0, "growth": BRACKET} | options)), spec, dim=dim, lanes=(1, 2))

    with pytest.raises(InvalidInput, match="base = 4: must be a column of a context of dimension 3"):
        started(base=4)
    with pytest.raises(InvalidInput, match=r"\['x', 'dose'\]: are named, and only an Agent has names"):
        started(base="dose", growth=growth.additive(0, "x"))
    with pytest.raises(InvalidInput, match="lag = 2: is for an Agent"):
        started(lag=2)
    with pytest.raises(InvalidInput, match=r"base = 0.0: must be a number > 0 in every context"):
        started().decide(np.zeros((1, 2, 3)))
    with pytest.raises(InvalidInput, match="must be one number, as must violation_risk; sweep in a loop"):
        started(spec=make_spec(threshold=np.array([1.0, 2.0])))
    assert math.isclose(started().decide(np.ones((1, 2, 3)))[0, 0], 0.25)
    with pytest.raises(InvalidInput, match=r"group = \(\): must give one value for each context"):
        started(group=lambda context: 1).decide(np.ones((1, 2, 3)))


def test_a_lag_may_be_a_whole_number_of_numpy():
    lag = hp_shield(base=0, growth=BRACKET, lag=np.int64(2)).options["lag"]
    assert (lag, type(lag)) == (2, int)


def test_evidence_that_nobody_keeps_begins_anew_without_a_word():
    policy = Lanes(hp_shield(base=0, growth=BRACKET), SPEC, dim=4, lanes=(2,)).policy
    state = policy.init((2,), watch=False)
    policy.restart(state)
    assert policy.evidence(state) == {}


def test_a_slope_that_is_a_feature_is_read_in_each_lane():
    features = Features(names=("dose", "steep"), center=(0.0, 10.0), scale=(1.0, 2.0))
    task = {"dose": as_dose(None), "features": features, "live": True}
    policy = hp_shield(base="dose", start_scale=0.1, growth=growth.additive(0, "steep")).on(
        Task(dim=2, spec=SPEC, **task)
    )
    contexts = np.array([[0.3, 1.0], [0.3, 2.5]])
    together, alone = policy.costs_at(contexts), [policy.costs_at(each) for each in contexts]
    (name,) = together
    assert together[name].growth.parameters["high"].tolist() == [12.0, 15.0]
    assert [each[name].growth.parameters["high"] for each in alone] == [12.0, 15.0]


def test_a_base_of_ones_own_may_be_a_whole_number():
    policy = hp_shield(base=lambda context: 2, start_scale=0.5, growth=BRACKET)
    assert Agent(1, SafetySpec(**BRACKETED), policy=policy, dial=Dial(high=10)).ask([0.3]).action == pytest.approx(1.0)
