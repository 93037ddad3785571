"""Old names of modules and attributes: they work for one more version, with a warning that gives the new name."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

RENAMED = {
    "safedial.bench.checks": ("safedial.bench.checks_power",),
    "safedial.bench.conformal": ("safedial.bench.online_speed",),
    "safedial.bench.monitor": ("safedial.bench.monitor_power",),
    "safedial.bench.nonlinear": ("safedial.bench.nonlinear_speed",),
    "safedial.bench.online": ("safedial.bench.online_speed",),
    "safedial.bench.replay": ("safedial.bench.replay_speed",),
    "safedial.bench.study": ("safedial.bench.study_speed",),
    "safedial.calibration.families": ("safedial.calibration.curve_families",),
    "safedial.classes": ("safedial.function_classes",),
    "safedial.conformance": ("safedial.testing",),
    "safedial.datasets.battery.features": ("safedial.datasets.battery.whitening",),
    "safedial.datasets.battery.schema": ("safedial.datasets.battery.step_table",),
    "safedial.datasets.battery.summary": ("safedial.datasets.battery.folder_summary",),
    "safedial.diagnostics.noise": ("safedial.diagnostics.noise_check",),
    "safedial.diagnostics.promise": ("safedial.diagnostics.promise_watch",),
    "safedial.diagnostics.rounds": ("safedial.diagnostics.residuals",),
    "safedial.diagnostics.tails": ("safedial.diagnostics.tails_check",),
    "safedial.eluder": ("safedial.theory",),
    "safedial.eluder.linear": ("safedial.theory.linear_eluder",),
    "safedial.logs": ("safedial.rounds_io", "safedial.simulation.logged"),
    "safedial.measure": (
        "safedial.stats",
        "safedial.simulation.summary",
        "safedial.simulation.proved",
        "safedial.theory.regret",
    ),
    "safedial.online": ("safedial.decision",),
    "safedial.online.agent": ("safedial.agent",),
    "safedial.plots.calibration": ("safedial.plots.calibration_picture",),
    "safedial.plots.checks": ("safedial.plots.checks_picture",),
    "safedial.plots.monitor": ("safedial.plots.monitor_picture",),
    "safedial.plots.plan": ("safedial.plots.plan_picture",),
    "safedial.plots.sweep": ("safedial.plots.sweep_picture",),
    "safedial.policies.conformal.rounds": ("safedial.policies.conformal.memory",),
    "safedial.replay_engines.kernel": ("safedial.replay_engines.jax_kernel",),
    "safedial.replay_engines.run": ("safedial.replay_engines.dispatch",),
    "safedial.report.checks": ("safedial.report.checks_page",),
    "safedial.report.plan": ("safedial.report.plan_page",),
    "safedial.theory.finite": ("safedial.theory.finite_eluder",),
    "safedial.theory.kernel": ("safedial.theory.kernel_eluder",),
    "safedial.theory.linear": ("safedial.theory.linear_eluder",),
    "safedial.theory.record": ("safedial.theory.eluder_bound",),
}
"""Old name → where its contents are now."""


class _Finder:
    """Finds and loads. It comes last, so Python asks it only for modules that have no file. It extends none of the
    classes of `importlib.abc`, whose import takes longer than the rest of `import safedial`.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, cast("Any", self), is_package=True) if fullname in RENAMED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        now = RENAMED[module.__name__]
        warnings.warn(f"{module.__name__} is now {' and '.join(now)}", DeprecationWarning, stacklevel=2)
        for name in now:
            found = vars(import_module(name))
            module.__dict__.update({key: value for key, value in found.items() if not key.startswith("__")})


def renamed_attribute(old: str, new: str) -> property:
    """A property under an attribute's earlier name, "Class.name": it warns, and gives what `new` gives."""

    def read(self: Any) -> Any:
        warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=2)
        return getattr(self, new)

    return property(read)


def install() -> None:
    """Called once, when the package is imported."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())
