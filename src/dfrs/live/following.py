"""Waiting for jobs and reading output as it comes, as generators that yield each pause, in seconds.

A thread sleeps in a pause, an event loop does other work: what is asked, and when, is written once for both.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from dfrs.live.drivers.base import Stream
from dfrs.live.errors import NotEndedError, UnavailableError, UnreachableError
from dfrs.live.protocol.resources import ENDED, Job, JobState, OutputPart

if TYPE_CHECKING:
    from dfrs.live.client import Client

PATIENCE_S = 60.0
"""How long what follows something waits for a controller that is away."""
OUTPUT_PAUSE_S = 0.5
"""Between two looks at output that has not grown."""
_EARLY = frozenset({JobState.PENDING, JobState.HELD, JobState.WAITING, JobState.STARTING})

_T = TypeVar("_T")


class Patience:
    """Repeats questions while the controller is away for a moment: it may be starting again.

    `tell` is called with `limit_s` once a question has had no answer for a second.
    """

    def __init__(self, limit_s: float = PATIENCE_S, tell: Callable[[float], None] | None = None) -> None:
        self._limit_s = limit_s
        self._tell = tell
        self._told = False

    def ask(self, question: Callable[[], _T]) -> Generator[float, None, _T]:
        """Its answer; raises UnreachableError or UnavailableError only after `limit_s` seconds of silence."""
        since, pause_s = time.monotonic(), 0.1
        while True:
            try:
                answer = question()
            except (UnreachableError, UnavailableError):
                silent_s = time.monotonic() - since
                if silent_s > self._limit_s:
                    raise
                if self._tell is not None and not self._told and silent_s > 1.0:
                    self._told = True
                    self._tell(self._limit_s)
                yield pause_s
                pause_s = min(2.0, pause_s * 1.5)
            else:
                self._told = False
                return answer


def until_ended(
    client: "Client", jobs: Sequence[int], patience: Patience, timeout_s: float | None = None
) -> Generator[float, None, list[Job]]:
    """The jobs once all have ended. Asks at most ten times a second, and less often the longer it takes.

    Raises NotEndedError after `timeout_s`.
    """
    end = None if timeout_s is None else time.monotonic() + timeout_s
    ended: list[Job] = []
    for job in jobs:
        pause_s = 0.1
        while (seen := (yield from patience.ask(lambda job=job: client.job(job)))).state not in ENDED:
            left_s = pause_s if end is None else end - time.monotonic()
            if left_s <= 0:
                raise NotEndedError(f"job {job}: has not ended after {timeout_s:g} s: it is {seen.state}")
            yield min(pause_s, left_s)
            pause_s = min(2.0, pause_s * 1.2)
        ended.append(seen)
    return ended


def output_parts(
    client: "Client", job: int, rank: int, stream: Stream, patience: Patience, *, follow: bool
) -> Generator[float | OutputPart, None, None]:
    """What a task wrote, piece by piece, and pauses between them: to its end with `follow`, else what there is."""
    offset = 0
    attempt: int | None = None
    while True:
        if follow and offset == 0 and (yield from patience.ask(lambda: client.job(job))).state in _EARLY:
            yield OUTPUT_PAUSE_S
            continue
        part = yield from patience.ask(lambda at=offset: client.output(job, rank=rank, stream=stream, offset=at))
        before, attempt = attempt, part.attempt
        if offset and before != attempt:
            # The job has begun anew, and so has what it writes.
            offset = 0
            continue
        if part.text or part.offset > offset:
            yield part
        grew, offset = part.next_offset > offset, part.next_offset
        if part.ended or not (follow or grew):
            return
        if not grew:
            yield OUTPUT_PAUSE_S


def asleep(steps: Generator[float, None, _T]) -> _T:
    """What the steps return, with this thread asleep in each pause."""
    while True:
        try:
            pause_s = next(steps)
        except StopIteration as end:
            return end.value
        time.sleep(pause_s)


def asleep_between(steps: Generator[float | OutputPart, None, None]) -> Iterator[OutputPart]:
    """The pieces of output that the steps yield, with this thread asleep in each pause."""
    for step in steps:
        if isinstance(step, OutputPart):
            yield step
        else:
            time.sleep(step)
