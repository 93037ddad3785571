"""The FastAPI app of one worker: routes, static pages, errors in one form, an OpenAPI document that works offline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from safedial.service import schemas
from safedial.service.access import Access
from safedial.service.app_state import Limits, Service
from safedial.service.problem import answer
from safedial.service.routes import quick, router
from safedial.study.store import Store
from safedial.version import __version__

TAKEN = (
    *(schemas.NewStudy, schemas.Ask, schemas.Outcome, schemas.Correction, schemas.Void),
    *(schemas.Resume, schemas.Amendment),
)
PAGES = {"/": "index.html", "/docs": "docs.html"}
ASSETS = (
    *("page.css", "page.js", "words.js", "unit.js", "health.js", "trail.js", "certificate.js", "charts.js"),
    "docs.js",
)
KINDS = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
SAFE = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""The page loads nothing from elsewhere, and no other page may frame it."""

ABOUT = """Set one dial for each context: high reward, and a guarantee on the realized cost in every round.

Each decision's certificate states its guarantee and all assumptions. Errors are problem+json with a `code`; no error
repeats a context. Writes are acknowledged after their commit and are safe to repeat."""


class App(FastAPI):
    """FastAPI describes the routes; requests to them go straight to their endpoints, which answer every error.

    Its layers of middleware would take about as long as the decision.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for pattern, endpoint in () if scope.get("root_path") else quick.get(scope.get("method", ""), ()):
            if found := pattern.match(scope["path"]):
                scope["app"], scope["path_params"] = self, found.groupdict()
                response = await endpoint(Request(scope, receive, send))
                return await response(scope, receive, send)
        return await super().__call__(scope, receive, send)


def make_app(store: Store, *, allow_keyless: bool = True, limits: Limits | None = None, own: bool = False) -> FastAPI:
    """The app over an open store. Use `allow_keyless` only on loopback; with `own` the app closes the store at its end.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store(f"sqlite:///{folder.name}/trial.db")
    >>> app = make_app(store)
    >>> sorted(app.openapi()["paths"])[:2]
    ['/healthz', '/metrics']
    >>> store.close(); folder.cleanup()
    """
    told = limits or Limits()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(app.state.service.warm())
        yield
        warming.cancel()
        if own:
            store.close()

    app = App(
        title="safedial", version=__version__, description=ABOUT, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    access = Access(store, allow_keyless=allow_keyless, rate=told.rate, burst=told.burst)
    app.state.service = Service(store=store, access=access, limits=told)
    app.include_router(router)
    for path, name in {**PAGES, **{f"/static/{name}": name for name in ASSETS}}.items():
        app.router.routes.append(Route(path, _static(name), methods=["GET"], include_in_schema=False))
    app.add_exception_handler(HTTPException, _refused)
    app.openapi = lambda: _openapi(app)
    return app


def _static(name: str) -> Any:
    content = (files("safedial.service") / "static" / name).read_bytes()
    kind = KINDS[name.rpartition(".")[2]]

    async def page(_: Request) -> Response:
        return Response(content, media_type=kind, headers=SAFE)

    return page


async def _refused(_: Request, error: Exception) -> Response:
    """Errors of the router itself, as problem+json."""
    status = getattr(error, "status_code", 500)
    headers = dict(getattr(error, "headers", None) or {})
    codes = {404: "not_found", 405: "method_not_allowed", 400: "malformed"}
    return answer(codes.get(status, "fault"), headers=headers)


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for model in TAKEN:
            made = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(made.pop("$defs", {}))
            schemas[model.__name__] = made
        document["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "sd_…; `safedial key create` makes one"}
        }
        app.openapi_schema = document
    return app.openapi_schema
