"""Prometheus metrics of one worker: requests by route and status, time to answer, and each study's state."""

from __future__ import annotations

from typing import Any

from safedial.errors import import_extra
from safedial.version import __version__

prometheus = import_extra("prometheus_client", "service")

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
GAUGES = {
    "decisions": "Decisions made.",
    "outcomes": "Outcomes known.",
    "violations": "Outcomes with a cost above the threshold.",
    "open": "Decisions that wait for an outcome.",
    "void": "Rounds without an outcome that counts.",
    "stopped": "1 while the guard advises the fallback.",
}


class Metrics:
    """One registry a process; no label holds a value of a request."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        more = {"registry": self.registry}
        self.requests = prometheus.Counter(
            "safedial_requests", "Requests answered.", ["method", "route", "status"], **more
        )
        self.seconds = prometheus.Histogram(
            "safedial_request_seconds", "Seconds until the answer.", ["route"], buckets=SECONDS, **more
        )
        self.studies = {
            name: prometheus.Gauge(f"safedial_study_{name}", words, ["study"], **more) for name, words in GAUGES.items()
        }
        self.evidence = prometheus.Gauge(
            "safedial_study_evidence", "Evidence that the promise is broken: 1 at the start.", ["study"], **more
        )
        prometheus.Gauge("safedial_info", "The version.", ["version"], **more).labels(__version__).set(1)
        self._known: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        known = self._known.get((method, route, status))
        if known is None:
            labels = self.requests.labels(method, route, str(status)), self.seconds.labels(route)
            known = self._known[method, route, status] = labels
        known[0].inc()
        known[1].observe(seconds)

    def study(self, name: str, counts: dict[str, Any]) -> None:
        for gauge in GAUGES:
            value = counts[gauge]
            self.studies[gauge].labels(name).set(float(bool(value)) if gauge == "stopped" else value)
        if counts["evidence"] is not None:
            self.evidence.labels(name).set(counts["evidence"])

    def text(self) -> bytes:
        return prometheus.generate_latest(self.registry)
