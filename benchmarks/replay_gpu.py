"""The GPU table of docs/replay.md: `python3 benchmarks/replay_gpu.py --out FOLDER`, from a checkout or installed.

Needs numpy, scipy and a JAX that sees a GPU (`--device cpu --small` tries the script without one). What it does:

1. answers: engine "jax" against the CPU's "blocked", both kernels, both precisions, small d;
2. times d = 2048, 65,536 rounds, for blocks × runs × warps, plain and fused: the best of `--repeats` warm calls, with
   contexts on the device (`resident`); compilation is in the first call, which is timed apart;
3. the same once with contexts in host memory, copied while the device works (`streamed`);
4. what the time is spent on: a matrix product of 2048³, a block's d×d products alone, the sequential kernel alone;
5. the paper's way, a fresh Cholesky factor and two triangular solves each round, on a few rounds;
6. the paper's experiment, 100,000 rounds at d = 2051.

Prints a markdown table and writes `replay_gpu.json`. A part that fails is reported, and the rest runs.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import traceback
import types
from functools import partial
from pathlib import Path

import numpy as np

try:
    import array_api_compat  # noqa: F401 -- only to see whether it is there
except ModuleNotFoundError:
    shim = types.ModuleType("array_api_compat")
    setattr(shim, "array_namespace", lambda *_: __import__("jax.numpy", fromlist=["numpy"]))  # noqa: B010 -- a module's attribute
    sys.modules["array_api_compat"] = shim
try:
    import safedial
except ModuleNotFoundError:
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    import safedial

import jax
import jax.numpy as jnp

from safedial import replay
from safedial.simulation import jax_blocked, jax_replay

# Written out, as benchmarks would ask for more packages than a GPU machine may have.
SPEC = safedial.SafetySpec(
    threshold=0.5,
    violation_risk=0.01,
    estimation_risk=0.01,
    reward_noise=1,
    cost_noise=1,
    coefficient_bound=1,
    context_bound=1,
)
POLICY = safedial.hp_ucb()


def host_rounds(count, dim, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((count, dim), dtype=np.float32).astype(dtype)
    contexts /= np.sqrt(np.einsum("ij,ij->i", contexts, contexts))[:, None] * dtype(1.0 + 1e-6)
    return contexts, *rng.standard_normal((2, count))


def device_rounds(count, dim, dtype, device):
    with jax.default_device(device):
        contexts = jax.random.normal(jax.random.key(0), (count, dim), dtype)
        contexts = contexts / (jnp.linalg.norm(contexts, axis=1, keepdims=True) * (1.0 + 1e-6))
        contexts.block_until_ready()
    return contexts, *np.random.default_rng(0).standard_normal((2, count))


def answers(options):
    """Largest difference in actions from the CPU's blocked engine, over a few dimensions."""
    rows = []
    quiet = safedial.SafetySpec(
        threshold=0.3,
        violation_risk=0.01,
        estimation_risk=0.01,
        reward_noise=0.05,
        cost_noise=0.05,
        coefficient_bound=1,
        context_bound=1,
        ridge=0.1,
    )
    for dim, count in ((24, 3000), (130, 2500)):
        contexts, rewards, costs = host_rounds(count, dim)
        truth = np.random.default_rng(1).standard_normal((2, dim)) / np.sqrt(dim)
        rewards, costs = truth @ contexts.T + 0.05 * np.stack([rewards, costs])
        slow = replay(POLICY, contexts, rewards, costs, quiet)
        for form in options.forms:
            for dtype in ("float64", "float32"):
                given = {"engine": "jax", "device": options.device, "kernel": form, "dtype": dtype}
                fast = replay(POLICY, contexts, rewards, costs, quiet, **given)
                rows.append(
                    {
                        "dim": dim,
                        "rounds": count,
                        "kernel": fast.kernel,
                        "dtype": dtype,
                        "max_action_difference": float(np.abs(fast.intensity - slow.intensity).max()),
                        "share_above_1e-3": float(np.mean(np.abs(fast.intensity - slow.intensity) > 1e-3)),
                        "closest_to_the_switch": float(np.abs(slow.reward_index).min()),
                        "refused_rounds": int((slow.intensity == 0).sum()),
                    }
                )
                print(rows[-1], flush=True)
    return rows


def timed(rounds, options, **given):
    """(µs a round warm, seconds of the first call, outcome) of one setting."""
    started = time.perf_counter()
    outcome = replay(POLICY, *rounds, SPEC, engine="jax", device=options.device, **given)
    first = time.perf_counter() - started
    warm = []
    for _ in range(options.repeats):
        started = time.perf_counter()
        replay(POLICY, *rounds, SPEC, engine="jax", device=options.device, **given)
        warm.append(time.perf_counter() - started)
    return min(warm) / len(rounds[1]) * 1e6, first, outcome


