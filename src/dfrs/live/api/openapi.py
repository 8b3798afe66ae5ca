"""The document that describes the API: what routes share, and bodies that are read without FastAPI's help."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema

from dfrs.live.protocol.job_update import JobUpdate
from dfrs.live.protocol.resources import (
    LABEL,
    ApiModel,
    InputRequest,
    JobRequest,
    Problem,
    ProgramRequest,
    ReservationRequest,
    TokenRequest,
)
from dfrs.version import __version__

_WORDS = {
    400: "The body ended too early.",
    401: "No token, or one that is unknown, expired or revoked.",
    403: "The token's role may not do this, or the job is another user's.",
    404: "There is no such thing.",
    409: "It cannot be done to something in this state.",
    408: "The body did not come in time.",
    413: "The body is too long: submissions and programs may have 2 MiB, input 68 KiB, others 16 KiB.",
    415: "The body is not application/json.",
    422: "A value breaks a rule: the detail names both.",
    429: "This token asks for more at once, or submits faster, than it may.",
    503: "Not now; try again.",
    504: "It is not known whether it was done: look before you do it again.",
}
_AFTER: dict[str, Any] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
_CHALLENGE: dict[str, Any] = {"WWW-Authenticate": {"description": "Bearer.", "schema": {"type": "string"}}}
_HEADERS = {401: _CHALLENGE, 429: _AFTER, 503: _AFTER}
_NO_NUL = r"^[^\x00]*$"
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What can go wrong on a route: what can everywhere, and `statuses`."""
    return {
        status: {"model": Problem, "description": _WORDS[status], "headers": _HEADERS.get(status, {})}
        for status in (401, 403, 422, 429, 503, 504, *statuses)
    }


def body(kind: type[ApiModel], example: dict[str, Any]) -> dict[str, Any]:
    """A body of that kind."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


def streamed(media_type: str, words: str) -> dict[int | str, dict[str, Any]]:
    """An answer that is text of that type."""
    return {200: {"description": words, "content": {media_type: {"schema": {"type": "string"}}}}}


def operation(route: APIRoute) -> str:
    """The function's name is the operation's."""
    return route.name


def describe(app: FastAPI) -> None:
    """Give `app` its document, made when first asked for."""

    def document() -> dict[str, Any]:
        """The OpenAPI document of all routes, with the bodies that are read by hand."""
        if app.openapi_schema is None:
            made = get_openapi(
                title="dfrs",
                version=__version__,
                summary="A cluster whose nodes are shared in fractions.",
                description=(
                    "Times are seconds since 1970; CPU is in cores, memory in bytes, fractions are in [0, 1]. "
                    "Errors are JSON with one line, `detail`."
                ),
                routes=app.routes,
                tags=[{"name": name, "description": words} for name, words in _TAGS.items()],
            )
            made["components"]["schemas"].update(_bodies())
            app.openapi_schema = made
        return app.openapi_schema

    app.openapi = document


_TAGS = {
    "jobs": "What users submit.",
    "nodes": "Where it runs.",
    "cluster": "The whole, and its history.",
    "tokens": "Who may do what.",
}


def _bodies() -> dict[str, Any]:
    _, found = models_json_schema(
        [
            (kind, "validation")
            for kind in (JobRequest, JobUpdate, TokenRequest, ProgramRequest, InputRequest, ReservationRequest)
        ],
        ref_template="#/components/schemas/{model}",
    )
    made: dict[str, Any] = found["$defs"]
    # The rules of the validators, which no annotation says.
    job = made["JobRequest"]["properties"]
    # Keys that a pattern does not fit are no more than unknown to JSON Schema; here they are refused.
    job["resources"]["additionalProperties"] = False
    for properties in (job, made["JobUpdate"]["properties"]):
        next(kind for kind in properties["name"]["anyOf"] if kind["type"] == "string")["pattern"] = LABEL
    for program in (job, made["ProgramRequest"]["properties"]):
        program["command"]["items"]["pattern"] = _NO_NUL
        program["command"]["prefixItems"] = [
            {"type": "string", "minLength": 1, "maxLength": 131072, "pattern": _NO_NUL}
        ]
        program["environment"]["propertyNames"] = {"pattern": r"^(?!DFRS_)[A-Za-z_][A-Za-z0-9_]*$"}
        program["environment"]["additionalProperties"]["pattern"] = _NO_NUL
    made["InputRequest"]["properties"]["data"]["pattern"] = _BASE64
    return made
