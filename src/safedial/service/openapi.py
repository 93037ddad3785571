"""The OpenAPI document, made from the table of operations and the models of bodies and queries."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from safedial.service import schemas
from safedial.service.routes import LONGEST_KEY, Operation, operations
from safedial.version import __version__

ABOUT = """Set one dial for each context: high reward, and a guarantee on the realized cost in every round.

Each decision's certificate states its guarantee and all assumptions. Errors are problem+json with a `code`; no error
repeats a context. Writes are acknowledged after their commit and are safe to repeat."""

REFERENCE = "#/components/schemas/{model}"


def document() -> dict[str, Any]:
    """The whole document; it refers to nothing outside itself.

    >>> sorted(document()["paths"])[:2]
    ['/healthz', '/metrics']
    """
    every = [each for methods in operations.values() for each in methods.values()]
    taken = {each.takes for each in every if each.takes} | {schemas.Spec}
    given = {each.gives for each in every if not isinstance(each.gives, str)} | {schemas.ProblemDetails}
    _, made = models_json_schema(
        sorted(((model, "validation") for model in taken | given), key=lambda pair: pair[0].__name__),
        ref_template=REFERENCE,
    )
    for model in (schemas.NewStudy, schemas.Amendment):
        made["$defs"][model.__name__]["properties"]["spec"] = _reference(schemas.Spec)
    paths: dict[str, Any] = {}
    for path, methods in operations.items():
        plain = re.sub(r":\w+}", "}", path)
        paths[plain] = {method.lower(): _about(plain, method, each) for method, each in methods.items()}
    key = {"type": "http", "scheme": "bearer", "description": "sd_…; `safedial key create` makes one"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "safedial", "version": __version__, "description": ABOUT},
        "paths": paths,
        "components": {"schemas": made["$defs"], "securitySchemes": {"key": key}},
    }


def _about(path: str, method: str, operation: Operation) -> dict[str, Any]:
    """One operation."""
    status = 201 if method == "POST" else 200
    answers = {str(status): _content(operation.gives, "what is described above")}
    for code, words in operation.also.items():
        answers[str(code)] = _content(operation.gives, words) if code == 200 else {"description": words}
    problem = {"application/problem+json": {"schema": _reference(schemas.ProblemDetails)}}
    answers["default"] = {"description": "an error, with a `code`", "content": problem}
    told: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "summary": operation.handler.__name__.replace("_", " ").capitalize(),
        "description": operation.handler.__doc__,
        "parameters": _parameters(path, operation),
        "responses": answers,
    }
    if operation.takes is not None:
        told["requestBody"] = {"required": True, **_content(operation.takes, "")}
        del told["requestBody"]["description"]
    if operation.role is not None:
        told["security"] = [{"key": []}, {}]
    return told


def _parameters(path: str, operation: Operation) -> list[dict[str, Any]]:
    """Those of the path, of the query, and the Idempotency-Key."""
    text = {"type": "string"}
    found = [{"name": name, "in": "path", "required": True, "schema": text} for name in re.findall(r"{(\w+)}", path)]
    for name, schema in type(operation.query).model_json_schema().get("properties", {}).items():
        words = schema.pop("description", "")
        found.append({"name": name, "in": "query", "required": False, "description": words, "schema": schema})
    if operation.key:
        words = "the same key and body give the same answer; another body is refused"
        limited = {**text, "minLength": 1, "maxLength": LONGEST_KEY}
        key = {"name": "Idempotency-Key", "in": "header", "required": False, "description": words, "schema": limited}
        found.append(key)
    return found


def _content(model: type[BaseModel] | str, words: str) -> dict[str, Any]:
    """A body: of a model in JSON, or of another type."""
    if isinstance(model, str):
        return {"description": words, "content": {model: {"schema": {"type": "string"}}}}
    return {"description": words, "content": {"application/json": {"schema": _reference(model)}}}


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=model.__name__)}
