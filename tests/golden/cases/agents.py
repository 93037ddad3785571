"""The agents: every policy and every value of an option that stays, 300 rounds each.

A case says: its policy, dimension, spec, dial, dose curves and features; the world that answers, with its seed; which
rounds are never told (`never`), lost for a reason that may be related (`lost`), withheld (`withheld`, and `withheld
unrelated`); how many rounds are told before the first question (`before`); a stretch of `drift`; whether a resume
forgets (`forget`); and numbers that are `left out`. Rounds that are late, lost for unrelated reasons, overridden or
asked together are in every case (`rounds.py`).
"""

from __future__ import annotations

from tests.golden.cases import own

CASES: dict[str, dict] = {}

CONSTANTS = {
    "threshold": 0.5,
    "violation_risk": 0.1,
    "estimation_risk": 0.05,
    "reward_noise": 0.3,
    "cost_noise": 0.3,
    "coefficient_bound": 1.0,
    "context_bound": 1.0,
}
SCATTER = {"from": 150, "to": 190, "shift": 0.3, "scale": 4.0}
RISE = {"from": 130, "to": 165, "shift": 1.5}
HILL = {"curve": "hill", "ed50": 0.4, "slope": 1.5}
POWER = {"curve": "power", "exponent": 1.7}
LOGISTIC = {"curve": "logistic", "midpoint": 0.5, "steepness": 6.0}
TABLE = {"curve": "tabulated", "actions": [0, 0.2, 0.6, 1], "intensities": [0, 0.1, 0.7, 1]}
MILLIGRAMS = {"low": 0.0, "high": 400.0, "unit": "mg"}
FINE = {"low": 0.0, "high": 20.0, "unit": "mg", "levels": [0.5 * place for place in range(1, 41)]}
DOSES = {"low": 0.0, "high": 20.0, "unit": "mg", "levels": [1.0, 2.0, 4.0, 8.0, 14.0, 20.0]}


def add(name, case, **changes):
    """One more case; its seed follows from its name, unless that was found not to be robust."""
    made = {**case, **changes}
    made.setdefault("seed", 1000 + sum(map(ord, name)))
    if name in CASES:
        raise ValueError(f"{name}: is there already")
    CASES[name] = made


def spec(**changes):
    return {**CONSTANTS, **changes}


# ---- From constants, with a linear estimate ----


def certified(policy, name="ucb", **changes):
    world = {"kind": "linear"} | changes.pop("world", {})
    case = {"policy": {"name": name, **policy}, "dim": 3, "spec": CONSTANTS, "world": world, "baseline": 0.05}
    case |= {"before": 4, "never": (44, 101), "lost": (281,), "withheld unrelated": (47,), "drift": SCATTER}
    return {**case, **changes}


for radius in ("paper", "mixture", "noise-adaptive", "self-normalised"):
    add(f"ucb-{radius}", certified({"radius": radius}))
    add(f"probe-{radius}", certified({"radius": radius}, "probe", drift=RISE))
    add(f"expectation-{radius}", certified({"radius": radius}, "expectation", drift=RISE))
add("ucb-mixture-unclipped", certified({"radius": "mixture", "clip": False}))
add("ucb-paper-clipped", certified({"radius": "paper", "clip": True}))
add("ucb-self-normalised-ridge", certified({"radius": "self-normalised"}, spec=spec(ridge=3.0), drift=RISE))
add("probe-self-normalised-unclipped", certified({"radius": "self-normalised", "clip": False}, "probe"))
add(
    "ucb-noise-adaptive-large-noise",
    certified({"radius": "noise-adaptive"}, spec=spec(cost_noise=1.0, reward_noise=0.6)),
)
add("ucb-ridge", certified({}, spec=spec(ridge=0.25), withheld=(240,)))
add("ucb-one-dimension", certified({}, dim=1))
add("probe-many-dimensions", certified({"radius": "mixture"}, "probe", dim=70, rounds=120, coefficients=False))
add("ucb-eighteen-dimensions", certified({"radius": "self-normalised"}, dim=18, rounds=200, coefficients=False))
for share in ("sqrt", 0.0, 0.1, 1.0):
    add(f"probe-share-{share}", certified({"probe": share}, "probe"))
