"""A database of SQLite as a file: where it is, what it has, and whether it is whole. Nothing here changes it."""

import os
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import sqlalchemy as sa

from dfrs.live.controller import last_transaction, revisions, tables
from dfrs.live.controller.checkpoint_data import why_damaged
from dfrs.live.controller.damage import damage_in, damaged, disk_trouble
from dfrs.live.controller.last_transaction import LastTransaction
from dfrs.model.errors import DfrsError, InputError

BUSY_S = 5.0
"""So long a locked database is waited for."""
CHECKED_BYTES = 128 << 20
"""The pages of larger databases are not all read before a controller starts, but after: that takes a second for each so
many bytes, or more."""
BESIDE = ("-wal", "-shm", "-journal")
"""Files that SQLite keeps beside a database, by how their names end."""
WRITER, VERSION, COUNTED = "writer", "version", "counted"
"""In `meta`: who may write and how often somebody has; the version of dfrs that did so last; there if a file beside the
database has the number of its last transaction."""
_ACCEPT = "restore a backup (dfrs restore FILE), or accept the loss (dfrs restore --accept-loss)"


def file_of(url: str) -> Path | None:
    """The file of the database with that URL; None where it is none of SQLite's, or in memory."""
    parsed = sa.make_url(url)
    name = parsed.database
    if parsed.get_backend_name() != "sqlite" or not name or name == ":memory:" or parsed.query.get("mode") == "memory":
        return None
    return Path(unquote(urlsplit(name).path) if name.startswith("file:") else name)


