"""`make bench-service`, second part: the operator page on a long log, and what readers of it cost a writer.

Cold is the first look after the service has started, when the whole log has to be read; warm is every later one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
from service_load import SPEC, TRUTH, contexts, load, report, serving

sys.path.insert(0, str(Path(__file__).parents[1]))


def fill(storage: str, decisions: int) -> None:
    """A study with so many decisions, each with its outcome but the last hundred."""
    from safedial.study import Store, create_study

    with Store(storage) as store:
        study = create_study("long", SPEC, storage=store)
        drawn = contexts(decisions, 3)
        units = np.array(drawn) @ TRUTH + 0.2 * np.random.default_rng(4).standard_normal((decisions, 2))
        for first in range(0, decisions, 250):
            made = [study.ask(context, wait=False) for context in drawn[first : first + 250]]
            told = []
            for number, asked in enumerate(made, first):
                decision = asked.result()
                reward, cost = (decision.intensity * units[number]).tolist()
                if number < decisions - 100:
                    told.append(study.tell(decision.id, reward=reward, cost=cost, wait=False))
            for each in told:
                each.result()


def seconds_of(url: str) -> float:
    started = time.perf_counter()
    with urllib.request.urlopen(url, timeout=120) as answer:  # noqa: S310 -- our own server
        json.loads(answer.read())
    return time.perf_counter() - started


def paint(url: str) -> float:
    """Milliseconds from the start of the navigation until the page has drawn its numbers and charts."""
    from tests.service.browser import Browser

    browser = Browser()
    try:
        browser.look(1280, 1100)
        browser.open(url)
        return float(browser.until("document.body.dataset.painted", seconds=120))
    finally:
        browser.close()


async def polled(port: int, path: str, *, readers: int, seconds: float) -> None:
    """So many open pages, each looking every two seconds."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        await asyncio.gather(*(asyncio.to_thread(seconds_of, f"http://127.0.0.1:{port}{path}") for _ in range(readers)))
        await asyncio.sleep(2.0)


async def both(port: int, *, readers: int, seconds: float) -> dict[str, float]:
    watching = asyncio.create_task(polled(port, "/v1/studies/long/series?points=160", readers=readers, seconds=seconds))
    row = await load([port], "long", seconds=seconds, connections=16, tell=True)
    await watching
    return row


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{folder}/long.db"
        print(f"\nThe operator page, {options.decisions:,} decisions (filling the log takes a while)", flush=True)
        fill(storage, options.decisions)
        series = "/v1/studies/long/series?points=160"
        with serving(storage) as port:
            print(f"  first look after the start, page painted   {paint(f'http://127.0.0.1:{port}/#long'):>9,.0f} ms")
        with serving(storage) as port:
            started = time.perf_counter()
            while not json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}{series}").read())["complete"]:
                time.sleep(0.05)
            cold = time.perf_counter() - started
            warm = min(seconds_of(f"http://127.0.0.1:{port}{series}") for _ in range(5))
            print(f"  the whole log read, after the start        {1e3 * cold:>9,.0f} ms")
            print(f"  its data: warm                             {1e3 * warm:>9,.0f} ms")
            print(f"  page painted, warm                         {paint(f'http://127.0.0.1:{port}/#long'):>9,.0f} ms")
            print(f"\nA writer beside readers\n  {'':44} {'per s':>8} {'p50 ms':>9} {'p99 ms':>9}")
            asyncio.run(both(port, readers=0, seconds=2.0))
            for _ in range(2):
                for readers in (0, 3):
                    row = asyncio.run(both(port, readers=readers, seconds=options.seconds))
                    report(f"decisions with outcomes, {readers} open pages", row)
