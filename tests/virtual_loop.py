"""An event loop without real time, threads or sockets: one seed, one order of everything.

Time passes only when nothing is ready, and then at once. Callbacks that are ready together run in an order drawn from
the seed. Work for threads runs on the loop, a little later, and is answered later still, so that whoever waits for it
can be interrupted before, between and after.
"""

import asyncio
import random
from collections import deque
from concurrent.futures import Executor

SHORT_S, LONG_S = 0.002, 0.05
"""How long work of a thread waits: usually, and one time in ten."""
RARE = 0.1
MOST_STEPS = 100_000
"""At one moment: a loop that makes more never ends."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Repeats bit for bit from `seed`."""

    def __init__(self, seed):
        super().__init__()
        self.random = random.Random(f"loop {seed}")
        self.steps = 0
        self._now_s = 0.0
        self._moved_on = 0
        self._selector = self

    def time(self):
        """Seconds since the loop was made."""
        return self._now_s

    def delay_s(self):
        """How long something outside takes."""
        return self.random.random() * (LONG_S if self.random.random() < RARE else SHORT_S)

    def select(self, timeout_s):
        """As a selector's: nothing comes from outside, so the time until the next timer is skipped."""
        if timeout_s is None:
            raise RuntimeError("nothing is ready and no timer is set: every task waits for something that cannot come")
        if timeout_s > 0:
            self._moved_on = self.steps
            self._now_s = max(self._now_s, self._scheduled[0].when())
        return ()

    def run_in_executor(self, executor, func, *args):
        """Run `func` on the loop, later; its answer comes later still."""
        answer = self.create_future()

        def answered(settle, value):
            if not answer.done():
                settle(value)

        def work():
            try:
                settle, value = answer.set_result, func(*args)
            except Exception as error:
                settle, value = answer.set_exception, error
            self.call_later(self.delay_s(), answered, settle, value)

        self.call_later(self.delay_s(), work)
        return answer

    def _run_once(self):
        self.steps += 1
        if self.steps - self._moved_on > MOST_STEPS:
            raise RuntimeError(f"{MOST_STEPS} steps, and no time passed: something goes round in circles")
        if len(self._ready) > 1:
            ready = list(self._ready)
            self.random.shuffle(ready)
            self._ready = deque(ready)
        super()._run_once()

    def _process_events(self, events):
        """There are none."""

    def _write_to_self(self):
        """The loop never sleeps, and need not be woken."""


class VirtualExecutor(Executor):
    """One thread that there is not: runs what is submitted on a VirtualLoop, in order, each after a delay."""

    def __init__(self, loop):
        self._loop = loop
        self._work = deque()
        self._closed = False

    def submit(self, func, /, *args, **kwargs):
        """Nobody asks for the answer."""
        assert not self._closed
        self._work.append((func, args, kwargs))
        self._loop.call_later(self._loop.delay_s(), self._run_first)

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Run at once all that waits."""
        while self._work:
            self._run_first()
        self._closed = True

    def kill(self):
        """Nothing that has not begun is done any more."""
        self._work.clear()
        self._closed = True

    def _run_first(self):
        if self._work:
            func, args, kwargs = self._work.popleft()
            func(*args, **kwargs)


def run_virtually(seed, make_story):
    """What the coroutine `make_story(loop)` returns; and how many steps the loop made."""
    loop = VirtualLoop(seed)
    unhandled = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        value = runner.run(make_story(loop))
    assert not unhandled, unhandled
    return value, loop.steps
