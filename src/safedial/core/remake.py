"""Pickling for records of functions: policies and function classes.

Their functions are made inside a factory, so pickle cannot name them. But the record keeps the factory's name and its
options, and the factory gives the same functions again. This is checked on pickling: a record that was
changed since (`policy._replace(decide=...)`) must not come back unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pickle import PicklingError
from types import CellType, FunctionType
from typing import Any

import numpy as np

from safedial.errors import InvalidInput


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
        return all(is_same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=True)
    return bool(one == other)
