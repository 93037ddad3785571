"""A private PostgreSQL server for the tests: from the installed binaries, in a folder of its own, on a Unix socket.

`initdb` refuses to run as root; the server then runs as the user nobody.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg

HELP = "PostgreSQL's server is not installed: `make setup` installs it, or apt-get install postgresql"


class Server:
    """A running server; `url()` is an empty store. `settings` are further words for the server."""

    def __init__(self, *, durable: bool = False, settings: str = "") -> None:
        self.bin = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="safedial-pg-"))
        self.as_user = []
        if os.geteuid() == 0:
            self.as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
            shutil.chown(self.folder, "nobody", "nogroup")
        self.folder.chmod(0o755)
        data = self.folder / "data"
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        quick = "" if durable else "-c fsync=off -c full_page_writes=off "
        options = (
            f"-k {self.folder} -c listen_addresses= {quick}-c max_connections=60 -c shared_buffers=32MB {settings}"
        )
        self._start = ("pg_ctl", "-D", data, "-w", "-l", self.folder / "log", "-o", options, "start")
        self._run(*self._start)
        self.count = 0

    def _run(self, program: str, *words: object) -> None:
        command = [*self.as_user, str(self.bin / program), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False)
        assert done.returncode == 0, f"{program}: {done.stdout[-500:]} {done.stderr[-500:]}"

    def url(self, **settings: str) -> str:
        """The address of an empty store: a schema with a user of its own, made thirty times as fast as a database.
        `settings` are the user's.
        """
        self.count += 1
        name = f"study{self.count}"
        with psycopg.connect(f"postgresql://postgres@/postgres?host={self.folder}", autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {name} SUPERUSER LOGIN")
            connection.execute(f"CREATE SCHEMA AUTHORIZATION {name}")
            for key, value in settings.items():
                connection.execute(f"ALTER ROLE {name} SET {key} = {value}")
        return f"postgresql://{name}@/postgres?host={self.folder}"

    def crash(self) -> None:
        """Stop without writing anything down, and start again from what is on disk."""
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")
        self._run(*self._start)

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)


def binaries() -> Path:
    """The newest installed server's folder."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    if not found and on_path:
        found = [Path(on_path)]
    assert found, HELP
    return found[-1].parent
