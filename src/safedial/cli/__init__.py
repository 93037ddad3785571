"""The command line: one file for each command group, imported only when one of its commands runs."""

from __future__ import annotations

import io
import signal
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer

from safedial.errors import InvalidInput, MissingExtra, explained, printable
from safedial.version import __version__

COMMANDS = {
    name: name
    for name in ("simulate", "calibrate", "plan", "check", "evaluate", "monitor", "reproduce", "sweep", "battery")
}
COMMANDS |= {
    "choose": "choose_policy",
    "study": "study",
    "bench": "bench",
    "eluder": "eluder",
    "serve": "service",
    "key": "service",
}
COMMANDS |= {"demo": "service", "doctor": "doctor", "arena": "arena", "compare": "compare_policies"}
"""Every command and group, and the file that holds it."""
HELP = ("-h", "--help")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"safedial {__version__}")
        raise typer.Exit


def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Set one dial for each context: high reward, and a promise on the realized cost in every round."""


def make_app(wanted: str = "") -> typer.Typer:
    """The program with all its commands, or with only the `wanted` one, which starts sooner. If help is `wanted`, the
    commands have no options: it shows none, and to make them takes longer than all the rest.
    """
    made = typer.Typer(
        name="safedial",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": list(HELP)},
    )
    made.callback()(root)
    chosen = [wanted] if wanted in COMMANDS else [] if wanted == "--version" else list(COMMANDS)
    for name in chosen:
        part = getattr(import_module(f"safedial.cli.{COMMANDS[name]}"), name)
        if isinstance(part, typer.Typer):
            made.add_typer(typer.Typer(help=part.info.help) if wanted in HELP else part, name=name)
        else:
            made.command(name)(_outline(part.__doc__) if wanted in HELP else part)
    return made


def _outline(text: str | None) -> Callable[[], None]:
    def command() -> None: ...

    command.__doc__ = text
    return command


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'safedial.cli' has no attribute {name!r}")
    return make_app()


class Interrupted(BaseException):
    """Ctrl-C. It is a separate class because the command-line library swallows KeyboardInterrupt."""


def main() -> None:
    """Run the command line. A user's mistake prints one sentence on stderr and exits with code 2, without a traceback;
    a warning prints one sentence too.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGINT, _interrupt)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            make_app(next(iter(sys.argv[1:]), "--help"))()
    except (InvalidInput, MissingExtra) as error:
        sys.exit(_complain(str(error).replace(" = None: ", ": "), 2))  # nobody writes None on a command line
    except ModuleNotFoundError as error:
        if not explained(error):
            raise
        sys.exit(_complain(explained(error), 2))
    except Interrupted:
        sys.exit(_complain("interrupted; finished work is kept", 130))


def _interrupt(*_: object) -> None:
    raise Interrupted


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"safedial: warning: {message}\n")


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"safedial: {printable(message)}\n")
    return code
