"""The agent of a node: one connection to the controller, over which it hears what tasks shall be and says what is.

The agent decides nothing and remembers nothing that matters: what runs is the driver's, what shall run is the
controller's. So it may be killed, cut off or started anew at any moment; tasks run on, and the next Hello says what
has happened meanwhile.
"""

import asyncio
import fcntl
import os
import secrets
import socket
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from pydantic import TypeAdapter, ValidationError
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.frames import CloseCode

from dfrs.live.agent.accounts import AGENTS_OWN, Accounts
from dfrs.live.agent.answers import Answers
from dfrs.live.agent.connection import Backoff, Controllers, Outbox, Server, first_of, ping
from dfrs.live.agent.disk import DiskSpace
from dfrs.live.agent.health import Health
from dfrs.live.agent.reports import Reports
from dfrs.live.agent.task_reconciler import TaskReconciler
from dfrs.live.agent.transfers import Transfers, is_reachable
from dfrs.live.drivers.base import NO_JOB, Driver, TaskId, Usage
from dfrs.live.drivers.cpu_times import cpu_times
from dfrs.live.drivers.processes.supervisor import BOOT
from dfrs.live.protocol.addresses import ASIDE_HEADER, LEADER_HEADER
from dfrs.live.protocol.observed import PROBLEM_CHARS, HostUse, Name, Sample
from dfrs.live.protocol.parts import texts
from dfrs.live.protocol.wire import (
    PROTOCOL,
    Desire,
    Execute,
    FromController,
    Hello,
    Read,
    Refuse,
    ReportMessage,
    TransferPort,
    Welcome,
    Write,
    from_controller,
)
from dfrs.model.errors import DfrsError, InputError

FEWEST_PINGS = 3
"""A fence takes at least so many of them, so that one late answer ends no job."""

TESTED_S = 5.0
"""So long the first self-test may take: then the agent says hello without its result."""

SEVERAL_RETRY_S = 1.0
"""Where there are several controllers, all of them are asked at least this often: a take-over is no long outage."""

TOGETHER_S = 0.02
"""Shares of a node change together: what comes so soon after the first is part of it."""

_NAME = TypeAdapter(Name)
log = structlog.get_logger(__name__)


class AgentRefusedError(DfrsError):
    """The controller does not take this agent, now or later: the message is its reason."""


