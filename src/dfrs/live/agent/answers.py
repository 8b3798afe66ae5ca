"""What an agent answers when users read what tasks write, send them input, or start programs beside them."""

import asyncio
import base64
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

import structlog

from dfrs.live.drivers.base import (
    Driver,
    DriverError,
    FollowedDriver,
    InteractiveDriver,
    NotYetError,
    TaskId,
)
from dfrs.live.protocol.wire import Done, Execute, Output, Read, Write

FIRST_PAUSE_S, LAST_PAUSE_S = 0.01, 0.25
"""Between two looks at output that has not grown: longer and longer, until its user sends something."""
STARTERS = 2
"""Programs that are started at once beside tasks."""

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class Answers:
    """Asks the driver in threads of `readers`. `lives` says of a task whether more of it may come."""

    def __init__(self, driver: Driver, readers: Executor, lives: Callable[[TaskId], bool]) -> None:
        self._driver, self._readers, self._lives = driver, readers, lives
        # Supervisors may take long: who reads meanwhile does not wait for that.
        self._starters = ThreadPoolExecutor(STARTERS, thread_name_prefix="dfrs-beside")
        self._typed = asyncio.Event()
        """Set when a user has sent something since; then there is a new one."""

    def close(self) -> None:
        """Nothing more is answered."""
        self._starters.shutdown(wait=False, cancel_futures=True)

    async def to(self, asked: Read | Write | Execute) -> Output | Done:
        """The answer, whatever comes of it."""
        try:
            if isinstance(asked, Read):
                return await self._read(asked)
            return await self._do(asked)
        except Exception as error:
            if not isinstance(error, DriverError | OSError):
                log.exception("the driver failed", task=str(asked.task), step=asked.kind)
            why = " ".join(str(error).split()) or type(error).__name__
            if isinstance(asked, Read):
                return Output(request=asked.request, error=why)
            return Done(request=asked.request, error=why, again=isinstance(error, NotYetError))

    async def _do(self, asked: Write | Execute) -> Done:
        driver = self._interactive()
        if isinstance(asked, Execute):
            log.info("a program is started beside a task", task=str(asked.task), program=asked.program.name)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._starters, driver.execute, asked.task, asked.program)
            return Done(request=asked.request)
        taken = await self._in_thread(lambda: driver.write(asked.task, asked.part))
        typed, self._typed = self._typed, asyncio.Event()
        typed.set()
        return Done(request=asked.request, taken=taken)

    async def _read(self, asked: Read) -> Output:
        loop = asyncio.get_running_loop()
        until, pause_s = loop.time() + asked.wait_s, FIRST_PAUSE_S
        while True:
            lives = self._lives(asked.task)
            found = await self._in_thread(lambda: self._look(asked))
            left_s = until - loop.time()
            if found.data or found.exit_code is not None or not lives or left_s <= 0:
                return found
            try:
                async with asyncio.timeout(min(pause_s, left_s)):
                    await self._typed.wait()
                pause_s = FIRST_PAUSE_S
            except TimeoutError:
                pause_s = min(LAST_PAUSE_S, 1.1 * pause_s)

    def _look(self, asked: Read) -> Output:
        code: int | None = None
        # Only who has started a program beside knows its name. Others who wait for more want all of it, too.
        if (asked.program is not None or asked.wait_s > 0.0) and isinstance(self._driver, FollowedDriver):
            self._driver.note_read(asked.task, asked.program, asked.stream, asked.offset)
        if asked.program is None:
            data, offset, end = self._driver.output(asked.task, asked.stream, asked.offset, asked.limit)
        else:
            data, offset, end, code = self._interactive().program_output(
                asked.task, asked.program, asked.stream, asked.offset, asked.limit
            )
        if offset + len(data) < end:
            # There is more to read first.
            code = None
        text = base64.b64encode(data).decode()
        return Output(request=asked.request, data=text, offset=offset, end=end, exit_code=code)

    def _interactive(self) -> InteractiveDriver:
        if not isinstance(self._driver, InteractiveDriver):
            raise DriverError("the driver of this node gives tasks no input, and starts nothing beside them")
        return self._driver

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)
