"""The simulations: 8 seeds × 2,000 rounds of every policy and option that simulations take, in all four kinds of world.

Where a policy is slow a case plays fewer rounds (`FEW`). Regret, rewards and violations by row of the spec and seed.
"""

from __future__ import annotations

from tests.golden.cases import own
from tests.golden.cases.agents import (
    ADDITIVE,
    BOUNDED,
    HILL,
    PAIR,
    POWER,
    RELATIVE,
    SCALES,
    SENSED,
    SPREAD,
    TWO,
    spec,
)
from tests.golden.world import Draws

CASES: dict[str, dict] = {}
FEW, FEWEST = 500, 200

LINEAR = {"world": "linear", "dim": 4}
GRID = spec(threshold=[0.3, 0.6], violation_risk=0.05)


def add(name, policy, case=None, **changes):
    if name in CASES:
        raise ValueError(f"{name}: is there already")
    CASES[name] = {"policy": policy, "spec": GRID, "world": LINEAR, "rounds": 2000} | (case or {}) | changes


def named(name, **options):
    return {"name": name, **options}


# ---- From constants ----

for radius in ("paper", "mixture", "noise-adaptive", "self-normalised"):
    for name in ("ucb", "probe", "expectation"):
        add(f"{name}-{radius}", named(name, radius=radius))
add("ucb-mixture-unclipped", named("ucb", clip=False))
add("ucb-ridge", named("ucb"), spec=spec(ridge=4.0))
add("probe-share-tenth", named("probe", probe=0.1))
add("probe-share-nothing", named("probe", probe=0.0))
for learn in ("all", "exploring"):
    add(f"greedy-{learn}", named("greedy", learn_from=learn))
add("greedy-rarely", named("greedy", epsilon=0.1, radius="self-normalised"))
add("thompson", named("thompson"))
add("thompson-half", named("thompson", scale=0.5, radius="noise-adaptive"))
for clip in (True, False):
    add(f"fixed-clip-{clip}", named("fixed", clip=clip))
add("oracle", named("oracle"))
for shape in (2.0, 5.0):
    add(f"bayes-{shape:g}", named("bayes", shape=shape))
add("ucb-gaussian-margin", named("ucb"), spec=spec(margin="gaussian"))
uniform = {"world": LINEAR | {"noise": "uniform"}}
wide = {**BOUNDED, "noise_low": -0.52, "noise_high": 0.52}
add("probe-bounded-margin", named("probe"), uniform, spec=spec(**wide))
add("probe-bounded-margin-learned", named("probe"), uniform, spec=spec(**wide, margin_risk=0.02))
add("probe-all-rounds", named("probe"), spec=spec(promise="constants, all rounds"))
add("ucb-risk-grid", named("ucb"), spec=spec(violation_risk=[0.02, 0.2]))
for scale, (stated, _) in SCALES.items():
    add(f"probe-scale-{scale}", named("probe"), spec=spec(noise_scale=stated), rounds=FEW)
add("probe-sensor", named("probe"), spec=spec(**SENSED))
add("ucb-sensor-dependent", named("ucb", radius="self-normalised"), spec=spec(**SENSED, sensor_dependent=True))
add("probe-sensor-true-cost", named("probe"), spec=spec(**SENSED, threshold_on="true"))
add("ucb-baseline", named("ucb"), world=LINEAR | {"baseline_cost": 0.1})
for name, curves in {"hill": {"reward": HILL, "cost": HILL}, "two-curves": {"reward": POWER, "cost": HILL}}.items():
    add(f"probe-dose-{name}", named("probe"), dose=curves)
for kind in ("uniform", "rademacher", "truncated", "student-t3", "exponential", "context-scale"):
    add(f"ucb-noise-{kind}", named("ucb"), world=LINEAR | {"noise": kind})
for name, radius in {"ucb": "mixture", "probe": "self-normalised"}.items():
    add(f"{name}-adversarial", named(name, radius=radius), world=LINEAR | {"contexts": "adversarial"})
