"""Databases of controllers as files: made, copied as after a kill, damaged."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import asynccontextmanager, closing
from pathlib import Path

from dfrs.live.protocol.resources import JobRequest, JobState, TokenRequest
from dfrs.testing import InMemoryHosts, make_controller, until

ENDS = (".last", "", "-wal")
"""Of the names of its files, in an order in which they fit together if something is written meanwhile."""
PAGE_BYTES = 4096


@asynccontextmanager
async def serving(directory, jobs=3, **settings):
    """A controller on `dfrs.db` in `directory`, with a node and jobs that run; it stops at the end."""
    directory.mkdir(exist_ok=True, mode=0o700)
    world = InMemoryHosts()
    world.node("n1", cpus=float(max(1, jobs)))
    controller = make_controller(directory, clock=world.clock, database=url(directory), **settings)
    await controller.start()
    try:
        world.attach_all(controller)
        await controller.create_token(TokenRequest(user="ann", role="user"), "ann")
        await run_jobs(controller, jobs)
        yield controller
    finally:
        await controller.stop()


async def run_jobs(controller, count):
    """Submit jobs that run until they are ended, and wait until they run."""
    request = JobRequest(command=("forever",), cpu_cores=1.0, memory_bytes=1 << 20)
    names = [(await controller.submit(request, "ann", "ann"))[0] for _ in range(count)]
    await until(lambda: all(controller.job(name).state is JobState.RUNNING for name in names))
    return names


def start(directory):
    """Start a controller on it, and stop it; the states of its jobs."""

    async def story():
        controller = make_controller(directory, database=url(directory))
        try:
            await controller.start()
            return [controller.job(name).state for name in sorted(controller.state.jobs)]
        finally:
            await controller.stop()

    return asyncio.run(story())


def url(directory):
    return f"sqlite:///{directory}/dfrs.db"


def killed_copy(directory, target):
    """The files as they would be found after kill -9 now; the database's path."""
    target.mkdir(mode=0o700)
    for end in ENDS:
        if (directory / f"dfrs.db{end}").exists():
            shutil.copy(directory / f"dfrs.db{end}", target / f"dfrs.db{end}")
    return target / "dfrs.db"


def contents_of(directory):
    """The bytes of all files, but for what SQLite makes anew: the index of the log, and a log without anything."""
    return {
        path.relative_to(directory): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm") and path.name != "lock" and path.stat().st_size
    }


def execute(file, *statements):
    """Change a database, and leave all of it in one file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        for statement, *values in statements:
            connection.execute(statement, *values)


def value(file, query):
    """The first value of a query's answer."""
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(query).fetchone()[0]


def overwrite(file: Path, offset, data=b"\xa5" * 64):
    """Write over a part of a file, as a bad disk does; a negative offset is from its end."""
    with file.open("r+b") as opened:
        opened.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        opened.write(data)


def damage_table(file, table):
    """Write over the first page of a table."""
    page = value(file, f"SELECT rootpage FROM sqlite_master WHERE name = '{table}'")
    overwrite(file, (page - 1) * PAGE_BYTES)
