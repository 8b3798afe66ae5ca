"""The REST API as typed calls: what the command line uses, and any other program may.

>>> with dfrs.Client() as client:  # doctest: +SKIP
...     (job,) = client.submit(["sleep", "60"], cpu_cores=0.5)
...     print(client.job(job).why)
"""

import json
import os
import socket
import ssl
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from pydantic import BaseModel, TypeAdapter, ValidationError

from dfrs.live.drivers.base import Stream
from dfrs.live.errors import ConflictError, DeniedError, NotFoundError, TooManyError, UnavailableError, UnreachableError
from dfrs.live.failover import NOTHING_SENT, FailoverTransport
from dfrs.live.following import PATIENCE_S, Patience, asleep, asleep_between, output_parts, until_ended
from dfrs.live.job_request import checked_update, job_request
from dfrs.live.protocol.addresses import addresses, must_be_secret
from dfrs.live.protocol.resources import (
    Activity,
    Cluster,
    ClusterSnapshot,
    ExpectedStart,
    Explanation,
    GanttBar,
    InputRequest,
    InputTaken,
    Job,
    JobPoint,
    JobRequest,
    JobState,
    NewToken,
    Node,
    OutputPart,
    ProgramRequest,
    Reservation,
    ShadowChoice,
    TimePoint,
    TokenInfo,
    TokenRequest,
)
from dfrs.model.errors import DfrsError, InputError

if TYPE_CHECKING:
    from dfrs.live.executor.executor import ClusterExecutor

CLIENT_FILE = "client.json"
PAGE = 1000
"""Jobs asked for at once where all are wanted."""
MOST_BETWEEN = 100
"""Jobs that may end while an answer is made."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a cluster is, and who asks."""

    url: str
    """Of its controller; with commas between them where there are several, of which one leads."""
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    """Certificate authority to trust, PEM; None: those of the system."""
    own: bool = False
    """Whether it is the cluster of this account on this machine, as its client file says."""


class _ClientFile(BaseModel):
    url: str
    token: str | None = None
    ca: Path | None = None


def state_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """DFRS_STATE, else dfrs below the user's directory for state."""
    if named := environ.get("DFRS_STATE"):
        return Path(named)
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "dfrs"


