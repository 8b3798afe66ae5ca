"""A driver whose tasks are only numbers, and a controller that says what a test wants it to say."""

import asyncio
import threading
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from dfrs.live.drivers.base import (
    DriverAbilities,
    DriverError,
    Exit,
    ExitKind,
    TaskId,
    TaskSpec,
    TaskState,
    TaskStatus,
    Usage,
)
from dfrs.live.protocol.wire import (
    MESSAGE_BYTES,
    Desire,
    Desired,
    Hello,
    ReportMessage,
    StatusMessage,
    Welcome,
    from_agent,
)

PATIENCE_S = 30.0
NO_END = float("inf")


def task_id(job=1, rank=0, attempt=0):
    return TaskId(job=job, rank=rank, attempt=attempt)


def task_spec(*, seconds=NO_END, need=1.0, code=0, memory_bytes=1 << 26, tasks=1, account=None):
    """A task that computes for `seconds` at its need of `need` cores, longer with less, and exits with `code`."""
    environment = {"FAKE_NEED": repr(float(need)), "FAKE_SECONDS": repr(float(seconds)), "FAKE_CODE": str(code)}
    return TaskSpec(
        command=("fake",),
        directory="/",
        environment=environment,
        tasks=tasks,
        peers=("127.0.0.1",) * tasks,
        memory_bytes=memory_bytes,
        account=account,
    )


def desired(state, version=1, task=None, *, share=0.5, spec=None, take=False, grace=0.0, **more):
    """A Desired; RUNNING and PAUSED have a spec."""
    if spec is None and state in {TaskState.RUNNING, TaskState.PAUSED}:
        spec = task_spec()
    return Desired(
        task=task or task_id(),
        version=version,
        state=state,
        share_cores=share,
        spec=spec,
        take=take,
        grace_s=grace,
        **more,
    )


@dataclass(eq=False)
class FakeTask:
    """A simulated task; its CPU time grows with what its node gives it."""

    spec: TaskSpec
    state: TaskState = TaskState.RUNNING
    share: float = 0.0
    cpu_s: float = 0.0
    exit: Exit | None = None
    kill_at: float | None = None
    transfers: int = 0
    output: dict[str, bytes] = field(default_factory=lambda: {"out": b"", "err": b""})

    def __post_init__(self):
        """Take the task's nature from the environment of its spec, where `task_spec` put it."""
        told = self.spec.environment
        self.need = float(told.get("FAKE_NEED", "1"))
        self.work_s = float(told.get("FAKE_SECONDS", "inf")) * self.need
        self.code = int(told.get("FAKE_CODE", "0"))

    @property
    def computes(self):
        return self.state in {TaskState.RUNNING, TaskState.HANDED}


class FakeHost:
    """What nodes of one host have in common: tasks handed over by one and not yet taken by another."""

    def __init__(self):
        self.lock = threading.RLock()
        self.handed = {}