add("greedy-all", certified({"learn_from": "all", "epsilon": 0.3}, "greedy", coins=5))
add("greedy-rarely-self-normalised", certified({"epsilon": 0.1, "radius": "self-normalised"}, "greedy", coins=6))
add("greedy-paper", certified({"radius": "paper"}, "greedy", coins=9))
for scale in (1.0, 0.4):
    add(f"thompson-{scale}", certified({"scale": scale}, "thompson", coins=7))
add("thompson-noise-adaptive", certified({"radius": "noise-adaptive"}, "thompson", coins=8))
for clip in (True, False):
    add(f"fixed-clip-{clip}", certified({"clip": clip}, "fixed", drift=RISE))

BOUNDED = {"margin": "bounded", "noise_low": -0.3, "noise_high": 0.3}
for name in ("ucb", "probe"):
    add(f"{name}-gaussian-margin", certified({}, name, spec=spec(margin="gaussian")))
    uniform = {"world": {"noise": "uniform", "cost_noise": 0.3, "reward_noise": 0.3}}
    add(f"{name}-bounded-margin", certified({}, name, spec=spec(**BOUNDED), **uniform))
    add(f"{name}-bounded-margin-learned", certified({}, name, spec=spec(**BOUNDED, margin_risk=0.02), **uniform))
learns = spec(**BOUNDED, margin_risk=0.02)
for radius in ("noise-adaptive", "self-normalised"):
    add(f"probe-bounded-margin-learned-{radius}", certified({"radius": radius}, "probe", spec=learns, **uniform))
add("probe-all-rounds", certified({}, "probe", spec=spec(promise="constants, all rounds"), drift=RISE))
add("ucb-all-rounds-gaussian", certified({}, spec=spec(promise="constants, all rounds", margin="gaussian"), drift=RISE))
add(
    "probe-total-risk",
    certified({}, "probe", spec={**CONSTANTS, "violation_risk": None, "estimation_risk": None, "total_risk": 0.15}),
)

SENSED = {"cost_sensor_noise": 0.04, "reward_sensor_noise": 0.05}
for name in ("ucb", "probe"):
    add(f"{name}-sensor", certified({}, name, spec=spec(**SENSED), world={"cost_sensor": 0.04, "reward_sensor": 0.05}))
sensor = {"cost_sensor": 0.04, "reward_sensor": 0.05}
add("probe-sensor-dependent", certified({}, "probe", spec=spec(**SENSED, sensor_dependent=True), world=sensor))
add("probe-sensor-true-cost", certified({}, "probe", spec=spec(**SENSED, threshold_on="true"), world=sensor))
add("ucb-sensor-gaussian", certified({}, spec=spec(**SENSED, margin="gaussian"), world=sensor))
add(
    "probe-sensor-self-normalised-hill",
    certified(
        {"radius": "self-normalised"}, "probe", spec=spec(**SENSED), world=sensor, dose={"reward": HILL, "cost": HILL}
    ),
)

SCALES = {
    "proportional": ({"scale": "proportional"}, lambda z: z),
    "with-sensor": ({"scale": "with sensor", "ratio": 0.1}, lambda z: (z * z + 0.01) ** 0.5),
    "with-any-sensor": ({"scale": "with any sensor", "ratio": 0.1}, lambda z: z + 0.1),
    "power-half": ({"scale": "power", "exponent": 0.5}, lambda z: z**0.5),
    "power-two": ({"scale": "power", "exponent": 2.0}, lambda z: z * z),
    "own": ({"scale": "own", "function": own.rising}, own.rising_alone),
}
for scale, (stated, function) in SCALES.items():
    add(
        f"probe-scale-{scale}",
        certified({}, "probe", spec=spec(noise_scale=stated), world={"scale": function}, drift=RISE),
    )
add("ucb-scale-with-sensor", certified({"radius": "noise-adaptive"}, spec=spec(noise_scale=SCALES["with-sensor"][0])))

