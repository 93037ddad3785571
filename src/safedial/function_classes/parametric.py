"""Any differentiable family f(x; w): a small neural network, a physical law. Heuristic.

Least squares over w by a real optimiser (SciPy's `least_squares`, from the last fit and from several fresh starts), and
the set of parameters whose loss is close to the best one:

    SSE(w) ≤ SSE(ŵ) + κ²(p ln(1 + N) + 2 ln(1/δ′)),      p = len(w),  |w − start| ≤ reach

The largest and smallest f(x; w) over it come from constrained optimisation (SLSQP) from several starts: the fit, where
the linearised problem has its two ends, and the best of `SCATTER` random parameters in the set (near a saturated fit
the first two have no slope to follow). Such a search finds a *lower* bound on the maximum, and the radius is the linear
one by analogy, so nothing here is proved: the class is labelled heuristic, and a policy over it promises nothing.

The fit is updated on a schedule (each round at first, then whenever the rounds have grown by a tenth).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedial.core.spec import SafetySpec
from safedial.errors import require
from safedial.function_classes.function_class import FunctionClass, Interval, Outcomes, check_bound, check_whole

Array = NDArray[np.float64]

GROWTH = 1.1
FRESH = 3
SCATTER = 64


class Learner:
    """The rounds of one learner and its fit to each target."""

    __slots__ = ("best", "contexts", "count", "loss", "next_fit", "outcomes", "roots")

    def __init__(self, dim: int, targets: int, start: Array) -> None:
        self.contexts = np.empty((0, dim))
        self.outcomes, self.roots = np.empty((targets, 0)), np.empty(0)
        self.best, self.loss = np.tile(start, (targets, 1)), np.zeros(targets)
        self.count, self.next_fit = 0, 1


class State(NamedTuple):
    learners: list[Learner]
    batch: tuple[int, ...]


class View(NamedTuple):
    state: State
    context: Array
    informative_rounds: Array


def parametric(
    function: Callable[[Any, Any], Any],
    start: Any,
    *,
    reach: float = 10.0,
    bound: float | None = 1.0,
    seed: int = 0,
    starts: int = FRESH,
) -> FunctionClass:
    """The family f(x; w) around `start`.

    Args:
        function: from contexts (n, d) and parameters (p,) to values (n,), differentiable in the parameters.
        start: the initial parameters, (p,).
        reach: how far each parameter may move from `start`.
        bound: |f| ≤ bound, which cuts the range; None: no cut.
        seed: the seed of the fresh starts.
        starts: how many fresh starts a fit tries besides the last fit.

    >>> law = parametric(lambda x, w: np.tanh(x @ w), [0.0, 0.0])
    >>> law.label
    'heuristic'
    """
    require(callable(function), "function", function, "must be a function of contexts and parameters")
    origin = np.array(start, dtype=float)
    sound = origin.ndim == 1 and origin.size > 0 and np.all(np.isfinite(origin))
    require(sound, "start", start, "must be a list of finite numbers")
    wide = check_bound("reach", reach)
    limit = np.inf if bound is None else check_bound("bound", bound, "must be a number > 0, or None")
    family = Family(function, origin, wide, check_whole("starts", starts, least=0), int(seed))

    def init(dim: int, *, ridge: Any = None, batch: tuple[int, ...] = (), targets: int = 2) -> State:
        family.values(np.zeros((2, dim)), origin)
        return State([Learner(dim, targets, origin) for _ in range(int(np.prod(batch)))], batch)

    def look(state: State, context: Any) -> View:
        size = np.shape(context)[-1]
        spread = np.broadcast_to(np.asarray(context, dtype=float), (*state.batch, size)).reshape(-1, size)
        counts = np.array([float(learner.count) for learner in state.learners]).reshape(state.batch)
        return View(state, spread, counts)

    def bounds(view: View, target: int, *, noise: Any, spec: SafetySpec) -> Interval:
        batch = view.state.batch
        risk = np.broadcast_to(spec.log_inverse_risk, batch).ravel()
        rows = [
            _range(family, learner, target, context=view.context[index], noise=noise, risk=risk[index])
            for index, learner in enumerate(view.state.learners)
        ]
        estimate, lower, upper = (np.array(column).reshape(batch) for column in zip(*rows, strict=True))
        return Interval(estimate, np.maximum(lower, -limit), np.minimum(upper, limit), np.zeros(batch, dtype=bool))

    def update(state: State, view: View, outcomes: Outcomes) -> State:
        weight = np.broadcast_to(outcomes.weight, state.batch).ravel()
        targets = [np.broadcast_to(target, state.batch).ravel() for target in outcomes.targets]
        for index, learner in enumerate(state.learners):
            if weight[index] > 0.0:
                _learn(family, learner, view.context[index], [target[index] for target in targets], weight[index])
        return state

    options = {"function": function, "start": origin.tolist(), "reach": wide, "bound": bound}
    assumptions = ("nothing is proved: the range is what an optimiser found, and the radius is by analogy",)
    steps = (init, look, bounds, update, lambda view, spec: limit, lambda spec: limit, _pack, _unpack)
    return FunctionClass("parametric", "heuristic", options | {"seed": seed, "starts": starts}, assumptions, *steps)


class Family(NamedTuple):
    function: Callable[[Any, Any], Any]
    origin: Array
    reach: float
    starts: int
    seed: int

    def values(self, contexts: Array, parameters: Array) -> Array:
        values = np.asarray(self.function(contexts, parameters), dtype=float)
        rule = f"must give {len(contexts)} values for {len(contexts)} contexts"
        require(values.shape == (len(contexts),), "function", values.shape, rule)
        return values

    @property
    def box(self) -> list[tuple[float, float]]:
        return [(value - self.reach, value + self.reach) for value in self.origin.tolist()]


def _learn(family: Family, learner: Learner, context: Array, values: list[float], weight: float) -> None:
    """Append a round and refit on schedule; between refits, update the loss of the last fit."""
    learner.contexts = np.concatenate([learner.contexts, context[None]])
    learner.outcomes = np.concatenate([learner.outcomes, np.array(values)[:, None]], axis=1)
    learner.roots = np.append(learner.roots, np.sqrt(weight))
    learner.count += 1
    refit = learner.count >= learner.next_fit
    if refit:
        learner.next_fit = max(learner.count + 1, int(learner.count * GROWTH))
    for target in range(len(learner.best)):
        if refit:
            learner.best[target] = _fit(family, learner, target)
        learner.loss[target] = _loss(family, learner, target, learner.best[target])


def _residuals(family: Family, learner: Learner, target: int, parameters: Array) -> Array:
    return learner.roots * (family.values(learner.contexts, parameters) - learner.outcomes[target])


def _loss(family: Family, learner: Learner, target: int, parameters: Array) -> float:
    residuals = _residuals(family, learner, target, parameters)
    return float(residuals @ residuals)


def _fit(family: Family, learner: Learner, target: int) -> Array:
    """The best of the last fit's neighbourhood and a few fresh starts."""
    from scipy.optimize import least_squares

    rng = np.random.default_rng([family.seed, learner.count])
    low, high = (np.array(side) for side in zip(*family.box, strict=True))
    fresh = family.origin + rng.standard_normal((family.starts, family.origin.size)) * min(1.0, family.reach / 3.0)
    best, least = learner.best[target], np.inf
    for begin in (learner.best[target], *fresh):
        found = least_squares(
            lambda w: _residuals(family, learner, target, w), np.clip(begin, low, high), bounds=(low, high), max_nfev=50
        )
        if 2.0 * found.cost < least:
            best, least = found.x, 2.0 * found.cost
    return best


