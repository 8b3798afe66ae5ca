"""Runs studies on several processes, and keeps what came out.

A study is a table of runs: one row for each pair of a case (what is run on) and an entry (what is run, how). Its rows
are a function of the study, but for times and for what a time limit allows. They are stored as Parquet under a key
made of the study and of the code that ran it, so that asking again costs nothing and a change of either runs it anew.
"""

import hashlib
import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Protocol

import polars as pl

import dfrs
from dfrs.model.errors import DfrsError, InputError

Row = dict[str, object]
Schema = Mapping[str, type[pl.DataType]]
Part = Callable[[], list[Row]]
"""Some of a study's runs: a call that can be sent to another process."""
Advance = Callable[[int], None]


class Study(Protocol):
    """What a Runner runs."""

    @property
    def name(self) -> str:
        """Begins the name of the file of results."""
        ...

    @property
    def sample(self) -> str:
        """Says in a sentence what it is run on."""
        ...

    @property
    def timed(self) -> bool:
        """Run one part at a time, with nothing else of ours beside it."""
        ...

    @property
    def schema(self) -> Schema:
        """The columns of a row; `algorithm` names the entry."""
        ...

    @property
    def runs(self) -> int:
        """How many rows it gives."""
        ...

    @property
    def key(self) -> str:
        """Changes with everything that the rows depend on; not with `sample`."""
        ...

    def warm(self) -> None:
        """Load or compile what the parts need."""
        ...

    def parts(self) -> Sequence[Part]:
        """All runs, case by case and for each case in the order of the entries."""
        ...


class Runner:
    """Runs studies on `workers` processes and keeps their results under `directory`.

    Raises InputError where a result cannot be written.
    """

    def __init__(self, directory: Path, workers: int, advance: Advance = lambda _: None) -> None:
        self.directory = directory
        self.workers = workers
        self.advance = advance
        self._pool: ProcessPoolExecutor | None = None
        self._known: dict[str, pl.DataFrame] = {}

    def results(self, study: Study) -> pl.DataFrame:
        """One row per case and entry, with the columns of the study's schema; from the store if they are there."""
        if study.key not in self._known:
            self._known[study.key] = self._stored_or_run(study)
        return self._known[study.key]

    def _stored_or_run(self, study: Study) -> pl.DataFrame:
        path = self.directory / f"{study.name}-{study.key}.parquet"
        if path.exists():
            self.advance(study.runs)
            return pl.read_parquet(path)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.directory}: cannot write results there: {error.strerror}") from None
        # Compiled here, once, so that other processes only load what is compiled.
        study.warm()
        rows: list[Row] = []
        for some in self._alone(study) if study.timed or self.workers == 1 else self._together(study):
            rows += some
            self.advance(len(some))
        frame = pl.DataFrame(rows, schema=dict(study.schema))
        try:
            partial_file = path.with_suffix(".part")
            frame.write_parquet(partial_file)
            partial_file.replace(path)
        except OSError as error:
            raise InputError(f"{path}: cannot write the results: {error.strerror}") from None
        return frame

    def _alone(self, study: Study) -> Iterator[list[Row]]:
        for part in study.parts():
            yield part()

    def _together(self, study: Study) -> Iterator[list[Row]]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker
            )
        parts = study.parts()
        some = max(1, min(16, len(parts) // (8 * self.workers)))
        try:
            yield from self._pool.map(_perform, parts, chunksize=some)
        except BrokenProcessPool:
            raise DfrsError(
                f"{study.name}: a worker process ended, for want of memory perhaps: try --workers 1"
            ) from None

    def close(self) -> None:
        """End the processes, without waiting for what they have not begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def runner(directory: Path, workers: int, advance: Advance) -> Generator[Runner]:
    """A Runner whose processes end with the block."""
    made = Runner(directory, workers, advance)
    try:
        yield made
    finally:
        made.close()


def study_key(told: object, code: Iterable[str]) -> str:
    """Changes with the representation of `told` and with the source files `code`, relative to the package."""
    return hashlib.sha256((repr(told) + _code_digest(tuple(code))).encode()).hexdigest()[:16]


@cache
def _code_digest(code: tuple[str, ...]) -> str:
    root = Path(dfrs.__file__).parent
    digest = hashlib.sha256()
    for part in code:
        path = root / part
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _perform(part: Part) -> list[Row]:
    return part()


def _start_worker() -> None:
    # The terminal sends Ctrl-C to all processes: workers then end at once and leave the message to the parent.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
