"""Controllers go on from databases of every revision of the tables: jobs, history, tokens, decisions."""

import asyncio
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from dfrs.live.controller import revisions, tables
from dfrs.live.controller.backups import back_up
from dfrs.live.controller.revisions import REVISIONS
from dfrs.live.doctor import state as doctor
from dfrs.live.protocol.resources import JobState
from dfrs.testing import InMemoryHosts, make_controller, until
from tests.old_databases import POLICY, SECRET, path_of, restore

STATES = {
    1: JobState.DONE,
    2: JobState.FAILED,
    3: JobState.RUNNING,
    4: JobState.HELD,
    5: JobState.PENDING,
    6: JobState.HELD,
    7: JobState.HELD,
    8: JobState.HELD,
    9: JobState.CANCELLED,
}


def test_every_revision_is_known_and_has_its_database():
    migrations = ScriptDirectory.from_config(revisions.make_config()).walk_revisions()
    assert [each.revision for each in migrations] == list(reversed(REVISIONS))
    assert [name for name in REVISIONS if not path_of(name).exists()] == []


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_controller_goes_on_from_it(tmp_path, revision):
    file = tmp_path / "live.db"
    restore(revision, file)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == (revision,)

    async def story():
        hosts = InMemoryHosts()
        controller = make_controller(tmp_path, POLICY, clock=hosts.clock)
        await controller.start()
        assert {number: controller.job(number).state for number in STATES} == STATES
        assert controller.state.mismatches == 0
        assert controller.job(2).exit == "ended with status 3; bad luck"
        assert controller.job(1).attempt == 0
        assert [job.name for job in controller.jobs(user="bob")] == ["array"] * 3
        assert controller.identify(SECRET).user == "ann"
        assert controller.state.nodes[1].drained
        assert [each.action for each in controller.activity(job=1)] == ["submit", "start", "finish"]
        assert controller.cluster().jobs[JobState.DONE] == 1
        # Its node comes and has nothing of the job that ran there: it begins once more, and others go on.
        for name in ("n1", "n2"):
            hosts.node(name, "h", 4.0)
        hosts.attach_all(controller)
        await controller.undrain("n2", "root")
        await controller.release(4, "ann")
        await until(lambda: controller.job(4).state is JobState.RUNNING)
        await until(lambda: controller.job(3).attempt == 1)
        await controller.stop()
        again = make_controller(tmp_path, POLICY, clock=hosts.clock)
        await again.start()
        assert again.state.mismatches == 0
        await again.stop()

    asyncio.run(story())
    (found,) = doctor.database(file)
    assert found.verdict == "ok", found
    assert back_up(file, tmp_path / "copy").revision == revisions.LATEST


@pytest.mark.parametrize("revision", REVISIONS)
def test_migrated_tables_are_those_of_a_new_database(tmp_path, revision):
    def columns(engine):
        inspector = sa.inspect(engine)
        return {
            name: [(column["name"], str(column["type"]), column["nullable"]) for column in inspector.get_columns(name)]
            for name in tables.metadata.tables
        }

    restore(revision, tmp_path / "old.db")
    found = []
    for name in ("old", "new"):
        engine = sa.create_engine(f"sqlite:///{tmp_path}/{name}.db")
        with engine.connect() as connection:
            revisions.migrate(connection)
        found.append(columns(engine))
        engine.dispose()
    assert found[0] == found[1]
