"""A world made from data of your own: its contexts are rows of a table.

In every round each seed draws a row at random, with replacement. What a full dose gives there is known for each row, or
is a function of the context:

    R = g_r(α)(θ*(x) + ξ_r) + ε_r          C = g_c(α)(μ*(x) + ξ_c) + ε_c
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from safedial.core.spec import SafetySpec
from safedial.errors import InvalidInput, refusal, require
from safedial.worlds.noise import NOISES
from safedial.worlds.world import Generators, World

Array = NDArray[np.float64]
Function = Callable[[Array], Any]


class DataWorld(World):
    """Contexts from a table, outcomes from its columns or from functions.

    Args:
        contexts: (n, d), each of norm at most L of the spec.
        reward, cost: θ* and μ*, the means of R/g_r and C/g_c: an array (n,), one value for each row, or a function from
            contexts (m, d) to (m,). Rows of equal contexts have the mean of their values.
        noise: a family of `NOISES`, of size κ; or a function from contexts (m, d) to (m,), the standard deviation of
            normal noise in units of κ.
        label: its name in results.

    >>> rows = np.array([[0.6, 0.0], [0.0, 0.8]])
    >>> world = DataWorld(rows, reward=[0.3, 0.5], cost=lambda x: x[:, 1], label="two patients")
    >>> reward, cost = world.means(None, None, rows[:, None])
    >>> reward.ravel().tolist(), cost.ravel().tolist()
    ([0.3, 0.5], [0.0, 0.8])
    """

    def __init__(
        self,
        contexts: ArrayLike,
        *,
        reward: ArrayLike | Function,
        cost: ArrayLike | Function,
        noise: str | Function = "gaussian",
        label: str = "DataWorld",
    ) -> None:
        self.rows = _numbers("contexts", contexts, 2)
        require(self.rows.size, "contexts", f"shape {self.rows.shape}", "must have at least one row and one column")
        self.dim, self.label = self.rows.shape[1], label
        self._keys, self._place = np.unique(_as_keys(self.rows), return_inverse=True)
        self._reward, self._cost = self._values("reward", reward), self._values("cost", cost)
        known = callable(noise) or (isinstance(noise, str) and noise in NOISES and noise != "context-scale")
        names = ", ".join(name for name in NOISES if name != "context-scale")
        require(known, "noise", noise, f"must be one of {names}, or a function of contexts")
        self.noise = "gaussian" if callable(noise) else noise
        self._scale = self._values("noise", noise) if callable(noise) else None
        require(self._scale is None or np.all(self._scale > 0.0), "noise", noise, "must give numbers > 0")

    def _values(self, name: str, given: Any) -> Array:
        """One value for each key, the mean of its rows."""
        values = _numbers(name, self._computed(name, given) if callable(given) else given, 1)
        rule = f"must have one value for each of the {len(self.rows)} rows"
        require(len(values) == len(self.rows), name, f"shape {values.shape}", rule)
        return np.bincount(self._place, values) / np.bincount(self._place)

    def _computed(self, name: str, function: Function) -> Any:
        try:
            return function(self.rows.copy())
        except Exception as error:  # whatever a user's function raises
            rule = f"failed at the contexts, an array of shape {self.rows.shape} ({type(error).__name__}: {error})"
            way_out = "let it take such an array, one context a row, and return a number for each row"
            raise refusal(name, function, rule, way_out) from error

    @property
    def name(self) -> str:
        return self.label

    @property
    def scaled(self) -> bool:
        """Whether the noise depends on the row."""
        return self._scale is not None

    def to_dict(self) -> dict[str, Any]:
        """What tells it apart; the data themselves are not written."""
        told = hashlib.sha256(self.rows.tobytes())
        for part in (self._reward, self._cost, self._scale):
            told.update(b"" if part is None else part.tobytes())
        noise = self.noise if self._scale is None else "own"
        digest = told.hexdigest()[:16]
        return {"name": self.label, "dim": self.dim, "rows": len(self.rows), "noise": noise, "digest": digest}

    def draw_truth(self, spec: SafetySpec, rngs: Generators) -> None:
        """The truth is the same for all seeds; what differs is which rows come, and the noise."""
        largest = float(np.sqrt(np.vecdot(self.rows, self.rows)).max())
        way_out = f"state context_bound = {largest:.6g} or more, or scale the contexts"
        bound = spec.context_bound
        require(bound is None or largest <= bound, "context_bound", bound, "is less than the norm of a row", way_out)

    def draw_contexts(self, spec: SafetySpec, rngs: Generators, rounds: int, done: int) -> Array:
        return np.stack([self.rows[rng.integers(len(self.rows), size=rounds)] for rng in rngs["context"]])

    def means(self, spec: SafetySpec, truth: None, context: Array) -> tuple[Array, Array]:
        place = np.searchsorted(self._keys, _as_keys(context))
        return self._reward[place], self._cost[place]

    def noise_scale(self, spec: SafetySpec, context: Array) -> float | Array:
        return 1.0 if self._scale is None else self._scale[np.searchsorted(self._keys, _as_keys(context))]


def _numbers(name: str, given: Any, dimensions: int) -> Array:
    try:
        values = np.array(given, dtype=float, order="C")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name}: must be an array of numbers ({error})") from error
    require(values.ndim == dimensions, name, f"shape {values.shape}", f"must be an array of dimension {dimensions}")
    require(np.all(np.isfinite(values)), name, "NaN or infinity", "is not a finite number", "leave such rows out")
    return values + 0.0  # so that -0 is 0


def _as_keys(contexts: Array) -> NDArray[Any]:
    """Each context as one comparable value."""
    whole = np.ascontiguousarray(contexts)
    return whole.view(np.dtype((np.void, whole.shape[-1] * whole.itemsize)))[..., 0]
