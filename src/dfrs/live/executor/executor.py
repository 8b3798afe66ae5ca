"""`concurrent.futures` on a live cluster: each call is a job, and its result comes back by the job's output."""

import functools
import itertools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from dfrs.live.drivers.base import Stream
from dfrs.live.errors import (
    ConflictError,
    JobFailedError,
    NotFoundError,
    TooManyError,
    UnavailableError,
    UnreachableError,
)
from dfrs.live.executor.remote_call import each, packed_call, read_outcome
from dfrs.live.following import Patience, asleep
from dfrs.live.job_request import job_request
from dfrs.live.protocol.resources import Job, JobRequest, JobState
from dfrs.model.errors import DfrsError, InputError

if TYPE_CHECKING:
    from dfrs.live.client import Client

MODULE = "dfrs.live.executor"
PAUSE_S, MOST_PAUSE_S = 0.05, 1.0
"""Between two looks at jobs: longer each time while none of them changes."""
PART_BYTES = 1 << 20
"""Asked for at once of an outcome: the most that the controller gives."""
TAIL = 1000
"""Characters of standard error that are told of a call without an outcome."""
_OURS = ("command", "tasks", "array")
_GOING = frozenset({JobState.STARTING, JobState.RUNNING, JobState.PAUSED, JobState.ENDING})

_P = ParamSpec("_P")
_T = TypeVar("_T")


class ClusterFuture(Future[_T]):
    """The result of a call on the cluster, to come.

    Unlike that of a thread, a call that runs can be cancelled: its job is then ended.
    """

    def __init__(self) -> None:
        super().__init__()
        self.job: int | None = None
        """The job that runs it; None before it is submitted."""
        self.state = JobState.PENDING
        """Of the job, as it was last seen."""

    def running(self) -> bool:
        """Whether its job has begun and not ended, as it was last seen."""
        return self.state in _GOING and not self.done()


