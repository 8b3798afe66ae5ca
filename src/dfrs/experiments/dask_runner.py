"""Runs on a Dask cluster: an existing one by its address, or one of this machine for as long as it is needed.

The workers need the same dfrs installed, and see trace files under the same paths. Only the process that asks writes
to the store. Where a worker ends, Dask gives its work to another.
"""

import logging
import time
from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from distributed import Client, Future, KilledWorker, LocalCluster, as_completed
from distributed.client import FutureCancelledError

from dfrs.experiments.planned_runs import PlannedRun, Row, Work, perform
from dfrs.experiments.runners import Done, deaf_children
from dfrs.model.errors import DfrsError, InputError

_AHEAD = 3
"""Pieces of work for each thread of the cluster that are on their way: round trips must not leave one idle."""
_CONNECT_S = 10.0
_COUNT_AGAIN_S = 2.0


class DaskRunner:
    """Runs work on the cluster at `address`, or with `local` on a cluster of so many processes of this machine.

    Raises InputError where nothing answers at the address.
    """

    def __init__(self, address: str | None = None, *, local: int = 0) -> None:
        # What goes wrong is told by us, in one line.
        for name in [name for name in logging.Logger.manager.loggerDict if name.startswith(("distributed", "tornado"))]:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._cluster = None
        if local:
            with deaf_children():
                self._cluster = LocalCluster(
                    n_workers=local,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
        try:
            self._client = Client(self._cluster or address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            told = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"--dask {address}: no scheduler answers there: {told}") from None
        self.address = str(self._client.scheduler_info()["address"])
        self._counted_s = -_COUNT_AGAIN_S
        self._workers = 0

    @property
    def dashboard(self) -> str:
        """Address of the cluster's page."""
        return str(self._client.dashboard_link)

    @property
    def workers(self) -> int:
        """Threads of the cluster at present, at least 1."""
        if time.monotonic() - self._counted_s >= _COUNT_AGAIN_S:
            threads: Any = self._client.nthreads()
            self._workers = sum(threads.values())
            self._counted_s = time.monotonic()
        return max(1, self._workers)

    def start(self, runs: Sequence[PlannedRun]) -> None:
        """Each worker loads what it needs with its first piece."""

    def map(self, work: Iterable[Work]) -> Iterator[Done]:
        """As Runner says. Raises DfrsError where the scheduler is lost."""
        pieces = iter(work)
        waiting: dict[Future[Any], Work] = {}
        try:
            ended: Any = as_completed(loop=self._client.loop, raise_errors=False)
            while True:
                while len(waiting) < _AHEAD * self.workers and (piece := next(pieces, None)) is not None:
                    future = self._client.submit(perform, piece, pure=False)
                    waiting[future] = piece
                    ended.add(future)
                if not waiting:
                    return
                future = next(ended)
                piece = waiting.pop(future)
                yield Done(work=piece, rows=_rows(future))
        except (OSError, CancelledError, FutureCancelledError) as error:
            raise DfrsError(f"{self.address}: the Dask scheduler is gone: what is done is kept; run again") from error
        finally:
            for future in waiting:
                future.cancel()

    def close(self) -> None:
        """Leave the cluster; end it if it was started here."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()


def _rows(future: "Future[Any]") -> list[Row] | None:
    """What the work gave; None where its worker ended too often. Raises what it raised."""
    error: Any = future.exception()
    if isinstance(error, KilledWorker):
        return None
    if isinstance(error, DfrsError):
        raise error
    if error is not None:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DfrsError(f"a Dask worker cannot run this: {told}: is the same dfrs installed there?")
    return future.result()
