"""The directory where a controller keeps what is its own: database, certificates, files for its users on this machine.

Nobody but its account may look into it. One controller at a time works on it.
"""

import fcntl
import json
import os
import pwd
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from dfrs.live.client import CLIENT_FILE
from dfrs.live.protocol.ports import Service
from dfrs.live.protocol.resources import Role, TokenRequest
from dfrs.model.errors import DfrsError, InputError

AGENT_FILE = "agent.token"
TLS, AUTHORITY = "tls", "ca.pem"
"""Where a controller keeps the certificates that it makes, and which of them others are to trust."""
_OURS = {
    CLIENT_FILE,
    AGENT_FILE,
    TLS,
    "dfrs.db",
    "dfrs.db.last",
    "lock",
    "host",
    "up.lock",
    "up.json",
    "ca.pem",
    "ca.key",
    "server.pem",
}
"""What is in a directory that a controller has used before, or that was prepared with another one's authority."""
_TOKEN_DAYS = 3650.0
"""Of the tokens in files that only this account can read."""


class _Client(BaseModel):
    url: str
    token: str
    ca: str | None = None


def make_private(directory: Path) -> None:
    """Make it for this account alone. One that is there is left as it is: it must be private, and empty or a state's.

    Raises InputError.
    """
    try:
        try:
            directory.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            why = _not_ours(directory)
        else:
            return
    except OSError as error:
        why = error.strerror or str(error)
    if why is not None:
        raise InputError(f"{directory}: cannot be a controller's own directory: {why}; name another with --state")


def _not_ours(directory: Path) -> str | None:
    """Why a directory that is there must not be used; None if it may. Raises OSError, InputError if it is another's."""
    about = directory.stat()
    if not stat.S_ISDIR(about.st_mode):
        return "it is a file"
    if about.st_uid != os.geteuid():
        owner = _account(about.st_uid)
        mend = f"run this as that account (sudo -u {owner}), or name another with --state"
        raise InputError(f"{directory}: belongs to another account: {mend}")
    names = set(os.listdir(directory))
    if names and not names & _OURS:
        return "it holds other things"
    if stat.S_IMODE(about.st_mode) & 0o077:
        return f"others may look into it (chmod 700 {directory})"
    return None


def _account(uid: int) -> str:
    """As sudo takes it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"#{uid}"


def write_private(path: Path, data: str | bytes, mode: int = 0o600) -> None:
    """Write a file so that it is never half there, and never readable for more than `mode` says. Raises DfrsError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with suppress(FileNotFoundError):
            fresh.unlink()
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except OSError as error:
        raise DfrsError(f"{path}: cannot be written: {error.strerror or error}") from None


@contextmanager
def lock(directory: Path, busy: str = "another controller works on it; name another with --state") -> Generator[None]:
    """Be the only controller on it. Raises InputError, which says `busy`, if there is another."""
    with (directory / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{directory}: {busy}") from None
        yield


async def leave_files(directory: Path, service: Service, *, user: str, url: str, ca: Path | None) -> None:
    """Leave the address and a token for an admin on this machine, and a token for agents, where none is good.

    `url` is where this machine reaches the controller. Raises DfrsError.
    """
    token = _good(service, _client_token(directory / CLIENT_FILE), "admin")
    if token is None:
        token = await _new(service, user, "admin")
    # Before the client file, so that whoever waits for that finds both.
    path = directory / AGENT_FILE
    if _good(service, _text(path), "agent") is None:
        write_private(path, await _new(service, "agents", "agent") + "\n")
    client = _Client(url=url, token=token, ca=None if ca is None else str(ca))
    write_private(directory / CLIENT_FILE, json.dumps(client.model_dump(), indent=2) + "\n")


def _good(service: Service, token: str | None, role: Role) -> str | None:
    if not token or not token.isascii():
        return None
    found = service.identify(token)
    return token if found is not None and found.role == role else None


async def _new(service: Service, user: str, role: Role) -> str:
    made = await service.create_token(
        TokenRequest(user=user, role=role, days=_TOKEN_DAYS, local=role == "agent"), "controller"
    )
    return made.token


def _client_token(path: Path) -> str | None:
    text = _text(path)
    try:
        return None if text is None else _Client.model_validate_json(text).token
    except ValidationError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