for name, cost in {"power": POWER, "hill": HILL, "logistic": LOGISTIC, "tabulated": TABLE}.items():
    add(f"probe-dose-{name}", certified({}, "probe", dose={"reward": cost, "cost": cost}))
add("probe-dose-two-curves", certified({"radius": "self-normalised"}, "probe", dose={"reward": HILL, "cost": POWER}))
add("ucb-dose-cost-alone", certified({}, dose={"cost": LOGISTIC}))
add("probe-dose-dial", certified({}, "probe", dose={"reward": POWER, "cost": HILL}, dial={"low": 50.0, "high": 250.0}))
add("probe-dial-units", certified({"radius": "self-normalised"}, "probe", dial=MILLIGRAMS, drift=RISE))
add("probe-dial-levels", certified({}, "probe", dial=DOSES))
add("ucb-dial-levels-hill", certified({"radius": "self-normalised"}, dial=DOSES, dose={"reward": HILL, "cost": HILL}))
add("probe-fallback", certified({}, "probe", dial=MILLIGRAMS, fallback=20.0, drift=RISE))
add("ucb-large-baseline", certified({}, baseline=0.6))
NAMED = {"names": ("a", "b", "c"), "center": (10.0, 10.0, 10.0), "scale": (5.0, 5.0, 5.0)}
add("probe-features", certified({"radius": "self-normalised"}, "probe", features=NAMED))
INTERCEPT = {**NAMED, "intercept": True, "ranges": {"a": (0.0, 20.0)}}
add(
    "ucb-features-intercept",
    certified({}, features=INTERCEPT, dim=4, spec=spec(context_bound=1.4), world={"labels": 0, "free": 3}),
)

TWO = {"heat": {"threshold": 0.5, "noise": 0.3}, "load": {"threshold": 0.9, "noise": 0.4}}
CURVED = {"heat": {**TWO["heat"], "share": 0.7}, "load": {**TWO["load"], "share": 0.3, "curve": POWER}}
SEVERAL = {key: value for key, value in CONSTANTS.items() if key not in ("threshold", "cost_noise")}
BOTH = {"names": ("heat", "load"), "cost_sizes": [0.8, 0.6], "cost_noises": [0.3, 0.4]}
for name, options in {"ucb": {}, "probe": {"radius": "self-normalised"}}.items():
    add(f"{name}-two-costs", certified(options, name, spec={**SEVERAL, "costs": TWO}, world=BOTH, baseline=None))
several = {"world": {**BOTH, "curves": {1: POWER}}, "baseline": None}
add("probe-two-costs-curve-shares", certified({}, "probe", spec={**SEVERAL, "costs": CURVED}, **several))
THREE = {**TWO, "noise": {"threshold": 0.7, "noise": 0.2}}
three = {"names": ("heat", "load", "noise"), "cost_sizes": [0.8, 0.6, 0.7], "cost_noises": [0.3, 0.4, 0.2]}
joint = {**SEVERAL, "costs": THREE, "promise": "constants, all rounds", "margin": "gaussian"}
add(
    "probe-three-costs-all-rounds",
    certified({"radius": "noise-adaptive"}, "probe", spec=joint, world=three, baseline=None),
)

# ---- What follows where a user leaves it open ----

add("default-constants", certified({}, "default"))
add("default-constants-ridge", certified({}, "default", spec=spec(ridge=1.0)))
add("default-constants-large", certified({}, "default", dim=60, rounds=100, coefficients=False))
add("default-constants-learned-margin", certified({}, "default", spec=learns, **uniform))

# ---- For exchangeable rounds ----

FREE = {"threshold": 0.5, "violation_risk": 0.1, "promise": "exchangeable"}


def exchangeable(policy, **changes):
    world = {"kind": "linear", "noise": "skewed", "cost_noise": 0.15, "positive": True} | changes.pop("world", {})
    case = {"policy": {"name": "conformal", **policy}, "dim": 3, "spec": FREE, "world": world, "start": 0.15}
    case |= {"baseline": 0.05, "before": 12, "never": (44, 101), "lost": (71,), "withheld": (133,)}
    case |= {"withheld unrelated": (47,), "drift": {"from": 200, "to": 240, "shift": 1.5}}
    return {**case, **changes}


