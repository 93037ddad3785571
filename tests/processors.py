"""Run the tests marked `portable` as other processors would: make test-portable, or

    python -m tests.processors [haswell sandybridge nehalem prescott skylakex]

One operation on floats gives the same everywhere; a sum of products or an exponential does not. Three things choose by
the processor how to compute them: OpenBLAS its kernels (NumPy and SciPy each bring one), NumPy its loops, and the C
library its mathematical functions. Each can be told to choose as an older processor would, by a variable that is read
when a process starts. `shortfall` says where that did not take effect; tests/test_processors.py asks it in each run.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
import time
from typing import Any, NamedTuple

PORTABLE = (
    "README.md",
    "docs/",
    "src/",
    "tests/bounds/",
    "tests/model/",
    "tests/rounds/",
    "tests/golden/test_golden_policies.py",
    "tests/tools/test_bracket.py",
    "tests/tools/test_calibrate.py",
    "tests/tools/test_confounded.py",
    "tests/tools/test_curve_error.py",
    "tests/tools/test_evidence.py",
    "tests/policies/test_algorithms.py",
    "tests/policies/test_conformance.py",
    "tests/policies/test_hp_bayes.py",
    "tests/policies/test_binary.py",
    "tests/policies/test_features.py",
    "tests/policies/test_finite.py",
    "tests/policies/test_frozen.py",
    "tests/policies/test_kernel.py",
    "tests/policies/test_kernels.py",
    "tests/policies/test_nonlinear.py",
    "tests/policies/test_savefile.py",
    "tests/simulation/test_block_size.py",
    "tests/simulation/test_arguments.py",
    "tests/simulation/test_engines.py",
    "tests/study/test_guard.py",
    "tests/study/test_study.py",
    "tests/study/test_watch.py",
    "tests/study/test_workers.py",
    "tests/test_processors.py",
    "tests/simulation/test_simulation.py",
    "tests/simulation/test_linear.py",
    "tests/simulation/test_noise.py",
    "tests/simulation/test_nonlinear.py",
)
"""Where numbers are computed and compared, and every example."""

CHOSEN = "SAFEDIAL_PROCESSOR"
LIBM_OFF = "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX2_Usable,-FMA_Usable,-FMA4_Usable"


class Processor(NamedTuple):
    """`kernels` are OpenBLAS's names for its kernels (the oldest it was built with goes by the name of an ancestor);
    `features` are NumPy's dispatch groups that it has, or None for all; `fused`: it multiplies and adds in one step.
    """

    kernels: tuple[str, ...]
    features: tuple[str, ...] | None
    fused: bool


PROCESSORS = {
    "haswell": Processor(("Haswell",), ("X86_V3",), True),
    "sandybridge": Processor(("Sandybridge",), (), False),
    "nehalem": Processor(("Nehalem",), (), False),
    "prescott": Processor(("Prescott", "Katmai"), (), False),
    "skylakex": Processor(("SkylakeX",), None, True),
}


def numpys_features() -> tuple[list[str], dict[str, bool]]:
    """(the groups of instructions NumPy chooses among, which instructions it may use)."""
    from numpy._core import _multiarray_umath as numpys

    return numpys.__cpu_dispatch__, numpys.__cpu_features__


def unavailable(name: str) -> str:
    """Why this processor cannot stand in for that one; "" where it can."""
    _, here = numpys_features()
    if platform.machine() not in ("x86_64", "AMD64"):
        return f"these are settings of x86-64 processors, this is {platform.machine()}"
    if name == "skylakex" and not here.get("AVX512_SKX", here.get("X86_V4")):
        return "this processor has no AVX-512"
    if name == "haswell" and not here.get("AVX2"):
        return "this processor has no AVX2"
    return ""


AVAILABLE = [name for name in PROCESSORS if not unavailable(name)]


def environment(name: str) -> dict[str, str]:
    """The variables with which a process computes as that processor would."""
    chosen = PROCESSORS[name]
    groups, _ = numpys_features()
    absent = [] if chosen.features is None else [group for group in groups if group not in chosen.features]
    plain = {key: value for key, value in os.environ.items() if key not in (CHOSEN, "GLIBC_TUNABLES")}
    return {
        **plain,
        CHOSEN: name,
        "OPENBLAS_CORETYPE": chosen.kernels[0],
        "NPY_DISABLE_CPU_FEATURES": " ".join(absent),
        **({} if chosen.fused else {"GLIBC_TUNABLES": LIBM_OFF}),
    }


def shortfall(name: str) -> list[str]:
    """In which respects this process does not compute as that processor would."""
    import scipy.linalg  # noqa: F401 -- loads SciPy's own OpenBLAS
    from threadpoolctl import threadpool_info

    chosen, (groups, here) = PROCESSORS[name], numpys_features()
    libraries = [each for each in threadpool_info() if each["internal_api"] == "openblas"]
    found = [
        f"OpenBLAS computes as {each['architecture']} in {each['filepath']}"
        for each in libraries
        if each["architecture"] not in chosen.kernels
    ]
    for package in ("numpy", "scipy"):
        if not any(package in os.path.basename(os.path.dirname(each["filepath"])) for each in libraries):
            found.append(f"{package} has no OpenBLAS")
    if chosen.features is not None:
        found += [f"NumPy uses {group}" for group in groups if here[group] and group not in chosen.features]
    if not chosen.fused and here["FMA3"] and platform.libc_ver()[0] == "glibc" and last_digits() == _plain_digits():
        found.append("the C library's functions are those of this processor")
    return found


def last_digits() -> int:
    """A number that changes with the last digits of the C library's functions."""
    points = [number / 997 + 1e-3 for number in range(2000)]
    return hash(tuple(function(x) for function in (math.exp, math.log, math.sin, math.tanh) for x in points))


def _plain_digits() -> int:
    plain = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    words = [sys.executable, "-c", "from tests.processors import last_digits; print(last_digits())"]
    return int(subprocess.run(words, env=plain, capture_output=True, text=True, check=True).stdout)


def main(names: list[str], jobs: int = 2) -> int:
    unknown = sorted(set(names) - set(PROCESSORS))
    if unknown:
        print(f"processor = {unknown}: must be of {', '.join(PROCESSORS)}")
        return 2
    failed = []
    for name in names or PROCESSORS:
        reason = unavailable(name)
        if reason:
            print(f"== {name}: SKIPPED, {reason}", flush=True)
            continue
        print(f"== as {name} would", flush=True)
        words = [sys.executable, "-m", "pytest", "-n", str(jobs), "--dist", "worksteal", "-m", "portable", *PORTABLE]
        start = time.monotonic()
        status = subprocess.run(words, env=environment(name), check=False).returncode
        failed += [name] if status else []
        print(f"== {name}: {'FAILED' if status else 'passed'} in {time.monotonic() - start:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    arguments: Any = sys.argv[1:]
    sys.exit(main(arguments))