class _BrokenError(DfrsError):
    """What was said makes this connection useless; a new one may do better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What an agent is told when it starts. Raises InputError in `Agent`."""

    server: Server
    node: str
    cpus: float
    """Capacity in cores."""
    features: tuple[str, ...] = ()
    """What jobs can ask for, as `avx512`."""
    cpu_numbers: tuple[int, ...] = ()
    """The CPUs whose time that is; none: what they do for others is not reported."""
    memory_bytes: int
    version: str
    host: str
    """Nodes of one host can hand tasks to each other."""
    address: str | None = None
    """Under which tasks of other nodes reach this one; None: that of the connection to the controller."""
    transfer_port: int = 0
    """Where nodes of other hosts fetch tasks; 0: any that is free."""
    root: Path | None = None
    """Where its tasks are: while the disk there is full, the node gets none. None: nobody looks."""
    accounts: Accounts = AGENTS_OWN
    """Under which accounts tasks run."""
    resources: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many of each named resource the node has."""
    fence_s: float | None = None
    """After so long without contact to the controller all tasks are stopped; None: never.

    Without it, tasks survive any loss of the controller, and a job that the controller has given up as lost and
    queued again may for a while run twice. With it, all are asked to end once there was no contact for so long, and
    killed 10 s later, as long as the agent runs and time goes on: monotonic time, which stands still while the machine
    is suspended. Contact is the last word of the controller, which may have heard from here two pings before.
    """
    open_s: float = 10.0
    """So long may the controller take to answer at all."""
    ping_s: float = 5.0
    """Seconds between two questions whether the controller lives, and that it has to answer."""
    first_retry_s: float = 0.2
    last_retry_s: float = 5.0
    tell_again_s: float = 10.0
    """Seconds after which every status is repeated."""


class Agent:
    """Keeps the tasks of `driver` as the controller wants them. Raises InputError for settings that cannot be.

    Without `health` the node is taken for one that can do its work. The driver is not closed: it belongs to the caller.
    """

    def __init__(self, driver: Driver, settings: AgentSettings, health: Health | None = None) -> None:
        settings.server.trust()
        if settings.fence_s is not None and settings.fence_s < (least_s := FEWEST_PINGS * settings.ping_s):
            raise InputError(f"fence {settings.fence_s:g} s: must be at least {least_s:g} s")
        self._driver = driver
        self._settings = settings
        self._health = health
        self._disk = None if settings.root is None else DiskSpace(settings.root)
        self._hello = _hello(driver, settings)
        self._outbox = Outbox()
        images = driver.abilities.images is not None
        self._transfers = Transfers(driver.send, port=settings.transfer_port) if images else None
        self._reconciler = TaskReconciler(
            driver, self._outbox.put, accounts=settings.accounts, transfers=self._transfers
        )
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="dfrs-read")
        self._answers = Answers(driver, self._readers, self._reconciler.lives)
        self._stopped = asyncio.Event()
        self._contact_s = time.monotonic()
        self._usage: asyncio.Future[Sequence[Usage]] | None = None
        """Asked for and not answered yet; a host that hangs is asked only once."""

    def stop(self) -> None:
        """Have `run` disconnect and return; tasks run on. On the loop of `run` only."""
        self._stopped.set()

    async def run(self) -> None:
        """Serve until stopped, whatever becomes of the controller. Raises AgentRefusedError."""
        self._contact_s = time.monotonic()
        loop = asyncio.get_running_loop()

        def refused(task: TaskId, token: str, why: str) -> None:
            loop.call_soon_threadsafe(self._reconciler.refuse, task, token, why)

        if self._transfers is not None:
            self._transfers.refused = refused
        try:
            await first_of(
                self._reconciler.run(),
                self._stay_connected(),
                self._watch(),
                _ended(self._stopped),
                self._end_transfers(),
                *([] if self._health is None else [self._health.run()]),
            )
        finally:
            self._readers.shutdown(wait=False, cancel_futures=True)
            self._answers.close()

    async def _end_transfers(self) -> None:
        """When all ends: the reconciler waits for those that it has begun."""
        try:
            await asyncio.Event().wait()
        finally:
            if self._transfers is not None:
                await asyncio.to_thread(self._transfers.close)

    async def _watch(self) -> None:
        """Stop the tasks when the controller has been away for too long."""
        limit_s = self._settings.fence_s
        if limit_s is None:
            await asyncio.Event().wait()
            return
        while True:
            await asyncio.sleep(max(0.02, self._contact_s + limit_s - time.monotonic()))
            away_s = time.monotonic() - self._contact_s
            if away_s >= limit_s:
                live = self._reconciler.fence()
                if live:
                    log.warning("no contact to the controller: tasks are stopped", away_s=round(away_s, 1), tasks=live)
                await asyncio.sleep(min(1.0, limit_s))

    async def _stay_connected(self) -> None:
        server = self._settings.server
        controllers = Controllers(server.urls)
        several = len(server.urls) > 1
        last_s = min(self._settings.last_retry_s, SEVERAL_RETRY_S) if several else self._settings.last_retry_s
        backoff = Backoff(self._settings.first_retry_s, last_s)
        told: dict[str, str] = {}
        await self._reconciler.looked.wait()
        if self._health is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(TESTED_S):
                    await self._health.tested.wait()
        while True:
            url, leader = controllers.url, ""
            try:
                async with server.connect(url, self._settings.open_s) as connection:
                    try:
                        welcome = await self._greet(connection, url)
                        told.clear()
                        backoff.reset()
                        controllers.welcomed()
                        await self._serve(connection, welcome)
                    except asyncio.CancelledError:
                        await connection.close(CloseCode.GOING_AWAY, "the agent ends; its tasks run on")
                        raise
                why = f"closed: {connection.close_reason or 'no reason given'}"
            # InputError: the authority's file was good at the start, and is being replaced.
            except (OSError, EOFError, UnicodeError, WebSocketException, _BrokenError, InputError) as error:
                why, leader = _why(error), _leader(error)
            if why != told.get(url):
                log.warning("not connected; trying again", server=url, why=why)
                told[url] = why
            if controllers.go_on(leader):
                await asyncio.sleep(backoff.next_s())

    async def _greet(self, connection: ClientConnection, url: str) -> Welcome:
        """Say hello and be welcomed. Raises AgentRefusedError, _BrokenError, ConnectionClosed, TimeoutError."""
        address = self._settings.address or str(connection.local_address[0])
        transfers = await asyncio.to_thread(self._listen, address, url)
        await asyncio.to_thread(self._look_at_disk)
        # Nothing that happens after this snapshot is lost: it goes to the outbox, and is sent after the welcome.
        self._outbox.clear()
        hello = self._hello.model_copy(
            update={
                "tasks": self._reconciler.statuses(),
                "address": address,
                "transfers": transfers,
                "problem": self._problem,
                "told": self._reconciler.told,
            }
        )
        async with asyncio.timeout(self._settings.open_s):
            for text in texts(hello):
                await connection.send(text)
            answer = _read(await connection.recv())
        match answer:
            case Welcome():
                log.info("connected", server=url, node=hello.node, tasks=len(answer.desired))
                return answer
            case Refuse():
                raise self._refusal(answer)
            case _:
                raise _BrokenError("what the controller said first is not a welcome")

    @property
    def _problem(self) -> str:
        problems = [each.problem for each in (self._health, self._disk) if each is not None and each.problem]
        return "; ".join(problems)[:PROBLEM_CHARS]

    def _look_at_disk(self) -> None:
        if self._disk is not None:
            before = self._disk.problem
            self._disk.look()
            if self._disk.problem and not before:
                log.warning("this node gets no jobs", why=self._disk.problem)

    def _measure(self) -> Sequence[Usage]:
        self._look_at_disk()
        return self._driver.usage()

    def _listen(self, address: str, url: str) -> TransferPort | None:
        """Where other hosts fetch tasks of this node, if they can."""
        if self._transfers is None or not is_reachable(address, urlsplit(url).hostname or ""):
            return None
        try:
            return self._transfers.listen(address)
        except OSError as error:
            port = self._settings.transfer_port or "any"
            log.warning(
                "tasks cannot go to other hosts or come from there", address=address, port=port, why=_why(error)
            )
            return None

    async def _serve(self, connection: ClientConnection, welcome: Welcome) -> None:
        self._contact_s = time.monotonic()
        self._reconciler.desire(welcome.desired, complete=True)
        await first_of(
            self._receive(connection),
            self._outbox.send_all(connection),
            self._report(welcome.report_s),
            self._ping(connection),
            self._tell_again(),
        )

    async def _receive(self, connection: ClientConnection) -> None:
        answering: set[asyncio.Task[None]] = set()
        try:
            async for text in connection:
                self._contact_s = time.monotonic()
                message = _read(text)
                if isinstance(message, Read | Write | Execute):
                    answer = asyncio.get_running_loop().create_task(self._answer(message))
                    answering.add(answer)
                    answer.add_done_callback(answering.discard)
                elif message is not None:
                    self._take(message)
        finally:
            # Who asks in the next connection may use the same number for something else.
            for answer in tuple(answering):
                answer.cancel()

    async def _answer(self, asked: Read | Write | Execute) -> None:
        self._outbox.put(await self._answers.to(asked))

    def _take(self, message: Welcome | Desire | Refuse) -> None:
        match message:
            case Desire():
                self._reconciler.desire(message.tasks)
            case Welcome():
                # Only the first of a connection is complete; a copy that comes late knows less than was said since.
                self._reconciler.desire(message.desired)
            case Refuse():
                raise self._refusal(message)

    def _refusal(self, message: Refuse) -> DfrsError:
        if message.retry:
            return _BrokenError(f"refused for now: {message.reason}")
        return AgentRefusedError(f"the controller refuses node {self._settings.node}: {message.reason}")

    async def _report(self, every_s: float) -> None:
        """Say each `every_s`, and soon after shares change, what tasks use; without figures if the host is too slow.

        So the controller can tell what was used under the old shares from what was used under the new ones.
        """
        loop = asyncio.get_running_loop()
        failing, reports = "", Reports()
        while True:
            next_s = loop.time() + every_s
            asked = self._usage or asyncio.ensure_future(loop.run_in_executor(self._readers, self._measure))
            self._usage = asked
            await asyncio.wait({asked}, timeout=every_s)
            rows: Sequence[Usage] = ()
            if asked.done():
                self._usage = None
                if (error := asked.exception()) is None:
                    rows, failing = asked.result(), ""
                elif failing != (failing := str(error)):
                    log.warning("the driver cannot tell what tasks use", error=failing)
            message = ReportMessage(
                time_s=rows[0].time_s if rows else time.monotonic(),
                host=_host_use(self._settings.cpu_numbers),
                problem=self._problem,
                samples=reports.news(_samples(rows), self._reconciler.is_paused),
            )
            self._outbox.put(message)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_s - loop.time())):
                    await self._reconciler.shared.wait()
            await asyncio.sleep(TOGETHER_S)
            self._reconciler.shared.clear()

    async def _ping(self, connection: ClientConnection) -> None:
        while True:
            await asyncio.sleep(self._settings.ping_s)
            await ping(connection, self._settings.ping_s)
            self._contact_s = time.monotonic()

    async def _tell_again(self) -> None:
        while True:
            await asyncio.sleep(self._settings.tell_again_s)
            self._reconciler.tell_again()


@contextmanager
def only_agent(root: Path, node: str) -> Generator[None]:
    """Make sure that no other agent keeps this node below `root` meanwhile. Raises InputError."""
    path = root / f"{node}.agent.lock"
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # On a full disk nobody is told who keeps it; its tasks, which run on, must have an agent even so.
        with suppress(OSError):
            os.pwrite(file, f"{os.getpid():<19}\n".encode(), 0)
        yield
    except BlockingIOError:
        other = os.read(file, 32).decode(errors="replace").strip() or "unknown"
        raise InputError(f"{path}: another agent (process {other}) keeps node {node}; end it or use --name") from None
    finally:
        os.close(file)


def host_name() -> str:
    """This host's name, without what does not belong in one."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in socket.gethostname())
    return name.lstrip("._-")[:63] or "host"


