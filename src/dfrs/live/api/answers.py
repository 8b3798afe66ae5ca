"""What the API answers: JSON without a detour, problems in one line, bodies read with a limit."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import structlog
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match, Route

from dfrs.live.protocol.ports import ConflictError, NotFoundError, UnavailableError
from dfrs.live.protocol.resources import ApiModel, Problem
from dfrs.model.errors import DfrsError, InputError, StoppedError

BODY_BYTES = 8 << 20
"""The longest body of a request."""
RETRY_S = 2
"""When to try again what cannot be done now."""

HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_log = structlog.get_logger("dfrs.api")
_Body = TypeVar("_Body", bound=ApiModel)


def reply(
    value: ApiModel | Sequence[ApiModel], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """One resource or a list of them, as JSON."""
    if isinstance(value, ApiModel):
        text = value.model_dump_json()
    else:
        text = f"[{','.join([item.model_dump_json() for item in value])}]"
    return Response(text, status, {**HEADERS, **(headers or {})}, "application/json")


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """What went wrong, in one line."""
    line = " ".join(detail.split())[:1000] or f"status {status}"
    return Response(Problem(detail=line).model_dump_json(), status, {**HEADERS, **(headers or {})}, "application/json")


async def read(request: Request, kind: type[_Body]) -> _Body:
    """The body as `kind`. Raises HTTPException 413, 415 or 422, naming the field and the rule, never its value."""
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HTTPException(415, f"content-type {content_type[:60]}: must be application/json")
    body = await _body(request)
    try:
        return kind.model_validate_json(body, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise HTTPException(422, f"{_where(first['loc']) or 'body'}: {_rule(first['msg'])}") from None


async def _body(request: Request) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > BODY_BYTES:
        raise HTTPException(413, f"body: {declared} bytes: must be at most {BODY_BYTES}")
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > BODY_BYTES:
                raise HTTPException(413, f"body: must be at most {BODY_BYTES} bytes")
            chunks.append(chunk)
    except ClientDisconnect:
        raise HTTPException(400, "body: the connection ended before it did") from None
    return b"".join(chunks)


def _where(place: Sequence[object]) -> str:
    return ".".join(str(part)[:60] for part in place)


def _rule(message: str) -> str:
    return message.removeprefix("Value error, ")


async def _known(_request: Request, error: Exception) -> Response:
    detail = str(error)
    if isinstance(error, NotFoundError):
        return problem(404, detail)
    if isinstance(error, ConflictError):
        return problem(409, detail)
    if isinstance(error, UnavailableError | StoppedError):
        return problem(503, detail, {"Retry-After": str(RETRY_S)})
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
    return problem(422, f"{_where(first['loc'][1:]) or 'request'}{given}: {_rule(first['msg'])}")


async def _unknown(request: Request, _error: Exception) -> Response:
    return problem(500, f"{request.method} {request.url.path[:200]}: the controller failed; its log says why")


def answer_problems(app: FastAPI) -> None:
    """Have every error of `app` answered in one line of JSON."""
    app.add_exception_handler(DfrsError, _known)
    app.add_exception_handler(AnyHTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unknown)