class ClusterExecutor(Executor):
    """Calls functions in jobs of a live cluster, by the same Python; from `Client.executor`.

    A function and its arguments travel pickled (by cloudpickle: also what a notebook defines) in the job's environment,
    at most 150,000 bytes when compressed; results and exceptions come back by the job's output, at most 11.8 MB. Larger
    data travel as paths of files. Nodes need no files in common with this program but `python`, its packages, and the
    modules that are not defined in a notebook or script. What a call prints is its job's standard error.

    A call costs a process, about half a second: `map` with a `chunksize` makes several calls in one job. A job whose
    node is lost is run again once, unless `restart="never"` is among the executor's fields.

    Jobs wait in the cluster's queue; what a quota does not allow yet waits here, and for up to `patience_s` what the
    controller cannot take as it is away. At the end of `with` all calls have ended; without it Python waits for them
    when the program ends. Unpickling a result trusts the nodes that computed it.
    """

    def __init__(self, client: "Client", *, python: str, patience_s: float, fields: Mapping[str, Any]) -> None:
        for name in _OURS:
            if name in fields:
                raise InputError(f"{name}: cannot be chosen: each call is a job of one task")
        given = {"environment": {}, **fields}
        passed = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        self._environment = passed | dict(given.pop("environment"))
        self._fields: dict[str, Any] = given
        self._command = (python, "-m", MODULE)
        # What no job could have is said now, not by the first call.
        job_request(self._command, **self._fields, environment=self._environment)
        self._client = client
        self._patience_s = patience_s
        self._patience = Patience(patience_s)
        self._away_since: float | None = None
        """Since when nothing could be submitted as the controller is away; None where it could be."""
        self._user: str | None = fields.get("user")
        self._news = threading.Condition()
        """Held whenever what follows is looked at or changed."""
        self._queue: deque[tuple[ClusterFuture[Any], JobRequest]] = deque()
        self._sent: ClusterFuture[Any] | None = None
        """The one that is being submitted."""
        self._open: dict[int, ClusterFuture[Any]] = {}
        self._cancelled: list[int] = []
        self._thread: threading.Thread | None = None
        """There is one while there is something to do, so nobody who forgets `shutdown` leaves one behind."""
        self._woken = False
        """There is something new to do: no pause."""
        self._closed = False
        self._broken = ""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> ClusterFuture[_T]:
        """A future for `fn(*args, **kwargs)`; see `concurrent.futures.Executor.submit`.

        What goes wrong with the call is an exception of the future: what it raises, TooLargeError, InputError where it
        could never run, JobFailedError where its job ends without a result, as one that is killed for its memory.
        """
        future: ClusterFuture[_T] = ClusterFuture()
        self._must_be_open()
        try:
            request = self._request(fn, functools.partial(fn, *args, **kwargs))
        except Exception as error:
            future.set_exception(error)
            return future
        with self._news:
            self._must_be_open()
            future.add_done_callback(self._when_cancelled)
            self._queue.append((future, request))
            if self._thread is None:
                # Python waits at its exit for a thread that is not a daemon: until all calls have ended.
                self._thread = threading.Thread(target=self._work, name="dfrs-executor")
                self._thread.start()
            self._wake()
        return future

    def map(
        self, fn: Callable[..., _T], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[_T]:
        """Results in order, as `concurrent.futures.Executor.map`; `chunksize` calls are one job."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            return super().map(fn, *iterables, timeout=timeout)
        calls = zip(*iterables, strict=False)
        chunks = iter(lambda: tuple(itertools.islice(calls, chunksize)), ())
        found = super().map(functools.partial(each, fn), chunks, timeout=timeout)
        return itertools.chain.from_iterable(found)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; see `concurrent.futures.Executor.shutdown`."""
        with self._news:
            self._closed = True
            futures = self._left()
            thread = self._thread
        if cancel_futures:
            for future in futures:
                if not future.running():
                    future.cancel()
        if wait and thread is not None and thread is not threading.current_thread():
            thread.join()

    def _must_be_open(self) -> None:
        if self._broken:
            raise BrokenExecutor(self._broken)
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _request(self, fn: Callable[..., object], call: Callable[[], object]) -> JobRequest:
        named = fn.args[0] if isinstance(fn, functools.partial) and fn.func is each else fn
        fields = {"name": getattr(named, "__name__", type(named).__name__)[:128], **self._fields}
        # Of a program that is no package, modules are found only where Python was told to look for them.
        path = [os.path.abspath(place) for place in sys.path]
        return job_request(self._command, **fields, environment=self._environment | packed_call(call, path))

    def _when_cancelled(self, future: Future[Any]) -> None:
        """Have the job of a cancelled call ended."""
        if not future.cancelled():
            return
        future.set_running_or_notify_cancel()
        with self._news:
            for k, (queued, _) in enumerate(self._queue):
                if queued is future:
                    del self._queue[k]
                    break
            jobs = [job for job, open_ in self._open.items() if open_ is future]
            for job in jobs:
                del self._open[job]
            self._cancelled += jobs
            self._wake()

    def _left(self) -> list[ClusterFuture[Any]]:
        """What has not ended."""
        sent = [] if self._sent is None else [self._sent]
        return [*(future for future, _ in self._queue), *sent, *self._open.values()]

    def _wake(self) -> None:
        self._woken = True
        self._news.notify_all()

    # What follows runs in the executor's thread only.

    def _work(self) -> None:
        """Submit, cancel and look after jobs until there is nothing more to do."""
        pause_s = PAUSE_S
        try:
            while self._has_work():
                changed = self._submit() | self._cancel() | self._look()
                with self._news:
                    if changed or self._woken:
                        pause_s = PAUSE_S
                    else:
                        self._news.wait(pause_s)
                        pause_s = min(MOST_PAUSE_S, pause_s * 1.2)
                    self._woken = False
        except Exception as error:
            self._break(error)

    def _has_work(self) -> bool:
        with self._news:
            if not (self._queue or self._open or self._cancelled):
                self._thread = None
                return False
            return True

    def _submit(self) -> bool:
        """Submit what waits, as far as that is allowed now; whether anything was."""
        changed = False
        while True:
            with self._news:
                if not self._queue:
                    self._away_since = None
                    return changed
                future, request = self._queue.popleft()
                self._sent = future
            try:
                (job,) = self._client.submit(request)
            except Exception as error:
                later = self._goes_later(error)
                with self._news:
                    self._sent = None
                    if later and not future.cancelled():
                        self._queue.appendleft((future, request))
                if later:
                    return changed
                _settle(future, error=error)
                if not isinstance(error, DfrsError):
                    raise
            else:
                self._away_since = None
                with self._news:
                    future.job, self._sent = job, None
                    if future.cancelled():
                        self._cancelled.append(job)
                    else:
                        self._open[job] = future
            changed = True

    def _goes_later(self, error: Exception) -> bool:
        """Whether to submit the same call again: it was not accepted, and that may pass."""
        if not isinstance(error, UnavailableError | UnreachableError):
            self._away_since = None
            return isinstance(error, TooManyError)
        if isinstance(error, UnreachableError) and error.sent:
            # The job may be there.
            return False
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        return now - self._away_since <= self._patience_s

    def _cancel(self) -> bool:
        """End the jobs of cancelled calls."""
        with self._news:
            jobs, self._cancelled = self._cancelled, []
        for job in jobs:
            with suppress(ConflictError, NotFoundError):
                self._ask(lambda job=job: self._client.cancel(job))
        return bool(jobs)

    def _look(self) -> bool:
        """See which jobs have ended, and give their calls what came of them; whether any has."""
        with self._news:
            wanted = dict(self._open)
        if not wanted:
            return False
        if self._user is None:
            self._user = str(self._ask(self._client.me)["user"])
        seen = self._ask(lambda: self._going(min(wanted)))
        changed = False
        for job, future in wanted.items():
            if job in seen:
                future.state = seen[job].state
            elif self._taken(job):
                changed = True
                try:
                    self._end(future, self._ask(lambda job=job: self._client.job(job)))
                except Exception as error:
                    _settle(future, error=error)
                    if not isinstance(error, DfrsError):
                        raise
        return changed

    def _taken(self, job: int) -> bool:
        """Whether nobody has cancelled its call; from now on that ends no job."""
        with self._news:
            return self._open.pop(job, None) is not None

    def _going(self, oldest: int) -> dict[int, Job]:
        """The user's jobs that have not ended, from that number on."""
        jobs = itertools.takewhile(lambda job: job.id >= oldest, self._client.all_jobs(user=self._user))
        return {job.id: job for job in jobs}

    def _end(self, future: ClusterFuture[Any], job: Job) -> None:
        """Give a call the outcome of its job."""
        future.state = job.state
        if job.state == JobState.CANCELLED:
            future.cancel()
            return
        line = "".join(self._output(job.id, "out"))
        try:
            outcome = read_outcome(line)
        except Exception as error:
            _settle(future, error=JobFailedError(f"job {job.id}: its result cannot be unpickled: {error}"))
            return
        if outcome is None:
            said = "".join(self._output(job.id, "err"))[-TAIL:].strip()
            tail = f"; its standard error ends with: {said}" if said else ""
            _settle(future, error=JobFailedError(f"job {job.id}: {job.exit or job.state}{tail}"))
        elif outcome.raised:
            _settle(future, error=outcome.value)
        else:
            _settle(future, value=outcome.value)

    def _output(self, job: int, stream: Stream) -> Generator[str, None, None]:
        """What a job that has ended wrote; nothing where it never began."""
        offset = 0
        while True:
            try:
                piece = functools.partial(self._client.output, job, stream=stream, offset=offset, limit=PART_BYTES)
                part = self._ask(piece)
            except NotFoundError:
                return
            yield part.text
            if part.ended or part.next_offset <= offset:
                return
            offset = part.next_offset

    def _ask(self, question: Callable[[], _T]) -> _T:
        return asleep(self._patience.ask(question))

    def _break(self, error: Exception) -> None:
        """Fail all calls: nobody looks after their jobs any more."""
        with self._news:
            self._broken = f"the cluster can no longer be asked: {error}"
            left = self._left()
            self._queue.clear()
            self._open.clear()
            self._thread = None
        for future in left:
            _settle(future, error=error)


def _settle(future: ClusterFuture[Any], *, value: object = None, error: BaseException | None = None) -> None:
    """Give a call its result, unless it was cancelled meanwhile."""
    with suppress(InvalidStateError):
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
