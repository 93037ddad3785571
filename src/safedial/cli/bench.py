"""`safedial bench`: speed on this machine, beside the bare arithmetic."""

from __future__ import annotations

from typing import Annotated

import typer

bench = typer.Typer(no_args_is_help=True, help="Measure speed on this machine, beside the bare arithmetic.")


@bench.callback()
def group() -> None:
    """Measure speed on this machine, beside the bare arithmetic."""


@bench.command()
def online(
    dim: Annotated[int, typer.Option(help="Dimension of the contexts.")] = 26,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Time Agent.decide and Agent.update, in microseconds."""
    from safedial.bench.online import bench_online
    from safedial.cli.output import print_json, print_pairs

    report = bench_online(dim)
    if json:
        print_json(report)
    else:
        print_pairs("Agent, microseconds (bare: the same arithmetic with nothing around it)", report)
