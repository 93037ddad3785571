"""`safedial serve`, `safedial key`, `safedial demo`: studies over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safedial.cli.inputs import Json
from safedial.cli.study_options import Storage

key = typer.Typer(no_args_is_help=True)

Reason = Annotated[str, typer.Option(help="The reason, for the store's log.")]


def serve(
    storage: Storage,
    *,
    host: Annotated[str, typer.Option(help="The address to bind. Any but loopback requires a key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(help="Processes. More than one is useful with PostgreSQL.")] = 1,
    rate: Annotated[float | None, typer.Option(help="Requests per second for each key [2000].")] = None,
    unit_key: Annotated[
        list[str] | None,
        typer.Option(help="A key of studies with pseudonyms: env:NAME or file:PATH; may be repeated."),
    ] = None,
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

    run(storage, host=host, port=port, workers=workers, rate=rate, unit_keys=unit_key or (), announce=announce)


@key.command()
def create(
    storage: Storage,
    role: Annotated[str, typer.Option(help="read, observe, decide or admin.")],
    reason: Reason = "made at the command line",
    study: Annotated[str, typer.Option(help="Limit the key to one study.")] = "",
    json: Json = False,
) -> None:
    """Create a key. It is shown only once; the store keeps its SHA-256."""
    from safedial.cli.output import print_json
    from safedial.study import Store
    from safedial.study.keys import create_key, key_checkpoint
    from safedial.study.requests import actor_name

    with Store(storage) as store:
        text, made = create_key(store, role, study=study, reason=reason, actor=actor_name(None))
        mark = key_checkpoint(store, made.id)
    if json:
        print_json({"key": text, **made.to_dict(), "checkpoint": mark})
    else:
        typer.echo(text)
        typer.echo(f"Key {made.id}, role {role}{f', for {study}' if study else ''}. It is not shown again.", err=True)
        typer.echo(f"Keep for `safedial key verify --checkpoint`: {mark}", err=True)


@key.command("list")
def list_(storage: Storage, json: Json = False) -> None:
    """List every key ever created, including revoked ones."""
    from safedial.cli.output import print_json, print_table
    from safedial.study import Store
    from safedial.study.keys import list_keys

    with Store(storage, create=False) as store:
        found = [made.to_dict() for made in list_keys(store)]
    if json:
        print_json({"keys": found})
        return
    heads, rows = ("id", "role", "study", "created", "revoked"), []
    for made in found:
        words = [str(made[name] or "") for name in heads]
        rows.append((*words[:3], *(when[:16].replace("T", " ") for when in words[3:])))
    print_table("Keys", heads, rows)


@key.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `list` shows it.")],
    storage: Storage,
    reason: Reason = "revoked at the command line",
    json: Json = False,
) -> None:
    """Revoke a key. Running services refuse it within a second."""
    from safedial.cli.output import print_json
    from safedial.study import Store
    from safedial.study.keys import key_checkpoint, revoke_key
    from safedial.study.requests import actor_name

    with Store(storage, create=False) as store:
        gone = revoke_key(store, key_id, reason=reason, actor=actor_name(None))
        mark = key_checkpoint(store, gone.id)
    if json:
        print_json({**gone.to_dict(), "checkpoint": mark})
    else:
        typer.echo(f"Key {gone.id} is revoked.")
        typer.echo(f"Keep for `safedial key verify --checkpoint`: {mark}", err=True)


@key.command()
def verify(
    storage: Storage,
    checkpoint: Annotated[
        str | None, typer.Option(help="The latest SEQ:HASH from `create` or `revoke`; detects a key added since.")
    ] = None,
    json: Json = False,
) -> None:
    """Check the store's own log and that it matches the keys and studies. Exit status 1 if it does not."""
    from safedial.cli.output import print_json
    from safedial.cli.study_output import verify_words
    from safedial.study import Store, verify_store

    with Store(storage, create=False) as store:
        report = verify_store(store, checkpoint=checkpoint)
    if json:
        print_json(report.to_dict())
    else:
        typer.echo(verify_words(report), err=not report.ok)
    raise typer.Exit(0 if report.ok else 1)


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