def host_identity(root: Path) -> str:
    """A name for the host that no other has: its own, and what was drawn when `root` was first used.

    Nodes of one host share `root`, so that is what makes them able to hand each other tasks. Raises InputError.
    """
    path = root / "host-id"
    try:
        root.mkdir(parents=True, exist_ok=True)
        # Once it is drawn nothing is written: an agent must be able to start again on a full disk, for its tasks.
        if not path.exists():
            _draw_identity(path)
        drawn = path.read_text().strip()
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    return check_name(f"{host_name()[:54]}-{drawn}", str(path))


def _draw_identity(path: Path) -> None:
    """Write it, unless an agent of another node is first. Raises OSError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        fresh.write_text(secrets.token_hex(4))
        with suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def check_name(text: str, field: str = "name") -> str:
    """A name for a node, host or cluster, as it was given. Raises InputError."""
    try:
        return _NAME.validate_python(text)
    except ValidationError:
        raise InputError(
            f'{field} "{text}": must be at most 63 letters, digits, ".", "-" and "_", a letter or digit first'
        ) from None


def _hello(driver: Driver, settings: AgentSettings) -> Hello:
    return Hello(
        protocol=PROTOCOL,
        node=check_name(settings.node),
        host=check_name(settings.host, "host"),
        boot=BOOT,
        address=settings.address or "",
        cpus=settings.cpus,
        memory_bytes=settings.memory_bytes,
        abilities=driver.abilities,
        resources=dict(settings.resources),
        version=settings.version,
        features=settings.features,
        accounts=str(settings.accounts),
    )


def _read(text: str | bytes) -> FromController | None:
    try:
        return from_controller(text)
    except InputError as error:
        log.warning("message of the controller ignored", why=str(error))
        return None


def _samples(rows: Sequence[Usage]) -> Iterator[Sample]:
    for row in rows:
        if row.task.job != NO_JOB:
            yield Sample(
                task=row.task,
                cpu_s=row.cpu_s,
                memory_bytes=row.memory_bytes,
                swap_bytes=row.swap_bytes,
                read_bytes=row.read_bytes,
                written_bytes=row.written_bytes,
                throttled_s=row.throttled_s,
                waiting_s=row.waiting_s,
                watched_s=row.watched_s,
                delayed_s=row.delayed_s,
            )


def _leader(error: BaseException) -> str:
    """Where a controller that stands by says that the leader is."""
    return error.response.headers.get(LEADER_HEADER, "") if isinstance(error, InvalidStatus) else ""


def _why(error: BaseException) -> str:
    if isinstance(error, InvalidStatus):
        if ASIDE_HEADER in error.response.headers:
            return "the controller stands by"
        status = error.response.status_code
        return f"the controller answers {status}" + (": check the token" if status in {401, 403} else "")
    return " ".join(str(error).split()) or type(error).__name__


async def _ended(event: asyncio.Event) -> None:
    await event.wait()


def _host_use(cpus: tuple[int, ...]) -> HostUse | None:
    times = cpu_times(cpus)
    return None if times is None else HostUse(cpus=cpus, busy_s=times.busy_s, steal_s=times.steal_s)