def find_endpoint(
    server: str | None = None,
    token_file: Path | None = None,
    ca: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Endpoint:
    """What is given; else DFRS_SERVER, DFRS_TOKEN_FILE and DFRS_CA; else the client file of the state directory.

    The file's token goes to the file's own addresses only. Raises UnreachableError if nothing names a cluster,
    InputError for a file that cannot be read.
    """
    url = server or environ.get("DFRS_SERVER") or None
    token_path = token_file or (Path(environ["DFRS_TOKEN_FILE"]) if environ.get("DFRS_TOKEN_FILE") else None)
    authority = ca or (Path(environ["DFRS_CA"]) if environ.get("DFRS_CA") else None)
    token = None if token_path is None else _read_token(token_path)
    path = state_directory(environ) / CLIENT_FILE
    known = _read_client_file(path)
    own = url is None
    if url is None:
        if known is None:
            raise UnreachableError(f"no cluster is known: {path} is not there; start one with: dfrs up")
        url = known.url
    # The token may go to each address in the file, and to no other.
    if known is not None and set(addresses(url)) <= set(addresses(known.url)):
        token, authority = token or known.token, authority or known.ca
    return Endpoint(
        url=",".join(check_url(each) for each in addresses(url)) or check_url(url), token=token, ca=authority, own=own
    )


def read_client_file(state: Path) -> Endpoint | None:
    """The endpoint that the controller of a state directory left there; None without one. Raises InputError."""
    known = _read_client_file(state / CLIENT_FILE)
    return None if known is None else Endpoint(url=known.url, token=known.token, ca=known.ca, own=True)


def _read_client_file(path: Path) -> _ClientFile | None:
    try:
        return _ClientFile.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError:
        raise InputError(f"{path}: must be what dfrs serve writes: url, token and ca, as JSON") from None


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the token cannot be read: {getattr(error, 'strerror', 'not text')}") from None
    if not token or not token.isascii() or any(character.isspace() for character in token):
        raise InputError(f"{path}: must hold one token and nothing else")
    return token


def check_url(url: str, name: str = "--server") -> str:
    """The address of one controller, which is an option's `name`. Raises InputError."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, good = None, False
    if parts is None or not good:
        raise InputError(f'{name} "{url}": must be an address, as https://cluster.example:7070')
    must_be_secret(parts, name)
    return url.rstrip("/")


class Client:
    """A connection to the controller of a live cluster, for any number of threads; a context manager.

    `url` is the controller's address (with commas between several); without it the cluster is found as the command
    line finds it: by DFRS_SERVER, or by the client file of `dfrs up`. `token` is the text of a token; without it, that
    of DFRS_TOKEN_FILE or of the client file. `ca` is the certificate authority to trust, PEM. `timeout_s`: how long an
    answer may take.

    Every call raises UnreachableError, DeniedError, NotFoundError, ConflictError, UnavailableError, TooManyError or
    InputError with the controller's own words, in one line; other answers raise DfrsError, of which these are kinds.
    """

    def __init__(
        self,
        url: str | Endpoint | None = None,
        token: str | None = None,
        *,
        ca: str | Path | None = None,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = 15.0,
    ) -> None:
        endpoint = _endpoint(url, token, None if ca is None else Path(ca))
        urls = addresses(endpoint.url)
        self._first, self._own = urls[0], endpoint.own
        verify = _context(endpoint)
        self._failover: FailoverTransport | None = None
        if len(urls) > 1:
            transport = httpx.HTTPTransport(verify=verify, trust_env=False) if transport is None else transport
            self._failover = transport = FailoverTransport(urls, transport)
        headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
        # A proxy of the environment, or a .netrc, has no say in who sees the token.
        self._http = httpx.Client(
            base_url=f"{self._first}/api/v1",
            headers=headers,
            timeout=timeout_s,
            transport=transport,
            verify=verify,
            trust_env=False,
        )
        self._timeout_s = timeout_s

    @property
    def url(self) -> str:
        """Of the controller that was asked last."""
        return self._first if self._failover is None else self._failover.url

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def submit(self, command: JobRequest | Sequence[object], **fields: Any) -> list[int]:  # noqa: ANN401
        """Submit a program and its arguments; job ids: one, or one for each of an array.

        `fields` are those of JobRequest, as `cpu_cores` (of a task), `memory_bytes`, `tasks`, `environment`. The job
        runs in this directory, and gets PATH, HOME, LANG, USER, LOGNAME and SHELL beside its `environment`, as with
        `dfrs submit`; a JobRequest is sent as it is. It is not sent twice: after UnreachableError look at `jobs`.
        """
        if isinstance(command, JobRequest):
            if fields:
                raise InputError(f"{next(iter(fields))}: is a field of the request: set it there")
            request = command
        else:
            request = job_request(command, **fields)
        body = request.model_dump(mode="json", exclude_defaults=True)
        return self._ask("POST", "/jobs", TypeAdapter(dict[str, list[int]]), json=body)["jobs"]

    def jobs(
        self,
        *,
        user: str | None = None,
        states: Iterable[JobState] | None = None,
        before: int | None = None,
        since: float | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """The latest first, at most `limit`; without `states` those that have not ended. Of those that have, only those
        that did `since` then or later, in seconds since 1970.
        """
        wanted = None if states is None else [state.value for state in states]
        return self._get("/jobs", list[Job], user=user, state=wanted, before=before, since=since, limit=limit)

    def all_jobs(
        self, *, user: str | None = None, states: Iterable[JobState] | None = None, since: float | None = None
    ) -> Generator[Job, None, None]:
        """All of them, the latest first, page by page; `since` as for `jobs`."""
        wanted = None if states is None else list(states)
        before: int | None = None
        while page := self.jobs(user=user, states=wanted, before=before, since=since, limit=PAGE):
            yield from page
            # A page lacks those that ended while it was made.
            if len(page) < PAGE - MOST_BETWEEN:
                return
            before = page[-1].id

    def job(self, job: int) -> Job:
        """A job as it is now."""
        return self._get(f"/jobs/{job}", Job)

    def wait(self, *jobs: int, timeout_s: float | None = None, patience_s: float = PATIENCE_S) -> list[Job]:
        """The jobs, once all have ended. Raises NotEndedError (a TimeoutError) after `timeout_s`.

        A controller that is away for up to `patience_s`, such as one that is started again, is waited for.
        """
        return asleep(until_ended(self, jobs, Patience(patience_s), timeout_s))

    def follow(
        self, job: int, *, rank: int = 0, stream: Stream = "out", patience_s: float = PATIENCE_S
    ) -> Iterator[str]:
        """What a task of the job writes, from its beginning and as it comes, until it has ended.

        At least the last 16 MiB are kept of an output; bytes that are not UTF-8 are replaced.
        """
        steps = output_parts(self, job, rank, stream, Patience(patience_s), follow=True)
        return (part.text for part in asleep_between(steps))

    def executor(
        self,
        *,
        cpu_cores: float | None = None,
        memory_bytes: int | None = None,
        python: str = sys.executable,
        patience_s: float = PATIENCE_S,
        **fields: Any,  # noqa: ANN401
    ) -> "ClusterExecutor":
        """A `concurrent.futures.Executor` that makes each call a job of its own; see ClusterExecutor.

        `cpu_cores` and `memory_bytes` are what a call needs, `fields` others of JobRequest. This client must stay open
        as long as the executor is in use.
        """
        from dfrs.live.executor.executor import ClusterExecutor  # noqa: PLC0415 - it needs cloudpickle, this does not

        return ClusterExecutor(
            self,
            python=python,
            patience_s=patience_s,
            fields={"cpu_cores": cpu_cores, "memory_bytes": memory_bytes, **fields},
        )

    def cancel(self, job: int) -> None:
        """End it."""
        self._post(f"/jobs/{job}/cancel")

    def hold(self, job: int) -> None:
        """Keep it from running."""
        self._post(f"/jobs/{job}/hold")

    def release(self, job: int) -> None:
        """The opposite of hold."""
        self._post(f"/jobs/{job}/release")

    def requeue(self, job: int) -> None:
        """End what runs of it, and let it begin anew."""
        self._post(f"/jobs/{job}/requeue")

    def update(self, job: int, **fields: Any) -> Job:  # noqa: ANN401
        """Change fields of its request, as `time_limit_s`, `name` or `after`; the job as it is then.

        Those of JobUpdate. One that has begun keeps all but its name, CPU need, minimum yield and estimate:
        ConflictError.
        """
        body = checked_update(fields, {}).model_dump(mode="json", exclude_unset=True)
        return self._ask("PATCH", f"/jobs/{job}", TypeAdapter(Job), json=body)

    def explain(self, job: int) -> Explanation:
        """Why it is where it is."""
        return self._get(f"/jobs/{job}/explain", Explanation)

    def job_points(self, job: int) -> list[JobPoint]:
        """How it fared: at most a hundred instants since it first ran."""
        return self._get(f"/jobs/{job}/points", list[JobPoint])

    def expected_start(self, job: int) -> ExpectedStart:
        """When it starts if it waits, or goes on if it is paused, as far as users said how long their jobs run."""
        return self._get(f"/jobs/{job}/start", ExpectedStart)

    def output(
        self,
        job: int,
        *,
        rank: int = 0,
        stream: Stream = "out",
        offset: int = 0,
        limit: int = 1 << 18,
        program: str | None = None,
        wait_s: float = 0.0,
        raw: bool = False,
    ) -> OutputPart:
        """A piece of a task's output, or of that of a program beside it; `offset` and `limit` in bytes.

        `wait_s`: so long the node waits for more of it, at most 20 s; a job with input that is read so
        writes no faster than it is read. `raw`: all bytes, in base64, instead of text.
        """
        return self._get(
            f"/jobs/{job}/output",
            OutputPart,
            longer_s=max(0.0, wait_s),
            rank=rank,
            stream=stream,
            offset=offset,
            limit=limit,
            program=program,
            wait_s=wait_s or None,
            raw=raw or None,
        )

    def send_input(self, job: int, part: InputRequest) -> int:
        """Send a program of a job input, a size of its terminal, or a signal; how many bytes it has taken.

        A part may be sent again: bytes that have come already are passed over. A signal comes as often as it is sent.
        """
        body = part.model_dump(mode="json", exclude_defaults=True)
        return self._ask("POST", f"/jobs/{job}/input", TypeAdapter(InputTaken), json=body).taken

    def execute(self, job: int, program: ProgramRequest) -> None:
        """Start a program beside a job's, where and as that runs. It may be asked for again: it is started once."""
        body = program.model_dump(mode="json", exclude_defaults=True)
        self._ask("POST", f"/jobs/{job}/programs", TypeAdapter(ProgramRequest), json=body)

    def nodes(self) -> list[Node]:
        """All of them, by name."""
        return self._get("/nodes", list[Node])

    def drain(self, node: str, reason: str = "") -> None:
        """Let nothing more come to it."""
        self._post(f"/nodes/{quote(node, safe='')}/drain", **({"reason": reason} if reason else {}))

    def undrain(self, node: str) -> None:
        """The opposite of drain."""
        self._post(f"/nodes/{quote(node, safe='')}/undrain")

    def reserve(
        self,
        *nodes: str,
        duration_s: float,
        start_at: float | None = None,
        reason: str = "",
        evacuate: bool = False,
    ) -> Reservation:
        """Let nothing more come to nodes from `start_at`, a wall-clock time or now, for so long. Admins.

        `evacuate`: jobs that are there then are ended and queued again, if they may begin anew.
        """
        wanted = {
            "nodes": nodes,
            "start_at": start_at,
            "duration_s": duration_s,
            "reason": reason,
            "evacuate": evacuate,
        }
        return self._ask("POST", "/reservations", TypeAdapter(Reservation), json=wanted)

    def reservations(self) -> list[Reservation]:
        """Those that have not ended, by their starts."""
        return self._get("/reservations", list[Reservation])

    def cancel_reservation(self, reservation: int) -> Reservation:
        """End it, or let it not begin. Admins."""
        return self._ask("POST", f"/reservations/{reservation}/cancel", TypeAdapter(Reservation))

    def cluster(self) -> Cluster:
        """The whole."""
        return self._get("/cluster", Cluster)

    def snapshot(
        self,
        *,
        user: str | None = None,
        states: Iterable[JobState] | None = None,
        limit: int | None = None,
        sort: str | None = None,
        job: int | None = None,
    ) -> ClusterSnapshot:
        """The cluster, its nodes and jobs at one instant, as `jobs` has them, but all unless there is a `limit`.

        With `sort`, as "user,-age", those that have not ended in that order. `job` is to be explained.
        """
        wanted = None if states is None else [state.value for state in states]
        return self._get("/snapshot", ClusterSnapshot, user=user, state=wanted, limit=limit, sort=sort, job=job)

    def activity(self, *, after: int = 0, job: int | None = None, limit: int = 200) -> list[Activity]:
        """The latest of those with a greater sequence number, in order."""
        return self._get("/activity", list[Activity], after=after, job=job, limit=limit)

    def timeseries(self, since: float) -> list[TimePoint]:
        """History since that wall-clock time."""
        return self._get("/timeseries", list[TimePoint], since=since)

    def gantt(self, since: float) -> list[GanttBar]:
        """Where tasks were since that wall-clock time."""
        return self._get("/gantt", list[GanttBar], since=since)

    def shadow(self, limit: int = 100) -> list[ShadowChoice]:
        """What the shadow policy would have done differently, the latest first."""
        return self._get("/shadow", list[ShadowChoice], limit=limit)

    def me(self) -> dict[str, Any]:
        """Who asks: user and role."""
        return self._get("/me", dict[str, Any])

    def create_token(self, request: TokenRequest) -> NewToken:
        """A new token; its secret is never told again. Admins."""
        return self._ask("POST", "/tokens", TypeAdapter(NewToken), json=request.model_dump(mode="json"))

    def health(self) -> str | None:
        """None, or what is wrong with the controller."""
        with self._translated():
            answer = self._http.get(f"{self.url}/healthz")
        return None if answer.is_success else _detail(answer)

    def tokens(self) -> list[TokenInfo]:
        """All tokens, without their secrets. Admins."""
        return self._get("/tokens", list[TokenInfo])

    def rebind_token(self, token: int) -> TokenInfo:
        """Have the node of an agent's token admitted anew, on any host and with what it then offers. Admins."""
        return self._ask("POST", f"/tokens/{token}/rebind", TypeAdapter(TokenInfo))

    def revoke_token(self, token: int) -> None:
        """End a token at once. Admins."""
        self._post(f"/tokens/{token}/revoke")

    def log(self) -> Generator[str, None, None]:
        """Lines of the durable log, each a JSON object."""
        with self._translated(), self._http.stream("GET", "/log", timeout=httpx.Timeout(15.0, read=60.0)) as answer:
            if answer.is_error:
                answer.read()
            self._raise_for(answer)
            yield from (line for line in answer.iter_lines() if line)

    def _post(self, path: str, **parameters: str) -> None:
        with self._translated():
            self._raise_for(self._http.post(path, params=parameters))

    def _get(self, path: str, kind: type[_T], *, longer_s: float = 0.0, **parameters: object) -> _T:
        """`longer_s`: so much longer than others may this answer take."""
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._ask("GET", path, TypeAdapter(kind), params=given, longer_s=longer_s)

    def _ask(
        self,
        method: str,
        path: str,
        adapter: TypeAdapter[_T],
        *,
        params: Mapping[str, Any] | None = None,
        json: object = None,
        longer_s: float = 0.0,
    ) -> _T:
        timeout = httpx.Timeout(self._timeout_s, read=self._timeout_s + longer_s)
        with self._translated():
            answer = self._http.request(method, path, params=params, json=json, timeout=timeout)
            self._raise_for(answer)
            try:
                return adapter.validate_json(answer.content)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(map(str, first["loc"]))
                raise DfrsError(
                    f"{self.url}{path}: not an answer of this version of dfrs: {where}: {first['msg']}"
                ) from None

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except httpx.TransportError as error:
            late = isinstance(error, httpx.TimeoutException)
            why = f"no answer from {self.url} in time: is its controller well?" if late else self._cause(error)
            raise UnreachableError(why, sent=not isinstance(error, NOTHING_SENT)) from None

    def _cause(self, error: httpx.TransportError) -> str:
        """Why nobody was reached."""
        first: BaseException = error
        while (under := first.__cause__ or first.__context__) is not None:
            first = under
        if isinstance(first, ssl.SSLCertVerificationError):
            return f"{self.url}: not trusted: {first.verify_message}; name its authority with --ca"
        if isinstance(first, ssl.SSLError):
            return f"{self.url}: no TLS there: {first.reason or first}"
        if isinstance(first, socket.gaierror):
            return f"{self.url}: name not found: {first.strerror}"
        if isinstance(first, ConnectionRefusedError):
            start = "; start one with: dfrs up" if self._own else ""
            return f"no cluster at {self.url}: connection refused{start}"
        why = first.strerror if isinstance(first, OSError) else str(first)
        return f"{self.url}: cannot be reached: {' '.join((why or type(first).__name__).split())}"

    def _raise_for(self, answer: httpx.Response) -> None:
        if answer.is_success:
            return
        detail, status = _detail(answer), answer.status_code
        if status == 401:
            known = "Authorization" in self._http.headers
            raise DeniedError(f"{self.url}: {detail if known else 'wants a token: name its file with --token-file'}")
        kinds: dict[int, type[DfrsError]] = {
            400: InputError,
            403: DeniedError,
            404: NotFoundError,
            409: ConflictError,
            413: InputError,
            422: InputError,
            429: TooManyError,
            503: UnavailableError,
            504: UnreachableError,
        }
        if kind := kinds.get(status):
            raise kind(detail)
        raise DfrsError(f"{self.url}: status {status}: {detail}")


def _endpoint(url: str | Endpoint | None, token: str | None, ca: Path | None) -> Endpoint:
    found = url if isinstance(url, Endpoint) else find_endpoint(url, ca=ca)
    if token is None:
        return found
    if not token.isascii() or not token or any(character.isspace() for character in token):
        raise InputError("token: must be one token and nothing else")
    return replace(found, token=token)


def _detail(answer: httpx.Response) -> str:
    """What went wrong, in one line: the API's own words, or a validation's first error."""
    try:
        detail = answer.json()["detail"]
        if isinstance(detail, str):
            return " ".join(detail.split())
        first: Mapping[str, Any] = detail[0]
        return f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"
    except (json.JSONDecodeError, UnicodeDecodeError, LookupError, TypeError):
        return answer.reason_phrase or "no reason given"


def _context(endpoint: Endpoint) -> ssl.SSLContext | bool:
    if endpoint.ca is None:
        # Reading the system's authorities takes longer than a request; without TLS there is nothing to verify.
        return any(url.startswith("https:") for url in addresses(endpoint.url))
    try:
        return ssl.create_default_context(cafile=str(endpoint.ca))
    except (OSError, ssl.SSLError):
        raise InputError(f"{endpoint.ca}: must be a certificate authority, as PEM") from None
