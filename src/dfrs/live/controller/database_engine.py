"""Connections to the database of a controller: SQLite set up for one writer, PostgreSQL with its driver."""

import sqlite3

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from dfrs.live.controller.database_file import BUSY_S


def with_driver(parsed: sa.URL) -> sa.URL:
    """The URL, which need not name the driver of PostgreSQL."""
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed


def make_engine(url: str, session: str, silent_ms: int) -> Engine:
    """Raises ImportError. With PostgreSQL, sessions have that name, and break after so long without any answer."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() != "sqlite":
        known: dict[str, str | int] = {}
        if parsed.get_backend_name() == "postgresql":
            known = {"application_name": session, "tcp_user_timeout": silent_ms}
        return sa.create_engine(with_driver(parsed), pool_pre_ping=True, hide_parameters=True, connect_args=known)
    engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_S}, hide_parameters=True)

    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin)
    return engine


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    # The driver is to begin no transactions by itself: ours begin with the lock for writing.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def _begin(connection: Connection) -> None:
    reads = connection.get_execution_options().get("reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
