"""Whether a node can do its work: tested when its agent starts, and again only as long as a test fails."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import structlog

from dfrs.live.agent.connection import Backoff
from dfrs.live.drivers.base import NotYetError
from dfrs.live.drivers.self_test import SelfTestStoppedError
from dfrs.live.protocol.observed import PROBLEM_CHARS
from dfrs.live.protocol.wire import UNDER_WAY

FIRST_AGAIN_S, LAST_AGAIN_S = 10.0, 600.0
"""A test that fails is repeated after so long, doubled each time up to the last."""
STOP_S = 15.0
"""So long a test may take to end when it is told to."""

log = structlog.get_logger(__name__)
Test = Callable[[threading.Event], str]
"""Why the node cannot do its work, empty if it can; to end early, by SelfTestStoppedError, when the event is set.
Raises NotYetError where it found out nothing. It is called in a thread."""


class Health:
    """What the last test said. Everything but the test itself happens on the event loop of `run`."""

    def __init__(self, test: Test, *, first_s: float = FIRST_AGAIN_S, last_s: float = LAST_AGAIN_S) -> None:
        self.problem = UNDER_WAY
        """Why the node is to get no jobs; empty if it may."""
        self.tested = asyncio.Event()
        """Set once there is a result."""
        self._test = test
        self._backoff = Backoff(first_s, last_s)

    async def run(self) -> None:
        """Test until a test passes; return only when cancelled, and not in the middle of a test."""
        stopped = threading.Event()
        tester = ThreadPoolExecutor(1, thread_name_prefix="dfrs-self-test")
        asked: asyncio.Future[str] | None = None
        try:
            while self.problem:
                asked = asyncio.get_running_loop().run_in_executor(tester, partial(self._test, stopped))
                # Cancelled itself, it would go on and nobody would know when it has ended.
                await asyncio.wait({asked})
                self._take(asked)
                self.tested.set()
                if self.problem:
                    await asyncio.sleep(self._backoff.next_s())
            await asyncio.Event().wait()
        finally:
            stopped.set()
            if asked is not None:
                done, _ = await asyncio.wait({asked}, timeout=STOP_S)
                # Nobody asks for it any more.
                _ = [each.exception() for each in done]
            tester.shutdown(wait=False)

    def _take(self, asked: asyncio.Future[str]) -> None:
        before = self.problem
        error = asked.exception()
        if isinstance(error, SelfTestStoppedError):
            return
        if isinstance(error, NotYetError):
            # Other tasks have the memory: what was known of the node is true as long as they run.
            self.problem = "" if before == UNDER_WAY else before
        elif error is not None:
            log.error("the self-test itself failed", exc_info=error)
            said = " ".join(str(error).split()) or type(error).__name__
            self.problem = f"self-test failed: {said}"[:PROBLEM_CHARS]
        else:
            self.problem = asked.result()[:PROBLEM_CHARS]
        if self.problem and self.problem != before:
            log.warning("this node gets no jobs", why=self.problem)
        elif not self.problem and before not in {"", UNDER_WAY}:
            log.info("this node can do its work again")
