"""Schemathesis on the OpenAPI document: whatever is sent, right or wrong, no answer is a fault of the service."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from safedial.service.app_state import Limits
from safedial.service.server import running
from safedial.study.store import Store
from safedial.study.study import Study
from tests.conftest import FULL
from tests.study.conftest import SPEC

KNOWN = {"name": "trial"}
ROUTES = 20


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    """The document of a running service with two studies and some decisions."""
    folder = tmp_path_factory.mktemp("fuzz")
    features = {"names": ["age", "weight"], "center": [50, 70], "scale": [100, 100]}
    with Store(f"sqlite:///{folder}/trial.db") as store:
        for name, more in (("trial", {}), ("named", {"features": features})):
            study = Study.create(name, {**SPEC, **more}, storage=store, actor="tester")
            for _ in range(3):
                made = study.ask([0.1, 0.1] if name == "trial" else [60, 70])
                KNOWN["decision_id"] = made.id
        with running(store, limits=Limits(rate=1e6, burst=1e6)) as url:
            yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("number", range(ROUTES))
def test_no_request_makes_the_service_fail(api, number, mode):
    operation = [found.ok() for found in api.get_all_operations()][number]

    @settings(max_examples=300 if FULL else 20, suppress_health_check=list(HealthCheck), deadline=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case):
        if case.path_parameters and len(repr(case.body)) % 3:
            case.path_parameters = {name: KNOWN.get(name, value) for name, value in case.path_parameters.items()}
        response = case.call()
        assert response.status_code < 500, (operation.label, case.body, response.content)
        if response.status_code >= 400 and response.content:
            assert response.headers["content-type"][0].startswith("application/problem+json"), response.content

    try:
        send()
    except Unsatisfiable:
        assert mode == GenerationMode.NEGATIVE


def test_every_route_is_fuzzed(api):
    assert len(list(api.get_all_operations())) == ROUTES
