"""The rounds of a chunk as a compiled scan, one after the other: with seeds on the last axis, or of any learner."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from safedial.core.estimate import Estimate
from safedial.simulation.jax_learners import in_layout
from safedial.simulation.own_checks import check_choice
from safedial.simulation.rule import Rule, sent_context
from safedial.worlds.world import Exposure


def play(rule: Rule, state: Any, rounds: Any, shape: Any, truth: Any, *, scan: bool) -> tuple[Any, Any, Any]:
    """(state, intensities and flags, an adversary's contexts and their means) of a chunk; `scan`: with seeds last."""
    numbers, given = rounds
    if scan:
        rule = rule._replace(learner=in_layout(rule.policy.options.get("radius"), rule.world.dim, rule.stated))
    adversarial = rule.world.adversarial

    def advance(state: Any, given: Any) -> tuple[Any, Any]:
        number, given = given
        sent = _sent(rule, state, given["context"], truth, scan=scan) if adversarial else {}
        given = given | sent
        if scan and adversarial:
            given = given | {"context": jnp.moveaxis(given["context"], -1, 0)}
        now, coin = Exposure(**{name: given.get(name, 0.0) for name in Exposure._fields}), given.get("coin", 0.0)
        prediction, choice = rule.decide(state, number, now, coin)
        check_choice(rule.policy, choice, shape)
        state, step = rule.learn(state, now, prediction, choice, coin)
        flags = sum((1 << place) * part for place, part in enumerate(step[2:]))
        # One array comes out of a round: for one seed, every further one would take as long as the round itself.
        return state, (jnp.stack([jnp.broadcast_to(part, shape) for part in (choice.intensity, flags)]), sent)

    if scan and not adversarial:
        given = given | {"context": jnp.moveaxis(given["context"], -1, 1)}
    state, (told, sent) = lax.scan(advance, state, (numbers, given))
    return state, told, sent


def _sent(rule: Rule, state: Any, candidates: Any, truth: Any, *, scan: bool) -> dict[str, Any]:
    """The adversary's context of a round, (rows, seeds, d), and its means."""
    now: Estimate = getattr(state, "estimate", state)
    if scan:
        turned = {name: jnp.moveaxis(getattr(now, name), 0, -1) for name in ("reward_coef", "cost_coef")}
        now = now._replace(inverse=jnp.moveaxis(now.inverse, (0, 1), (-2, -1)), **turned)
    context = sent_context(rule, now, candidates, truth)
    return dict(zip(Exposure._fields[:3], (context, *rule.world.means(rule.spec, truth, context)), strict=True))
