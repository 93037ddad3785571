"""Shared by all tests: strict numerics, counts that grow under `make test-full`, the portable part, a plain spec."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from safedial import SafetySpec
from tests.processors import PORTABLE

jax.config.update("jax_enable_x64", True)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts background jobs so, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

FULL = os.environ.get("SAFEDIAL_FULL") == "1"


def pytest_collection_modifyitems(items):
    """The portable part: the tests of these files, but of those that take long or ask about rates (they take `count`)
    only the ones that are marked so themselves.
    """
    root = f"{Path(__file__).parents[1].as_posix()}/"
    for item in items:
        place = item.path.as_posix().removeprefix(root)
        large = "count" in getattr(item, "fixturenames", ()) or item.get_closest_marker("slow")
        if place.startswith(PORTABLE) and not large:
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
