"""Men in the middle of a connection: cut it, slow it down, repeat its messages and shuffle them."""

import asyncio
import random
import threading
from contextlib import suppress

import websockets

MOST_BYTES = 8 << 20
LATEST_S = 0.3
"""By so much is a message late, at most, that others may overtake, or that is a copy."""
UP, DOWN = "up", "down"
WAYS = frozenset((UP, DOWN))
"""Up is from who connects to who listens: from an agent to its controller, from a controller to its database."""
STEP_S = 0.05


class _Middle:
    """Listens on a port of its own, in a thread of its own, for what goes to `target_port`."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stop: asyncio.Event | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    @property
    def url(self) -> str:
        """What the agent is given as its server."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Close all connections and end."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with self._listen() as server:
            self.port = server.sockets[0].getsockname()[1]
            self._started.set()
            await self._stop.wait()


class Line(_Middle):
    """Forwards bytes, as a network does, which loses none of a connection that outlives it.

    Of the directions in `held` nothing arrives until they are let go, not even that a connection is closed, and no
    connection comes about. `late_s` has directions in which all that is said arrives so many seconds late.
    """

    def __init__(self, target_port: int) -> None:
        self.held = frozenset()
        self.late_s = {}
        self.disturbed = 0
        """How often something was held or late."""
        super().__init__(target_port)

    def _listen(self):
        return _Server(self._handle)

    async def _handle(self, near_reader, near_writer) -> None:
        try:
            await self._whole(*WAYS)
            with suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
                try:
                    await asyncio.gather(
                        self._forward(near_reader, far_writer, UP), self._forward(far_reader, near_writer, DOWN)
                    )
                finally:
                    far_writer.close()
        finally:
            near_writer.close()

    async def _forward(self, source, sink, way) -> None:
        data = b"-"
        while data:
            try:
                data = await source.read(1 << 16)
            except OSError:
                data = b""
            self.disturbed += way in self.held or way in self.late_s
            await asyncio.sleep(self.late_s.get(way, 0.0))
            await self._whole(way)
            with suppress(OSError):
                sink.write(data)
                await sink.drain()
        # Both programs close a connection as a whole: who says no more hears no more.
        sink.close()

    async def _whole(self, *ways) -> None:
        while self.held.intersection(ways):
            await asyncio.sleep(STEP_S)


class _Server:
    """A server of streams whose connections end with it."""

    def __init__(self, handle) -> None:
        self._handle = handle
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self._server

    async def _connected(self, reader, writer):
        self._tasks.add(task := asyncio.current_task())
        task.add_done_callback(self._tasks.discard)
        await self._handle(reader, writer)

    async def __aexit__(self, *_):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Proxy(_Middle):
    """Forwards WebSocket messages.

    `cut` swallows everything in both directions without closing anything, as a broken switch does. In the directions of
    `repeats`, some messages come a second time, later; in those of `shuffles` each is late by its own time, so that
    they overtake one another.
    """

    def __init__(self, port: int, seed: int = 0) -> None:
        self.cut = False
        self.repeats = self.shuffles = frozenset()
        self.repeated = self.overtaken = self.forwarded = 0
        self._random = random.Random(seed)
        super().__init__(port)

    @property
    def disturbed(self) -> int:
        """How often a message was repeated or overtaken."""
        return self.repeated + self.overtaken

    def _listen(self):
        return websockets.serve(self._handle, "127.0.0.1", 0, max_size=MOST_BYTES, ping_interval=None, close_timeout=1)

    async def _handle(self, near) -> None:
        headers = {"Authorization": near.request.headers["Authorization"]}
        url = f"ws://127.0.0.1:{self.target_port}{near.request.path}"
        while self.cut:
            await asyncio.sleep(STEP_S)
        with suppress(OSError, websockets.WebSocketException):
            async with websockets.connect(
                url, additional_headers=headers, max_size=MOST_BYTES, ping_interval=None, close_timeout=1
            ) as far:
                ways = [
                    asyncio.create_task(self._forward(near, far, UP)),
                    asyncio.create_task(self._forward(far, near, DOWN)),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()

    async def _forward(self, source, sink, way) -> None:
        # The first message each way opens the conversation: TCP never delivers it after a later one.
        first, order, last_sent = True, 0, -1
        tasks = set()

        async def send(message, number):
            nonlocal last_sent
            if self.cut:
                return
            self.overtaken += number < last_sent
            last_sent = max(last_sent, number)
            with suppress(websockets.WebSocketException):
                await sink.send(message)

        async def later(message, number):
            await asyncio.sleep(self._random.uniform(0, LATEST_S))
            await send(message, number)

        async for message in source:
            if self.cut:
                continue
            self.forwarded += 1
            copies = not first and way in self.repeats and self._random.random() < 0.4
            late = not first and way in self.shuffles
            self.repeated += copies
            if not late:
                await send(message, order)
            for _ in range(copies + late):
                task = asyncio.create_task(later(message, order))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            order += 1
            first = False
