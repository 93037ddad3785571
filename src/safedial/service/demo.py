"""`safedial demo`: a simulated dosing clinic that uses the service over HTTP as a real one would.

Outcomes come late, a nurse lowers some doses, some values are corrected, some patients never come back. The clinic's
truth is linear in the context and its noise is Gaussian, so the guarantee's assumptions hold.
"""

from __future__ import annotations

import heapq
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from safedial.errors import require
from safedial.model.dose import hill
from safedial.service.client import Client, ServiceUnavailable
from safedial.service.server import running
from safedial.study.store import Store

NAME = "infusion"
SPEC: dict[str, Any] = {
    "threshold": 0.8,
    "violation_risk": 0.05,
    "estimation_risk": 0.01,
    "reward_noise": 0.15,
    "cost_noise": 0.15,
    "coefficient_bound": 1.0,
    "context_bound": 1.5,
    "dose": {"curve": "hill", "ed50": 0.6, "slope": 1.2},
    "dial": {"low": 0, "high": 20, "unit": "mg"},
    "features": {
        "names": ["age", "weight", "kidney"],
        "center": [55, 75, 80],
        "scale": [80, 80, 100],
        "intercept": True,
        "ranges": {"age": [18, 100], "weight": [30, 200], "kidney": [5, 150]},
        "units": {"age": "years", "weight": "kg", "kidney": "ml/min"},
    },
    "fallback_action": 1,
    "guard": {"max_open": 500, "max_void": 100_000, "max_step": 6, "due_after": 15 / 3600},
    "labels": {"cost": "sedation score", "reward": "relief score", "unit": "patient"},
}
BENEFIT = np.array([-0.35, 0.3, 0.1, 0.55])
HARM = np.array([0.3, -0.25, -0.3, 0.45])
BURST = 250
"""Patients who come at the start, so that the page has something to show."""


class Clinic:
    """Draws patients and their outcomes. `due` holds the reports still to be sent, by time."""

    def __init__(self, client: Client) -> None:
        self.client, self.random = client, np.random.default_rng(0)
        self.due: list[tuple[float, int, Callable[[], Any]]] = []
        self.count = self.visits = 0
        self.curve = hill(ed50=SPEC["dose"]["ed50"], slope=SPEC["dose"]["slope"])

    def patient(self, delay: float) -> None:
        """One patient: advice now, the outcome later."""
        draw = np.clip(self.random.standard_normal(3), -1.8, 1.8)
        raw = np.array(SPEC["features"]["center"]) + draw * np.array([15.0, 14.0, 18.0])
        self.visits += 1
        patient, ward = f"P-{self.random.integers(60):02d}", str(self.random.choice(["3a", "3b", "4"]))
        given = dict(zip(SPEC["features"]["names"], raw.round(1).tolist(), strict=True))
        advice = self.client.ask(NAME, given, unit=patient, visit=f"visit-{self.visits}", meta={"ward": ward})
        if advice.id is None or advice.certificate is None or advice.action <= 0.0:
            return
        context, chance = np.array(advice.certificate["context"]), self.random.random()
        applied = advice.action
        if chance < 0.08:
            applied = round(float(applied * self.random.uniform(0.3, 0.9)), 2)
        effect = float(self.curve.effect(applied / SPEC["dial"]["high"]))
        noise = SPEC["cost_noise"] * self.random.standard_normal(2)
        values = {
            "reward": round(float(effect * (context @ BENEFIT + noise[0])), 4),
            "cost": round(float(effect * (context @ HARM + noise[1])), 4),
            "applied_action": None if applied == advice.action else applied,
        }
        self.later(float(self.random.exponential(delay)), self.story(advice.id, values))

    def story(self, decision: str, values: dict[str, Any]) -> Callable[[], Any]:
        """The report: mostly the outcome; sometimes a wrong one first; sometimes that there is none."""
        chance = self.random.random()
        if chance < 0.01:
            return lambda: self.client.void(decision, reason="moved away before the visit", unrelated=True)
        if chance < 0.02:
            wrong = {**values, "cost": round(values["cost"] / 2, 4)}

            def mend() -> None:
                self.client.tell(decision, **wrong)
                fix = {"cost": values["cost"], "reason": "read from the wrong line"}
                self.later(2.0, lambda: self.client.correct(decision, **fix))

            return mend
        return lambda: self.client.tell(decision, **values)

    def later(self, seconds: float, act: Callable[[], Any]) -> None:
        self.count += 1
        heapq.heappush(self.due, (time.monotonic() + seconds, self.count, act))

    def report(self) -> None:
        """Send the reports that are due."""
        while self.due and self.due[0][0] <= time.monotonic():
            heapq.heappop(self.due)[2]()


def run_demo(
    say: Callable[[str], Any],
    *,
    port: int = 0,
    folder: Path | None = None,
    seconds: float | None = None,
    pace: float = 4.0,
) -> None:
    """Serve a new store and run the clinic until interrupted, or for the given number of seconds."""
    require(0 < pace <= 1000, "pace", pace, "must lie between 0 and 1000 patients per second")
    place = Path(tempfile.mkdtemp(prefix="safedial-demo-")) if folder is None else folder
    place.mkdir(parents=True, exist_ok=True)
    file = place / "demo.db"
    require(not file.exists(), "folder", str(place), "already holds a demo.db", "the demo needs a new one")
    storage = f"sqlite:///{file}"
    try:
        with Store(storage) as store, running(store, port=port) as url:
            client = Client(url, timeout=10)
            client.create_study(NAME, SPEC)
            say(f"The operator page: {url}/#{NAME}\nA simulated clinic uses the service; stop it with Ctrl-C.")
            try:
                _run(Clinic(client), seconds, pace)
            finally:
                client.close()
    finally:
        say(f"\nStopped. Everything is in {file}; look again with: safedial serve --storage {storage}")


def _run(clinic: Clinic, seconds: float | None, pace: float) -> None:
    end = None if seconds is None else time.monotonic() + seconds
    turn = time.monotonic()
    for number in range(10**9):
        if end is not None and time.monotonic() >= end:
            return
        try:
            clinic.patient(delay=0.05 if number < BURST else 3.0)
            clinic.report()
        except ServiceUnavailable:
            time.sleep(1.0)
        if number >= BURST:
            turn = max(turn, time.monotonic() - 1.0) + 1.0 / pace
            while (rest := turn - time.monotonic()) > 0:
                time.sleep(min(rest, 0.1))
                clinic.report()