class FakeDriver:
    """Implements `Driver` in memory. Safe for threads; CPU is shared as weights do: work-conserving.

    Several drivers with one `host` hand tasks to each other. `clock` is in seconds; give your own to be free of time.
    `fail(method, error, times)` lets the next calls of a method fail before they do anything; `block(method)` lets them
    wait until the returned event is set. `calls` lists (method, task) of what was called but for tasks() and usage().
    """

    def __init__(self, *, cpus=1.0, host=None, clock=time.monotonic, stubborn=False):
        self.cpus = cpus
        self.host = host or FakeHost()
        self.clock = clock
        self.stubborn = stubborn
        self.here = {}
        self.calls = []
        self.closed = False
        self._faults = {}
        self._gates = {}
        self._settled_s = clock()

    @property
    def abilities(self):
        return DriverAbilities(
            shares="nice",
            caps=False,
            memory_limits=False,
            pause_frees_memory=False,
            moves_on_host=True,
            measures_waiting=False,
            notes=("tasks are only numbers",),
        )

    def fail(self, method, error=None, times=1):
        self._faults[method] = [error or DriverError(f"{method} is broken: mend it")] * times

    def block(self, method):
        gate = self._gates[method] = threading.Event()
        return gate

    def finish(self, task, code=0):
        """Let a task end now, by itself."""
        with self.host.lock:
            self._settle()
            self._end(self.here[task], ExitKind.CODE, code=code)

    def write(self, task, data, stream="out"):
        """Let a task write output."""
        with self.host.lock:
            self.here[task].output[stream] += data

    def tasks(self):
        self._enter("tasks")
        with self.host.lock:
            self._settle()
            return [
                TaskStatus(task=task, state=fake.state, exit=fake.exit, transfers=fake.transfers)
                for task, fake in self.here.items()
            ]

    def start(self, task, spec, share_cores):
        with self._call("start", task):
            if task not in self.here:
                self.here[task] = FakeTask(spec, share=share_cores)

    def take(self, task, share_cores):
        with self._call("take", task):
            if task not in self.here:
                if task not in self.host.handed:
                    raise DriverError(f"task {task}: no node of this host has handed it: try again")
                giver, fake = self.host.handed.pop(task)
                giver._settle()
                del giver.here[task]
                self.here[task] = fake
            else:
                self.host.handed.pop(task, None)
            fake = self.here[task]
            if fake.state is TaskState.HANDED:
                fake.state, fake.share = TaskState.RUNNING, share_cores

    def hand(self, task):
        with self._call("hand", task):
            fake = self.here.get(task)
            if fake is not None and fake.state in {TaskState.RUNNING, TaskState.PAUSED}:
                fake.state = TaskState.HANDED
                self.host.handed[task] = (self, fake)

    def receive(self, task, spec, stream):
        with self._call("receive", task):
            if task not in self.here:
                self.here[task] = FakeTask(spec, state=TaskState.PAUSED, transfers=int(stream.read()))

    def set_share(self, task, share_cores):
        with self._call("set_share", task):
            self._mine(task).share = share_cores

    def pause(self, task, *, keep=False):
        with self._call("pause", task):
            if self._mine(task).state is TaskState.RUNNING:
                self.here[task].state = TaskState.PAUSED

    def resume(self, task):
        with self._call("resume", task):
            if self._mine(task).state is TaskState.PAUSED:
                self.here[task].state = TaskState.RUNNING

    def stop(self, task, grace_s):
        with self._call("stop", task):
            fake = self._mine(task)
            if fake.exit is None:
                fake.kill_at = min(fake.kill_at or NO_END, self.clock() + (grace_s if self.stubborn else 0.0))

    def forget(self, task):
        with self._call("forget", task):
            self.here.pop(task, None)
            self.host.handed.pop(task, None)

    def usage(self):
        self._enter("usage")
        with self.host.lock:
            self._settle()
            return [
                Usage(task=task, time_s=self.clock(), cpu_s=fake.cpu_s, memory_bytes=fake.spec.memory_bytes // 2)
                for task, fake in self.here.items()
                if fake.exit is None
            ]

    def output(self, task, stream, offset, limit):
        with self._call("output", task):
            data = self._mine(task).output[stream]
            return data[offset : offset + limit], min(offset, len(data)), len(data)

    def close(self):
        self.closed = True

    def _mine(self, task):
        if task not in self.here:
            raise DriverError(f"task {task}: not on this node")
        return self.here[task]

    def _enter(self, method, task=None):
        if task is not None:
            self.calls.append((method, task))
        gate = self._gates.get(method)
        if gate is not None:
            assert gate.wait(PATIENCE_S), f"{method} was never let go"
        with self.host.lock:
            if self._faults.get(method):
                raise self._faults[method].pop()

    def _call(self, method, task):
        self._enter(method, task)
        self.host.lock.acquire()
        self._settle()
        return _Release(self.host.lock)

    def _end(self, fake, kind, **how):
        if fake.exit is None:
            fake.state = TaskState.EXITED
            fake.exit = Exit(kind=kind, time_s=time.time(), cpu_s=fake.cpu_s, **how)

    def _settle(self):
        """Bring CPU times and ends up to now. Rates are constant between one end and the next."""
        now = self.clock()
        while True:
            rates = _rates(self.cpus, [fake for fake in self.here.values() if fake.computes])
            ends = [(self._settled_s + (f.work_s - f.cpu_s) / rate, f) for f, rate in rates if rate > 0]
            ends += [(max(self._settled_s, f.kill_at), f) for f in self.here.values() if f.kill_at and not f.exit]
            end_s, first = min(ends, key=lambda end: end[0], default=(NO_END, None))
            until = min(now, end_s)
            for fake, rate in rates:
                fake.cpu_s += rate * (until - self._settled_s)
            self._settled_s = max(self._settled_s, until)
            if end_s > now:
                return
            if first.kill_at is not None and first.kill_at <= now:
                self._end(first, ExitKind.STOPPED, signal=15)
            else:
                first.cpu_s = first.work_s
                self._end(first, ExitKind.CODE, code=first.code)


class _Release:
    def __init__(self, lock):
        self.lock = lock

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lock.release()


def _rates(cpus, fakes):
    """(task, cores): in proportion to the shares, but none more than it needs; what one leaves the others get."""
    given, left, hungry = [], cpus, list(fakes)
    while hungry:
        weight = sum(max(fake.share, 1e-6) for fake in hungry)
        full = [fake for fake in hungry if fake.need <= left * max(fake.share, 1e-6) / weight]
        if not full:
            return given + [(fake, left * max(fake.share, 1e-6) / weight) for fake in hungry]
        given += [(fake, fake.need) for fake in full]
        left -= sum(fake.need for fake in full)
        satisfied = set(full)
        hungry = [fake for fake in hungry if fake not in satisfied]
    return given


class Conversation:
    """One agent's connection, as the fake controller sees it."""

    def __init__(self, socket):
        self.socket = socket
        self.hello = None
        self.heard = []
        self.statuses = {}
        self._news = asyncio.Condition()

    async def say(self, message):
        """A message, or any text."""
        await self.socket.send(message if isinstance(message, str | bytes) else message.model_dump_json())

    async def welcome(self, *tasks, report_s=0.05):
        await self.say(Welcome(report_s=report_s, desired=tasks))

    async def desire(self, *tasks):
        await self.say(Desire(tasks=tasks))

    async def until(self, condition):
        """Wait until it is so; it is asked after each message."""
        async with self._news:
            try:
                await asyncio.wait_for(self._news.wait_for(condition), PATIENCE_S)
            except TimeoutError:
                raise AssertionError(f"never came: last heard {self.heard[-5:]}") from None

    async def status(self, task=None, **expected):
        """The task's latest status, once its fields are as expected."""
        task = task or task_id()

        def as_expected():
            known = self.statuses.get(task)
            return known is not None and all(getattr(known, name) == value for name, value in expected.items())

        await self.until(as_expected)
        return self.statuses[task]

    async def report(self, condition=lambda report: True):
        """The first report from now on for which it holds."""
        begin = len(self.heard)
        wanted = []

        def found():
            wanted[:] = [m for m in self.heard[begin:] if isinstance(m, ReportMessage) and condition(m)]
            return wanted

        await self.until(found)
        return wanted[0]

    async def listen(self):
        """Take what comes until the connection ends."""
        with suppress(ConnectionClosed):
            async for text in self.socket:
                await self._hear(from_agent(text))

    async def _hear(self, message):
        async with self._news:
            self.heard.append(message)
            if isinstance(message, Hello):
                self.hello = message
                self.statuses = {status.task: status for status in message.tasks}
            elif isinstance(message, StatusMessage):
                self.statuses[message.task] = message
            self._news.notify_all()


class FakeController:
    """Accepts agents on `url` (with `token`), and lets the test talk to them."""

    def __init__(self, token="secret-of-the-agent"):
        self.token = token
        self.headers = []
        self.connections = 0
        self._arrivals = asyncio.Queue()
        self._port = 0
        self._server = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self._port}"

    async def start(self):
        """Listen, on the same port as before if there was one."""
        self._server = await serve(
            self._handle, "127.0.0.1", self._port, max_size=MESSAGE_BYTES, ping_interval=None, close_timeout=0.5
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self):
        """Drop all connections and stop listening."""
        self._server.close()
        await self._server.wait_closed()
        while not self._arrivals.empty():
            self._arrivals.get_nowait()

    async def accept(self):
        """The next agent that has said hello."""
        conversation = await asyncio.wait_for(self._arrivals.get(), PATIENCE_S)
        await conversation.until(lambda: conversation.hello is not None)
        return conversation

    async def _handle(self, socket):
        self.connections += 1
        self.headers.append(socket.request.headers)
        if socket.request.headers.get("Authorization") != f"Bearer {self.token}" or socket.request.path != "/agent/v1":
            await socket.close(1008, "who are you?")
            return
        conversation = Conversation(socket)
        self._arrivals.put_nowait(conversation)
        await conversation.listen()


@asynccontextmanager
async def fake_controller(**settings):
    controller = FakeController(**settings)
    await controller.start()
    try:
        yield controller
    finally:
        await controller.stop()


class Wire:
    """A TCP line to `port` that can be `cut`: nothing passes any more, and nobody is told."""

    def __init__(self, port):
        self.target = port
        self.cut = False
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _join(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        for way in (self._pump(reader, far_writer), self._pump(far_reader, writer)):
            task = asyncio.create_task(way)
            self._tasks.add(task)

    async def _pump(self, reader, writer):
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                if not self.cut:
                    writer.write(data)
            if not self.cut:
                writer.close()
