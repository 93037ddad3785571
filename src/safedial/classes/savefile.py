"""A class's state on disk: plain arrays with a digest, no pickle, written whole or not at all."""

from __future__ import annotations

import os
from typing import Any

from safedial import savefile
from safedial.classes.function_class import FunctionClass
from safedial.errors import require

FORM, VERSION = "safedial-class", 1


def save_state(path: str | os.PathLike[str], class_: FunctionClass, state: Any) -> None:
    """Write what the class has learned. The functions themselves are not written: keep the code that made them."""
    savefile.write(path, class_.describe(), class_.pack(state), form=FORM, version=VERSION)


def load_state(path: str | os.PathLike[str], class_: FunctionClass) -> Any:
    """What `save_state` wrote, for the same class; another class, or other options, are refused."""
    header, arrays = savefile.read(path, form=FORM, version=VERSION)
    mine = class_.describe()
    differ = [name for name in sorted({*header, *mine}) if header.get(name) != mine.get(name)]
    require(not differ, "class_", {name: mine.get(name) for name in differ}, f"differs from the file's in {differ}")
    return class_.unpack(arrays)
