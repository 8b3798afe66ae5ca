"""The calls of `Client` for programs with an event loop: each is that of `Client`, in a thread, and awaited."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from dfrs.live.client import Client, Endpoint
from dfrs.live.drivers.base import Stream
from dfrs.live.following import PATIENCE_S, Patience, output_parts, until_ended
from dfrs.live.protocol.resources import Job, OutputPart

THREADS = 8
"""Calls under way at once; more of them queue. No thread is held while something is waited for."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _awaited(
    method: Callable[Concatenate[Client, _P], _T],
) -> Callable[Concatenate["AsyncClient", _P], Coroutine[Any, Any, _T]]:
    @functools.wraps(method)
    async def called(self: "AsyncClient", *arguments: _P.args, **named: _P.kwargs) -> _T:
        return await self.in_thread(functools.partial(method, self.client, *arguments, **named))

    return called


def _iterated(
    method: Callable[Concatenate[Client, _P], Iterator[_T]],
) -> Callable[Concatenate["AsyncClient", _P], AsyncIterator[_T]]:
    @functools.wraps(method)
    async def called(self: "AsyncClient", *arguments: _P.args, **named: _P.kwargs) -> AsyncIterator[_T]:
        items = method(self.client, *arguments, **named)
        while found := await self.in_thread(lambda: _next(items)):
            yield found[0]

    return called


class AsyncClient:
    """As `Client`, with the same methods, arguments and errors: `await` each call, iterate with `async for`.

    `async with` closes it. There is no `executor`: an event loop uses that of a `Client` by `run_in_executor`.
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
        self.client = Client(url, token, ca=ca, transport=transport, timeout_s=timeout_s)
        self._threads = ThreadPoolExecutor(THREADS, "dfrs-client")

    submit = _awaited(Client.submit)
    jobs = _awaited(Client.jobs)
    all_jobs = _iterated(Client.all_jobs)
    job = _awaited(Client.job)
    cancel = _awaited(Client.cancel)
    hold = _awaited(Client.hold)
    release = _awaited(Client.release)
    requeue = _awaited(Client.requeue)
    update = _awaited(Client.update)
    explain = _awaited(Client.explain)
    job_points = _awaited(Client.job_points)
    expected_start = _awaited(Client.expected_start)
    output = _awaited(Client.output)
    send_input = _awaited(Client.send_input)
    execute = _awaited(Client.execute)
    nodes = _awaited(Client.nodes)
    drain = _awaited(Client.drain)
    undrain = _awaited(Client.undrain)
    reserve = _awaited(Client.reserve)
    reservations = _awaited(Client.reservations)
    cancel_reservation = _awaited(Client.cancel_reservation)
    cluster = _awaited(Client.cluster)
    snapshot = _awaited(Client.snapshot)
    activity = _awaited(Client.activity)
    timeseries = _awaited(Client.timeseries)
    gantt = _awaited(Client.gantt)
    shadow = _awaited(Client.shadow)
    me = _awaited(Client.me)
    health = _awaited(Client.health)
    create_token = _awaited(Client.create_token)
    tokens = _awaited(Client.tokens)
    rebind_token = _awaited(Client.rebind_token)
    revoke_token = _awaited(Client.revoke_token)
    log = _iterated(Client.log)

    async def wait(self, *jobs: int, timeout_s: float | None = None, patience_s: float = PATIENCE_S) -> list[Job]:
        """As `Client.wait`."""
        steps = until_ended(self.client, jobs, Patience(patience_s), timeout_s)
        while not isinstance(found := await self.in_thread(lambda: _step(steps)), list):
            await asyncio.sleep(found)
        return found

    async def follow(
        self, job: int, *, rank: int = 0, stream: Stream = "out", patience_s: float = PATIENCE_S
    ) -> AsyncIterator[str]:
        """As `Client.follow`."""
        steps = output_parts(self.client, job, rank, stream, Patience(patience_s), follow=True)
        while found := await self.in_thread(lambda: _next(steps)):
            (step,) = found
            if isinstance(step, OutputPart):
                yield step.text
            else:
                await asyncio.sleep(step)

    @property
    def url(self) -> str:
        """Of the controller that was asked last."""
        return self.client.url

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        """What `work` returns, called in one of this client's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self.in_thread(self.client.close)
        self._threads.shutdown(wait=False)


def _next(items: Iterator[_T]) -> tuple[_T] | None:
    """The next item, None at the end: no StopIteration may leave a thread for a coroutine."""
    for item in items:
        return (item,)
    return None


def _step(steps: Generator[float, None, list[Job]]) -> float | list[Job]:
    """The next pause, or what the steps return."""
    try:
        return next(steps)
    except StopIteration as end:
        return end.value
