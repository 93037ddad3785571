"""The rounds of a chunk as a compiled scan, one after the other: with seeds on the last axis, or on the first.

A chunk of rounds as one program of arrays, which `jax_engine` compiles: draw, play and score.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from safedial.policies.linear import LinearState
from safedial.simulation import counter
from safedial.simulation.fused_rounds import in_layout
from safedial.simulation.rule import CURVES, Rule, Step, all_finite, check_given, sent_context, with_numbers
from safedial.simulation.world import Exposure


def play_scanned(rule: Rule, state: Any, rounds: Any, shape: Any, truth: Any, *, scan: bool) -> tuple[Any, Any, Any]:
    """(state, intensities and flags, an adversary's contexts and their means) of a chunk; `scan`: with seeds last."""
    numbers, given = rounds
    adversarial = rule.world.adversarial

    def advance(state: Any, given: Any) -> tuple[Any, Any]:
        number, given = given
        sent = _sent(rule, state, given["context"], truth, scan=scan) if adversarial else {}
        given = given | sent
        if scan and adversarial:
            given = given | {"context": jnp.moveaxis(given["context"], -1, 0)}
        now, coin = Exposure(**{name: given.get(name, 0.0) for name in Exposure._fields}), given.get("coin", 0.0)
        learning = LinearState(state)
        decided = rule.decide(learning, number, now, coin)
        check_given(rule.policy, decided[2], shape)
        step = rule.learn(learning, 0, now, decided)
        flags = sum((1 << place) * part for place, part in enumerate(step[2:]))
        # One array comes out of a round: for one seed, every further one would take as long as the round itself.
        told = jnp.stack([jnp.broadcast_to(part, shape) for part in (decided[2].intensity, flags)])
        return learning.sums, (told, sent)

    if scan and not adversarial:
        given = given | {"context": jnp.moveaxis(given["context"], -1, 1)}
    state, (told, sent) = lax.scan(advance, state, (numbers, given))
    return state, told, sent


def _sent(rule: Rule, state: Any, candidates: Any, truth: Any, *, scan: bool) -> dict[str, Any]:
    """The adversary's context of a round, (rows, seeds, d), and its means."""
    now: Any = getattr(state, "estimate", state)
    if scan:
        turned = {name: jnp.moveaxis(getattr(now, name), 0, -1) for name in ("reward_coef", "cost_coef")}
        now = now._replace(inverse=jnp.moveaxis(now.inverse, (0, 1), (-2, -1)), **turned)
    context = sent_context(rule, now, candidates, truth)
    return dict(zip(Exposure._fields[:3], (context, *rule.world.means(rule.spec, truth, context)), strict=True))


# --- A chunk of rounds as one program of arrays, which `jax_engine` compiles

PASSED = ("scan", "kernel", "interpret")
"""The forms whose programs take the spec's numbers as arguments; elsewhere they are part of the program."""


class Plan(NamedTuple):
    """What a compiled program depends on besides the rule."""

    step: int
    marks: int
    counter: bool
    dtype: str
    form: str
    """"scan" with seeds on the last axis, "general" with them in front, or "kernel", on a GPU, and "interpret", which
    runs the kernel's code without one.
    """
    record: bool


def play(rule: Rule, plan: Plan, carry: Any, fixed: dict[str, Any], chunk: Any) -> tuple[Any, ...]:
    """A chunk: ((state, totals), totals at the marks, whether all costs are finite, the lowest and highest intensity,
    what is recorded).
    """
    (state, totals), (done, marks, shown) = carry, chunk
    scan = plan.form == "scan"
    passed = fixed["numbers"] if plan.form in PASSED else ({}, {}, {})
    scale = {name: part for name, part in (shown or {}).items() if name == "noise_scale"}  # NumPy looked it up
    given: Any = {name: part for name, part in (shown or {}).items() if name not in scale}
    layout = partial(in_layout, rule.policy, rule.world.dim) if scan else None
    rule = with_numbers(rule, (*passed[:2], passed[2] | scale), layout)
    spec = rule.spec
    if scan and not (plan.counter or rule.world.adversarial):
        given = given | {"context": jnp.moveaxis(given["context"], 1, -1)}
    at = done + 1 + jnp.arange(plan.step)
    numbers = at.astype(plan.dtype)
    if plan.counter:
        given = counter.draw_rounds(rule.world, spec, fixed["truth"], fixed["seeds"], at)
    shape = totals["regret"].shape
    if plan.form in ("scan", "general"):
        state, told, sent = play_scanned(rule, state, (numbers, given), shape, fixed["truth"], scan=scan)
        given = given | sent
    else:
        from safedial.simulation import fused_rounds

        state, told = fused_rounds.play(rule, state, (numbers, given), passed, interpret=plan.form == "interpret")
    intensity, flags = told[:, 0], told[:, 1].astype(np.int32)
    harm, gain = rule.applied(intensity)
    steps = Step(gain, harm, *(flags & (1 << place) > 0 for place in range(3)))
    rounds = Exposure(**{name: given.get(name, 0.0) for name in Exposure._fields})
    rounds = rounds._replace(reward_intensity=gain, cost_intensity=harm)
    outcome = rule.world.outcome(spec, rounds)
    cost = outcome.cost if spec.threshold_on == "measured" else outcome.true_cost
    values = rule.score(numbers[:, None, None], rounds, cost, steps)
    counted = (at <= fixed["rounds"])[:, None, None]
    # The sums up to every mark, and up to the end, are a product with zeros and ones: running sums are slow in XLA.
    upto = (jnp.arange(plan.step) < jnp.append(marks, plan.step)[:, None]).astype(jnp.float64)
    curves = {}
    for name, value in values.items():
        value = jnp.where(counted, value, 0.0).astype(jnp.float64)
        if name in CURVES:
            curves[name] = totals[name] + jnp.tensordot(upto, jnp.broadcast_to(value, (plan.step, *shape)), 1)
            totals = totals | {name: curves[name][-1]}
        else:
            totals = totals | {name: totals[name] + jnp.sum(value, axis=0)}
    context = rounds.context if plan.counter or rule.world.adversarial else None  # the host has NumPy's
    told = (context, harm, outcome.reward, outcome.cost) if plan.record else ()
    finite, chosen = all_finite(jnp.where(counted, cost, 0.0)), jnp.where(counted, intensity, 0.0)
    return (state, totals), curves, finite, (jnp.min(chosen), jnp.max(chosen)), told