add("expectation-adversarial", named("expectation", radius="paper"), world=LINEAR | {"contexts": "adversarial"})
add("probe-drift", named("probe"), world=LINEAR | {"contexts": "drift"})
add("ucb-sine", named("ucb"), world=LINEAR | {"mean": "sine"})
add("probe-other-spec-stated", named("probe"), spec=spec(), stated=spec(cost_noise=0.2, threshold=0.6))
add("ucb-one-dimension", named("ucb"), world={"world": "linear", "dim": 1})
add("probe-ten-dimensions", named("probe", radius="self-normalised"), world={"world": "linear", "dim": 10})
several = {key: value for key, value in spec().items() if key not in ("threshold", "cost_noise")}
add("probe-two-costs", named("probe"), spec={**several, "costs": TWO})
curved = {"heat": {**TWO["heat"], "share": 0.7}, "load": {**TWO["load"], "share": 0.3, "curve": POWER}}
add("ucb-two-costs-curve-shares", named("ucb", radius="self-normalised"), spec={**several, "costs": curved}, rounds=FEW)

# ---- For exchangeable rounds ----

FREE = spec(promise="exchangeable", estimation_risk=None)
skewed = {"spec": FREE, "world": LINEAR | {"noise": "exponential"}}
CONFORMAL = {
    "plain": ({}, skewed),
    "groups-none": ({"groups": "none"}, skewed),
    "start-dose": ({"start_dose": 0.2}, {"spec": FREE, "world": LINEAR | {"noise": "student-t3"}}),
    "probe-sqrt-window-lag": (
        {"probe": "sqrt", "window": 300, "lag": 5},
        {"spec": FREE, "world": LINEAR | {"noise": "context-scale"}},
    ),
    "drift": ({"groups": "none"}, {"spec": FREE, "world": LINEAR | {"contexts": "drift", "noise": "context-scale"}}),
    "kernel-world": ({}, {"spec": FREE, "world": {"world": "nonlinear", "kind": "kernel", "dim": 2}}),
    "hill": ({}, {"spec": FREE, "dose": {"reward": POWER, "cost": HILL}}),
}
CONFORMAL["history"] = ({"history": "train", "start_dose": 0.15, "least_dose": 0.05}, skewed)
for name, (options, case) in CONFORMAL.items():
    add(f"conformal-{name}", named("conformal", **options), case, rounds=FEW)

# ---- For a growth bracket ----

BRACKET = {"threshold": 1.0, "violation_risk": 0.1, "promise": "bracket"}
POWERS = {
    "world": "dose response",
    "dim": 3,
    "curve": "power",
    "low": 0.8,
    "high": 1.4,
    "least": 0.35,
    "effect": 0.3,
    "spread": 0.3,
}
HINGES = {**POWERS, "curve": "hinge", "low": 1.0, "high": 2.8, "knee": 0.5}
EVENTS = {**POWERS, "curve": "binary", "least": 0.0}


def shield(name, world=POWERS, case=None, **options):
    policy = {"base": 0, "growth": RELATIVE, "start_scale": 0.3, **options}
    add(f"shield-{name}", named("shield", **policy), {"spec": BRACKET, "world": world, "rounds": FEW} | (case or {}))


