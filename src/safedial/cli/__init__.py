"""The command line: one file for each command group, imported only when one of its commands runs."""

from __future__ import annotations

import inspect
import io
import signal
import sys
import warnings
from importlib import import_module
from typing import Any

import typer

from safedial.errors import InvalidInput, MissingExtra, explained, printable
from safedial.version import __version__

COMMANDS = {
    "simulate": ("simulate", "Simulate a policy in a world, the paper's linear one by default."),
    "calibrate": ("calibrate", "Fit a monotone dose curve and propose S, L and the noise constants."),
    "plan": ("plan", "Forecast a study's violations, reward and doses, both if the spec is true and if it is not."),
    "check": ("check", "Check the guarantee's assumptions on a log."),
    "evaluate": ("check", "Replay policies on a log: excesses, reward and doses."),
    "monitor": ("check", "Watch the guarantee over a log: evidence over time, and the round of the alarm."),
    "choose": ("choose", "Rank the policies whose assumptions you vouch for by what they would earn in your plan."),
    "eluder": ("reproduce", "Compute the eluder dimension of a class, and Theorem 3's regret bound."),
    "serve": ("serve", "Serve a store's studies over HTTP, with an operator page."),
    "demo": ("serve", "Start the service with a simulated dosing clinic, to show the operator page."),
    "doctor": ("doctor", "List what is installed and what each missing extra would add."),
    "compare": ("simulate", "Compare policies on the same random numbers, with intervals paired by seed."),
    "reproduce": ("reproduce", "Reproduce the paper's results and compare them with the paper."),
    "sweep": ("sweep", "Run grids of simulations; an interrupted sweep continues where it stopped."),
    "battery": ("reproduce", "NASA's battery data: download it, list it, embed its texts."),
    "study": ("study_commands", "Run a study: an append-only log of decisions and outcomes."),
    "key": ("serve", "Make, list and revoke the keys of a store."),
}
"""Every command, then every group: the file that holds it, and its line in the program's help, for which no such file
is imported.
"""
HELP = ("-h", "--help")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"safedial {__version__}")
        raise typer.Exit


def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Set one dial for each context: high reward, and a guarantee on the realized cost in every round."""


def make_app(wanted: str = "") -> typer.Typer:
    """The program with all its commands, or with only the `wanted` one, which starts sooner. If help is `wanted`, the
    commands are names with a line each, since that is all it shows.
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
        file, line = COMMANDS[name]
        if wanted in HELP:
            made.command(name, help=line)(lambda: None)
            continue
        part = getattr(import_module(f"safedial.cli.{file}"), name)
        if isinstance(part, typer.Typer):
            for each in part.registered_commands:
                each.help = each.help or _paragraphs(each.callback)
            made.add_typer(part, name=name, help=line)
        else:
            made.command(name, help=_paragraphs(part), short_help=line)(part)
    return made


def _paragraphs(command: Any) -> str:
    """A command's docstring, each paragraph in one line: the library breaks lines where the source does."""
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))


class Interrupted(BaseException):
    """Ctrl-C. It is a separate class because the command-line library swallows KeyboardInterrupt."""


def main(program: typer.Typer | None = None) -> None:
    """Run the command line, or another program. A user's mistake prints one sentence on stderr and exits with code 2,
    without a traceback; a warning prints one sentence too.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGINT, _interrupt)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            (program or make_app(next(iter(sys.argv[1:]), "--help")))()
    except (InvalidInput, MissingExtra) as error:
        sys.exit(_complain(str(error).replace(" = None: ", ": "), 2))  # nobody writes None on a command line
    except ModuleNotFoundError as error:
        if not explained(error):
            raise
        sys.exit(_complain(explained(error), 2))
    except Interrupted:
        sys.exit(_complain("interrupted; what was written so far is kept", 130))


def _interrupt(*_: object) -> None:
    raise Interrupted


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"safedial: warning: {message}\n")


def _complain(message: str, code: int) -> int:
    sys.stderr.write(f"safedial: {printable(message)}\n")
    return code
