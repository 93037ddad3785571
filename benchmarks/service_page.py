"""`make bench-service`, second part: the operator page on a long log, and what readers of it cost a writer.

Cold is the first look after the service has started, when the whole log has to be read; warm is every later one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import uvloop
from service_load import SPEC, TRUTH, Wire, contexts, load, report, serving

sys.path.insert(0, str(Path(__file__).parents[1]))


def fill(storage: str, decisions: int) -> None:
    """A study with so many decisions, each with its outcome but the last hundred."""
    from safedial.study.store import Store
    from safedial.study.study import Study

    with Store(storage) as store:
        study = Study.create("long", SPEC, storage=store)
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


async def watched(port: int, pages: int, seconds: float) -> None:
    """So many open pages, each looking every two seconds, and one reader that goes through the log again and again."""
    loop, end = asyncio.get_running_loop(), time.perf_counter() + seconds

    async def look(number: int) -> None:
        _, wire = await loop.create_connection(Wire, "127.0.0.1", port)
        await asyncio.sleep(2.0 * number / pages)
        while time.perf_counter() < end:
            await wire.call(b"GET /v1/studies/long/series?points=160 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await asyncio.sleep(2.0)

    async def follow() -> None:
        _, wire = await loop.create_connection(Wire, "127.0.0.1", port)
        first = 1
        while time.perf_counter() < end:
            path = f"/v1/studies/long/events?from_seq={first}"
            _, answer = await wire.call(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            following = int(answer[answer.rindex(b":") + 1 : -1])
            first = following if following > first else 1

    await asyncio.gather(follow(), *(look(number) for number in range(pages)))


def watching(port: int, pages: int, seconds: float) -> None:
    asyncio.run(watched(port, pages, seconds))


def beside(port: int, *, pages: int, seconds: float) -> dict[str, float]:
    """The load on a service, alone or beside readers, which run in a process of their own."""
    words = (port, pages, seconds + 1.0)
    readers = multiprocessing.get_context("spawn").Process(target=watching, args=words) if pages else None
    if readers is not None:
        readers.start()
        time.sleep(1.0)
    try:
        return uvloop.run(load([port], "long", seconds=seconds, connections=16, tell=True))
    finally:
        if readers is not None:
            readers.join()


def page_speed(storage: str) -> None:
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


def readers_cost(storage: str, seconds: float) -> None:
    print(f"\nA writer beside readers\n  {'':44} {'per s':>8} {'p50 ms':>9} {'p99 ms':>9}")
    with serving(storage) as port:
        beside(port, pages=1, seconds=2.0)
        for _ in range(3):
            alone, among = (beside(port, pages=pages, seconds=seconds) for pages in (0, 12))
            report("decisions with outcomes, alone", alone)
            report("beside 12 open pages and a reader of events", among)
            print(f"  {'p50 beside them, times alone':44} {among['p50_ms'] / alone['p50_ms']:>18.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--only", choices=["page", "readers"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        storage = f"sqlite:///{folder}/long.db"
        print(f"\nThe operator page, {options.decisions:,} decisions (filling the log takes a while)", flush=True)
        fill(storage, options.decisions)
        if options.only != "readers":
            page_speed(storage)
        if options.only != "page":
            readers_cost(storage, options.seconds)
