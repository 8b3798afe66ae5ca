"""What the API answers: JSON without a detour, problems in one line."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from dfrs.live.errors import ConflictError, NotFoundError, TooManyError, UnavailableError, UncertainError
from dfrs.live.protocol.resources import ApiModel, GanttBar, Problem
from dfrs.model.errors import DfrsError, InputError, StoppedError
from dfrs.model.text import visible

RETRY_S = 2
"""When to try again what cannot be done now."""

AT_ONCE = 200
"""So many resources are written in one go."""
TURN_S = 0.01
"""After so long others have their turn."""

_PARTS: TypeAdapter[list[Any]] = TypeAdapter(list[Any])
"""Writes each resource as what it is."""

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_log = structlog.get_logger("dfrs.api")


def reply(value: ApiModel, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A resource, as JSON."""
    return _answer(value.model_dump_json(), status, headers)


async def reply_all(values: Iterable[ApiModel | GanttBar], headers: Mapping[str, str] | None = None) -> Response:
    """A list of resources, as JSON; others have their turn while it is written."""
    return _answer(await _list(values), headers=headers)


async def reply_from(value: ApiModel, headers: Mapping[str, str] | None = None) -> Response:
    """As `reply`, of a resource whose tuples are long ones of resources: others have their turn while it is written."""
    fields: list[str] = []
    for name, found in value:
        if isinstance(found, tuple):
            fields.append(f'"{name}":{await _list(found)}')
        else:
            fields.append(value.model_dump_json(include={name})[1:-1])
    return _answer(f"{{{','.join(fields)}}}", headers=headers)


async def _list(values: Iterable[ApiModel | GanttBar]) -> str:
    texts: list[str] = []
    left, began_s = iter(values), time.perf_counter()
    while part := list(islice(left, AT_ONCE)):
        texts.append(_PARTS.dump_json(part)[1:-1].decode())
        if time.perf_counter() - began_s > TURN_S:
            await asyncio.sleep(0)
            began_s = time.perf_counter()
    return f"[{','.join(texts)}]"


def _answer(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(text, status, {**HEADERS, **(headers or {})}, "application/json")


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """What went wrong, in one line."""
    line = visible(" ".join(detail.split()))[:1000] or f"status {status}"
    return Response(Problem(detail=line).model_dump_json(), status, {**HEADERS, **(headers or {})}, "application/json")


def where(place: Sequence[object]) -> str:
    """The field at that place, from the outermost to the innermost."""
    return ".".join(str(part)[:60] for part in place)


def rule(message: str) -> str:
    """What a value must be, in the words of who checked it."""
    return message.removeprefix("Value error, ")


async def _known(_request: Request, error: Exception) -> Response:
    detail = str(error)
    if isinstance(error, NotFoundError):
        return problem(404, detail)
    if isinstance(error, ConflictError):
        return problem(409, detail)
    if isinstance(error, UncertainError):
        return problem(504, detail)
    if isinstance(error, UnavailableError | StoppedError):
        return problem(503, detail, {"Retry-After": str(RETRY_S)})
    if isinstance(error, TooManyError):
        return problem(429, detail, {} if error.retry_s is None else {"Retry-After": str(error.retry_s)})
    if isinstance(error, InputError):
        return problem(422, detail)
    _log.error("request failed", error=type(error).__name__, detail=detail)
    return problem(500, f"the controller failed: {detail}")


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, AnyHTTPException)
    if error.status_code not in (404, 405):
        return problem(error.status_code, error.detail, error.headers)
    headers = {} if error.status_code == 404 else {"Allow": ", ".join(_allowed(request))}
    detail = f"{request.method} {request.url.path[:200]!r}: there is no such route; see /api/v1/openapi.json"
    return problem(error.status_code, detail, headers)


def _allowed(request: Request) -> list[str]:
    """Methods of all routes with this path: the framework names those of the first alone."""
    here = (route for route in request.app.routes if isinstance(route, Route))
    matching = (route for route in here if route.matches(request.scope)[0] is not Match.NONE)
    return sorted({method for route in matching for method in route.methods or ()})


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first: dict[str, Any] = error.errors()[0]
    given = "" if first["type"] == "missing" else f": {str(first.get('input'))[:60]!r}"
    return problem(422, f"{where(first['loc'][1:]) or 'request'}{given}: {rule(first['msg'])}")


async def _unknown(request: Request, _error: Exception) -> Response:
    return problem(500, f"{request.method} {request.url.path[:200]}: the controller failed; its log says why")


def answer_problems(app: FastAPI) -> None:
    """Have every error of `app` answered in one line of JSON."""
    app.add_exception_handler(DfrsError, _known)
    app.add_exception_handler(AnyHTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unknown)
