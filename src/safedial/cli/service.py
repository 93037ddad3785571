"""`safedial serve`, `safedial key`, `safedial demo`: studies behind an address."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safedial.cli.study_output import Storage

key = typer.Typer(no_args_is_help=True, help="Make, list and revoke the keys of a store.")

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Reason = Annotated[str, typer.Option(help="Why, in words; it goes into the store's log.")]


def serve(
    storage: Storage,
    host: Annotated[str, typer.Option(help="Any address but loopback needs a key first.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for any that is free.")] = 8000,
    workers: Annotated[int, typer.Option(help="Processes; more than one pays with PostgreSQL.")] = 1,
    rate: Annotated[float | None, typer.Option(help="Requests a second for each key; 2000 unless given.")] = None,
) -> None:
    """Serve the studies of a store over HTTP, with an operator page at / and the API's description at /docs."""
    from safedial.service.server import serve as run
    from safedial.study.database import shown

    typer.echo(f"safedial serves {shown(storage)} at http://{host}:{port}/ (Ctrl-C ends it)", err=True)
    run(storage, host=host, port=port, workers=workers, rate=rate)


@key.command()
def create(
    storage: Storage,
    role: Annotated[str, typer.Option(help="read, observe, decide or admin.")],
    reason: Reason = "made at the command line",
    study: Annotated[str, typer.Option(help="Limit the key to one study.")] = "",
    json: Json = False,
) -> None:
    """Make a key. It is shown once: only its SHA-256 is kept."""
    from safedial.cli.output import print_json
    from safedial.study import Store
    from safedial.study.keys import create_key, key_checkpoint

    with Store(storage) as store:
        text, made = create_key(store, role, study=study, reason=reason, actor=_person())
        mark = key_checkpoint(store, made.id)
    if json:
        print_json({"key": text, **made.to_dict(), "checkpoint": mark})
    else:
        typer.echo(text)
        typer.echo(f"Key {made.id}, role {role}{f', for {study}' if study else ''}. It is not shown again.", err=True)
        typer.echo(f"Keep for `safedial key verify --checkpoint`: {mark}", err=True)


@key.command("list")
def list_(storage: Storage, json: Json = False) -> None:
    """List every key that was ever made, revoked ones too."""
    from safedial.cli.output import new_table, print_json, print_table
    from safedial.study import Store
    from safedial.study.keys import list_keys

    with Store(storage, create=False) as store:
        found = [made.to_dict() for made in list_keys(store)]
    if json:
        print_json({"keys": found})
        return
    table = new_table("Keys", "id", "role", "study", "created", "revoked")
    for made in found:
        words = [str(made[name] or "") for name in ("id", "role", "study", "created", "revoked")]
        table.add_row(*words[:3], *(when[:16].replace("T", " ") for when in words[3:]))
    print_table(table)


@key.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as `list` shows it.")],
    storage: Storage,
    reason: Reason = "revoked at the command line",
    json: Json = False,
) -> None:
    """Shut a key out; running services follow within a second."""
    from safedial.cli.output import print_json
    from safedial.study import Store
    from safedial.study.keys import key_checkpoint, revoke_key

    with Store(storage, create=False) as store:
        gone = revoke_key(store, key_id, reason=reason, actor=_person())
        mark = key_checkpoint(store, gone.id)
    if json:
        print_json({**gone.to_dict(), "checkpoint": mark})
    else:
        typer.echo(f"Key {gone.id} opens nothing any more.")
        typer.echo(f"Keep for `safedial key verify --checkpoint`: {mark}", err=True)


@key.command()
def verify(
    storage: Storage,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="SEQ:HASH, as `create` or `revoke` printed it last; a key made since is then found."),
    ] = None,
    json: Json = False,
) -> None:
    """Check the store's own log, and that keys and studies are those in it; exit 1 where they are not."""
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
        Path | None, typer.Option(help="Where the store goes; a new temporary folder by default.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after that; otherwise Ctrl-C does.")] = None,
    pace: Annotated[float, typer.Option(help="Patients a second.")] = 4.0,
) -> None:
    """Start the service on a fresh SQLite file and run a simulated dosing clinic through it, to look at the page."""
    from safedial.cli import Interrupted
    from safedial.service.demo import run_demo

    try:
        run_demo(typer.echo, port=port, folder=folder, seconds=seconds, pace=pace)
    except Interrupted:
        raise typer.Exit(0) from None


def _person() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