CONFORMAL = {
    "plain": exchangeable({}),
    "groups-none": exchangeable({"groups": "none"}),
    "constants-start": exchangeable({}, start=None, spec={**FREE, "cost_noise": 0.3, "coefficient_bound": 1.0}),
    "start-dose": exchangeable({"start_dose": 0.2}, start=None),
    "group-column": exchangeable({"group": 3, "groups": "none"}, dim=4, world={"labels": 2}),
    "group-column-sign": exchangeable({"group": 3}, dim=4, world={"labels": 2}, spec={**FREE, "violation_risk": 0.2}),
    "group-own": exchangeable({"group": own.whether_positive, "groups": "none"}, spec={**FREE, "violation_risk": 0.2}),
    "window": exchangeable({"window": 100, "groups": "none"}, forget=True),
    "lag": exchangeable({"lag": 10}),
    "reach-off": exchangeable({"reach": None}, drift={}),
    "reach": exchangeable({"reach": 1.3, "groups": "none"}, forget=True),
    "history": exchangeable({"history": "calibrate"}, before=40, lost=()),
    "history-train": exchangeable({"history": "train", "groups": "none"}, before=40, withheld=()),
    "levels": exchangeable({}, dial=DOSES, start=2.0),
    "levels-groups-none-hill": exchangeable(
        {"groups": "none"}, dial=DOSES, start=2.0, dose={"reward": HILL, "cost": HILL}
    ),
    "probe-sqrt": exchangeable({"probe": "sqrt"}),
    "probe-tenth": exchangeable({"probe": 0.1}),
    "hill": exchangeable({}, dose={"reward": POWER, "cost": HILL}, dial=MILLIGRAMS, start=30.0),
    "features": exchangeable(
        {"group": "d", "groups": "none"},
        dim=4,
        world={"labels": 2},
        features={"names": ("a", "b", "c", "d"), "center": (10.0, 10.0, 10.0, 0.0), "scale": (5.0, 5.0, 5.0, 1.0)},
    ),
    "all": exchangeable({"groups": "none", "lag": 5, "reach": None, "window": 150}, before=0, forget=True),
}
for name, case in CONFORMAL.items():
    first = sum(map(ord, f"conformal-full-{name}"))  # the name under which it was recorded
    add(f"conformal-{name}", {"seed": 1000 + first, **case})
add("default-exchangeable", exchangeable({}), policy={"name": "default"})

# ---- For a growth bracket ----

BRACKET = {"threshold": 1.0, "violation_risk": 0.1, "promise": "bracket"}
RELATIVE = {"bracket": "relative", "low": 0.7, "high": 1.5, "floor": 0.1}
ADDITIVE = {"bracket": "additive", "low": 0.0, "high": 3.0}
SPREAD = {"bracket": "spread", "step": 1.1, "sigma": 0.5}
COST = {"kind": "power", "low": 0.8, "high": 1.4, "threshold": 1.0}
HINGE = {"kind": "hinge", "low": 1.0, "high": 2.8, "knee": 0.5, "threshold": 1.0}
EVENT = {"kind": "event", "low": 1.0, "high": 1.0, "threshold": 0.5}
PATIENT = {"names": ("protocol", "b", "c")}
FALL = {"from": 210, "to": 270, "fall": 0.25}


def bracketed(policy, **changes):
    world = {"kind": "tolerance", "costs": [COST]} | changes.pop("world", {})
    case = {"policy": {"name": "shield", "base": 0, "growth": RELATIVE, "start_scale": 0.3, **policy}, "dim": 3}
    case |= {"spec": BRACKET, "world": world, "coefficients": False, "drift": FALL, "withheld unrelated": (47,)}
    case |= {"never": (44, 101), "lost": (71,), "withheld": (133,)}
    return {**case, **changes}


def additively(policy, **changes):
    return bracketed({"growth": ADDITIVE, **policy}, **{"world": {"costs": [HINGE]}, **changes})


