"""`python -m peers.serve MODULE`: a peer over lines of JSON on standard input and output, one learner for each seed.

→ {"problem": {"dim": 3, "threshold": 1.0, "risk": 0.05, "start": 0.1, "signed": false}, "seeds": [0, 1],
   "options": {"penalty": 3}}
← {"versions": {"vowpalwabbit": "9.11.9"}}           or {"missing": ["vowpalwabbit"]}
→ {"context": [[…], […]], "protocol": [0.5, 0.5]}
← {"setting": [0.3, 0.4]}
→ {"reward": [1.0, 0.0], "cost": [0.7, 1.2]}         no answer

Another problem may follow, with new learners: packages are slow to import. {} asks for the versions alone.
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
    found, learners, contexts, settings = versions(module.PACKAGES), [], np.empty((0, 0)), []
    for line in lines:
        given = json.loads(line)
        if "context" in given:
            contexts = np.array(given["context"])
            asked = zip(learners, contexts, given["protocol"], strict=True)
            settings = [learner.choose(context, protocol) for learner, context, protocol in asked]
            answer(out, {"setting": settings})
        elif "reward" in given:
            for learner, *round_ in zip(learners, contexts, settings, given["reward"], given["cost"], strict=True):
                learner.learn(*round_)
        else:
            if "problem" in given and "versions" in found:
                told = [Problem(seed=seed, **given["problem"]) for seed in given["seeds"]]
                learners = [module.Learner(problem, **given["options"]) for problem in told]
            answer(out, found)


def answer(out: Any, content: dict[str, Any]) -> None:
    out.write(json.dumps(content) + "\n")
    out.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
