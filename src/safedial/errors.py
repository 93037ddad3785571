"""The one error a caller's input can cause, and the sentence it is written in."""

from __future__ import annotations

from typing import Any


class InvalidInput(ValueError):
    """Input that breaks a stated rule. Nothing was changed by the call that raised it.

    `code` names the rule for programs: a service answers with it, without the words, which may hold the value.
    `public` is what it may add: words in which no value of the caller's stands.
    """

    def __init__(self, message: str = "", code: str = "invalid_input", *, public: str = "") -> None:
        super().__init__(message)
        self.code, self.public = code, public


class MissingExtra(ImportError):
    """An optional package is needed for what was asked; the message says how to get it."""


def require(
    holds: Any, argument: str, value: Any, rule: str, way_out: str = "", *, code: str = "invalid_input"
) -> None:
    """Raise `InvalidInput` unless `holds`, naming the argument, its value, the rule and the way out.

    >>> require(False, "threshold", -1, "must be > 0", "give the largest cost you accept")
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: threshold = -1: must be > 0; give the largest cost you accept
    """
    if not holds:
        raise InvalidInput(f"{argument} = {_short(value)}: {rule}" + (f"; {way_out}" if way_out else ""), code)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def import_extra(module: str, extra: str) -> Any:
    """Import `module`, or say kindly which extra of safedial brings it.

    >>> import_extra("no_such_module", "plot")
    Traceback (most recent call last):
    ...
    safedial.errors.MissingExtra: this needs the package no_such_module: pip install "safedial[plot]"
    """
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        raise MissingExtra(f'this needs the package {package}: pip install "safedial[{extra}]"') from error
