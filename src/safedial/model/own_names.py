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
    except (Exception, SystemExit) as error:  # whatever the user's module does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise InvalidInput(
            f"{argument} = {name!r}: cannot be imported from {os.getcwd()} or the path of Python ({reason}); {way_out}"
        ) from error
    return found


def module_of(name: str) -> ModuleType:
    """The module of a name, imported anew if its file has changed; a file is run under a name of its own."""
    place, colon, _ = str(name).rpartition(":")
    if not (colon and place):
        raise ImportError("there is no module in this name")
    add_folder(os.getcwd())
    if not place.endswith(".py"):
        module = importlib.import_module(place)
        if _SEEN.setdefault(place, _digest(module)) != _digest(module):
            module, _SEEN[place] = importlib.reload(module), _digest(module)
        return module
    path = next((path for path in (Path(each, place) for each in ("", *sys.path)) if path.is_file()), Path(place))
    spec: Any = importlib.util.spec_from_file_location(f"safedial_own_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


_SEEN: dict[str, str] = {}
"""The digest of each module's file when it was imported."""


def add_folder(folder: str) -> None:
    """Let modules be imported from a folder, after all others."""
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()


def made_by(name: str, options: Mapping[str, Any], argument: str, kind: Any, called: str) -> Any:
    """What the factory of this name makes with these options, which it must take."""
    factory = imported(name, argument)
    words, way_out = f"is no {called}, and makes none", "name a class, or a function that returns one"
    require(callable(factory), argument, name, words, way_out)
    takes = inspect.signature(factory)
    try:
        takes.bind(**options)
    except TypeError as error:
        known = f"it takes {', '.join(takes.parameters)}" if takes.parameters else "it takes no options"
        raise InvalidInput(f"{argument} = {name!r}: does not take {dict(options)} ({error}); {known}") from error
    try:
        made = factory(**options)
    except (Exception, SystemExit) as error:  # whatever the user's factory does
        raise InvalidInput(
            f"{argument} = {name!r}: fails when it is called with {dict(options)} ({type(error).__name__}: {error}); "
            "call it yourself to see where"
        ) from error
    require(isinstance(made, kind), argument, name, words, way_out)
    return made


def plain_arguments(name: str, options: Mapping[str, Any], argument: str) -> dict[str, Any]:
    """The options of a factory and its defaults, as far as they are plain values."""
    bound = inspect.signature(imported(name, argument)).bind(**options)
    bound.apply_defaults()
    plain = (str, int, float, bool, type(None))
    return {key: value for key, value in bound.arguments.items() if isinstance(value, plain) or key in options}


def source_digest(name: str) -> str:
    """A digest of the file that a name is imported from; empty where there is none."""
    return _digest(module_of(name))


def _digest(module: ModuleType) -> str:
    file = getattr(module, "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""
