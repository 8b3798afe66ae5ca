"""A controller's own directory: who may look into it, and whether its database is whole."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dfrs.live.client import CLIENT_FILE
from dfrs.live.controller.database_file import (
    check_pages,
    check_revision,
    check_transactions,
    contents,
    damaged_checkpoints,
    exists,
    reading,
)
from dfrs.live.controller.last_transaction import path_for
from dfrs.live.controller.last_transaction import read as read_last
from dfrs.live.doctor.findings import Finding, ok, warning, wrong
from dfrs.live.home import AGENT_FILE
from dfrs.model.errors import InputError

PRIVATE = (CLIENT_FILE, AGENT_FILE, "ca.key", "tls/ca.key", "tls/server.key")
"""Files that hold secrets."""


def directory(state: Path) -> Iterator[Finding]:
    """Whether nobody else may look into it, or into the files with secrets."""
    check = "state directory"
    if not state.is_dir():
        yield ok(check, f"{state}: is not there: no controller has run on it")
        return
    mode = stat.S_IMODE(state.stat().st_mode)
    if mode & 0o077:
        yield wrong(check, f"{state}: others may look into it ({mode:03o})", f"chmod 700 {state}")
    elif state.stat().st_uid != os.geteuid():
        yield warning(check, f"{state}: belongs to another account", "run dfrs doctor as that account, or as root")
    else:
        yield ok(check, f"{state}: for this account alone")
    for path in (state / name for name in PRIVATE):
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            mode = stat.S_IMODE(path.stat().st_mode)
            mend = f"chmod 600 {path}, and revoke the token in it"
            yield wrong("secrets", f"{path}: others may read it ({mode:03o})", mend)


def database(file: Path | None) -> Iterator[Finding]:
    """Whether it is whole; None: it is no file."""
    check = "database"
    if file is None:
        yield ok(check, "is no file of SQLite: its own tools check it")
        return
    known = read_last(file)
    if not exists(file):
        if known is not None and known.number:
            yield wrong(check, f"{file}: is missing, with {known.number} transactions", "dfrs restore FILE")
        else:
            yield ok(check, f"{file}: is not there: the first controller makes it")
        return
    if not path_for(file).exists():
        yield wrong(check, f"{path_for(file)}: is missing: transactions may be, too", "dfrs restore --accept-loss")
        return
    try:
        with reading(file) as connection:
            check_revision(file, connection)
            check_transactions(file, connection, known)
            check_pages(file, connection, thorough=True)
            for number, why in damaged_checkpoints(connection):
                raise InputError(f"{file}: checkpoint after event {number}: {why}")
            found = contents(file, connection)
    except InputError as error:
        yield wrong(check, str(error), "dfrs restore FILE, or see how-to/back-up-and-restore")
        return
    size = file.stat().st_size / (1 << 20)
    yield ok(check, f"{file}: whole; {found.rows['events']} events, {found.rows['jobs']} jobs, {size:.0f} MiB")
