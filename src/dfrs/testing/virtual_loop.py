"""An event loop without real time, threads or sockets: one seed, one order of everything.

Time passes only when nothing is ready, and then at once. Callbacks that are ready together run in an order drawn from
the seed. Work for threads runs on the loop, a little later, and is answered later still, so that whoever waits for it
can be interrupted before, between and after.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

SHORT_S, LONG_S = 0.002, 0.05
"""How long work of a thread waits: usually, and one time in ten."""
RARE = 0.1
MOST_STEPS = 20_000
"""At one moment: a loop that makes more never ends."""

T = TypeVar("T")


class VirtualLoop(asyncio.BaseEventLoop):
    """Repeats bit for bit from `seed`."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(f"loop {seed}")  # noqa: S311 - what is tested repeats from its seed
        self.steps = 0
        """Turns of the loop: each runs all callbacks that are ready at its begin."""
        self.after_each: Callable[[], None] | None = None
        """Called at the end of each step. What it raises ends the run there."""
        self._at_steps: list[tuple[int, Callable[[], object]]] = []
        self._now_s = 0.0
        self._moved_on = 0
        self._selector = self

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._now_s

    def delay_s(self) -> float:
        """How long something outside takes."""
        return self.random.random() * (LONG_S if self.random.random() < RARE else SHORT_S)

    def after_steps(self, steps: int, callback: Callable[[], object]) -> None:
        """Call back in the step after so many, between any two of the callbacks that are ready then."""
        self._at_steps.append((self.steps + 1 + steps, callback))

    def select(self, timeout_s: float | None) -> tuple[()]:
        """As a selector's: nothing comes from outside, so the time until the next timer is skipped."""
        if timeout_s is None:
            raise RuntimeError("nothing is ready and no timer is set: every task waits for something that cannot come")
        if timeout_s > 0:
            self._moved_on = self.steps
            self._now_s = max(self._now_s, self._scheduled[0].when())
        return ()

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: object) -> asyncio.Future[T]:
        """Run `func` on the loop, later; its answer comes later still. What is cancelled before it began is not run."""
        answer: asyncio.Future[T] = self.create_future()

        def answered(settle: Callable[[Any], None], value: object) -> None:
            if not answer.done():
                settle(value)

        def work() -> None:
            settle: Callable[[Any], None]
            value: object
            if answer.cancelled():
                return
            try:
                settle, value = answer.set_result, func(*args)
            except Exception as error:
                settle, value = answer.set_exception, error
            self.call_later(self.delay_s(), answered, settle, value)

        self.call_later(self.delay_s(), work)
        return answer

    def _run_once(self) -> None:
        self.steps += 1
        if self.steps - self._moved_on > MOST_STEPS:
            raise RuntimeError(f"{MOST_STEPS} steps, and no time passed: something goes round in circles")
        for due in [each for each in self._at_steps if each[0] <= self.steps]:
            self._at_steps.remove(due)
            self.call_soon(due[1])
        if len(self._ready) > 1:
            ready = list(self._ready)
            self.random.shuffle(ready)
            self._ready = deque(ready)
        super()._run_once()  # pyright: ignore[reportAttributeAccessIssue]
        if (look := self.after_each) is not None:
            # What it raises is raised once: tasks are still to be cancelled then.
            self.after_each = None
            look()
            self.after_each = look

    def _process_events(self, events: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """The loop never sleeps, and need not be woken."""


class VirtualExecutor(Executor):
    """One thread that there is not: runs what is submitted on a VirtualLoop, in order, each after a delay."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._work: deque[Callable[[], object]] = deque()
        self._closed = False
        self.slowness = 1.0
        """By how much longer each piece of work waits than usual."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Nobody asks for the answer."""
        assert not self._closed
        self._work.append(lambda: fn(*args, **kwargs))
        self._loop.call_later(self.slowness * self._loop.delay_s(), self._run_first)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Run at once all that waits."""
        while self._work:
            self._run_first()
        self._closed = True

    def kill(self) -> None:
        """Nothing that has not begun is done any more."""
        self._work.clear()
        self._closed = True

    def _run_first(self) -> None:
        if self._work:
            self._work.popleft()()


def run_virtually(seed: int, make_story: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> tuple[T, int]:
    """What the coroutine `make_story(loop)` returns; and how many steps the loop made.

    Raises AssertionError where something failed on the loop and nobody was told.
    """
    loop = VirtualLoop(seed)
    unhandled: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        value = runner.run(make_story(loop))
    assert not unhandled, unhandled
    return value, loop.steps
