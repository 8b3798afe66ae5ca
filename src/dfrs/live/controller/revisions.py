"""Revisions of the tables: which ones this program knows, and the way up to the latest."""

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from dfrs.live.controller import tables
from dfrs.live.controller.pruned import KEY, Pruned
from dfrs.model.errors import InputError
from dfrs.version import __version__

if TYPE_CHECKING:
    from alembic.config import Config

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""Those of `migrations`, from the first on."""
LATEST = REVISIONS[-1]
"""The one that this program works with."""


def make_config() -> "Config":
    """For Alembic."""
    from alembic.config import Config  # noqa: PLC0415 - most controllers have no tables to change, and start sooner

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def revision_of(connection: Connection) -> str | None:
    """That of its tables; None where there are none. In a transaction."""
    if "alembic_version" not in sa.inspect(connection).get_table_names():
        return None
    return connection.execute(sa.select(sa.column("version_num")).select_from(sa.table("alembic_version"))).scalar()


def refuse_newer(where: str, revision: str | None, version: str | None) -> None:
    """Raise InputError where a newer program has changed the tables: `version`, if that is known."""
    if revision is None or revision in REVISIONS:
        return
    writer = f"dfrs {version}" if version else "a newer dfrs"
    known = f"{LATEST}, the latest that dfrs {__version__} knows"
    raise InputError(
        f"{where}: its tables have revision {revision}, written by {writer}: must be at most {known}; "
        f"install {writer} or a later one, or restore an older backup"
    )


def migrate(connection: Connection, revision: str = LATEST) -> None:
    """Bring the tables up to a revision; what they have is kept. Raises InputError where that cannot be."""
    with connection.begin():
        if revision_of(connection) == revision:
            return
        from alembic import command  # noqa: PLC0415 - few starts change tables

        config = make_config()
        config.attributes["connection"] = connection
        had = _has_stored_state(connection)
        command.upgrade(config, revision)
        if had and not _has_stored_state(connection):
            # What raises here undoes the migration.
            pruned = connection.execute(sa.select(tables.meta.c.value).where(tables.meta.c.key == KEY)).scalar()
            Pruned.read(pruned).refuse_replay("database", stored=True)


def _has_stored_state(connection: Connection) -> bool:
    if tables.checkpoints.name not in sa.inspect(connection).get_table_names():
        return False
    return connection.execute(sa.select(tables.checkpoints.c.sequence).limit(1)).first() is not None
