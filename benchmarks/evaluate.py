"""How long `safedial.evaluate` takes on long logs: `python -m benchmarks.evaluate [ROUNDS] [DIM]`.

Prints the processor seconds for reading the log as CSV, and for each policy and engine on the log in memory.
"""

import sys
import tempfile
import time
from itertools import zip_longest
from pathlib import Path

import numpy as np

from safedial import SafetySpec, evaluate, read_log
from safedial.rounds.log_file import Log, log_text

SPEC = SafetySpec(
    threshold=0.5, total_risk=0.05, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1
)


def random_log(rounds: int, dim: int) -> Log:
    """A log at random doses, linear mean, Gaussian noise."""
    rng = np.random.default_rng(0)
    context = rng.standard_normal((rounds, dim))
    context /= np.linalg.norm(context, axis=1, keepdims=True)
    truth = rng.standard_normal((2, dim))
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    dose = rng.uniform(0.1, 0.6, rounds)
    reward, cost = dose * (truth @ context.T + 0.3 * rng.standard_normal((2, rounds)))
    names = tuple(f"x{number}" for number in range(1, dim + 1))
    nothing = np.zeros(rounds)
    parts = {"reward": reward, "cost": cost, "round": np.arange(1.0, rounds + 1), "advised": nothing * np.nan}
    return Log(names=names, context=context, action=dose, baseline_cost=nothing, **parts)


def main() -> None:
    rounds, dim = (int(given) if given else usual for given, usual in zip_longest(sys.argv[1:3], (100_000, 26)))
    log = random_log(rounds, dim)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        path.write_text(log_text(log), encoding="utf-8")
        started = time.process_time()
        read_log(path)
        print(f"read {rounds:,} rounds of dimension {dim} as CSV: {time.process_time() - started:.1f} s")
    for policy, engine in (("hp_ucb", "auto"), ("hp_probe", "auto"), ("hp_probe", "agent")):
        started = time.process_time()
        found = evaluate(log, policy, spec=SPEC, engine=engine)
        summary = found.table()[1]
        print(
            f"{policy}, {summary['engine']}: {time.process_time() - started:.1f} s, {summary['violations']} violations"
        )


if __name__ == "__main__":
    main()