def files_of(database: Path) -> list[Path]:
    """The database, and those that SQLite may keep beside it."""
    return [database, *(database.with_name(database.name + end) for end in BESIDE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a database has."""

    version: str | None
    """Of the dfrs that wrote it last."""
    revision: str
    """Of its tables."""
    transactions: int
    """That were ever committed."""
    last_event: int
    last_event_at: float | None
    """Wall clock; None without events."""
    rows: Mapping[str, int]
    """By table."""


@contextmanager
def reading(file: Path) -> Generator[sqlite3.Connection]:
    """A connection in a transaction that sees one state of it. Raises InputError, also where it is damaged.

    Raises UnavailableError where its disk is full or does not work.
    """
    # A transaction that was interrupted before there was a write-ahead log must be undone first.
    mode = "rw" if file.with_name(file.name + "-journal").exists() else "ro"
    try:
        name = f"{file.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(name, uri=True, timeout=BUSY_S, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            yield connection
    except sqlite3.Error as error:
        raise _refusal(file, error) from None


def examine(file: Path) -> int:
    """How many transactions it ever had; 0 for none at all. Raises InputError where it is damaged, newer or older.

    Older: it lacks transactions that were committed. Of a large one not all pages are read. Raises UnavailableError as
    `reading`.
    """
    known = last_transaction.read(file)
    if not exists(file):
        refuse_missing(file, known)
        return 0
    with reading(file) as connection:
        if not is_large(file):
            check_pages(file, connection)
        check_revision(file, connection)
        check_transactions(file, connection, known)
        for bad in damaged_checkpoints(connection):
            refuse_damaged_checkpoint(file, *bad)
        return transactions(connection)


def is_large(file: Path) -> bool:
    """Whether reading all of its pages takes long."""
    return file.stat().st_size > CHECKED_BYTES


def exists(file: Path) -> bool:
    """Whether there is a database. Raises InputError."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None


def deleted_in_use(file: Path) -> Path | None:
    """A file of the database that this process has open though its name is gone; None if there is none."""
    gone = {f"{name.resolve()} (deleted)": name for name in files_of(file)}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            name = gone.get(os.readlink(f"/proc/self/fd/{number}"))
            if name is not None:
                return name
    return None


def refuse_missing(file: Path, known: LastTransaction | None) -> None:
    """Raise InputError if there was a database once."""
    if known is not None and known.number:
        raise InputError(f"{file}: is missing, with {known.number} transactions, the last at {known.when}: {_ACCEPT}")


def check_pages(file: Path, connection: sqlite3.Connection, *, thorough: bool = False) -> None:
    """Raise InputError for a page that is damaged; `thorough`: also for an index that does not fit its table.

    Raises UnavailableError as `reading`.
    """
    try:
        (found,) = connection.execute(f"PRAGMA {'integrity' if thorough else 'quick'}_check(1)").fetchone()
    except sqlite3.Error as error:
        raise _refusal(file, error) from None
    if found != "ok":
        raise InputError(damaged(str(file), " ".join(found.split())[:100]))


def check_revision(file: Path, connection: sqlite3.Connection) -> None:
    """Raise InputError if only a newer dfrs can use it."""
    revisions.refuse_newer(str(file), _revision(connection), _meta(connection, VERSION))


def check_transactions(file: Path, connection: sqlite3.Connection, known: LastTransaction | None) -> None:
    """Raise InputError if there were transactions that it does not have. `known` was read before it was opened."""
    number = transactions(connection)
    if known is None and _meta(connection, COUNTED):
        beside = last_transaction.path_for(file).name
        raise InputError(f"{file}: may lack transactions, since {beside} is missing: {_ACCEPT}")
    if known is not None and number < known.number:
        raise InputError(
            f"{file}: lacks {known.number - number} of {known.number} transactions, the last at {known.when}, as if "
            f"{file.name}-wal was deleted: {_ACCEPT}"
        )


def damaged_checkpoints(connection: sqlite3.Connection) -> Generator[tuple[int, str]]:
    """The number of each checkpoint that is not as it was written, and why; those of other revisions are not read."""
    if _revision(connection) != revisions.LATEST:
        return
    for sequence, arrays, shell in connection.execute("SELECT sequence, arrays, shell FROM checkpoints"):
        why = why_damaged(arrays, shell)
        if why is not None:
            yield sequence, why


def refuse_damaged_checkpoint(file: Path, sequence: int, why: str) -> None:
    """Raise InputError."""
    raise InputError(
        f"{file}: damaged database: checkpoint after event {sequence}: {why}; restore a backup (dfrs restore FILE), or "
        f"go on from the events (dfrs restore --accept-loss)"
    )


def transactions(connection: sqlite3.Connection) -> int:
    """How many were ever committed."""
    return count_in(_meta(connection, WRITER))


def count_in(mark: str | None) -> int:
    """Of the writer's row: how many transactions there were."""
    number = (mark or "").rpartition(":")[2]
    return int(number) if number.isdecimal() else 0


def contents(file: Path, connection: sqlite3.Connection) -> Contents:
    """What it has. Raises InputError if it is no controller's."""
    revision = _revision(connection)
    if revision is None or not _has(connection, "meta") or not _has(connection, "events"):
        raise InputError(f"{file}: is a database, but not of a dfrs controller")
    names = [str(name) for (name,) in connection.execute(_TABLES) if name != "alembic_version"]
    last, time_s = connection.execute("SELECT max(sequence), max(time_s) FROM events").fetchone()
    epoch = _meta(connection, "epoch")
    return Contents(
        version=_meta(connection, VERSION),
        revision=revision,
        transactions=transactions(connection),
        last_event=last or 0,
        last_event_at=None if epoch is None or time_s is None else float(epoch) + time_s,
        rows={name: _rows(connection, name) for name in names},
    )


def _rows(connection: sqlite3.Connection, table: str) -> int:
    quoted = table.replace('"', '""')
    return int(connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0])  # noqa: S608 - a quoted name


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"


def _has(connection: sqlite3.Connection, table: str) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    return found.fetchone() is not None


def _revision(connection: sqlite3.Connection) -> str | None:
    if not _has(connection, "alembic_version"):
        return None
    found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if found is None else str(found[0])


def _meta(connection: sqlite3.Connection, key: str) -> str | None:
    if not _has(connection, tables.meta.name):
        return None
    found = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if found is None else str(found[0])


def _refusal(file: Path, error: sqlite3.Error) -> DfrsError:
    why = damage_in(error)
    if why is not None:
        return InputError(damaged(str(file), why))
    text = f"{file}: cannot be read: {' '.join(str(error).split())[:200]}"
    return disk_trouble(str(file), error) or InputError(text)
