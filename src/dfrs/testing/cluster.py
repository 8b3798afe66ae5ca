"""A live cluster in memory: a real controller with its database, nodes without processes, a clock turned by hand."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dfrs.live.backends.agents.backend import AgentsBackend
from dfrs.live.controller.backend import Backend
from dfrs.live.controller.engine import Bound
from dfrs.live.controller.service import Controller
from dfrs.live.controller.settings import ControllerSettings
from dfrs.live.protocol.resources import Job, JobRequest, JobState
from dfrs.model.decisions import Policy
from dfrs.model.needs import Discovery
from dfrs.policies.names import find_policy
from dfrs.testing.in_memory import GIB, InMemoryHosts, InMemoryNode
from dfrs.testing.virtual_loop import VirtualExecutor, VirtualLoop

DEFAULT_POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"
REPORT_S = 0.05
"""Between two reports that the controller expects: it looks around as often."""
POLL_S = 0.005
PATIENCE_S = 90.0

T = TypeVar("T")


async def until(condition: Callable[[], T], what: object = "", patience_s: float = PATIENCE_S) -> T:
    """Wait for the first true value of `condition()`. Raises AssertionError that names `what` after `patience_s`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience_s
    while loop.time() < end:
        value = condition()
        if value:
            return value
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"after {patience_s} s still not: {what or condition}")


def make_controller(
    directory: str | Path,
    policy: str | Policy = DEFAULT_POLICY,
    *,
    discovery: Discovery | None = None,
    shadow: Policy | None = None,
    bound: Bound | None = None,
    backend: Backend | None = None,
    writer: Executor | None = None,
    **settings: Any,  # noqa: ANN401
) -> Controller:
    """A controller, not started, on a database in `directory`. `settings` are fields of `ControllerSettings`.

    Its jobs run on `backend`; by default on agents, which you attach to it.
    Where only `clock` is given, the core's time goes by it, too. What the database holds was decided by `policy`, or
    by one that has a name.
    """
    name, chosen = (policy, find_policy(policy)) if isinstance(policy, str) else (type(policy).__name__, policy)

    def find(wanted: str) -> Policy:
        return chosen if wanted == name else find_policy(wanted)

    clock = settings.get("clock", time.time)
    chosen_settings: dict[str, Any] = {
        "database": f"sqlite:///{directory}/live.db",
        "policy": name,
        "report_s": REPORT_S,
        "discovery": "NONE" if discovery is None else discovery.name,
        "steady": time.monotonic if clock is time.time else clock,
    }
    return Controller(
        ControllerSettings(**(chosen_settings | settings)),
        chosen,
        discovery,
        shadow,
        bound,
        backend=backend or AgentsBackend(),
        find=find,
        writer=writer,
    )


def end_now(controller: Controller) -> None:
    """As the first instant of kill -9, in the middle of anything: it does and stores nothing more. Then `abandon` it.

    On a VirtualLoop, with a VirtualExecutor, this may be called from any callback.
    """
    engine, database = controller.engine, controller.database
    running = [controller._running, controller._watching, engine._bounding]  # pyright: ignore[reportPrivateUsage]
    for task in (*running, *engine.outbox.tasks, *controller.shielded.tasks):
        if task is not None:
            task.cancel()
    database._closed = True  # pyright: ignore[reportPrivateUsage]
    if isinstance(database._writer, VirtualExecutor):  # pyright: ignore[reportPrivateUsage]
        database._writer.kill()  # pyright: ignore[reportPrivateUsage]


async def abandon(controller: Controller) -> None:
    """As kill -9 does: it stops in the middle of whatever it does, and stores nothing more."""
    end_now(controller)
    database = controller.database
    writer, disconnect = database._writer, database._disconnect  # pyright: ignore[reportPrivateUsage]
    last = database._last  # pyright: ignore[reportPrivateUsage]
    ends = [disconnect] if last is None else [disconnect, last.close]
    if database.lease is not None:
        await asyncio.to_thread(database.lease.stop, ended=False)
    if isinstance(writer, VirtualExecutor):
        for end in ends:
            end()
    else:
        for end in ends:
            writer.submit(end)
        # Another controller may start, or the database be replaced, as soon as it is gone.
        await asyncio.to_thread(writer.shutdown)
    await asyncio.sleep(0)


class InMemoryCluster:
    """A controller and its nodes `n1`, `n2`, …, from `async with` to its end.

    `policy` is a name or an object; `host` is the host of all nodes, None: each has its own, and no running task can
    move. Its database is in `directory`, by default a temporary one. `options` go to `make_controller`. Time passes
    only by `tick`. On a VirtualLoop (`run_virtually`) it takes no real time either, and repeats bit for bit.
    """

    def __init__(
        self,
        policy: str | Policy = DEFAULT_POLICY,
        *,
        nodes: int = 2,
        cpus: float = 4.0,
        memory_bytes: int = 8 * GIB,
        host: str | None = "h",
        abilities: Mapping[str, Any] | None = None,
        directory: str | Path | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.hosts = InMemoryHosts()
        self.controller: Controller
        self.directory = directory
        self._policy, self._options = policy, options
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        for k in range(1, nodes + 1):
            self.hosts.node(f"n{k}", host or f"h{k}", cpus, memory_bytes, **(abilities or {}))

    @property
    def nodes(self) -> Mapping[str, InMemoryNode]:
        """By name."""
        return self.hosts.nodes

    async def __aenter__(self) -> Self:
        if self.directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="dfrs-cluster-")
            self.directory = self._temporary.name
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.controller.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    async def _start(self) -> None:
        assert self.directory is not None
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"clock": self.hosts.clock, **self._options}
        if isinstance(loop, VirtualLoop):
            self.hosts.stamp = loop.time
            options.setdefault("writer", VirtualExecutor(loop))
        self.controller = make_controller(self.directory, self._policy, **options)
        await self.controller.start()
        before = {name: node.welcomes for name, node in self.nodes.items()}
        self.hosts.attach_all(self.controller)
        await until(
            lambda: all(node.dead or node.welcomes > before[name] for name, node in self.nodes.items()),
            "nodes welcomed",
        )

    async def restart(self, *, kill: bool = False) -> None:
        """Another controller goes on from the database; with `kill` the one before ends as by kill -9."""
        await (abandon(self.controller) if kill else self.controller.stop())
        await self._start()

    async def submit(self, *command: str, user: str = "ann", **fields: Any) -> int:  # noqa: ANN401
        """The id of a new job. `command` as `InMemoryNode` knows it; `fields` are those of `JobRequest`.

        Raises InputError where it can never run.
        """
        request = JobRequest(command=command or ("forever",), **fields)
        return (await self.controller.submit(request, user, user))[0]

    def job(self, job: int) -> Job:
        """As users see it. Raises NotFoundError."""
        return self.controller.job(job)

    async def reaches(self, job: int, *states: JobState, patience_s: float = PATIENCE_S) -> Job:
        """The job, once it is in one of these states. Raises AssertionError after `patience_s`."""

        def seen() -> bool:
            return self.job(job).state in states

        try:
            await until(seen, f"job {job} {' or '.join(states)}", patience_s)
        except AssertionError as error:
            error.add_note(f"it is {self.job(job).state}: {self.job(job).why}")
            raise
        return self.job(job)

    def actions(self, job: int) -> list[str]:
        """What happened to it, in order."""
        return [each.action for each in self.controller.activity(job=job)]

    def tick(self, seconds: float) -> None:
        """Time passes for controller and nodes. What follows comes a little later: await it, as by `reaches`."""
        self.hosts.tick(seconds)
