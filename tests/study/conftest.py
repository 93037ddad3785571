"""Stores for the tests: on SQLite, and where the database can matter on PostgreSQL too."""

from __future__ import annotations

import pytest

from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.postgres import Server

SPEC = {
    "dim": 2,
    "threshold": 0.5,
    "violation_risk": 0.05,
    "estimation_risk": 0.05,
    "reward_noise": 0.3,
    "cost_noise": 0.3,
    "coefficient_bound": 1.0,
    "context_bound": 1.0,
}


def id_at(study, seq):
    """The id of the decision at a seq of a study's log."""
    return next(row["decision_id"] for row in study.rows() if row["seq"] == seq)


@pytest.fixture(scope="session")
def postgres():
    server = Server()
    yield server
    server.stop()


BOTH = (
    *("test_audit", "test_beside", "test_failures", "test_kill", "test_start", "test_store", "test_study"),
    *("test_tamper", "test_units", "test_workers", "service.test_cli", "service.test_page"),
)
"""Where locks, processes, SQL or a changed store are tested. Elsewhere a study does not know which database it has."""


def pytest_generate_tests(metafunc):
    if "storage" in metafunc.fixturenames and metafunc.module.__name__.endswith(BOTH):
        metafunc.parametrize("storage", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def storage(request, tmp_path):
    """The URL of an empty store."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/study.db"
    return request.getfixturevalue("postgres").url()


@pytest.fixture
def store(storage):
    with Store(storage) as opened:
        yield opened


@pytest.fixture
def study(store):
    return Study.create("trial", SPEC, storage=store, actor="tester")


@pytest.fixture
def lite(tmp_path):
    """A study on SQLite alone, where the database makes no difference."""
    with Store(f"sqlite:///{tmp_path}/lite.db") as opened:
        yield Study.create("trial", SPEC, storage=opened, actor="tester")
