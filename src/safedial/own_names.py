"""What a user names as "module:name" or "path.py:name", imported.

The current folder can be imported from, as in `python -m`. Only what a person runs is imported in this way; names in
files and requests that come from elsewhere never are.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from safedial.errors import InvalidInput, require


def imported(name: str, argument: str, way_out: str = 'write "module:name" or "path.py:name"') -> Any:
    """What a name stands for; `argument` is where the user wrote it.

    >>> imported("math:tau", "world") > 6
    True
    """
    attribute = str(name).rpartition(":")[2]
    try:
        found: Any = module_of(name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the user's module does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise InvalidInput(
            f"{argument} = {name!r}: cannot be imported from {os.getcwd()} or the path of Python ({reason}); {way_out}"
        ) from error
    return found


def module_of(name: str) -> ModuleType:
    """The module of a name; a file is run anew, under a name that no other module has."""
    place, colon, _ = str(name).rpartition(":")
    if not (colon and place):
        raise ImportError("there is no module in this name")
    if not place.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        importlib.invalidate_caches()
        return importlib.import_module(place)
    spec: Any = importlib.util.spec_from_file_location(f"safedial_own_{Path(place).stem}", place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def made_by(name: str, options: Mapping[str, Any], argument: str) -> Any:
    """What the factory of this name makes with these options, which it must take."""
    factory = imported(name, argument)
    require(callable(factory), argument, name, "is not a factory", "name a function or a class")
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise InvalidInput(f"{argument} = {name!r}: does not take {dict(options)} ({error})") from error
    return factory(**options)


def all_options(name: str, options: Mapping[str, Any], argument: str) -> dict[str, Any]:
    """The options of a factory, with its defaults written out."""
    bound = inspect.signature(imported(name, argument)).bind(**options)
    bound.apply_defaults()
    return dict(bound.arguments)


def source_digest(name: str) -> str:
    """A digest of the file that a name is imported from; empty where there is none."""
    file = getattr(module_of(name), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""
