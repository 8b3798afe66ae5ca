"""Who executes runs: this process, processes of this machine, or a Dask cluster, all behind one protocol."""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Protocol

from dfrs.experiments.planned_runs import PlannedRun, Row, Work, perform, warm

_LOADED = ["dfrs.api"]
"""By the process from which workers are forked: most of what takes long to load, and nothing that has threads when it
is loaded (as polars has) but what stops them for a fork (numpy's linear algebra)."""
_LISTEN_S = 0.5
_AHEAD = 2
"""Pieces of work for each worker that are on their way: one that runs, one that waits, so that none idles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Work with its rows, one for each run; None where the worker ended while it had the work."""

    work: Work
    rows: list[Row] | None


class Runner(Protocol):
    """Runs work. `close` ends what it started; nothing else outlives it."""

    @property
    def workers(self) -> int:
        """How many pieces run at a time, at present."""
        ...

    def start(self, runs: Sequence[PlannedRun]) -> None:
        """Have the workers load what these runs need."""
        ...

    def map(self, work: Iterable[Work]) -> Iterator[Done]:
        """Each piece with its rows as soon as they are there, in any order. Takes `work` as workers become free."""
        ...

    def close(self) -> None:
        """End the workers, without waiting for what they have not begun."""
        ...


class InProcess:
    """One piece after the other, in this process."""

    workers = 1

    def start(self, runs: Sequence[PlannedRun]) -> None:
        """Each piece loads what it needs."""

    def map(self, work: Iterable[Work]) -> Iterator[Done]:
        """In order."""
        for piece in work:
            yield Done(work=piece, rows=perform(piece))

    def close(self) -> None:
        """There is nothing to end."""


class Processes:
    """`workers` processes on this machine. What they are forked from stays until this process ends."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._wanted: Connection | None = None

    def start(self, runs: Sequence[PlannedRun]) -> None:
        """Start the processes; while they load, compile here what is not compiled yet, once for all."""
        _prepared()
        warm(runs)
        self._running()

    def _running(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = _prepared()
            reader, self._wanted = context.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(
                self.workers, mp_context=context, initializer=_start_worker, initargs=(reader,)
            )
            with deaf_children():
                for _ in range(self.workers):
                    self._pool.submit(os.getpid)
        return self._pool

    def map(self, work: Iterable[Work]) -> Iterator[Done]:
        """As Runner says. Where a process ends, all that was on its way comes back without rows."""
        pieces = iter(work)
        waiting: dict[Future[list[Row]], Work] = {}
        while True:
            while len(waiting) < _AHEAD * self.workers and (piece := next(pieces, None)) is not None:
                waiting[self._submit(piece)] = piece
            if not waiting:
                return
            ended: set[Future[list[Row]]] = set()
            while not ended:
                # A wait without end is not always ended by Ctrl-C.
                ended, _ = wait(waiting, timeout=_LISTEN_S, return_when=FIRST_COMPLETED)
            if any(isinstance(future.exception(), BrokenProcessPool) for future in ended):
                # The pool ends all its processes when one has ended: whatever was on its way is lost with it.
                ended, _ = wait(waiting)
                self.close()
            for future in ended:
                lost = isinstance(future.exception(), BrokenProcessPool)
                yield Done(work=waiting.pop(future), rows=None if lost else future.result())

    def _submit(self, piece: Work) -> Future[list[Row]]:
        try:
            return self._running().submit(perform, piece)
        except BrokenProcessPool:
            self.close()
            return self._running().submit(perform, piece)

    def close(self) -> None:
        """End the processes, at once."""
        if self._pool is not None and self._wanted is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._wanted.close()
            self._pool = self._wanted = None


def _prepared() -> BaseContext:
    """How workers are started: forked from a process that loads what they need, and is started here if it is not there.

    They are not forked from this one: libraries that have started threads do not survive that.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    safe_path = os.environ.get("PYTHONSAFEPATH")
    # Else it would look for libraries among the user's files first.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        with deaf_children():
            forkserver.ensure_running()
    except OSError:
        # It listens on a socket among temporary files, whose path may be too long for one.
        return multiprocessing.get_context("spawn")
    finally:
        if safe_path is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = safe_path
    return context


@contextmanager
def deaf_children() -> Generator[None]:
    """Processes started meanwhile take no Ctrl-C from the terminal, which would be a traceback: they end otherwise."""
    # When the tracker starts it unblocks what was blocked.
    resource_tracker.ensure_running()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _start_worker(wanted: Connection) -> None:
    threading.Thread(target=_end_with, args=(wanted,), daemon=True).start()


def _end_with(wanted: Connection) -> None:
    """End this process when the other end is closed, by the parent or with it, whatever is being run."""
    multiprocessing.connection.wait([wanted])
    os._exit(1)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
