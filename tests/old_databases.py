"""Databases of controllers of each revision of the tables, as SQL text in `tests/databases/`.

`python -m tests.old_databases` writes that of the present revision; do so before you add a migration. The file of an
earlier revision was made from it by the downgrade: `python -m tests.old_databases 0001`.
"""

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa
from alembic import command

from dfrs.live.controller import revisions
from dfrs.live.controller.tokens import hashed
from dfrs.live.protocol.resources import JobRequest, JobState, TokenRequest
from dfrs.testing import InMemoryCluster, run_virtually, until

FOLDER = Path(__file__).parent / "databases"
SECRET = "dfrs_of-an-old-database"
"""Of a token in all of them: ann's, role user."""
POLICY = "GreedyPM*/per/OPT=MIN/MVT=600"


async def _fill(directory):
    """Jobs in every state, an array, a job that waits for another, a drained node."""
    async with InMemoryCluster(POLICY, directory=directory, nodes=2) as live:
        ended = await live.submit("fail", "0", name="ended")
        failed = await live.submit("fail", "3", "bad luck", name="failed")
        await live.reaches(ended, JobState.DONE)
        await live.reaches(failed, JobState.FAILED)
        running = await live.submit("forever", name="running", cpu_cores=2.0, tasks=2)
        await live.reaches(running, JobState.RUNNING)
        await live.submit("forever", name="held", held=True, after=(ended,))
        await live.submit("forever", name="pending", after=(running,))
        await live.controller.submit(JobRequest(command=("forever",), name="array", array=3, held=True), "bob", "bob")
        cancelled = await live.submit("forever", name="cancelled", held=True)
        await live.controller.cancel(cancelled, "ann")
        await live.reaches(cancelled, JobState.CANCELLED)
        live.tick(10.0)
        await live.controller.create_token(TokenRequest(user="ann", role="user"), "root")
        await live.controller.engine.store()
        await live.controller.drain("n2", "root")
        await until(lambda: live.controller.state.nodes[1].drained)


def write(revision):
    """Make the file of that revision."""
    with tempfile.TemporaryDirectory() as name:
        run_virtually(0, lambda _: _fill(name))
        engine = sa.create_engine(f"sqlite:///{name}/live.db")
        with engine.connect() as connection, connection.begin():
            token = "UPDATE tokens SET hash = :hash, expires_at = 4e9"
            connection.execute(sa.text(token), {"hash": hashed(SECRET)})
            # A copy has no file with the number of its last transaction; and earlier programs pruned nothing.
            connection.execute(sa.text("DELETE FROM meta WHERE key IN ('counted', 'pruned')"))
            if revision != revisions.LATEST:
                config = revisions.make_config()
                config.attributes["connection"] = connection
                command.downgrade(config, revision)
        engine.dispose()
        with closing(sqlite3.connect(f"{name}/live.db")) as connection:
            FOLDER.mkdir(exist_ok=True)
            path_of(revision).write_text("".join(f"{line}\n" for line in connection.iterdump()))


def path_of(revision):
    """Of the file of that revision."""
    return FOLDER / f"{revision}.sql"


def restore(revision, file):
    """Make a database from it."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(path_of(revision).read_text())


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else revisions.LATEST)
