"""`python -m peers.serve MODULE`: a peer over lines of JSON on standard input and output, one learner for each seed.

→ {"problem": {"dim": 3, "threshold": 1.0, "risk": 0.05, "start": 0.1, "signed": false}, "seeds": [0, 1],
   "options": {"penalty": 3}}
← {"versions": {"vowpalwabbit": "9.11.9"}}           or {"missing": ["vowpalwabbit"]}
→ {"context": [[…], […]], "protocol": [0.5, 0.5]}
← {"setting": [0.3, 0.4]}
→ {"reward": [1.0, 0.0], "cost": [0.7, 1.2]}         no answer
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from .base import Problem


def versions(packages: tuple[str, ...]) -> dict[str, Any]:
    """The versions of a peer's packages, or those that are missing."""
    found, missing = {}, []
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            missing.append(package)
    return {"missing": missing} if missing else {"versions": found}


def serve(name: str) -> None:
    module: Any = import_module(f".{name}", __package__)
    lines, out = sys.stdin, sys.stdout
    sys.stdout = sys.stderr  # what packages print is no answer
    first = json.loads(lines.readline())
    answer(out, found := versions(module.PACKAGES))
    if "missing" in found or "problem" not in first:
        return
    told = [Problem(seed=seed, **first["problem"]) for seed in first["seeds"]]
    learners = [module.Learner(problem, **first["options"]) for problem in told]
    contexts, settings = np.empty((0, 0)), []
    for line in lines:
        given = json.loads(line)
        if "context" in given:
            contexts = np.array(given["context"])
            asked = zip(learners, contexts, given["protocol"], strict=True)
            settings = [learner.choose(context, protocol) for learner, context, protocol in asked]
            answer(out, {"setting": settings})
        else:
            for learner, *round_ in zip(learners, contexts, settings, given["reward"], given["cost"], strict=True):
                learner.learn(*round_)


def answer(out: Any, content: dict[str, Any]) -> None:
    out.write(json.dumps(content) + "\n")
    out.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
