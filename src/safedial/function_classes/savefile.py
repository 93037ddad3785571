"""A class's state on disk: plain arrays with a digest, no pickle, written whole or not at all."""

from __future__ import annotations

import os
from typing import Any

from safedial.errors import require
from safedial.function_classes.function_class import FunctionClass
from safedial.io import read_archive, write_archive

FORM = "safedial-class"


def save_state(path: str | os.PathLike[str], class_: FunctionClass, state: Any) -> None:
    """Write what the class has learned, but not its functions: keep the code that makes them."""
    write_archive(path, class_.describe(), class_.pack(state), form=FORM)


def load_state(path: str | os.PathLike[str], class_: FunctionClass) -> Any:
    """Read what `save_state` wrote, for the same class; another class or other options are refused."""
    header, arrays = read_archive(path, form=FORM)
    mine = class_.describe()
    differ = [name for name in sorted({*header, *mine}) if header.get(name) != mine.get(name)]
    require(not differ, "class_", {name: mine.get(name) for name in differ}, f"differs from the file's in {differ}")
    return class_.unpack(arrays)
