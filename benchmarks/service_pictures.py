"""The pictures of the page in docs/: every view of a simulated study at 1280 pixels, and side by side at 390.

python -m benchmarks.service_pictures docs
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

SPEC: dict[str, Any] = {
    **{"guarantee": "bracket", "threshold": 20, "violation_risk": 0.1, "fallback_action": 500},
    "policy": {
        **{"name": "hp_shield", "base": "protocol", "chooser": "request", "start_scale": 0.5},
        "growth": {"growth": "relative", "low": 0.7, "high": 1.4, "floor": 1},
    },
    "dial": {"high": 4000, "unit": "mg/day"},
    "features": {
        "names": ["protocol", "weight", "clearance"],
        "units": {"protocol": "mg/day", "weight": "kg", "clearance": "ml/min"},
    },
    "labels": {"cost": "trough", "cost_unit": "mg/l", "reward": "target attainment", "unit": "patient"},
    "guard": {"due_after": 24, "max_open_hours": 72, "stop": {"violations": 2, "of_last": 30}},
}
ROUNDS, STEP, COLOURS, TALLEST = 90, 3900.0, 128, 1500
OPEN, VOID, CORRECTED = (66, 68, 87, 88, 89), 40, 30


@contextmanager
def dated(days: float) -> Any:
    """The study's clock starts so many days ago; calling the result moves it on."""
    from safedial.study import transaction

    real, clock = transaction.now, [time.time() - 86_400 * days]

    def on(seconds: float) -> None:
        clock[0] = min(clock[0] + seconds, time.time() - 60)

    transaction.now = lambda: int(clock[0] * 1e6)
    yield on
    transaction.now = real


def fill(store: Any) -> Any:
    """A few days of a ward."""
    from safedial.study.study import Study

    random = np.random.default_rng(3)
    with dated(5.2) as wait:
        study = Study.create("vancomycin", SPEC, storage=store, actor="dr.weber")
        for number in range(ROUNDS):
            wait(STEP)
            weight, clearance = round(float(random.uniform(50, 100)), 1), round(float(random.uniform(30, 120)))
            protocol = round(2.5 * clearance) * 10 + 300
            proposal = round(protocol * float(random.uniform(0.7, 1.3)) / 50) * 50
            who = {"unit": f"P-{number % 18:02d}", "visit": f"day {number // 18 + 1}", "actor": "ward 3"}
            made = study.ask({"protocol": protocol, "weight": weight, "clearance": clearance}, proposal=proposal, **who)
            trough = 11 * made.action / protocol * float(random.lognormal(0, 0.25))
            wait(600)
            if number == VOID:
                study.void(made.id, reason="sample lost by the courier", unrelated=True, actor="lab")
            elif number not in OPEN:
                trough = 21.5 if number in (52, 53) else round(trough, 1)
                study.tell(made.id, reward=round(min(1.0, trough / 12), 2), cost=trough, actor="lab")
            if number == CORRECTED:
                study.correct(made.id, cost=9.9, reason="read from the wrong line", actor="lab")
            if study.status()["stop_reason"]:
                wait(1800)
                study.resume("levels checked by hand, assay recalibrated", actor="dr.weber")
    return study


def picture(browser: Any, address: str, width: int, *, dark: bool = False) -> Image.Image:
    """A view from its top, not taller than `TALLEST`."""
    browser.look(width, 900, dark=dark, phone=width < 500)
    browser.open(address)
    browser.until("document.body.dataset.seq && document.getElementById('live').className.endsWith('on')")
    height = browser.run("document.documentElement.scrollHeight")
    browser.look(width, min(height, TALLEST), dark=dark, phone=width < 500)
    time.sleep(0.5)
    with tempfile.TemporaryDirectory() as folder:
        browser.picture(Path(folder) / "view.png")
        return Image.open(io.BytesIO((Path(folder) / "view.png").read_bytes())).convert("RGB")


def save(image: Image.Image, path: Path) -> None:
    image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    print(f"{path}: {image.width} x {image.height}, {path.stat().st_size / 1000:.0f} kB")


def main(folder: Path) -> None:
    from safedial.service.server import running
    from safedial.study.store import Store
    from tests.service.browser import Browser

    browser = Browser()
    with tempfile.TemporaryDirectory() as place, Store(f"sqlite:///{place}/trial.db") as store:
        study = fill(store)
        lowered = [
            row for row in study.rows() if row.get("proposal_answer") == "lowered" and row["guarantee"] == "bracket"
        ]
        name = "vancomycin"
        views = {"now": name, "patients": f"{name}:units", "patient": f"{name}/P-06", "health": f"{name}:health"}
        views |= {"audit": f"{name}:trail", "certificate": lowered[-1]["decision_id"]}
        with running(store) as url:
            for view, place in views.items():
                save(picture(browser, f"{url}/#{place}", 1280), folder / f"service_{view}.png")
            save(picture(browser, f"{url}/#{views['now']}", 1280, dark=True), folder / "service_dark.png")
            phones = [picture(browser, f"{url}/#{place}", 390) for place in views.values()]
    browser.close()
    sheet = Image.new("RGB", (sum(each.width + 10 for each in phones), max(each.height for each in phones)), "#888")
    for number, each in enumerate(phones):
        sheet.paste(each, (400 * number, 0))
    save(sheet, folder / "service_phone.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
