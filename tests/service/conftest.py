"""A real server on a free loopback port, and a caller that sends what it is told, byte for byte."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from typing import Any, NamedTuple

import pytest

from safedial.service.server import running
from safedial.study.store import Store
from safedial.study.study import Study
from tests.study.conftest import SPEC, postgres, pytest_generate_tests, storage

__all__ = ["postgres", "pytest_generate_tests", "storage"]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self
        return self.json()["code"]


class Caller:
    """One service; `key` goes into every request."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url, self.key = url, key

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """A dict is sent as JSON, bytes as they are."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        said = {"Content-Type": "application/json"} if content is not None else {}
        said |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.url).netloc, timeout=30)
        connection.request(method, path, content, said)
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, named, response.read())
        connection.close()
        return answer

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.send("POST", path, body, **headers)

    def ask(self, study: str, context: Any, **headers: str) -> Answer:
        return self.post(f"/v1/studies/{study}/decisions", {"context": context}, **headers)


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/trial.db") as opened:
        yield opened


@pytest.fixture
def service(store):
    """A service over an empty store with one study, `trial`."""
    Study.create("trial", SPEC, storage=store, actor="tester")
    with running(store) as url:
        yield Caller(url)
