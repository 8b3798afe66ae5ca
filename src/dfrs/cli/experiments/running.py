"""What the verbs that run campaigns share: who executes them."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dfrs.cli.console import err
from dfrs.model.errors import InputError

if TYPE_CHECKING:
    from dfrs.experiments.runners import Runner

Workers = Annotated[
    int | None, typer.Option(help="Processes on this machine; default: one a core. 1: in this process.", min=1)
]
Dask = Annotated[str | None, typer.Option(help="Run on the Dask cluster at this address: tcp://HOST:8786.")]
DaskLocal = Annotated[int | None, typer.Option(help="Run on a Dask cluster of so many processes, started here.", min=1)]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Run what failed again, and nothing else.")]


@contextmanager
def opened_runner(workers: int | None, dask: str | None, dask_local: int | None) -> "Generator[Runner]":
    """The runner that the options name; its processes end with the block. Raises InputError for more than one."""
    given = [name for name, value in (("--workers", workers), ("--dask", dask), ("--dask-local", dask_local)) if value]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)}: give one of them")
    # What batch systems send before they kill is to lose no more than Ctrl-C does.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        running = _runner(workers, dask, dask_local)
        try:
            yield running
        finally:
            running.close()
    finally:
        signal.signal(signal.SIGTERM, before)


def _runner(workers: int | None, dask: str | None, dask_local: int | None) -> "Runner":
    from dfrs.experiments.runners import InProcess, Processes, cores

    if dask or dask_local:
        from dfrs.experiments.dask_runner import DaskRunner

        running = DaskRunner(dask, local=dask_local or 0)
        err.print(f"Dask: {running.address}, dashboard {running.dashboard}", markup=False, soft_wrap=True)
        return running
    count = workers or cores()
    return InProcess() if count == 1 else Processes(count)
