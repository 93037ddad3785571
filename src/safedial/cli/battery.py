"""`safedial battery`: download NASA's battery data, list what a data folder holds, and embed its texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from safedial.cli.inputs import Json

battery = typer.Typer(no_args_is_help=True)

Data = Annotated[Path | None, typer.Option(help="The folder that holds the data. Default: SAFEDIAL_DATA.")]
Weights = Annotated[
    Path | None, typer.Option(help="A folder with a model of the same architecture. Default: the published weights.")
]
Cache = Annotated[
    Path | None, typer.Option(help="Where to keep the vectors. Default: SAFEDIAL_CACHE, or ~/.cache/safedial.")
]


@battery.command()
def fetch(
    data: Data = None,
    url: Annotated[str | None, typer.Option(help="Another archive. Default: NASA's RW9 to RW12, 425 MB.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The SHA-256 that the archive must have.")] = None,
    json: Json = False,
) -> None:
    """Download NASA's archive and unpack its .mat files. After an interruption, run it again to continue."""
    from safedial.cli.output import print_json, progress_bar
    from safedial.datasets.battery.fetch import ARCHIVE, fetch_archive
    from safedial.progress import late_bar

    with late_bar(progress_bar, lambda total: f"download, {total / 1e6:,.0f} MB") as progress:
        done = fetch_archive(data, url or ARCHIVE, sha256=sha256, progress=progress)
    if json:
        print_json(done._asdict())
        return
    typer.echo(("Fetched" if done.downloaded else "There already") + f": {done.url}\nSHA-256 {done.sha256}")
    for name, facts in done.files.items():
        typer.echo(f"  {name}  {facts['bytes']:,} bytes  SHA-256 {facts['sha256']}")


@battery.command()
def embed(
    *,
    data: Data = None,
    source: Annotated[str, typer.Option(help="b, rw26, rw, rw9_12 (parquet), b_mat or rw_mat (NASA's files).")] = "b",
    embedder: Annotated[str, typer.Option(help="gemma3-270m, minilm or gemma-2b.")] = "gemma3-270m",
    weights: Weights = None,
    cache: Cache = None,
    batch_size: Annotated[int, typer.Option(help="Texts in one batch.")] = 16,
    limit: Annotated[int | None, typer.Option(help="Embed at most this many texts now.")] = None,
    json: Json = False,
) -> None:
    """Embed a source's texts with a language model, into a cache. After an interruption, run it again to continue."""
    from safedial.cli.output import print_json, progress_bar
    from safedial.experiments.battery_rounds import embed_source

    chosen = {"weights": weights, "cache": cache, "batch_size": batch_size, "limit": limit}
    done = embed_source(data, source, embedder, bar=progress_bar, **chosen)
    left = done.texts - done.before - done.computed
    if json:
        print_json({**done._asdict(), "folder": str(done.folder), "left": left})
        return
    typer.echo(f"{done.computed:,} texts embedded now, {done.before:,} before, {left:,} left; kept in {done.folder}")


@battery.command()
def info(data: Data = None, json: Json = False) -> None:
    """List the sources in a folder: rows of each battery and kind, time span, what to cite."""
    from safedial.cli.output import print_json, print_table
    from safedial.datasets.battery.folder_summary import summarize

    content = summarize(data)
    if json:
        print_json(content)
        return
    for name, facts in content["sources"].items():
        labels = ", ".join(dict.fromkeys(row["source"] for row in facts["batteries"]))
        columns = ("charge", "discharge", "rest", "hours")
        rows = (
            (row["battery"], *(f"{row[column]:,}" for column in columns), row["first"] or "", row["last"] or "")
            for row in facts["batteries"]
        )
        print_table(f"{name}: {facts['rows']:,} rows of {labels}", ("battery", *columns, "from", "to"), rows)
    for name, error in content["unreadable"].items():
        typer.echo(f"{name} cannot be used: {error}")
    if not content["sources"]:
        typer.echo(f"No battery data in {content['folder']}. `safedial battery fetch --data DIR` downloads NASA's.")
    for words in content["citations"]:
        typer.echo(f"Cite: {words}")
