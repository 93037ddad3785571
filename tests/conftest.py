"""Shared by all tests: strict numerics, counts that grow under `make test-full`, a plain spec."""

from __future__ import annotations

import os

import jax
import pytest
from hypothesis import settings

from safedial import SafetySpec

jax.config.update("jax_enable_x64", True)
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")

FULL = os.environ.get("SAFEDIAL_FULL") == "1"


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