def _range(
    family: Family, learner: Learner, target: int, *, context: Array, noise: float, risk: float
) -> tuple[float, float, float]:
    """(estimate, smallest, largest) at a context, by SLSQP from the fit and from the linearised ends."""
    from scipy.optimize import minimize

    best, one = learner.best[target], context[None]
    centre = float(family.values(one, best)[0])
    if learner.count == 0:
        return centre, -np.inf, np.inf
    slack = noise**2 * (best.size * np.log1p(learner.count) + 2.0 * risk)
    limit = learner.loss[target] + slack
    room = {"type": "ineq", "fun": lambda w: (limit - _loss(family, learner, target, w)) / slack}
    ends = [centre, centre]
    inside = _scattered(family, learner, target, limit)
    for side, sign in enumerate((1.0, -1.0)):
        begins = [best, *_linear_ends(family, learner, target, one, best, slack=slack, sign=sign)]
        if inside:
            begins.append(min(inside, key=lambda w, sign=sign: sign * float(family.values(one, w)[0])))
        for begin in begins:
            with warnings.catch_warnings():  # SciPy before 1.16 says that it clips what rounding puts outside the box
                warnings.simplefilter("ignore", RuntimeWarning)
                found = minimize(
                    lambda w, sign=sign: sign * float(family.values(one, w)[0]),
                    begin,
                    method="SLSQP",
                    bounds=family.box,
                    constraints=[room],
                    options={"maxiter": 30},
                )
            if room["fun"](found.x) >= -1e-6:
                ends[side] = sign * min(sign * ends[side], float(found.fun))
    return centre, ends[0], ends[1]


