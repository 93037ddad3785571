"""`make soak`: kill -9 a thousand times, run for long with missing outcomes and corrections, and be attacked.

    make soak                                      the whole of it
    make soak KILLS=20 MINUTES=1 DECISIONS=5000    a small form

| part | what it does | what must be true |
|---|---|---|
| kills | clients ask, tell, correct, void and amend over HTTP; services (one on SQLite, two on PostgreSQL) are killed \
at random; a new store every 50 kills | nothing acknowledged is lost, `verify` is green after each kill, the last \
event that each client saw is on the chain |
| drift | 5 % of the outcomes stay missing, 3 % are corrected | operations/s at the end >= 90 % of the start's; \
memory; restart and `verify` at 10^5 decisions with 1,000 corrections |
| attack | 1,100 half-open connections, 64 MB of headers, 10^5 wrong keys | the deciders' p99 within 3 times of alone; \
memory bounded |

Each part's figures are written to results/soak/report.json as soon as they are known. A run that was interrupted goes
on where it stopped when it is started again with the same options; `--again` starts anew.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import soak_attack, soak_drift
from safedial.io import write_json
from tests.study.killing import kill_at_random
from tests.study.postgres import Server

STORE_KILLS = 50
PARTS = ("kills", "drift", "attack")


def stores(kills: int) -> list[tuple[str, int]]:
    """(database, kills) of each store, half of the kills on either database.

    >>> stores(120)
    [('sqlite', 50), ('postgresql', 50), ('sqlite', 10), ('postgresql', 10)]
    """
    halves = {"sqlite": kills // 2, "postgresql": kills - kills // 2}
    found = []
    while any(halves.values()):
        for name, left in halves.items():
            if left:
                found.append((name, min(left, STORE_KILLS)))
                halves[name] -= found[-1][1]
    return found


def kill_store(name: str, kills: int, seed: int, server: Server | None, label: str) -> dict[str, Any]:
    """One store's kills. Its folder is deleted unless something was lost."""
    folder = Path(tempfile.mkdtemp(prefix="safedial-soak-"))
    url = f"sqlite:///{folder}/trial.db" if server is None else server.url()
    done, started = 0, time.monotonic()

    def after(acknowledged: int) -> None:
        nonlocal done
        done += 1
        if done % 10 == 0 or done == kills:
            seconds = time.monotonic() - started
            print(
                f"  {label}: {done} of {kills} kills, {acknowledged:,} acknowledged, 0 lost, {seconds:.0f} s",
                flush=True,
            )

    workers = 1 if server is None else 2
    try:
        acknowledged = kill_at_random(
            url, folder, kills=kills, workers=workers, seed=seed, served=True, longest=0.5, after=after
        )
    except AssertionError:
        print(f"  {label}: FAILED; the store and what was acknowledged are in {folder} ({url})", flush=True)
        raise
    shutil.rmtree(folder)
    return {
        "database": name,
        "kills": kills,
        "acknowledged": acknowledged,
        "lost": 0,
        "seed": seed,
        "seconds": time.monotonic() - started,
    }


def run_kills(options: argparse.Namespace, report: dict[str, Any], save: Any) -> None:
    done = report.setdefault("kills", [])
    wanted = stores(options.kills)
    print(f"Kills: {options.kills} in {len(wanted)} stores, {sum(each['kills'] for each in done)} done", flush=True)
    server = Server() if any(name == "postgresql" for name, _ in wanted[len(done) :]) else None
    try:
        for number in range(len(done), len(wanted)):
            name, kills = wanted[number]
            label = f"store {number + 1} of {len(wanted)}, {name}"
            where = server if name == "postgresql" else None
            done.append(kill_store(name, kills, options.seed + number, where, label))
            save()
    finally:
        if server is not None:
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=20.0, help="of missing outcomes and corrections")
    parser.add_argument("--decisions", type=int, default=100_000, help="in the log that is restarted and verified")
    parser.add_argument("--attack-seconds", type=float, default=20.0, help="of each attack, and of none; at least")
    parser.add_argument("--wrong-keys", type=int, default=100_000)
    parser.add_argument("--keep-open", action="store_true", help="missing outcomes are never declared lost")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("results/soak"))
    parser.add_argument("--again", action="store_true", help="forget an earlier run with the same options")
    options = parser.parse_args()
    file = options.out / "report.json"
    asked = {name: value for name, value in vars(options).items() if name not in ("out", "again", "parts")}
    report: dict[str, Any] = {"options": asked}
    if file.exists() and not options.again:
        before = json.loads(file.read_text())
        report = before if before["options"] == asked else report
    options.out.mkdir(parents=True, exist_ok=True)

    def save() -> None:
        write_json(file, report)

    try:
        if "kills" in options.parts:
            run_kills(options, report, save)
            save()
        for name, part in (("drift", soak_drift), ("attack", soak_attack)):
            if name in options.parts and name not in report:
                report[name] = part.run(options)
                save()
    except KeyboardInterrupt:
        raise SystemExit(f"\nInterrupted. The same command goes on; what is done is in {file}.") from None
    print(f"Written:\n  {file}")


if __name__ == "__main__":
    main()