PROPOSED = {"world": {"costs": [COST], "asked": "proposal"}}
REQUESTED = {"world": {"costs": [COST], "asked": "request"}}
KEYS = ("policy", "world")
add("shield-relative", bracketed({}))
add("shield-relative-forget", bracketed({}, forget=True))
add("shield-relative-exact", bracketed({"growth": {"bracket": "relative", "low": 1.0, "high": 1.0, "floor": 0.0}}))
add("shield-relative-error", bracketed({"growth": {**RELATIVE, "error": 0.05}}))
add(
    "shield-relative-true-cost",
    bracketed({"growth": {**RELATIVE, "error": 0.05}}, spec={**BRACKET, "threshold_on": "true"}),
)
add("shield-additive", additively({}))
add("shield-additive-low", additively({"growth": {**ADDITIVE, "low": 0.8}}))
add("shield-additive-error", additively({"growth": {**ADDITIVE, "error": 0.05}}))
EVENTS = {
    "spec": {**BRACKET, "threshold": 0.5, "violation_risk": 0.3},
    "world": {"costs": [EVENT], "least": 0.0},
    "drift": {},
    "never": (44,),
    "lost": (),
    "left out": ("exceeding",),
}
"""Here many rounds tell the same scale but for rounding, so that how many lie below it is no golden number."""
add("shield-spread", bracketed({"growth": SPREAD, "start_scale": 0.25}, **EVENTS))
add("shield-spread-learned", bracketed({"growth": SPREAD, "learned": True, "start_scale": 0.25}, **EVENTS))
named = {"growth": {**RELATIVE, "high": "steep"}, "base": "protocol"}
add(
    "shield-slopes-named",
    bracketed(
        named,
        features={"names": ("protocol", "b", "steep")},
        world={"costs": [COST], "labels": 3, "labels from": 1, "effect": 0.1},
    ),
)
add("shield-learned", bracketed({"learned": True}))
add("shield-learned-additive", additively({"learned": True}, forget=True))
add("shield-own-regressor", bracketed({"learned": True, "regressor": own.Squares()}))
add("shield-own-base", bracketed({"base": own.first_column}))
for climb in (None, 1.1, 2.0):
    add(f"shield-climb-{climb}", bracketed({"climb": climb}))
add("shield-confidence", bracketed({"confidence": 0.8}, spec={**BRACKET, "violation_risk": 0.2}))
add(
    "shield-confidence-learned",
    bracketed({"confidence": 0.9, "learned": True}, spec={**BRACKET, "violation_risk": 0.2}),
)
for rate in (0.02, 0.1):
    add(f"shield-adapt-{rate}", bracketed({"adapt": rate}))
