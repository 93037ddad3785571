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
    "overdue": "Decisions whose outcome is overdue.",
    "void": "Rounds without an outcome that counts.",
    "unwatched": "Rounds that ended without an outcome that the watch can count.",
    "resumes": "How often a person cleared an alarm.",
    "stopped": "1 while the guard advises the fallback.",
    "evidence": "Evidence that the promise is broken: 1 at the start.",
}


class Metrics:
    """One registry per process; no label holds a value from a request."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        more = {"registry": self.registry}
        self.requests = prometheus.Counter(
            "safedial_requests", "Requests answered.", ["method", "route", "status"], **more
        )
        self.seconds = prometheus.Histogram(
            "safedial_request_seconds", "Seconds until the answer.", ["route"], buckets=SECONDS, **more
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

    def text(self, studies: dict[str, dict[str, Any]]) -> bytes:
        """The worker's metrics and those of the given studies, which the caller may see."""
        registry = prometheus.CollectorRegistry()
        for gauge, words in GAUGES.items():
            made = prometheus.Gauge(f"safedial_study_{gauge}", words, ["study"], registry=registry)
            for name, counts in studies.items():
                value = float(bool(counts["stop_reason"])) if gauge == "stopped" else counts[gauge]
                if value is not None:
                    made.labels(name).set(value)
        return prometheus.generate_latest(self.registry) + prometheus.generate_latest(registry)
