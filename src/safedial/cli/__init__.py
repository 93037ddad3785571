"""The command line: one command group a file; heavy parts are imported when a command runs."""

from __future__ import annotations

import sys

import typer

from safedial.cli.bench import bench
from safedial.cli.doctor import doctor
from safedial.cli.reproduce import reproduce
from safedial.cli.simulate import simulate
from safedial.errors import InvalidInput, MissingExtra
from safedial.version import __version__

app = typer.Typer(
    name="safedial",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(simulate)
app.add_typer(reproduce, name="reproduce")
app.add_typer(bench, name="bench")
app.command()(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"safedial {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Turn one dial anew for each context: high reward, and a promise on the realized cost in every round."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2, never a traceback."""
    try:
        app()
    except (InvalidInput, MissingExtra) as error:
        sys.exit(_complain(str(error), 2))
    except KeyboardInterrupt:
        sys.exit(_complain("interrupted", 130))


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"safedial: {message}\n")
    return code