add("shield-adapt-learned", additively({"adapt": 0.05, "learned": True}))
add("shield-request", bracketed({"chooser": "request"}, **REQUESTED))
add(
    "shield-request-levels",
    bracketed({"chooser": "request", "start_scale": 0.5}, dial=FINE, world={**REQUESTED["world"], "least": 0.6}),
)
add("shield-sign", bracketed({"chooser": "sign"}))
add("shield-sign-learned", bracketed({"chooser": "sign", "learned": True}, dose={"reward": POWER}))
add("shield-target", bracketed({"chooser": "target"}, world={"costs": [COST], "reward": "peak"}))
add(
    "shield-target-levels",
    bracketed(
        {"chooser": "target", "start_scale": 0.5}, dial=FINE, world={"costs": [COST], "reward": "peak", "least": 0.6}
    ),
)
add("shield-proposal", bracketed({"base": "proposal"}, **PROPOSED))
add("shield-proposal-learned", bracketed({"base": "proposal", "learned": True}, **PROPOSED))
add("shield-lag", bracketed({"lag": 10}))
add("shield-lag-learned", bracketed({"lag": 10, "learned": True}, forget=True))
add("shield-group", bracketed({"group": 2}, world={"costs": [COST], "labels": 2}))
add(
    "shield-group-named",
    bracketed(
        {"base": "protocol", "group": "c", "learned": True}, features=PATIENT, world={"costs": [COST], "labels": 2}
    ),
)
add("shield-group-own", bracketed({"group": own.whether_positive, "lag": 4}))
add(
    "shield-below", bracketed({"growth": ADDITIVE, "direction": "below"}, world={"costs": [{**HINGE, "side": "below"}]})
)
add("shield-levels", bracketed({"start_scale": 0.5}, dial=FINE, world={"costs": [COST], "least": 0.6}))
add(
    "shield-levels-learned-additive",
    additively(
        {"learned": True, "start_scale": 0.5},
        dial=FINE,
        spec={**BRACKET, "threshold": 20.0},
        world={"costs": [{**HINGE, "threshold": 20.0}]},
    ),
)
add("shield-start-setting", bracketed({"start_scale": None}, start=0.04))
add("shield-dial-units", bracketed({"base": "protocol"}, features=PATIENT, dial=MILLIGRAMS))
add("shield-dose", bracketed({}, dose={"reward": HILL, "cost": HILL}))
add("shield-dose-additive-learned", additively({"learned": True}, dose={"cost": POWER}, dial=MILLIGRAMS))
PAIR = {
    "trough": {"threshold": 1.0, "growth": RELATIVE},
    "sugar": {"threshold": 2.0, "growth": ADDITIVE, "direction": "below"},
}
LIMITS = {"violation_risk": 0.1, "promise": "bracket", "costs": PAIR}
pair = {"costs": [COST, {**HINGE, "threshold": 2.0, "side": "below"}], "names": ("trough", "sugar")}
add("shield-two-costs", bracketed({"growth": None}, spec=LIMITS, world=pair))
add("shield-two-costs-learned", bracketed({"growth": None, "learned": True}, spec=LIMITS, world=pair))
add(
    "shield-two-costs-request",
    bracketed({"growth": None, "chooser": "request"}, spec=LIMITS, world={**pair, "asked": "request"}),
)
add("shield-rising-tolerance", bracketed({}, drift={"from": 100, "to": 300, "fall": 1.5}))
add("shield-unsafe-start", bracketed({"start_scale": 1.0}, drift={"from": 20, "to": 300, "fall": 0.3}))
add("default-bracket", bracketed({}, **PROPOSED), policy={"name": "default", "growth": RELATIVE, "start_scale": 0.3})

# ---- For Gaussian noise of unknown size ----

GAUSSIAN = {"threshold": 0.5, "violation_risk": 0.1, "promise": "gaussian"}
TOLERANT = {**GAUSSIAN, "estimation_risk": 0.05}


def gaussian(policy, **changes):
    world = {"kind": "linear", "cost_noise": 0.2, "positive": True} | changes.pop("world", {})
    case = {
        "policy": {"name": "student", "lag": 12, **policy},
        "dim": 3,
        "spec": GAUSSIAN,
        "world": world,
        "start": 0.15,
    }
    case |= {"baseline": 0.05, "before": 5, "lost": (281,), "withheld unrelated": (47,)}
    case |= {"drift": {"from": 180, "to": 240, "shift": 1.5}}
    return {**case, **changes}


add("student-each-round", gaussian({}))
add("student-each-round-forget", gaussian({}, forget=True))
add("student-never-told", gaussian({}, never=(250,), drift={}))
add("student-tolerance", gaussian({"promise": "tolerance"}, spec=TOLERANT))
add("student-anytime", gaussian({"promise": "anytime", "lag": 0}, spec=TOLERANT, never=(250,)))
add("student-anytime-forget", gaussian({"promise": "anytime", "lag": 0}, spec=TOLERANT, forget=True))
add(
    "student-anytime-mixture",
    gaussian({"promise": "anytime", "mixture_ridge": 1.0, "mixture_shape": 4.0, "lag": 0}, spec=TOLERANT),
)
add("student-either", gaussian({"either": True}))
add("student-either-forget", gaussian({"either": True}, forget=True, world={"noise": "skewed"}))
add("student-probe-sqrt", gaussian({"probe": "sqrt"}))
add("student-probe-tenth", gaussian({"probe": 0.1}))
add("student-start-dose", gaussian({"start_dose": 0.2}, start=None))
add("student-constants-start", gaussian({}, start=None, spec={**GAUSSIAN, "cost_noise": 0.3, "coefficient_bound": 1.0}))
add("student-hill", gaussian({}, dose={"reward": POWER, "cost": HILL}, dial=MILLIGRAMS, start=30.0))
add("student-features", gaussian({}, features=NAMED))
add("student-six-dimensions", gaussian({"promise": "tolerance"}, dim=6, spec=TOLERANT))
add("student-no-lag", gaussian({"lag": 0}, drift={}))
COSTS = {"heat": {"threshold": 0.5}, "load": {"threshold": 0.9, "share": None}}
PLAIN = {key: value for key, value in TOLERANT.items() if key != "threshold"}
both = {**BOTH, "cost_noises": [0.2, 0.3]}
add("student-two-costs", gaussian({}, spec={**PLAIN, "costs": COSTS}, world=both, baseline=None))
add(
    "student-two-costs-anytime",
    gaussian({"promise": "anytime", "lag": 0}, spec={**PLAIN, "costs": COSTS}, world=both, baseline=None),
)
add("default-gaussian", gaussian({}), policy={"name": "default"})

