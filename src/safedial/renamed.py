"""Modules that had another name before: for one more version they import, with a warning that says the new one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

RENAMED = {
    "safedial.classes": ("safedial.function_classes",),
    "safedial.conformance": ("safedial.testing",),
    "safedial.eluder": ("safedial.theory",),
    "safedial.eluder.linear": ("safedial.theory.linear",),
    "safedial.logs": ("safedial.rounds_io", "safedial.simulation.logged"),
    "safedial.measure": (
        "safedial.stats",
        "safedial.simulation.summary",
        "safedial.simulation.proved",
        "safedial.theory.regret",
    ),
    "safedial.online.agent": ("safedial.agent",),
    "safedial.online": ("safedial.decision",),
}
"""Old name → where its contents are now."""


class _Finder(MetaPathFinder, Loader):
    """Comes last: it is asked only for modules that no file provides."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname in RENAMED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        now = RENAMED[module.__name__]
        warnings.warn(f"{module.__name__} is now {' and '.join(now)}", DeprecationWarning, stacklevel=2)
        for name in now:
            found = vars(import_module(name))
            module.__dict__.update({key: value for key, value in found.items() if not key.startswith("__")})


def install() -> None:
    """Called once, when the package is imported."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
