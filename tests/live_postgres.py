"""A PostgreSQL of its own for a test, which goes away afterwards."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@contextmanager
def postgres_server():
    """Its URL, a function that runs one of its programs, and its directory; skips the test where there is none."""
    if not PROGRAMS:
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg")
    account = None
    if os.geteuid() == 0:
        account = next((n for n in ("postgres", "nobody") if any(p.pw_name == n for p in pwd.getpwall())), None)
        if account is None:
            pytest.skip("PostgreSQL does not run as root, and there is no other account")
    home = Path("/tmp") / f"dfrs-pg-{os.getpid()}-{time.monotonic_ns()}"
    home.mkdir()
    if account is not None:
        shutil.chown(home, account)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def program(name, *arguments, check=True):
        subprocess.run(
            [PROGRAMS[-1] / name, *arguments],
            user=account,
            cwd=home,
            check=check,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        )

    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {home} -c fsync=off"
    program("initdb", "-D", home / "data", "-A", "trust", "-U", "dfrs", "-E", "UTF8")
    program("pg_ctl", "-D", home / "data", "-o", options, "-w", "-l", home / "log", "start")
    try:
        yield f"postgresql://dfrs@127.0.0.1:{port}/postgres", program, home
    finally:
        program("pg_ctl", "-D", home / "data", "-m", "immediate", "stop", check=False)
        shutil.rmtree(home, ignore_errors=True)


def new_database(server, name):
    """The URL of a new database of that server."""
    engine = sa.create_engine(server.replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.rpartition("/")[0] + f"/{name}"
