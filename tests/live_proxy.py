"""A man in the middle between an agent and its controller: cuts the line, repeats messages and shuffles them."""

import asyncio
import random
import threading
from contextlib import suppress

import websockets

MOST_BYTES = 8 << 20


class Proxy:
    """Forwards WebSocket messages from its own port to the controller's, in a thread of its own.

    `cut` swallows everything in both directions without closing anything, as a broken switch does; `chaos` repeats
    messages and delays each by its own time, so that they overtake one another.
    """

    def __init__(self, port: int, seed: int = 0) -> None:
        self.target_port = port
        self.cut = False
        self.chaos = False
        self.repeated = self.overtaken = self.forwarded = 0
        self._random = random.Random(seed)
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
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        async with websockets.serve(
            self._handle, "127.0.0.1", 0, max_size=MOST_BYTES, ping_interval=None, close_timeout=1
        ) as server:
            self.port = server.sockets[0].getsockname()[1]
            self._started.set()
            await self._stop.wait()

    async def _handle(self, near) -> None:
        headers = {"Authorization": near.request.headers["Authorization"]}
        url = f"ws://127.0.0.1:{self.target_port}{near.request.path}"
        while self.cut:
            await asyncio.sleep(0.05)
        with suppress(OSError, websockets.WebSocketException):
            async with websockets.connect(
                url, additional_headers=headers, max_size=MOST_BYTES, ping_interval=None, close_timeout=1
            ) as far:
                ways = [asyncio.create_task(self._forward(near, far)), asyncio.create_task(self._forward(far, near))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()

    async def _forward(self, source, sink) -> None:
        # The first message each way opens the conversation: TCP never delivers it after a later one.
        first, order, last_sent = True, 0, -1
        tasks = set()

        async def later(message, number):
            nonlocal last_sent
            await asyncio.sleep(self._random.uniform(0, 0.3))
            if self.cut:
                return
            self.overtaken += number < last_sent
            last_sent = max(last_sent, number)
            with suppress(websockets.WebSocketException):
                await sink.send(message)

        async for message in source:
            if self.cut:
                continue
            self.forwarded += 1
            if self.chaos and not first:
                copies = 2 if self._random.random() < 0.4 else 1
                self.repeated += copies - 1
                for _ in range(copies):
                    task = asyncio.create_task(later(message, order))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                order += 1
            else:
                await sink.send(message)
            first = False
