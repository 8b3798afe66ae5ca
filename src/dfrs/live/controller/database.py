"""The database as the controller uses it: durable writes in groups, one group after the other, and reads beside it.

Whoever writes waits until it is durable. All that waits is written in one transaction, so that many writers share one
flush of the disk. The first statement of each transaction counts up a row that names the writer: a controller that was
replaced by another one on the same database writes no more, and after a lost connection it is known whether the last
transaction came through. The count goes on from controller to controller. With SQLite it is kept in a file beside the
database, too, so that it shows if transactions are lost. With PostgreSQL, which controllers on several hosts can reach,
a lease says whether the one that writes is still there.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, TypeVar

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.dml import UpdateBase

from dfrs.live.controller import tables
from dfrs.live.controller.damage import DamagedError, damage_in, damaged, disk_trouble
from dfrs.live.controller.database_engine import make_engine, with_driver
from dfrs.live.controller.database_file import (
    COUNTED,
    VERSION,
    WRITER,
    check_pages,
    count_in,
    deleted_in_use,
    examine,
    file_of,
    files_of,
    is_large,
    reading,
)
from dfrs.live.controller.last_transaction import LastTransactionFile
from dfrs.live.controller.revisions import migrate, refuse_newer, revision_of
from dfrs.live.controller.standby import lease
from dfrs.live.controller.standby.lease import Lease, LeaseKeeper, Seen
from dfrs.live.errors import UnavailableError, UncertainError
from dfrs.live.protocol.durations import Durations
from dfrs.model.errors import DfrsError, InputError, ReplacedError, StoppedError
from dfrs.version import __version__

Change = tuple[UpdateBase, Sequence[Mapping[str, Any]]]
"""A statement, and its parameters row by row."""

MOST_GROUPED = 1000
"""So many writers share one transaction at most."""
RETRY_S = 1.0
PROGRESS_STEPS = 100_000
"""Of SQLite's machine, some milliseconds: so often a long reading asks whether it is to go on."""
LOCKED_MS = 5000
"""So long a take-over waits for a row that the one before has locked; after as long without any answer of PostgreSQL, a
connection counts as broken."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class AnotherLeadsError(DfrsError):
    """The database is not as it was when nobody seemed to lead."""


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
        self.durations = Durations()
        """Of all transactions."""
        self._url = url
        self._file = file_of(url)
        self.shared = sa.make_url(url).get_backend_name() == "postgresql"
        """Whether controllers of several hosts may use it, one at a time under a lease."""
        self.lease: LeaseKeeper | None = None
        """That of this controller, since it is open; None where it is not shared."""
        self._last: LastTransactionFile | None = None
        self._engine: Engine | None = None
        self._writer = ThreadPoolExecutor(1, "dfrs-database") if writer is None else writer
        self._waiting: deque[_Entry] = deque()
        self._connection: Connection | None = None
        self._owner = token_hex(8)
        self._count = 0
        self._closed = False
        self._stopped: StoppedError | None = None
        """Why nothing is written any more."""
        self._uncertain = False
        """Whether the last transaction may have been committed."""
        self._damage: str | None = None
        """What was found after the start."""

    @property
    def name(self) -> str:
        """What users know it by: its file, if it has one."""
        return "database" if self._file is None else str(self._file)

    def bytes(self) -> int | None:
        """Of its file and of the log beside it; None where it is no file."""
        if self._file is None:
            return None
        return sum(path.stat().st_size for path in files_of(self._file) if path.exists())

    def open(self, *, url: str = "") -> None:
        """Connect, bring the tables up to date, and take over. Raises InputError where that cannot be.

        Raises UnavailableError where its disk is full or does not work now.

        A database that is damaged, newer than this program, or older than it once was, is left as it is. `url` is where
        users find this controller.
        """
        with self.translated():
            if self.shared:
                self.take_over(url)
            else:
                self._open()

    def take_over(self, url: str, *, vacant: Seen | None = None, now_s: float | None = None) -> None:
        """Open a shared database. Raises SQLAlchemyError, and InputError where this program cannot use it.

        `now_s` is the core's time, if it is known. With `vacant`, which is what the database showed when nobody seemed
        to lead, raises AnotherLeadsError where it is not so any more.
        """
        with lease.taking_over(self.lease_engine()) as connection:
            before = lease.look(connection)
            if vacant is not None and (before.writer, before.leader) != (vacant.writer, vacant.leader):
                raise AnotherLeadsError
            owner = (before.writer or "").partition(":")[0]
            leading = Lease(owner=self._owner, url=url, now_s=now_s)
            self._open(leading, vacant, lambda: lease.end_sessions(connection, owner))

    def connect(self) -> None:
        """Be able to read, and no more. Raises InputError."""
        if self._engine is None:
            with self.translated():
                self._engine = make_engine(self._url, lease.session_name(self._owner), LOCKED_MS)

    def lease_engine(self) -> Engine:
        """For the lease of a shared database. Raises ImportError."""
        return lease.lease_engine(with_driver(sa.make_url(self._url)), lease.session_name(self._owner))

    def _open(
        self, leading: Lease | None = None, vacant: Seen | None = None, end: Callable[[], None] = lambda: None
    ) -> None:
        """`end` ends the sessions of the controller before."""
        had = 0 if self._file is None else examine(self._file)
        self.connect()
        assert self._engine is not None
        with self._engine.connect() as connection:
            if self._file is None:
                refuse_newer(self.name, *_versions(connection))
            else:
                self._last = LastTransactionFile(self._file)
                self._last.write(had)
                self._last.flush()
            end()
            migrate(connection)
            keeper = None if leading is None else LeaseKeeper(self.lease_engine(), leading)
            with connection.begin():
                self._take_over(connection, leading, vacant)
            if keeper is not None:
                keeper.start()
                self.lease = keeper
            self._note()
            if self._file is not None:
                # What is not in the log any more cannot be lost with it.
                connection.connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def translated(self) -> Generator[None]:
        """Raise InputError for what is wrong with the database, UnavailableError for what is with its disk."""
        try:
            yield
        except (SQLAlchemyError, OSError, ImportError) as error:
            why = damage_in(error)
            if why is not None:
                raise InputError(damaged(self.name, why)) from None
            raise disk_trouble(self.name, error) or InputError(f"database: {_line(error)}") from None

    def _take_over(self, connection: Connection, leading: Lease | None, vacant: Seen | None) -> None:
        if self.shared:
            connection.execute(sa.text(f"SET LOCAL lock_timeout = {LOCKED_MS}"))
        before = connection.execute(
            sa.select(tables.meta.c.value).where(tables.meta.c.key == WRITER).with_for_update()
        ).scalar()
        if vacant is not None and (before, _meta(connection, lease.LEADER)) != (vacant.writer, vacant.leader):
            raise AnotherLeadsError
        self._count = 1 + count_in(before)
        rows = {WRITER: self._mark(self._count), VERSION: __version__}
        if self._file is not None:
            rows[COUNTED] = "1"
        if leading is not None:
            rows[lease.LEADER] = leading.text()
        connection.execute(tables.meta.delete().where(tables.meta.c.key.in_(rows)))
        connection.execute(tables.ADD_META, [{"key": key, "value": value} for key, value in rows.items()])

    def _note(self) -> None:
        """Let it be known which transaction was the last. Raises OSError."""
        if self._last is not None:
            self._last.write(self._count)

    async def write(self, changes: Sequence[Change]) -> None:
        """Return when `changes` are durable.

        UncertainError: they may have been written, which cannot be found out. Any other UnavailableError: they were not
        and never will be. StoppedError: nothing will, any more.
        """
        if self._closed:
            raise UnavailableError("the controller is stopping")
        loop = asyncio.get_running_loop()
        entry = _Entry(changes, loop, loop.create_future())
        self._waiting.append(entry)
        self._writer.submit(self._write_waiting)
        # Who is cancelled while waiting must not take the place of the answer away from the writer.
        await asyncio.shield(entry.done)

    def must_lead(self) -> None:
        """Raise ReplacedError if another controller is known to lead, UnavailableError if one may by now."""
        keeper = self.lease
        if keeper is None or keeper.good:
            return
        if keeper.replaced:
            raise ReplacedError(REPLACED)
        if keeper.stood_by:
            raise UnavailableError(DOUBTFUL)

    async def flush(self) -> None:
        """Let the number of the last transaction be on the disk, too. Raises UnavailableError."""
        if self._last is not None:
            try:
                await asyncio.to_thread(self._last.flush)
            except OSError as error:
                raise UnavailableError(f"{self.name}: cannot be flushed: {error.strerror}") from None

    def check_large(self) -> None:
        """Read all pages of a file that was too large for that when it was opened; `must_be_ours` tells of damage.

        To be called in a thread. Ends early when the database is closed.
        """
        if self._file is None or not is_large(self._file):
            return
        try:
            with reading(self._file) as connection:
                connection.set_progress_handler(lambda: self._closed, PROGRESS_STEPS)
                check_pages(self._file, connection)
        except (InputError, UnavailableError) as error:
            if not self._closed:
                self._damage = str(error)

    async def must_be_ours(self) -> None:
        """Raise ReplacedError if another controller has taken over, StoppedError if it is damaged or a file deleted.

        Raises UnavailableError if that cannot be read.
        """
        if self._damage is not None:
            raise StoppedError(self._damage)
        try:
            found = await self.read(_writer)
        except DamagedError as error:
            raise StoppedError(str(error)) from None
        if (found or "").partition(":")[0] != self._owner:
            raise ReplacedError(REPLACED)
        gone = None if self._file is None else await asyncio.to_thread(deleted_in_use, self._file)
        if gone is not None:
            raise StoppedError(f"{gone}: was deleted while the controller used it: it stops, to save what it can")

    async def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` makes of a connection, in a thread. Raises UnavailableError, DamagedError."""
        return await asyncio.to_thread(self.read_now, work)

    def read_now(self, work: Callable[[Connection], T]) -> T:
        """As `read`, in this thread."""
        return self._read(work, {"reads": True})

    def read_whole(self, work: Callable[[Connection], T]) -> T:
        """As `read_now`, and all that `work` reads is of one moment."""
        whole = {"isolation_level": "REPEATABLE READ"} if self.shared else {}
        return self._read(work, {"reads": True, **whole})

    def _read(self, work: Callable[[Connection], T], options: Mapping[str, Any]) -> T:
        assert self._engine is not None
        try:
            with self._engine.connect().execution_options(**options) as connection:
                return work(connection)
        except SQLAlchemyError as error:
            why = damage_in(error)
            if why is not None:
                raise DamagedError(why, self.name) from None
            raise UnavailableError(f"the database cannot be read: {_line(error)}") from None

    def close(self) -> None:
        """Write what waits, and disconnect."""
        self._closed = True
        self._writer.submit(self._disconnect)
        self._writer.shutdown()
        if self.lease is not None:
            self.lease.stop()
        if self._engine is not None:
            self._engine.dispose()
        if self._last is not None:
            with suppress(OSError):
                self._last.flush()
            self._last.close()
            self._last = None

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
            if self._stopped is not None:
                raise self._stopped
            self._transact(_grouped(entries))
        except StoppedError as error:
            problem = self._stopped = error
        except SQLAlchemyError as error:
            problem = self._unless_written(_line(error))
            why = damage_in(error)
            if problem is not None and why is not None:
                # What is damaged is not to be written to: what is whole could be damaged with it.
                problem = self._stopped = StoppedError(damaged(self.name, why))
        except Exception as error:
            log.exception("cannot write to the database")
            problem = self._unless_written(type(error).__name__)
        trouble = None if problem is None else str(problem)
        if problem is None:
            self.commits += 1
            try:
                self._note()
            except OSError as error:
                # It is committed all the same: whoever waits must not do it a second time.
                trouble = f"{self.name}: the number of its last transaction cannot be written: {error.strerror}"
        self.commit_s = time.perf_counter() - begin_s
        self.durations.add(self.commit_s)
        if trouble is not None and self.trouble is None and not isinstance(problem, StoppedError):
            log.error("the database cannot be written", problem=trouble)
        self.trouble = trouble
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
            raise ReplacedError(REPLACED)
        for statement, rows in changes:
            connection.execute(statement, rows)

    def _unless_written(self, why: str) -> DfrsError | None:
        """Something went wrong: None if the transaction was committed all the same."""
        self._disconnect()
        try:
            if self._came_through():
                return None
            problem = UnavailableError(f"the database cannot be written: {why}")
        except UncertainError as error:
            problem = error
        self._count -= 1
        return problem

    def _came_through(self) -> bool:
        """Whether the transaction was committed though its connection was lost then: asked until it is known.

        Raises UncertainError where there is no time to wait for that, or another controller has taken over since: what
        this one wrote last stands nowhere then.
        """
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
                if (found or "").partition(":")[0] != self._owner:
                    raise UncertainError(f"{UNCERTAIN}: another controller has taken over its database")
                return found == self._mark(self._count)
        raise UncertainError(f"{UNCERTAIN}: it is stopping, and the database does not answer")

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


REPLACED = "another controller has taken over this database: only one may use it"
UNCERTAIN = "it may have been done, look before you do it again: the controller cannot find out"
DOUBTFUL = (
    "the lease cannot be renewed, so another controller may lead by now: nothing is done until the database answers"
)


def _writer(connection: Connection) -> str | None:
    return _meta(connection, WRITER)


def _meta(connection: Connection, key: str) -> str | None:
    return connection.execute(sa.select(tables.meta.c.value).where(tables.meta.c.key == key)).scalar()


def _versions(connection: Connection) -> tuple[str | None, str | None]:
    """Revision of the tables, and version of the program that used them last."""
    with connection.begin():
        known = tables.meta.name in sa.inspect(connection).get_table_names()
        return revision_of(connection), _meta(connection, VERSION) if known else None


def _line(error: BaseException) -> str:
    """The error in one line, without statements and parameters."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split())[:300] or type(cause).__name__
