"""Shared by all tests: strict numerics, counts that grow under `make test-full`, the portable part, a plain spec."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from safedial import SafetySpec

jax.config.update("jax_enable_x64", True)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")

FULL = os.environ.get("SAFEDIAL_FULL") == "1"


PORTABLE = (
    "core",
    "classes",
    "calibration",
    "diagnostics/test_evidence.py",
    "online",
    "policies/test_algorithms.py",
    "policies/test_conformance.py",
    "policies/test_hp_bayes.py",
    "policies/test_nonlinear.py",
    "policies/conformal/test_frozen.py",
    "recorded",
    "replay/test_block_size.py",
    "replay/test_door.py",
    "replay/test_engines.py",
    "study/test_guard.py",
    "study/test_study.py",
    "study/test_watch.py",
    "study/test_workers.py",
    "test_processors.py",
    "test_simulation.py",
    "worlds/test_linear.py",
    "worlds/test_noise.py",
    "worlds/test_nonlinear.py",
)
"""Where numbers are computed and compared; the large simulations, which ask about rates, are left out."""


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    chosen = [here / name for name in PORTABLE]
    for item in items:
        if any(item.path == place or place in item.path.parents for place in chosen):
            item.add_marker("portable")


@pytest.fixture(scope="session")
def count():
    """count(reduced, full): the full number only under `make test-full`."""
    return lambda reduced, full: full if FULL else reduced


@pytest.fixture
def spec():
    return make_spec()


def make_spec(**changes):
    """The paper's inferred settings, with changes."""
    settings = {
        "threshold": 0.5,
        "violation_risk": 0.01,
        "estimation_risk": 0.01,
        "reward_noise": 1.0,
        "cost_noise": 1.0,
        "coefficient_bound": 1.0,
        "context_bound": 1.0,
    }
    return SafetySpec(**(settings | changes))