def table(options, device):
    """Blocks × runs × warps, plain and fused, both precisions, contexts on the device."""
    rows = []
    settings = [(form, *sizes) for form in options.forms for sizes in options.sizes[: 1 if form == "plain" else None]]
    for dtype in options.dtypes:
        with jax_blocked.x64(dtype == "float64"):
            rounds = device_rounds(options.rounds, options.dim, dtype, device)
        for form, block, run, warps in settings:
            given = {"kernel": form, "block": block, "run": run, "warps": warps, "dtype": dtype}
            try:
                best, first, outcome = timed(rounds, options, **given)
            except Exception as error:
                print(given, "failed:", str(error)[:300], flush=True)
                rows.append({**given, "error": str(error)[:300]})
                continue
            given |= {"us_per_round": best, "first_call_s": first, "gflops": 4e-3 * options.dim**2 / best}
            rows.append({**given, "informative_rounds": outcome.estimate.informative_rounds})
            print(
                {name: round(value, 3) if isinstance(value, float) else value for name, value in given.items()},
                flush=True,
            )
        del rounds
    return rows


def best_setting(rows, dtype):
    good = [row for row in rows if row["dtype"] == dtype and "us_per_round" in row]
    best = min(good, key=lambda row: row["us_per_round"])
    return {name: best[name] for name in ("kernel", "block", "run", "warps", "dtype")}


def whole_call(options, device, setting, dim, count, *, resident):
    """One replay with contexts on the device (`resident`), or in host memory, as a user has them."""
    if resident:
        with jax_blocked.x64(setting["dtype"] == "float64"):
            rounds = device_rounds(count, dim, setting["dtype"], device)
    else:
        rounds = host_rounds(count, dim, dtype=np.dtype(setting["dtype"]).type)
    best, first, _ = timed(rounds, options, **setting)
    told = {"us_per_round": best, "seconds": best * count / 1e6, "first_call_s": first}
    return {"dim": dim, "rounds": count, **setting, **told}


def clock(step, *arrays, repeats=10, inner=10):
    """Seconds of one call, the best of `repeats` means over `inner` queued calls."""
    jax.block_until_ready(step(*arrays))
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        for _ in range(inner):
            out = step(*arrays)
        jax.block_until_ready(out)
        best = min(best, (time.perf_counter() - started) / inner)
    return best


def split(options, device, setting):
    """What a round is spent on: µs a round of the d×d products alone, of the kernel alone, and the GEMM rate."""
    dim, block, run, dtype = options.dim, setting["block"], setting["run"], setting["dtype"]
    with jax_blocked.x64(dtype == "float64"), jax.default_device(device):
        square = jax.random.normal(jax.random.key(1), (dim, dim), dtype)
        rows = jax.random.normal(jax.random.key(2), (block, dim), dtype) / dim**0.5
        matmul = jax_replay.matmul
        gemm = clock(jax.jit(lambda left, right: matmul(left, right)), square, square)
        products = jax.jit(lambda inverse, rows: inverse - matmul(rows.T, matmul(rows, inverse)))
        big = clock(products, square, rows) / block * 1e6
        inner = jax.jit(lambda inverse, rows: matmul(matmul(rows, inverse), rows.T))
        gram_cost = clock(inner, square, rows) / block * 1e6
        names = ("norm", "rewards", "costs", "seen")
        rule = jax_replay.Rule(POLICY, SPEC, dim, None, names)
        table = jnp.pad(matmul(rows, rows.T), ((0, 0), (0, jax_replay.MEANS)))
        fused = partial(jax_replay.run_pallas, warps=setting["warps"])
        sequence = fused if setting["kernel"] == "pallas" else jax_replay.run_plain
        given = table, jnp.zeros(3, dtype), jnp.ones((4, block), dtype)
        alone = jax.jit(lambda *given: sequence(rule, *given, 0, run=run))
        seq = clock(alone, *given) / run * 1e6
        turned, told, _ = alone(*given)
        trail = clock(jax.jit(partial(jax_replay.followed, left=0)), table, turned, told) / run * 1e6
    return {
        **setting,
        "gemm_gflops": 2e-9 * dim**3 / gemm,
        "products_us_per_round": big,
        "gram_us_per_round": gram_cost,
        "trailing_us_per_round": trail,
        "kernel_us_per_round": seq,
        "floor_us_per_round": 4e-3 * dim**2 / (2e-9 * dim**3 / gemm),
    }


