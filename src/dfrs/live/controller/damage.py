"""What says that a database is damaged, and what to do then, in one line."""

import sqlite3

from dfrs.live.errors import UnavailableError

_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_TEXT = "Could not decode to UTF-8"


class DamagedError(UnavailableError):
    """Part of what the database has cannot be read any more: stop the controller and restore a backup."""

    def __init__(self, why: str, where: str = "database") -> None:
        super().__init__(damaged(where, why))
        self.why = why


def damaged(where: str, why: str) -> str:
    """The line for the database `where`."""
    return f"{where}: damaged database: {why}; restore a backup: dfrs restore FILE"


def damage_in(error: BaseException) -> str | None:
    """What is damaged, where an error of SQLite, or of SQLAlchemy about one, says so; None if it says anything else."""
    cause = getattr(error, "orig", None) or error
    code = getattr(cause, "sqlite_errorcode", None)
    text = " ".join(str(cause).split())[:100]
    if code is not None and (code & 0xFF in _CODES or code == sqlite3.SQLITE_IOERR_SHORT_READ):
        return text
    return text if text.startswith(_NO_TEXT) else None
