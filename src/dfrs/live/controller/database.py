"""The database as the controller uses it: durable writes in groups, one group after the other, and reads beside it.

Whoever writes waits until it is durable. All that waits is written in one transaction, so that many writers share one
flush of the disk. The first statement of each transaction counts up a row that names the writer: a controller that was
replaced by another one on the same database writes no more, and after a lost connection it is known whether the last
transaction came through.
"""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.dml import UpdateBase

from dfrs.live.controller import tables
from dfrs.live.protocol.ports import UnavailableError
from dfrs.model.errors import DfrsError, InputError

Change = tuple[UpdateBase, Sequence[Mapping[str, Any]]]
"""A statement, and its parameters row by row."""

MOST_GROUPED = 1000
"""So many writers share one transaction at most."""
BUSY_S = 5.0
"""So long a locked database is waited for."""
RETRY_S = 1.0
WRITER = "writer"

T = TypeVar("T")
log = structlog.get_logger(__name__)


class ReplacedError(DfrsError):
    """Another controller has taken over this database: only one may use it. Stop one of them."""


@dataclass(slots=True)
class _Entry:
    changes: Sequence[Change]
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None] = field(repr=False)


class Database:
    """A database. `open` before all else.

    `writer` runs the transactions, one at a time and in the order in which they were submitted; by default it is a
    thread of its own.
    """

    def __init__(self, url: str, writer: Executor | None = None) -> None:
        self.trouble: str | None = None
        """What was wrong with the last transaction; None if nothing was."""
        self.commits = 0
        self.commit_s = 0.0
        """Time of the last transaction."""
        self._url = url
        self._engine: Engine | None = None
        self._writer = ThreadPoolExecutor(1, "dfrs-database") if writer is None else writer
        self._waiting: deque[_Entry] = deque()
        self._connection: Connection | None = None
        self._owner = token_hex(8)
        self._count = 0
        self._closed = False
        self._uncertain = False
        """Whether the last transaction may have been committed."""

    def open(self) -> None:
        """Connect, bring the tables up to date, and take over. Raises InputError where that cannot be."""
        try:
            self._engine = _engine(self._url)
            with self._engine.connect() as connection:
                migrate(connection)
                with connection.begin():
                    self._take_over(connection)
        except (SQLAlchemyError, OSError, ImportError) as error:
            raise InputError(f"database: {_line(error)}") from None

    def _take_over(self, connection: Connection) -> None:
        connection.execute(tables.meta.delete().where(tables.meta.c.key == WRITER))
        connection.execute(tables.ADD_META, {"key": WRITER, "value": self._mark(0)})

    async def write(self, changes: Sequence[Change]) -> None:
        """Return when `changes` are durable. UnavailableError: they were not written and never will be."""
        if self._closed:
            raise UnavailableError("the controller is stopping")
        loop = asyncio.get_running_loop()
        entry = _Entry(changes, loop, loop.create_future())
        self._waiting.append(entry)
        self._writer.submit(self._write_waiting)
        # Who is cancelled while waiting must not take the place of the answer away from the writer.
        await asyncio.shield(entry.done)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` makes of a connection, in a thread. Raises UnavailableError."""
        return await asyncio.to_thread(self.read_now, work)

    def read_now(self, work: Callable[[Connection], T]) -> T:
        """As `read`, in this thread."""
        assert self._engine is not None
        try:
            with self._engine.connect().execution_options(reads=True) as connection:
                return work(connection)
        except SQLAlchemyError as error:
            raise UnavailableError(f"the database cannot be read: {_line(error)}") from None

    def close(self) -> None:
        """Write what waits, and disconnect."""
        self._closed = True
        self._writer.submit(self._disconnect)
        self._writer.shutdown()
        if self._engine is not None:
            self._engine.dispose()

    def _write_waiting(self) -> None:
        """Write all that waits by now; nothing if it went with an earlier transaction."""
        entries: list[_Entry] = []
        while self._waiting and len(entries) < MOST_GROUPED:
            entries.append(self._waiting.popleft())
        if entries:
            self._settle(entries, self._attempt(entries))

    def _attempt(self, entries: Sequence[_Entry]) -> DfrsError | None:
        """Write the changes of all `entries`; what went wrong, if they are not written."""
        begin_s = time.perf_counter()
        self._count += 1
        self._uncertain = False
        problem: DfrsError | None = None
        try:
            self._transact(_grouped(entries))
        except ReplacedError as error:
            problem = error
        except SQLAlchemyError as error:
            self._disconnect()
            if not self._came_through():
                self._count -= 1
                problem = UnavailableError(f"the database cannot be written: {_line(error)}")
        except Exception as error:
            log.exception("cannot write to the database")
            self._disconnect()
            self._count -= 1
            problem = UnavailableError(f"the database cannot be written: {type(error).__name__}")
        self.commit_s = time.perf_counter() - begin_s
        self.commits += problem is None
        if problem is not None and self.trouble is None:
            log.error("the database cannot be written", problem=str(problem))
        self.trouble = None if problem is None else str(problem)
        return problem

    def _transact(self, changes: Sequence[Change]) -> None:
        if self._connection is None:
            assert self._engine is not None
            self._connection = self._engine.connect()
        transaction = self._connection.begin()
        try:
            self._execute(self._connection, changes)
        except BaseException:
            transaction.close()
            raise
        self._uncertain = True
        transaction.commit()
        self._uncertain = False

    def _execute(self, connection: Connection, changes: Sequence[Change]) -> None:
        marked = connection.execute(
            tables.meta.update()
            .where(tables.meta.c.key == WRITER, tables.meta.c.value == self._mark(self._count - 1))
            .values(value=self._mark(self._count))
        )
        if marked.rowcount != 1:
            raise ReplacedError("another controller has taken over this database: stop one of them")
        for statement, rows in changes:
            connection.execute(statement, rows)

    def _came_through(self) -> bool:
        """Whether the transaction was committed though its connection was lost then: asked until it is known."""
        if not self._uncertain:
            return False
        while not self._closed:
            try:
                found = self.read_now(_writer)
            except UnavailableError as error:
                self.trouble = str(error)
                self._refuse_waiting(error)
                time.sleep(RETRY_S)
            else:
                return found == self._mark(self._count)
        return False

    def _refuse_waiting(self, error: UnavailableError) -> None:
        """Who came later need not wait: of theirs, nothing was written."""
        for _ in range(len(self._waiting)):
            self._settle([self._waiting.popleft()], error)

    def _mark(self, count: int) -> str:
        return f"{self._owner}:{count}"

    def _disconnect(self) -> None:
        if self._connection is not None:
            try:
                self._connection.invalidate()
                self._connection.close()
            except SQLAlchemyError as error:
                log.info("closing a connection failed", problem=_line(error))
            self._connection = None

    @staticmethod
    def _settle(entries: Sequence[_Entry], problem: DfrsError | None) -> None:
        loops = {entry.loop for entry in entries}
        for loop in loops:
            waiting = [entry.done for entry in entries if entry.loop is loop]
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, waiting, problem)


def _resolve(waiting: Sequence[asyncio.Future[None]], problem: DfrsError | None) -> None:
    for future in waiting:
        if future.done():
            continue
        if problem is None:
            future.set_result(None)
        else:
            future.set_exception(type(problem)(str(problem)))


def _grouped(entries: Sequence[_Entry]) -> list[Change]:
    """The changes of all entries: rows of one statement together, in the order in which statements first come."""
    found: dict[int, tuple[UpdateBase, list[Mapping[str, Any]]]] = {}
    for entry in entries:
        for statement, rows in entry.changes:
            if rows:
                found.setdefault(id(statement), (statement, []))[1].extend(rows)
    return list(found.values())


def _writer(connection: Connection) -> str | None:
    return connection.execute(sa.select(tables.meta.c.value).where(tables.meta.c.key == WRITER)).scalar()


def _engine(url: str) -> Engine:
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        return sa.create_engine(parsed, pool_pre_ping=True, hide_parameters=True)
    engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_S}, hide_parameters=True)

    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    # The driver is to begin no transactions by itself: ours begin with the lock for writing.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def migrate(connection: Connection, revision: str = "head") -> None:
    """Bring the tables up to a revision; what they have is kept."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    with connection.begin():
        command.upgrade(config, revision)


def _line(error: BaseException) -> str:
    """The error in one line, without statements and parameters."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split())[:300] or type(cause).__name__