shield("relative", case={"rounds": 2000})
shield("additive", HINGES, growth=ADDITIVE)
shield("spread", EVENTS, {"spec": {**BRACKET, "threshold": 0.5}, "rounds": 2000}, growth=SPREAD)
shield("learned", case={"rounds": 2000}, learned=True)
shield("learned-additive", HINGES, growth=ADDITIVE, learned=True)
shield("own-base", base=own.first_columns)
shield("climb-none", climb=None)
shield("climb-two", climb=2.0)
shield("confidence", confidence=0.9)
shield("adapt", {**POWERS, "fall": 0.5, "after": 250}, adapt=0.05)
shield("sign", POWERS, {"spec": {**BRACKET, "reward_noise": 0.5}}, chooser="sign", learned=True)
shield("target", POWERS, {"spec": {**BRACKET, "reward_noise": 0.5}}, chooser="target")
shield("request", chooser="request", request=0)
shield("group", {**POWERS, "dim": 4, "units": 2}, group=3)
shield(
    "below",
    {**POWERS, "curve": "stated"},
    {"spec": {"violation_risk": 0.1, "promise": "bracket", "costs": {"sugar": PAIR["sugar"]}}},
    growth=None,
)
shield("levels", levels=[0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
pair = {"spec": {"violation_risk": 0.1, "promise": "bracket", "costs": PAIR}}
shield("two-costs", {**POWERS, "curve": "stated", "low": 0.2, "high": 0.9}, pair, growth=None)
shield("two-costs-learned", {**POWERS, "curve": "stated", "low": 0.2, "high": 0.9}, pair, growth=None, learned=True)
shield("patients", {**POWERS, "dim": 4, "units": 6}, learned=True)
shield("missing", {**POWERS, "missing": 0.1, "tails": "t2"})
shield("dose", case={"dose": {"reward": HILL, "cost": HILL}})
add("oracle-dose-response", named("oracle"), {"spec": BRACKET, "world": POWERS})

# ---- For Gaussian noise of unknown size ----

GAUSSIAN = spec(promise="gaussian")
add("student-each-round", named("student"), spec=GAUSSIAN)
add("student-start-dose", named("student", start_dose=0.2, probe="sqrt"), spec=GAUSSIAN)
add("student-tolerance", named("student", promise="tolerance"), spec=GAUSSIAN, rounds=FEWEST)
add("student-anytime", named("student", promise="anytime"), spec=GAUSSIAN)
add("student-anytime-mixture", named("student", promise="anytime", mixture_ridge=1.0, mixture_shape=4.0), spec=GAUSSIAN)
add("student-either", named("student", either=True), spec=GAUSSIAN)
add("student-two-costs", named("student"), spec={**several, "promise": "gaussian", "costs": TWO})

# ---- Over function classes ----

KERNEL = {"class": "kernel", "kernel": "rbf:0.5", "norm": 2.0}
SQUARES = {"class": "features", "transform": own.with_squares, "misspecification": 0.02}
WAVES = {"class": "finite", "functions": own.sine_waves}
LOGIT = {"class": "binary", "norm": 1.0, "odds": 0.25}
PLANE = {"world": "nonlinear", "dim": 2}
for name in ("class-ucb", "class-probe"):
    add(f"{name}-linear", named(name, cost_class={"class": "linear"}))
    add(
        f"{name}-finite",
        named(name, cost_class=WAVES),
        spec=spec(),
        world={**PLANE, "kind": "finite", "functions": 20},
        rounds=FEW,
    )
    add(f"{name}-kernel", named(name, cost_class=KERNEL), spec=spec(), world={**PLANE, "kind": "kernel"}, rounds=FEWEST)
    events = {"spec": spec(threshold=0.5), "world": {**PLANE, "kind": "logistic"}, "rounds": FEWEST}
    add(f"{name}-binary", named(name, cost_class=LOGIT), events)
    add(f"{name}-features", named(name, cost_class=SQUARES), spec=spec(), world={**PLANE, "kind": "dose-toxicity"})
add(
    "oracle-binary",
    named("oracle", binary_cost=True),
    {"spec": spec(threshold=0.5), "world": {**PLANE, "kind": "logistic"}},
)
add(
    "class-ucb-dose-toxicity-hill",
    named("class-ucb", cost_class=SQUARES),
    spec=spec(),
    world={**PLANE, "kind": "dose-toxicity"},
    dose={"reward": HILL, "cost": HILL},
)
add("ucb-finite-world", named("ucb"), spec=spec(), world={**PLANE, "kind": "finite", "functions": 20})
add("probe-kernel-world", named("probe"), spec=spec(), world={**PLANE, "kind": "kernel"}, rounds=FEW)

# ---- From data ----


def table(rows=40):
    draws = Draws(77)
    contexts = [draws.direction(3, draws.uniform(0.3, 0.95)) for _ in range(rows)]
    return contexts, [draws.uniform(-0.5, 0.8) for _ in range(rows)], [draws.uniform(0.0, 0.8) for _ in range(rows)]


ROWS, REWARDS, COSTS = table()
DATA = {"world": "data", "rows": ROWS, "reward": REWARDS, "cost": COSTS}
add("ucb-data", named("ucb"), world=DATA)
add("probe-data-uniform", named("probe", radius="self-normalised"), world={**DATA, "noise": "uniform"})
add("conformal-data", named("conformal"), spec=FREE, world=DATA, rounds=FEW)
add("student-data", named("student"), spec=GAUSSIAN, world=DATA, rounds=FEW)

JAX = ("ucb-mixture", "probe-noise-adaptive", "thompson")
"""Simulated with JAX too, against the same numbers."""
