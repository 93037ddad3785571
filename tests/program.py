"""The program as a user meets it, stdout and stderr apart: `process` starts one; `run` goes through the same entry
point in this process, which is ten times quicker, for tests that are not about the process; also for a `program` of
benchmarks.
"""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from typer import Typer

from safedial.cli import main


def process(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "safedial", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def run(*words: object, cwd: Path | None = None, program: Typer | None = None) -> subprocess.CompletedProcess[str]:
    arguments, handler = sys.argv, signal.getsignal(signal.SIGINT)
    sys.argv = ["safedial", *map(str, words)]
    code: object = 0
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err, chdir(cwd or "."):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", UserWarning)
                main(program)
        except SystemExit as ended:
            code = ended.code or 0
        finally:
            sys.argv = arguments
            signal.signal(signal.SIGINT, handler)
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())
