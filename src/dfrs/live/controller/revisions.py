"""Revisions of the tables: which ones this program knows, and the way up to the latest."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from dfrs.live.controller import tables
from dfrs.live.controller.pruned import KEY, Pruned
from dfrs.model.errors import InputError
from dfrs.version import __version__


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def latest() -> str:
    """The one that this program works with."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


def refuse_newer(where: str, revision: str | None, version: str | None) -> None:
    """Raise InputError where a newer program has changed the tables: `version`, if that is known."""
    script = ScriptDirectory.from_config(_config())
    if revision is None or revision in {each.revision for each in script.walk_revisions()}:
        return
    writer = f"dfrs {version}" if version else "a newer dfrs"
    known = f"{script.get_current_head()}, the latest that dfrs {__version__} knows"
    raise InputError(
        f"{where}: its tables have revision {revision}, written by {writer}: must be at most {known}; "
        f"install {writer} or a later one, or restore an older backup"
    )


def migrate(connection: Connection, revision: str = "head") -> None:
    """Bring the tables up to a revision; what they have is kept. Raises InputError where that cannot be."""
    config = _config()
    config.attributes["connection"] = connection
    with connection.begin():
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
