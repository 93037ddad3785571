"""What a policy is: a name, a promise, and one pure function from a prediction to a choice.

A policy is assembled from `core`; it holds only structure (which radius, clip or not). What may be swept (the spec, the
round, the baseline cost) is an argument of `decide`, and so is randomness: `coin` is uniform on [0, 1), drawn by the
caller. The learner is the linear one of `core.estimate`; a policy may have parts of its own, with a batch shape in
front:

    init(dim, *, ridge, batch) -> state               of a simulation, batch is (specs, seeds)
    predict(state, context) -> prediction             contexts (..., d); what `decide` is given
    update(state, prediction, reward, cost, weight) -> state          R/g_r, (C − b₀)/g_c, and ω, 0 where not to learn

In a simulation each may have a parameter `spec` (grids are columns) or `rngs` (a generator for each seed, all its own);
`predict` and `update` may have `coin`, the round's, and `update` `intensity`, g_c of the applied action.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

from safedial.core import estimate
from safedial.core.action import Choice
from safedial.core.estimate import Prediction
from safedial.core.remake import reduced
from safedial.core.spec import SafetySpec


class Decide(Protocol):
    """decide(prediction, spec, round=t, coin=u, baseline_cost=b₀) -> Choice, on floats or arrays."""

    def __call__(
        self, prediction: Prediction, spec: SafetySpec, *, round: Any, coin: Any, baseline_cost: Any = 0.0
    ) -> Choice: ...


class Policy(NamedTuple):
    """One algorithm.

    Attributes:
        name: as in `POLICIES`.
        label: its name in the paper or in this project's documents.
        promise: "certified" if P(C_t > τ) ≤ δ + δ′ is proved from the constants; "conformal" if P(C_t > τ) ≤ δ is
            proved for exchangeable rounds, "bracket" if for a growth bracket in place of an exact dose curve, "student"
            if for Gaussian noise of unknown size; "expected" if only the mean cost is bounded; "heuristic" if nothing
            is proved; "bayesian" if it is averaged over a prior.
        decide: the rule.
        options: its configuration; `make_policy(name, **options)` makes it again.
        knows_truth: the policy is given the true coefficients (a clairvoyant, for comparison only).
        randomised: the choice depends on `coin`.
        learns: outcomes matter to it.
        binary_cost: costs are 0 or 1; `update` is then given C itself, and the applied `intensity`.
        learner: a custom learner's class for `Agent` and `Study` (`decision.learners.protocol.Learner`); by default it
            follows from the policy.
        alarmed: given a state, whether rounds contradict the promise's assumption, for each element of the batch.
        check: refuses a spec for which the promise has no proof.
    """

    name: str
    label: str
    promise: Literal["certified", "conformal", "bracket", "student", "expected", "heuristic", "bayesian"]
    decide: Decide
    options: dict[str, Any]
    knows_truth: bool = False
    randomised: bool = False
    learns: bool = True
    init: Callable[..., Any] = estimate.init
    predict: Callable[..., Any] = estimate.predict
    update: Callable[..., Any] = estimate.update
    alarmed: Callable[[Any], Any] | None = None
    binary_cost: bool = False
    learner: Any = None
    check: Callable[[SafetySpec], None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by name and options if they determine it."""
        from safedial.policies import FACTORIES

        return reduced(self, "policy", FACTORIES, _remake)

    def __copy__(self) -> Policy:
        """Itself, because it is immutable."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Policy:
        return self

    @property
    def is_linear(self) -> bool:
        """Whether it learns with the linear estimate of `core.estimate`, every part of which is the package's."""
        return (self.init, self.predict, self.update) == (estimate.init, estimate.predict, estimate.update)

    @property
    def own_parts(self) -> tuple[str, ...]:
        """The names of its functions that are the user's own."""
        parts = ("decide", "init", "predict", "update")
        return tuple(part for part in parts if not str(getattr(self, part).__module__).startswith("safedial."))


def _remake(name: str, options: dict[str, Any]) -> Policy:
    """The policy that was pickled."""
    from safedial.policies import make_policy

    return make_policy(name, **options)
