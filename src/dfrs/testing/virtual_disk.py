"""A disk below a database of SQLite that is full, loses its answer, or loses power in the middle of a write.

The real SQLite writes real files: in between is only the connection's `commit`. What a power cut leaves is what was
flushed by then: of the write-ahead log, the part up to the last commit with `synchronous=FULL`, and of a commit under
way any part, sector by sector. A transaction that changed nothing does not come to the disk: SQLite commits it without
any call of the system.
"""

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import event
from sqlalchemy.engine import Engine

from dfrs.live.controller.database_file import BESIDE
from dfrs.live.controller.last_transaction import path_for

SECTOR_BYTES = 512
WAL_HEADER_BYTES = 32
SYNCHRONOUS_FULL = 2
_SALTS = slice(16, 24)
"""Of the log's header: others than before when it has begun anew."""


class _Connection(sqlite3.Connection):
    disk: "VirtualDisk"
    before: tuple[int, int]
    """What `counts` said before the transaction."""

    def commit(self) -> None:
        """As the disk lets it."""
        if self.in_transaction and self.counts() != self.before:
            self.disk.commit(self, super().commit)
        else:
            super().commit()
        self.before = self.counts()

    def rollback(self) -> None:
        """Undo it, also on a disk that lets nothing be written."""
        super().rollback()
        self.before = self.counts()

    def counts(self) -> tuple[int, int]:
        """Changed rows so far, and changes of tables."""
        (tables,) = self.execute("PRAGMA schema_version").fetchone()
        return self.total_changes, tables


class VirtualDisk:
    """The disk of the SQLite database in the file `database`, from `with` to its end; also of those started later."""

    def __init__(self, database: Path, rng: random.Random) -> None:
        self.full = False
        """Whether no transaction that changed anything can be committed."""
        self.loses_answers = 0.0
        """Chance that a transaction is committed, and the answer is an error."""
        self.on_cut: Callable[[], object] | None = None
        """Called when power was cut in a commit: whoever waits for that commit is to hear of nothing any more."""
        self._file, self._wal = database, database.with_name(database.name + "-wal")
        self._random = rng
        self._safe = (b"", 0)
        """Salts and length of the log up to which it is flushed."""
        self._after: int | None = None
        self._left: dict[Path, bytes | None] | None = None
        self._flushed_number: bytes | None = None

    def __enter__(self) -> Self:
        event.listen(Engine, "do_connect", self._connect)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        event.remove(Engine, "do_connect", self._connect)

    def begin(self) -> None:
        """A controller has started: what it flushed then is safe."""
        self._flushed_number = _read(path_for(self._file))

    def cut_in_commit(self, after: int) -> None:
        """Cut power in a commit, after so many others."""
        self._after = after

    def cut(self) -> None:
        """Cut power now, unless that is so already. Files stay as they are until `restore_power`."""
        if self._left is None:
            salts, length = self._safe
            log = _read(self._wal) or b""
            if log[_SALTS] != salts:
                log = log[:WAL_HEADER_BYTES]
            elif len(log) > length:
                log = _torn(log[:length], log, self._random)
            self._leave(log)

    def restore_power(self) -> None:
        """Put what is left in the place of the files. Nobody may have them open."""
        assert self._left is not None
        for path in (self._file, *(self._file.with_name(self._file.name + end) for end in BESIDE)):
            path.unlink(missing_ok=True)
        for path, data in self._left.items():
            if data is not None:
                path.write_bytes(data)
        self._left = self._after = None

    def commit(self, connection: sqlite3.Connection, commit: Callable[[], None]) -> None:
        """Commit what was written, or fail as disks do. Raises sqlite3.OperationalError."""
        if self.full:
            raise _error(sqlite3.SQLITE_FULL, "database or disk is full")
        if self._after == 0 and self._left is None:
            self._commit_torn(commit)
            return
        commit()
        if self._after is not None:
            self._after -= 1
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        if synchronous >= SYNCHRONOUS_FULL:
            self._safe = self._mark()
        if self.loses_answers and self._random.random() < self.loses_answers:
            raise _error(sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error")

    def _commit_torn(self, commit: Callable[[], None]) -> None:
        before, tables = _read(self._wal) or b"", _read(self._file)
        commit()
        after = _read(self._wal) or b""
        if _read(self._file) != tables:
            # It was copied to the tables: the log was flushed before that.
            log = after
        elif before[_SALTS] != after[_SALTS]:
            # The header is flushed before what follows it.
            head = after[:WAL_HEADER_BYTES]
            log = head + _torn(before[WAL_HEADER_BYTES:], after[WAL_HEADER_BYTES:], self._random)
        else:
            log = _torn(before, after, self._random)
        self._leave(log)
        if self.on_cut is not None:
            self.on_cut()

    def _leave(self, log: bytes) -> None:
        number = path_for(self._file)
        numbers = [_read(number), self._flushed_number]
        self._left = {self._file: _read(self._file), self._wal: log or None, number: self._random.choice(numbers)}

    def _mark(self) -> tuple[bytes, int]:
        with self._wal.open("rb") as file:
            return file.read(WAL_HEADER_BYTES)[_SALTS], self._wal.stat().st_size

    def _connect(self, dialect: Any, record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:  # noqa: ANN401
        del dialect, record
        if not arguments or Path(str(arguments[0])) != self._file:
            return None
        connection = sqlite3.connect(*arguments, factory=_Connection, **options)
        connection.disk, connection.before = self, connection.counts()
        return connection


def _error(code: int, text: str) -> sqlite3.OperationalError:
    """As SQLite raises it."""
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _torn(before: bytes, after: bytes, rng: random.Random) -> bytes:
    """What may be there when power is cut while `before` becomes `after`: nothing of it, all, a part, any sectors."""
    how = rng.randrange(4)
    if how == 0:
        return before
    if how == 1:
        return after
    if how == 2:
        end = rng.randint(0, len(after))
        return after[:end] + before[end:]
    parts: list[bytes] = []
    for begin in range(0, len(after), SECTOR_BYTES):
        old, new = before[begin : begin + SECTOR_BYTES], after[begin : begin + SECTOR_BYTES]
        parts.append(new if rng.random() < 0.5 else old.ljust(len(new), b"\0"))
    return b"".join(parts)
