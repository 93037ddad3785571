"""The BLAS and LAPACK routines that the CPU engines call directly, for either precision, and helpers for symmetry.

Large products use these and never NumPy's `@`: SciPy and NumPy may each bring their own BLAS, and the idle threads of
one would take cores from the other.

One round of a replay on the CPU: from four numbers to the decision, and what is learned from it.

Every engine calls the same `turn`; engines differ only in how they compute the four numbers ⟨x,θ̂⟩, ⟨x,μ̂⟩, width² and
ln det. The rule is the policy's own, on Python floats.
"""

from __future__ import annotations

import math
from functools import cache
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from safedial.bounds.confidence import energy
from safedial.bounds.estimate import Prediction, sample_weight
from safedial.model.spec import SafetySpec, as_columns
from safedial.policies.policy import Asked, Bound
from safedial.simulation.replay_arguments import Rounds, Trace

BLAS = ("gemm", "symm", "syrk", "trsm", "gemv", "ger", "symv", "syr", "dot", "axpy")
LAPACK = ("potrf", "potri")

STRIPE = 256


@cache
def routines(dtype: Any) -> Any:
    """`routines(dtype).gemm` and the like, for float64 or float32."""
    blas = zip(BLAS, get_blas_funcs(BLAS, dtype=dtype), strict=True)
    lapack = zip(LAPACK, get_lapack_funcs(LAPACK, dtype=dtype), strict=True)
    return SimpleNamespace(**dict(blas), **dict(lapack))


def scaled_identity(dim: int, value: float, dtype: Any) -> NDArray[Any]:
    """value·I in column order, without a temporary matrix."""
    matrix = np.zeros((dim, dim), dtype=dtype, order="F")
    np.fill_diagonal(matrix, value)
    return matrix


def fill_upper(matrix: NDArray[Any]) -> NDArray[Any]:
    """Copy the lower triangle onto the upper one, in place, stripe by stripe, without a temporary matrix."""
    for start in range(0, len(matrix), STRIPE):
        stop = start + STRIPE
        matrix[start:stop, stop:] = matrix[stop:, start:stop].T
        corner = matrix[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
    return matrix


# --- One round of a replay on the CPU


class Turn(Protocol):
    """turn(index, reward, cost, width², log_det=…, informative_rounds=…) -> (weight, R/g, C/g) of a block's round."""

    def __call__(
        self, index: int, reward: float, cost: float, squared: float, *, log_det: float, informative_rounds: int
    ) -> tuple[float, float, float]: ...


def make_turn(
    rounds: Rounds, spec: SafetySpec, start: int, norms: Any, energies: list[float] | None = None
) -> tuple[Turn, list[Prediction], list[tuple[Bound, Any]]]:
    """The block's `turn`, and the two lists it appends to: what was seen, and the bound with what was given. The block
    starts at round `start` (from 0).

    `energies` are those of reward and cost so far, for the noise-adaptive radius, updated in place.
    """
    part = slice(start, start + len(norms))
    size = len(norms)
    policy, dim = rounds.policy.under(spec), rounds.dim
    lengths, seen = norms.tolist(), rounds.seen[part].tolist()
    rewards, costs = rounds.rewards[part].tolist(), rounds.costs[part].tolist()
    coins = [0.0] * size if rounds.coins is None else rounds.coins[part].tolist()
    baseline = np.broadcast_to(rounds.baseline_cost, rounds.number)[part].tolist()
    reward_sensor = _sensor(rounds.reward_sensor, part, size)
    cost_sensor = _sensor(rounds.cost_sensor, part, size)
    sensed = rounds.reward_sensor is not None or rounds.cost_sensor is not None
    predictions: list[Prediction] = []
    decided: list[tuple[Bound, Any]] = []
    identity, dose = rounds.dose.is_identity, rounds.dose

    def turn(
        index: int, reward: float, cost: float, squared: float, *, log_det: float, informative_rounds: int
    ) -> tuple[float, float, float]:
        told = learn(index, reward, cost, squared, log_det=log_det, informative_rounds=informative_rounds)
        if energies is not None and told[0] > 0.0:
            width = predictions[-1].width
            energies[0] += energy(width, told[1] - reward, told[0])
            energies[1] += energy(width, told[2] - cost, told[0])
        return told

    def learn(
        index: int, reward: float, cost: float, squared: float, *, log_det: float, informative_rounds: int
    ) -> tuple[float, float, float]:
        width = math.sqrt(squared) if squared > 0.0 else 0.0
        prediction = Prediction(reward, cost, width, lengths[index], log_det, informative_rounds, dim)
        if energies is not None:
            prediction = prediction._replace(reward_energy=energies[0], cost_energy=energies[1])
        asked = Asked(None, lengths[index], start + index + 1, baseline[index], coins[index])
        found = policy.rule(prediction, asked)
        given = policy.choose(found, asked)
        predictions.append(prediction)
        decided.append((found, given))
        if not (policy.learns and seen[index]):
            return 0.0, 0.0, 0.0
        reward_intensity = cost_intensity = given
        if not identity:
            action = dose.cost.action(given)
            reward_intensity, cost_intensity = dose.reward.effect(action), dose.cost.effect(action)
        weight = sample_weight(spec, reward_intensity, cost_intensity)
        if found.teaches is not True:
            weight = weight * found.teaches
        if sensed and weight > 0.0:
            return (
                weight,
                rewards[index] + reward_sensor[index] / reward_intensity,
                costs[index] + cost_sensor[index] / cost_intensity,
            )
        return weight, rewards[index], costs[index]

    return turn, predictions, decided


def _sensor(errors: Any, part: slice, size: int) -> list[float]:
    return [0.0] * size if errors is None else errors[part].tolist()


def write_row(
    trace: Trace, row: int, start: int, predictions: list[Prediction], decided: list[tuple[Bound, Any]]
) -> None:
    """Write one row's block into the trace."""
    part = slice(start, start + len(decided))
    trace.intensity[row, part] = [given for _, given in decided]
    trace.reward_index[row, part] = [found.index for found, _ in decided]
    trace.cost_upper[row, part] = [found.numbers.get("cost_upper", math.nan) for found, _ in decided]
    trace.width[row, part] = [prediction.width for prediction in predictions]
    trace.certified[row, part] = [found.certified for found, _ in decided]


def write_shared_rows(trace: Trace, rounds: Rounds, start: int, prediction: Prediction) -> None:
    """Write every row's block if all share one estimate: one call of the rule on (rows, block) arrays."""
    part = slice(start, start + len(prediction.width))
    numbers = np.arange(part.start + 1, part.stop + 1, dtype=np.float64)
    coins = 0.0 if rounds.coins is None else rounds.coins[part]
    asked = Asked(None, prediction.norm, numbers, 0.0, coins)
    found, given = rounds.policy.decide(prediction, as_columns(rounds.spec), asked)
    trace.intensity[:, part] = given
    trace.reward_index[:, part] = found.index
    trace.cost_upper[:, part] = found.numbers.get("cost_upper", math.nan)
    trace.width[:, part] = prediction.width
    trace.certified[:, part] = found.certified


def stacked(predictions: list[Prediction]) -> Prediction:
    """A block's predictions as one, of arrays (block,)."""
    columns = [np.array(column, dtype=np.float64) for column in zip(*(each[:6] for each in predictions), strict=True)]
    whole = Prediction(*columns, dim=predictions[0].dim)
    if predictions[0].cost_energy is None:
        return whole
    names = ("reward_energy", "cost_energy")
    return whole._replace(**{name: np.array([getattr(each, name) for each in predictions]) for name in names})
