"""`python -m benchmarks.figures`: the experiments that are ours and not the paper's, a command each."""

from __future__ import annotations

import typer

from benchmarks.figures import closed_loop, conformal, power, radii_margins
from safedial.cli import main
from safedial.cli.reproduce import make_command
from safedial.paper.experiment import by_command

EXPERIMENTS = [module.EXPERIMENT for module in (power, radii_margins, conformal, closed_loop)]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
for name, group in by_command(EXPERIMENTS).items():
    app.command(name)(make_command(group))

if __name__ == "__main__":
    main(app)
