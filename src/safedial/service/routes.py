"""Routes of studies and decisions: each checks access and body, makes one call to the study, and answers."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from safedial.decision.decision import LIMITS
from safedial.errors import InvalidInput
from safedial.service import schemas
from safedial.service.access import Caller
from safedial.service.app_state import Service
from safedial.service.problem import Problem
from safedial.service.routing import Handler, idempotency_key, reply, route
from safedial.study import Receipt, list_studies
from safedial.study.errors import StudyError
from safedial.study.manage import make_study
from safedial.study.spec import read_spec

LARGEST_DIM = 1_000
"""The largest dimension of a study created over HTTP, because d x d numbers are held in memory."""


@route("POST", "/v1/studies", role="admin", takes=schemas.NewStudy, gives=schemas.NewStudyState, key=True)
async def create(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Create a study. With an Idempotency-Key, repeating the request returns the study that it created."""
    if caller.study:
        raise Problem("forbidden", "this key is for one study")
    again = idempotency_key(request) is not None
    check_spec(fields["spec"])
    made, notes = await asyncio.to_thread(
        make_study,
        fields["name"],
        fields["spec"],
        storage=service.store,
        actor=caller.actor,
        load_if_exists=again,
    )
    service.studies[made.name] = made
    again = not made.created
    return reply({**await state_of(made), "warnings": notes, "replayed": again}, 201, replayed=again)


@contextmanager
def of_right_kind() -> Iterator[None]:
    """Refuse a specification with values of unexpected types."""
    try:
        yield
    except InvalidInput:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError):
        raise Problem("invalid_input", "spec: holds a value of the wrong kind", field="spec") from None


def check_spec(given: Any) -> None:
    """Refuse an invalid specification."""
    with of_right_kind():
        dim = read_spec(given, quiet=True).rules.dim
    if dim > LARGEST_DIM:
        raise Problem("invalid_input", f"dim: a study made over HTTP has at most {LARGEST_DIM}", field="spec")


@route("GET", "/v1/studies", gives=schemas.Studies)
async def studies(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """The studies that the key may see."""
    found = await asyncio.to_thread(list_studies, service.store)
    return reply({"studies": [row for row in found if caller.study in ("", row["name"])]})


@route("GET", "/v1/studies/{name}", gives=schemas.StudyState)
async def state(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """A study's counts, the monitor's evidence, whether and why it has stopped, and its specification."""
    return reply(await state_of(await service.study(request.path_params["name"])))


async def state_of(study: Any) -> dict[str, Any]:
    return {**await asyncio.to_thread(study.status), "spec": study.spec.fields}


@route("POST", "/v1/studies/{name}/decisions", role="decide", takes=schemas.Ask, gives=schemas.Decision, key=True)
async def decide(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Advise an action for a context. Answered after the commit.

    A repeated Idempotency-Key gets the earlier answer, marked by `replayed` and the header Idempotent-Replayed;
    `stop_reason` says whether the study has stopped since.
    """
    study = service.studies.get(request.path_params["name"]) or await service.study(request.path_params["name"])
    ask = partial(study.ask, **fields, key=idempotency_key(request), actor=caller.actor)
    made = await service.writer.call(ask)
    return reply(made.to_dict(shared=True), 201, replayed=made.replayed)


@route("GET", "/v1/decisions/{decision_id}", gives=schemas.DecisionRecord)
async def decision(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """A decision, its certificate, an explanation in plain words, and later reports about it."""
    name = request.path_params["decision_id"]
    study = await service.of_decision(name)

    def read() -> dict[str, Any]:
        found = study.decision(name)
        why = LIMITS[found.limit]
        return {**found.to_dict(), "why": why, "explanation": str(found.explain()), "events": study.about(name)}

    return reply(await asyncio.to_thread(read))


async def _told(service: Service, request: Request, act: str, caller: Caller, fields: dict[str, Any]) -> Response:
    name = request.path_params["decision_id"]
    study = await service.of_decision(name)
    return receipt_of(await service.writer.call(partial(getattr(study, act), name, **fields, actor=caller.actor)))


def receipt_of(receipt: Receipt) -> Response:
    """201 if it was written now, 200 if it was already there."""
    return reply(receipt.to_dict(), 201 if receipt.created else 200, replayed=not receipt.created)


def writes(path: str, *, role: str, takes: type[BaseModel], key: bool = False) -> Callable[[Handler], Handler]:
    """A route that writes one event and answers with its receipt."""
    again = {200: "already recorded by an earlier request"}
    return route("POST", path, role=role, takes=takes, gives=schemas.Receipt, key=key, also=again)


@writes("/v1/decisions/{decision_id}/outcome", role="observe", takes=schemas.Outcome)
async def outcome(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Report the outcome of a decision, once. A different outcome is a conflict: send a correction instead."""
    try:
        return await _told(service, request, "tell", caller, fields)
    except StudyError as error:
        if error.code != "conflict":
            raise
        way = f"POST /v1/decisions/{request.path_params['decision_id']}/correction, with a reason, replaces an outcome"
        raise Problem("conflict", way) from None


@writes("/v1/decisions/{decision_id}/correction", role="observe", takes=schemas.Correction, key=True)
async def correction(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Correct values of a reported outcome; the model is rebuilt with the corrected ones."""
    return await _told(service, request, "correct", caller, {**fields, "key": idempotency_key(request)})


@writes("/v1/decisions/{decision_id}/void", role="observe", takes=schemas.Void)
async def void(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Declare a round void. Unless its reason is unrelated to the outcome, certified policies and HP-Student learn
    nothing from this round on; HP-Conformal and HP-Shield count it as exceeding. It cannot be undone or changed later.
    """
    return await _told(service, request, "void", caller, fields)


@writes("/v1/studies/{name}/resume", role="admin", takes=schemas.Resume, key=True)
async def resume(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Clear an alarm. A person decides this and gives the reason."""
    study = await service.study(request.path_params["name"])
    asked = partial(study.resume, **fields, key=idempotency_key(request), actor=caller.actor)
    return receipt_of(await service.writer.call(asked))


@writes("/v1/studies/{name}/amendment", role="admin", takes=schemas.Amendment, key=True)
async def amendment(service: Service, request: Request, caller: Caller, fields: dict[str, Any]) -> Response:
    """Change the specification from the next decision on. Earlier rounds stay judged by the earlier rules."""
    study = await service.study(request.path_params["name"])
    amend = partial(study.amend, **fields, key=idempotency_key(request), actor=caller.actor)

    def amended() -> Receipt:
        with of_right_kind(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return amend()

    return receipt_of(await asyncio.to_thread(amended))
