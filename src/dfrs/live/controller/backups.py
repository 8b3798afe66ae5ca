"""Copies of a database of SQLite, made while a controller uses it, checked, and put in the place of another."""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from dfrs.live.controller import last_transaction
from dfrs.live.controller.database_file import (
    COUNTED,
    Contents,
    check_pages,
    check_revision,
    check_transactions,
    contents,
    damaged_checkpoints,
    exists,
    files_of,
    reading,
    refuse_damaged_checkpoint,
    refuse_missing,
)
from dfrs.live.controller.last_transaction import LastTransactionFile
from dfrs.model.errors import DfrsError, InputError

PAGES = 1024
"""Copied between two reports of progress."""

Tell = Callable[[float], None]
"""Hears which fraction is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What has become of a database."""

    contents: Contents | None
    """None: there was none, and the next controller begins anew."""
    aside: Path | None
    """Directory that has the files that were there before."""


def back_up(database: Path, target: Path, *, replace: bool = False, tell: Tell = lambda _: None) -> Contents:
    """Copy the database as it is at one moment to `target`, whole or not at all; what the copy has.

    The copy is read again and checked before it gets its name. Raises InputError, also where the database is damaged
    or lacks transactions, and DfrsError.
    """
    if target.is_dir() or not target.parent.is_dir():
        raise InputError(f"{target}: must be a file in a directory that exists")
    if target.exists() and any(target.samefile(each) for each in files_of(database) if each.exists()):
        raise InputError(f"{target}: is the database itself")
    if target.exists() and not replace:
        raise InputError(f"{target}: exists already; name another file, or replace it with --force")
    known = last_transaction.read(database)
    if not exists(database):
        refuse_missing(database, known)
        raise InputError(f"{database}: there is no database; name a controller's directory with --state")
    fresh = _fresh(target)
    try:
        found = _copy(database, fresh, tell)
        _rename(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)
    return found


def restore(source: Path, database: Path, *, accept: bool = False, tell: Tell = lambda _: None) -> Restored:
    """Put a copy of `source` in the place of `database`, whose files are kept in a directory beside it.

    Nothing is touched before the copy is made and checked. `accept`: also if transactions are missing or a checkpoint
    is damaged, which is left out then; `source` may be the database itself, or missing. Raises InputError, also while
    a controller uses the database, and DfrsError.
    """
    missing = not exists(source)
    if missing and not (accept and source == database):
        raise InputError(f"{source}: there is no such file, or it is empty: must be a file that dfrs backup wrote")
    last = LastTransactionFile(database, alone=True)
    fresh = _fresh(database)
    try:
        found = None if missing else _copy(source, fresh, tell, accept=accept)
        try:
            aside = _put_aside(database, last, 0 if found is None else found.transactions)
            if found is not None:
                _rename(fresh, database)
        except OSError as error:
            raise DfrsError(f"{database}: cannot be replaced: {error.strerror}; look for its files beside it") from None
    finally:
        fresh.unlink(missing_ok=True)
        last.close()
    return Restored(contents=found, aside=aside)


def _copy(source: Path, fresh: Path, tell: Tell, *, accept: bool = False) -> Contents:
    """Copy `source` to the new file `fresh`, and check the copy. Raises InputError, DfrsError."""
    known = None if accept else last_transaction.read(source)
    with reading(source) as connection:
        check_revision(source, connection)
        if not accept:
            check_transactions(source, connection, known)
        found = contents(source, connection)
        try:
            os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(fresh, isolation_level=None)) as copy:
                connection.backup(
                    copy, pages=PAGES, progress=lambda _, left, total: tell(1 - left / total if total else 1.0)
                )
                # One file, without others beside it.
                copy.execute("PRAGMA journal_mode=DELETE")
        except OSError as error:
            raise DfrsError(f"{fresh.parent}: the copy cannot be written: {error.strerror}") from None
        except sqlite3.OperationalError as error:
            raise DfrsError(f"{fresh.parent}: the copy cannot be written: {error}") from None
    with reading(fresh) as connection:
        # What is wrong with the copy is wrong with what was copied.
        check_pages(source, connection, thorough=True)
        bad = list(damaged_checkpoints(connection))
        if bad and not accept:
            refuse_damaged_checkpoint(source, *bad[0])
        if contents(source, connection) != found:
            raise DfrsError(f"{fresh.parent}: the copy of {source} is not what was copied: check the disk")
    with closing(sqlite3.connect(fresh)) as connection, connection:
        # The copy has no file with the number of its last transaction, and lacks none.
        connection.execute("DELETE FROM meta WHERE key = ?", (COUNTED,))
        connection.executemany("DELETE FROM checkpoints WHERE sequence = ?", [(number,) for number, _ in bad])
    return found


def _put_aside(database: Path, last: LastTransactionFile, transactions: int) -> Path | None:
    """Keep what is there in a directory of its own. Raises OSError.

    Where this is interrupted, the next start finds fewer transactions than the file `last` says, or no database.
    """
    number = last_transaction.path_for(database)
    there = [path for path in files_of(database) if path.exists()]
    aside = None
    if there or number.stat().st_size:
        aside = _new_directory(database.parent)
        shutil.copy2(number, aside / number.name)
    last.write(transactions)
    last.flush()
    for path in there:
        assert aside is not None
        path.rename(aside / path.name)
    if aside is not None:
        last_transaction.sync(aside)
    return aside


def _new_directory(where: Path) -> Path:
    name = f"before-restore-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while True:
        made = where / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            made.mkdir(mode=0o700)
            return made
        number += 1


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _rename(fresh: Path, target: Path) -> None:
    """Give the file its name, durably. Raises OSError."""
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(target)
    last_transaction.sync(target.parent)
