"""What a policy is: a name, a guarantee, and one pure function from a prediction to a choice.

A policy is assembled from `bounds`; it holds only structure (which radius, clip or not). What may be swept (the spec,
the round, the baseline cost) is an argument of `decide`, and so is randomness: `coin` is uniform on [0, 1), drawn by
the caller. The learner is the linear one of `bounds.estimate`; a policy may have parts of its own, with a batch
shape in front:

    init(dim, *, ridge, batch) -> state               of a simulation, batch is (specs, seeds)
    predict(state, context) -> prediction             contexts (..., d); what `decide` is given
    update(state, prediction, reward, cost, weight) -> state          R/g_r, (C − b₀)/g_c, and ω, 0 where not to learn

In a simulation each may have a parameter `spec` (grids are columns) or `rngs` (a generator for each seed, all its own);
`predict` and `update` may have `coin`, the round's, and `update` `intensity`, g_c of the applied action.

The functions of a policy or a function class are made inside a factory, so pickle cannot name them. But the record
keeps the factory's name and its options, and the factory gives the same functions again. This is checked on pickling: a
record that was changed since (`policy._replace(decide=...)`) must not come back unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pickle import PicklingError
from types import CellType, FunctionType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from safedial.bounds import estimate
from safedial.bounds.choice import Choice
from safedial.bounds.estimate import Prediction
from safedial.errors import InvalidInput, is_number, require
from safedial.model.guarantee import GUARANTEES
from safedial.model.spec import SafetySpec
from safedial.policies.supports import ELSEWHERE


def reduced(
    record: Any, kind: str, factories: Mapping[str, Callable[..., Any]], remake: Callable[[str, dict[str, Any]], Any]
) -> tuple[Any, ...]:
    """The `__reduce__` of a record with `name` and `options`: by name if that gives the same record, otherwise field by
    field if pickle can name its functions.
    """
    if _gives_again(record, factories.get(record.name)):
        return remake, (record.name, dict(record.options))
    local = [each for each in record if isinstance(each, FunctionType) and "<" in each.__qualname__]
    if local:
        raise PicklingError(
            f"{kind} {record.name!r}: cannot be pickled, because {local[0].__qualname__} is defined inside a function "
            f"and no {kind} of this package with these options is the same; define it at the top of a module"
        )
    return type(record)._make, (tuple(record),)


def _gives_again(record: Any, factory: Callable[..., Any] | None) -> bool:
    if factory is None:
        return False
    try:
        return is_same(record, factory(**record.options))
    except (InvalidInput, TypeError):
        return False


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal; functions are if they have the same code and the same closure.

    >>> def add(number):
    ...     return lambda value: value + number
    >>> is_same(add(1), add(1)), is_same(add(1), add(2))
    (True, False)
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, FunctionType):
        around = (one.__defaults__, one.__kwdefaults__, one.__closure__)
        return one.__code__ is other.__code__ and is_same(
            around, (other.__defaults__, other.__kwdefaults__, other.__closure__)
        )
    if isinstance(one, CellType):
        return is_same(one.cell_contents, other.cell_contents)
    if is_dataclass(one):
        return all(is_same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one) if each.compare)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return bool(one == other)


# --- What a policy is: a name, a guarantee, and one pure function from a prediction to a choice


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
        guarantee: "certified" if P(C_t > τ) ≤ δ + δ′ is proved from the constants; "conformal" if P(C_t > τ) ≤ δ is
            proved for exchangeable rounds, "bracket" if for a growth bracket in place of an exact dose curve, "student"
            if for Gaussian noise of unknown size; "expected" if only the mean cost is bounded; "heuristic" if nothing
            is proved; "bayesian" if it is averaged over a prior.
        decide: the rule.
        options: its configuration; `make_policy(name, **options)` makes it again.
        knows_truth: the policy is given the true coefficients (a clairvoyant, for comparison only).
        randomised: the choice depends on `coin`.
        learns: outcomes matter to it.
        binary_cost: costs are 0 or 1; `update` is then given C itself, and the applied `intensity`.
        learner: a custom learner's class for `Agent` and `Study` (`rounds.learner.Learner`); by default it
            follows from the policy.
        check: refuses a spec for which the guarantee has no proof.
    """

    name: str
    label: str
    guarantee: Literal["certified", "conformal", "bracket", "student", "expected", "heuristic", "bayesian"]
    decide: Decide
    options: dict[str, Any]
    knows_truth: bool = False
    randomised: bool = False
    learns: bool = True
    init: Callable[..., Any] = estimate.init
    predict: Callable[..., Any] = estimate.predict
    update: Callable[..., Any] = estimate.update
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
        """Whether it learns with the linear estimate of `bounds.estimate`, every part of which is the package's."""
        return (self.init, self.predict, self.update) == (estimate.init, estimate.predict, estimate.update)

    direction = "above"
    exact_dose = True
    """As of a `Family`."""

    @property
    def takes_zero_one(self) -> bool:
        """Whether every outcome's cost must be 0 or 1."""
        return self.binary_cost

    most_rounds = math.inf

    @property
    def excludes(self) -> frozenset[str]:
        """What it does not support (`policies.supports`), by its form."""
        found = set() if self.is_linear else set(ELSEWHERE)
        if self.knows_truth:
            found |= {"unknown means", "costs of any size" if self.binary_cost else "costs of 0 or 1"}
        if self.options.get("learn_from") == "exploring":
            found |= {"unmarked rounds"}
        given = GUARANTEES[self.guarantee]
        if given.exchangeable and not given.bracketed:
            found |= {"sensor noise"}
        if given.gaussian:
            found |= {"costs of 0 or 1"}
        return frozenset(found)

    @property
    def own_parts(self) -> tuple[str, ...]:
        """The names of its functions that are the user's own."""
        parts = ("decide", "init", "predict", "update")
        return tuple(part for part in parts if not str(getattr(self, part).__module__).startswith("safedial."))


def _remake(name: str, options: dict[str, Any]) -> Policy:
    """The policy that was pickled."""
    from safedial.policies import make_policy

    return make_policy(name, **options)


# --- The probe, which a round without expected benefit gets: a share of the safe dose, so that the round teaches


def check_probe(probe: Any, *, always: bool = False) -> None:
    """Refuse what is neither "sqrt" nor a share; where a policy must `always` give some dose, also a share of 0."""
    share = is_number(probe) and 0.0 <= probe <= 1.0
    if always:
        rule = "must be 'sqrt' or a number in (0, 1]"
        require(probe == "sqrt" or (share and probe > 0.0), "probe", probe, rule, "every round must teach")
    require(probe == "sqrt" or share, "probe", probe, "must be 'sqrt' or a number in [0, 1]")


def probe_share(probe: Any, round: Any) -> Any:
    """m_t: 1/√t, or the stated constant."""
    return round**-0.5 if probe == "sqrt" else float(probe)


def check_start_dose(start_dose: Any) -> None:
    """Refuse a declared start dose that is no positive intensity."""
    declared = start_dose is None or (is_number(start_dose) and 0.0 < start_dose <= 1.0)
    require(declared, "start_dose", start_dose, "must be a number in (0, 1]", "or None for the certified one")
