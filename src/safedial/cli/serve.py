"""`safedial serve`, `safedial key`, `safedial demo`: studies over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safedial.cli.output import Json, print_json, print_table
from safedial.cli.study_output import Storage

key = typer.Typer(no_args_is_help=True)

Reason = Annotated[str, typer.Option(help="The reason, kept with the key.")]


def serve(
    storage: Storage,
    *,
    host: Annotated[str, typer.Option(help="The address to bind. Any but loopback requires a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(help="Processes. More than one is useful with PostgreSQL.")] = 1,
    rate: Annotated[float | None, typer.Option(help="Requests per second for each key [2000].")] = None,
) -> None:
    """Serve a store's studies over HTTP, with an operator page at / and the API reference at /docs."""
    from safedial.service.server import serve as run
    from safedial.study.database import shown

    port = port or _free_port(host)
    place = f"[{host}]" if ":" in host else host

    def announce(new: bool) -> None:
        if new:
            typer.echo(f"safedial: {shown(storage)} did not exist: a new, empty store was created", err=True)
        typer.echo(f"safedial serves {shown(storage)} at http://{place}:{port}/ (stop with Ctrl-C)", err=True)

    run(storage, host=host, port=port, workers=workers, rate=rate, announce=announce)


@key.command()
def create(
    storage: Storage,
    role: Annotated[str, typer.Option(help="read, observe, decide or admin.")],
    reason: Reason = "made at the command line",
    study: Annotated[str, typer.Option(help="Limit the key to one study.")] = "",
    json: Json = False,
) -> None:
    """Create a key. It is shown only once; the store keeps its SHA-256."""
    from safedial.study.keys import create_key
    from safedial.study.requests import actor_name
    from safedial.study.store import Store

    with Store(storage) as store:
        text, made = create_key(store, role, study=study, reason=reason, actor=actor_name(None))
    if json:
        print_json({"key": text, **made.to_dict()})
    else:
        typer.echo(text)
        typer.echo(f"Key {made.id}, role {role}{f', for {study}' if study else ''}. It is not shown again.", err=True)


@key.command("list")
def list_(storage: Storage, json: Json = False) -> None:
    """List every key ever created, including revoked ones."""
    from safedial.study.keys import list_keys
    from safedial.study.store import Store

    with Store(storage, create=False) as store:
        found = [made.to_dict() for made in list_keys(store)]
    if json:
        print_json({"keys": found})
        return
    heads = ("id", "role", "study", "created", "created_by", "revoked", "revoked_by")
    rows = [[_cell(name, made[name]) for name in heads] for made in found]
    print_table("Keys", [name.replace("_", " ") for name in heads], rows)


def _cell(name: str, value: str | None) -> str:
    return (value or "")[:16].replace("T", " ") if name in ("created", "revoked") else value or ""


@key.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `list` shows it.")],
    storage: Storage,
    reason: Reason = "revoked at the command line",
    json: Json = False,
) -> None:
    """Revoke a key. Running services refuse it within a second."""
    from safedial.study.keys import revoke_key
    from safedial.study.requests import actor_name
    from safedial.study.store import Store

    with Store(storage, create=False) as store:
        gone = revoke_key(store, key_id, reason=reason, actor=actor_name(None))
    if json:
        print_json(gone.to_dict())
    else:
        typer.echo(f"Key {gone.id} is revoked.")


def demo(
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 0,
    folder: Annotated[
        Path | None, typer.Option(help="The folder for the store. Default: a new temporary folder.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after this many seconds. Default: run until Ctrl-C.")
    ] = None,
    pace: Annotated[float, typer.Option(help="Patients per second.")] = 4.0,
) -> None:
    """Start the service on a new SQLite file with a simulated dosing clinic, to show the operator page."""
    from safedial.cli import Interrupted
    from safedial.service.demo import run_demo

    try:
        run_demo(typer.echo, port=port, folder=folder, seconds=seconds, pace=pace)
    except Interrupted:
        raise typer.Exit(0) from None


def _free_port(host: str) -> int:
    """A port that is free at this address; 0 where there is no such address, which the service then refuses."""
    import socket

    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError:
        return 0
