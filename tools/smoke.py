"""What an installed safedial must do at the least, from outside the source tree: the core, and what an extra adds.

python -I tools/smoke.py [EXTRA]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np

import safedial
from safedial import Agent, Dial, Features, LinearWorld, SafetySpec, growth, make_policy, simulate
from safedial.rounds.specfile import EXAMPLE

SPEC = SafetySpec(
    threshold=0.5, total_risk=0.02, reward_noise=0.3, cost_noise=0.3, coefficient_bound=1, context_bound=1
)
GRID = """
[sweep]
name = "smoke"
rounds = 20
seeds = 2
[[policy]]
name = "hp_ucb"
[world]
dim = 2
[spec]
"""


def command(*words: object) -> str:
    """What `safedial WORDS` prints."""
    program = Path(sys.executable).with_name("safedial")
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True).stdout


def core(folder: Path) -> str:
    assert Path(safedial.__file__).is_relative_to(sys.prefix), safedial.__file__
    policy = make_policy("hp_shield", base="protocol", growth=growth.relative(0.7, 1.4, floor=0.5), start_scale=0.25)
    rules = {"dial": Dial(high=4000, unit="mg"), "features": Features(names=("protocol",))}
    agent = Agent(1, SafetySpec(threshold=20, violation_risk=0.05, guarantee="bracket"), policy=policy, **rules)
    decision = agent.ask({"protocol": 2000})
    agent.tell(decision, reward=0.0, cost=3.0)
    agent.save(folder / "agent.save")
    again = Agent.load(folder / "agent.save")
    assert again.ask({"protocol": 2000}).action == agent.ask({"protocol": 2000}).action
    assert decision.action == 500, decision
    assert command("--version") == f"safedial {safedial.__version__}\n"
    assert "study" in command("--help")
    words = ("--policy", "hp_probe", "--dim", "2", "--threshold", "0.5", "--rounds", "50", "--seeds", "2", "--json")
    assert "violation_rate" in command("simulate", *words)
    return f"a decision of {decision.action:g} mg, saved and loaded; --help; simulate"


def plot(folder: Path) -> str:
    (folder / "spec.toml").write_text(EXAMPLE)
    spec = ("--spec", folder / "spec.toml")
    command("simulate", "--policy", "hp_probe", *spec, "--rounds", "60", "--seeds", "1", "--log", folder / "log.csv")
    command("monitor", folder / "log.csv", *spec, "--out", folder / "evidence.png")
    assert (folder / "evidence.png").read_bytes().startswith(b"\x89PNG")
    return "a picture of the evidence"


def data(folder: Path) -> str:
    table = simulate("hp_probe", LinearWorld(dim=2), SPEC, rounds=20, seeds=3).frame()
    table.to_parquet(folder / "table.parquet")
    assert len(table) == 3
    return "a table of 3 rows, as parquet"


def service(folder: Path) -> str:
    from safedial.service.client import Client
    from safedial.service.server import running
    from safedial.study.manage import create_study
    from safedial.study.store import Store

    with Store(f"sqlite:///{folder / 'trial.db'}") as store:
        study = create_study("infusion", SPEC, dim=2, fallback_action=0.0, storage=store, actor="smoke")
        decision = study.ask([0.6, 0.3])
        study.tell(decision.id, reward=0.1, cost=0.1)
        assert study.verify().ok
        with running(store) as address, closing(Client(address)) as client:
            advice = client.ask("infusion", [0.6, 0.3])
            client.tell(advice.id, reward=0.1, cost=0.1)
            report = client.verify("infusion")
    assert report["ok"], report
    assert not advice.fallback
    return "a study in Python and over HTTP, verified"


def dask(folder: Path) -> str:
    from distributed import LocalCluster

    from safedial.simulation.sweeps import parse_grid, run_sweep

    settings = "".join(f"{name} = {value}\n" for name, value in SPEC.to_dict().items() if isinstance(value, float))
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        state = run_sweep(
            parse_grid(GRID + settings), folder / "sweep", backend="dask", address=cluster.scheduler_address
        )
    assert state.complete
    return "a sweep on a cluster"


def jax(folder: Path) -> str:
    here, there = (
        simulate("hp_probe", LinearWorld(dim=2), SPEC, rounds=50, seeds=2, engine=engine) for engine in ("numpy", "jax")
    )
    assert np.allclose(here.reward, there.reward, rtol=1e-9)
    return "a simulation, compiled, with the rewards of NumPy's"


def gym(folder: Path) -> str:
    from safedial.simulation.gym import SafeDialEnv

    env = SafeDialEnv(LinearWorld(dim=2), SPEC, rounds=5)
    env.reset(seed=0)
    assert "violated" in env.step(np.array([0.2]))[4]
    return "a step of an environment"


ADDED = {each.__name__: each for each in (plot, data, service, dask, jax, gym)}


def main(extra: str = "") -> None:
    with tempfile.TemporaryDirectory() as folder:
        print("core:", core(Path(folder)))
        if extra:
            print(f"{extra}:", ADDED[extra](Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
