"""The command line: one command group a file; heavy parts are imported when a command runs."""

from __future__ import annotations

import io
import signal
import sys

import typer

from safedial.cli.battery import battery
from safedial.cli.bench import bench
from safedial.cli.calibrate import calibrate
from safedial.cli.check import check
from safedial.cli.doctor import doctor
from safedial.cli.eluder import eluder
from safedial.cli.monitor import monitor
from safedial.cli.plan import plan
from safedial.cli.reproduce import reproduce
from safedial.cli.service import demo, key, serve
from safedial.cli.simulate import simulate
from safedial.cli.study import study
from safedial.cli.sweep import sweep
from safedial.errors import InvalidInput, MissingExtra, explained
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
app.command()(calibrate)
app.command()(plan)
app.command()(check)
app.command()(monitor)
app.add_typer(reproduce, name="reproduce")
app.add_typer(sweep, name="sweep")
app.add_typer(battery, name="battery")
app.add_typer(study, name="study")
app.add_typer(bench, name="bench")
app.command()(eluder)
app.command()(serve)
app.add_typer(key, name="key")
app.command()(demo)
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


class Interrupted(BaseException):
    """Ctrl-C. A class of its own, which the command-line library does not swallow."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGINT, _interrupt)
    try:
        app()
    except (InvalidInput, MissingExtra) as error:
        sys.exit(_complain(str(error), 2))
    except ModuleNotFoundError as error:
        if not explained(error):
            raise
        sys.exit(_complain(explained(error), 2))
    except Interrupted:
        sys.exit(_complain("interrupted; what was finished is kept", 130))


def _interrupt(*_: object) -> None:
    raise Interrupted


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"safedial: {message}\n")
    return code
