"""Which transaction of a database was the last, in a file beside it.

SQLite keeps the latest transactions in its write-ahead log. If that is deleted, or the database copied without it,
SQLite opens the rest as if nothing had happened: an older cluster, or an empty one. So the number of each transaction
is written to this file before anybody is told that it was committed, and never before it is. At the next start, a
database that has fewer transactions has lost some.

The file is not flushed to the disk with each transaction, which would cost each a second flush: only a power cut loses
what is not, and then nothing is missing unless the log is lost, too.

The controller keeps the file open under a shared lock: who replaces the database takes an exclusive one.
"""

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from dfrs.model.errors import InputError

SUFFIX = ".last"
_BYTES = 128
"""Of the only record, which is always written at the same place: less than any disk's sector."""


@dataclass(frozen=True, slots=True)
class LastTransaction:
    """What the file says."""

    number: int
    """Counted from the first that the database ever had."""
    time: float
    """Wall clock."""

    @property
    def when(self) -> str:
        """Its time, in local time."""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.time))


def path_for(database: Path) -> Path:
    """Where it is."""
    return database.with_name(database.name + SUFFIX)


def read(database: Path) -> LastTransaction | None:
    """The last transaction; None where there is no file, or nothing was written to it yet. Raises InputError."""
    path = path_for(database)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if not text:
        return None
    try:
        found = json.loads(text)
        return LastTransaction(int(found["transaction"]), float(found["time"]))
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{path}: cannot be read, so {database.name} may lack transactions: restore a backup (dfrs restore FILE), "
            f"or accept that (dfrs restore --accept-loss)"
        ) from None


class LastTransactionFile:
    """The file, open and locked; made, readable for this account alone, where there is none.

    `alone`: nobody else may have it open. Raises InputError, where somebody has whom this excludes, too.
    """

    def __init__(self, database: Path, *, alone: bool = False) -> None:
        self._written = False
        """Since it was flushed."""
        path = path_for(database)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                sync(path.parent)
            except BaseException:
                os.close(self._file)
                raise
        except BlockingIOError:
            why = "a controller uses it; stop that first" if alone else "it is being restored; try again"
            raise InputError(f"{database}: cannot be used: {why}") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None

    def write(self, number: int) -> None:
        """Transaction `number` was the last. Raises OSError."""
        record = json.dumps({"transaction": number, "time": round(time.time(), 3)})
        os.pwrite(self._file, record.ljust(_BYTES - 1).encode() + b"\n", 0)
        self._written = True

    def flush(self) -> None:
        """Return when what was written is on the disk. Raises OSError."""
        if self._written:
            self._written = False
            try:
                os.fdatasync(self._file)
            except OSError:
                self._written = True
                raise

    def close(self) -> None:
        """Let go of it."""
        os.close(self._file)


def sync(directory: Path) -> None:
    """Let names in it be durable. Raises OSError."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
