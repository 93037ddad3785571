"""The options that the commands of `safedial study` share, and the study that they open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from safedial.errors import InvalidInput


def _no_storage() -> str:
    """What happens where neither the option nor its variable is given."""
    way_out = "give --storage sqlite:///my.db, or set the variable: export SAFEDIAL_STORAGE=sqlite:///my.db"
    raise InvalidInput(f"--storage: is missing, it says which store to use; {way_out}")


Storage = Annotated[
    str,
    typer.Option(
        envvar="SAFEDIAL_STORAGE",
        default_factory=_no_storage,
        show_default="required",
        help="The store: a file, sqlite:///my.db, or a server, postgresql://…",
    ),
]
Format = Annotated[str, typer.Option(help="table or json.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
Name = Annotated[str, typer.Argument(help="The study's name.")]
DecisionId = Annotated[str, typer.Argument(help="The decision's id, as `ask` printed it and `waiting` lists it.")]
Reason = Annotated[str, typer.Option(help="The reason, in words.")]


@contextmanager
def opened(storage: str, name: str | None = None, *, decision_id: str | None = None) -> Iterator[Any]:
    """The store, or one of its studies, by its name or that of one of its decisions."""
    from safedial.study import Store, find_decision, open_study

    with Store(storage, create=False) as store:
        if decision_id is not None:
            yield find_decision(store, decision_id)[0]
        else:
            yield store if name is None else open_study(name, storage=store)
