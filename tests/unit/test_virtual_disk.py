"""A virtual disk does to SQLite what a real one does, and no more."""

import os
import random
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from dfrs.live.controller.database_engine import make_engine
from dfrs.testing import VirtualDisk
from tests.live_disks import fill, small_disk


@contextmanager
def opened(path):
    """A database with one table, as the controller opens it."""
    engine = make_engine(f"sqlite:///{path}", "", 0)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (x)"))
    yield engine
    engine.dispose()


@contextmanager
def virtual(path):
    """As above, on a virtual disk."""
    with VirtualDisk(path, random.Random(0)) as disk, opened(path) as engine:
        yield disk, engine


def add(engine):
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (zeroblob(1000000))"))


def change_nothing(engine):
    """As a migration of tables that are up to date."""
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE IF NOT EXISTS t (x)"))
        connection.execute(sa.text("DELETE FROM t WHERE x = 1"))


def rows(engine):
    with engine.begin() as connection:
        return connection.execute(sa.text("SELECT count(*) FROM t")).scalar()


@contextmanager
def real_and_full(path):
    with small_disk(path / "disk", "500k"), opened(path / "disk" / "live.db") as engine:
        fill(path / "disk")
        yield engine


@contextmanager
def virtual_and_full(path):
    with virtual(path / "live.db") as (disk, engine):
        disk.full = True
        yield engine


@pytest.mark.parametrize("kind", [real_and_full, virtual_and_full])
def test_on_a_full_disk_only_what_changes_something_is_refused(tmp_path, kind):
    if kind is real_and_full and os.geteuid():
        pytest.skip("mounting needs root")
    with kind(tmp_path) as engine:
        change_nothing(engine)
        with pytest.raises(sa.exc.OperationalError, match="database or disk is full"):
            add(engine)
        change_nothing(engine)
        assert rows(engine) == 0


def test_only_answers_to_what_changes_something_are_lost(tmp_path):
    """Or a controller would hardly ever start there: it first looks whether its tables are up to date."""
    with virtual(tmp_path / "live.db") as (disk, engine):
        disk.loses_answers = 1.0
        change_nothing(engine)
        with pytest.raises(sa.exc.OperationalError, match="disk I/O error"):
            add(engine)
        change_nothing(engine)
        assert rows(engine) == 1


def test_a_new_table_is_a_change(tmp_path):
    with (
        virtual_and_full(tmp_path) as engine,
        pytest.raises(sa.exc.OperationalError, match="full"),
        engine.begin() as connection,
    ):
        connection.execute(sa.text("CREATE TABLE another (x)"))


def test_power_is_cut_in_a_commit_that_writes(tmp_path):
    with virtual(tmp_path / "live.db") as (disk, engine):
        cut = []
        disk.on_cut = lambda: cut.append(True)
        disk.cut_in_commit(0)
        change_nothing(engine)
        assert not cut
        add(engine)
        assert cut