def _scattered(family: Family, learner: Learner, target: int, limit: float) -> list[Array]:
    """Random parameters around the origin and around the fit, restricted to the confidence set."""
    rng = np.random.default_rng([family.seed, learner.count])
    steps = rng.standard_normal((SCATTER, family.origin.size)) * min(1.0, family.reach / 3.0)
    around = np.where(np.arange(SCATTER)[:, None] % 2 == 0, family.origin, learner.best[target])
    low, high = (np.array(edge) for edge in zip(*family.box, strict=True))
    return [w for w in np.clip(around + steps, low, high) if _loss(family, learner, target, w) <= limit]


def _linear_ends(
    family: Family, learner: Learner, target: int, one: Array, best: Array, *, slack: float, sign: float
) -> list[Array]:
    """The ends of the problem linearised at the fit: ŵ ∓ √slack · A⁻¹q/‖q‖_{A⁻¹}, A = JᵀJ plus a small ridge."""
    from scipy.optimize import approx_fprime

    jacobian: Any = approx_fprime(best, lambda w: _residuals(family, learner, target, w))
    jacobian = jacobian.reshape(-1, best.size)
    slope: Any = approx_fprime(best, lambda w: family.values(one, w))
    slope = slope.ravel()
    inside = jacobian.T @ jacobian + 1e-6 * np.eye(best.size)
    direction = np.linalg.solve(inside, slope)
    size = float(slope @ direction)
    if not size > 0.0:
        return []
    low, high = (np.array(edge) for edge in zip(*family.box, strict=True))
    return [np.clip(best - sign * np.sqrt(slack / size) * direction, low, high)]


def _pack(state: State) -> dict[str, Any]:
    arrays: dict[str, Any] = {"batch": np.array(state.batch, dtype=np.int64)}
    for index, learner in enumerate(state.learners):
        for name in ("contexts", "outcomes", "roots", "best", "loss"):
            arrays[f"{index}.{name}"] = getattr(learner, name)
        arrays[f"{index}.schedule"] = np.array([learner.count, learner.next_fit])
    return arrays


def _unpack(arrays: dict[str, Any]) -> State:
    batch = tuple(int(size) for size in arrays["batch"])
    learners = []
    for index in range(int(np.prod(batch))):
        learner = Learner(arrays[f"{index}.contexts"].shape[1], 1, arrays[f"{index}.best"][0])
        for name in ("contexts", "outcomes", "roots", "best", "loss"):
            setattr(learner, name, np.array(arrays[f"{index}.{name}"]))
        learner.count, learner.next_fit = (int(value) for value in arrays[f"{index}.schedule"])
        learners.append(learner)
    return State(learners, batch)
