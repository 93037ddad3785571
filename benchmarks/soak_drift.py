"""Part of `make soak`: does a study with missing outcomes and corrections keep its speed, its memory and its start?"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import psutil

from benchmarks.service_load import SPEC, TRUTH, Wire, contexts, memory_mb, post, serving
from safedial.service.client import Client
from safedial.study.store import Store
from safedial.study.study import Study
from safedial.study.verify import verify_study

MISSING, CORRECTED, GIVEN_UP = 0.05, 0.03, 25
"""The shares of outcomes, and after how many further missing ones a caller declares one lost, as people do: until then
the rounds after it wait to be learned from.
"""

CONNECTIONS, BATCH, CORRECTIONS, RECENT = 8, 250, 1_000, 200
"""A correction is of one of so many `RECENT` outcomes of the caller, since the log is replayed from before it."""

RESTART = """
import sys, time
from safedial.study.store import Store
from safedial.study.study import Study
started = time.perf_counter()
with Store(sys.argv[1]) as store:
    Study.open("long", storage=store).ask([0.1] * 16)
    print(time.perf_counter() - started)
"""


def run(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="safedial-soak-") as folder:
        given_up = 10**9 if options.keep_open else GIVEN_UP
        found = drift(f"sqlite:///{folder}/drift.db", 60.0 * options.minutes, options.seed, given_up)
        return found | restart(f"sqlite:///{folder}/long.db", options.decisions, options.seed)


def drift(storage: str, seconds: float, seed: int, given_up: int) -> dict[str, Any]:
    """Operations a second, the service's memory and its processor time, in 40 windows."""
    print(f"Drift: {seconds / 60:g} minutes, {MISSING:.0%} missing, {CORRECTED:.0%} corrected", flush=True)
    with serving(storage) as port:
        server = next(each for each in psutil.Process().children() if "serve" in each.cmdline())
        client = Client(f"http://127.0.0.1:{port}", timeout=30)
        client.create_study("drift", SPEC)
        windows = asyncio.run(_play(port, seconds, seed, server, given_up))
        state = client.study("drift")
        client.close()
    memory, edge = [each["memory_mb"] for each in windows], max(1, len(windows) // 10)
    (start, end), (early, late) = (
        [float(np.mean([each[name] for each in part])) for part in (windows[1 : 1 + edge], windows[-edge:])]
        for name in ("operations_per_second", "processor_us")
    )
    found = {
        "decisions": state["decisions"],
        "events": state["seq"],
        "stopped": state["stop_reason"],
        "operations_per_second_start": start,
        "operations_per_second_end": end,
        "end_over_start": end / start,
        "processor_us_start": early,
        "processor_us_end": late,
        "memory_mb_start": memory[1],
        "memory_mb_end": memory[-1],
        "windows": windows,
    }
    print(
        f"  {start:,.0f} operations/s at the start, {end:,.0f} at the end ({end / start:.0%}); "
        f"{early:.0f} to {late:.0f} us of processor time each; memory {memory[1]:.0f} to {memory[-1]:.0f} MB; "
        f"{state['decisions']:,} decisions",
        flush=True,
    )
    return found


async def _play(port: int, seconds: float, seed: int, server: psutil.Process, given_up: int) -> list[dict[str, float]]:
    counts = [0]
    end = time.perf_counter() + seconds
    playing = asyncio.gather(*(_connection(port, end, seed + n, counts, given_up) for n in range(CONNECTIONS)))
    windows, length, before, at, used = [], seconds / 40.0, 0, time.perf_counter(), processor_seconds(server)
    while not playing.done() and len(windows) < 40:
        await asyncio.wait([playing], timeout=length)
        now, done, spent = time.perf_counter(), counts[0], processor_seconds(server)
        windows.append(
            {
                "operations_per_second": (done - before) / (now - at),
                "processor_us": 1e6 * (spent - used) / max(1, done - before),
                "memory_mb": memory_mb(server),
            }
        )
        before, at, used = done, now, spent
        if len(windows) % 4 == 0:
            last = windows[-1]
            print(
                f"  {len(windows) / 40:.0%}: {last['operations_per_second']:,.0f} operations/s, "
                f"{last['memory_mb']:.0f} MB",
                flush=True,
            )
    await playing
    return windows


def processor_seconds(process: psutil.Process) -> float:
    """What a process has used, which other processes on the machine change less than the time on the clock."""
    times = process.cpu_times()
    return times.user + times.system


async def _connection(port: int, end: float, seed: int, counts: list[int], given_up: int) -> None:
    """Ask and tell, one request after the other; some outcomes never come, some are corrected."""
    rng, drawn = np.random.default_rng(seed), contexts(1000, seed)
    units = np.array(drawn) @ TRUTH + 0.2 * rng.standard_normal((len(drawn), 2))
    _, wire = await asyncio.get_running_loop().create_connection(Wire, "127.0.0.1", port)
    told: list[tuple[str, float, float]] = []
    missing: list[str] = []

    async def call(path: str, body: dict[str, Any]) -> dict[str, Any]:
        status, answer = await wire.call(post(path, json.dumps(body).encode()))
        if status not in (200, 201):
            raise SystemExit(f"the service answered {status}: {answer[:300]!r}")
        counts[0] += 1
        return json.loads(answer)

    number = 0
    while time.perf_counter() < end:
        row = number % len(drawn)
        number += 1
        said = await call("/v1/studies/drift/decisions", {"context": drawn[row]})
        if rng.random() >= MISSING:
            reward, cost = (said["intensity"] * units[row]).tolist()
            await call(f"/v1/decisions/{said['id']}/outcome", {"reward": reward, "cost": cost})
            told.append((said["id"], reward, cost))
        else:
            missing.append(said["id"])
        if len(missing) > given_up:
            await call(f"/v1/decisions/{missing.pop(0)}/void", {"reason": "never reported", "unrelated": True})
        if told and rng.random() < CORRECTED:
            which, reward, cost = told[-int(rng.integers(1, 1 + min(RECENT, len(told))))]
            fixed = {"reward": reward, "cost": cost * float(rng.uniform(0.9, 1.1)), "reason": "typing error"}
            await call(f"/v1/decisions/{which}/correction", fixed)
    wire.transport.close()


def restart(storage: str, decisions: int, seed: int) -> dict[str, Any]:
    """A log of so many decisions, 5 % of them open, and a thousand corrections: its start and its verification."""
    print(
        f"Restart: a log of {decisions:,} decisions with {min(CORRECTIONS, decisions // 10):,} corrections", flush=True
    )
    _fill(storage, decisions, seed)
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", RESTART, storage]
    times = [
        float(subprocess.run(words, capture_output=True, text=True, check=True, env=one_thread).stdout)  # noqa: S603 -- fixed words
        for _ in range(3)
    ]
    with Store(storage) as store:
        started = time.perf_counter()
        report = verify_study(store, "long")
        if not report.ok:
            raise SystemExit(f"verify: {report}")
        rate = report.events / (time.perf_counter() - started)
    print(
        f"  first decision after {np.median(times):.2f} s; {report.events:,} events verified, {rate:,.0f}/s", flush=True
    )
    return {"restart_seconds": times, "long_events": report.events, "verified_events_per_second": rate}


def _fill(storage: str, decisions: int, seed: int) -> None:
    rng, fixes = np.random.default_rng(seed), min(CORRECTIONS, decisions // 10)
    drawn = contexts(1000, seed)
    units = (np.array(drawn) @ TRUTH + 0.2 * rng.standard_normal((len(drawn), 2))).tolist()
    told: list[tuple[str, float]] = []
    lost: list[str] = []
    with Store(storage) as store:
        study = Study.create("long", SPEC, storage=store)
        for first in range(0, decisions, BATCH):
            rows = [row % len(drawn) for row in range(first, min(first + BATCH, decisions))]
            made = [each.result() for each in [study.ask(drawn[row], wait=False) for row in rows]]
            known = [
                (each.id, each.intensity * units[row][0], each.intensity * units[row][1])
                for each, row in zip(made, rows, strict=True)
                if rng.random() >= MISSING
            ]
            for receipt in [study.tell(name, reward=reward, cost=cost, wait=False) for name, reward, cost in known]:
                receipt.result()
            told += [(name, cost) for name, _, cost in known]
            lost += [each.id for each in made if each.id not in {name for name, *_ in known}]
            while len(lost) > GIVEN_UP:
                study.void(lost.pop(0), reason="never reported", unrelated=True, wait=False)
            for _ in range(fixes * (first + len(rows)) // decisions - fixes * first // decisions):
                which, cost = told[-int(rng.integers(1, 1 + min(RECENT, len(told))))]
                study.correct(which, cost=cost * float(rng.uniform(0.9, 1.1)), reason="typing error")
            if (first // BATCH) % 40 == 39:
                print(f"  {first + len(rows):,} decisions", flush=True)
