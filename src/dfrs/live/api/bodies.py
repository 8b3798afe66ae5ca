"""Bodies of requests, read with limits, so that none keeps the event loop from everybody else.

The parser holds the interpreter from the first byte to the last, in whichever thread it runs, and its time grows with
the values of a document more than with its bytes. So both are counted while the body comes, piece by piece, and a body
with too many of either is refused before anything parses it.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from fastapi import HTTPException, Request
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from dfrs.live.api.answers import rule, where
from dfrs.live.drivers.base import INPUT_CHARS
from dfrs.live.protocol.marks import Marks
from dfrs.live.protocol.resources import ApiModel

BODY_S = 30.0
"""So long may a body take to come."""
NAMED = 3
"""So many unknown fields are named in an error."""

_Body = TypeVar("_Body", bound=ApiModel)
_ANYTHING = TypeAdapter[Any](Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """The largest body of a route."""

    bytes: int
    marks: int
    """Quotes of strings, and commas and opening brackets outside of them: about three for each name with its value."""


SMALL = BodyLimits(bytes=16 << 10, marks=1000)
"""Of most routes."""
INPUT = BodyLimits(bytes=INPUT_CHARS + (4 << 10), marks=100)
"""Of what a user sends to a program."""
SUBMISSION = BodyLimits(bytes=2 << 20, marks=20_000)
"""Of a job: a command and an environment as large as the controller takes them, each character written as an escape."""


async def read(request: Request, kind: type[_Body], limits: BodyLimits = SMALL) -> _Body:
    """The body as `kind`.

    Raises HTTPException 400, 408, 413, 415 or 422, naming the field and the rule, never its value.
    """
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise HTTPException(415, f"content-type {content_type[:60]}: must be application/json")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > limits.bytes):
        raise HTTPException(413, f"body: {declared[:20]} bytes: must be at most {limits.bytes}")
    try:
        async with asyncio.timeout(BODY_S):
            body = await _gathered(request.stream(), limits)
    except ClientDisconnect:
        raise HTTPException(400, "body: the connection ended before it did") from None
    except TimeoutError:
        raise HTTPException(408, f"body: must come within {BODY_S:g} s") from None
    _only_known(body, kind)
    try:
        return kind.model_validate_json(body, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise HTTPException(422, f"{where(first['loc']) or 'body'}: {rule(first['msg'])}") from None


async def _gathered(chunks: AsyncIterator[bytes], limits: BodyLimits) -> bytes:
    body = bytearray()
    marks = Marks(limits.marks)
    async for chunk in chunks:
        if len(body) + len(chunk) > limits.bytes:
            raise HTTPException(413, f"body: must be at most {limits.bytes} bytes")
        body += chunk
        if not marks.add(chunk):
            raise HTTPException(
                422, f"body: must have at most {limits.marks} quotes, commas and brackets around values"
            )
    return bytes(body)


def _only_known(body: bytes, kind: type[ApiModel]) -> None:
    """Refuse unknown fields, by the names of the first few: validation would make an error of each."""
    try:
        document = _ANYTHING.validate_json(body)
    except ValueError:
        return  # validation says why
    if not isinstance(document, dict):
        return
    names = cast("dict[str, object]", document)
    unknown = [name for name in names if name not in kind.model_fields]
    if unknown:
        first = ", ".join(name[:60] for name in unknown[:NAMED])
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        raise HTTPException(422, f"{first}{more}: no such field; there are {', '.join(kind.model_fields)}")
