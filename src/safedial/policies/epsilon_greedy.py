"""ε-greedy: the paper's cheap variant, which plays the first-round action in a share ε of the rounds."""

from __future__ import annotations

from typing import Any, Literal

from safedial.core.action import Choice
from safedial.core.confidence import resolve_clip
from safedial.core.estimate import Prediction
from safedial.core.namespace import namespace
from safedial.core.safe_set import SafeSet
from safedial.core.spec import SafetySpec
from safedial.errors import is_number, require
from safedial.policies.fixed import fixed
from safedial.policies.hp_ucb import hp_ucb
from safedial.policies.policy import Policy


def epsilon_greedy(
    *,
    radius: str = "mixture",
    clip: bool | None = None,
    epsilon: float = 0.5,
    learn_from: Literal["all", "exploring"] = "all",
) -> Policy:
    """With probability ε play the first-round safe action, otherwise HP-UCB's.

    Args:
        radius, clip: as for `hp_ucb`.
        epsilon: the share of exploring rounds.
        learn_from: the paper can be read both ways. "all": learn from every informative round. "exploring": learn only
            from the exploring rounds, which saves computation and "collects approximately εT samples".

    Both actions are safe on the same event (the first-round action given only S and L), and the coin that chooses
    between them does not depend on the outcome, so the promise is HP-UCB's.

    Reference: Dragazis and Pacchiano, "Safety by Design", section Experimental Results.
    """
    clip = resolve_clip(radius, clip)
    require(is_number(epsilon) and 0.0 <= epsilon <= 1.0, "epsilon", epsilon, "must be a number in [0, 1]")
    require(learn_from in ("all", "exploring"), "learn_from", learn_from, "must be 'all' or 'exploring'")
    greedy, first = hp_ucb(radius=radius, clip=clip), fixed(clip=clip)

    def decide(prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0) -> Choice:
        exploit = greedy.decide(prediction, spec, round=round, coin=coin, baseline_cost=baseline_cost)
        explore = first.decide(prediction, spec, round=round, coin=coin, baseline_cost=baseline_cost)
        exploring = coin < epsilon
        xp = namespace(exploring, exploit.intensity)
        safe = SafeSet(xp.maximum(exploit.safe.intensity, explore.safe.intensity), exploit.safe.certified)
        intensity = xp.where(exploring, explore.intensity, exploit.intensity)
        learn = True if learn_from == "all" else exploring
        return exploit._replace(intensity=intensity, safe=safe, learn=learn, exploring=exploring)

    options = {"radius": radius, "clip": clip, "epsilon": epsilon, "learn_from": learn_from}
    return Policy("epsilon_greedy", "ε-Greedy", "certified", decide, options, randomised=True)
