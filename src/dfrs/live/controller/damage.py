"""What says that a database is damaged, or that its disk does not work now, and what to do then, in one line."""

import errno
import sqlite3

from dfrs.live.errors import UnavailableError

_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_DISK_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_DISK_NUMBERS = {errno.ENOSPC, errno.EDQUOT, errno.EIO}
_NO_TEXT = "Could not decode to UTF-8"


class DamagedError(UnavailableError):
    """Part of what the database has cannot be read any more: stop the controller and restore a backup."""

    def __init__(self, why: str, where: str = "database") -> None:
        super().__init__(damaged(where, why))
        self.why = why


def damaged(where: str, why: str) -> str:
    """The line for the database `where`."""
    return f"{where}: damaged database: {why}; restore a backup: dfrs restore FILE"


def disk_trouble(where: str, error: BaseException) -> UnavailableError | None:
    """For an error that is the disk's, without damage: later the same may work. None for any other."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorcode", None)
    said = code is not None and code & 0xFF in _DISK_CODES and damage_in(error) is None
    if not said and not (isinstance(cause, OSError) and cause.errno in _DISK_NUMBERS):
        return None
    text = " ".join(str(cause).split())[:100]
    return UnavailableError(f"{where}: its disk is full or does not work: {text}; make room or mend it, and try again")


def damage_in(error: BaseException) -> str | None:
    """What is damaged, where an error of SQLite, or of SQLAlchemy about one, says so; None if it says anything else."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorcode", None)
    text = " ".join(str(cause).split())[:100]
    if code is not None and (code & 0xFF in _CODES or code == sqlite3.SQLITE_IOERR_SHORT_READ):
        return text
    return text if text.startswith(_NO_TEXT) else None
