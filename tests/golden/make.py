"""Make golden answers: python -m tests.golden.make [NAME...] [--replace NAME]... [--robust] [--list]

Makes the answers that are missing, of all cases or of those named ("agents/ucb-paper"). An answer that is recorded
stays as it is, unless `--replace` names it: a golden number changes only where behaviour is meant to change, in a
commit of its own that says why (tests/golden/__init__.py). Each new answer must be robust: inputs that differ in the
twelfth digit move no number by more than the tests allow, and inputs that differ in the eighth change no choice.
`--robust` checks this for recorded cases too. A case that is not robust needs another seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.golden import adapter
from tests.golden.cases import agents, totals
from tests.golden.numbers import differences, dumped, plain
from tests.golden.rounds import played

FOLDER = Path(__file__).parent / "answers"
NEAR, FAR = 1e-12, 1e-8
"""By how much inputs are moved: by more than any processor does, and enough to show a choice that hangs on little."""
JUMP = 1e-4
"""Under the larger move, numbers may differ by so much."""
TABLE1 = ("ucb", "expectation")


def moved(stated, nudge):
    """What a simulation states, a little different: every float but risks and shares of them, which set ranks."""
    if isinstance(stated, dict):
        kept = ("risk", "share")
        return {
            name: value if any(each in name for each in kept) else moved(value, nudge) for name, value in stated.items()
        }
    if isinstance(stated, list):
        return [moved(value, nudge) for value in stated]
    return stated * (1.0 + nudge) if isinstance(stated, float) else stated


def total(name, nudge=0.0, engine="numpy"):
    case = totals.CASES[name]
    if nudge:
        worlds = {"context_bound": 1.0 + 3.0 * nudge} if "context_bound" in case["spec"] else {}
        case = {**case, "spec": moved(case["spec"], nudge) | worlds, "world": moved(case["world"], -0.7 * nudge)}
    return {"numbers": adapter.totals(case, engine=engine)}


def table1(name, nudge=0.0):
    return {"numbers": {"violations": adapter.table1(name, factor=1.0 + nudge)}}


KINDS = {
    "agents": (list(agents.CASES), lambda name, nudge=0.0: played(agents.CASES[name], nudge)),
    "totals": (list(totals.CASES), total),
    "table1": (list(TABLE1), table1),
}
"""Folder of answers → the names of its cases, and what answers one."""
NAMES = [f"{kind}/{name}" for kind, (names, _) in KINDS.items() for name in names]


def path_of(name):
    return FOLDER / f"{name}.json"


def answers(name, nudge=0.0):
    kind, case = name.split("/")
    return KINDS[kind][1](case, nudge)


def recorded(name):
    return json.loads(path_of(name).read_text())


def weakness(name, made):
    """Why a case is not robust; "" if it is."""
    told = json.loads(dumped(plain(made)))
    apart, where = differences(made, told)
    if apart > 0.2:
        return f"ten digits are not enough: {where}"
    for nudge, tolerance in ((NEAR, 1e-9), (-NEAR, 1e-9), (FAR, JUMP)):
        apart, where = differences(answers(name, nudge), told, tolerance)
        if apart > 1.0:
            return f"inputs {nudge:g} away move {where}"
    return ""


def main(arguments):
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--replace", action="append", default=[], metavar="NAME")
    parser.add_argument("--robust", action="store_true")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(arguments)
    if unknown := sorted({*given.names, *given.replace} - set(NAMES)):
        print(f"unknown: {', '.join(unknown)}")
        return 2
    if given.list:
        print(*NAMES, sep="\n")
        return 0
    failed = 0
    for name in given.names or given.replace or NAMES:
        failed += one(name, replace=name in given.replace, robust=given.robust)
    return 1 if failed else 0


def one(name, *, replace, robust):
    """Make, or check, one answer. Returns whether it failed."""
    start, place = time.process_time(), path_of(name)
    there = place.exists() and not replace
    if there and not robust:
        return False
    made = answers(name)
    if there:
        apart, where = differences(made, recorded(name))
        if apart > 1.0:
            print(f"{name}: differs from what is recorded, {where}; --replace {name} where this is meant")
            return True
    if reason := weakness(name, made):
        print(f"{name}: not robust, {reason}", flush=True)
        return True
    if not there:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(dumped(plain(made)))
    print(f"{name}: {'checked' if there else 'made'}, {time.process_time() - start:.1f} s", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
