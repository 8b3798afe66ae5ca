"""Who may ask for what: bearer tokens with roles, and the pace at which each may submit.

A viewer reads what everybody may know. A user also submits, and reads and controls jobs of their own name. An admin may
everything. An agent may only be an agent. Commands and output of a job are for its owner and for admins, since
arguments can hold secrets; the environment is shown to nobody.
"""

import time
from dataclasses import dataclass, field

from fastapi import HTTPException
from fastapi.openapi.models import HTTPBearer as BearerModel
from fastapi.openapi.models import SecurityBase as SchemeModel
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from starlette.requests import HTTPConnection

from dfrs.live.api.connections import proven
from dfrs.live.protocol.ports import Identity, Service
from dfrs.live.protocol.resources import Job, Role

READERS: tuple[Role, ...] = ("viewer", "user", "admin")
USERS: tuple[Role, ...] = ("user", "admin")
ADMINS: tuple[Role, ...] = ("admin",)
AGENTS: tuple[Role, ...] = ("agent",)

_KEPT = 10_000
"""Tokens whose pace is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and the controller that is asked."""

    service: Service
    user: str
    role: Role
    secret: str = field(repr=False)

    def owns(self, owner: str) -> bool:
        """Whether they may control a job of `owner` and see its command and output."""
        return self.role == "admin" or (self.role == "user" and self.user == owner)

    def own(self, job: int) -> None:
        """Raises HTTPException 403 unless the job is theirs; NotFoundError."""
        if not self.owns(self.service.owner(job)):
            raise HTTPException(403, f"job {job}: belongs to another user; only its owner or an admin may do this")

    def shown(self, job: Job) -> Job:
        """The job without what is not for them."""
        return job if self.owns(job.user) else job.model_copy(update={"command": ()})

    def still_valid(self) -> bool:
        """Whether the token that opened a long connection is still good."""
        return self.service.identify(self.secret) is not None


class Allow(SecurityBase):
    """A dependency: the caller, if their role is one of `roles`. Raises HTTPException 401, 403 or 422.

    The last is for query parameters that the route does not have: a filter with a slip in its name filters nothing.
    """

    model: SchemeModel = BearerModel(description="A token of `dfrs token create`, or of the file client.json.")
    scheme_name = "bearer"

    def __init__(self, roles: tuple[Role, ...]) -> None:
        self.roles = roles

    async def __call__(self, connection: HTTPConnection) -> Caller:
        """Identify the caller and check the role."""
        service: Service = connection.app.state.service
        secret = _bearer(connection)
        found = None if secret is None else identify(service, secret)
        if secret is None or found is None:
            if secret is not None:
                await connection.app.state.refused.count(connection)
            raise unauthorized(given=secret is not None)
        proven(connection.scope, None if found.role == "agent" else hash(secret), always=found.role == "admin")
        if found.role not in self.roles:
            raise HTTPException(403, f"role {found.role}: only {' or '.join(self.roles)} may do this")
        if connection.scope["query_string"]:
            _only_known(connection)
        return Caller(service=service, user=found.user, role=found.role, secret=secret)


class AllowScraper(SecurityBase):
    """A dependency: any reader, or nobody from loopback where `open_metrics` is chosen. Raises HTTPException."""

    model: SchemeModel = Allow.model
    scheme_name = Allow.scheme_name
    roles = READERS

    def __init__(self) -> None:
        self._allow = Allow(READERS)

    async def __call__(self, connection: HTTPConnection) -> None:
        """Check the caller, unless nobody needs to be one."""
        near = connection.client is not None and connection.client.host in {"127.0.0.1", "::1"}
        if not (near and connection.app.state.settings.open_metrics and "authorization" not in connection.headers):
            await self._allow(connection)


def identify(service: Service, secret: str) -> Identity | None:
    """Whose token this is; None for anything that cannot be one."""
    return service.identify(secret) if secret.isascii() and len(secret) <= 512 else None


def unauthorized(*, given: bool) -> HTTPException:
    """401, which says whether the token was missing or not good."""
    detail = (
        "token: unknown, expired or revoked; ask an admin for another"
        if given
        else "token: missing; send it as Authorization: Bearer TOKEN"
    )
    challenge = 'Bearer realm="dfrs", error="invalid_token"' if given else 'Bearer realm="dfrs"'
    return HTTPException(401, detail, {"WWW-Authenticate": challenge})


def _bearer(connection: HTTPConnection) -> str | None:
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    return (secret.strip() or None) if scheme.lower() == "bearer" else None


def _only_known(connection: HTTPConnection) -> None:
    route = connection.scope.get("route")
    if isinstance(route, APIRoute):
        known = {parameter.alias for parameter in route.dependant.query_params}
        for name in connection.query_params:
            if name not in known:
                there = f"parameters are {', '.join(sorted(known))}" if known else "this route has none"
                raise HTTPException(422, f"{name[:60]!r}: there is no such parameter; {there}")


class Pace:
    """How fast a token may do `what`: `per_s` on average, with `at_once` more (ten seconds' worth). None: as it can."""

    def __init__(
        self,
        per_s: float | None,
        *,
        at_once: float | None = None,
        what: str = "submissions",
        instead: str = "use an array, or wait",
    ) -> None:
        self._per_s = per_s
        self._most = max(1.0, 10.0 * (per_s or 0.0) if at_once is None else at_once)
        self._what, self._instead = what, instead
        self._left: dict[int, tuple[float, float]] = {}

    def take(self, caller: Caller) -> None:
        """Count one. Raises HTTPException 429."""
        if self._per_s is None:
            return
        now_s, key = time.monotonic(), hash(caller.secret)
        left, since_s = self._left.pop(key, (self._most, now_s))
        left = min(self._most, left + (now_s - since_s) * self._per_s)
        if len(self._left) >= _KEPT:
            del self._left[next(iter(self._left))]
        self._left[key] = (left - 1.0 if left >= 1.0 else left, now_s)
        if left < 1.0:
            wait_s = (1.0 - left) / self._per_s
            raise HTTPException(
                429,
                f"{self._what}: this token may make {self._per_s:g} a second; {self._instead}",
                {"Retry-After": str(max(1, round(wait_s + 0.5)))},
            )


def changes_pace() -> Pace:
    """How fast a user may change jobs, each time with an event on record: an array of the greatest size at once."""
    return Pace(10.0, at_once=10_000.0, what="changes of jobs", instead="wait")