# ---- Over function classes ----

KERNELS = {
    "rbf": "rbf:0.5",
    "matern32": "matern32:0.7",
    "matern52": "matern52:0.7",
    "polynomial": "polynomial:2,1",
    "sum": "0.7*rbf:0.5+0.3*polynomial:1,0.5",
}


def classed(policy, name="class-ucb", **changes):
    world = {"kind": "linear"} | changes.pop("world", {})
    case = {"policy": {"name": name, **policy}, "dim": 2, "spec": CONSTANTS, "world": world, "coefficients": False}
    case |= {
        "before": 4,
        "never": (44, 101),
        "lost": (281,),
        "withheld unrelated": (47,),
        "drift": RISE,
        "baseline": 0.05,
    }
    return {**case, **changes}


SHAPES = {
    "linear": {"class": "linear"},
    "linear-paper": {"class": "linear", "radius": "paper"},
    "features": {"class": "features", "transform": own.with_squares},
    "features-misspecified": {
        "class": "features",
        "transform": own.with_squares,
        "misspecification": 0.02,
        "bound": None,
    },
    "splines": {"class": "features", "transform": {"map": "splines", "dim": 2, "knots": 4}},
    "fourier": {"class": "features", "transform": {"map": "fourier", "dim": 2, "count": 12}, "misspecification": 0.05},
    "finite": {"class": "finite", "functions": own.sine_waves},
    "finite-paper": {"class": "finite", "functions": own.sine_waves, "radius": "paper"},
    "finite-prior": {"class": "finite", "functions": own.sine_waves, "prior": [1.0 + place for place in range(30)]},
} | {f"kernel-{name}": {"class": "kernel", "kernel": kernel} for name, kernel in KERNELS.items()}
for name, shape in SHAPES.items():
    add(f"class-ucb-{name}", classed({"cost_class": shape}))
for name in ("linear", "finite", "kernel-rbf"):
    add(f"class-probe-{name}", classed({"cost_class": SHAPES[name]}, "class-probe"))
add("class-ucb-unclipped", classed({"cost_class": SHAPES["features"], "clip": False}))
add(
    "class-ucb-kernel-unclipped",
    classed({"cost_class": {"class": "kernel", "norm": 1.5, "bound": None}, "clip": False}),
)
add(
    "class-probe-two-classes",
    classed({"cost_class": SHAPES["linear"], "reward_class": SHAPES["kernel-rbf"], "probe": 0.2}, "class-probe"),
)
add(
    "class-ucb-hill-levels",
    classed({"cost_class": SHAPES["kernel-rbf"]}, dose={"reward": HILL, "cost": HILL}, dial=FINE),
)
RISKS = {**CONSTANTS, "violation_risk": 0.1}
events = {"world": {"events": True, "odds": 0.3}, "spec": RISKS, "baseline": None}
for name in ("class-ucb", "class-probe"):
    add(f"{name}-binary", classed({"cost_class": {"class": "binary", "norm": 1.0, "odds": 0.3}}, name, **events))
