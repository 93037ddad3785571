"""What a function class is: least squares over it, and a range of values at a context that is valid in all rounds.

Algorithm 2 needs three things from a class F of mean outcomes per unit of intensity: a fit to the normalised outcomes
y = R/g(α) or C/g(α), a confidence set around it that contains the truth for every t at once, and the largest and
smallest value at a context over that set (eq. mu_convex_prog_eluder and the line after it). A `FunctionClass` has the
methods that give them. It holds structure only: noise, risk and ridge come with the spec.

    state = init(dim, ridge=λ, batch=(rows, seeds), targets=1 or 2)       a state as in `policies.table`
    view  = look(state, context)                       what one context needs from the state
    range = bounds(view, target, noise=κ, spec=spec)   an `Interval`
    state = update(state, view, outcomes)              weight 0 changes nothing

Reward and cost share the contexts. If they also share the class, one state with two targets serves both, and what
depends only on the contexts (a Gram matrix, a Cholesky factor, the functions' values) is computed once.

A class of one's own is a frozen dataclass with these four methods; its fields are its options:

    @dataclass(frozen=True)
    class Monotone(FunctionClass):
        name = "monotone"
        ...
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from safedial.errors import is_number, is_whole, require
from safedial.model.spec import SafetySpec


class Interval(NamedTuple):
    """The least-squares value at a context, and the range of values over the confidence set.

    `refuted`: no function of the class is consistent with the data; the range is then that of the whole class, and the
    assumption that the truth lies in the class has failed.
    """

    estimate: Any
    lower: Any
    upper: Any
    refuted: Any


class Outcomes(NamedTuple):
    """The outcomes of a round: one array for each target, their weight ω in [0, 1], and the applied intensity."""

    targets: tuple[Any, ...]
    weight: Any
    intensity: Any = None


class FunctionClass:
    """A class of functions x ↦ f(x), with its confidence sets.

    Class data:
        name: as in `CLASSES`, or your own.
        label: "certified" if its confidence sets are proved to hold the truth, all at once with probability ≥ 1 − δ′;
        "heuristic" otherwise, for a class of your own.
        assumptions: the assumptions behind the label, in words.
        binary: outcomes are 0 or 1, their log-odds f(x) + ln z; for costs only.
        max_points: the most informative rounds it can hold, if there is a limit.
        states_norm: ‖θ‖ is bounded by the spec's S.
    """

    name: ClassVar[str] = ""
    label: ClassVar[str] = "heuristic"
    binary: ClassVar[bool] = False
    max_points: int | None = None
    states_norm: ClassVar[bool] = False

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ()

    @property
    def options(self) -> dict[str, Any]:
        """How it was configured, by name."""
        named = fields(self) if is_dataclass(self) else ()
        return {each.name: getattr(self, each.name) for each in named if each.init}

    def __copy__(self) -> FunctionClass:
        """Itself, because it is immutable."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FunctionClass:
        return self

    def init(self, dim: int, *, ridge: Any = None, batch: tuple[int, ...] = (), targets: int = 2) -> Any:
        """The state before any round."""
        raise NotImplementedError

    def look(self, state: Any, context: Any) -> Any:
        """What contexts (..., d) need from the state, with `informative_rounds`, the number that was learned from."""
        raise NotImplementedError

    def bounds(self, view: Any, target: int, *, noise: Any, spec: SafetySpec) -> Interval:
        """The range of values at a context over the confidence set."""
        raise NotImplementedError

    def update(self, state: Any, view: Any, outcomes: Outcomes) -> Any:
        """The state with one more round; it may be the same object."""
        raise NotImplementedError

    def ceiling(self, view: Any, spec: SafetySpec) -> Any:
        """A bound on `|f(x)|` that always holds; +∞ if there is none."""
        return np.inf

    def first(self, spec: SafetySpec) -> Any:
        """A bound on `|f|` at any context: 1 in Algorithm 2, S·L in the linear case; +∞ if only `ceiling` gives a
        bound, as for features, whose norms L does not bound.
        """
        return np.inf

    def holds_linear(self, spec: SafetySpec) -> bool:
        """Whether every ⟨x, μ⟩ with ‖μ‖ ≤ S lies in the class, for all the contexts that the spec allows."""
        return False

    def describe(self) -> dict[str, Any]:
        """Name, label and options as plain values, for a report."""
        return {"name": self.name, "label": self.label} | {key: _plain(value) for key, value in self.options.items()}


METHODS = ("init", "look", "bounds", "update")


def check_class(argument: str, given: Any) -> None:
    """Refuse what is no function class, and one that lacks methods, by their names."""
    rule = "must be a function class of safedial.policies.classes"
    require(isinstance(given, FunctionClass), argument, given, rule)
    kind = type(given)
    missing = [name for name in METHODS if getattr(kind, name) is getattr(FunctionClass, name)]
    way_out = "define them as safedial.policies.classes.function_class says"
    require(not missing, argument, given.name or kind.__name__, f"lacks {', '.join(missing)}", way_out)


def _plain(value: Any) -> Any:
    """A function as its name, a list of functions as their count, an array as its numbers."""
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, (list, tuple)) and value and callable(value[0]):
        return f"{len(value)} functions"
    return np.asarray(value).tolist() if isinstance(value, (list, tuple, np.ndarray)) else value


def check_bound(name: str, value: Any, rule: str = "must be a number > 0") -> float:
    """A positive finite number."""
    require(is_number(value) and value > 0.0, name, value, rule)
    return float(value)


def check_whole(name: str, value: Any, least: int = 1) -> int:
    require(is_whole(value, least), name, value, f"must be a whole number >= {least}")
    return int(value)
