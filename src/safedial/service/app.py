"""The app of one worker: Starlette's router over the routes and the static pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files

from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from safedial.service.access import Access
from safedial.service.app_state import Limits, Service
from safedial.service.openapi import document
from safedial.service.problem import answer
from safedial.service.routes import Resource, operations
from safedial.study.event import orjson
from safedial.study.store import Store

KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
SAFE = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""The page loads nothing from elsewhere, and no other page may frame it."""


class App(Router):
    """Starlette's router alone: the middleware of its applications would only catch what each route answers itself."""

    def __init__(self, service: Service, *, own: bool) -> None:
        self.service, self.own = service, own
        resources = [Route(path, Resource(path, methods, service)) for path, methods in operations.items()]
        super().__init__([*resources, *_pages()], default=_unknown, lifespan=self.lifetime)

    @asynccontextmanager
    async def lifetime(self, _: object) -> AsyncIterator[None]:
        warming = asyncio.create_task(self.service.warm())
        yield
        warming.cancel()
        if self.own:
            self.service.store.close()


def make_app(store: Store, *, allow_keyless: bool = True, limits: Limits | None = None, own: bool = False) -> App:
    """The app over an open store. Use `allow_keyless` only on loopback; with `own` the app closes the store at its end.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store(f"sqlite:///{folder.name}/trial.db")
    >>> sorted(route.path for route in make_app(store).routes)[:2]
    ['/', '/docs']
    >>> store.close(); folder.cleanup()
    """
    told = limits or Limits()
    access = Access(store, allow_keyless=allow_keyless, rate=told.rate, burst=told.burst)
    return App(Service(store=store, access=access, limits=told), own=own)


def _pages() -> list[Route]:
    """The operator page, its parts, and the API's documentation."""
    pages = []
    for file in (files("safedial.service") / "static").iterdir():
        ending = file.name.rpartition(".")[2]
        path = {"index.html": "/", "docs.html": "/docs"}.get(file.name, f"/static/{file.name}")
        if ending in KINDS:
            pages.append(Route(path, Page(file.read_bytes(), KINDS[ending])))
    return [*pages, Route("/openapi.json", Page(orjson.dumps(document()), "application/json"))]


class Page:
    """A file of the operator page, as an ASGI app."""

    def __init__(self, content: bytes, kind: str) -> None:
        self.content, self.kind = content, kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            response = Response(self.content, media_type=self.kind, headers=SAFE)
        else:
            response = answer("method_not_allowed", headers={"Allow": "GET, HEAD"})
        await response(scope, receive, send)


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await answer("not_found")(scope, receive, send)