def cholesky_reference(options, device, dtype, estimates, rounds=32):
    """The paper's way on the device: each round factors Σ afresh and solves for three right-hand sides, in one loop.

    `estimates`: solve for Σ⁻¹x, θ̂ and μ̂ themselves (two triangles); else for what a decision needs (one).
    """
    dim = options.dim
    with jax_blocked.x64(dtype == "float64"), jax.default_device(device):
        rows = jax.random.normal(jax.random.key(4), (rounds, dim), dtype) / dim**0.5

        def step(index, carry):
            gram, rhs, total = carry
            row = rows[index]
            factor = jnp.linalg.cholesky(gram)
            sides = jnp.concatenate([row[:, None], rhs], axis=1)
            if estimates:
                seen = row @ jax.scipy.linalg.cho_solve((factor, True), sides)
            else:
                solved = jax.scipy.linalg.solve_triangular(factor, sides, lower=True)
                seen = jnp.sum(solved[:, :1] * solved, axis=0)
            return gram + row[:, None] * row[None, :], rhs + row[:, None] * 0.1, total + seen[0]

        def run(gram):
            start = (gram, jnp.zeros((dim, 2), dtype), jnp.zeros((), dtype))
            return jax.lax.fori_loop(0, rounds, step, start)

        seconds = clock(jax.jit(run), jnp.eye(dim, dtype=dtype), repeats=3, inner=1)
    return {"dim": dim, "dtype": dtype, "reference_rounds": rounds, "us_per_round": seconds / rounds * 1e6}


def guarded(report, name, part, *given):
    started = time.perf_counter()
    try:
        report[name] = part(*given)
    except Exception as error:
        traceback.print_exc()
        report[name] = {"error": str(error)[:500]}
    report["seconds"][name] = time.perf_counter() - started
    print(f"[{name}: {report['seconds'][name]:.1f} s]", flush=True)
    return report[name]


def markdown(report):
    lines = ["| dtype | kernel | block | run | warps | µs a round | GFLOP/s (4d²) | first call, s |", "|" + "---|" * 8]
    for row in sorted(report["table"], key=lambda row: (row["dtype"], row.get("us_per_round", 1e9))):
        shown = (
            f"{row['us_per_round']:.2f} | {row['gflops']:,.0f} | {row['first_call_s']:.1f}"
            if "us_per_round" in row
            else "failed | |"
        )
        lines.append(f"| {row['dtype']} | {row['kernel']} | {row['block']} | {row['run']} | {row['warps']} | {shown} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", default="", help="block:run:warps, comma-separated; replaces the grid")
    parser.add_argument("--dtypes", default=["float64", "float32"], nargs="+")
    options = parser.parse_args()
    options.dim, options.rounds = (128, 1024) if options.small else (2048, 65_536)
    options.forms = ("plain", "pallas") if options.device == "gpu" else ("plain",)
    grid = "512:32:4,512:32:2,512:32:8,512:64:8,512:16:2,512:16:1,256:32:4,256:16:1,1024:32:4"
    grid = "128:16:1,128:32:1" if options.small else grid
    options.sizes = [tuple(map(int, item.split(":"))) for item in (options.sizes or grid).split(",")]
    options.out.mkdir(parents=True, exist_ok=True)
    device = jax.devices(options.device)[0]
    report = {
        "device": str(device.device_kind),
        "jax": jax.__version__,
        "python": platform.python_version(),
        "dim": options.dim,
        "rounds": options.rounds,
        "policy": POLICY.name,
        "seconds": {},
    }
    print(report, flush=True)
    path = options.out / "replay_gpu.json"
    guarded(report, "answers", answers, options)
    path.write_text(json.dumps(report, indent=1))
    guarded(report, "table", table, options, device)
    path.write_text(json.dumps(report, indent=1))
    for dtype in options.dtypes:
        guarded(report, f"reference_{dtype}", cholesky_reference, options, device, dtype, False)
        guarded(report, f"reference_estimates_{dtype}", cholesky_reference, options, device, dtype, True)
    for dtype in options.dtypes:
        setting = guarded(report, f"best_{dtype}", best_setting, report["table"], dtype)
        if "error" not in setting:
            guarded(report, f"split_{dtype}", split, options, device, setting)
            wide, count = (131, 2000) if options.small else (2051, 100_000)
            sizes = {"streamed": (options.dim, options.rounds, False), "experiment_streamed": (wide, count, False)}
            sizes["experiment_resident"] = (wide, count, True)
            for name, (dim, length, resident) in sizes.items():
                part = partial(whole_call, resident=resident)
                guarded(report, f"{name}_{dtype}", part, options, device, setting, dim, length)
        path.write_text(json.dumps(report, indent=1))
    print(markdown(report))
    rest = {name: value for name, value in report.items() if name not in ("table", "answers")}
    print(json.dumps(rest, indent=1))
    path.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
